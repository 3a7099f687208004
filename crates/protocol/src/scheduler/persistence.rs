//! What a principal must remember beyond its process: the numbers of tests and who was assigned to what, because what
//! was sent binds.

use std::collections::btree_map::Entry;

use secsv_federation::{Coalition, RoundId};

use super::{
    ClassCount, Engine, Scheduler, TestRequest, TestResult,
    attempts::{Roles, plan_of},
};
use crate::{
    Error,
    codec::{Reader, Writer},
    decryptors::Unit,
    error::CodecError,
    message::UnitPlan,
};

/// One call of the planner. The same calls in the same order give the same roles again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// What was assigned.
    pub unit: Unit,
    /// Who was away.
    pub away: Coalition,
    /// For those who were replaced: how many stages had been sent.
    pub sent: Option<usize>,
}

impl Assignment {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        let Unit { round, participants, group, coalition } = self.unit;
        w.u32(round.0).u128(participants.bits()).u16(group).u128(coalition.bits()).u128(self.away.bits());
        w.u8(self.sent.is_some().into()).u64(self.sent.unwrap_or_default() as u64);
        w.finish()
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut r = Reader::new(bytes);
        let (round, participants) = (RoundId(r.u32()?), Coalition::from_bits(r.u128()?));
        let (group, coalition) = (r.u16()?, Coalition::from_bits(r.u128()?));
        let away = Coalition::from_bits(r.u128()?);
        let (replaced, sent) = (r.u8()? == 1, r.u64()? as usize);
        r.end()?;
        let unit = Unit { round, participants, group, coalition };
        Ok(Self { unit, away, sent: replaced.then_some(sent) })
    }
}

impl TestRequest {
    /// As bytes: requests are the same if these are.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(self.round.0).rounds(&self.rounds).coalitions(&self.coalitions);
        w.samples(&self.samples).samples(&self.candidate_samples);
        w.finish()
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut r = Reader::new(bytes);
        let (round, rounds, coalitions) = (RoundId(r.u32()?), r.rounds()?, r.coalitions()?);
        let (samples, candidate_samples) = (r.samples()?, r.samples()?);
        r.end().map(|()| Self { round, rounds, coalitions, samples, candidate_samples })
    }
}

impl TestResult {
    /// What a test found for each round and coalition, as bytes.
    pub fn encode(found: &[Self]) -> Vec<u8> {
        let mut w = Writer::default();
        w.u64(found.len() as u64);
        for Self { correct, right, of_classes, overflows } in found {
            let told = [right.is_some(), overflows.is_some(), !of_classes.is_empty()];
            let told = told.iter().zip([1, 2, 4]).filter(|(is_told, _)| **is_told).map(|(_, bit)| bit).sum();
            w.u64(*correct as u64).u8(told);
            right.iter().for_each(|right| {
                w.samples(right);
            });
            overflows.iter().for_each(|count| {
                w.u64(*count);
            });
            if !of_classes.is_empty() {
                w.u64(of_classes.len() as u64);
            }
            for ClassCount { right, samples } in of_classes {
                w.u64(*right as u64).u64(*samples as u64);
            }
        }
        w.finish()
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Vec<Self>, CodecError> {
        let mut r = Reader::new(bytes);
        let mut found = Vec::new();
        for _ in 0..r.count("results", 9)? {
            let (correct, told) = (r.u64()? as usize, r.u8()?);
            if told > 7 {
                return Err(CodecError::Value { what: "what is told" });
            }
            let right = if told & 1 == 1 { Some(r.samples()?) } else { None };
            let overflows = if told & 2 == 2 { Some(r.u64()?) } else { None };
            let mut of_classes = Vec::new();
            for _ in 0..if told & 4 == 4 { r.count("classes", 16)? } else { 0 } {
                of_classes.push(ClassCount { right: r.u64()? as usize, samples: r.u64()? as usize });
            }
            found.push(Self { correct, right, of_classes, overflows });
        }
        r.end().map(|()| found)
    }
}

impl<E: Engine> Scheduler<E> {
    /// Assigns again what an earlier process assigned, and stored.
    pub(crate) fn repeat(&mut self, earlier: Vec<Assignment>) -> Result<(), Error> {
        for assignment in earlier {
            self.assign(assignment)?;
        }
        self.assigned.clear();
        Ok(())
    }

    /// Has the planner assign or replace, and remembers that. Returns who does what from now on.
    pub(crate) fn assign(&mut self, assignment: Assignment) -> Result<UnitPlan, Error> {
        let Unit { round, coalition, group, .. } = assignment.unit;
        let plan = match (assignment.sent, self.roles.entry((round, coalition, group))) {
            (None, Entry::Vacant(vacant)) => {
                let roles = Roles::new(self.planner.assign(assignment.unit, assignment.away)?);
                let plan = plan_of(&roles.current);
                vacant.insert(roles);
                plan
            }
            (Some(sent), Entry::Occupied(mut roles)) if roles.get().tried() < u16::MAX => {
                let plan = roles.get_mut().replace(&mut self.planner, sent, assignment.away)?;
                self.replaced.insert((round, group));
                plan
            }
            _ => return Err(Error::Local { what: "a unit assigned once and replaced below 2^16 times" }),
        };
        self.assigned.push(assignment);
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use secsv_algebra::Seed;
    use secsv_federation::SampleSet;

    use super::*;
    use crate::{
        PartyId, Principal, Scope,
        decryptors::Protocol,
        message::Kind,
        role::Role as _,
        session::{Matmul, tests::federation},
    };

    /// A principal that was killed between a round's last result and its closing has forgotten that it was open.
    #[test]
    fn a_round_that_an_earlier_process_left_open_can_be_ended() {
        let federation = Arc::new(federation(Protocol::SecSv, Matmul::Packed));
        let mut principal = Principal::new(federation, None, Seed::from_bytes([3; 32]));
        assert!(principal.close_round(RoundId(1)).unwrap().outbox.is_empty(), "nothing is open");
        let told = principal.end_round(RoundId(1)).unwrap().outbox;
        let kinds: Vec<_> = told.iter().map(|message| (message.to, message.kind)).collect();
        assert_eq!(kinds, [(PartyId::Auxiliary, Kind::RoundFinished)]);
        assert_eq!(principal.drain_finished(), [Scope::Round(RoundId(1))]);
    }

    #[test]
    fn assignments_are_read_as_they_are_written() {
        let unit = Unit {
            round: RoundId(3),
            participants: Coalition::first(5),
            group: 2,
            coalition: Coalition::from_bits(0b1011),
        };
        for sent in [None, Some(0), Some(2)] {
            let assignment = Assignment { unit, away: Coalition::EMPTY.with(4), sent };
            assert_eq!(Assignment::decode(&assignment.encode()), Ok(assignment));
        }
        assert!(Assignment::decode(&[0; 5]).is_err());
        let mut samples = SampleSet::none(9);
        samples.insert(3);
        let (round, rounds) = (RoundId(1), vec![RoundId(1), RoundId(2), RoundId(4)]);
        let coalitions = vec![unit.coalition, Coalition::first(2)];
        let candidate_samples = SampleSet::all(9);
        let request = TestRequest { round, rounds, coalitions, samples: samples.clone(), candidate_samples };
        assert_eq!(TestRequest::decode(&request.encode()), Ok(request));
        let of_classes = [(3, 5), (1, 2)].map(|(right, samples)| ClassCount { right, samples }).to_vec();
        let by_class = TestResult::of_class_counts(of_classes);
        assert_eq!(by_class.correct, 4);
        let counted = TestResult { overflows: Some(7), ..TestResult::of_count(4) };
        let found = [TestResult::from(samples), counted, by_class];
        for found in [&found[..], &found[..1], &[]] {
            assert_eq!(TestResult::decode(&TestResult::encode(found)), Ok(found.to_vec()));
        }
    }
}
