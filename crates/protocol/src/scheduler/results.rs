//! What is asked of a test, what it has found so far, and when it has found everything.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use secsv_federation::{Coalition, RoundId, SampleSet};

use super::{Engine, Scheduler};
use crate::{
    Error,
    comparison::WholeLabels,
    disclosure::Disclosure,
    error::CodecError,
    message::{Head, OwnResult, OwnResultCounts, TestFinished},
    role::{Effects, Incoming, Outgoing},
    scope::Scope,
    test_id::RequestId,
    unit::UnitContext,
};

/// A test that somebody wants.
#[derive(Clone, Debug, PartialEq)]
pub struct TestRequest {
    /// The round, or the first of its round batch.
    pub round: RoundId,
    /// The rounds: all of the round batch, or any of it where only models are tested that owners know.
    pub rounds: Vec<RoundId>,
    /// Whose aggregates: one, or several where [`tests_together`](crate::session::Federation::tests_together). The empty coalition stands for the model
    /// before the first round.
    pub coalitions: Vec<Coalition>,
    /// Which samples of the collective test set.
    pub samples: SampleSet,
    /// All that this test and others of the round, of coalitions not smaller, may need.
    pub candidate_samples: SampleSet,
}

impl TestRequest {
    /// A test for which nothing is gathered.
    pub fn new(round: RoundId, coalition: Coalition, samples: SampleSet) -> Self {
        let candidate_samples = SampleSet::all(samples.total());
        Self { round, rounds: vec![round], coalitions: vec![coalition], samples, candidate_samples }
    }
}

/// What a test found.
#[derive(Clone, Debug, PartialEq)]
pub struct TestResult {
    /// How many of the samples were predicted right.
    pub correct: usize,
    /// Which, where the principal learns it: not in HESV.
    pub right: Option<SampleSet>,
    /// How many hidden numbers were out of range, where that is counted.
    pub overflows: Option<u64>,
    /// The same for each true class, where that is counted; otherwise nothing.
    pub of_classes: Vec<ClassCount>,
}

/// How many samples of one class were predicted right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassCount {
    /// So many,
    pub right: usize,
    /// of so many.
    pub samples: usize,
}

impl From<SampleSet> for TestResult {
    fn from(right: SampleSet) -> Self {
        Self { correct: right.len(), right: Some(right), of_classes: Vec::new(), overflows: None }
    }
}

impl TestResult {
    /// So many right predictions, of nobody knows which samples.
    pub fn of_count(correct: usize) -> Self {
        Self { correct, right: None, of_classes: Vec::new(), overflows: None }
    }

    /// From how many samples of each class were predicted right.
    pub fn of_class_counts(of_classes: Vec<ClassCount>) -> Self {
        let correct = of_classes.iter().fold(0, |sum: usize, class| sum.wrapping_add(class.right));
        Self { correct, right: None, of_classes, overflows: None }
    }

    /// Adds samples that are predicted right.
    fn add(&mut self, found: &SampleSet) {
        match &mut self.right {
            Some(right) => {
                right.union_with(found);
                self.correct = right.len();
            }
            None => self.correct += found.len(),
        }
    }
}

/// A test under way.
pub(super) struct TestState {
    pub(super) request: TestRequest,
    /// The number of each coalition in the request.
    numbers: BTreeMap<Coalition, usize>,
    /// For each round and coalition.
    found: Vec<TestResult>,
    /// Groups whose samples are not tested yet, and by which coalition.
    pub(super) units_left: BTreeSet<(usize, usize)>,
    /// Owners that have not tested models they know, and which coalitions' these are.
    pub(super) owners_left: BTreeMap<usize, Vec<usize>>,
}

impl TestState {
    /// A test for which `nothing` is found yet.
    pub(super) fn new(request: TestRequest, nothing: TestResult) -> Self {
        let models = request.rounds.len() * request.coalitions.len();
        Self {
            numbers: request.coalitions.iter().copied().zip(0..request.coalitions.len()).rev().collect(),
            found: vec![nothing; models],
            units_left: BTreeSet::new(),
            owners_left: BTreeMap::new(),
            request,
        }
    }

    /// The places, among all models of the test, of those that an owner was asked to test itself.
    fn own_models(&self, owner: usize) -> Result<Vec<usize>, CodecError> {
        let asked = self.owners_left.get(&owner).ok_or(CodecError::Value { what: "test" })?;
        let (rounds, coalitions) = (self.request.rounds.len(), self.request.coalitions.len());
        let of_round = |round: usize| asked.iter().map(move |number| round * coalitions + number);
        Ok((0..rounds).flat_map(of_round).collect())
    }
}

impl<E: Engine> Scheduler<E> {
    /// The test that an owner tells its own result of.
    fn own_test(&mut self, message: &Incoming) -> Result<(RequestId, &mut TestState), CodecError> {
        let Head::Request(id) = Head::of(message.kind, &message.content)?.0 else {
            return Err(CodecError::Value { what: "test" });
        };
        let state = self.tests.get_mut(&id).ok_or(CodecError::Value { what: "test" })?;
        Ok((id, state))
    }

    /// Which of its own samples models predict right that the owner knows.
    pub(super) fn own_result(&mut self, client: usize, message: &Incoming) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        let opening = self.session.opening(Disclosure::RightOrWrong)?;
        let session = self.session.clone();
        let (id, state) = self.own_test(message).map_err(malformed)?;
        let models = state.own_models(client).map_err(malformed)?;
        let (offset, own) = (session.offset(client), session.hellos[client].samples as usize);
        let OwnResult { right: found, .. } = message.read(&models.len())?;
        let found = opening.told(found);
        if found.iter().any(|right| right.total() != own) {
            return Err(malformed(CodecError::Value { what: "samples" }));
        }
        state.owners_left.remove(&client);
        for (model, right) in models.into_iter().zip(found) {
            let mut all = SampleSet::none(state.request.samples.total());
            let asked = right.iter().filter(|k| state.request.samples.contains(offset + k));
            asked.for_each(|k| all.insert(offset + k));
            state.found[model].add(&all);
        }
        self.finish(id)
    }

    /// How many of its own samples models predict right that the owner knows.
    pub(super) fn own_count(&mut self, client: usize, message: &Incoming) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        let opening = self.session.opening(Disclosure::Counts)?;
        let session = self.session.clone();
        let (id, state) = self.own_test(message).map_err(malformed)?;
        let models = state.own_models(client).map_err(malformed)?;
        let first = session.offset(client);
        let own = first..first + session.hellos[client].samples as usize;
        let OwnResultCounts { right: found, .. } = message.read(&models.len())?;
        let found = opening.told(found);
        let expected = own.filter(|&sample| state.request.samples.contains(sample)).count() as u64;
        if let Some(&found) = found.iter().find(|&&found| found > expected) {
            return Err(malformed(CodecError::TooLarge { what: "right predictions", expected, found }));
        }
        state.owners_left.remove(&client);
        for (model, found) in models.into_iter().zip(found) {
            state.found[model].correct += found as usize;
        }
        self.finish(id)
    }

    /// Compares the labels of a unit, all of whose shares have come (Algorithm 4, steps 13 and 14).
    pub(crate) fn compare(&self, context: &Arc<UnitContext>, labels: WholeLabels) -> Effects<Self> {
        let mut effects = Effects::default();
        let (session, context) = (self.session.clone(), context.clone());
        effects.job(move |meter| {
            let found = labels.right(&session, &context, meter)?;
            Ok(move |role: &mut Self| {
                // Unless others have taken it over.
                if role.units.remove(&context.id).is_none() {
                    return Ok(Effects::default());
                }
                let mut effects = Effects::send(labels.opened(&context));
                effects.and(role.settle(&context, |state, models| {
                    models.into_iter().zip(&found).for_each(|(model, right)| state.found[model].add(right));
                })?);
                Ok(effects)
            })
        });
        effects
    }

    /// Takes the number of right predictions of a unit that tests one coalition.
    pub(crate) fn settle_count(&mut self, unit: &UnitContext, right: usize) -> Result<Effects<Self>, Error> {
        self.units.remove(&unit.id);
        self.settle(unit, |state, models| {
            models.into_iter().take(1).for_each(|model| state.found[model].correct += right);
        })
    }

    /// Takes what a unit found. `add` gets the places of its models among all models of the test, round by round.
    fn settle(
        &mut self,
        unit: &UnitContext,
        add: impl FnOnce(&mut TestState, Vec<usize>),
    ) -> Result<Effects<Self>, Error> {
        let id = unit.id.test.request;
        let Some(state) = self.tests.get_mut(&id) else { return Ok(Effects::default()) };
        let numbers =
            unit.plan.coalitions.iter().filter_map(|coalition| state.numbers.get(coalition).copied());
        let numbers: Vec<usize> = numbers.collect();
        let coalitions = state.request.coalitions.len();
        let of_round = |round: usize| numbers.iter().map(move |number| round * coalitions + number);
        let models: Vec<usize> = (0..state.request.rounds.len()).flat_map(of_round).collect();
        numbers.iter().for_each(|&number| {
            state.units_left.remove(&(unit.id.group, number));
        });
        add(state, models);
        self.finish(id)
    }

    /// Ends a test that has everything.
    pub(super) fn finish(&mut self, id: RequestId) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let ended = self.tests.get(&id).is_some_and(|t| t.units_left.is_empty() && t.owners_left.is_empty());
        let Some(state) = ended.then(|| self.tests.remove(&id)).flatten() else { return Ok(effects) };
        for test in self.tests_at(id, &state.request) {
            self.finished.push(Scope::Test(test));
            self.engine.forget_test(test);
            let finished = TestFinished { test };
            effects.outbox.extend(E::AUXILIARY.map(|to| Outgoing::of(to, &finished)));
        }
        self.results.push((id, state.found));
        effects.and(self.pump()?);
        Ok(effects)
    }
}
