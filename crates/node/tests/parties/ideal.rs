//! BlindSV in plain integers, under the seeds of a run's parties: masks round hidden numbers, so another run may count otherwise.

use std::{collections::BTreeMap, sync::Arc};

use secsv_evaluation::{
    Error, Next, Plan, Test, client_inputs,
    role_evaluator::{RoleEvaluator, requests},
};
use secsv_federation::{Coalition, RoundId, RunDirectory, SampleSet};
use secsv_protocol::{
    ClassCount, ClientInput, Ring64, Seed, TestResult,
    cost::{self, Prediction, predict},
    decryptors::knows,
    ideal::Ideal,
    model::{EncodedModel, sample_values},
    own_right,
    session::{Federation, Session, typical_costs},
    test_set_digest,
};

use crate::federation::{CLIENTS, randomness};

/// What a client's randomness follows from, in state directories that the fixture begins.
pub fn client_seed(position: usize) -> Seed {
    let random = randomness(CLIENTS[position]);
    Seed::from_bytes(random[..32].try_into().unwrap()).derive("client", position as u64)
}

/// What parties with these kits agree on, without any of them.
fn session(federation: &Arc<Federation>, inputs: &[ClientInput]) -> Arc<Session> {
    cost::session(federation, inputs, Some(&typical_costs(federation.settings.preset))).unwrap()
}

/// What the plan of a run says that parties with these kits send: their leader is drawn by what is in the kits.
pub fn planned(run: &RunDirectory, federation: Federation) -> Prediction {
    let federation = Arc::new(federation);
    let plan = Plan::new(run, federation.settings, false).unwrap();
    let session = session(&federation, &plan.inputs);
    let all = Arc::new(SampleSet::all(session.samples()));
    let tests = plan.tests.iter().map(|&(round, coalition)| (round, Test::new(coalition, all.clone())));
    let prediction = predict(&session, &requests(&session, tests.collect()), 0).unwrap();
    // Whoever leads, it is the same bytes.
    let bytes = |prediction: &Prediction| prediction.traffic.values().map(|(bytes, _)| bytes).sum::<u64>();
    assert_eq!(bytes(&prediction), bytes(&plan.at_most));
    prediction
}

/// Counts of a run's coalitions.
pub struct IdealEvaluator {
    session: Arc<Session>,
    inputs: Vec<ClientInput>,
    /// Seeds of each owner's masks, with the principal and with the auxiliary.
    masks: Vec<[Seed; 2]>,
    rounds: BTreeMap<RoundId, Ideal<Ring64>>,
}

impl IdealEvaluator {
    pub fn new(run: &RunDirectory, federation: Federation) -> Self {
        let federation = Arc::new(federation);
        let inputs = client_inputs(run).unwrap();
        let session = session(&federation, &inputs);
        let masks = inputs.iter().enumerate().map(|(position, input)| {
            let samples = test_set_digest(&input.test_set);
            let own = client_seed(position).covering(&[&samples[..], &federation.digest()].concat());
            [0, 1].map(|server| own.derive("owner's key", server))
        });
        let masks = masks.collect();
        let rounds = federation.rounds.keys().map(|&round| (round, ideal(&session, &inputs, round)));
        let rounds = rounds.collect();
        Self { session, inputs, masks, rounds }
    }

    /// Which samples a coalition predicts right of those that it is tested on, and how many hidden numbers are out of range.
    fn right(&self, round: RoundId, test: &Test) -> (SampleSet, u64) {
        let (session, coalition) = (&self.session, test.coalition);
        let participants = session.federation.participants(round);
        let (mut right, mut overflows) = (SampleSet::none(session.samples()), 0);
        for (owner, input) in self.inputs.iter().enumerate() {
            let first = session.offset(owner);
            let tested: Vec<usize> =
                (0..input.test_set.len()).filter(|sample| test.samples.contains(first + sample)).collect();
            if knows(owner, coalition, participants) {
                let mut asked = SampleSet::none(input.test_set.len());
                tested.iter().for_each(|&sample| asked.insert(sample));
                let own = own_right(&session.federation, owner, input, round, coalition, &asked).unwrap();
                own.iter().for_each(|sample| right.insert(first + sample));
                continue;
            }
            let owner = (owner, &self.masks[owner]);
            let masked =
                self.rounds[&round].masked(session, (round, coalition), owner, &input.test_set, &tested);
            let (found, out_of_range) = masked.unwrap();
            overflows += out_of_range;
            let found = tested.iter().zip(found).filter(|(_, is_right)| *is_right);
            found.for_each(|(sample, _)| right.insert(first + sample));
        }
        (right, overflows)
    }

    fn result(&self, round: RoundId, test: &Test) -> TestResult {
        let (right, overflows) = self.right(round, test);
        let federation = &self.session.federation;
        let mut result = match (federation.settings.always_skips, federation.settings.by_class) {
            (true, _) => right.into(),
            (false, false) => TestResult::of_count(right.len()),
            (false, true) => TestResult::of_class_counts(self.of_classes(&right)),
        };
        let is_checked = self.session.ranges().iter().any(|range| range.is_calibrated());
        result.overflows = is_checked.then_some(overflows);
        result
    }

    fn of_classes(&self, right: &SampleSet) -> Vec<ClassCount> {
        let labels = self.inputs.iter().flat_map(|input| input.test_set.labels());
        let mut counts =
            vec![ClassCount { right: 0, samples: 0 }; self.session.federation.architecture.classes()];
        for (sample, &label) in labels.enumerate() {
            let count = &mut counts[label as usize];
            count.samples += 1;
            count.right += usize::from(right.contains(sample));
        }
        counts
    }
}

/// A round's models and all samples as words.
fn ideal(session: &Session, inputs: &[ClientInput], round: RoundId) -> Ideal<Ring64> {
    let (program, precision) = (session.program(), &session.precision);
    let width = session.federation.architecture.input_size();
    let features = inputs.iter().flat_map(|input| input.test_set.features()).copied().collect::<Vec<f32>>();
    let labels = vec![0; features.len() / width];
    let input = session.federation.architecture.input().to_vec();
    let samples = secsv_federation::TestSet::new(input, features, labels).unwrap();
    let samples = sample_values(program, &samples).encode(Ring64, precision.operators[0].input, 1).unwrap();
    let participants: Coalition = session.federation.participants(round);
    let model = |(client, share): (usize, f64)| {
        let local = &inputs[client].local[&round];
        (client, share, EncodedModel::new(program, precision, Ring64, local, share).unwrap())
    };
    Ideal { samples, models: session.members(round, participants).into_iter().map(model).collect() }
}

impl RoleEvaluator for IdealEvaluator {
    type Error = Error;

    fn federation(&self) -> &Federation {
        &self.session.federation
    }

    fn sample_count(&self) -> usize {
        self.session.samples()
    }

    fn run(&mut self, tests: Vec<(RoundId, Test)>, next: &mut Next<'_>) -> Result<(), Error> {
        let mut open = tests;
        while let Some((round, test)) = open.pop() {
            let result = self.result(round, &test);
            open.extend(next(round, &test, result)?);
        }
        Ok(())
    }
}
