//! The bridge to the `fhe` library: the oracle our own ciphertexts are checked against, and its dot product
//! for the benchmark.

use std::sync::Arc;

use fhe::bfv::{BfvParameters, BfvParametersBuilder, Ciphertext as LibraryCiphertext};
use fhe_math::rq::{Poly, Representation, traits::TryConvertFrom};
use secsv_algebra::Ring;

#[cfg(test)]
use crate::Parameters;
use crate::{Ciphertext, HeError, SecretKey, parameters::VARIANCE};

/// The library's parameters and the key it draws from the same seed as ours.
pub struct Library {
    /// The library's form of the parameters.
    pub parameters: Arc<BfvParameters>,
    /// The same secret key: tests only, because the library prints it on request.
    #[cfg(test)]
    pub key: fhe::bfv::SecretKey,
}

impl Library {
    /// Sets the library up with the same parameters and the same secret key.
    pub fn new(key: &SecretKey) -> Result<Self, HeError> {
        let ours = key.parameters();
        let moduli: Vec<u64> = ours.limbs().iter().map(|l| l.modulus().value()).collect();
        let parameters = BfvParametersBuilder::new()
            .set_degree(ours.degree())
            .set_plaintext_modulus(ours.field().modulus())
            .set_moduli(&moduli)
            .set_variance(VARIANCE)
            .build_arc()
            .map_err(|_| HeError::Mixed { what: "the library's parameters" })?;
        Ok(Self {
            #[cfg(test)]
            key: fhe::bfv::SecretKey::random(&parameters, &mut secsv_algebra::Prg::new(key.seed())),
            parameters,
        })
    }

    /// Our ciphertext in the library's type.
    pub fn import(&self, ciphertext: &Ciphertext) -> Result<LibraryCiphertext, HeError> {
        let failed = |_| HeError::Mixed { what: "ciphertext" };
        let context = self.parameters.context_at_level(0).map_err(|_| HeError::Mixed { what: "level" })?;
        let part = |i| {
            Poly::try_convert_from(ciphertext.part(i).to_vec(), context, false, Representation::Ntt)
                .map_err(failed)
        };
        LibraryCiphertext::new(vec![part(0)?, part(1)?], &self.parameters)
            .map_err(|_| HeError::Mixed { what: "ciphertext" })
    }

    /// The library's ciphertext in our type.
    #[cfg(test)]
    pub fn export(&self, ours: &Parameters, ciphertext: &LibraryCiphertext) -> Ciphertext {
        let words = |i: usize| Vec::<u64>::from(&ciphertext[i]);
        Ciphertext::from_parts(ours.limbs().len(), ours.degree(), &words(0), &words(1))
    }
}
