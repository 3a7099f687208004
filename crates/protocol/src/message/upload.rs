//! What clients send once a session or once a round: samples and models.

use secsv_federation::RoundId;

use super::{Kind, Message, Parts, Server, ShareBody};
use crate::{
    codec::{Reader, Writer},
    error::CodecError,
};

/// Client to a server: its share of the client's samples.
#[derive(Clone)]
pub(crate) struct DataShare<'a> {
    pub share: ShareBody<'a>,
}

impl<'a> Message<'a> for DataShare<'a> {
    const KIND: Kind = Kind::DataShare;
    type Context = Server;

    fn write(&self, w: &mut Writer) {
        self.share.write(w);
    }

    fn read(r: &mut Reader<'a>, to: &Server) -> Result<Self, CodecError> {
        Ok(Self { share: ShareBody::read(r, *to)? })
    }

    fn room(&self) -> usize {
        self.share.room()
    }
}

/// Owner to the server of HESV: a chunk of its samples, encrypted batch by batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EncryptedData<'a> {
    /// The number of the chunk in the session.
    pub chunk: usize,
    pub batches: Parts<'a>,
}

impl EncryptedData<'_> {
    /// Bytes before the batches.
    pub(crate) const HEAD: usize = size_of::<u32>();
}

impl<'a> Message<'a> for EncryptedData<'a> {
    const KIND: Kind = Kind::EncryptedData;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        self.batches.write(w.index(self.chunk));
    }

    fn read(r: &mut Reader<'a>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { chunk: r.index()?, batches: Parts::read(r)? })
    }

    fn room(&self) -> usize {
        Self::HEAD + self.batches.room()
    }
}

/// Client to the servers: its model of a round, encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Model<'a> {
    /// The round, or the first of its round batch.
    pub round: RoundId,
    /// Weights and biases, operator by operator.
    pub layers: Parts<'a>,
}

impl Model<'_> {
    /// Bytes of a model with parts of these lengths.
    pub(crate) fn length(parts: impl Iterator<Item = usize>) -> usize {
        size_of::<u32>() + Parts::length(parts)
    }
}

impl<'a> Message<'a> for Model<'a> {
    const KIND: Kind = Kind::Model;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        self.layers.write(w.u32(self.round.0));
    }

    fn read(r: &mut Reader<'a>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { round: RoundId(r.u32()?), layers: Parts::read(r)? })
    }

    fn room(&self) -> usize {
        size_of::<u32>() + self.layers.room()
    }
}

/// A [`Model`] in the making, whose parts are written where they will stand: a copy of all of it would be new memory.
pub(crate) struct ModelBuilder {
    content: Writer,
}

impl ModelBuilder {
    /// A model whose parts will have these lengths.
    pub(crate) fn new(round: RoundId, parts: &[usize]) -> Self {
        let mut content = Writer::with_room(Model::length(parts.iter().copied()));
        content.u32(round.0).u64(parts.len() as u64);
        Self { content }
    }

    /// Has the next part, of this length, written behind the others.
    pub(crate) fn append<E>(
        &mut self,
        length: usize,
        write: impl FnOnce(Vec<u8>) -> Result<Vec<u8>, E>,
    ) -> Result<(), E> {
        self.content.u64(length as u64);
        self.content = Writer::from(write(std::mem::take(&mut self.content).finish())?);
        Ok(())
    }

    /// Adds the next part.
    pub(crate) fn add(&mut self, part: &[u8]) {
        self.content.counted(part);
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.content.finish()
    }
}

/// Client to a server (SecretSV): its share of the client's model of a round.
#[derive(Clone)]
pub(crate) struct ModelShare<'a> {
    pub round: RoundId,
    pub share: ShareBody<'a>,
}

impl ModelShare<'_> {
    /// Bytes before the share.
    pub(crate) const HEAD: usize = size_of::<u32>();
}

impl<'a> Message<'a> for ModelShare<'a> {
    const KIND: Kind = Kind::ModelShare;
    type Context = Server;

    fn write(&self, w: &mut Writer) {
        self.share.write(w.u32(self.round.0));
    }

    fn read(r: &mut Reader<'a>, to: &Server) -> Result<Self, CodecError> {
        Ok(Self { round: RoundId(r.u32()?), share: ShareBody::read(r, *to)? })
    }

    fn room(&self) -> usize {
        Self::HEAD + self.share.room()
    }
}

/// Owner to auxiliary (SecretSV): its share of a round's first-layer masks times the owner's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DealtProduct<'a> {
    pub round: RoundId,
    /// Packed.
    pub elements: &'a [u8],
}

impl DealtProduct<'_> {
    /// Bytes before the elements.
    pub(crate) const HEAD: usize = size_of::<u32>();
}

impl<'a> Message<'a> for DealtProduct<'a> {
    const KIND: Kind = Kind::DealtProduct;
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
