//! Sanitised replies. A product is linear in the shares it was computed from, so it never leaves a server as it
//! is: what is not asked for is drowned in uniform field elements, the ciphertext is re-randomised and flooded
//! at full modulus, then switched to one limb.

use rand::CryptoRng;
use secsv_algebra::{Prg, Secret, Seed};

use crate::{
    HeError,
    ciphertext::Ciphertext,
    count::Operations,
    encode::Packing,
    flood::Flooding,
    kernel::{self, Backend},
    keys::{PublicKey, add_small, small, small_points, to_coefficients},
    parameters::Parameters,
};

/// A ciphertext under one limb, as coefficients: what a decryptor gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub(crate) c0: Vec<u64>,
    pub(crate) c1: Vec<u64>,
}

impl PublicKey {
    /// Re-randomises a ciphertext in place: what the auxiliary does before the principal, who has no key, sees
    /// it (DESIGN: replies, first kind).
    pub fn rerandomise(
        &self,
        ciphertext: &mut Ciphertext,
        rng: &mut impl CryptoRng,
        ops: &mut Operations,
    ) -> Result<(), HeError> {
        self.check(ciphertext)?;
        self.add_zero_without_errors(ciphertext, rng, ops);
        for part in 0..2 {
            let error = Secret::new(small_points(&self.parameters, rng));
            ops.ntt += self.parameters.limbs().len() as u64;
            for (l, limb) in self.parameters.limbs().iter().enumerate() {
                let error = &error.expose()[l * self.parameters.degree()..];
                for (c, &e) in ciphertext.limb_mut(part, l).iter_mut().zip(error) {
                    *c = limb.modulus().add(*c, e);
                }
            }
        }
        Ok(())
    }

    /// Turns a product into a reply for a decryptor: uniform elements wherever `planned` is false, a fresh
    /// encryption of zero, flooding, one limb. `planned` has one entry per slot or coefficient.
    pub fn sanitise(
        &self,
        mut product: Ciphertext,
        packing: Packing,
        planned: &[bool],
        flooding: &Flooding,
        rng: &mut impl CryptoRng,
        ops: &mut Operations,
    ) -> Result<Reply, HeError> {
        let parameters = &self.parameters;
        self.check(&product)?;
        if flooding.digest != parameters.digest() {
            return Err(HeError::Mixed { what: "flooding" });
        }
        if planned.len() != parameters.degree() {
            let (expected, found) = (parameters.degree(), planned.len());
            return Err(HeError::Count { what: "positions of a reply", expected, found });
        }
        let mut prg = Prg::new(&Seed::random(rng));
        self.add_zero_without_errors(&mut product, &mut prg, ops);
        let drown = drowning(parameters, packing, planned, &mut prg, ops);
        for part in 0..2 {
            to_coefficients(parameters, product.part_mut(part), ops);
            let error = small(parameters, &mut prg);
            for l in 0..parameters.limbs().len() {
                add_small(parameters, l, &error, product.limb_mut(part, l));
            }
        }
        let remainders = parameters.scaling_remainders(drown.expose());
        let mut scaled = Secret::new(vec![0; parameters.degree()]);
        for (l, limb) in parameters.limbs().iter().enumerate() {
            parameters.scaled(remainders.expose(), l, scaled.expose_mut());
            let target = product.limb_mut(0, l).iter_mut();
            target.zip(scaled.expose()).for_each(|(c, &x)| *c = limb.modulus().add(*c, x));
        }
        flooding.add_to(product.part_mut(0), &mut prg);
        Ok(Reply { c0: switch(parameters, product.part_mut(0)), c1: switch(parameters, product.part_mut(1)) })
    }

    /// Adds u times the public key for a fresh small u; the caller adds the errors.
    fn add_zero_without_errors(
        &self,
        ciphertext: &mut Ciphertext,
        rng: &mut impl CryptoRng,
        ops: &mut Operations,
    ) {
        let u = Secret::new(small_points(&self.parameters, rng));
        ops.ntt += self.parameters.limbs().len() as u64;
        ops.encrypt += 1;
        for part in 0..2 {
            for (l, limb) in self.parameters.limbs().iter().enumerate() {
                let u = &u.expose()[l * self.parameters.degree()..][..self.parameters.degree()];
                let (key, target) = (self.ciphertext.limb(part, l), ciphertext.limb_mut(part, l));
                kernel::multiply_add(Backend::detect(), limb, u, key, target);
            }
        }
    }

    fn check(&self, ciphertext: &Ciphertext) -> Result<(), HeError> {
        let expected = (self.parameters.limbs().len(), self.parameters.degree());
        if (ciphertext.limbs(), ciphertext.degree()) == expected {
            Ok(())
        } else {
            Err(HeError::Mixed { what: "product" })
        }
    }
}

/// Uniform field elements at every position that is not planned, as coefficients.
fn drowning(
    parameters: &Parameters,
    packing: Packing,
    planned: &[bool],
    prg: &mut Prg,
    ops: &mut Operations,
) -> Secret<Vec<u64>> {
    use secsv_algebra::Ring;
    let mut elements = Secret::new(vec![0; planned.len()]);
    // Which positions are planned is public.
    let mut drawn = Secret::new(vec![0; planned.iter().filter(|planned| !**planned).count()]);
    parameters.field().fill_uniform(prg, drawn.expose_mut());
    let targets = elements.expose_mut().iter_mut().zip(planned).filter(|(_, planned)| !**planned);
    targets.zip(drawn.expose()).for_each(|((x, _), &drawn)| *x = drawn);
    parameters.to_coefficients(packing, elements.expose_mut(), ops);
    elements
}

/// Scales coefficients from the whole modulus to its first limb, dropping one limb after the other and rounding.
pub(crate) fn switch(parameters: &Parameters, words: &mut [u64]) -> Vec<u64> {
    let degree = parameters.degree();
    for dropped in (1..parameters.limbs().len()).rev() {
        let (kept, last) = words.split_at_mut(dropped * degree);
        let own = parameters.limbs()[dropped].modulus();
        for (l, kept) in kept.chunks_exact_mut(degree).enumerate() {
            let limb = &parameters.limbs()[l];
            // x - r with r centred: twice the limb keeps it positive, also where the dropped limb is longer.
            let lift = 2 * limb.modulus().value();
            for (x, &r) in kept.iter_mut().zip(last.iter()) {
                *x = (*x + lift).wrapping_sub(own.centre(r) as u64);
            }
            kernel::scale(Backend::detect(), limb, parameters.dropped_inverse(dropped, l), kept);
        }
    }
    words[..degree].to_vec()
}
