//! Transcript equivalence: whatever the scores and labels, there are streams under which a server reads the same words. A run is
//! recorded; then other scores and other labels are tested, and every stream that the server does not know is chosen such that it
//! reads what it read before. That must be possible for several models at once with one value for every stream. So what the
//! server reads says nothing about scores and labels.
//!
//! With a protection taken away the same test fails: a stream that is not named by all of its place has two values, and without
//! a mask messages differ.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use secsv_algebra::{Prg, Seed};
use secsv_federation::{Coalition, RoundId};

use super::{
    dealer::{OwnerKeys, deal},
    evaluator::{Evaluator, Opened},
    ideal::right,
    keys::{OwnerKey, Purpose},
    shape::{Shape, Stage, Widths},
    words::unpack,
};
use crate::message::Server;

type Place = (RoundId, Coalition);

/// A protection that is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// Masks of openings are not named by the coalition, the round, the stage.
    OpeningCoalition,
    OpeningRound,
    OpeningStage,
    /// Openings have no mask.
    OpeningMask,
    /// Streams of what is dealt are not named by the coalition, the round.
    PlanesCoalition,
    PlanesRound,
    WordsCoalition,
    CountsCoalition,
    CountsRound,
    /// Dealt words and counts have one stream.
    WordsAsCounts,
}

thread_local! {
    static MUTATION: Cell<Mutation> = const { Cell::new(Mutation::None) };
    static CHOSEN: RefCell<BTreeMap<[u8; 32], Vec<u64>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The name of a stream, as a mutation has it.
pub(super) fn named((round, coalition): Place, purpose: Purpose) -> (Place, Purpose) {
    let (no_round, no_coalition) = ((RoundId(0), coalition), (round, Coalition::EMPTY));
    match (MUTATION.get(), purpose) {
        (Mutation::OpeningCoalition, Purpose::Opening(_)) => (no_coalition, purpose),
        (Mutation::OpeningRound, Purpose::Opening(_)) => (no_round, purpose),
        (Mutation::OpeningStage, Purpose::Opening(_)) => ((round, coalition), Purpose::Opening(0)),
        (Mutation::PlanesCoalition, Purpose::DealtPlanes) => (no_coalition, purpose),
        (Mutation::PlanesRound, Purpose::DealtPlanes) => (no_round, purpose),
        (Mutation::WordsCoalition, Purpose::DealtWords) => (no_coalition, purpose),
        (Mutation::CountsCoalition, Purpose::DealtOutcomes) => (no_coalition, purpose),
        (Mutation::CountsRound, Purpose::DealtOutcomes) => (no_round, purpose),
        (Mutation::WordsAsCounts, Purpose::DealtWords) => ((round, coalition), Purpose::DealtOutcomes),
        _ => ((round, coalition), purpose),
    }
}

/// Chooses the words of a seed's stream; those behind are zero.
pub(super) fn choose_stream(seed: &Seed, words: Vec<u64>) {
    CHOSEN.with_borrow_mut(|chosen| drop(chosen.insert(*seed.expose(), words)));
}

/// Lets all streams be what they are.
pub(super) fn forget_streams() {
    CHOSEN.with_borrow_mut(BTreeMap::clear);
}

/// The words that were chosen for a stream.
pub(super) fn chosen(seed: &Seed, count: usize) -> Option<Vec<u64>> {
    CHOSEN.with_borrow(|chosen| {
        let mut words = chosen.get(seed.expose())?.clone();
        words.resize(count, 0);
        Some(words)
    })
}

/// One model on one owner's samples: shares of scores and of labels, and the labels.
#[derive(Clone)]
struct Case {
    place: Place,
    scores: [Vec<u64>; 2],
    factors: [Vec<u64>; 2],
    labels: Vec<usize>,
    plain: Vec<i64>,
}

/// What was dealt, and every message of both servers.
#[derive(Clone, Debug, PartialEq)]
struct Transcript {
    dealt: Vec<u8>,
    messages: Vec<[Vec<u8>; 2]>,
    count: u64,
}

fn run(shape: &Shape, keys: &OwnerKeys, case: &Case) -> Transcript {
    let mut dealt = Vec::new();
    deal(shape, keys, case.place, &case.labels, &mut dealt);
    let evaluator = |server| {
        let (key, dealt) = match server {
            Server::Principal => (&keys[0], None),
            Server::Auxiliary => (&keys[1], Some(&dealt[..])),
        };
        Evaluator { shape, server, key, place: case.place, dealt }
    };
    let servers = [Server::Principal, Server::Auxiliary].map(evaluator);
    let mut messages: Vec<[Vec<u8>; 2]> = vec![[0, 1].map(|server| {
        let mut out = Vec::new();
        servers[server].scores(&case.scores[server], &mut out);
        out
    })];
    let (mut opened, mut compared) = (Vec::new(), Vec::new());
    for stage in 0..shape.stages() {
        opened = servers[0].open(stage, &messages[stage][0], &messages[stage][1]);
        if stage == usize::from(!shape.is_single()) {
            compared = servers[0].compared(&opened);
        }
        if stage + 1 < shape.stages() {
            messages.push([0, 1].map(|server| {
                let mut out = Vec::new();
                let state = Opened { opened: &opened, compared: &compared };
                servers[server].message(stage + 1, state, Some(&case.factors[server]), &mut out);
                out
            }));
        }
    }
    let [p, a] = [0, 1].map(|server| servers[server].outcome(&opened)[0]);
    Transcript { dealt, messages, count: p.wrapping_add(a) & shape.widths.count_mask() }
}

/// Words of a stage's message.
fn words(shape: &Shape, stage: usize, message: &[u8]) -> (Vec<u64>, bool) {
    let is_words = matches!(shape.stage(stage), Some(Stage::Scores | Stage::Margins));
    (unpack(message, if is_words { shape.widths.bytes() } else { 8 }).collect(), is_words)
}

fn choose(key: &OwnerKey, place: Place, purpose: Purpose, words: Vec<u64>) {
    if MUTATION.get() == Mutation::OpeningMask && matches!(purpose, Purpose::Opening(_)) {
        return;
    }
    let seed = *key.stream(place, purpose).expose();
    CHOSEN.with_borrow_mut(|chosen| drop(chosen.insert(seed, words)));
}

/// Chooses what the principal has of everything dealt, so that the auxiliary reads `recorded`.
fn choose_dealt(shape: &Shape, keys: &OwnerKeys, case: &Case, recorded: &[u8]) {
    let widths = shape.widths;
    let planes = shape.all_dealt_planes();
    let parts = [
        (Purpose::DealtWords, shape.dealt_words(), widths.bytes()),
        (Purpose::DealtPlanes, planes, 8),
        (Purpose::DealtOutcomes, shape.samples, widths.count),
    ];
    let mut first = 0;
    for (purpose, count, bytes) in parts {
        choose(&keys[0], case.place, purpose, vec![0; count]);
        let mut plain = Vec::new();
        deal(shape, keys, case.place, &case.labels, &mut plain);
        let range = first..first + count * bytes;
        first = range.end;
        let pairs = unpack(&plain[range.clone()], bytes).zip(unpack(&recorded[range], bytes));
        let pads = pairs.map(|(plain, read)| match purpose {
            Purpose::DealtPlanes => plain ^ read,
            Purpose::DealtWords => plain.wrapping_sub(read) & widths.mask(),
            _ => plain.wrapping_sub(read) & widths.count_mask(),
        });
        choose(&keys[0], case.place, purpose, pads.collect());
    }
}

/// Chooses the streams that a server (0: the principal, 1: the auxiliary) does not know, so that it reads what was recorded.
fn choose_all(shape: &Shape, keys: &OwnerKeys, case: &Case, party: usize, recorded: &Transcript) {
    let other = 1 - party;
    for stage in 0..shape.stages() {
        if party == 1 {
            choose_dealt(shape, keys, case, &recorded.dealt);
        }
        let count = recorded.messages[stage][other].len();
        choose(&keys[other], case.place, Purpose::Opening(stage), vec![0; count]);
        if party == 1 {
            choose_dealt(shape, keys, case, &recorded.dealt);
        }
        let plain = run(shape, keys, case);
        let (plain, is_words) = words(shape, stage, &plain.messages[stage][other]);
        let (read, _) = words(shape, stage, &recorded.messages[stage][other]);
        let pads = plain.iter().zip(read).map(|(plain, read)| match is_words {
            true => read.wrapping_sub(*plain) & shape.widths.mask(),
            false => plain ^ read,
        });
        choose(&keys[other], case.place, Purpose::Opening(stage), pads.collect());
    }
    if party == 1 {
        choose_dealt(shape, keys, case, &recorded.dealt);
    }
}

/// Random cases: several coalitions in two rounds. A server's own shares are the same whatever the `world`.
fn cases(shape: &Shape, party: usize, world: u64) -> Vec<Case> {
    let draw = |name: &str, world: u64, index: usize, count: usize| {
        let mut words = vec![0; count];
        let seed = Seed::from_bytes([9; 32]).derive(name, world).derive("case", index as u64);
        Prg::new(&seed).fill_words(&mut words);
        words
    };
    let places = [(1, 1u128), (1, 2), (1, 3), (2, 1), (2, 3)];
    let case = |(index, (round, bits)): (usize, (u32, u128))| {
        let (rows, samples) = (shape.rows, shape.samples);
        // Labels are shared once for all models.
        let labels: Vec<usize> =
            draw("labels", world, 0, samples).iter().map(|w| (*w % shape.classes as u64) as usize).collect();
        let signed = |word: &u64| (*word as i64) >> (64 - shape.widths.word + 2);
        let plain: Vec<i64> = draw("scores", world, index, rows * samples).iter().map(signed).collect();
        let split = |own: Vec<u64>, plain: &[u64]| {
            let rest = plain.iter().zip(&own).map(|(word, own)| word.wrapping_sub(*own)).collect();
            if party == 0 { [own, rest] } else { [rest, own] }
        };
        let whole: Vec<u64> = plain.iter().map(|score| *score as u64).collect();
        let one_hot: Vec<u64> =
            (0..rows).flat_map(|row| labels.iter().map(move |label| u64::from(*label == row))).collect();
        let scores = split(draw("own scores", 0, index, rows * samples), &whole);
        let factors = split(draw("own labels", 0, 0, rows * samples), &one_hot);
        Case { place: (RoundId(round), Coalition::from_bits(bits)), scores, factors, labels, plain }
    };
    places.into_iter().enumerate().map(case).collect()
}

/// What a server reads.
fn read(transcript: &Transcript, party: usize) -> (Vec<Vec<u8>>, Vec<u8>) {
    let messages = transcript.messages.iter().map(|both| both[1 - party].clone()).collect();
    (messages, if party == 1 { transcript.dealt.clone() } else { Vec::new() })
}

/// Whether a server reads the same in two worlds under streams that have one value each, and both worlds' counts are right.
fn is_equivalent(shape: &Shape, party: usize, mutation: Mutation) -> bool {
    MUTATION.set(mutation);
    CHOSEN.with_borrow_mut(BTreeMap::clear);
    let keys: OwnerKeys = [0, 1].map(|server| OwnerKey::new(Seed::from_bytes([8; 32]).derive("key", server)));
    if mutation == Mutation::OpeningMask {
        for case in cases(shape, party, 1) {
            for stage in 0..shape.stages() {
                for key in &keys {
                    let seed = *key.stream(case.place, Purpose::Opening(stage)).expose();
                    CHOSEN.with_borrow_mut(|chosen| drop(chosen.insert(seed, Vec::new())));
                }
            }
        }
    }
    let recorded: Vec<Transcript> =
        cases(shape, party, 1).iter().map(|case| run(shape, &keys, case)).collect();
    let others = cases(shape, party, 2);
    for (case, recorded) in others.iter().zip(&recorded) {
        choose_all(shape, &keys, case, party, recorded);
    }
    // With all streams chosen, whoever chose last: one value for each, or somebody reads something else.
    let mut is_same = true;
    for ((case, other), recorded) in cases(shape, party, 1).iter().zip(&others).zip(&recorded) {
        let found = run(shape, &keys, other);
        let expected =
            right(shape, &other.plain, &other.labels).iter().filter(|right| **right).count() as u64;
        is_same &= read(&found, party) == read(recorded, party) && found.count == expected;
        assert_ne!(case.plain, other.plain);
        assert_ne!(case.labels, other.labels);
    }
    CHOSEN.with_borrow_mut(BTreeMap::clear);
    MUTATION.set(Mutation::None);
    is_same
}

fn shapes() -> Vec<Shape> {
    let widths = |word| Widths::new(word, 70);
    vec![
        Shape::new(widths(40), 1, 2, 70),
        Shape::new(widths(64), 1, 2, 70),
        Shape::new(widths(40), 3, 4, 70),
        Shape::new(widths(48), 5, 6, 70),
    ]
}

#[test]
fn a_server_reads_the_same_whatever_scores_and_labels_are() {
    for shape in shapes() {
        for party in [0, 1] {
            assert!(is_equivalent(&shape, party, Mutation::None), "server {party}: {:?}", shape.widths);
        }
    }
}

#[test]
fn without_a_protection_the_same_test_fails() {
    let both =
        [Mutation::OpeningCoalition, Mutation::OpeningRound, Mutation::OpeningStage, Mutation::OpeningMask];
    let dealt = [
        Mutation::PlanesCoalition,
        Mutation::PlanesRound,
        Mutation::WordsCoalition,
        Mutation::CountsCoalition,
        Mutation::CountsRound,
        Mutation::WordsAsCounts,
    ];
    let shape = &shapes()[2];
    let at_both = [0, 1].into_iter().flat_map(|party| both.map(|mutation| (party, mutation)));
    for (party, mutation) in at_both.chain(dealt.map(|mutation| (1, mutation))) {
        assert!(!is_equivalent(shape, party, mutation), "server {party}: {mutation:?}");
    }
}
