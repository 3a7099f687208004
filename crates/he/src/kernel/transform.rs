//! Number-theoretic transforms modulo one limb: the tables of ours and the choice between ours and the
//! library's. Both give the same bits: the root of unity is read off the library's transform, results are
//! fully reduced.

use secsv_algebra::Modulus;
use tfhe_ntt::prime64::Plan;

use super::{
    Backend,
    roots::{Roots, TAIL, tree},
};

/// The roots of both directions.
#[derive(Clone, Debug)]
pub(crate) struct Transform {
    forward: Roots,
    backward: Roots,
}

impl Transform {
    /// Tables that do what the plan does.
    pub(crate) fn new(modulus: Modulus, degree: usize, plan: &Plan) -> Option<Self> {
        if degree < TAIL || !degree.is_power_of_two() {
            return None;
        }
        // X at the first point.
        let mut x = vec![0; degree];
        x[1] = 1;
        plan.fwd(&mut x);
        let (root, scale) = (x[0], modulus.inverse(modulus.reduce(degree as u64)));
        let forward = tree(modulus, root, degree);
        let mut backward = tree(modulus, modulus.inverse(root), degree);
        // The last stage scales both halves where it stands alone.
        if !degree.ilog2().is_multiple_of(2) {
            backward[1] = modulus.mul(backward[1], scale);
        }
        let roots = |factors| Roots::new(modulus, factors, scale);
        Some(Self { forward: roots(forward), backward: roots(backward) })
    }

    /// Coefficients to points, in place; all coefficients from `filled` on count as zero, which saves stages.
    pub(crate) fn forward(
        &self,
        backend: Backend,
        modulus: Modulus,
        plan: &Plan,
        words: &mut [u64],
        filled: usize,
    ) {
        match backend {
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(token) => super::avx2::forward(token, modulus, &self.forward, words, filled),
            _ => {
                words[filled..].fill(0);
                plan.fwd(words);
            }
        }
    }

    /// Points to coefficients, in place.
    pub(crate) fn backward(&self, backend: Backend, modulus: Modulus, plan: &Plan, words: &mut [u64]) {
        match backend {
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(token) => super::avx2::backward(token, modulus, &self.backward, words),
            _ => {
                plan.inv(words);
                plan.normalize(words);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use secsv_algebra::{Prg, Seed};

    use super::*;
    use crate::kernel::Limb;

    /// Uniform words, extremes and single coefficients, both directions, both backends, all degrees in use
    /// and around them.
    #[test]
    fn the_librarys_transform_to_the_bit() {
        let mut rng = Prg::new(&Seed::from_bytes([5; 32]));
        for degree in [32, 64, 1024, 2048, 4096, 8192, 16384] {
            for prime in [0x3fffffffef8001, 0x3fffffffe7c001, 0x7ffffffffb4001] {
                let Ok(limb) = Limb::new(prime, degree) else { continue };
                let plan = Plan::try_new(degree, prime).unwrap();
                let transform = Transform::new(limb.modulus(), degree, &plan).unwrap();
                let mut cases = vec![vec![0; degree], vec![prime - 1; degree], vec![1; degree]];
                cases.push((0..degree).map(|i| if i % 2 == 0 { prime - 1 } else { 0 }).collect());
                cases.push((0..degree).map(|i| if i < degree / 2 { 0 } else { prime - 1 }).collect());
                for _ in 0..4 {
                    let mut words = vec![0; degree];
                    rng.fill_uniform(prime, &mut words);
                    cases.push(words);
                }
                for filled in [1, 15, 16, 17, 85, 300, 2047, degree / 2, degree - 1] {
                    let (mut words, filled) = (vec![7; degree], filled.min(degree));
                    rng.fill_uniform(prime, &mut words[..filled]);
                    let [mut ours, mut theirs] = [words.clone(), words];
                    transform.forward(Backend::detect(), limb.modulus(), &plan, &mut ours, filled);
                    theirs[filled..].fill(0);
                    transform.forward(Backend::Portable, limb.modulus(), &plan, &mut theirs, degree);
                    assert!(ours == theirs, "forward, degree {degree}, filled {filled}, prime {prime:x}");
                }
                for words in cases {
                    let [mut ours, mut theirs] = [words.clone(), words.clone()];
                    transform.forward(Backend::detect(), limb.modulus(), &plan, &mut ours, degree);
                    transform.forward(Backend::Portable, limb.modulus(), &plan, &mut theirs, degree);
                    assert!(ours == theirs, "forward, degree {degree}, prime {prime:x}");
                    let [mut ours, mut theirs] = [words.clone(), words];
                    transform.backward(Backend::detect(), limb.modulus(), &plan, &mut ours);
                    transform.backward(Backend::Portable, limb.modulus(), &plan, &mut theirs);
                    assert!(ours == theirs, "backward, degree {degree}, prime {prime:x}");
                }
            }
        }
    }
}
