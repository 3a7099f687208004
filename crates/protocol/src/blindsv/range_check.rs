//! Whether hidden numbers stay in their ranges, found without opening one.
//!
//! A gate is right on T with |T| < 2^(t-2). Both servers know y = T + v modulo 2^t, so they find the sign of R = T + 2^(t-2) as gates
//! find signs (`comparison`): R has its top bit exactly where T is out of range, if T is within 3 * 2^(t-2). The sign is opened under
//! a mask d of the owner, who deals shares of 1 ^ d as a number: out of range is then a number that the servers add up, over all
//! numbers of all checked hops of all samples of all owners. The principal learns one total for each coalition.
//!
//! - **T beyond 3 * 2^(t-2)** has wrapped: it is counted if what is left is out of range, as half of all residues are; equal numbers wrap alike. Where norms prove no more than
//!   three times the range of inputs that are in theirs (`HopRange::counts_all`), no such T exists.
//! - Numbers behind one that is out of range are whatever they are; they are counted in the same way.

use secsv_algebra::Secret;

use super::{
    curve::Knots,
    hops::{Gate, Hop, mask},
    lanes::{LANES, planes},
};

/// The planes of R under its mask, from T under its mask as gates have it: y for each number.
pub(super) fn checked_planes(hop: &Hop, public: &[u64]) -> Vec<u64> {
    // Gates that need numbers above zero have added as much already.
    let middle = (1u64 << (hop.kept - 2)).wrapping_sub(hop.offset(0));
    let bits = mask(hop.kept);
    let words: Vec<u64> = public.iter().map(|y| y.wrapping_add(middle) & bits).collect();
    planes(&words, hop.kept as usize)
}

/// What the owner deals for the last step's planes: for each number 1 less the mask of the bit that is opened.
pub(super) fn masks_of_overflows(planes: &[u64], count: usize) -> Secret<Vec<u64>> {
    let bit = |number: usize| !planes[number / LANES] >> (number % LANES) & 1;
    Secret::new((0..count).map(bit).collect())
}

/// A server's share of how many numbers are out of range, from signs as they were opened and its shares of what was dealt.
pub(super) fn overflows(opened: &[u64], dealt: &[u64], one: u64) -> u64 {
    // Opened is s ^ d with s = 1 in range, dealt shares of 1 ^ d: of 1 ^ s where opened is 0, of s where it is 1.
    dealt.iter().enumerate().fold(0u64, |sum, (number, share)| {
        let bit = opened[number / LANES] >> (number % LANES) & 1;
        let signed = if bit == 1 { one.wrapping_sub(*share) } else { *share };
        sum.wrapping_add(signed)
    })
}

/// Whether T is out of range, in plain integers.
pub(super) fn is_out_of_range(kept: u32, t: i64) -> bool {
    let middle = (t as u64).wrapping_add(1 << (kept - 2));
    middle >> (kept - 1) & 1 == 1
}

/// What a gate makes of T, in range or not. `v` is its mask.
pub(super) fn gated(hop: &Hop, knots: Option<&Knots>, t: i64, v: u64) -> u64 {
    let (kept, bits) = (hop.kept, mask(hop.kept));
    let positive = |number: i64| {
        let unused = u64::BITS - kept;
        (((number as u64) << unused).cast_signed() >> unused).max(0) as u64
    };
    // As gates lift it that add as much as makes it positive.
    let middle = 1u64 << (kept - 2);
    let y = (t as u64).wrapping_add(middle).wrapping_add(v) & bits;
    let lift = if y >> (kept - 1) == 0 { (v >> (kept - 1) & 1) << kept } else { 0 };
    let lifted = y.wrapping_sub(v & bits).wrapping_add(lift).wrapping_sub(middle);
    match &hop.gate {
        Gate::Linear => lifted,
        Gate::Square => lifted.wrapping_mul(lifted),
        Gate::Relu => positive(t),
        Gate::Curve(_) => {
            let Some(Knots { slope, offset, changes }) = knots else { return 0 };
            let line = lifted.wrapping_mul(*slope as u64).wrapping_add(*offset as u64);
            let above =
                |&(knot, change): &(i64, i64)| positive(t.wrapping_sub(knot)).wrapping_mul(change as u64);
            changes.iter().map(above).fold(line, u64::wrapping_add)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use secsv_federation::Activation;

    use super::{
        super::{between::Between, curve::Curve, gates::plain},
        *,
    };

    fn hop(gate: Gate, kept: u32) -> Hop {
        let between = Between { before: None, largest: None, gate, after: None };
        Hop { word: 64, ..Hop::new(&between, 1, (kept, 0)) }
    }

    fn gates() -> Vec<Gate> {
        let curve = Curve::of(&[Activation::HardTanh]).unwrap();
        vec![Gate::Linear, Gate::Relu, Gate::Square, Gate::Curve(curve)]
    }

    proptest! {
        /// Out of range is what gates cannot be right on, as far as three times the range; what is in range stays what it is.
        #[test]
        fn numbers_out_of_range_are_told(
            gate in prop::sample::select(gates()),
            kept in 4u32..28,
            t: i32,
            v: u64,
            knot: i32,
        ) {
            let most = 1i64 << (kept - 2);
            let t = i64::from(t) % (3 * most);
            let hop = hop(gate, kept);
            let knots = Knots { slope: 3, offset: -7, changes: vec![(i64::from(knot) % most, -2), (0, 5)] };
            prop_assert_eq!(is_out_of_range(kept, t), t < -most || t >= most);
            if !is_out_of_range(kept, t) {
                prop_assert_eq!(gated(&hop, Some(&knots), t, v) as i64, plain(&hop.gate, Some(&knots), t));
            }
        }

        /// The servers' shares add up to the number of bits that are not set.
        #[test]
        fn shares_add_up(signs in prop::collection::vec(any::<bool>(), 0..200), masks: [u64; 4], own: [u64; 4]) {
            let mut opened = masks.to_vec();
            for (number, _) in signs.iter().enumerate().filter(|(_, sign)| **sign) {
                opened[number / LANES] ^= 1 << (number % LANES);
            }
            let dealt = masks_of_overflows(&masks, signs.len());
            let own: Vec<u64> = (0..signs.len()).map(|number| own[number % 4].rotate_left(number as u32)).collect();
            let rest: Vec<u64> = dealt.expose().iter().zip(&own).map(|(word, own)| word.wrapping_sub(*own)).collect();
            let sum = overflows(&opened, &own, 1).wrapping_add(overflows(&opened, &rest, 0));
            prop_assert_eq!(sum, signs.iter().filter(|sign| !**sign).count() as u64);
        }
    }
}
