//! Messages of BlindSV: masked models, tests, what owners deal, what servers open.

use secsv_algebra::Seed;
use secsv_federation::{Coalition, RoundId, SampleSet};

use super::{Kind, Message};
use crate::{
    codec::{Reader, Writer},
    error::CodecError,
    test_id::RequestId,
};

/// Leader to a server: the seed of its masks of models.
#[derive(Clone)]
pub(crate) struct ModelMaskSeed {
    pub seed: Seed,
}

impl Message<'_> for ModelMaskSeed {
    const KIND: Kind = Kind::ModelMaskSeed;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        w.seed(&self.seed);
    }

    fn read(r: &mut Reader<'_>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { seed: r.seed()? })
    }
}

/// Client to the servers: its model of a round, under both servers' masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaskedModel<'a> {
    pub round: RoundId,
    /// Weights and biases of the layer, as words.
    pub elements: &'a [u8],
}

impl MaskedModel<'_> {
    /// Bytes before the elements.
    pub(crate) const HEAD: usize = size_of::<u32>();
}

impl<'a> Message<'a> for MaskedModel<'a> {
    const KIND: Kind = Kind::MaskedModel;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        w.u32(self.round.0).raw(self.elements);
    }

    fn read(r: &mut Reader<'a>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { round: RoundId(r.u32()?), elements: r.rest() })
    }

    fn room(&self) -> usize {
        Self::HEAD + self.elements.len()
    }
}

/// Principal to the auxiliary and to owners: coalitions whose models of a round are tested on everybody's samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlindTest {
    pub request: RequestId,
    pub round: RoundId,
    pub coalitions: Vec<Coalition>,
    /// Samples that are not skipped, where some are.
    pub samples: Option<SampleSet>,
}

impl Message<'_> for BlindTest {
    const KIND: Kind = Kind::BlindTest;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        self.request.write(w).u32(self.round.0).coalitions(&self.coalitions);
        w.u8(self.samples.is_some().into());
        self.samples.iter().for_each(|samples| {
            w.samples(samples);
        });
    }

    fn read(r: &mut Reader<'_>, (): &()) -> Result<Self, CodecError> {
        let (request, round, coalitions) = (RequestId::read(r)?, RoundId(r.u32()?), r.coalitions()?);
        let samples = match r.u8()? {
            0 => None,
            1 => Some(r.samples()?),
            _ => return Err(CodecError::Value { what: "samples" }),
        };
        Ok(Self { request, round, coalitions, samples })
    }
}

/// Owner to auxiliary: its share of everything that the owner deals for a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dealing<'a> {
    pub request: RequestId,
    /// Coalition by coalition, those that the owner does not know; then its own counts of those that it knows.
    pub dealt: &'a [u8],
}

impl Dealing<'_> {
    /// Bytes before what is dealt.
    pub(crate) const HEAD: usize = size_of::<u64>();

    /// The content up to what is dealt, with room for so many bytes of it.
    pub(crate) fn begin(request: RequestId, room: usize) -> Vec<u8> {
        let mut w = Writer::with_room(Self::HEAD + room);
        request.write(&mut w);
        w.finish()
    }
}

impl<'a> Message<'a> for Dealing<'a> {
    const KIND: Kind = Kind::Dealing;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        self.request.write(w).raw(self.dealt);
    }

    fn read(r: &mut Reader<'a>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { request: RequestId::read(r)?, dealt: r.rest() })
    }

    fn room(&self) -> usize {
        Self::HEAD + self.dealt.len()
    }
}

/// Server to server: its share of what is opened at a stage, under its mask, coalition by coalition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaskedOpening<'a> {
    pub request: RequestId,
    /// Whose samples.
    pub owner: usize,
    pub stage: usize,
    pub masked: &'a [u8],
}

impl MaskedOpening<'_> {
    /// Bytes before what is masked.
    pub(crate) const HEAD: usize = size_of::<u64>() + 2 * size_of::<u16>();
}

impl<'a> Message<'a> for MaskedOpening<'a> {
    const KIND: Kind = Kind::MaskedOpening;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        self.request.write(w).u16(self.owner).u16(self.stage).raw(self.masked);
    }

    fn read(r: &mut Reader<'a>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { request: RequestId::read(r)?, owner: r.u16()?, stage: r.u16()?, masked: r.rest() })
    }

    fn room(&self) -> usize {
        Self::HEAD + self.masked.len()
    }
}

/// Auxiliary to principal: its shares of how many predictions are right, over all owners, one for each coalition of a test. Where
/// samples are skipped: of which are right, owner by owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutcomeShare<'a> {
    pub request: RequestId,
    pub found: &'a [u8],
}

impl OutcomeShare<'_> {
    /// Bytes before the shares.
    pub(crate) const HEAD: usize = size_of::<u64>();
}

impl<'a> Message<'a> for OutcomeShare<'a> {
    const KIND: Kind = Kind::OutcomeShare;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        self.request.write(w).raw(self.found);
    }

    fn read(r: &mut Reader<'a>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { request: RequestId::read(r)?, found: r.rest() })
    }
}
