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
    dealer::{Dealer, OwnerKeys},
    hops::{Scales, mask},
    ideal::right,
    keys::{OwnerKey, Place, Purpose},
    rehearsal::{LaterParts, Transcript, Unit},
    shape::{Outcome, Shape, Widths},
    unit_tests::of_layer,
    words::unpack,
};

/// A protection that is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    None,
    /// Masks of openings are not named by the coalition, the round, the stage, the samples.
    OpeningCoalition,
    OpeningRound,
    OpeningStage,
    OpeningSample,
    /// Openings have no mask.
    OpeningMask,
    /// Streams of what is dealt are not named by the coalition, the round.
    PlanesCoalition,
    PlanesRound,
    NumbersCoalition,
    /// All arrays of dealt numbers have one stream.
    NumbersArray,
    CountsCoalition,
    CountsRound,
    /// Dealt numbers and counts have one stream.
    NumbersAsCounts,
    /// What is dealt to count has no mask.
    CountsMask,
}

thread_local! {
    static MUTATION: Cell<Mutation> = const { Cell::new(Mutation::None) };
    static CHOSEN: RefCell<BTreeMap<[u8; 32], Vec<u64>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The name of a stream, as a mutation has it.
pub(super) fn named(place: Place, purpose: Purpose) -> (Place, Purpose) {
    let no_round = Place { round: RoundId(0), ..place };
    let no_coalition = Place { coalition: Coalition::EMPTY, ..place };
    match (MUTATION.get(), purpose) {
        (Mutation::OpeningCoalition, Purpose::Opening(_)) => (no_coalition, purpose),
        (Mutation::OpeningRound, Purpose::Opening(_)) => (no_round, purpose),
        (Mutation::OpeningStage, Purpose::Opening(_)) => (place, Purpose::Opening(0)),
        (Mutation::OpeningSample, Purpose::Opening(_)) => (Place { first: 0, ..place }, purpose),
        (Mutation::PlanesCoalition, Purpose::DealtPlanes) => (no_coalition, purpose),
        (Mutation::PlanesRound, Purpose::DealtPlanes) => (no_round, purpose),
        (Mutation::NumbersCoalition, Purpose::DealtNumbers(_)) => (no_coalition, purpose),
        (Mutation::NumbersArray, Purpose::DealtNumbers(_)) => (place, Purpose::DealtNumbers(0)),
        (Mutation::CountsCoalition, Purpose::DealtOutcomes) => (no_coalition, purpose),
        (Mutation::CountsRound, Purpose::DealtOutcomes) => (no_round, purpose),
        (Mutation::NumbersAsCounts, Purpose::DealtNumbers(_)) => (place, Purpose::DealtOutcomes),
        _ => (place, purpose),
    }
}

/// Takes a protection of tests' streams away, or none.
pub(super) fn mutate(mutation: Mutation) {
    MUTATION.set(mutation);
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

fn run(shape: &Shape, keys: &OwnerKeys, case: &Case) -> Transcript {
    let (scales, later) = (Scales { factors: vec![1], ..Scales::default() }, LaterParts::default());
    let unit = Unit { shape, keys, place: case.place, scales: &scales, later: &later };
    unit.run((&case.scores, &case.factors, &Default::default()), &case.labels).unwrap()
}

/// What is dealt.
fn dealt(shape: &Shape, keys: &OwnerKeys, case: &Case) -> Vec<u8> {
    let scales = Scales { factors: vec![1], ..Scales::default() };
    let dealer = Dealer { shape, keys, place: case.place, scales: &scales, later: &[], labels: &case.labels };
    let mut dealt = Vec::new();
    dealer.deal(&mut dealt).unwrap();
    dealt
}

/// Words of a stage's message, and whether they are numbers.
pub(super) fn words(shape: &Shape, stage: usize, message: &[u8]) -> (Vec<u64>, bool) {
    let stage = shape.stage(stage).unwrap();
    (unpack(message, shape.bytes(stage)).collect(), stage.is_numbers())
}

pub(super) fn choose(key: &OwnerKey, place: Place, purpose: Purpose, words: Vec<u64>) {
    match (MUTATION.get(), purpose) {
        (Mutation::OpeningMask, Purpose::Opening(_)) | (Mutation::CountsMask, Purpose::DealtOutcomes) => {
            return;
        }
        _ => {}
    }
    let seed = *key.stream(place, purpose).expose();
    CHOSEN.with_borrow_mut(|chosen| drop(chosen.insert(seed, words)));
}

/// Chooses what the principal has of everything dealt, so that the auxiliary reads `recorded`. `deal` says what it reads.
pub(super) fn choose_dealt(
    shape: &Shape,
    keys: &OwnerKeys,
    place: Place,
    recorded: &[u8],
    deal: impl Fn() -> Vec<u8>,
) {
    let widths = shape.widths;
    let arrays = shape.dealt_arrays().enumerate();
    let numbers =
        arrays.map(|(k, array)| (Purpose::DealtNumbers(k), array.count, array.bytes(), mask(array.bits)));
    let planes = (Purpose::DealtPlanes, shape.all_dealt_planes(), 8, u64::MAX);
    let counts = (Purpose::DealtOutcomes, shape.dealt_outcomes(), widths.count, widths.count_mask());
    let arrays: Vec<_> = numbers.chain([planes, counts]).collect();
    for (purpose, count, ..) in &arrays {
        choose(&keys[0], place, *purpose, vec![0; *count]);
    }
    // What is dealt follows from no stream of its own but the one that it is under.
    let plain = deal();
    let mut first = 0;
    for (purpose, count, bytes, mask) in arrays {
        let range = first..first + count * bytes;
        first = range.end;
        let pairs = unpack(&plain[range.clone()], bytes).zip(unpack(&recorded[range], bytes));
        let pads = pairs.map(|(plain, read)| match purpose {
            Purpose::DealtPlanes => plain ^ read,
            _ => plain.wrapping_sub(read) & mask,
        });
        choose(&keys[0], place, purpose, pads.collect());
    }
}

/// Chooses the streams that a server (0: the principal, 1: the auxiliary) does not know, so that it reads what was recorded.
fn choose_all(shape: &Shape, keys: &OwnerKeys, case: &Case, party: usize, recorded: &Transcript) {
    let other = 1 - party;
    for stage in 0..shape.stages() {
        if party == 1 {
            choose_dealt(shape, keys, case.place, &recorded.dealt, || dealt(shape, keys, case));
        }
        let count = recorded.messages[stage][other].len();
        choose(&keys[other], case.place, Purpose::Opening(stage), vec![0; count]);
        if party == 1 {
            choose_dealt(shape, keys, case.place, &recorded.dealt, || dealt(shape, keys, case));
        }
        let plain = run(shape, keys, case);
        let (plain, is_words) = words(shape, stage, &plain.messages[stage][other]);
        let (read, _) = words(shape, stage, &recorded.messages[stage][other]);
        let pads = plain.iter().zip(read).map(|(plain, read)| match is_words {
            true => read.wrapping_sub(*plain) & shape.mask(shape.stage(stage).unwrap()),
            false => plain ^ read,
        });
        choose(&keys[other], case.place, Purpose::Opening(stage), pads.collect());
    }
    if party == 1 {
        choose_dealt(shape, keys, case.place, &recorded.dealt, || dealt(shape, keys, case));
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
        let place = Place::of_model(RoundId(round), Coalition::from_bits(bits));
        Case { place, scores, factors, labels, plain }
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
    let unmasked: Vec<Purpose> = match mutation {
        Mutation::OpeningMask => (0..shape.stages()).map(Purpose::Opening).collect(),
        Mutation::CountsMask => vec![Purpose::DealtOutcomes],
        _ => Vec::new(),
    };
    for case in cases(shape, party, 1) {
        for (purpose, key) in unmasked.iter().flat_map(|&purpose| keys.iter().map(move |key| (purpose, key)))
        {
            let seed = *key.stream(case.place, purpose).expose();
            CHOSEN.with_borrow_mut(|chosen| drop(chosen.insert(seed, Vec::new())));
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
        let pairs = found.found[0].iter().zip(&found.found[1]);
        let counts: Vec<u64> = pairs.map(|(own, other)| shape.found(*own, *other)).collect();
        is_same &= read(&found, party) == read(recorded, party) && counts == expected(shape, other);
        assert_ne!(case.plain, other.plain);
        assert_ne!(case.labels, other.labels);
    }
    CHOSEN.with_borrow_mut(BTreeMap::clear);
    MUTATION.set(Mutation::None);
    is_same
}

/// What is found of a case in plain integers.
fn expected(shape: &Shape, case: &Case) -> Vec<u64> {
    let right = right(shape, &case.plain, &case.labels);
    if shape.outcome == Outcome::Total {
        return vec![right.iter().filter(|right| **right).count() as u64];
    }
    let mut counts = vec![0; 2 * shape.classes];
    for (&label, right) in case.labels.iter().zip(right) {
        counts[if right { label } else { shape.classes + label }] += 1;
    }
    counts
}

fn shapes() -> Vec<Shape> {
    let shape = |word, sizes, outcome| of_layer(Widths::new(word, 70), sizes, 70, outcome);
    vec![
        shape(40, (1, 2), Outcome::Total),
        shape(64, (1, 2), Outcome::Total),
        shape(40, (3, 4), Outcome::Total),
        shape(48, (5, 6), Outcome::Total),
        shape(40, (1, 2), Outcome::Classes),
        shape(40, (3, 4), Outcome::Classes),
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
        Mutation::NumbersCoalition,
        Mutation::CountsCoalition,
        Mutation::CountsRound,
        Mutation::NumbersAsCounts,
        Mutation::CountsMask,
    ];
    let shape = &shapes()[2];
    let at_both = [0, 1].into_iter().flat_map(|party| both.map(|mutation| (party, mutation)));
    for (party, mutation) in at_both.chain(dealt.map(|mutation| (1, mutation))) {
        assert!(!is_equivalent(shape, party, mutation), "server {party}: {mutation:?}");
    }
}

/// Counts of classes stand on masks of what is dealt to count: without them the auxiliary reads labels.
#[test]
fn without_a_protection_of_counts_of_classes_the_same_test_fails() {
    let mutations = [
        Mutation::CountsCoalition,
        Mutation::CountsRound,
        Mutation::NumbersAsCounts,
        Mutation::CountsMask,
        Mutation::OpeningMask,
    ];
    for mutation in mutations {
        assert!(!is_equivalent(&shapes()[5], 1, mutation), "{mutation:?}");
    }
}
