//! The messages: a type for each kind, with its encoding. Ciphertexts and packed elements stay bytes here, borrowed from
//! the content: whoever computes with them decodes them, off the state machine.

mod address;
mod agreement;
mod blind;
mod body;
mod head;
mod keys;
mod labels;
mod layer;
mod result;
mod test;
mod upload;

pub(crate) use address::{FirstLayerBatchId, MAX_TOGETHER, StepAddress};
pub use address::{UnitId, UnitPart};
pub use agreement::ClientHello;
pub(crate) use agreement::{ProposalShape, RoundStart, SessionProposal};
pub(crate) use blind::{BlindTest, Dealing, MaskedModel, MaskedOpening, ModelMaskSeed, OutcomeShare};
pub(crate) use body::{LabelBody, Parts, Server, ShareBody};
pub(crate) use head::Head;
pub(crate) use keys::{
    CommonSeed, EvaluationKeys, MaskSeed, PublicKeyDigest, SealedClientKeys, ServerKeys, ServerPublicKey,
};
pub(crate) use labels::{
    BlindedDifferences, COMMITMENT, DifferenceShare, EncryptedLabels, EncryptedPredictions, LabelShare,
    OpenedSeeds, PredictionShare,
};
pub(crate) use layer::{
    ActivationShare, EncryptedActivations, FirstLayerHalf, LayerHalf, MaskedFactors, MaskedFirstLayer,
    MaskedLayer, OutputReply, OutputShare, TripleShare,
};
pub(crate) use result::{Count, OwnCount, OwnResult, OwnResultCounts, PublishedResult};
pub use result::{Counted, Recount};
pub use test::{GruDecryptors, TestPlan, UnitPlan};
pub(crate) use test::{OwnTest, RoundFinished, TestFinished};
pub(crate) use upload::{DataShare, DealtProduct, EncryptedData, Model, ModelBuilder, ModelShare};

pub use crate::kind::Kind;
use crate::{
    codec::{Reader, Writer},
    error::CodecError,
};

/// A message of one kind.
pub(crate) trait Message<'a>: Sized {
    /// Its kind.
    const KIND: Kind;

    /// What a reader has to know beforehand.
    type Context: ?Sized;

    /// Writes the content.
    fn write(&self, w: &mut Writer);

    /// Reads the content from the beginning of some bytes.
    fn read(r: &mut Reader<'a>, context: &Self::Context) -> Result<Self, CodecError>;

    /// About how many bytes the content has, so that memory for it is taken once.
    fn room(&self) -> usize {
        64
    }

    /// The content as bytes.
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_room(self.room());
        self.write(&mut w);
        w.finish()
    }

    /// The content from bytes, all of them.
    fn decode(bytes: &'a [u8], context: &Self::Context) -> Result<Self, CodecError> {
        let mut r = Reader::new(bytes);
        let message = Self::read(&mut r, context)?;
        r.end().map(|()| message)
    }
}

/// How many ciphertexts a message has somebody decrypt.
pub fn replies_in(kind: Kind, content: &[u8]) -> u64 {
    let replies = match kind {
        Kind::Reply => OutputReply::decode(content, &()).map(|reply| reply.replies.len()),
        Kind::BlindedDifferences => BlindedDifferences::decode(content, &()).map(|reply| reply.replies.len()),
        _ => return 0,
    };
    replies.map_or(0, |replies| replies as u64)
}
