//! Noise: how much there is (for tests), how much the parameters hold.

use num_bigint::{BigInt, BigUint, Sign};
use secsv_algebra::Ring;

use crate::{
    HeError, Reply, count::Operations, encode::Packing, kernel::Ciphertext, keys::SecretKey,
    parameters::Parameters, reply::carried,
};

impl SecretKey {
    /// Bits of the largest noise coefficient. For tests and measurements: it takes a time that depends on the
    /// noise.
    pub fn measure_noise(&self, ciphertext: &Ciphertext) -> Result<u32, HeError> {
        let mut ops = Operations::default();
        let message = self.decrypt(Packing::Coefficients, ciphertext, &mut ops)?;
        let phase = self.phase(ciphertext, &mut ops)?;
        let parameters = &self.parameters;
        let (q, p) = (parameters.modulus(), BigUint::from(parameters.field().modulus()));
        let idempotents = parameters.idempotents();
        let mut largest = 0;
        for k in 0..parameters.degree() {
            let x: BigUint = (0..parameters.limbs().len())
                .map(|i| &idempotents[i] * phase.expose()[i * parameters.degree() + k])
                .sum::<BigUint>()
                % &q;
            let ideal = (&q * message.expose()[k] * 2u32 + &p) / (&p * 2u32);
            let difference = BigInt::from_biguint(Sign::Plus, x) - BigInt::from_biguint(Sign::Plus, ideal);
            let magnitude = difference.magnitude() % &q;
            largest = largest.max(magnitude.clone().min(&q - magnitude).bits());
        }
        Ok(largest as u32)
    }

    /// Bits of the largest noise coefficient of a reply that carries all, as if it still were at full
    /// modulus.
    pub fn measure_reply_noise(&self, reply: &Reply) -> Result<u32, HeError> {
        let mut ops = Operations::default();
        let planned = vec![true; self.parameters.degree()];
        let message = self.decrypt_reply(Packing::Coefficients, &planned, reply, &mut ops)?;
        let phase = self.reply_phase(&carried(Packing::Coefficients, &planned), reply, &mut ops)?;
        let (limb, p) = (&self.parameters.limbs()[0], u128::from(self.parameters.field().modulus()));
        let q = limb.modulus().value();
        let noises = phase.expose().iter().zip(message.expose()).map(|(&x, &m)| {
            let ideal = (u128::from(q) * u128::from(m) + p / 2) / p;
            limb.modulus().centre(limb.modulus().sub(x, (ideal % u128::from(q)) as u64)).unsigned_abs()
        });
        let dropped = self.parameters.modulus() / q;
        Ok((BigUint::from(noises.max().unwrap_or(0)) * dropped).bits() as u32)
    }
}

impl Parameters {
    /// The ciphertext modulus.
    pub(crate) fn modulus(&self) -> BigUint {
        self.limbs().iter().map(|l| BigUint::from(l.modulus().value())).product()
    }

    /// Noise below two to this power decrypts correctly.
    pub fn noise_capacity_bits(&self) -> u32 {
        self.modulus_bits() - self.field().bits() - 2
    }

    /// Numbers that are 1 modulo one limb and 0 modulo the others.
    pub(crate) fn idempotents(&self) -> Vec<BigUint> {
        let q = self.modulus();
        let of = |value: u64| {
            let limb = BigUint::from(value);
            let others = &q / &limb;
            let inverse = (&others % &limb).modpow(&(&limb - 2u32), &limb);
            others * inverse
        };
        self.limbs().iter().map(|l| of(l.modulus().value())).collect()
    }
}
