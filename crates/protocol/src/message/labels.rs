//! Labels: shares of the true and the predicted ones, of their differences, and the seeds that these are opened by.

use secsv_algebra::Seed;

use super::{Kind, LabelBody, Message, Parts, Server, StepAddress, layer::step_message};
use crate::{
    codec::{Reader, Writer},
    error::CodecError,
};

/// Bytes of a commitment.
pub(crate) const COMMITMENT: usize = 32;

step_message! {
    /// Owner to a server: its share of the owner's blinded labels.
    LabelShare = LabelShare { share: LabelBody to a server }
}
step_message! {
    /// Last decryptor to a server: its share of the blinded predictions.
    PredictionShare = PredictionShare { share: LabelBody to a server }
}
step_message! {
    /// Owner to the server of HESV: its labels in slots, encrypted.
    EncryptedLabels = EncryptedLabels { slots: bytes }
}
step_message! {
    /// Last decryptor to the server of HESV: the predictions in slots, encrypted.
    EncryptedPredictions = EncryptedPredictions { slots: bytes }
}
step_message! {
    /// Auxiliary to principal: its share of the differences, packed.
    DifferenceShare = DifferenceShare { labels: bytes }
}
step_message! {
    /// Principal to the counting client (HESV): blinded differences in slots, sanitised.
    BlindedDifferences = BlindedDifferences { replies: Parts }
}

/// Principal to auxiliary: the seeds of its shares of a unit's labels, owner by owner and then the last decryptor's.
#[derive(Clone)]
pub(crate) struct OpenedSeeds {
    pub address: StepAddress,
    pub seeds: Vec<Seed>,
}

impl OpenedSeeds {
    /// Bytes of so many seeds, with the address before them.
    pub(crate) const fn length(seeds: usize) -> usize {
        StepAddress::LENGTH + size_of::<[u8; 32]>() * seeds
    }
}

impl Message<'_> for OpenedSeeds {
    const KIND: Kind = Kind::OpenedSeeds;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        self.address.write(w);
        self.seeds.iter().for_each(|seed| {
            w.seed(seed);
        });
    }

    fn read(r: &mut Reader<'_>, (): &()) -> Result<Self, CodecError> {
        let address = StepAddress::read(r)?;
        let mut seeds = Vec::new();
        while r.end().is_err() {
            seeds.push(r.seed()?);
        }
        Ok(Self { address, seeds })
    }

    fn room(&self) -> usize {
        Self::length(self.seeds.len())
    }
}
