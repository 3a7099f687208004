//! Decryption, at full modulus and after switching to one limb.

use secsv_algebra::{Factor, Ring, Secret};

use crate::{
    HeError,
    count::Operations,
    encode::Packing,
    kernel::{self, Backend, Ciphertext, Limb},
    keys::{SecretKey, to_coefficients},
    parameters::Parameters,
    reply::{Reply, carried},
};

/// Fractional bits of the scaling constants: products with a 55-bit residue still fit 128 bits.
const FRACTION: u32 = 74;

impl SecretKey {
    /// Decrypts a ciphertext at full modulus.
    pub fn decrypt(
        &self,
        packing: Packing,
        ciphertext: &Ciphertext,
        ops: &mut Operations,
    ) -> Result<Secret<Vec<u64>>, HeError> {
        let phase = self.phase(ciphertext, ops)?;
        let parameters = &self.parameters;
        let (p, degree) = (parameters.field().modulus(), parameters.degree());
        // p x / q = sum of p y_i / q_i modulo p, where y_i = x_i (q / q_i)^-1 modulo q_i.
        let constants: Vec<(Factor, u128)> = (0..parameters.limbs().len())
            .map(|i| (idempotent_factor(parameters, i), ratio(p, &parameters.limbs()[i])))
            .collect();
        let mut message = Secret::new(vec![0; degree]);
        for (k, m) in message.expose_mut().iter_mut().enumerate() {
            let scaled: u128 = constants
                .iter()
                .enumerate()
                .map(|(i, (factor, ratio))| {
                    u128::from(factor.multiply(phase.expose()[i * degree + k])) * ratio
                })
                .sum();
            *m = parameters.field().arithmetic().reduce(round(scaled));
        }
        parameters.unpack_coefficients(packing, message.expose_mut(), ops);
        ops.decrypt += 1;
        Ok(message)
    }

    /// Decrypts a reply that was switched to one limb; what was not planned is 0, or anything in slots.
    pub fn decrypt_reply(
        &self,
        packing: Packing,
        planned: &[bool],
        reply: &Reply,
        ops: &mut Operations,
    ) -> Result<Secret<Vec<u64>>, HeError> {
        let parameters = &self.parameters;
        let positions = carried(packing, planned);
        let phase = self.reply_phase(&positions, reply, ops)?;
        let ratio = ratio(parameters.field().modulus(), &parameters.limbs()[0]);
        let mut message = Secret::new(vec![0; parameters.degree()]);
        for (&k, &x) in positions.iter().zip(phase.expose()) {
            let m = round(u128::from(x) * ratio);
            // Rounding up may reach p, which is 0.
            message.expose_mut()[k as usize] = parameters.field().arithmetic().correct(m);
        }
        parameters.unpack_coefficients(packing, message.expose_mut(), ops);
        ops.decrypt += 1;
        Ok(message)
    }

    /// c0 + c1 s of a reply, the coefficients at these positions.
    pub(crate) fn reply_phase(
        &self,
        positions: &[u32],
        reply: &Reply,
        ops: &mut Operations,
    ) -> Result<Secret<Vec<u64>>, HeError> {
        let (degree, limb) = (self.parameters.degree(), &self.parameters.limbs()[0]);
        if reply.c0.len() != positions.len() || positions.last().is_some_and(|&k| k as usize >= degree) {
            return Err(HeError::count("coefficients of a reply", positions.len(), reply.c0.len()));
        }
        let (mut c1, mut product) = (reply.c1.clone(), Secret::new(vec![0; degree]));
        limb.forward(&mut c1);
        let s = &self.points.expose()[..degree];
        kernel::multiply_add(Backend::detect(), limb, &c1, s, product.expose_mut());
        limb.backward(product.expose_mut());
        ops.ntt += 2;
        let at = positions.iter().zip(&reply.c0);
        let phase = at.map(|(&k, &c)| limb.modulus().add(product.expose()[k as usize], c));
        Ok(Secret::new(phase.collect()))
    }

    /// c0 + c1 s as coefficients, limb after limb.
    pub(crate) fn phase(
        &self,
        ciphertext: &Ciphertext,
        ops: &mut Operations,
    ) -> Result<Secret<Vec<u64>>, HeError> {
        let parameters = &self.parameters;
        if (ciphertext.limbs(), ciphertext.degree()) != (parameters.limbs().len(), parameters.degree()) {
            return Err(HeError::Mixed { what: "ciphertext" });
        }
        let mut phase = Secret::new(ciphertext.part(0).to_vec());
        let degree = parameters.degree();
        for (l, limb) in parameters.limbs().iter().enumerate() {
            let (s, target) = (
                &self.points.expose()[l * degree..][..degree],
                &mut phase.expose_mut()[l * degree..][..degree],
            );
            kernel::multiply_add(Backend::detect(), limb, ciphertext.limb(1, l), s, target);
        }
        to_coefficients(parameters, phase.expose_mut(), ops);
        Ok(phase)
    }
}

/// (q / q_i)^-1 modulo q_i.
fn idempotent_factor(parameters: &Parameters, i: usize) -> Factor {
    let modulus = parameters.limbs()[i].modulus();
    let others = parameters.limbs().iter().enumerate().filter(|(j, _)| *j != i);
    let product = others.fold(1, |x, (_, limb)| modulus.mul(x, modulus.reduce(limb.modulus().value())));
    Factor::new(modulus, modulus.inverse(product))
}

/// floor(2^FRACTION p / q).
fn ratio(p: u64, limb: &Limb) -> u128 {
    (u128::from(p) << FRACTION) / u128::from(limb.modulus().value())
}

fn round(scaled: u128) -> u64 {
    ((scaled + (1 << (FRACTION - 1))) >> FRACTION) as u64
}
