//! What the first bytes of a message say it is about: the one list of which kinds name what.

use secsv_federation::RoundId;

use super::{FirstLayerBatchId, Kind, StepAddress};
use crate::{
    codec::Reader,
    error::CodecError,
    test_id::{RequestId, TestId},
};

/// What the first bytes of a message name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// Nothing: it is about the whole session.
    Session,
    /// The client that it is for.
    Client(usize),
    /// A chunk of the owner's samples.
    Chunk(usize),
    /// A round.
    Round(RoundId),
    /// A chunk of a first-layer batch in a round.
    FirstLayer { round: RoundId, batch: FirstLayerBatchId, chunk: usize },
    /// An owner's samples in a round.
    Owner { round: RoundId, owner: usize },
    /// A test that was asked for.
    Request(RequestId),
    /// A stage of a test on an owner's samples.
    Opening { request: RequestId, owner: usize, stage: usize },
    /// An attempt at a test.
    Test(TestId),
    /// An attempt at a test, and the round of it.
    Plan { test: TestId, round: RoundId },
    /// A step of a unit.
    Step(StepAddress),
}

impl Head {
    /// The head of a message, and the bytes that it takes.
    pub(crate) fn of(kind: Kind, content: &[u8]) -> Result<(Self, &[u8]), CodecError> {
        let mut r = Reader::new(content);
        let head = Self::read(kind, &mut r)?;
        Ok((head, &content[..content.len() - r.rest().len()]))
    }

    fn read(kind: Kind, r: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(match kind {
            Kind::ClientHello
            | Kind::Session
            | Kind::ServerKeys
            | Kind::EvaluationKeys
            | Kind::MaskSeed
            | Kind::ModelMaskSeed
            | Kind::PublicKey
            | Kind::PublicKeyDigest
            | Kind::CommonSeed
            | Kind::DataShare
            | Kind::Values => Self::Session,
            Kind::SealedClientKeys => Self::Client(r.u16()?),
            Kind::EncryptedData => Self::Chunk(r.index()?),
            Kind::RoundStart
            | Kind::Model
            | Kind::ModelShare
            | Kind::MaskedModel
            | Kind::DealtProduct
            | Kind::RoundFinished => Self::Round(RoundId(r.u32()?)),
            Kind::FirstLayerHalf => Self::FirstLayer {
                round: RoundId(r.u32()?),
                batch: FirstLayerBatchId::read(r)?,
                chunk: r.index()?,
            },
            Kind::MaskedFirstLayer => Self::Owner { round: RoundId(r.u32()?), owner: r.u16()? },
            Kind::Test => Self::Plan { test: TestId::read(r)?, round: RoundId(r.u32()?) },
            Kind::OwnTest
            | Kind::OwnResult
            | Kind::OwnResultCounts
            | Kind::OwnCount
            | Kind::BlindTest
            | Kind::Dealing
            | Kind::OutcomeShare => Self::Request(RequestId::read(r)?),
            Kind::MaskedOpening => {
                Self::Opening { request: RequestId::read(r)?, owner: r.u16()?, stage: r.u16()? }
            }
            Kind::TestFinished => Self::Test(TestId::read(r)?),
            Kind::LayerHalf
            | Kind::Reply
            | Kind::ActivationShare
            | Kind::EncryptedActivations
            | Kind::LabelShare
            | Kind::EncryptedLabels
            | Kind::PredictionShare
            | Kind::EncryptedPredictions
            | Kind::DifferenceShare
            | Kind::OpenedSeeds
            | Kind::Triple
            | Kind::MaskedFactors
            | Kind::MaskedLayer
            | Kind::OutputShare
            | Kind::BlindedDifferences
            | Kind::Count => Self::Step(StepAddress::read(r)?),
        })
    }

    /// The address, where a message is about a step of a unit.
    pub(crate) fn step(kind: Kind, content: &[u8]) -> Option<StepAddress> {
        match Self::of(kind, content) {
            Ok((Self::Step(address), _)) => Some(address),
            _ => None,
        }
    }
}
