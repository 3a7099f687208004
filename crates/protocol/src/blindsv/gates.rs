//! What the servers make of outputs that both see under masks. An output is T, cut to few bits, plus the owner's mask v, modulo 2^t:
//! y = T + v. With m, v's top bit, and n = 1 less y's top bit, a T of at least zero is y - v + n m 2^t, exactly. Results are shared
//! modulo the next operator's words.
//!
//! - ReLU: s T, where the servers opened e = s ^ d and the owner knows d: s z is e z + (1 - 2e) d z.
//! - A piecewise-linear function: a line, and for each knot k the change of slope times the ReLU of T - k, whose mask is v too.
//! - Square: T + 2^(t-2) is at least zero; its square follows from v^2 and m v.
//! - Linear: T + 2^(t-2), less 2^(t-2).

use secsv_algebra::Secret;

use super::{
    curve::Knots,
    hops::{Gate, Hop, mask},
    lanes::LANES,
    wide::vectorised,
};

/// A number that the owner deals for each output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// v.
    Mask,
    /// v squared.
    MaskSquared,
    /// m.
    Top,
    /// m v.
    TopMask,
    /// d of the sign of a knot.
    Sign(usize),
    /// d v.
    SignMask(usize),
    /// d m.
    SignTop(usize),
}

impl Item {
    /// Bits of its shares.
    pub(super) fn bits(self, hop: &Hop) -> u32 {
        match self {
            Self::Mask | Self::MaskSquared | Self::Sign(_) | Self::SignMask(_) => hop.word,
            Self::Top | Self::SignTop(_) => hop.word - hop.kept,
            Self::TopMask => hop.word - hop.kept - 1,
        }
    }

    /// The knot whose sign it is about.
    pub(super) fn knot(self) -> Option<usize> {
        match self {
            Self::Sign(knot) | Self::SignMask(knot) | Self::SignTop(knot) => Some(knot),
            Self::Mask | Self::MaskSquared | Self::Top | Self::TopMask => None,
        }
    }

    /// Its value for a mask of `kept` bits and a sign's mask.
    pub(super) fn value(self, kept: u32, v: u64, sign: u64) -> u64 {
        let top = v >> (kept - 1) & 1;
        match self {
            Self::Mask => v,
            Self::MaskSquared => v.wrapping_mul(v),
            Self::Top => top,
            Self::TopMask => top * v,
            Self::Sign(_) => sign,
            Self::SignMask(_) => sign * v,
            Self::SignTop(_) => sign * top,
        }
    }
}

/// What is dealt for a gate.
pub(super) fn items(gate: &Gate) -> Vec<Item> {
    let mut items = vec![Item::Mask, Item::Top];
    if *gate == Gate::Square {
        items.extend([Item::MaskSquared, Item::TopMask]);
    }
    items.extend((0..gate.signs()).flat_map(|k| [Item::Sign(k), Item::SignMask(k), Item::SignTop(k)]));
    items
}

/// What a server's shares of a gate's results follow from.
pub(super) struct GateInput<'a> {
    /// What was opened of each output.
    pub public: &'a [u64],
    /// Signs as they were opened, a bit for each output, knot by knot; none where the gate needs no sign.
    pub signs: &'a [u64],
    /// The knots of a piecewise-linear function.
    pub knots: Option<&'a Knots>,
    /// The server's shares of what was dealt, in the order of [`items`].
    pub dealt: &'a [Secret<Vec<u64>>],
    /// The server's share of the constant 1: 1 or 0.
    pub one: u64,
}

/// A server's shares of a gate's results.
pub(super) fn results(hop: &Hop, input: &GateInput<'_>) -> Secret<Vec<u64>> {
    let mut found = Secret::new(vec![0; input.public.len()]);
    let out = found.expose_mut();
    let dealt = |item: usize| &input.dealt[item].expose()[..input.public.len()];
    let (kept, one) = (hop.kept, input.one);
    let (mask, top) = (dealt(0), dealt(1));
    match &hop.gate {
        Gate::Linear => vectorised(|| {
            let offset = one << (kept - 2);
            let words = out.iter_mut().zip(input.public).zip(mask).zip(top);
            for (((out, &y), &v), &m) in words {
                *out = (y * one)
                    .wrapping_sub(v)
                    .wrapping_add(not_top(y, kept) & (m << kept))
                    .wrapping_sub(offset);
            }
        }),
        Gate::Square => {
            let (squared, top_mask) = (dealt(2), dealt(3));
            vectorised(|| {
                let words = out.iter_mut().zip(input.public).zip(mask).zip(top).zip(squared).zip(top_mask);
                for (((((out, &y), &v), &m), &q), &r) in words {
                    *out = square(y, kept, one, [v, m, q, r]);
                }
            });
        }
        Gate::Relu => {
            let dealt = [mask, top, dealt(2), dealt(3), dealt(4)];
            vectorised(|| add_relu(input.public, input.signs, dealt, (0, 1), (kept, one), out));
        }
        Gate::Curve(_) => {
            let Some(knots) = input.knots else { return found };
            let words = input.public.len().div_ceil(LANES);
            vectorised(|| add_line(input.public, [mask, top], knots, (kept, one), out));
            for (index, &knot) in knots.changes.iter().enumerate() {
                let of_knot = 2 + 3 * index;
                let dealt = [mask, top, dealt(of_knot), dealt(of_knot + 1), dealt(of_knot + 2)];
                let signs = input.signs.get(index * words..).unwrap_or(&[]);
                vectorised(|| add_relu(input.public, signs, dealt, knot, (kept, one), out));
            }
        }
    }
    found
}

/// Adds shares of a line's values of T.
#[inline(always)]
fn add_line(
    public: &[u64],
    [mask, top]: [&[u64]; 2],
    knots: &Knots,
    (kept, one): (u32, u64),
    out: &mut [u64],
) {
    let (offset, slope) = (1u64 << (kept - 2), knots.slope as u64);
    let constant = (knots.offset as u64).wrapping_sub(slope.wrapping_mul(offset)).wrapping_mul(one);
    for (((out, &y), &v), &m) in out.iter_mut().zip(public).zip(mask).zip(top) {
        // T + 2^(t-2), which is at least zero.
        let y = y.wrapping_add(offset) & (u64::MAX >> (u64::BITS - kept));
        let lifted = (y * one).wrapping_sub(v).wrapping_add(not_top(y, kept) & (m << kept));
        *out = out.wrapping_add(slope.wrapping_mul(lifted)).wrapping_add(constant);
    }
}

/// Adds shares of what T is above a knot, times a change of slope. `dealt` are those of v, m, d, d v and d m.
#[inline(always)]
fn add_relu(
    public: &[u64],
    signs: &[u64],
    dealt: [&[u64]; 5],
    (knot, change): (i64, i64),
    (kept, one): (u32, u64),
    out: &mut [u64],
) {
    let of_word = |words: &'_ [u64], word: usize| word * LANES..words.len().min((word + 1) * LANES);
    let (all, knot, change) = (u64::MAX >> (u64::BITS - kept), knot as u64, change as u64);
    for (word, signs) in signs.iter().enumerate().take(public.len().div_ceil(LANES)) {
        let range = of_word(public, word);
        let [mask, top, sign, sign_mask, sign_top] = dealt.map(|dealt| &dealt[range.clone()]);
        let dealt = mask.iter().zip(top).zip(sign).zip(sign_mask).zip(sign_top);
        let words = out[range.clone()].iter_mut().zip(&public[range]).zip(dealt).zip(0..);
        for (((out, &y), ((((&v, &m), &d), &dv), &dm)), lane) in words {
            let above = relu(y.wrapping_sub(knot) & all, kept, one, signs >> lane & 1, [v, m, d, dv, dm]);
            *out = out.wrapping_add(change.wrapping_mul(above));
        }
    }
}

/// All bits set where the top bit of `kept` bits is 0.
#[inline(always)]
fn not_top(y: u64, kept: u32) -> u64 {
    (y >> (kept - 1)).wrapping_sub(1)
}

/// A share of s T, from y = T + v and e = s ^ d.
#[inline(always)]
fn relu(y: u64, kept: u32, one: u64, e: u64, [v, m, d, dv, dm]: [u64; 5]) -> u64 {
    let n = not_top(y, kept);
    let z = (y * one).wrapping_sub(v).wrapping_add(n & (m << kept));
    let dz = d.wrapping_mul(y).wrapping_sub(dv).wrapping_add(n & (dm << kept));
    // All bits set where e is 1: z less dz there, dz elsewhere.
    let e = e.wrapping_neg();
    (z & e).wrapping_add((dz ^ e).wrapping_sub(e))
}

/// A share of T squared, from y = T + 2^(t-2) + v.
#[inline(always)]
fn square(y: u64, kept: u32, one: u64, [v, m, q, r]: [u64; 4]) -> u64 {
    let n = not_top(y, kept);
    let a = y.wrapping_sub(1 << (kept - 2));
    let lifted = (a.wrapping_mul(m).wrapping_sub(r)) << (kept + 1);
    let twice = if 2 * kept < u64::BITS { m << (2 * kept) } else { 0 };
    (a.wrapping_mul(a) * one)
        .wrapping_sub((a << 1).wrapping_mul(v))
        .wrapping_add(q)
        .wrapping_add(n & lifted.wrapping_add(twice))
}

/// What a gate gives, in plain integers.
pub(crate) fn plain(gate: &Gate, knots: Option<&Knots>, t: i64) -> i64 {
    match gate {
        Gate::Linear => t,
        Gate::Relu => t.max(0),
        Gate::Square => t.wrapping_mul(t),
        Gate::Curve(_) => knots.map_or(0, |knots| knots.at(t)),
    }
}

/// T: an output without the bits that are dropped, rounded by the owner's mask of it.
pub(crate) fn cut(output: i64, dropped: u32, masks: u64) -> i64 {
    output.wrapping_add((masks & mask(dropped)) as i64) >> dropped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secsv_algebra::{Prg, Seed};
    use secsv_federation::Activation;

    use super::{
        super::{comparison::Comparison, curve::Curve},
        *,
    };

    fn hop(gate: Gate, word: u32, kept: u32, dropped: u32) -> Hop {
        let comparison = Comparison::new(kept as usize);
        let (before, largest, after) = (None, None, None);
        let is_of_model = false;
        Hop { before, largest, gate, after, numbers: 1, is_of_model, word, kept, dropped, comparison }
    }

    fn gate() -> impl Strategy<Value = Gate> {
        let curve = |activations: &[Activation]| Gate::Curve(Curve::of(activations).unwrap());
        prop::sample::select(vec![
            Gate::Linear,
            Gate::Relu,
            Gate::Square,
            curve(&[Activation::LeakyRelu(0.01)]),
            curve(&[Activation::LeakyRelu(-0.3)]),
            curve(&[Activation::HardTanh]),
            curve(&[Activation::HardSigmoid]),
            curve(&[Activation::LeakyRelu(0.2), Activation::Relu6]),
        ])
    }

    proptest! {
        /// Two servers' shares add up to the result, whatever the output, the mask, and how results are split.
        #[test]
        fn shares_add_up(
            gate in gate(),
            word in prop::sample::select(vec![40u32, 48, 56, 64]),
            kept in 6u32..=20,
            dropped in 0u32..=20,
            outputs in prop::collection::vec((any::<i64>(), any::<u64>(), any::<[bool; 3]>()), 1..200),
            seed: [u8; 32],
        ) {
            let hop = hop(gate, word, kept, dropped);
            let mut prg = Prg::new(&Seed::from_bytes(seed));
            let width = dropped + kept;
            let knots = match &hop.gate {
                Gate::Curve(curve) => Some(curve.at_scale(f64::powi(2.0, kept as i32 - 5), kept - 3)),
                _ => None,
            };
            let (mut public, mut values, mut expected) = (Vec::new(), Vec::new(), Vec::new());
            let words = outputs.len().div_ceil(64);
            let mut signs = vec![0u64; words * hop.gate.signs()];
            for (index, (output, v, d)) in outputs.iter().enumerate() {
                // As large as the width allows.
                let output = output >> (64 - (width - 2));
                let v = v & mask(width);
                let opened = (output as u64).wrapping_add(hop.offset(dropped)).wrapping_add(v) & mask(width);
                let t = cut(output, dropped, v);
                let v = v >> dropped;
                expected.push(plain(&hop.gate, knots.as_ref(), t) as u64 & mask(word));
                for knot in 0..hop.gate.signs() {
                    let place = knots.as_ref().map_or(0, |knots| knots.changes[knot].0);
                    signs[knot * words + index / 64] |= u64::from((t >= place) ^ d[knot]) << (index % 64);
                }
                public.push(opened >> dropped);
                values.push((v, d));
            }
            let mut shares: [Vec<Secret<Vec<u64>>>; 2] = [Vec::new(), Vec::new()];
            for item in items(&hop.gate) {
                let own: Vec<u64> = {
                    let mut words = vec![0; values.len()];
                    prg.fill_words(&mut words);
                    words
                };
                let bits = item.bits(&hop);
                let sign = |d: &[bool; 3]| item.knot().map_or(0, |knot| u64::from(d[knot]));
                let rest = values.iter().zip(&own).map(|((v, d), own)| item.value(kept, *v, sign(d)).wrapping_sub(*own) & mask(bits));
                shares[1].push(Secret::new(rest.collect()));
                shares[0].push(Secret::new(own.iter().map(|word| word & mask(bits)).collect()));
            }
            let [p, a] = [0, 1].map(|server| {
                let (one, knots) = (u64::from(server == 0), knots.as_ref());
                results(&hop, &GateInput { public: &public, signs: &signs, knots, dealt: &shares[server], one })
            });
            let found: Vec<u64> = p.expose().iter().zip(a.expose()).map(|(p, a)| p.wrapping_add(*a) & mask(word)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
