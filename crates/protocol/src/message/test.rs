//! Tests: who does what in them, and when they and rounds have ended.

use secsv_federation::{Coalition, RoundId, SampleSet};

use super::{Kind, Message, UnitPart};
use crate::{
    codec::{Reader, Writer},
    error::CodecError,
    test_id::{RequestId, TestId},
};

/// Who does what in the test of one group, as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitPlan {
    /// The owner group.
    pub group: usize,
    /// Which of the group's units.
    pub part: UnitPart,
    /// Whose aggregates. Several only where a model has one layer.
    pub coalitions: Vec<Coalition>,
    /// Which samples of the group; of each owner only for coalitions whose models it does not know.
    pub samples: SampleSet,
    /// The samples whose first-layer outputs are computed together for this and other tests; without it all.
    pub gathered: Option<SampleSet>,
    /// Decryptors of the layers outside a recurrent unit.
    pub chain: Vec<usize>,
    /// Decryptors of the recurrent unit.
    pub gru: Option<GruDecryptors>,
    /// Who deals triples.
    pub dealer: Option<usize>,
    /// Who counts (HESV).
    pub counter: Option<usize>,
}

/// The decryptors of a recurrent unit, who may be the same client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GruDecryptors {
    /// Who sees the first gates and every state.
    pub resharer: usize,
    /// Who sees the gates of all later steps.
    pub gates: usize,
}

impl UnitPlan {
    /// Everybody with a part in it beside owners.
    pub(crate) fn assigned(&self) -> impl Iterator<Item = usize> + '_ {
        let gru = self.gru.into_iter().flat_map(|gru| [gru.resharer, gru.gates]);
        self.chain.iter().copied().chain(gru).chain(self.dealer).chain(self.counter)
    }

    /// Bytes it takes at least.
    const LEAST: usize = 2 + 2 + 8 + 8 + 1 + 8 + 1 + 1 + 1;

    fn write(&self, w: &mut Writer) {
        self.part.write(w.u16(self.group)).coalitions(&self.coalitions);
        w.samples(&self.samples).u8(self.gathered.is_some().into());
        if let Some(gathered) = &self.gathered {
            w.samples(gathered);
        }
        w.u64(self.chain.len() as u64);
        self.chain.iter().for_each(|&client| {
            w.u16(client);
        });
        w.u8(self.gru.is_some().into());
        if let Some(GruDecryptors { resharer, gates }) = self.gru {
            w.u16(resharer).u16(gates);
        }
        w.optional(self.dealer).optional(self.counter);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, CodecError> {
        let (group, part) = (r.u16()?, UnitPart::read(r)?);
        let (coalitions, samples) = (r.coalitions()?, r.samples()?);
        let gathered = r.flag("gathered samples")?.then(|| r.samples()).transpose()?;
        let chain = (0..r.count("decryptors", 2)?).map(|_| r.u16()).collect::<Result<_, _>>()?;
        let gru = r
            .flag("recurrent unit")?
            .then(|| r.u16().and_then(|resharer| Ok(GruDecryptors { resharer, gates: r.u16()? })))
            .transpose()?;
        let (dealer, counter) = (r.optional("dealer")?, r.optional("counting client")?);
        Ok(Self { group, part, coalitions, samples, gathered, chain, gru, dealer, counter })
    }
}

/// Principal to those concerned: a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestPlan {
    /// Which.
    pub test: TestId,
    /// The round, or the first of its round batch.
    pub round: RoundId,
    /// Its parts.
    pub units: Vec<UnitPlan>,
}

impl Message<'_> for TestPlan {
    const KIND: Kind = Kind::Test;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        self.test.write(w).u32(self.round.0).u64(self.units.len() as u64);
        self.units.iter().for_each(|unit| unit.write(w));
    }

    fn read(r: &mut Reader<'_>, (): &()) -> Result<Self, CodecError> {
        let (test, round) = (TestId::read(r)?, RoundId(r.u32()?));
        let count = r.count("units", UnitPlan::LEAST)?;
        let units = (0..count).map(|_| UnitPlan::read(r)).collect::<Result<_, _>>()?;
        Ok(Self { test, round, units })
    }
}

/// Principal to an owner: a test of models it knows, of each in all of these rounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnTest {
    pub request: RequestId,
    /// Of one round batch.
    pub rounds: Vec<RoundId>,
    /// Coalitions, each with the owner's samples that its models are tested on.
    pub models: Vec<(Coalition, SampleSet)>,
}

impl Message<'_> for OwnTest {
    const KIND: Kind = Kind::OwnTest;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        self.request.write(w).rounds(&self.rounds).u64(self.models.len() as u64);
        for (coalition, samples) in &self.models {
            w.u128(coalition.bits()).samples(samples);
        }
    }

    fn read(r: &mut Reader<'_>, (): &()) -> Result<Self, CodecError> {
        let (request, rounds) = (RequestId::read(r)?, r.rounds()?);
        let count = r.count("coalitions", size_of::<u128>() + size_of::<u64>())?;
        let model = |_| r.u128().and_then(|bits| Ok((Coalition::from_bits(bits), r.samples()?)));
        Ok(Self { request, rounds, models: (0..count).map(model).collect::<Result<_, _>>()? })
    }
}

/// Principal to auxiliary: a test has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TestFinished {
    pub test: TestId,
}

impl Message<'_> for TestFinished {
    const KIND: Kind = Kind::TestFinished;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        self.test.write(w);
    }

    fn read(r: &mut Reader<'_>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { test: TestId::read(r)? })
    }
}

/// Principal to auxiliary: a round has ended. It may be opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundFinished {
    pub round: RoundId,
}

impl Message<'_> for RoundFinished {
    const KIND: Kind = Kind::RoundFinished;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        w.u32(self.round.0);
    }

    fn read(r: &mut Reader<'_>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { round: RoundId(r.u32()?) })
    }
}
