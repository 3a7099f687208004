//! What tests find: which samples models predict right, how many, and the values in the end.

use std::collections::{BTreeMap, BTreeSet};

use secsv_federation::{Coalition, RoundId, SampleSet};

use super::{Kind, Message, StepAddress};
use crate::{
    codec::{Reader, Writer},
    error::CodecError,
    test_id::RequestId,
};

/// Owner to principal: which of its samples models predict right that it knows, round by round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnResult {
    pub request: RequestId,
    /// Of the owner's samples.
    pub right: Vec<SampleSet>,
}

impl Message<'_> for OwnResult {
    const KIND: Kind = Kind::OwnResult;
    /// Models that it was to test.
    type Context = usize;

    fn write(&self, w: &mut Writer) {
        self.request.write(w);
        self.right.iter().for_each(|right| {
            w.samples(right);
        });
    }

    fn read(r: &mut Reader<'_>, models: &usize) -> Result<Self, CodecError> {
        let request = RequestId::read(r)?;
        Ok(Self { request, right: (0..*models).map(|_| r.samples()).collect::<Result<_, _>>()? })
    }
}

/// Owner to the server of HESV: how many of its samples models predict right that it knows, round by round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnResultCounts {
    pub request: RequestId,
    pub right: Vec<u64>,
}

impl Message<'_> for OwnResultCounts {
    const KIND: Kind = Kind::OwnResultCounts;
    /// Models that it was to test.
    type Context = usize;

    fn write(&self, w: &mut Writer) {
        self.request.write(w);
        self.right.iter().for_each(|&right| {
            w.u64(right);
        });
    }

    fn read(r: &mut Reader<'_>, models: &usize) -> Result<Self, CodecError> {
        let request = RequestId::read(r)?;
        Ok(Self { request, right: (0..*models).map(|_| r.u64()).collect::<Result<_, _>>()? })
    }
}

/// How a coalition's model of a round did on some samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Samples that it was tested on.
    pub tested: usize,
    /// Those that it predicts right.
    pub right: usize,
}

/// What the auxiliary counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recount {
    /// By round and coalition.
    pub counts: BTreeMap<(RoundId, Coalition), Counted>,
    /// Clients whose commitments are not to what the principal opened: they or it do not tell the truth.
    pub disputed: BTreeSet<usize>,
}

impl Recount {
    pub(crate) fn add(&mut self, model: (RoundId, Coalition), found: Counted) {
        let sum = self.counts.entry(model).or_default();
        sum.tested += found.tested;
        sum.right += found.right;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other.counts.iter().for_each(|(&model, &found)| self.add(model, found));
        self.disputed.extend(&other.disputed);
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.disputed.is_empty()
    }

    /// As bytes, to be stored.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        self.write(&mut w);
        w.finish()
    }

    /// From bytes that were stored.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut r = Reader::new(bytes);
        let recount = Self::read(&mut r)?;
        r.end().map(|()| recount)
    }

    fn write(&self, w: &mut Writer) {
        w.u64(self.counts.len() as u64);
        for (&(round, coalition), found) in &self.counts {
            w.u32(round.0).u128(coalition.bits()).u64(found.tested as u64).u64(found.right as u64);
        }
        w.u64(self.disputed.len() as u64);
        self.disputed.iter().for_each(|&client| {
            w.u16(client);
        });
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, CodecError> {
        let mut recount = Self::default();
        for _ in 0..r.count("counts", 36)? {
            let model = (RoundId(r.u32()?), Coalition::from_bits(r.u128()?));
            let found = Counted { tested: r.u64()? as usize, right: r.u64()? as usize };
            let is_next = recount.counts.last_key_value().is_none_or(|(last, _)| *last < model);
            if found.right > found.tested || !is_next {
                return Err(CodecError::Value { what: "counts" });
            }
            recount.counts.insert(model, found);
        }
        for _ in 0..r.count("clients", 2)? {
            let client = r.u16()?;
            if recount.disputed.last().is_some_and(|last| *last >= client) {
                return Err(CodecError::Value { what: "clients" });
            }
            recount.disputed.insert(client);
        }
        Ok(recount)
    }
}

/// Owner to auxiliary: how many of its samples models predict right that it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnCount {
    pub request: RequestId,
    pub counted: Recount,
}

impl Message<'_> for OwnCount {
    const KIND: Kind = Kind::OwnCount;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        self.counted.write(self.request.write(w));
    }

    fn read(r: &mut Reader<'_>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { request: RequestId::read(r)?, counted: Recount::read(r)? })
    }
}

/// Counting client to principal (HESV): how many predictions of a unit are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub address: StepAddress,
    pub right: u64,
}

impl Count {
    /// Bytes it takes.
    pub(crate) const LENGTH: usize = StepAddress::LENGTH + size_of::<u64>();
}

impl Message<'_> for Count {
    const KIND: Kind = Kind::Count;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        self.address.write(w);
        w.u64(self.right);
    }

    fn read(r: &mut Reader<'_>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { address: StepAddress::read(r)?, right: r.u64()? })
    }
}

/// Principal to all: the values, and the utilities behind them, as whoever evaluates writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PublishedResult<'a> {
    pub values: &'a [u8],
}

impl<'a> Message<'a> for PublishedResult<'a> {
    const KIND: Kind = Kind::Values;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        w.raw(self.values);
    }

    fn read(r: &mut Reader<'a>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { values: r.rest() })
    }

    fn room(&self) -> usize {
        self.values.len()
    }
}
