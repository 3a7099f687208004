//! What is asked of a test, what it has found so far, and when it has found everything.

use std::collections::{BTreeMap, BTreeSet};

use secsv_federation::{Coalition, RoundId, SampleSet};

use super::{Principal, asked};
use crate::{
    Error, PartyId,
    codec::{Reader, Writer},
    error::CodecError,
    labels,
    message::Kind,
    role::{Effects, Outgoing},
    scope::Scope,
    server::UnitContext,
    session::Session,
};

/// A test that somebody wants.
#[derive(Clone, Debug, PartialEq)]
pub struct TestRequest {
    /// The round.
    pub round: RoundId,
    /// Whose aggregates: one, or several where [`tests_together`](crate::session::Federation::tests_together). The empty coalition stands for the model
    /// before the first round.
    pub coalitions: Vec<Coalition>,
    /// Which samples of the collective test set.
    pub samples: SampleSet,
    /// All that this test and others of the round, of coalitions not smaller, may need.
    pub among: SampleSet,
    /// Whether all coalitions of the round are asked for, in this request or in others.
    pub of_all: bool,
}

impl TestRequest {
    /// A test for which nothing is gathered.
    pub fn new(round: RoundId, coalition: Coalition, samples: SampleSet) -> Self {
        let among = SampleSet::all(samples.total());
        Self { round, coalitions: vec![coalition], samples, among, of_all: false }
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

pub(super) struct TestState {
    pub(super) request: TestRequest,
    /// For each coalition, the samples that it predicts right ...
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
        let coalitions = request.coalitions.len();
        Self {
            right: vec![SampleSet::none(request.samples.total()); coalitions],
            counted: vec![0; coalitions],
            units_left: BTreeSet::new(),
            owners_left: BTreeMap::new(),
            request,
        }
    }

    /// A coalition's number in the request.
    pub(super) fn number(&self, coalition: Coalition) -> Option<usize> {
        self.request.coalitions.iter().position(|other| *other == coalition)
    }
}

impl Principal {
    /// What an owner says of the models that it was asked to test itself, one answer for each.
    pub(super) fn own_answers<'a, T>(
        &mut self,
        client: usize,
        content: &'a [u8],
        read: impl Fn(&mut Reader<'a>) -> Result<T, CodecError>,
    ) -> Result<(u64, &mut TestState, Vec<T>), CodecError> {
        let mut r = Reader::new(content);
        let test = r.u64()?;
        let state = self.tests.get_mut(&test).ok_or(CodecError::Value { what: "test" })?;
        let asked = state.owners_left.get(&client).ok_or(CodecError::Value { what: "test" })?;
        let found = asked.iter().map(|_| read(&mut r)).collect::<Result<Vec<_>, _>>()?;
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
        if found.iter().any(|right| right.total() != own) {
            return Err(CodecError::Value { what: "samples" });
        }
        for (number, right) in state.owners_left.remove(&client).into_iter().flatten().zip(found) {
            let asked = right.iter().filter(|k| state.request.samples.contains(offset + k));
            asked.for_each(|k| state.right[number].insert(offset + k));
        }
        Ok(self.finish(test))
    }

    /// Which predictions are right (Algorithm 4, steps 13 and 14).
    pub(super) fn judge(&mut self, session: &Session, context: &UnitContext) -> Result<Effects<Self>, Error> {
        let id = context.id;
        let Some(state) = self.units.get_mut(&id) else { return Ok(Effects::default()) };
        let (Some(predicted), true) = (&state.predicted, self.verdicts.contains_key(&id)) else {
            return Ok(Effects::default());
        };
        let Some(mut differences) = context.arranged(session, &state.truths) else {
            return Ok(Effects::default());
        };
        let verdict = self.verdicts.remove(&id).unwrap_or_default();
        let field = session.label_field();
        let from = PartyId::Auxiliary;
        let malformed = |why| Error::Malformed { from, kind: Kind::Verdict, why };
        let other = labels::received(context.label_bytes(session), &verdict).map_err(malformed)?;
        labels::subtract(&mut differences, predicted.expose());
        labels::subtract(&mut differences, other.expose());
        let mut rest = differences.expose().as_slice();
        let Some(test) = self.tests.get_mut(&asked(id.test)) else { return Ok(Effects::default()) };
        for (of_unit, &coalition) in context.plan.coalitions.iter().enumerate() {
            let number = test.number(coalition).ok_or(Error::Local { what: "a coalition of a test" })?;
            for (owner, first, places) in context.segments(session, of_unit) {
                let (segment, later) = rest.split_at(field.packed_len(places.len()));
                rest = later;
                let (right, offset) = (&mut test.right[number], session.offset(owner));
                let is_right = field.zeros(segment, places.len());
                if places.last().is_some_and(|last| last - places[0] == places.len() - 1) {
                    right.insert_bits(offset + places[0] - first, is_right);
                } else {
                    for (places, is_right) in places.chunks(64).zip(is_right) {
                        let found = places.iter().enumerate().filter(|(k, _)| is_right >> k & 1 == 1);
                        found.for_each(|(_, place)| right.insert(offset + place - first));
                    }
                }
            }
            test.units_left.remove(&(id.group, number));
        }
        self.units.remove(&id);
        self.secret.forget_unit(id);
        self.finish(asked(id.test))
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
                self.over.push(Scope::Test(number));
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
