//! Coalitions tested by a secure protocol, all parties in one process.

use std::{collections::BTreeMap, sync::Arc};

use secsv_federation::{Coalition, RoundId, RunDirectory, WeightedMean};
use secsv_protocol::{
    ClientInput, Seed, TestRequest, TestResult, UnitCosts,
    decryptors::Protocol,
    session::{Federation, Settings},
};

use crate::{
    Error, Evaluator, Test,
    world::{Accounts, Interceptor, World},
};

/// Tests coalitions of a run under a secure protocol.
pub struct SecureEvaluator {
    world: World,
    federation: Arc<Federation>,
    samples: usize,
    /// The round whose models the servers hold.
    open: Option<RoundId>,
}

impl SecureEvaluator {
    /// All parties of a run that [`RunDirectory::check`] has passed.
    pub fn new(
        run: &RunDirectory,
        settings: Settings,
        costs: Option<UnitCosts>,
        seed: &Seed,
        interceptor: Box<dyn Interceptor>,
    ) -> Result<Self, Error> {
        let federation =
            Federation::new(run.spec(), run.architecture(), |round| run.participants(round), settings)
                .map_err(Error::Role)?;
        let federation = Arc::new(federation);
        let inputs = client_inputs(run)?;
        let samples = inputs.iter().map(|input| input.test_set.len()).sum();
        let world = World::new(&federation, inputs, costs, seed, interceptor);
        Ok(Self { world, federation, samples, open: None })
    }

    /// What it cost so far.
    pub fn accounts(&self) -> Accounts {
        self.world.accounts()
    }

    /// The parties.
    pub fn world(&self) -> &World {
        &self.world
    }
}

/// What each silo of a run brings; absent aggregates are recomputed.
pub fn client_inputs(run: &RunDirectory) -> Result<Vec<ClientInput>, Error> {
    let initial = run.initial_model()?;
    let mut global = BTreeMap::new();
    for round in run.spec().round_ids() {
        let weights = if run.has_global_models() {
            Some(run.global_model(round)?)
        } else {
            let mut mean = WeightedMean::new();
            for position in run.participants(round).members() {
                let client = &run.spec().clients[position];
                mean.add(&run.local_model(&client.id, round)?, client.train_size_in(round));
            }
            mean.finish_single()
        };
        global.extend(weights.map(|weights| (round, weights)));
    }
    let mut inputs = Vec::new();
    for client in &run.spec().clients {
        let mut local = BTreeMap::new();
        for round in run.spec().round_ids().filter(|round| run.took_part(&client.id, *round)) {
            local.insert(round, run.local_model(&client.id, round)?);
        }
        let test_set = run.test_set(&client.id)?;
        inputs.push(ClientInput { test_set, local, global: global.clone(), initial: initial.clone() });
    }
    Ok(inputs)
}

impl Evaluator for SecureEvaluator {
    fn protocol(&self) -> &'static str {
        match self.federation.settings.protocol {
            Protocol::SecSv => "secsv",
            Protocol::Hesv => "hesv",
            Protocol::SecretSv => "secretsv",
        }
    }

    fn samples(&self) -> usize {
        self.samples
    }

    fn rounds(&self) -> Vec<(RoundId, Coalition)> {
        self.federation.rounds.keys().map(|&round| (round, self.federation.participants(round))).collect()
    }

    fn tells_samples(&self) -> bool {
        self.federation.settings.protocol != Protocol::Hesv
    }

    fn test(&mut self, round: RoundId, tests: &[Test]) -> Result<Vec<TestResult>, Error> {
        let mut found: BTreeMap<usize, TestResult> = BTreeMap::new();
        let requests: Vec<TestRequest> = tests
            .iter()
            .map(|test| TestRequest { round, coalition: test.coalition, samples: test.samples.clone() })
            .collect();
        // With SampleSkip a round comes in several batches: its models are sent once.
        if let Some(before) = self.open.replace(round).filter(|before| *before != round) {
            self.world.close_round(before);
        }
        self.world.run(requests, |request, result| {
            let place = tests.iter().enumerate().position(|(i, test)| {
                !found.contains_key(&i)
                    && test.coalition == request.coalition
                    && test.samples == request.samples
            });
            found.extend(place.map(|place| (place, result)));
            Ok(Vec::new())
        })?;
        Ok(found.into_values().collect())
    }

    fn cost(&mut self, _round: RoundId, _coalition: Coalition, samples: usize) -> Result<f64, Error> {
        // Microseconds beside nanoseconds: any sample that is not tested pays for the search.
        Ok(samples as f64 * 1e4)
    }
}
