//! The largest of several masked numbers: two by two, level by level. Of two numbers under masks, a + u and b + v modulo 2^t, the
//! difference is under u - v; the sign s of a - b is compared and opened as e = s ^ d, and b + s (a - b) is shared from dealt d and
//! d (u - v), and opened under a new mask: a number modulo 2^t as before.

use std::collections::BTreeMap;

use secsv_algebra::Secret;
use secsv_federation::Pool;

use super::{hops::mask, lanes::LANES, sums::windows};

/// Which numbers are compared. Numbers are known by their places: what comes in, then the larger ones in the order of their pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tournament {
    /// Numbers that come in.
    inputs: usize,
    /// Pairs that are compared at once, level by level.
    levels: Vec<Vec<(usize, usize)>>,
    /// The places of the largest ones.
    results: Vec<usize>,
}

impl Tournament {
    /// The largest of each window of pools, one after the other; none if there is none.
    pub(crate) fn of(pools: &[Pool]) -> Option<Self> {
        let first = pools.first()?;
        let mut builder = Builder { inputs: first.input.iter().product(), ..Builder::default() };
        let mut places: Vec<usize> = (0..builder.inputs).collect();
        for pool in pools {
            let of_window = |rows: Vec<Vec<usize>>| {
                // Rows first: windows that overlap share them.
                let rows = rows.into_iter().map(|row| row.into_iter().map(|k| places[k]).collect());
                let rows: Vec<usize> = rows.filter_map(|row| builder.largest(row)).collect();
                builder.largest(rows)
            };
            // Every window has a number inside: padding is at most half of it.
            places = windows(pool).filter_map(of_window).collect();
        }
        Some(builder.finish(&places))
    }

    /// How many numbers come out.
    pub(crate) fn count(&self) -> usize {
        self.results.len()
    }

    pub(crate) fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Pairs of a level.
    pub(crate) fn pairs(&self, level: usize) -> usize {
        self.levels[level].len()
    }

    /// Numbers that there are before a level.
    fn before(&self, level: usize) -> usize {
        self.inputs + self.levels[..level].iter().map(Vec::len).sum::<usize>()
    }

    /// The first numbers less the second ones of a level's pairs, modulo 2^bits. `numbers` are known by their places.
    pub(super) fn differences(
        &self,
        level: usize,
        numbers: &[u64],
        samples: usize,
        bits: u32,
    ) -> Secret<Vec<u64>> {
        let mut found = Secret::new(Vec::with_capacity(self.pairs(level) * samples));
        for &(a, b) in &self.levels[level] {
            let pairs = numbers[a * samples..][..samples].iter().zip(&numbers[b * samples..][..samples]);
            found.expose_mut().extend(pairs.map(|(a, b)| a.wrapping_sub(*b) & mask(bits)));
        }
        found
    }

    /// The largest ones among all numbers.
    pub(super) fn results(&self, numbers: &[u64], samples: usize) -> Vec<u64> {
        self.results.iter().flat_map(|&place| &numbers[place * samples..][..samples]).copied().collect()
    }

    /// Words of the numbers that are known before a level.
    pub(super) fn known(&self, level: usize, samples: usize) -> usize {
        self.before(level) * samples
    }

    /// A server's shares of a level's larger numbers.
    pub(super) fn larger(&self, level: usize, input: &LargerInput<'_>) -> Secret<Vec<u64>> {
        let &LargerInput { public, masks, signs, dealt: [d, du], samples, one } = input;
        let mut found = Secret::new(Vec::with_capacity(self.pairs(level) * samples));
        let of =
            |words: &'_ [u64], place: usize| place * samples..(place * samples + samples).min(words.len());
        for (pair, &(a, b)) in self.levels[level].iter().enumerate() {
            for sample in 0..samples {
                let index = pair * samples + sample;
                let e = (signs[index / LANES] >> (index % LANES) & 1).wrapping_neg();
                let (y, z) = (public[of(public, a)][sample], public[of(public, b)][sample]);
                let (u, v) = (masks[of(masks, a)][sample], masks[of(masks, b)][sample]);
                let difference = y.wrapping_sub(z);
                let own = (difference * one).wrapping_sub(u.wrapping_sub(v));
                let signed = d[index].wrapping_mul(difference).wrapping_sub(du[index]);
                // Where e is 1: the difference less d times it, elsewhere d times it.
                let chosen = (own & e).wrapping_add((signed ^ e).wrapping_sub(e));
                found.expose_mut().push((z * one).wrapping_sub(v).wrapping_add(chosen));
            }
        }
        found
    }

    /// The largest ones, in plain integers, number by number for so many samples each.
    pub(crate) fn plain(&self, numbers: &[i64], samples: usize) -> Vec<i64> {
        let mut all = numbers.to_vec();
        for &(a, b) in self.levels.iter().flatten() {
            for sample in 0..samples {
                all.push(all[a * samples + sample].max(all[b * samples + sample]));
            }
        }
        self.results.iter().flat_map(|&place| &all[place * samples..][..samples]).copied().collect()
    }
}

/// What a server's shares of larger numbers follow from.
pub(super) struct LargerInput<'a> {
    /// All numbers so far, under their masks.
    pub public: &'a [u64],
    /// The server's shares of these masks.
    pub masks: &'a [u64],
    /// Signs as they were opened, a bit for each pair and sample.
    pub signs: &'a [u64],
    /// The server's shares of d and of d times the masks' difference.
    pub dealt: [&'a [u64]; 2],
    pub samples: usize,
    /// The server's share of the constant 1: 1 or 0.
    pub one: u64,
}

/// Pairs, with what was already compared.
#[derive(Default)]
struct Builder {
    inputs: usize,
    /// The two numbers of each pair, and at which level they are compared.
    pairs: Vec<(usize, usize, usize)>,
    known: BTreeMap<(usize, usize), usize>,
}

impl Builder {
    fn level(&self, place: usize) -> usize {
        place.checked_sub(self.inputs).map_or(0, |pair| self.pairs[pair].2 + 1)
    }

    /// The place of the largest of some numbers.
    fn largest(&mut self, mut places: Vec<usize>) -> Option<usize> {
        while places.len() > 1 {
            let halves = places.chunks(2).map(|pair| match *pair {
                [a, b] => self.larger(a, b),
                _ => pair[0],
            });
            places = halves.collect();
        }
        places.pop()
    }

    fn larger(&mut self, a: usize, b: usize) -> usize {
        let next = self.inputs + self.pairs.len();
        let level = self.level(a).max(self.level(b));
        *self.known.entry((a, b)).or_insert_with(|| {
            self.pairs.push((a, b, level));
            next
        })
    }

    /// Level by level: places become those of that order.
    fn finish(self, results: &[usize]) -> Tournament {
        let levels = self.pairs.iter().map(|pair| pair.2 + 1).max().unwrap_or(0);
        let mut order: Vec<usize> = (0..self.pairs.len()).collect();
        order.sort_by_key(|&pair| self.pairs[pair].2);
        let mut places: Vec<usize> = (0..self.inputs + self.pairs.len()).collect();
        order.iter().enumerate().for_each(|(k, &pair)| places[self.inputs + pair] = self.inputs + k);
        let mut found = vec![Vec::new(); levels];
        for &pair in &order {
            let (a, b, level) = self.pairs[pair];
            found[level].push((places[a], places[b]));
        }
        let results = results.iter().map(|&place| places[place]).collect();
        Tournament { inputs: self.inputs, levels: found, results }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secsv_algebra::{Prg, Seed};
    use secsv_federation::clear::pool;

    use super::*;

    fn square(channels: usize, side: usize, size: usize, stride: usize, padding: usize) -> Pool {
        let output = (side + 2 * padding - size) / stride + 1;
        Pool {
            input: [channels, side, side],
            output: [channels, output, output],
            size: [size; 2],
            stride: [stride; 2],
            padding: [padding; 2],
        }
    }

    fn draw(seed: &Seed, name: &str, count: usize, bits: u32) -> Vec<u64> {
        let mut words = vec![0; count];
        Prg::new(&seed.derive(name, 0)).fill_words(&mut words);
        words.into_iter().map(|word| word & mask(bits)).collect()
    }

    proptest! {
        /// Two servers' shares of the larger of each pair add up, level by level, and the last are those of the clear.
        #[test]
        fn shares_of_the_larger_add_up(
            channels in 1usize..3, side in 2usize..7, size in 1usize..4, stride in 1usize..3, padding in 0usize..2,
            again: bool, samples in 1usize..70, bits in 6u32..40, seed: [u8; 32],
        ) {
            let (size, padding) = (size.min(side), padding.min(size.min(side) / 2));
            let first = square(channels, side, size, stride, padding);
            let second = square(channels, first.output[1], 2.min(first.output[1]), 1, 0);
            let pools = if again { vec![first, second] } else { vec![first] };
            let tournament = Tournament::of(&pools).unwrap();
            let (seed, inputs) = (Seed::from_bytes(seed), channels * side * side);
            let numbers = draw(&seed, "numbers", inputs * samples, bits - 2);
            let numbers: Vec<i64> = numbers.iter().map(|word| *word as i64 - (1 << (bits - 3))).collect();
            let mut plain = numbers.clone();
            let mut masks = [0, 1].map(|server| draw(&seed.derive("masks", server), "first", plain.len(), bits));
            let sum = |a: u64, b: u64| a.wrapping_add(b) & mask(bits);
            let mut public: Vec<u64> = (0..plain.len()).map(|k| sum(plain[k] as u64, sum(masks[0][k], masks[1][k]))).collect();
            for level in 0..tournament.levels() {
                let count = tournament.pairs(level) * samples;
                prop_assert_eq!(tournament.known(level, samples), public.len());
                let v: Vec<u64> = masks[0].iter().zip(&masks[1]).map(|(a, b)| sum(*a, *b)).collect();
                let u = tournament.differences(level, &v, samples, bits);
                let d: Vec<u64> = draw(&seed.derive("level", level as u64), "d", count, 1);
                let mut signs = vec![0; count.div_ceil(LANES)];
                for (pair, (a, b)) in tournament.levels[level].clone().into_iter().enumerate() {
                    for sample in 0..samples {
                        let (a, b) = (plain[a * samples + sample], plain[b * samples + sample]);
                        let index = pair * samples + sample;
                        signs[index / LANES] |= (u64::from(a >= b) ^ d[index]) << (index % LANES);
                        plain.push(a.max(b));
                    }
                }
                let own = ["d", "du"].map(|name| draw(&seed.derive("own", level as u64), name, count, bits));
                let rest = [
                    (0..count).map(|k| d[k].wrapping_sub(own[0][k]) & mask(bits)).collect::<Vec<_>>(),
                    (0..count).map(|k| (d[k] * u.expose()[k]).wrapping_sub(own[1][k]) & mask(bits)).collect(),
                ];
                let shares = [(0, &own), (1, &rest)].map(|(server, dealt)| {
                    let dealt = [&dealt[0][..], &dealt[1][..]];
                    let (masks, one) = (&masks[server][..], u64::from(server == 0));
                    tournament.larger(level, &LargerInput { public: &public, masks, signs: &signs, dealt, samples, one })
                });
                for server in [0, 1] {
                    masks[server].extend(draw(&seed.derive("masks", server as u64), &format!("{level}"), count, bits));
                }
                for index in 0..count {
                    let (p, a) = (shares[0].expose()[index], shares[1].expose()[index]);
                    let at = public.len();
                    prop_assert_eq!(sum(p, a), plain[at] as u64 & mask(bits));
                    public.push(sum(sum(p, a), sum(masks[0][at], masks[1][at])));
                }
            }
            let found = tournament.plain(&numbers, samples);
            for sample in 0..samples {
                let mut expected: Vec<f64> = numbers.iter().skip(sample).step_by(samples).map(|n| *n as f64).collect();
                for shape in &pools {
                    let mut next = Vec::new();
                    pool(shape, true, &expected, &mut next);
                    expected = next;
                }
                let found = found.iter().skip(sample).step_by(samples).map(|n| *n as f64);
                prop_assert!(found.eq(expected));
            }
        }
    }

    #[test]
    fn windows_that_overlap_share_their_rows() {
        let pairs = |pool| Tournament::of(&[pool]).unwrap().levels.iter().map(Vec::len).sum::<usize>();
        assert_eq!(pairs(square(1, 4, 2, 2, 0)), 4 * 3);
        // Four windows of nine numbers: five rows of two columns, and two pairs for each window.
        assert_eq!(pairs(square(1, 5, 3, 2, 0)), 5 * 2 * 2 + 4 * 2);
        assert_eq!(pairs(square(1, 4, 1, 2, 0)), 0);
    }
}
