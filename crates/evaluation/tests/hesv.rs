//! HESV against the ideal run: for every coalition of a small federation the count is that of the same fixed-point
//! arithmetic without encryption, plus what owners count themselves. Anything else is a failure, a hang included.

use std::{collections::BTreeMap, error::Error, sync::Arc};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use secsv_evaluation::{
    Envelope,
    in_process::{Honest, InProcess, Interceptor},
};
use secsv_federation::{
    Architecture, ClientId, ClientSpec, Coalition, FederationSpec, LayerSpec, ModelSpec, RoundId, SampleSet,
    Tensor, TestSet, Weights,
};
use secsv_protocol::{
    ClientInput, PartyId, Preset, Seed, TestRequest,
    decryptors::{Protocol, knows},
    ideal::Ideal,
    message::Kind,
    model::{EncodedModel, sample_values},
    own_right,
    session::{Federation, Matmul, Settings, typical_costs},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

type Shapes = Vec<(&'static str, Vec<usize>)>;

fn linear(name: &str) -> LayerSpec {
    LayerSpec::Linear { weight: format!("{name}.weight"), bias: Some(format!("{name}.bias")) }
}

fn logistic() -> (ModelSpec, Shapes) {
    let shapes = vec![("a.weight", vec![3, 5]), ("a.bias", vec![3])];
    (ModelSpec::new(vec![5], 3, vec![linear("a")]), shapes)
}

fn cnn() -> (ModelSpec, Shapes) {
    let conv = LayerSpec::conv2d("a.weight".into(), Some("a.bias".into()), 2, 1);
    let layers = vec![conv, LayerSpec::Square {}, LayerSpec::Flatten {}, linear("b")];
    let shapes = vec![
        ("a.weight", vec![2, 1, 3, 3]),
        ("a.bias", vec![2]),
        ("b.weight", vec![3, 8]),
        ("b.bias", vec![3]),
    ];
    (ModelSpec::new(vec![1, 4, 4], 3, layers), shapes)
}

fn dnn() -> (ModelSpec, Shapes) {
    let layers = vec![linear("a"), LayerSpec::Relu {}, linear("b"), LayerSpec::Sigmoid {}, linear("c")];
    let shapes = vec![
        ("a.weight", vec![4, 5]),
        ("a.bias", vec![4]),
        ("b.weight", vec![5, 4]),
        ("b.bias", vec![5]),
        ("c.weight", vec![3, 5]),
        ("c.bias", vec![3]),
    ];
    (ModelSpec::new(vec![5], 3, layers), shapes)
}

fn gru() -> (ModelSpec, Shapes) {
    let unit = LayerSpec::Gru {
        weight_ih: "g.ih".into(),
        weight_hh: "g.hh".into(),
        bias_ih: Some("g.bih".into()),
        bias_hh: Some("g.bhh".into()),
    };
    let shapes = vec![
        ("g.ih", vec![9, 4]),
        ("g.hh", vec![9, 3]),
        ("g.bih", vec![9]),
        ("g.bhh", vec![9]),
        ("a.weight", vec![2, 3]),
        ("a.bias", vec![2]),
    ];
    (ModelSpec::new(vec![3, 4], 2, vec![unit, linear("a")]), shapes)
}

struct Case {
    federation: Arc<Federation>,
    inputs: Vec<ClientInput>,
    /// Samples of each client.
    tests: Vec<TestSet>,
    local: Vec<Option<Weights>>,
}

/// One round of a federation with so many samples at each client; `absent` took no part.
fn case(
    (model, shapes): (ModelSpec, Shapes),
    matmul: Matmul,
    samples: &[usize],
    absent: Option<usize>,
    seed: u64,
) -> Outcome<Case> {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let round = RoundId(1);
    let clients = (0..samples.len())
        .map(|i| {
            let id = ClientId::new(format!("site-{i}"))?;
            Ok(ClientSpec::new(id, rng.random_range(50..4000u64) as f64))
        })
        .collect::<Outcome<Vec<_>>>()?;
    let spec = FederationSpec::new("test".into(), 1, model.clone(), clients);
    let mut weights = || -> Outcome<Weights> {
        let mut weights = Weights::new();
        for (name, shape) in &shapes {
            let count: usize = shape.iter().product();
            let values = (0..count).map(|_| rng.random_range(-1.0f32..1.0)).collect();
            weights.insert(*name, Tensor::new(shape.clone(), values)?);
        }
        Ok(weights)
    };
    let (initial, global) = (weights()?, weights()?);
    let local = (0..samples.len())
        .map(|i| if Some(i) == absent { Ok(None) } else { weights().map(Some) })
        .collect::<Outcome<Vec<_>>>()?;
    let file = std::path::PathBuf::from("test");
    let architecture = Architecture::new(&model, &initial.shapes(), &file, &file)?;
    let settings = Settings {
        protocol: Protocol::Hesv,
        preset: Preset::Standard,
        matmul,
        always_skips: false,
        whole_rounds: false,
        hidden: Default::default(),
        by_class: false,
    };
    let present: Coalition = (0..samples.len()).filter(|i| Some(*i) != absent).collect();
    let federation = Arc::new(Federation::new(&spec, &architecture, |_| present, settings)?);
    let size: usize = model.input.iter().product();
    let tests = samples
        .iter()
        .map(|&count| {
            let features = (0..count * size).map(|_| rng.random_range(-1.0f32..1.0)).collect();
            let labels = (0..count).map(|_| rng.random_range(0..model.classes as i64)).collect();
            Ok(TestSet::new(model.input.clone(), features, labels)?)
        })
        .collect::<Outcome<Vec<_>>>()?;
    let inputs = tests.iter().zip(&local).map(|(test_set, local)| ClientInput {
        accepts_few: false,
        test_set: test_set.clone(),
        local: local.iter().map(|weights| (round, weights.clone())).collect(),
        global: BTreeMap::from([(round, global.clone())]),
        initial: initial.clone(),
    });
    let inputs = inputs.collect();
    Ok(Case { federation, inputs, tests, local })
}

/// Counts of all coalitions, and the world they were counted in.
fn run(
    case: &mut Case,
    interceptor: Box<dyn Interceptor>,
) -> Outcome<(BTreeMap<Coalition, usize>, InProcess)> {
    let total = case.tests.iter().map(TestSet::len).sum();
    let participants = case.federation.participants(RoundId(1));
    let members: Vec<usize> = participants.members().collect();
    let requests: Vec<TestRequest> = (0..1usize << members.len())
        .map(|set| {
            let coalition = (0..members.len()).filter(|i| set >> i & 1 == 1).map(|i| members[i]).collect();
            TestRequest::new(RoundId(1), coalition, SampleSet::all(total))
        })
        .collect();
    let inputs = std::mem::take(&mut case.inputs);
    let costs = Some(typical_costs(Preset::Standard));
    let seed = Seed::from_bytes([7; 32]);
    let mut world = InProcess::new(&case.federation, inputs, costs, &seed, interceptor);
    let mut counts = BTreeMap::new();
    world.run(requests, |request, found| {
        assert!(found[0].right.is_none(), "the principal learns counts alone");
        counts.insert(request.coalitions[0], found[0].correct);
        Ok(Vec::new())
    })?;
    Ok((counts, world))
}

/// The same counts without cryptography.
fn expected(case: &Case, inputs: &[ClientInput], world: &InProcess) -> Outcome<BTreeMap<Coalition, usize>> {
    let round = RoundId(1);
    let session = world.with_principal(|p| p.session().cloned()).flatten().ok_or("a session")?;
    let (program, precision, field) = (session.program(), &session.precision, session.field());
    let participants = case.federation.participants(round);
    let mut counts = BTreeMap::new();
    for bits in 0..1u128 << case.tests.len() {
        let coalition = Coalition::from_bits(bits);
        if !coalition.is_subset_of(participants) {
            continue;
        }
        let mut count = 0;
        for (owner, test_set) in case.tests.iter().enumerate() {
            if knows(owner, coalition, participants) {
                let all = SampleSet::all(test_set.len());
                let input = &inputs[owner];
                count += own_right(&case.federation, owner, input, round, coalition, &all)?.len();
                continue;
            }
            if test_set.is_empty() {
                continue;
            }
            let samples = sample_values(program, test_set).encode(field, precision.operators[0].input, 1)?;
            let models = session
                .members(round, participants)
                .into_iter()
                .map(|(i, share)| {
                    let weights = case.local[i].as_ref().ok_or("a model")?;
                    Ok((i, share, EncodedModel::new(program, precision, field, weights, share)?))
                })
                .collect::<Outcome<Vec<_>>>()?;
            let everything: Vec<usize> = (0..test_set.len()).collect();
            let labels = Ideal { samples, models }.labels(program, precision, coalition, &everything)?;
            let truth = test_set.labels().iter();
            count += labels.iter().zip(truth).filter(|(found, truth)| **found as i64 == **truth).count();
        }
        counts.insert(coalition, count);
    }
    Ok(counts)
}

fn clone_inputs(case: &Case) -> Vec<ClientInput> {
    let clone = |input: &ClientInput| ClientInput {
        accepts_few: false,
        test_set: input.test_set.clone(),
        local: input.local.clone(),
        global: input.global.clone(),
        initial: input.initial.clone(),
    };
    case.inputs.iter().map(clone).collect()
}

fn agrees(mut case: Case) -> Outcome<InProcess> {
    let inputs = clone_inputs(&case);
    let (found, world) = run(&mut case, Box::new(Honest))?;
    assert_eq!(found, expected(&case, &inputs, &world)?);
    let accounts = world.accounts();
    println!("{:?} {:?}", accounts.seconds, accounts.operations);
    for (from, to, kind) in accounts.traffic.keys() {
        assert!(*from != PartyId::Auxiliary && *to != PartyId::Auxiliary, "{kind}: one server only");
    }
    Ok(world)
}

#[test]
fn logistic_models_count_like_the_ideal_run() -> Outcome<()> {
    let world = agrees(case(logistic(), Matmul::Squaring, &[3, 1, 4, 2], None, 1)?)?;
    // One product for each model, owner and batch, whatever the number of coalitions.
    let session = world.with_principal(|p| p.session().cloned()).flatten().ok_or("a session")?;
    let products = session.encryption().unwrap().layouts[0].weight_ciphertexts() as u64 * 4 * 4;
    assert_eq!(world.accounts().operations.ct_ct_mul, products);
    agrees(case(logistic(), Matmul::Reducing, &[3, 1, 4, 2], None, 2)?)?;
    Ok(())
}

#[test]
fn a_client_may_be_absent_and_another_without_samples() -> Outcome<()> {
    agrees(case(logistic(), Matmul::Squaring, &[2, 0, 3, 1, 2], Some(3), 3)?)?;
    Ok(())
}

#[test]
fn convolutions_count_like_the_ideal_run() -> Outcome<()> {
    agrees(case(cnn(), Matmul::Squaring, &[2, 3, 1, 2], None, 4)?)?;
    agrees(case(cnn(), Matmul::Reducing, &[2, 3, 1, 2], None, 5)?)?;
    Ok(())
}

#[test]
fn deep_models_count_like_the_ideal_run() -> Outcome<()> {
    agrees(case(dnn(), Matmul::Squaring, &[2, 3, 1, 2], None, 6)?)?;
    agrees(case(dnn(), Matmul::Reducing, &[2, 3, 1, 2], None, 7)?)?;
    Ok(())
}

#[test]
fn recurrent_models_count_like_the_ideal_run() -> Outcome<()> {
    agrees(case(gru(), Matmul::Squaring, &[2, 0, 1, 0], None, 8)?)?;
    agrees(case(gru(), Matmul::Reducing, &[0, 1, 0, 1], None, 9)?)?;
    Ok(())
}

#[test]
fn coefficient_packing_serves_too() -> Outcome<()> {
    agrees(case(dnn(), Matmul::Packed, &[2, 3, 1, 2], None, 10)?)?;
    Ok(())
}

/// Cuts the first message of a kind short.
struct Cut(Kind, bool);

impl Interceptor for Cut {
    fn pass(&mut self, mut envelope: Envelope) -> Vec<Envelope> {
        if envelope.kind == self.0 && !std::mem::replace(&mut self.1, true) {
            envelope.content.pop();
        }
        vec![envelope]
    }
}

/// Loses the first message of a kind.
struct Lose(Kind, bool);

impl Interceptor for Lose {
    fn pass(&mut self, envelope: Envelope) -> Vec<Envelope> {
        if envelope.kind == self.0 && !std::mem::replace(&mut self.1, true) {
            return Vec::new();
        }
        vec![envelope]
    }
}

#[test]
fn what_is_cut_or_lost_ends_in_an_error() -> Outcome<()> {
    let kinds = [
        Kind::EvaluationKeys,
        Kind::EncryptedData,
        Kind::Model,
        Kind::Reply,
        Kind::EncryptedLabels,
        Kind::EncryptedPredictions,
    ];
    for kind in kinds.into_iter().chain([Kind::BlindedDifferences, Kind::Count]) {
        let interceptors: [Box<dyn Interceptor>; 2] =
            [Box::new(Cut(kind, false)), Box::new(Lose(kind, false))];
        for interceptor in interceptors {
            let mut case = case(logistic(), Matmul::Reducing, &[1, 0, 1, 0], None, 11)?;
            let error = run(&mut case, interceptor).err().ok_or("an error")?.to_string();
            println!("{kind}: {error}");
            assert!(error.contains("client"), "{kind}: {error}");
        }
    }
    Ok(())
}

#[test]
fn compact_parameters_are_refused() -> Outcome<()> {
    let case = case(logistic(), Matmul::Squaring, &[1, 1, 1, 1], None, 12)?;
    let settings = Settings { preset: Preset::Compact, ..case.federation.settings };
    let clients = (0..4)
        .map(|i| Ok(ClientSpec::new(ClientId::new(format!("site-{i}"))?, 1.0)))
        .collect::<Outcome<Vec<_>>>()?;
    let spec = FederationSpec::new("test".into(), 1, logistic().0, clients);
    let refused =
        Federation::new(&spec, &case.federation.architecture, |_| Coalition::first(4), settings).unwrap_err();
    assert!(refused.is_bad_input(), "{refused}");
    Ok(())
}
