//! Every pair of small numbers, and random ones of every width: the servers' shares add up to the sign.

use proptest::prelude::*;
use secsv_algebra::{Prg, Seed};

use super::super::lanes::planes;
use super::*;

/// The signs of T = y - v, as two servers find them from what an owner deals: a plane.
fn signs(bits: usize, y: &[u64], v: &[u64], seed: u64) -> Vec<u64> {
    let times = y.len().div_ceil(64) / v.len().div_ceil(64).max(1);
    let comparison = Comparison::new(bits);
    let mut prg = Prg::new(&Seed::from_bytes([7; 32]).derive("masks", seed));
    let mut draw = |count: usize| {
        let mut words = vec![0; count];
        prg.fill_words(&mut words);
        words
    };
    let xor = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| a ^ b).collect::<Vec<u64>>();
    let (y, v) = (planes(y, bits), planes(v, bits));
    let numbers = y.len() / bits;
    let compared = Compared { words: v.len() / bits, times };
    let (mut public, mut masks) = (Vec::new(), [Vec::new(), Vec::new()]);
    for step in 0..comparison.steps() {
        let mut dealt = Vec::new();
        comparison.deal(step, &v, &xor(&masks[0], &masks[1]), compared, &mut dealt);
        assert_eq!(dealt.len(), comparison.dealt(step, compared));
        let own = draw(dealt.len());
        let shares = [own.clone(), xor(&dealt, &own)];
        let ones = [u64::MAX, 0];
        let found = [0, 1].map(|server| {
            let mut out = Vec::new();
            let before = Before { opened: &public, masks: &masks[server] };
            comparison.step(step, &y, before, &shares[server], (compared, ones[server]), &mut out);
            assert_eq!(out.len(), comparison.opened(step) * numbers);
            out
        });
        let count = comparison.opened(step) * numbers;
        masks = [draw(count), draw(count)];
        public = xor(&xor(&found[0], &masks[0]), &xor(&found[1], &masks[1]));
    }
    xor(&public, &xor(&masks[0], &masks[1]))
}

fn expected(bits: usize, y: u64, v: u64) -> u64 {
    let difference = y.wrapping_sub(v) << (64 - bits);
    u64::from(difference as i64 >= 0)
}

#[test]
fn all_pairs_of_small_numbers() {
    for bits in 2..=7 {
        for y in 0..1u64 << bits {
            for first in (0..1u64 << bits).step_by(64) {
                let v: Vec<u64> = (first..(first + 64).min(1 << bits)).collect();
                let found = signs(bits, &vec![y; v.len()], &v, y ^ first << 8)[0];
                for (lane, &v) in v.iter().enumerate() {
                    assert_eq!(found >> lane & 1, expected(bits, y, v), "{bits} bits: {y} - {v}");
                }
            }
        }
    }
}

proptest! {
    /// Several numbers under one mask: what is dealt of its bits is dealt once.
    #[test]
    fn numbers_with_one_mask(
        bits in 2usize..=40,
        v in prop::collection::vec(any::<u64>(), 64),
        places in prop::collection::vec(any::<u64>(), 1..5),
        seed: u64,
    ) {
        let mask = (1u64 << bits) - 1;
        let v: Vec<u64> = v.into_iter().map(|v| v & mask).collect();
        let y: Vec<u64> = places.iter().flat_map(|place| v.iter().map(move |v| v.wrapping_add(*place) & mask)).collect();
        for (place, found) in places.iter().zip(signs(bits, &y, &v, seed)) {
            prop_assert_eq!(found, expected(bits, place & mask, 0).wrapping_neg());
        }
    }

    #[test]
    fn numbers_of_every_width(
        bits in 2usize..=40,
        pairs in prop::collection::vec((any::<u64>(), any::<u64>(), 0u8..4), 1..1400),
        seed: u64,
    ) {
        let mask = (1u64 << bits) - 1;
        // Ties and neighbours as often as others.
        let (y, v): (Vec<u64>, Vec<u64>) = pairs.iter().map(|&(y, v, near)| match near {
            0 => (y & mask, v & mask),
            near => (y & mask, y.wrapping_add(u64::from(near)).wrapping_sub(2) & mask),
        }).unzip();
        let found = signs(bits, &y, &v, seed);
        for (index, (y, v)) in y.iter().zip(&v).enumerate() {
            prop_assert_eq!(found[index / 64] >> (index % 64) & 1, expected(bits, *y, *v));
        }
    }
}
