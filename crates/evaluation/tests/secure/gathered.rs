//! Samples that larger coalitions still need, gathered: the same answers in fewer replies.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng, rngs::StdRng};
use secsv_evaluation::{Accounts, in_process::Honest};
use secsv_federation::{Coalition, RoundId, SampleSet};
use secsv_protocol::{TestRequest, decryptors::Protocol, message::Kind};

use crate::federations::{Act, Fixture, Recipe, Shape, compact};

type Answers = BTreeMap<(RoundId, Coalition), SampleSet>;

/// Runs tests of some of the samples each, as if these were all that the round still needs.
fn run(fixture: &Fixture, asked: &Answers, candidate_samples: &SampleSet) -> (Answers, Accounts) {
    let mut world = fixture.world(compact(Protocol::SecSv), Box::new(Honest)).unwrap();
    let request = |(&(round, coalition), samples): (&_, &SampleSet)| TestRequest {
        candidate_samples: candidate_samples.clone(),
        ..TestRequest::new(round, coalition, samples.clone())
    };
    let mut found = BTreeMap::new();
    world
        .run(asked.iter().map(request).collect(), |request, answer| {
            found.insert((request.round, request.coalitions[0]), answer[0].right.clone().unwrap());
            Ok(Vec::new())
        })
        .unwrap();
    (found, world.accounts())
}

fn count(accounts: &Accounts, kind: Kind) -> (u64, u64) {
    let of_kind = accounts.traffic.iter().filter(|((.., of), _)| *of == kind);
    of_kind.fold((0, 0), |sum, (_, count)| (sum.0 + count.0, sum.1 + count.1))
}

/// Some of a set, at random.
fn some(set: &SampleSet, share: f64, rng: &mut StdRng) -> SampleSet {
    let mut some = SampleSet::none(set.total());
    set.iter().filter(|_| rng.random_bool(share)).for_each(|sample| some.insert(sample));
    some
}

/// A federation whose larger owners take at least four batches of the first layer.
fn of_many_batches(shape: &Shape, seed: u64) -> (Recipe, Fixture) {
    let grown = (0..).map(|doublings| {
        let samples = [32, 34, 0, 36, 0].map(|samples| samples << doublings).to_vec();
        let shape = shape.clone();
        let recipe = Recipe { shape, classes: 4, samples, rounds: 2, absence: 0, size_bits: 6, seed };
        let fixture = recipe.build();
        (recipe, fixture)
    });
    let is_enough = |(_, fixture): &(Recipe, Fixture)| {
        let session = fixture.session(compact(Protocol::SecSv)).unwrap();
        let layout = &session.encryption().unwrap().layouts[0];
        let batches = |size: usize| layout.batches(size * session.program().operators[0].positions);
        session.groups.iter().all(|group| batches(group.size) >= 4)
    };
    grown.take(9).find(is_enough).expect("enough samples for four batches")
}

#[test]
fn answers_are_the_same_in_fewer_replies() {
    let shapes = [
        Shape::Logistic { features: 40 },
        Shape::Positions { positions: 3, features: 30, act: Act::Tanh },
        Shape::Gru { steps: 2, features: 20, hidden: 2, tail: None },
    ];
    for (seed, shape) in (0..).zip(shapes) {
        let (recipe, fixture) = of_many_batches(&shape, seed);
        let mut rng = StdRng::seed_from_u64(seed);
        let all = SampleSet::all(fixture.samples());
        let candidate_samples = some(&all, 0.3, &mut rng);
        let asked: Answers = fixture
            .coalitions()
            .into_iter()
            .filter(|(_, coalition)| coalition.len() > 1)
            .map(|test| (test, some(&candidate_samples, 0.7, &mut rng)))
            .collect();
        let (gathered, less) = run(&fixture, &asked, &candidate_samples);
        let (ungathered, more) = run(&fixture, &asked, &all);
        let session = fixture.session(compact(Protocol::SecSv)).unwrap();
        let expected: Answers = fixture
            .expected(&session)
            .unwrap()
            .into_iter()
            .filter_map(|(test, right)| Some((test, right.difference(&all.difference(asked.get(&test)?)))))
            .collect();
        assert_eq!(gathered, expected, "{recipe:?}");
        assert_eq!(ungathered, expected, "{recipe:?}");
        let [less_replies, more_replies] = [&less, &more].map(|accounts| accounts.operations.decrypt);
        assert!(5 * less_replies < 4 * more_replies, "{less_replies} of {more_replies}: {recipe:?}");
        let [twice, once] = [&less, &more].map(|accounts| count(accounts, Kind::FirstLayerHalf).1);
        assert!(twice > once, "{twice} first layers beside {once}: nothing was gathered");
    }
}

/// What is asked for beyond what is gathered is tested all the same.
#[test]
fn samples_beyond_those_gathered_are_tested() {
    let (_, fixture) = of_many_batches(&Shape::Logistic { features: 40 }, 3);
    let mut rng = StdRng::seed_from_u64(3);
    let all = SampleSet::all(fixture.samples());
    let candidate_samples = some(&all, 0.3, &mut rng);
    let test = (RoundId(1), Coalition::first(2));
    let (found, _) = run(&fixture, &[(test, all)].into(), &candidate_samples);
    let session = fixture.session(compact(Protocol::SecSv)).unwrap();
    assert_eq!(found[&test], fixture.expected(&session).unwrap()[&test]);
}
