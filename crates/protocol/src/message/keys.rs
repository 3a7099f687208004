//! Keys and seeds, before anything is shared.

use secsv_algebra::Seed;

use super::{Kind, Message};
use crate::{
    codec::{Reader, Writer},
    error::CodecError,
};

/// Bytes of an envelope: a public key, the seeds of the clients' key and of their blinding factors, and a tag.
pub(crate) const ENVELOPE: usize = 32 + 2 * 32 + 16;

/// Leader to the servers: the public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerKeys<'a> {
    pub public: &'a [u8],
}

impl<'a> Message<'a> for ServerKeys<'a> {
    const KIND: Kind = Kind::ServerKeys;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        w.raw(self.public);
    }

    fn read(r: &mut Reader<'a>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { public: r.rest() })
    }

    fn room(&self) -> usize {
        self.public.len()
    }
}

/// Leader to the server of HESV: the public key, and the one to multiply and rotate by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvaluationKeys<'a> {
    pub public: &'a [u8],
    pub evaluation: &'a [u8],
}

impl EvaluationKeys<'_> {
    /// Bytes of keys of these lengths.
    pub(crate) fn length(public: usize, evaluation: usize) -> usize {
        size_of::<u64>() + public + size_of::<u64>() + evaluation
    }
}

impl<'a> Message<'a> for EvaluationKeys<'a> {
    const KIND: Kind = Kind::EvaluationKeys;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        w.counted(self.public).counted(self.evaluation);
    }

    fn read(r: &mut Reader<'a>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { public: r.counted()?, evaluation: r.counted()? })
    }

    fn room(&self) -> usize {
        Self::length(self.public.len(), self.evaluation.len())
    }
}

/// Leader to a client through the principal, which relays it as it is: the clients' secrets, sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealedClientKeys<'a> {
    /// Who can open it.
    pub client: usize,
    pub envelope: &'a [u8; ENVELOPE],
}

impl SealedClientKeys<'_> {
    /// Bytes it takes.
    pub(crate) const LENGTH: usize = size_of::<u16>() + ENVELOPE;
}

impl<'a> Message<'a> for SealedClientKeys<'a> {
    const KIND: Kind = Kind::SealedClientKeys;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        w.u16(self.client).raw(self.envelope);
    }

    fn read(r: &mut Reader<'a>, (): &()) -> Result<Self, CodecError> {
        let client = r.u16()?;
        Ok(Self { client, envelope: r.raw(ENVELOPE)?.try_into().map_err(|_| CodecError::Truncated)? })
    }
}

/// Principal to clients: the public key that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerPublicKey<'a> {
    pub public: &'a [u8],
}

impl<'a> Message<'a> for ServerPublicKey<'a> {
    const KIND: Kind = Kind::PublicKey;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        w.raw(self.public);
    }

    fn read(r: &mut Reader<'a>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { public: r.rest() })
    }

    fn room(&self) -> usize {
        self.public.len()
    }
}

/// Auxiliary to clients: the digest of the public key that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PublicKeyDigest {
    pub digest: [u8; 32],
}

impl Message<'_> for PublicKeyDigest {
    const KIND: Kind = Kind::PublicKeyDigest;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        w.raw(&self.digest);
    }

    fn read(r: &mut Reader<'_>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { digest: r.array()? })
    }
}

/// A message that is one seed.
macro_rules! seed_message {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub(crate) struct $name {
            pub seed: Seed,
        }

        impl Message<'_> for $name {
            const KIND: Kind = Kind::$name;
            type Context = ();

            fn write(&self, w: &mut Writer) {
                w.seed(&self.seed);
            }

            fn read(r: &mut Reader<'_>, (): &()) -> Result<Self, CodecError> {
                Ok(Self { seed: r.seed()? })
            }
        }
    };
}

seed_message! {
    /// Client to a server (SecretSV): the seed of what it deals to that server.
    MaskSeed
}
seed_message! {
    /// Auxiliary to principal: the seed of the servers' sharings of zero.
    CommonSeed
}
