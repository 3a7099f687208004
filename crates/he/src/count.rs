//! Counts of operations: they do not flake, so tests and plans compare them exactly.

use std::ops::{Add, AddAssign, Mul};

use serde::{Deserialize, Serialize};

/// How often each operation ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations {
    /// Products of a ciphertext and a plaintext.
    pub ct_pt_mul: u64,
    /// Products of two ciphertexts.
    pub ct_ct_mul: u64,
    /// Rotations of slots.
    pub rotate: u64,
    /// Transforms of one polynomial modulo one prime, forward or back.
    pub ntt: u64,
    /// Encryptions, those of zero included.
    pub encrypt: u64,
    /// Decryptions.
    pub decrypt: u64,
}

impl Operations {
    /// Names and counts, in the order of the reports.
    pub fn entries(&self) -> [(&'static str, u64); 6] {
        [
            ("ct_pt_mul", self.ct_pt_mul),
            ("ct_ct_mul", self.ct_ct_mul),
            ("rotate", self.rotate),
            ("ntt", self.ntt),
            ("encrypt", self.encrypt),
            ("decrypt", self.decrypt),
        ]
    }

    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            ct_pt_mul: f(self.ct_pt_mul, other.ct_pt_mul),
            ct_ct_mul: f(self.ct_ct_mul, other.ct_ct_mul),
            rotate: f(self.rotate, other.rotate),
            ntt: f(self.ntt, other.ntt),
            encrypt: f(self.encrypt, other.encrypt),
            decrypt: f(self.decrypt, other.decrypt),
        }
    }
}

impl Add for Operations {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
}

impl AddAssign for Operations {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<u64> for Operations {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        self.zip(self, |a, _| a * times)
    }
}
