//! Coalitions tested by a secure protocol, all parties in one process.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use secsv_federation::{
    ClientId, Defect, Error as FederationError, FederationSpec, RoundId, RunDirectory, WeightedMean, Weights,
};
use secsv_protocol::{
    Auxiliary, ClientInput, Seed, UnitCosts,
    session::{Federation, Settings},
};

use crate::{
    Accounts, Agreed, ApproximateResult, Confirmation, Error, EvaluationResult, Next, Test,
    in_process::{Honest, InProcess, Interceptor},
    role_evaluator::{RoleEvaluator, requests, tests_of},
    secure_result::approximate,
    views::{Recorder, Transcript, Views, ViewsError},
};

/// Tests coalitions of a run under a secure protocol.
pub struct SecureEvaluator {
    in_process: InProcess,
    federation: Arc<Federation>,
    samples: usize,
    transcript: Option<Transcript>,
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
        let in_process = InProcess::new(&federation, inputs, costs, seed, interceptor);
        Ok(Self { in_process, federation, samples, transcript: None })
    }

    /// The same, and every message is kept for [`views`](Self::views).
    pub fn recorded(
        run: &RunDirectory,
        settings: Settings,
        costs: Option<UnitCosts>,
        seed: &Seed,
    ) -> Result<Self, Error> {
        let (recorder, transcript) = Recorder::around(Box::new(Honest));
        let evaluator = Self::new(run, settings, costs, seed, Box::new(recorder))?;
        Ok(Self { transcript: Some(transcript), ..evaluator })
    }

    /// What is approximate in the model that is tested, and how well, before anything is tested.
    pub fn approximate(&mut self) -> Result<Option<ApproximateResult>, Error> {
        if !self.federation.is_approximate() {
            return Ok(None);
        }
        Ok(approximate(&*self.in_process.agree()?))
    }

    /// What each party saw, once everything is tested.
    pub fn views(&self, spec: &FederationSpec) -> Result<Views, Error> {
        let transcript = self.transcript.as_ref().ok_or(Error::Views(ViewsError::NotRecorded))?;
        Views::read(&self.in_process, spec, transcript)
    }

    /// What it cost so far.
    pub fn accounts(&self) -> Accounts {
        self.in_process.accounts()
    }

    /// Which of the counts in a result the auxiliary confirms, where it counts.
    pub fn confirm(&self, spec: &FederationSpec, result: &EvaluationResult) -> Option<Confirmation> {
        if !self.federation.settings.protocol.rules().recounts() {
            return None;
        }
        let recount = self.in_process.with_auxiliary(Auxiliary::recount)?;
        let samples = self.in_process.with_auxiliary(|auxiliary| {
            secsv_protocol::role::Role::session(auxiliary).map(|s| s.samples())
        })??;
        let agreed = Agreed { samples, may_skip: result.skip, verifies_skipped: true };
        Some(Confirmation::new(spec, &self.federation, agreed, &result.utilities, &recount))
    }

    /// The parties.
    pub fn in_process(&self) -> &InProcess {
        &self.in_process
    }
}

/// The largest number in a model or sample: what is larger leaves no room for sums in any session.
const MAX_NUMBER: f32 = 4e9;

/// Refuses models and samples with numbers that no secure protocol can compute with, and names the file.
pub fn check_numbers(data: &RunDirectory, id: &ClientId, input: &ClientInput) -> Result<(), FederationError> {
    check_own_numbers(data, id, input)?;
    check_model(data.path().join("initial.safetensors"), &input.initial)?;
    for (round, weights) in input.global.iter().filter(|_| data.has_global_models()) {
        check_model(data.path().join("global").join(round_file(*round)), weights)?;
    }
    Ok(())
}

fn round_file(round: RoundId) -> String {
    format!("round-{:04}.safetensors", round.0)
}

/// The same of what no other client has.
fn check_own_numbers(data: &RunDirectory, id: &ClientId, input: &ClientInput) -> Result<(), FederationError> {
    let own = data.path().join("clients").join(id.as_str());
    for (round, weights) in &input.local {
        check_model(own.join(round_file(*round)), weights)?;
    }
    let archive = own.join("test.npz");
    let file = if archive.is_file() { archive } else { own.join("test.safetensors") };
    check_tensor(file, "x", input.test_set.features())
}

fn check_model(file: PathBuf, weights: &Weights) -> Result<(), FederationError> {
    weights.iter().try_for_each(|(name, tensor)| check_tensor(file.clone(), name, &tensor.singles()))
}

fn check_tensor(file: PathBuf, field: &str, values: &[f32]) -> Result<(), FederationError> {
    match values.iter().position(|value| value.abs() > MAX_NUMBER) {
        None => Ok(()),
        Some(position) => {
            let defect = Defect::OutOfBounds { most: MAX_NUMBER, position, found: values[position] };
            Err(FederationError::Defect { file, field: field.to_owned(), defect })
        }
    }
}

/// What each silo of a run brings; absent aggregates are recomputed.
pub fn client_inputs(run: &RunDirectory) -> Result<Vec<ClientInput>, Error> {
    let initial = run.initial_model()?;
    let mut global = BTreeMap::new();
    for round in run.spec().round_ids() {
        let weights = if run.has_global_model(round) {
            Some(run.global_model(round)?)
        } else {
            let mut mean = WeightedMean::new();
            for position in run.participants(round).members() {
                let client = &run.spec().clients[position];
                mean.add(&run.local_model(&client.id, round)?, client.weight_in(round));
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
        // Whoever evaluates in one process has all samples before its eyes.
        let (global, initial, accepts_few) = (global.clone(), initial.clone(), true);
        let input = ClientInput { test_set, local, global, initial, accepts_few };
        check_own_numbers(run, &client.id, &input)?;
        inputs.push(input);
    }
    // What all have in common may be at fault because of what one of them has.
    for (client, input) in run.spec().clients.iter().zip(&inputs).take(1) {
        check_numbers(run, &client.id, input)?;
    }
    Ok(inputs)
}

impl RoleEvaluator for SecureEvaluator {
    type Error = Error;

    fn federation(&self) -> &Federation {
        &self.federation
    }

    fn sample_count(&self) -> usize {
        self.samples
    }

    /// All rounds at once: the principal takes the earliest first and fills idle time with the next.
    fn run(&mut self, tests: Vec<(RoundId, Test)>, next: &mut Next<'_>) -> Result<(), Error> {
        let session = self.in_process.agree()?;
        self.in_process.run(requests(&session, tests), |asked, found| {
            let mut more = Vec::new();
            for ((round, test), found) in tests_of(asked).zip(found) {
                more.extend(next(round, &test, found)?);
            }
            Ok(requests(&session, more))
        })
    }
}
