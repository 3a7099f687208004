//! Layers: halves and shares of their inputs and outputs, on the way between servers and decryptors.

use secsv_algebra::Seed;
use secsv_federation::RoundId;

use super::{FirstLayerBatchId, Kind, Message, Parts, Server, ShareBody, StepAddress};
use crate::{
    codec::{Reader, Writer},
    error::CodecError,
};

/// A message about a step of a unit: its address, and one thing of a type that reads and writes itself.
macro_rules! step_message {
    ($(#[$doc:meta])* $name:ident = $kind:ident { $field:ident: Parts }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) struct $name<'a> {
            pub address: StepAddress,
            pub $field: Parts<'a>,
        }

        impl<'a> Message<'a> for $name<'a> {
            const KIND: Kind = Kind::$kind;
            type Context = ();

            fn write(&self, w: &mut Writer) {
                self.address.write(w);
                self.$field.write(w);
            }

            fn read(r: &mut Reader<'a>, (): &()) -> Result<Self, CodecError> {
                Ok(Self { address: StepAddress::read(r)?, $field: Parts::read(r)? })
            }

            fn room(&self) -> usize {
                StepAddress::LENGTH + self.$field.room()
            }
        }
    };
    ($(#[$doc:meta])* $name:ident = $kind:ident { $field:ident: bytes }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $name<'a> {
            pub address: StepAddress,
            pub $field: &'a [u8],
        }

        impl<'a> Message<'a> for $name<'a> {
            const KIND: Kind = Kind::$kind;
            type Context = ();

            fn write(&self, w: &mut Writer) {
                self.address.write(w);
                w.raw(self.$field);
            }

            fn read(r: &mut Reader<'a>, (): &()) -> Result<Self, CodecError> {
                Ok(Self { address: StepAddress::read(r)?, $field: r.rest() })
            }

            fn room(&self) -> usize {
                StepAddress::LENGTH + self.$field.len()
            }
        }
    };
    ($(#[$doc:meta])* $name:ident = $kind:ident { $field:ident: $body:ident to a server }) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub(crate) struct $name<'a> {
            pub address: StepAddress,
            pub $field: $body<'a>,
        }

        impl<'a> Message<'a> for $name<'a> {
            const KIND: Kind = Kind::$kind;
            type Context = Server;

            fn write(&self, w: &mut Writer) {
                self.address.write(w);
                self.$field.write(w);
            }

            fn read(r: &mut Reader<'a>, to: &Server) -> Result<Self, CodecError> {
                Ok(Self { address: StepAddress::read(r)?, $field: $body::read(r, *to)? })
            }

            fn room(&self) -> usize {
                StepAddress::LENGTH + self.$field.room()
            }
        }
    };
}
pub(super) use step_message;

/// Auxiliary to principal: its halves of first-layer outputs of all models of a round on a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FirstLayerHalf<'a> {
    pub round: RoundId,
    pub batch: FirstLayerBatchId,
    pub chunk: usize,
    /// Model by model.
    pub ciphertexts: Parts<'a>,
}

impl FirstLayerHalf<'_> {
    /// Bytes before the outputs.
    pub(crate) fn head(batch: FirstLayerBatchId) -> usize {
        size_of::<u32>() + batch.length() + size_of::<u32>()
    }
}

impl<'a> Message<'a> for FirstLayerHalf<'a> {
    const KIND: Kind = Kind::FirstLayerHalf;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        self.batch.write(w.u32(self.round.0));
        self.ciphertexts.write(w.index(self.chunk));
    }

    fn read(r: &mut Reader<'a>, (): &()) -> Result<Self, CodecError> {
        let (round, batch) = (RoundId(r.u32()?), FirstLayerBatchId::read(r)?);
        Ok(Self { round, batch, chunk: r.index()?, ciphertexts: Parts::read(r)? })
    }

    fn room(&self) -> usize {
        Self::head(self.batch) + self.ciphertexts.room()
    }
}

step_message! {
    /// Auxiliary to principal: its halves of a later layer's outputs.
    LayerHalf = LayerHalf { ciphertexts: Parts }
}
step_message! {
    /// Principal to a decryptor: outputs, sanitised.
    OutputReply = Reply { replies: Parts }
}
step_message! {
    /// Decryptor to a server: its share of what the decryptor made of outputs. Under SecretSV the auxiliary's share of the
    /// product that the decryptor deals for stands behind its elements.
    ActivationShare = ActivationShare { share: ShareBody to a server }
}
step_message! {
    /// Decryptor to the server of HESV: what it made of outputs, encrypted again: batches for the next operator, then
    /// vectors in slots.
    EncryptedActivations = EncryptedActivations { parts: Parts }
}
step_message! {
    /// Server to server: its share of the masked factors of a gated sum, packed.
    MaskedFactors = MaskedFactors { elements: bytes }
}
step_message! {
    /// Server to server (SecretSV): its share of a coalition's later layer, masked; the item is the operator.
    MaskedLayer = MaskedLayer { elements: bytes }
}
step_message! {
    /// Server to a client: its share of outputs or of a gated sum, packed.
    OutputShare = OutputShare { elements: bytes }
}

/// Server to server (SecretSV): its share of a round's first layers, masked for one owner's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaskedFirstLayer<'a> {
    pub round: RoundId,
    pub owner: usize,
    /// Packed.
    pub elements: &'a [u8],
}

impl MaskedFirstLayer<'_> {
    /// Bytes before the elements.
    pub(crate) const HEAD: usize = size_of::<u32>() + size_of::<u16>();
}

impl<'a> Message<'a> for MaskedFirstLayer<'a> {
    const KIND: Kind = Kind::MaskedFirstLayer;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        w.u32(self.round.0).u16(self.owner).raw(self.elements);
    }

    fn read(r: &mut Reader<'a>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { round: RoundId(r.u32()?), owner: r.u16()?, elements: r.rest() })
    }

    fn room(&self) -> usize {
        Self::HEAD + self.elements.len()
    }
}

/// Dealer to a server: its share of a multiplication triple: the stream of a seed, but for the auxiliary's product.
#[derive(Clone)]
pub(crate) struct TripleShare<'a> {
    pub address: StepAddress,
    pub seed: Seed,
    /// The auxiliary's share of the product, packed; the principal's is of the seed too.
    pub product: Option<&'a [u8]>,
}

impl<'a> Message<'a> for TripleShare<'a> {
    const KIND: Kind = Kind::Triple;
    type Context = Server;

    fn write(&self, w: &mut Writer) {
        self.address.write(w);
        w.seed(&self.seed).raw(self.product.unwrap_or_default());
    }

    fn read(r: &mut Reader<'a>, to: &Server) -> Result<Self, CodecError> {
        let (address, seed) = (StepAddress::read(r)?, r.seed()?);
        Ok(Self { address, seed, product: (*to == Server::Auxiliary).then(|| r.rest()) })
    }

    fn room(&self) -> usize {
        StepAddress::LENGTH + size_of::<[u8; 32]>() + self.product.map_or(0, <[u8]>::len)
    }
}
