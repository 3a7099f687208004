//! What parties see depends on public sizes alone, and shares look like noise.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use secsv_evaluation::{Envelope, in_process::Interceptor};
use secsv_protocol::{PartyId, message::Kind};

use crate::federations::{Act, Fixture, PROTOCOLS, Recipe, Shape, compact};

/// Writes everything down that passes.
struct Recorder(Arc<Mutex<Vec<Envelope>>>);

impl Interceptor for Recorder {
    fn pass(&mut self, envelope: Envelope) -> Vec<Envelope> {
        self.0.lock().unwrap().push(envelope.clone());
        vec![envelope]
    }
}

fn shapes() -> [Shape; 4] {
    [
        Shape::Logistic { features: 4 },
        Shape::Dense { features: 3, width: 4, hidden: vec![Act::Sigmoid, Act::Tanh] },
        Shape::Convolution {
            channels: 1,
            side: 4,
            outputs: 2,
            kernel: 2,
            stride: 1,
            padding: 1,
            act: Act::Softmax,
        },
        Shape::Gru { steps: 3, features: 2, hidden: 3, tail: None },
    ]
}

fn recipe(shape: &Shape, seed: u64) -> Recipe {
    let samples = vec![3, 0, 1, 4];
    Recipe { shape: shape.clone(), classes: 2, samples, rounds: 1, absence: 0, size_bits: 0, seed }
}

/// Sender, receiver, kind and length of frames, and how many there were.
type View = BTreeMap<(PartyId, PartyId, Kind, usize), usize>;

/// How often each link carried a frame of a kind and a length.
fn view(fixture: &Fixture, protocol: secsv_protocol::decryptors::Protocol) -> (View, Vec<Envelope>) {
    let frames = Arc::new(Mutex::new(Vec::new()));
    fixture.run(compact(protocol), Box::new(Recorder(frames.clone()))).unwrap();
    let frames = std::mem::take(&mut *frames.lock().unwrap());
    let mut view = BTreeMap::new();
    for frame in &frames {
        *view.entry((frame.from, frame.to, frame.kind, frame.content.len())).or_default() += 1;
    }
    (view, frames)
}

#[test]
fn equal_public_shapes_give_equal_views() {
    for shape in shapes() {
        for &protocol in PROTOCOLS {
            let first = recipe(&shape, 1).build();
            let published = |fixture: &Fixture| {
                let session = fixture.session(compact(protocol)).unwrap();
                session.hellos.into_iter().map(|hello| hello.ranges).collect::<Vec<_>>()
            };
            let ranges = published(&first);
            // Other models and other samples whose published ranges happen to be the same.
            let others = (2..20_000).map(|seed| recipe(&shape, seed).build());
            let mut second = others.into_iter().find(|other| published(other) == ranges).unwrap();
            // The same randomness: it picks the leader.
            second.seed = first.seed;
            assert_ne!(first.all_samples(), second.all_samples());
            let ((first, frames), (second, others)) = (view(&first, protocol), view(&second, protocol));
            assert_eq!(first, second, "{shape:?}");
            assert_eq!(frames.len(), others.len());
        }
    }
}

/// Elements of a server's shares fall into this many equal parts of the field.
const PARTS: u64 = 16;

/// The statistic has this many degrees of freedom less one; it exceeds 60 once in four million uniform samples.
fn chi_square(counts: &[u64]) -> f64 {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum()
}

fn parts_of(elements: impl Iterator<Item = u64>, modulus: u64) -> Vec<u64> {
    let mut counts = vec![0; PARTS as usize];
    elements.for_each(|x| counts[(u128::from(x) * u128::from(PARTS) / u128::from(modulus)) as usize] += 1);
    counts
}

/// The modulus of what is shared, and how many bytes an element takes.
fn field_of(kind: Kind) -> (u64, usize) {
    match kind {
        // Packed.
        Kind::LabelShare | Kind::PredictionShare => (256, 1),
        _ => (secsv_protocol::Field::COMPACT, 5),
    }
}

#[test]
fn the_auxiliarys_shares_are_uniform() {
    let mut elements: BTreeMap<Kind, Vec<u64>> = BTreeMap::new();
    for (seed, shape) in (21..).zip(shapes()) {
        let mut recipe = recipe(&shape, seed);
        recipe.samples = vec![60, 0, 20, 80];
        let fixture = recipe.build();
        let (_, frames) = view(&fixture, secsv_protocol::decryptors::Protocol::SecSv);
        for frame in frames.iter().filter(|frame| frame.to == PartyId::Auxiliary) {
            let packed = match frame.kind {
                Kind::DataShare => &frame.content[..],
                Kind::ActivationShare | Kind::LabelShare | Kind::PredictionShare | Kind::MaskedFactors => {
                    &frame.content[20..]
                }
                _ => continue,
            };
            let size = field_of(frame.kind).1;
            assert!(packed.len() % size == 0);
            elements.entry(frame.kind).or_default().extend(
                packed
                    .chunks_exact(size)
                    .map(|bytes| bytes.iter().rev().fold(0, |x, byte| x << 8 | u64::from(*byte))),
            );
        }
    }
    assert_eq!(elements.len(), 5, "every kind of share was seen");
    for (kind, elements) in elements {
        let parts = parts_of(elements.iter().copied(), field_of(kind).0);
        println!("{kind}: {} elements, chi-square {:.1}", elements.len(), chi_square(&parts));
        assert!(elements.len() > 500 && chi_square(&parts) < 60.0, "{kind}: {parts:?}");
    }
    // What is not shared would be noticed.
    let modulus = field_of(Kind::DataShare).0;
    let small = (0..1000u64).map(|x| if x % 2 == 0 { x << 20 } else { modulus - (x << 20) });
    assert!(chi_square(&parts_of(small, modulus)) > 1000.0);
}
