//! Every kind of message, every fault: the right values or a typed error that names party and step.
//!
//! Failures: a wrong value, a panic, a hang, an error that says neither who nor what.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use secsv_evaluation::{
    Envelope, Error,
    in_process::{Honest, Interceptor},
};
use secsv_federation::{Coalition, RoundId, SampleSet};
use secsv_protocol::{TestRequest, decryptors::Protocol, message::Kind};

use crate::federations::{PROTOCOLS, TINY, compact};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    Drop,
    /// Until nothing else moves.
    Delay,
    Duplicate,
    /// Behind the next frame of the link.
    Reorder,
    Truncate,
    Flip {
        place: usize,
    },
}

/// Of the number, and of the content.
const FLIPS: [Fault; 2] = [Fault::Flip { place: 77 }, Fault::Flip { place: 501 }];
const FAULTS: [Fault; 7] =
    [Fault::Drop, Fault::Delay, Fault::Duplicate, Fault::Reorder, Fault::Truncate, FLIPS[0], FLIPS[1]];

/// Does it to one frame of a kind.
struct Saboteur {
    fault: Fault,
    kind: Kind,
    occurrence: usize,
    seen: Arc<Mutex<BTreeMap<Kind, usize>>>,
    held: Vec<Envelope>,
}

impl Interceptor for Saboteur {
    fn pass(&mut self, mut envelope: Envelope) -> Vec<Envelope> {
        let mut seen = self.seen.lock().unwrap();
        let count = seen.entry(envelope.kind).or_default();
        *count += 1;
        if envelope.kind != self.kind || *count != self.occurrence + 1 {
            let behind = |held: &mut Envelope| {
                self.fault == Fault::Reorder && (held.from, held.to) == (envelope.from, envelope.to)
            };
            let behind: Vec<Envelope> = self.held.extract_if(.., behind).collect();
            return [envelope].into_iter().chain(behind).collect();
        }
        match self.fault {
            Fault::None => vec![envelope],
            Fault::Drop => Vec::new(),
            Fault::Delay | Fault::Reorder => {
                self.held.push(envelope);
                Vec::new()
            }
            Fault::Duplicate => vec![envelope.clone(), envelope],
            Fault::Truncate => {
                let left = (envelope.label.len() + envelope.content.len()) * 2 / 3;
                envelope.content.truncate(left.saturating_sub(envelope.label.len()));
                envelope.label.truncate(left);
                vec![envelope]
            }
            Fault::Flip { place } => {
                let bits = (envelope.label.len() + envelope.content.len()) * 8;
                let mut bytes = envelope.label.iter_mut().chain(&mut envelope.content);
                *bytes.nth(place % bits / 8).unwrap() ^= 1 << (place % 8);
                vec![envelope]
            }
        }
    }

    fn release(&mut self) -> Vec<Envelope> {
        std::mem::take(&mut self.held)
    }
}

type Values = BTreeMap<Coalition, SampleSet>;

/// Tests whose samples one party tests itself, both kinds, and the model before training.
fn requests() -> Vec<TestRequest> {
    let (round, samples) = (RoundId(1), SampleSet::all(TINY.samples()));
    [0b0000, 0b0011, 0b0001]
        .map(Coalition::from_bits)
        .map(|coalition| TestRequest::new(round, coalition, samples.clone()))
        .to_vec()
}

/// Runs with a fault; whatever hangs is given up on.
fn run(
    protocol: Protocol,
    kind: Kind,
    occurrence: usize,
    fault: Fault,
) -> (Result<Values, Error>, BTreeMap<Kind, usize>) {
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let saboteur = Saboteur { fault, kind, occurrence, seen: seen.clone(), held: Vec::new() };
    let (done, outcome) = mpsc::channel();
    let party = std::thread::spawn(move || {
        let mut world = TINY.world(compact(protocol), Box::new(saboteur)).unwrap();
        let mut values = Values::new();
        let ended = world.run(requests(), |request, right| {
            values.insert(request.coalitions[0], right[0].right.clone().unwrap());
            Ok(Vec::new())
        });
        done.send(ended.map(|()| values)).unwrap();
    });
    let outcome = outcome.recv_timeout(Duration::from_secs(60));
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}: {kind} {fault:?}"));
    party.join().unwrap();
    let seen = seen.lock().unwrap().clone();
    (outcome, seen)
}

/// Whether a message says who and what.
fn names_party_and_step(error: &Error, kind: Kind) -> bool {
    let text = error.to_string();
    let party = ["principal", "auxiliary", "client"].iter().any(|name| text.contains(name));
    let step = Kind::ALL.iter().any(|kind| text.contains(kind.name()));
    match error {
        Error::Damaged { kind: said, .. } => party && *said == kind,
        Error::Stalled { .. } => {
            party && (step || text.contains("is missing") || text.contains("introductions"))
        }
        _ => false,
    }
}

#[test]
fn a_fault_in_any_message_is_survived_or_named() {
    for &protocol in PROTOCOLS {
        let (honest, kinds) = run(protocol, Kind::ClientHello, 0, Fault::None);
        let honest = honest.unwrap();
        let expected = TINY.expected(&TINY.session(compact(protocol)).unwrap()).unwrap();
        assert!(honest.iter().all(|(coalition, right)| expected[&(RoundId(1), *coalition)] == *right));
        let (mut survived, mut named) = (0, 0);
        for (&kind, &count) in &kinds {
            for fault in FAULTS {
                // The first of a kind, or the last.
                let occurrence =
                    if matches!(fault, Fault::Duplicate | Fault::Flip { .. }) { count - 1 } else { 0 };
                match run(protocol, kind, occurrence, fault).0 {
                    Ok(values) => {
                        assert_eq!(values, honest, "{kind} {fault:?}");
                        survived += 1;
                    }
                    Err(error) => {
                        assert!(names_party_and_step(&error, kind), "{kind} {fault:?}: {error}");
                        let harmless = matches!(fault, Fault::Delay | Fault::Duplicate | Fault::Reorder);
                        assert!(!harmless, "{kind} {fault:?}: {error}");
                        named += 1;
                    }
                }
            }
        }
        println!("{protocol:?}: {} kinds, {survived} faults survived, {named} named", kinds.len());
        let session = [
            Kind::Triple,
            Kind::MaskedFactors,
            Kind::OutputShare,
            Kind::LayerHalf,
            Kind::OwnResult,
            Kind::DifferenceShare,
        ];
        assert!(protocol != Protocol::SecSv || session.iter().all(|kind| kinds.contains_key(kind)));
    }
}

/// Whoever is told of results may panic, as printing does where nobody reads: the threads must not wait for ever.
#[test]
fn a_panic_of_the_caller_ends_the_evaluation() {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let mut world = TINY.world(compact(Protocol::SecSv), Box::new(Honest)).unwrap();
        let told = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let _ = world.run(requests(), |_, _| panic!("nobody reads"));
        }));
        let _ = done.send(told.is_err());
    });
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(true), "it hangs");
}
