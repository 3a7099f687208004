//! Envelopes that the principal relays and cannot open (PROTOCOL.md 1): HPKE (RFC 9180) in auth mode, bound to the
//! session and the leader.

use hpke::{
    Deserializable, Kem as _, OpModeR, OpModeS, Serializable, aead::ChaCha20Poly1305, kdf::HkdfSha256,
    kem::X25519HkdfSha256,
};
use secsv_algebra::{Prg, Secret, Seed};

use crate::{Error, PartyId};

type Kem = X25519HkdfSha256;

/// A client's key pair for envelopes.
#[derive(Clone)]
pub struct EnvelopeKeys {
    private: <Kem as hpke::Kem>::PrivateKey,
    public: <Kem as hpke::Kem>::PublicKey,
}

impl EnvelopeKeys {
    /// The pair that follows from a seed.
    pub fn derive(seed: &Seed) -> Self {
        let (private, public) = Kem::derive_keypair(seed.expose());
        Self { private, public }
    }

    /// The pair of a private key that was kept; none if the bytes are no such key.
    pub fn from_private(private: &Secret<[u8; 32]>) -> Option<Self> {
        let private = <Kem as hpke::Kem>::PrivateKey::from_bytes(private.expose()).ok()?;
        let public = Kem::sk_to_pk(&private);
        Some(Self { private, public })
    }

    /// The private key, to be kept where nobody else reads it.
    pub fn private(&self) -> Secret<[u8; 32]> {
        Secret::new(self.private.to_bytes().into())
    }

    /// The public key, for everybody.
    pub fn public_key(&self) -> [u8; 32] {
        self.public.to_bytes().into()
    }

    pub(crate) fn public(&self) -> Vec<u8> {
        self.public_key().to_vec()
    }

    pub(crate) fn seal(
        &self,
        from: PartyId,
        to: PartyId,
        receiver: &[u8],
        info: &[u8],
        content: &[u8],
        rng: &mut Prg,
    ) -> Result<Vec<u8>, Error> {
        let failed = |_| Error::Envelope { from, to };
        let receiver = <Kem as hpke::Kem>::PublicKey::from_bytes(receiver).map_err(failed)?;
        let mode = OpModeS::Auth((self.private.clone(), self.public.clone()));
        let (encapsulated, sealed) = hpke::single_shot_seal::<ChaCha20Poly1305, HkdfSha256, Kem, _>(
            &mode,
            &receiver,
            info,
            content,
            &[],
            rng,
        )
        .map_err(failed)?;
        Ok([encapsulated.to_bytes().to_vec(), sealed].concat())
    }

    pub(crate) fn open(
        &self,
        from: PartyId,
        to: PartyId,
        sender: &[u8],
        info: &[u8],
        envelope: &[u8],
    ) -> Result<Secret<Vec<u8>>, Error> {
        let failed = || Error::Envelope { from, to };
        let sender = <Kem as hpke::Kem>::PublicKey::from_bytes(sender).map_err(|_| failed())?;
        let (encapsulated, sealed) = envelope.split_at_checked(32).ok_or_else(failed)?;
        let encapsulated = <Kem as hpke::Kem>::EncappedKey::from_bytes(encapsulated).map_err(|_| failed())?;
        let mode = OpModeR::Auth(sender);
        let opened = hpke::single_shot_open::<ChaCha20Poly1305, HkdfSha256, Kem>(
            &mode,
            &self.private,
            &encapsulated,
            info,
            sealed,
            &[],
        );
        opened.map(Secret::new).map_err(|_| failed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_kept_is_the_same_pair() {
        let keys = EnvelopeKeys::derive(&Seed::from_bytes([4; 32]));
        let again = EnvelopeKeys::from_private(&keys.private()).unwrap();
        assert_eq!(again.public_key(), keys.public_key());
        assert_ne!(keys.public_key(), EnvelopeKeys::derive(&Seed::from_bytes([5; 32])).public_key());
    }

    #[test]
    fn only_the_addressee_opens_and_only_from_the_sender() {
        let keys: Vec<_> = (0..3).map(|i| EnvelopeKeys::derive(&Seed::from_bytes([i; 32]))).collect();
        let (a, b) = (PartyId::Client(0), PartyId::Client(1));
        let mut rng = Prg::new(&Seed::from_bytes([9; 32]));
        let sealed = keys[0].seal(a, b, &keys[1].public(), b"session", b"secret", &mut rng).unwrap();
        let opened = keys[1].open(a, b, &keys[0].public(), b"session", &sealed).unwrap();
        assert_eq!(opened.expose(), b"secret");
        assert!(keys[2].open(a, b, &keys[0].public(), b"session", &sealed).is_err());
        assert!(keys[1].open(a, b, &keys[2].public(), b"session", &sealed).is_err());
        assert!(keys[1].open(a, b, &keys[0].public(), b"another session", &sealed).is_err());
        assert!(keys[1].open(a, b, &keys[0].public(), b"session", &sealed[..20]).is_err());
    }
}
