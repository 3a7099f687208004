//! BlindSV against plain integers. A failure is a count that differs by one, a message that a party should
//! not get, or a test that does not end.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use proptest::prelude::*;
use secsv_evaluation::{Envelope, in_process::Interceptor};
use secsv_federation::{Coalition, RoundId, SampleSet, Tensor, TestSet, Weights};
use secsv_protocol::{
    ClassCount, PartyId, Preset, Ring64, Seed, TestRequest, TestResult,
    cost::predict,
    decryptors::{Protocol, knows},
    ideal::Ideal,
    message::Kind,
    model::{EncodedModel, sample_values},
    own_right,
    session::{HiddenSettings, Matmul, RangeRule, Session, Settings},
};

use crate::federations::{Act, Fixture, Recipe, Shape, settings};

fn blind() -> Settings {
    settings(Protocol::BlindSv, Preset::Standard, Matmul::Packed)
}

/// Seeds of owners' masks, with the principal and with the auxiliary, as they pass: they round hidden numbers.
#[derive(Clone, Default)]
struct Seeds(Arc<Mutex<BTreeMap<usize, [[u8; 32]; 2]>>>);

impl Interceptor for Seeds {
    fn pass(&mut self, envelope: Envelope) -> Vec<Envelope> {
        if let (Kind::MaskSeed, PartyId::Client(owner)) = (envelope.kind, envelope.from) {
            let mut seeds = self.0.lock().unwrap();
            let server = usize::from(envelope.to == PartyId::Auxiliary);
            seeds.entry(owner).or_default()[server] = envelope.content[..].try_into().unwrap();
        }
        vec![envelope]
    }
}

impl Seeds {
    fn of(&self, owner: usize) -> [Seed; 2] {
        self.0.lock().unwrap()[&owner].map(Seed::from_bytes)
    }
}

/// Samples on which models are tested, where it is not all.
type Tested = BTreeMap<(RoundId, Coalition), SampleSet>;

/// Which of the tested samples a coalition predicts right, and how many hidden numbers are out of range over all owners.
type Expected = (SampleSet, u64);

/// Which of the tested samples each coalition predicts right, in plain integers; models that owners know in the clear.
fn expected(
    fixture: &Fixture,
    session: &Arc<Session>,
    seeds: &Seeds,
    tested: &Tested,
) -> BTreeMap<(RoundId, Coalition), Expected> {
    let (program, precision) = (session.program(), &session.precision);
    let values = sample_values(program, &fixture.all_samples());
    let mut found = BTreeMap::new();
    for (&round, &participants) in &fixture.participants {
        let samples = values.encode(Ring64, precision.operators[0].input, 1).unwrap();
        let members = session.members(round, participants).into_iter();
        let model = |(client, share)| {
            let local = &fixture.local[&(round, client)];
            (client, share, EncodedModel::new(program, precision, Ring64, local, share).unwrap())
        };
        let ideal = Ideal { samples, models: members.map(model).collect() };
        for coalition in fixture.coalitions().into_iter().filter(|(r, _)| *r == round).map(|(_, c)| c) {
            let mut overflows = 0;
            let of_owner = |(owner, test_set): (usize, &TestSet)| -> Vec<usize> {
                let first = session.offset(owner);
                if knows(owner, coalition, participants) {
                    let all = SampleSet::all(test_set.len());
                    let input = fixture.input(owner);
                    let right =
                        own_right(&session.federation, owner, &input, round, coalition, &all).unwrap();
                    return right.iter().map(|sample| first + sample).collect();
                }
                let is_tested = |k: &usize| {
                    tested.get(&(round, coalition)).is_none_or(|tested| tested.contains(first + k))
                };
                let tested: Vec<usize> = (0..test_set.len()).filter(is_tested).collect();
                let owner = (owner, &seeds.of(owner));
                let (right, out_of_range) =
                    ideal.masked(session, (round, coalition), owner, test_set, &tested).unwrap();
                overflows += out_of_range;
                let right = tested.iter().zip(right).filter(|(_, right)| *right);
                right.map(|(&k, _)| first + k).collect()
            };
            let owners = fixture.test_sets.iter().enumerate().filter(|(_, test_set)| !test_set.is_empty());
            let mut right = SampleSet::none(session.samples());
            owners.flat_map(of_owner).for_each(|sample| right.insert(sample));
            found.insert((round, coalition), (right, overflows));
        }
    }
    found
}

/// Runs tests of some of the samples each, where samples are skipped: right or wrong of each is the expected one.
fn check_each(fixture: &Fixture, skipped: u64) {
    let settings = Settings { always_skips: true, ..blind() };
    let seeds = Seeds::default();
    let mut world = fixture.world(settings, Box::new(seeds.clone())).unwrap();
    let total = fixture.all_samples().len();
    let requests = fixture.coalitions().into_iter().enumerate().map(|(number, (round, coalition))| {
        let is_tested =
            |sample: &usize| number == 0 || !(sample + number).is_multiple_of(skipped as usize + 1);
        let mut samples = SampleSet::none(total);
        (0..total).filter(is_tested).for_each(|sample| samples.insert(sample));
        let (rounds, candidate_samples) = (vec![round], samples.clone());
        TestRequest { round, rounds, coalitions: vec![coalition], samples, candidate_samples }
    });
    let requests: Vec<TestRequest> = requests.collect();
    let mut found = BTreeMap::new();
    let keep = |request: &TestRequest, results: Vec<TestResult>| {
        let [result] = &results[..] else { panic!("one coalition each") };
        found.insert((request.round, request.coalitions[0]), (request.samples.clone(), result.clone()));
        Ok(Vec::new())
    };
    world.run(requests.clone(), keep).unwrap();
    let session = world.with_principal(|principal| principal.session().cloned()).flatten().unwrap();
    let tested = found.iter().map(|(&model, (samples, _))| (model, samples.clone())).collect();
    let expected = expected(fixture, &session, &seeds, &tested);
    assert_eq!(found.len(), expected.len());
    for (model, (tested, result)) in found {
        let right = expected[&model].0.difference(&SampleSet::all(total).difference(&tested));
        assert_eq!((result.correct, result.right), (right.len(), Some(right)), "{model:?}");
    }
    let planned = predict(&session, &requests, 0).unwrap();
    for (link, counted) in
        world.accounts().traffic.iter().filter(|((.., kind), _)| *kind != Kind::RoundFinished)
    {
        assert_eq!(planned.traffic.get(link), Some(counted), "{link:?}");
    }
}

/// The same federation with features so many times larger: words get wider.
fn scaled(mut fixture: Fixture, factor: f32) -> Fixture {
    for test_set in &mut fixture.test_sets {
        let features = test_set.features().iter().map(|feature| feature * factor).collect();
        *test_set = TestSet::new(test_set.input().to_vec(), features, test_set.labels().to_vec()).unwrap();
    }
    fixture
}

/// How many samples of each class are right, if that is counted.
fn of_classes(fixture: &Fixture, settings: Settings, right: &SampleSet) -> Vec<ClassCount> {
    let classes = if settings.by_class { fixture.architecture.classes() } else { 0 };
    let samples = fixture.all_samples();
    let of_class = |class: usize| -> Vec<usize> {
        (0..samples.len()).filter(|&sample| samples.labels()[sample] == class as i64).collect()
    };
    let count = |samples: Vec<usize>| ClassCount {
        right: samples.iter().filter(|&&sample| right.contains(sample)).count(),
        samples: samples.len(),
    };
    (0..classes).map(|class| count(of_class(class))).collect()
}

/// Runs all tests, with counts of all samples and with counts of each class.
fn check(fixture: &Fixture) -> Arc<Session> {
    check_under(fixture, Settings { by_class: true, ..blind() });
    check_under(fixture, blind()).0
}

/// Runs all tests; every count is the expected one, and traffic is what was planned. Says how many hidden numbers of each model are
/// out of range; none where nobody counts them.
fn check_under(fixture: &Fixture, settings: Settings) -> (Arc<Session>, BTreeMap<(RoundId, Coalition), u64>) {
    let seeds = Seeds::default();
    let mut world = fixture.world(settings, Box::new(seeds.clone())).unwrap();
    let requests = fixture.requests_together(settings).unwrap();
    let mut found = BTreeMap::new();
    world
        .run(requests.clone(), |request, results| {
            assert!(results.iter().all(|result| result.right.is_none()), "nobody learns which");
            let models = request.coalitions.iter().map(|&coalition| (request.round, coalition));
            let results =
                results.into_iter().map(|result| (result.correct, result.of_classes, result.overflows));
            found.extend(models.zip(results));
            Ok(Vec::new())
        })
        .unwrap();
    let session = world.with_principal(|principal| principal.session().cloned()).flatten().unwrap();
    let is_checked = settings.hidden.checks_all && !session.ranges().is_empty()
        || session.ranges().iter().any(|range| range.is_calibrated());
    let expected =
        expected(fixture, &session, &seeds, &Tested::new()).into_iter().map(|(model, (right, overflows))| {
            let of_classes = of_classes(fixture, settings, &right);
            (model, (right.len(), of_classes, is_checked.then_some(overflows)))
        });
    assert_eq!(found, expected.collect());
    let planned = predict(&session, &requests, 0).unwrap();
    let traffic = world.accounts().traffic;
    for (link, counted) in &traffic {
        let (from, to, kind) = *link;
        let to_client = matches!(to, PartyId::Client(_));
        let told = [Kind::Session, Kind::SealedClientKeys, Kind::RoundStart, Kind::BlindTest, Kind::Values];
        assert!(
            !to_client || (from == PartyId::Principal && told.contains(&kind)),
            "{kind} from {from} to {to}"
        );
        let dealt = [Kind::DataShare, Kind::DealtProduct, Kind::Dealing];
        assert!(
            to != PartyId::Principal || !dealt.contains(&kind),
            "{kind}: the principal has the other share"
        );
        if kind != Kind::RoundFinished {
            assert_eq!(planned.traffic.get(link), Some(counted), "{kind} from {from} to {to}");
        }
    }
    let overflows = found.into_iter().filter_map(|(model, (_, _, overflows))| Some((model, overflows?)));
    (session, overflows.collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_count_is_that_of_plain_integers(
        samples in prop::collection::vec(0usize..40, 2..6),
        (features, classes, rounds, absence) in (1usize..9, 2usize..13, 1u32..3, 0u32..5),
        scale in 0u32..4,
        seed: u64,
    ) {
        let shape = Shape::Logistic { features };
        let recipe = Recipe { shape, classes, samples, rounds, absence, size_bits: 6, seed };
        let fixture = scaled(recipe.build(), f32::powi(2.0, 9 * scale as i32));
        check(&fixture);
        check_each(&fixture, seed % 5);
    }
}

#[test]
fn every_width_of_words_is_met() {
    let recipe = |seed| Recipe {
        shape: Shape::Logistic { features: 5 },
        classes: 3,
        samples: vec![70, 1, 9],
        rounds: 1,
        absence: 0,
        size_bits: 6,
        seed,
    };
    let widths = (0..6).map(|scale| {
        let session = check(&scaled(recipe(scale).build(), f32::powi(2.0, 6 * scale as i32)));
        session.modulus().ilog2()
    });
    let widths: std::collections::BTreeSet<u32> = widths.collect();
    assert_eq!(widths.into_iter().collect::<Vec<_>>(), [40, 48, 56, 64]);
}

#[test]
fn twelve_clients_and_two() {
    for samples in [vec![3; 12], vec![65, 64], vec![0, 40]] {
        let shape = Shape::Logistic { features: 3 };
        let recipe = Recipe { shape, classes: 2, samples, rounds: 1, absence: 0, size_bits: 4, seed: 5 };
        check(&recipe.build());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]
    #[test]
    fn every_count_among_many_clients_is_that_of_plain_integers(
        samples in prop::collection::vec(0usize..4, 6..12),
        (features, classes, absence) in (1usize..5, 2usize..4, 0u32..5),
        is_deep: bool,
        seed: u64,
    ) {
        let hidden = vec![Act::Relu];
        let shape =
            if is_deep { Shape::Dense { features, width: 2, hidden } } else { Shape::Logistic { features } };
        let recipe = Recipe { shape, classes, samples, rounds: 1, absence, size_bits: 6, seed };
        check_under(&recipe.build(), blind());
    }
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![Just(Act::Relu), Just(Act::Square)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn every_count_of_a_deep_model_is_that_of_plain_integers(
        samples in prop::collection::vec(0usize..20, 2..5),
        (features, width, classes, absence) in (1usize..7, 1usize..6, 2usize..6, 0u32..4),
        hidden in prop::sample::select(vec![
            vec![Act::Relu],
            vec![Act::Square],
            vec![Act::Relu, Act::Square],
            vec![Act::Square, Act::Relu],
            vec![Act::Relu, Act::Relu, Act::Relu],
        ]),
        seed: u64,
    ) {
        let shape = Shape::Dense { features, width, hidden };
        let recipe = Recipe { shape, classes, samples, rounds: 2, absence, size_bits: 6, seed };
        let fixture = recipe.build();
        check(&fixture);
        check_each(&fixture, seed % 5);
        let (_, overflows) = check_under(&fixture, measured());
        assert!(overflows.values().all(|count| *count == 0), "{overflows:?}");
    }

    #[test]
    fn every_count_of_an_image_model_is_that_of_plain_integers(
        samples in prop::collection::vec(0usize..150, 2..4),
        (channels, side, outputs, stride, padding) in (1usize..3, 3usize..6, 1usize..4, 1usize..3, 0usize..2),
        act in act(),
        seed: u64,
    ) {
        let shape = Shape::Convolution { channels, side, outputs, kernel: 3, stride, padding, act };
        let recipe = Recipe { shape, classes: 3, samples, rounds: 1, absence: 0, size_bits: 6, seed };
        check(&recipe.build());
    }
}

/// Measured ranges, all of them checked.
fn measured() -> Settings {
    let hidden = HiddenSettings { ranges: RangeRule::Calibrated, checks_all: true, ..HiddenSettings::USUAL };
    blind().with_hidden(hidden).unwrap()
}

/// One owner's numbers are as large as another's model, and nobody could measure both together.
#[test]
fn numbers_that_no_owner_could_measure_are_counted() {
    let shape = Shape::Dense { features: 4, width: 3, hidden: vec![Act::Relu] };
    let recipe =
        Recipe { shape, classes: 3, samples: vec![9; 3], rounds: 1, absence: 0, size_bits: 1, seed: 8 };
    let mut fixture = recipe.build();
    fixture
        .spec
        .clients
        .iter_mut()
        .zip([1.0, 5000.0, 5000.0])
        .for_each(|(client, weight)| client.weight = weight);
    let (round, large) = (RoundId(1), 40.0);
    let weights = fixture.local.get_mut(&(round, 0)).unwrap();
    *weights = weights
        .iter()
        .map(|(name, tensor)| {
            let values = tensor.singles().iter().map(|value| value * large).collect();
            (name.to_owned(), Tensor::new(tensor.shape().to_vec(), values).unwrap())
        })
        .fold(Weights::new(), |mut weights, (name, tensor)| {
            weights.insert(name, tensor);
            weights
        });
    let features = fixture.test_sets[1].features().iter().map(|feature| feature * large).collect();
    let labels = fixture.test_sets[1].labels().to_vec();
    fixture.test_sets[1] = TestSet::new(fixture.test_sets[1].input().to_vec(), features, labels).unwrap();
    fixture.aggregate();
    let (session, overflows) = check_under(&fixture, measured());
    assert!(session.ranges()[0].is_calibrated());
    let counted: Vec<_> = overflows.iter().filter(|(_, count)| **count > 0).map(|((_, c), _)| *c).collect();
    assert_eq!(counted, [Coalition::EMPTY.with(0)], "{overflows:?}");
    assert!(check_under(&fixture, blind()).1.is_empty(), "proven bounds are not checked");
}

/// The usual settings, but that a model with functions by straight pieces must share so many labels of ten thousand.
fn sharing(agreement: u16) -> Settings {
    blind().with_hidden(HiddenSettings { agreement, ..HiddenSettings::USUAL }).unwrap()
}

#[test]
fn functions_by_straight_pieces_are_those_of_plain_integers() {
    for hidden in [vec![Act::Sigmoid, Act::Tanh], vec![Act::Gelu], vec![Act::Elu, Act::Silu]] {
        let shape = Shape::Dense { features: 4, width: 3, hidden };
        let recipe = Recipe {
            shape,
            classes: 3,
            samples: vec![20, 0, 31],
            rounds: 1,
            absence: 0,
            size_bits: 3,
            seed: 2,
        };
        let (session, _) = check_under(&recipe.build(), sharing(9000));
        let found = session.agreement().unwrap();
        // Of both owners' samples, the model of its own, the aggregate, the initial one.
        assert_eq!(found.labels, 3 * (20 + 31));
        assert!((9000..=10_000).contains(&found.per_ten_thousand()), "{found:?}");
    }
    let exact = Shape::Dense { features: 4, width: 3, hidden: vec![Act::Relu6] };
    let recipe = Recipe {
        shape: exact,
        classes: 3,
        samples: vec![20; 3],
        rounds: 1,
        absence: 0,
        size_bits: 3,
        seed: 2,
    };
    assert_eq!(check(&recipe.build()).agreement(), None);
}

/// Scores so close to each other that straight pieces change their order.
#[test]
fn a_model_that_loses_labels_is_refused() {
    let shape = Shape::Dense { features: 4, width: 6, hidden: vec![Act::Tanh, Act::Tanh, Act::Tanh] };
    let recipe =
        Recipe { shape, classes: 9, samples: vec![300, 300], rounds: 1, absence: 0, size_bits: 3, seed: 3 };
    let fixture = recipe.build();
    let begin = |settings| fixture.world(settings, Box::new(Seeds::default())).unwrap().agree();
    let found = begin(sharing(0)).unwrap().agreement().unwrap().per_ten_thousand();
    assert!(found < 10_000, "{found}");
    assert!(begin(sharing(found)).is_ok());
    let refused = begin(sharing(found + 1)).err().map(|error| error.to_string());
    assert!(refused.as_ref().is_some_and(|why| why.contains("--agreement")), "{refused:?}");
}

#[test]
fn ranges_of_one_operator_are_checked() {
    let shape = Shape::Reordered { features: 4, act: Act::Relu };
    let samples = vec![30, 20, 10];
    let recipe = Recipe { shape, classes: 3, samples, rounds: 1, absence: 0, size_bits: 6, seed: 5 };
    let (session, _) = check_under(&recipe.build(), measured());
    assert!(!session.ranges().is_empty());
}

#[test]
fn one_score_grouped_and_one_dimensional_convolutions() {
    let deep = |shape| Recipe {
        shape,
        classes: 3,
        samples: vec![7, 0, 5],
        rounds: 1,
        absence: 0,
        size_bits: 6,
        seed: 4,
    };
    check(&deep(Shape::OneScore { features: 5 }).build());
    check(&deep(Shape::Gaps { act: Act::Relu }).build());
    check(&deep(Shape::Lines { act: Act::Square }).build());
}

#[test]
fn pools_and_joined_layers() {
    let deep = |shape| Recipe {
        shape,
        classes: 3,
        samples: vec![70, 0, 5],
        rounds: 2,
        absence: 3,
        size_bits: 6,
        seed: 5,
    };
    check(&deep(Shape::Grouped { act: Act::HardTanh }).build());
    check(&deep(Shape::Signals { act: Act::LeakyRelu }).build());
    check(&deep(Shape::Means { act: Act::HardSigmoid }).build());
    check(&deep(Shape::Positions { positions: 3, features: 2, act: Act::Relu6 }).build());
    check(&deep(Shape::Residual { act: Act::Relu }).build());
    check(&deep(Shape::Normalised { act: Act::Relu }).build());
    check_each(&deep(Shape::Residual { act: Act::LeakyRelu }).build(), 2);
}

#[test]
fn recurrent_units() {
    let recipe =
        |shape, samples| Recipe { shape, classes: 3, samples, rounds: 2, absence: 3, size_bits: 4, seed: 6 };
    let gru = |steps, tail| Shape::Gru { steps, features: 2, hidden: 3, tail };
    let (session, _) = check_under(&recipe(gru(3, None), vec![70, 0, 5]).build(), sharing(9000));
    assert!(session.agreement().is_some_and(|found| found.labels > 0));
    check_under(&recipe(gru(2, Some(Act::Relu)), vec![20, 11]).build(), sharing(9000));
    let all = gru(1, None);
    check_each(&recipe(all, vec![66, 0, 5]).build(), 2);
}
