//! Sanitised replies. A product is linear in the shares it was computed from, so it never leaves a server as
//! it is: what is not asked for is drowned in uniform field elements, the ciphertext is re-randomised and
//! flooded at full modulus, then switched to one limb.

use rand::CryptoRng;
use secsv_algebra::{Prg, Secret, Seed};

use crate::{
    HeError,
    ciphertext::check_weights,
    count::Operations,
    encode::Packing,
    flood::Flooding,
    kernel::{self, BLOCK, Backend, Ciphertext, Words, vectorised},
    keys::{PublicKey, small, to_points},
    modulus_switch::switch,
    parameters::Parameters,
};

/// A ciphertext under one limb, as coefficients: what a decryptor gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Of the first part those that are asked for: each coefficient of the message needs its own of this
    /// part, and all of the second.
    pub(crate) c0: Vec<u64>,
    pub(crate) c1: Vec<u64>,
}

/// Which coefficients of the first part a reply carries: what is planned is public. All slots depend on all
/// coefficients.
pub(crate) fn carried(packing: Packing, planned: &[bool]) -> Vec<u32> {
    (0..).zip(planned).filter(|(_, p)| **p || packing == Packing::Slots).map(|(k, _)| k).collect()
}

impl PublicKey {
    /// Re-randomises a ciphertext in place: what the auxiliary does before the principal, who has no key,
    /// sees it (SECURITY.md, replies).
    pub fn rerandomise(
        &self,
        ciphertext: &mut Ciphertext,
        rng: &mut impl CryptoRng,
        ops: &mut Operations,
    ) -> Result<(), HeError> {
        self.check(ciphertext)?;
        let parameters = &self.parameters;
        let [u, errors @ ..] = [(); 3].map(|()| small(parameters, rng));
        let [mut u_points, mut error_points] = [(); 2].map(|()| Secret::new(vec![0; parameters.degree()]));
        for (l, limb) in parameters.limbs().iter().enumerate() {
            to_points(limb, &u, u_points.expose_mut());
            for (part, error) in errors.iter().enumerate() {
                to_points(limb, error, error_points.expose_mut());
                let target = ciphertext.limb_mut(part, l);
                kernel::multiply_add(Backend::detect(), limb, u_points.expose(), self.limb(part, l), target);
                let modulus = limb.modulus();
                vectorised(|| {
                    let errors = error_points.expose();
                    target.iter_mut().zip(errors).for_each(|(c, &e)| *c = modulus.add(*c, e));
                });
            }
        }
        ops.ntt += 3 * parameters.limbs().len() as u64;
        ops.encrypt += 1;
        Ok(())
    }

    /// Turns a product into a reply for a decryptor: nothing where `planned` is false (no coefficients,
    /// uniform elements in slots), a fresh encryption of zero, flooding, one limb. `planned` has one entry
    /// per slot or coefficient.
    pub fn sanitise(
        &self,
        product: &Ciphertext,
        packing: Packing,
        planned: &[bool],
        flooding: &Flooding,
        rng: &mut impl CryptoRng,
        ops: &mut Operations,
    ) -> Result<Reply, HeError> {
        self.sanitise_sum(&[(1, product)], packing, planned, flooding, rng, ops)
    }

    /// The same for a weighted sum of products, which is never written to memory as a whole.
    pub fn sanitise_sum(
        &self,
        terms: &[(u32, &Ciphertext)],
        packing: Packing,
        planned: &[bool],
        flooding: &Flooding,
        rng: &mut impl CryptoRng,
        ops: &mut Operations,
    ) -> Result<Reply, HeError> {
        let parameters = &self.parameters;
        terms.iter().try_for_each(|(_, product)| self.check(product))?;
        check_weights(terms.iter().map(|t| t.0))?;
        if flooding.digest != parameters.digest() {
            return Err(HeError::Mixed { what: "flooding" });
        }
        if planned.len() != parameters.degree() {
            return Err(HeError::count("positions of a reply", parameters.degree(), planned.len()));
        }
        let mut prg = Prg::new(&Seed::random(rng));
        let positions = carried(packing, planned);
        let (mut c0, mut c1) = self.add_zero(terms, &positions, &mut prg);
        (ops.encrypt, ops.ntt) = (ops.encrypt + 1, ops.ntt + 3 * parameters.limbs().len() as u64);
        if packing == Packing::Slots {
            self.drown_slots(&mut c0, planned, &mut prg, ops);
        }
        let mut c0 = flooding.switch(parameters, &mut c0, &mut prg);
        c0.truncate(positions.len());
        // The second part needs no error of its own: one of variance 10 changes what rounding to one limb
        // leaves with a probability below 2^-80 (`standard`), so it may as well not be added. Flooding covers
        // the first's.
        Ok(Reply { c0, c1: switch(parameters, &mut c1) })
    }

    /// The sum of the terms and u times the public key for a fresh small u, as coefficients, limb after limb:
    /// of the first part those at the positions, padded to whole vectors of the kernel.
    fn add_zero(
        &self,
        terms: &[(u32, &Ciphertext)],
        positions: &[u32],
        prg: &mut Prg,
    ) -> (Vec<u64>, Vec<u64>) {
        let (parameters, degree) = (&self.parameters, self.parameters.degree());
        let u = small(parameters, prg);
        let mut points = Secret::new(vec![0; degree]);
        let count = positions.len().next_multiple_of(BLOCK);
        let (mut c0, mut whole) = (vec![0; count * parameters.limbs().len()], vec![0; degree]);
        let mut c1 = vec![0; parameters.words()];
        // Limb by limb: what belongs to one fits the second-level cache.
        for (l, limb) in parameters.limbs().iter().enumerate() {
            to_points(limb, &u, points.expose_mut());
            for (part, target) in [&mut whole[..], &mut c1[l * degree..][..degree]].into_iter().enumerate() {
                let sources: Vec<(u32, &[[u64; BLOCK]])> =
                    terms.iter().map(|&(w, c)| (w, c.limb(part, l).as_chunks().0)).collect();
                let blocks = target.as_chunks_mut().0;
                kernel::weighted_sum(Backend::detect(), limb, Words::Plain, &sources, blocks);
                kernel::multiply_add(Backend::detect(), limb, points.expose(), self.limb(part, l), target);
                limb.backward(target);
            }
            let gathered = c0[l * count..][..count].iter_mut();
            gathered.zip(positions).for_each(|(g, &k)| *g = whole[k as usize]);
        }
        (c0, c1)
    }

    fn limb(&self, part: usize, limb: usize) -> &[u64] {
        self.ciphertext.limb(part, limb)
    }

    /// Adds uniform field elements to every slot that is not planned, given as coefficients, limb after limb.
    fn drown_slots(&self, words: &mut [u64], planned: &[bool], prg: &mut Prg, ops: &mut Operations) {
        let parameters = &self.parameters;
        let drown = drowning(parameters, planned, prg, ops);
        let remainders = parameters.scaling_remainders(drown.expose());
        let mut scaled = Secret::new(vec![0; parameters.degree()]);
        for (l, words) in words.chunks_exact_mut(parameters.degree()).enumerate() {
            let modulus = parameters.limbs()[l].modulus();
            parameters.scaled(remainders.expose(), l, scaled.expose_mut());
            words.iter_mut().zip(scaled.expose()).for_each(|(c, &x)| *c = modulus.add(*c, x));
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
