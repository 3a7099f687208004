//! Whether bytes are an object of the wire, without making it: they are read once and nothing is kept. What
//! passes a check decodes.

use super::{ObjectKind, SEED, WordReader, open};
use crate::{Ciphertext, EncryptedSlots, Parameters, Reply, WireError};

impl EncryptedSlots {
    /// Checks the encoding of a vector of this many elements.
    pub fn check_bytes(parameters: &Parameters, elements: usize, bytes: &[u8]) -> Result<(), WireError> {
        let expected = Self::encoded_len(parameters, elements);
        let body = open(parameters.digest(), ObjectKind::Slots, expected, bytes)?;
        WordReader::new(parameters, body).check_seeded(elements.div_ceil(parameters.degree()))
    }
}

impl Ciphertext {
    /// Checks the encoding of a ciphertext at full modulus.
    pub fn check_bytes(parameters: &Parameters, bytes: &[u8]) -> Result<(), WireError> {
        let body = open(parameters.digest(), ObjectKind::Ciphertext, Self::encoded_len(parameters), bytes)?;
        let mut reader = WordReader::new(parameters, body);
        let mut words = vec![0; parameters.degree()];
        (0..2).try_for_each(|_| reader.check_polynomial(&mut words))
    }
}

impl Reply {
    /// Checks the encoding of a reply that carries `carried` coefficients of its first part.
    pub fn check_bytes(parameters: &Parameters, carried: usize, bytes: &[u8]) -> Result<(), WireError> {
        // It is as small as what it is read into.
        Self::from_bytes(parameters, carried, bytes).map(drop)
    }
}

impl WordReader<'_> {
    /// Checks this many seeded ciphertexts.
    pub(super) fn check_seeded(&mut self, count: usize) -> Result<(), WireError> {
        let mut words = vec![0; self.parameters.degree()];
        (0..count).try_for_each(|_| {
            self.take(SEED)?;
            self.check_polynomial(&mut words)
        })
    }

    /// Checks a polynomial, one limb after the other, in the room given.
    fn check_polynomial(&mut self, words: &mut [u64]) -> Result<(), WireError> {
        (0..self.parameters.limbs().len()).try_for_each(|limb| self.limb(limb, words))
    }
}
