//! Parameters of the encryption scheme (BFV), checked when they are built.

use std::sync::{Arc, OnceLock};

use secsv_algebra::{Factor, Field, Ring};
use serde::{Deserialize, Serialize};
use tfhe_ntt::prime64::Plan;

use crate::{
    HeError,
    extension::{Extension, check_budget},
    kernel::{Limb, product_bits},
};

/// Bits a ciphertext modulus may have at 128-bit security: Homomorphic Encryption Standard (2018), table for
/// classical attacks and a ternary secret, the strictest of its columns.
const STANDARD_128: [(usize, u32); 6] =
    [(1024, 27), (2048, 54), (4096, 109), (8192, 218), (16384, 438), (32768, 881)];

/// Variance of errors and secrets: centred binomial, standard deviation 3.16.
pub(crate) const VARIANCE: usize = 10;

/// The parameter sets a run may choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum), clap(rename_all = "lower"))]
pub enum Preset {
    /// Degree 8192, three 54-bit limbs, a 41-bit field: replies are flooded to at least 40 bits of
    /// statistical distance.
    Standard,
    /// Degree 4096, 54 + 55 bits, a 40-bit field: half the size; replies are re-randomised and flooded as far
    /// as it fits, with no statistical claim.
    Compact,
}

impl Preset {
    /// The name on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Compact => "compact",
        }
    }
}

/// Everything that both sides must agree on, and the constants that follow from it.
pub struct Parameters {
    degree: usize,
    field: Field,
    limbs: Vec<Limb>,
    plaintext_plan: Plan,
    /// Slot number to index in the plaintext transform.
    slot_index: Vec<u32>,
    digest: u64,
    /// q mod p, and -1/p modulo each limb: how `round(q m / p)` is computed limb by limb.
    modulus_in_field: Factor,
    minus_field_inverse: Vec<u64>,
    /// 1/q_k modulo q_i for i < k, row k: what modulus switching multiplies by.
    dropped_inverse: Vec<Vec<u64>>,
    extension: OnceLock<Result<Extension, HeError>>,
}

impl Parameters {
    /// The parameters of a preset. Their tables are made once for a process.
    pub fn preset(preset: Preset) -> Result<Arc<Self>, HeError> {
        static STANDARD: OnceLock<Result<Arc<Parameters>, HeError>> = OnceLock::new();
        static COMPACT: OnceLock<Result<Arc<Parameters>, HeError>> = OnceLock::new();
        let made = match preset {
            Preset::Standard => STANDARD.get_or_init(|| {
                let limbs = [0x3fffffffef8001, 0x3fffffffeb8001, 0x3fffffffe7c001];
                Self::new(8192, &limbs, Field::standard())
            }),
            Preset::Compact => COMPACT
                .get_or_init(|| Self::new(4096, &[0x3fffffffef8001, 0x7ffffffffb4001], Field::compact())),
        };
        made.clone()
    }

    /// The parameters of a preset where ciphertexts meet ciphertexts: one limb more, because products and
    /// rotations bring noise that replies must be flooded above. `compact` has no room for it and is refused.
    pub fn for_full_products(preset: Preset) -> Result<Arc<Self>, HeError> {
        static STANDARD: OnceLock<Result<Arc<Parameters>, HeError>> = OnceLock::new();
        let made = || {
            let limbs = [0x3fffffffef8001, 0x3fffffffeb8001, 0x3fffffffe7c001, 0x3fffffffe64001];
            let parameters = Self::new(8192, &limbs, Field::standard())?;
            check_budget(&parameters.limbs, parameters.degree, parameters.field).map(|()| parameters)
        };
        match preset {
            Preset::Standard => STANDARD.get_or_init(made).clone(),
            Preset::Compact => {
                let parameters = Self::preset(preset)?;
                check_budget(&parameters.limbs, parameters.degree, parameters.field).map(|()| parameters)
            }
        }
    }

    /// Checks and prepares parameters; those the standard does not rate at 128 bits are refused.
    pub fn new(degree: usize, moduli: &[u64], field: Field) -> Result<Arc<Self>, HeError> {
        let expected = STANDARD_128.iter().find(|(n, _)| *n == degree).map_or(0, |(_, bits)| *bits);
        let found = product_bits(moduli);
        if found > expected {
            return Err(HeError::Insecure { degree, expected, found });
        }
        Self::unrated(degree, moduli, field)
    }

    /// Everything but the security check.
    pub(crate) fn unrated(degree: usize, moduli: &[u64], field: Field) -> Result<Arc<Self>, HeError> {
        if !(2..=4).contains(&moduli.len()) {
            return Err(HeError::count("limbs (2 to 4 supported)", 3, moduli.len()));
        }
        let p = field.modulus();
        if let Some(limb) = (1..moduli.len()).find(|&i| moduli[..i].contains(&moduli[i])) {
            return Err(HeError::RepeatedLimb { limb, found: moduli[limb] });
        }
        if let Some(limb) = moduli.iter().position(|&q| q <= p) {
            return Err(HeError::LimbTooSmall { limb, plaintext: p, found: moduli[limb] });
        }
        let limbs = moduli.iter().map(|&q| Limb::new(q, degree)).collect::<Result<Vec<Limb>, HeError>>()?;
        let arithmetic = field.arithmetic();
        let unusable = HeError::UnusableLimb { found: p, twice_degree: 2 * degree as u64 };
        let plaintext_plan = Plan::try_new(degree, p).ok_or(unusable)?;
        let modulus_in_field =
            moduli.iter().fold(1, |product, &q| arithmetic.mul(product, arithmetic.reduce(q)));
        let minus_field_inverse = limbs.iter().map(|l| l.modulus().neg(l.modulus().inverse(p))).collect();
        let inverse_of = |k: u64, l: &Limb| l.modulus().inverse(l.modulus().reduce(k));
        let dropped_inverse =
            (0..limbs.len()).map(|k| limbs[..k].iter().map(|l| inverse_of(moduli[k], l)).collect()).collect();
        Ok(Arc::new(Self {
            degree,
            field,
            digest: digest(degree, p, &limbs, &plaintext_plan),
            limbs,
            plaintext_plan,
            slot_index: slot_index(degree),
            modulus_in_field: Factor::new(arithmetic, modulus_in_field),
            minus_field_inverse,
            dropped_inverse,
            extension: OnceLock::new(),
        }))
    }

    /// Degree n of the polynomials.
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// The field of plaintexts and shares.
    pub fn field(&self) -> Field {
        self.field
    }

    /// The primes of the ciphertext modulus q.
    pub fn limbs(&self) -> &[Limb] {
        &self.limbs
    }

    /// Bits of the ciphertext modulus.
    pub fn modulus_bits(&self) -> u32 {
        product_bits(&self.limbs.iter().map(|l| l.modulus().value()).collect::<Vec<_>>())
    }

    /// A fingerprint of everything that must be equal on both sides, the transforms' roots of unity included.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Bits of statistical distance that replies under these parameters must keep: 40 where the modulus
    /// leaves room for it, none for shorter ones, which make no statistical claim.
    pub fn statistical_floor(&self) -> u32 {
        if self.modulus_bits() >= 160 { 40 } else { 0 }
    }

    /// Words of a polynomial at full modulus.
    pub(crate) fn words(&self) -> usize {
        self.limbs.len() * self.degree
    }

    /// The larger basis that ciphertext-ciphertext products are computed in.
    pub(crate) fn extension(&self) -> Result<&Extension, HeError> {
        self.extension
            .get_or_init(|| Extension::new(&self.limbs, self.degree, self.field))
            .as_ref()
            .map_err(Clone::clone)
    }

    pub(crate) fn slot_index(&self) -> &[u32] {
        &self.slot_index
    }

    pub(crate) fn plaintext_plan(&self) -> &Plan {
        &self.plaintext_plan
    }

    pub(crate) fn modulus_in_field(&self) -> Factor {
        self.modulus_in_field
    }

    pub(crate) fn minus_field_inverse(&self, limb: usize) -> u64 {
        self.minus_field_inverse[limb]
    }

    pub(crate) fn dropped_inverse(&self, dropped: usize, limb: usize) -> u64 {
        self.dropped_inverse[dropped][limb]
    }
}

impl std::fmt::Debug for Parameters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let moduli: Vec<u64> = self.limbs.iter().map(|l| l.modulus().value()).collect();
        write!(
            f,
            "Parameters {{ degree: {}, moduli: {moduli:x?}, field: {:x} }}",
            self.degree,
            self.field.modulus()
        )
    }
}

/// Where slot i lies in the transform modulo p: row by row in powers of 3, so that a Galois map rotates rows.
fn slot_index(degree: usize) -> Vec<u32> {
    let shift = usize::BITS - degree.trailing_zeros();
    let reverse = |exponent: usize| ((exponent >> 1).reverse_bits() >> shift) as u32;
    let (mut power, mut index) = (1, vec![0; degree]);
    for i in 0..degree / 2 {
        index[i] = reverse(power);
        index[degree / 2 + i] = reverse(2 * degree - power);
        power = power * 3 % (2 * degree);
    }
    index
}

fn digest(degree: usize, p: u64, limbs: &[Limb], plaintext_plan: &Plan) -> u64 {
    let mut hash = blake3::Hasher::new();
    hash.update(b"secsv encryption parameters, format 1");
    hash.update(&(degree as u64).to_le_bytes()).update(&p.to_le_bytes());
    hash.update(&(VARIANCE as u64).to_le_bytes());
    // The transform of X shows which root of unity is used and in which order points are stored.
    for plan in limbs.iter().map(Limb::plan).chain([plaintext_plan]) {
        let mut x = vec![0; degree];
        x[1] = 1;
        plan.fwd(&mut x);
        hash.update(&plan.modulus().to_le_bytes());
        for point in x {
            hash.update(&point.to_le_bytes());
        }
    }
    u64::from_le_bytes(hash.finalize().as_bytes()[..8].try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_rated_at_128_bits() {
        let standard = Parameters::preset(Preset::Standard).unwrap();
        assert_eq!((standard.degree(), standard.modulus_bits(), standard.field().bits()), (8192, 162, 41));
        let compact = Parameters::preset(Preset::Compact).unwrap();
        assert_eq!((compact.degree(), compact.modulus_bits(), compact.field().bits()), (4096, 109, 40));
        assert_ne!(standard.digest(), compact.digest());
    }

    #[test]
    fn full_products_have_a_limb_more_or_are_refused() {
        let four = Parameters::for_full_products(Preset::Standard).unwrap();
        assert_eq!((four.degree(), four.modulus_bits(), four.field().bits()), (8192, 216, 41));
        let refused = Parameters::for_full_products(Preset::Compact).unwrap_err();
        assert!(matches!(refused, HeError::Budget { .. }), "{refused}");
    }

    #[test]
    fn weak_or_broken_parameters_are_refused() {
        let q = [0x3fffffffef8001, 0x3fffffffeb8001, 0x3fffffffe7c001];
        let weak = Parameters::new(4096, &q, Field::compact()).unwrap_err();
        assert_eq!(weak, HeError::Insecure { degree: 4096, expected: 109, found: 162 });
        let unknown = Parameters::new(12345, &q, Field::compact()).unwrap_err();
        assert!(matches!(unknown, HeError::Insecure { expected: 0, .. }));
        let small = Parameters::new(8192, &[q[0], Field::COMPACT], Field::compact()).unwrap_err();
        assert!(matches!(small, HeError::LimbTooSmall { limb: 1, .. }));
        let repeated = Parameters::new(8192, &[q[0], q[1], q[0]], Field::compact()).unwrap_err();
        assert!(matches!(repeated, HeError::RepeatedLimb { limb: 2, .. }));
        let composite = Parameters::new(8192, &[q[0], q[1] + 2], Field::compact()).unwrap_err();
        assert!(matches!(composite, HeError::UnusableLimb { .. }));
        let short = Parameters::new(8192, &[q[0], 0x3fffffa8001], Field::compact()).unwrap_err();
        assert!(matches!(short, HeError::UnusableLimb { .. }), "a 42-bit limb is too short for the kernel");
    }
}
