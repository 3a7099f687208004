//! Sanitised replies. A product is linear in the shares it was computed from, so it never leaves a server as it
//! is: what is not asked for is drowned in uniform field elements, the ciphertext is re-randomised and flooded
//! at full modulus, then switched to one limb.

use rand::CryptoRng;
use secsv_algebra::{Modulus, Prg, Secret, Seed};

use crate::{
    HeError,
    ciphertext::Ciphertext,
    count::Operations,
    encode::Packing,
    flood::Flooding,
    kernel::{self, BLOCK, Backend, vectorised},
    keys::{PublicKey, small_points, to_coefficients},
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
        for part in 0..2 {
            to_coefficients(parameters, product.part_mut(part), ops);
        }
        let c0 = match packing {
            Packing::Coefficients => flooded_where(parameters, product.part(0), planned, flooding, &mut prg),
            Packing::Slots => {
                self.drown_slots(&mut product, planned, &mut prg, ops);
                flooding.switch(parameters, product.part_mut(0), &mut prg)
            }
        };
        // The second part needs no error of its own: one of variance 10 changes what rounding to one limb leaves
        // with a probability below 2^-80 (`standard`), so it may as well not be added.
        Ok(Reply { c0, c1: switch(parameters, product.part_mut(1)) })
    }

    /// Adds uniform field elements to every slot that is not planned; c0 is given as coefficients.
    fn drown_slots(&self, product: &mut Ciphertext, planned: &[bool], prg: &mut Prg, ops: &mut Operations) {
        let parameters = &self.parameters;
        let drown = drowning(parameters, planned, prg, ops);
        let remainders = parameters.scaling_remainders(drown.expose());
        let mut scaled = Secret::new(vec![0; parameters.degree()]);
        for (l, limb) in parameters.limbs().iter().enumerate() {
            parameters.scaled(remainders.expose(), l, scaled.expose_mut());
            let target = product.limb_mut(0, l).iter_mut();
            target.zip(scaled.expose()).for_each(|(c, &x)| *c = limb.modulus().add(*c, x));
        }
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

/// Uniform field elements in every slot that is not planned, as coefficients.
fn drowning(
    parameters: &Parameters,
    planned: &[bool],
    prg: &mut Prg,
    ops: &mut Operations,
) -> Secret<Vec<u64>> {
    use secsv_algebra::Ring;
    let mut elements = Secret::new(vec![0; planned.len()]);
    parameters.field().fill_uniform(prg, elements.expose_mut());
    // Which positions are planned is public.
    let planned = elements.expose_mut().iter_mut().zip(planned).filter(|(_, planned)| **planned);
    planned.for_each(|(element, _)| *element = 0);
    parameters.to_coefficients(Packing::Slots, elements.expose_mut(), ops);
    elements
}

/// Coefficients under one limb: flooded where planned. Elsewhere uniform: that is what a number uniform modulo q, added
/// before the switch, leaves.
fn flooded_where(
    parameters: &Parameters,
    words: &[u64],
    planned: &[bool],
    flooding: &Flooding,
    prg: &mut Prg,
) -> Vec<u64> {
    let positions: Vec<u32> = (0..).zip(planned).filter(|(_, planned)| **planned).map(|(k, _)| k).collect();
    // Whole vectors of the kernel.
    let count = positions.len().next_multiple_of(BLOCK);
    let mut gathered = vec![0; count * parameters.limbs().len()];
    for (words, gathered) in words.chunks_exact(planned.len()).zip(gathered.chunks_exact_mut(count.max(1))) {
        gathered.iter_mut().zip(&positions).for_each(|(g, &k)| *g = words[k as usize]);
    }
    let flooded = flooding.switch(parameters, &mut gathered, prg);
    let mut uniform = vec![0; planned.len() - positions.len()];
    prg.fill_uniform(parameters.limbs()[0].modulus().value(), &mut uniform);
    let (mut flooded, mut uniform) = (flooded.into_iter(), uniform.into_iter());
    let pick = |&planned: &bool| if planned { flooded.next() } else { uniform.next() };
    planned.iter().filter_map(pick).collect()
}

/// Scales coefficients from the whole modulus to its first limb, dropping one limb after the other and rounding.
pub(crate) fn switch(parameters: &Parameters, words: &mut [u64]) -> Vec<u64> {
    switch_with(parameters, words, |modulus, remainders| {
        vectorised(|| remainders.iter_mut().for_each(|r| *r = modulus.centre(*r) as u64));
    })
}

/// The same, with the rounding left to the caller: it turns the remainders of a limb to be dropped into the signed
/// numbers, below that limb in magnitude, that are subtracted before the division.
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
