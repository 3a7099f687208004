//! Modulus switching: from the whole ciphertext modulus to its first limb.

use secsv_algebra::Modulus;

use crate::{
    kernel::{self, Backend, vectorised},
    parameters::Parameters,
};

/// Scales coefficients from the whole modulus to its first limb, dropping one limb after the other and
/// rounding.
pub(crate) fn switch(parameters: &Parameters, words: &mut [u64]) -> Vec<u64> {
    switch_with(parameters, words, |modulus, remainders| {
        vectorised(|| remainders.iter_mut().for_each(|r| *r = modulus.centre(*r) as u64));
    })
}

/// The same, with the rounding left to the caller: it turns the remainders of a limb to be dropped into the
/// signed numbers, below that limb in magnitude, that are subtracted before the division.
pub(crate) fn switch_with(
    parameters: &Parameters,
    words: &mut [u64],
    mut round: impl FnMut(Modulus, &mut [u64]),
) -> Vec<u64> {
    let count = words.len() / parameters.limbs().len();
    for dropped in (1..parameters.limbs().len()).rev() {
        let (kept, rest) = words.split_at_mut(dropped * count);
        let last = &mut rest[..count];
        round(parameters.limbs()[dropped].modulus(), last);
        for (l, kept) in kept.chunks_exact_mut(count.max(1)).enumerate() {
            let limb = &parameters.limbs()[l];
            // Twice the limb keeps the difference positive.
            let lift = 2 * limb.modulus().value();
            vectorised(|| {
                kept.iter_mut().zip(last.iter()).for_each(|(x, &r)| *x = (*x + lift).wrapping_sub(r));
            });
            kernel::scale(Backend::detect(), limb, parameters.dropped_inverse(dropped, l), kept);
        }
    }
    words[..count].to_vec()
}
