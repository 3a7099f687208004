//! Keys: one secret for all clients of a session, and what servers get to work with its ciphertexts.

use std::{collections::BTreeMap, sync::Arc};

use fhe_util::sample_vec_cbd;
use rand::CryptoRng;
use secsv_algebra::{AlgebraError, Prg, Ring, Secret, Seed};

use crate::{
    HeError,
    ciphertext::{SeededCiphertext, UniformPoints},
    count::Operations,
    encode::Packing,
    kernel::{self, Backend, Ciphertext, Limb, vectorised},
    parameters::{Parameters, VARIANCE},
};

/// The secret key s: small coefficients drawn from a seed, so that 32 bytes carry it.
pub struct SecretKey {
    pub(crate) parameters: Arc<Parameters>,
    seed: Seed,
    /// s at transform points, limb after limb.
    pub(crate) points: Secret<Vec<u64>>,
}

impl SecretKey {
    /// A fresh key.
    pub fn generate(parameters: &Arc<Parameters>, rng: &mut impl CryptoRng) -> Self {
        Self::from_seed(parameters, Seed::random(rng))
    }

    /// The key that a seed stands for. The draw is the library's own, so that the library, given the same
    /// seed, has the same key.
    pub fn from_seed(parameters: &Arc<Parameters>, seed: Seed) -> Self {
        let drawn = sample_vec_cbd(parameters.degree(), VARIANCE, &mut Prg::new(&seed))
            .expect("the variance lies in the sampler's range");
        let (drawn, mut points) = (Secret::new(drawn), Secret::new(vec![0; parameters.words()]));
        let rows = points.expose_mut().chunks_exact_mut(parameters.degree());
        parameters.limbs().iter().zip(rows).for_each(|(limb, words)| to_points(limb, &drawn, words));
        Self { parameters: parameters.clone(), seed, points }
    }

    /// The seed, for the codec that seals it for the other clients.
    pub fn seed(&self) -> &Seed {
        &self.seed
    }

    /// The parameters the key belongs to.
    pub fn parameters(&self) -> &Arc<Parameters> {
        &self.parameters
    }

    /// Encrypts field elements in the packing's order; shorter input is padded with zeros.
    pub fn encrypt(
        &self,
        packing: Packing,
        elements: &[u64],
        rng: &mut impl CryptoRng,
        ops: &mut Operations,
    ) -> Result<SeededCiphertext, HeError> {
        let parameters = &self.parameters;
        let mut coefficients = padded(parameters, elements)?;
        parameters.to_coefficients(packing, coefficients.expose_mut(), ops);
        let error = small(parameters, rng);
        let remainders = parameters.scaling_remainders(coefficients.expose());
        let ciphertext = self.mask(rng, |l, words| {
            parameters.scaled(remainders.expose(), l, words);
            add_small(parameters, l, &error, words);
            parameters.limbs()[l].forward(words);
        });
        ops.ntt += parameters.limbs().len() as u64;
        ops.encrypt += 1;
        Ok(ciphertext)
    }

    /// (m - a s, a) with a from a fresh seed; `message` writes each limb of m at points.
    fn mask(&self, rng: &mut impl CryptoRng, mut message: impl FnMut(usize, &mut [u64])) -> SeededCiphertext {
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let degree = self.parameters.degree();
        let (mut points, mut a) = (UniformPoints::new(&seed), vec![0; degree]);
        let mut c0 = vec![0; self.parameters.words()];
        let rows = c0.chunks_exact_mut(degree).zip(self.points.expose().chunks_exact(degree));
        for (l, (words, s)) in rows.enumerate() {
            let limb = &self.parameters.limbs()[l];
            message(l, words);
            points.fill(limb, &mut a);
            // Minus a, so that nothing but the sum is ever written down: who has a s and the public a has the
            // key.
            let modulus = limb.modulus();
            vectorised(|| a.iter_mut().for_each(|a| *a = modulus.neg(*a)));
            kernel::multiply_add(Backend::detect(), limb, &a, s, words);
        }
        SeededCiphertext { seed, c0 }
    }

    /// The public key: an encryption of zero that anybody may re-randomise with.
    pub fn public_key(&self, rng: &mut impl CryptoRng) -> PublicKey {
        let error = small(&self.parameters, rng);
        let zero = self.mask(rng, |l, words| {
            add_small(&self.parameters, l, &error, words);
            self.parameters.limbs()[l].forward(words);
        });
        PublicKey::from_seeded(&self.parameters, zero)
    }

    /// Whether a public key is an encryption of zero under this key, with no larger an error than
    /// [`Self::public_key`] ever draws. Anything else would not re-randomise: with a first part of zero, what
    /// a server adds its fresh mask to would leave it as it is.
    pub fn check_public_key(&self, public: &PublicKey) -> Result<(), HeError> {
        let (parameters, degree) = (&self.parameters, self.parameters.degree());
        if public.parameters.digest() != parameters.digest() {
            return Err(HeError::PublicKey);
        }
        let mut first: Option<Secret<Vec<i64>>> = None;
        for (l, (limb, s)) in
            parameters.limbs().iter().zip(self.points.expose().chunks_exact(degree)).enumerate()
        {
            let mut error = Secret::new(public.ciphertext.limb(0, l).to_vec());
            kernel::multiply_add(
                Backend::detect(),
                limb,
                public.ciphertext.limb(1, l),
                s,
                error.expose_mut(),
            );
            limb.backward(error.expose_mut());
            let centred =
                Secret::new(error.expose().iter().map(|&x| limb.modulus().centre(x)).collect::<Vec<_>>());
            let is_small = centred.expose().iter().all(|x| x.unsigned_abs() <= u64::from(BINOMIAL / 2));
            // The same number modulo every limb: so it is as small modulo all of them together.
            let is_same = first.as_ref().is_none_or(|first| first.expose() == centred.expose());
            if !is_small || !is_same {
                return Err(HeError::PublicKey);
            }
            first = Some(centred);
        }
        Ok(())
    }

    /// Keys for relinearisation and for rotations of the slot rows by these steps.
    pub fn evaluation_key(&self, steps: &[usize], rng: &mut impl CryptoRng) -> EvaluationKey {
        let s = self.points.expose();
        let modulus = |i: usize| self.parameters.limbs()[i / self.parameters.degree()].modulus();
        let square =
            Secret::new(s.iter().enumerate().map(|(i, &x)| modulus(i).mul(x, x)).collect::<Vec<_>>());
        let relinearise = self.switch_key(square.expose(), rng);
        let rotations = steps.iter().map(|&step| {
            let rotated = Secret::new(rotate_points(&self.parameters, step, s));
            (step, self.switch_key(rotated.expose(), rng))
        });
        EvaluationKey { rotations: rotations.collect(), relinearise }
    }

    /// For each limb an encryption of `from` times that limb's idempotent, which is 1 there and 0 elsewhere.
    fn switch_key(&self, from: &[u64], rng: &mut impl CryptoRng) -> SwitchKey {
        let digits = (0..self.parameters.limbs().len()).map(|digit| {
            let error = small(&self.parameters, rng);
            self.mask(rng, |l, words| {
                add_small(&self.parameters, l, &error, words);
                let limb = &self.parameters.limbs()[l];
                limb.forward(words);
                if l == digit {
                    let from = &from[l * words.len()..][..words.len()];
                    words.iter_mut().zip(from).for_each(|(w, &f)| *w = limb.modulus().add(*w, f));
                }
            })
        });
        SwitchKey::new(&self.parameters, digits.collect())
    }
}

/// The key that a server re-randomises replies with.
pub struct PublicKey {
    pub(crate) parameters: Arc<Parameters>,
    pub(crate) seeded: SeededCiphertext,
    pub(crate) ciphertext: Ciphertext,
}

impl PublicKey {
    pub(crate) fn from_seeded(parameters: &Arc<Parameters>, seeded: SeededCiphertext) -> Self {
        Self { parameters: parameters.clone(), ciphertext: seeded.expand(parameters), seeded }
    }
}

/// Turns a polynomial times another secret into a ciphertext under ours.
#[derive(Clone)]
pub(crate) struct SwitchKey {
    pub(crate) digits: Vec<SeededCiphertext>,
    expanded: Vec<Ciphertext>,
}

impl SwitchKey {
    pub(crate) fn new(parameters: &Parameters, digits: Vec<SeededCiphertext>) -> Self {
        let expanded = digits.iter().map(|d| d.expand(parameters)).collect();
        Self { digits, expanded }
    }

    /// Adds the ciphertext of `coefficients` (limb after limb) times the other secret to `target`.
    fn apply(
        &self,
        parameters: &Parameters,
        coefficients: &[u64],
        target: &mut Ciphertext,
        ops: &mut Operations,
    ) {
        let degree = parameters.degree();
        let mut digit_points = vec![0; parameters.words()];
        for (digit, key) in self.expanded.iter().enumerate() {
            let source = &coefficients[digit * degree..][..degree];
            let own = parameters.limbs()[digit].modulus();
            for (l, limb) in parameters.limbs().iter().enumerate() {
                let modulus = limb.modulus();
                let words = &mut digit_points[l * degree..][..degree];
                for (w, &x) in words.iter_mut().zip(source) {
                    // Centred digits: half the noise. A 55-bit digit may exceed a 54-bit limb: reduce first.
                    let signed = own.centre(x);
                    let magnitude = modulus.reduce(signed.unsigned_abs());
                    let negative = ((signed >> 63) as u64) & 1;
                    *w = modulus.sub(magnitude * (1 - negative), magnitude * negative);
                }
                limb.forward(words);
                ops.ntt += 1;
                for part in 0..2 {
                    let target = target.limb_mut(part, l);
                    kernel::multiply_add(Backend::detect(), limb, words, key.limb(part, l), target);
                }
            }
        }
    }
}

/// The keys that a server multiplies and rotates ciphertexts with.
pub struct EvaluationKey {
    pub(crate) relinearise: SwitchKey,
    pub(crate) rotations: BTreeMap<usize, SwitchKey>,
}

impl EvaluationKey {
    /// Rotates both slot rows to the left.
    pub fn rotate(
        &self,
        parameters: &Parameters,
        ciphertext: &Ciphertext,
        step: usize,
        ops: &mut Operations,
    ) -> Result<Ciphertext, HeError> {
        let key = self.rotations.get(&step).ok_or(HeError::MissingRotationKey { step })?;
        let c0 = rotate_points(parameters, step, ciphertext.part(0));
        let mut c1 = rotate_points(parameters, step, ciphertext.part(1));
        to_coefficients(parameters, &mut c1, ops);
        let zero = vec![0; parameters.words()];
        let mut rotated = Ciphertext::from_parts(parameters.limbs().len(), parameters.degree(), &c0, &zero);
        key.apply(parameters, &c1, &mut rotated, ops);
        ops.rotate += 1;
        Ok(rotated)
    }

    /// (c0, c1, c2), as coefficients, to a ciphertext of two parts.
    pub(crate) fn relinearise(
        &self,
        parameters: &Parameters,
        mut parts: [Vec<u64>; 3],
        ops: &mut Operations,
    ) -> Ciphertext {
        let degree = parameters.degree();
        for part in &mut parts[..2] {
            for (limb, words) in parameters.limbs().iter().zip(part.chunks_exact_mut(degree)) {
                limb.forward(words);
                ops.ntt += 1;
            }
        }
        let mut sum = Ciphertext::from_parts(parameters.limbs().len(), degree, &parts[0], &parts[1]);
        self.relinearise.apply(parameters, &parts[2], &mut sum, ops);
        sum
    }
}

/// Points to coefficients, limb after limb.
pub(crate) fn to_coefficients(parameters: &Parameters, words: &mut [u64], ops: &mut Operations) {
    for (limb, words) in parameters.limbs().iter().zip(words.chunks_exact_mut(parameters.degree())) {
        limb.backward(words);
        ops.ntt += 1;
    }
}

/// The Galois map X -> X^(3^step) at transform points: a permutation.
fn rotate_points(parameters: &Parameters, step: usize, points: &[u64]) -> Vec<u64> {
    let degree = parameters.degree();
    let shift = usize::BITS - degree.trailing_zeros();
    let galois = (0..step % (degree / 2)).fold(1usize, |g, _| g * 3 % (2 * degree));
    let mut rotated = vec![0; points.len()];
    for (target, source) in rotated.chunks_exact_mut(degree).zip(points.chunks_exact(degree)) {
        for (i, t) in target.iter_mut().enumerate() {
            // Point i is the value at the root to the power 2 * reversed(i) + 1.
            let exponent = 2 * (i.reverse_bits() >> shift) + 1;
            let image = exponent * galois % (2 * degree);
            *t = source[(image >> 1).reverse_bits() >> shift];
        }
    }
    rotated
}

/// Field elements, padded with zeros to a whole polynomial.
pub(crate) fn padded(parameters: &Parameters, elements: &[u64]) -> Result<Secret<Vec<u64>>, HeError> {
    if elements.len() > parameters.degree() {
        return Err(HeError::count("elements of a plaintext", parameters.degree(), elements.len()));
    }
    let modulus = parameters.field().modulus();
    if let Some(index) = elements.iter().position(|&x| x >= modulus) {
        return Err(AlgebraError::Unreduced { index, modulus }.into());
    }
    let mut padded = Secret::new(vec![0; parameters.degree()]);
    padded.expose_mut()[..elements.len()].copy_from_slice(elements);
    Ok(padded)
}

/// Bits that a small coefficient counts: a centred binomial number of this many has the scheme's variance.
const BINOMIAL: u32 = 4 * VARIANCE as u32;

/// Small coefficients: centred binomial of the scheme's variance.
pub(crate) fn small(parameters: &Parameters, rng: &mut impl CryptoRng) -> Secret<Vec<i64>> {
    let mut words = Secret::new(vec![0; parameters.degree()]);
    Prg::new(&Seed::random(rng)).fill_words(words.expose_mut());
    let counted = |&word: &u64| i64::from((word >> (64 - BINOMIAL)).count_ones()) - i64::from(BINOMIAL / 2);
    Secret::new(vectorised(|| words.expose().iter().map(counted).collect()))
}

/// Adds small coefficients to one limb.
pub(crate) fn add_small(parameters: &Parameters, limb: usize, small: &Secret<Vec<i64>>, out: &mut [u64]) {
    let modulus = parameters.limbs()[limb].modulus();
    vectorised(|| {
        for (o, &x) in out.iter_mut().zip(small.expose()) {
            *o = modulus.add(*o, modulus.embed(x));
        }
    });
}

/// Small coefficients at points of one limb.
pub(crate) fn to_points(limb: &Limb, small: &Secret<Vec<i64>>, words: &mut [u64]) {
    let modulus = limb.modulus();
    vectorised(|| words.iter_mut().zip(small.expose()).for_each(|(w, &x)| *w = modulus.embed(x)));
    limb.forward(words);
}
