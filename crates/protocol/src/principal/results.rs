//! What is base_test of a test, what it has found so far, and when it has found everything.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use secsv_algebra::Seed;
use secsv_federation::{Coalition, RoundId, SampleSet};

use super::{Principal, base_test};
use crate::{
    Error, PartyId,
    codec::{Reader, Writer},
    error::CodecError,
    labels,
    message::{Kind, Place},
    role::{Effects, Outgoing, Phase},
    scope::Scope,
    server::{
        UnitContext,
        recount::{Labelled, labelled},
    },
    session::Session,
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
}

impl From<SampleSet> for TestResult {
    fn from(right: SampleSet) -> Self {
        Self { correct: right.len(), right: Some(right) }
    }
}

/// What an owner says of models, each with the model's place in the test.
pub(super) type OwnAnswers<T> = Vec<(usize, T)>;

pub(super) struct TestState {
    pub(super) request: TestRequest,
    /// Of each coalition, in the request.
    numbers: BTreeMap<Coalition, usize>,
    /// For each round and coalition, the samples that it predicts right ...
    pub(super) right: Vec<SampleSet>,
    /// ... or how many, where that is all that is learnt.
    pub(super) counted: Vec<usize>,
    /// Groups whose samples are not tested yet, and by which coalition.
    pub(super) units_left: BTreeSet<(usize, usize)>,
    /// Owners that have not tested models they know, and which coalitions' these are.
    pub(super) owners_left: BTreeMap<usize, Vec<usize>>,
}

impl TestState {
    pub(super) fn new(request: TestRequest) -> Self {
        let models = request.rounds.len() * request.coalitions.len();
        Self {
            numbers: request.coalitions.iter().copied().zip(0..request.coalitions.len()).rev().collect(),
            right: vec![SampleSet::none(request.samples.total()); models],
            counted: vec![0; models],
            units_left: BTreeSet::new(),
            owners_left: BTreeMap::new(),
            request,
        }
    }

    /// A coalition's number in the request.
    pub(super) fn number(&self, coalition: Coalition) -> Option<usize> {
        self.numbers.get(&coalition).copied()
    }
}

impl Principal {
    /// What an owner says of the models that it was base_test to test itself: an answer for each, with its place among all models of
    /// the test, round by round.
    pub(super) fn own_answers<'a, T>(
        &mut self,
        client: usize,
        content: &'a [u8],
        read: impl Fn(&mut Reader<'a>) -> Result<T, CodecError>,
    ) -> Result<(u64, &mut TestState, OwnAnswers<T>), CodecError> {
        let mut r = Reader::new(content);
        let test = r.u64()?;
        let state = self.tests.get_mut(&test).ok_or(CodecError::Value { what: "test" })?;
        let base_test = state.owners_left.get(&client).ok_or(CodecError::Value { what: "test" })?;
        let (rounds, coalitions) = (state.request.rounds.len(), state.request.coalitions.len());
        let models =
            (0..rounds).flat_map(|round| base_test.iter().map(move |number| round * coalitions + number));
        let found = models.map(|model| Ok((model, read(&mut r)?))).collect::<Result<Vec<_>, CodecError>>()?;
        r.end()?;
        Ok((test, state, found))
    }

    /// Which of its own samples models predict right that the owner knows.
    pub(super) fn own_result(
        &mut self,
        session: &Session,
        client: usize,
        content: &[u8],
    ) -> Result<Result<Effects<Self>, Error>, CodecError> {
        let (test, state, found) = self.own_answers(client, content, Reader::samples)?;
        let (offset, own) = (session.offset(client), session.hellos[client].samples as usize);
        if found.iter().any(|(_, right)| right.total() != own) {
            return Err(CodecError::Value { what: "samples" });
        }
        state.owners_left.remove(&client);
        for (model, right) in found {
            let base_test = right.iter().filter(|k| state.request.samples.contains(offset + k));
            base_test.for_each(|k| state.right[model].insert(offset + k));
        }
        Ok(self.finish(test))
    }

    /// Which predictions are right (Algorithm 4, steps 13 and 14).
    pub(super) fn judge(
        &mut self,
        session: &Arc<Session>,
        context: &Arc<UnitContext>,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let id = context.id;
        let Some(state) = self.units.get_mut(&id).filter(|state| !state.judged) else { return Ok(effects) };
        let is_whole = context.owners(session).all(|owner| state.truths.contains_key(&owner));
        if !is_whole || state.predicted.is_none() {
            return Ok(effects);
        }
        let Some(verdict) = self.verdicts.remove(&id) else { return Ok(effects) };
        state.judged = true;
        let (predicted, truths) = (state.predicted.take(), std::mem::take(&mut state.truths));
        let opened = opened(session, context, &std::mem::take(&mut state.seeds));
        let (session, context) = (session.clone(), context.clone());
        effects.job(move |meter| {
            meter.enter(Phase::Share);
            let malformed = |why| Error::Malformed { from: PartyId::Auxiliary, kind: Kind::Verdict, why };
            let other = labels::received(context.label_bytes(&session), &verdict).map_err(malformed)?;
            let missing = || Error::Local { what: "labels to compare" };
            let mut differences = context.arranged(&session, &truths).ok_or_else(missing)?;
            labels::subtract(&mut differences, predicted.ok_or_else(missing)?.expose());
            labels::subtract(&mut differences, other.expose());
            let found = right(&session, &context, differences.expose());
            Ok(move |role: &mut Self| role.judged(&context, &found, opened))
        });
        Ok(effects)
    }

    /// Keeps what a unit found, unless others have taken it over, and lets the auxiliary count it too.
    fn judged(
        &mut self,
        context: &UnitContext,
        found: &[SampleSet],
        opened: Vec<u8>,
    ) -> Result<Effects<Self>, Error> {
        let id = context.id;
        if self.units.remove(&id).is_none() {
            return Ok(Effects::default());
        }
        self.secret.forget_unit(id);
        let Some(test) = self.tests.get_mut(&base_test(id.test)) else { return Ok(Effects::default()) };
        let mut effects = Effects::default();
        effects.outbox.push(Outgoing::new(PartyId::Auxiliary, Kind::Opened, opened));
        let coalitions = test.request.coalitions.len();
        for (of_round, found) in found.chunks(context.plan.coalitions.len().max(1)).enumerate() {
            for (&coalition, right) in context.plan.coalitions.iter().zip(found) {
                let number = test.number(coalition).ok_or(Error::Local { what: "a coalition of a test" })?;
                test.right[of_round * coalitions + number].union_with(right);
                test.units_left.remove(&(id.group, number));
            }
        }
        effects.and(self.finish(base_test(id.test))?);
        Ok(effects)
    }

    /// Ends a test that has everything.
    pub(super) fn finish(&mut self, test: u64) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let ended =
            self.tests.get(&test).is_some_and(|t| t.units_left.is_empty() && t.owners_left.is_empty());
        if let Some(mut state) = ended.then(|| self.tests.remove(&test)).flatten() {
            let found = if self.is_hesv() {
                state.counted.iter().map(|&correct| TestResult { correct, right: None }).collect()
            } else {
                std::mem::take(&mut state.right).into_iter().map(TestResult::from).collect()
            };
            self.results.push((test, found));
            for number in self.numbers(test, &state.request) {
                self.finished.push(Scope::Test(number));
                self.store.forget_test(number);
                self.hesv.forget_test(number);
                let mut w = Writer::default();
                w.u8(0).u64(number);
                let content = w.finish();
                effects.outbox.extend(self.auxiliary().map(|to| Outgoing::new(to, Kind::Done, content)));
            }
            effects.and(self.pump()?);
        }
        Ok(effects)
    }
}

/// The seeds of the principal's shares of a unit's labels, as they are opened to the auxiliary.
fn opened(session: &Session, context: &UnitContext, seeds: &BTreeMap<Labelled, Seed>) -> Vec<u8> {
    let seeds = labelled(session, context).into_iter().filter_map(|of| seeds.get(&of));
    Place::new(context.id, 0).encode(&seeds.flat_map(|seed| *seed.expose()).collect::<Vec<u8>>())
}

/// For each round and coalition of a unit, the samples whose labels do not differ.
fn right(session: &Session, context: &UnitContext, differences: &[u8]) -> Vec<SampleSet> {
    let field = session.label_field();
    let mut rest = differences;
    let of_coalition = |number: usize| {
        let mut right = SampleSet::none(session.samples());
        for (owner, first, places) in context.segments(session, number) {
            let (segment, later) = rest.split_at(field.packed_len(places.len()));
            rest = later;
            let (offset, is_right) = (session.offset(owner), field.zeros(segment, places.len()));
            if places.last().is_some_and(|last| last - places[0] == places.len() - 1) {
                right.insert_bits(offset + places[0] - first, is_right);
            } else {
                for (places, is_right) in places.chunks(64).zip(is_right) {
                    let found = places.iter().enumerate().filter(|(k, _)| is_right >> k & 1 == 1);
                    found.for_each(|(_, place)| right.insert(offset + place - first));
                }
            }
        }
        right
    };
    let models = context.rounds.iter().flat_map(|_| 0..context.plan.coalitions.len());
    models.map(of_coalition).collect()
}
