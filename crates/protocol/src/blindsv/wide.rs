//! Planes in vectors: the same formula for eight words at once, by the widest vectors that the machine has.

use std::ops::{BitAnd, BitXor, Not};

/// Words at once.
const WIDTH: usize = 8;

/// Some words of a plane.
#[derive(Clone, Copy)]
pub(super) struct Wide([u64; WIDTH]);

/// Where some words of a plane stand.
#[derive(Clone, Copy)]
pub(super) struct At {
    first: usize,
    count: usize,
}

/// Runs something compiled for the vectors that the machine has; whatever it calls must be inlined.
#[inline(always)]
pub(super) fn vectorised<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}

/// Does something for all words of planes of so many, for some of them perhaps twice.
#[inline(always)]
pub(super) fn planes_of(words: usize, mut each: impl FnMut(At)) {
    let (count, last) = (words.min(WIDTH), words.saturating_sub(WIDTH));
    // The last vector begins so early that it is a whole one.
    for vector in 0..words.div_ceil(WIDTH) {
        each(At { first: (vector * WIDTH).min(last), count });
    }
}

impl Wide {
    /// All bits set.
    pub(super) const ONES: Self = Self([u64::MAX; WIDTH]);

    /// One word, many times.
    #[inline(always)]
    pub(super) fn of(word: u64) -> Self {
        Self([word; WIDTH])
    }

    /// Some words of a plane; zeros where there is none.
    #[inline(always)]
    pub(super) fn load(plane: Option<&[u64]>, at: At) -> Self {
        let Some(plane) = plane else { return Self([0; WIDTH]) };
        match plane[at.first..].first_chunk() {
            Some(words) if at.count == WIDTH => Self(*words),
            _ => {
                let mut words = [0; WIDTH];
                words[..at.count].copy_from_slice(&plane[at.first..at.first + at.count]);
                Self(words)
            }
        }
    }

    /// Puts them in their place.
    #[inline(always)]
    pub(super) fn store(self, plane: &mut [u64], at: At) {
        match plane[at.first..].first_chunk_mut() {
            Some(words) if at.count == WIDTH => *words = self.0,
            _ => plane[at.first..at.first + at.count].copy_from_slice(&self.0[..at.count]),
        }
    }

    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl BitAnd for Wide {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        self.zip(other, |a, b| a & b)
    }
}

impl BitXor for Wide {
    type Output = Self;

    #[inline(always)]
    fn bitxor(self, other: Self) -> Self {
        self.zip(other, |a, b| a ^ b)
    }
}

impl Not for Wide {
    type Output = Self;

    #[inline(always)]
    fn not(self) -> Self {
        Self(self.0.map(|word| !word))
    }
}
