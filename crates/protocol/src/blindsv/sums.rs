//! Sums over numbers of one sample, such as average pools, and other orders of them: linear and public, so each server adds up its own
//! shares. What is a mean is left a sum; what it is divided by goes into what numbers stand for.

use secsv_federation::{Activation, Pool};

/// For each result the numbers that it is the sum of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Those of all results, one behind the other.
    sources: Vec<usize>,
    /// Where each result's end.
    ends: Vec<usize>,
    /// A result is so many times what the layers give.
    factor: usize,
}

impl Sums {
    /// From the numbers of each result, which is so many times what the layers give.
    fn new(results: impl Iterator<Item = Vec<usize>>, factor: usize) -> Self {
        let mut sums = Self { sources: Vec::new(), ends: Vec::new(), factor };
        for result in results {
            sums.sources.extend(result);
            sums.ends.push(sums.sources.len());
        }
        sums
    }

    /// Another order: result k is this number.
    pub(crate) fn order(order: impl Iterator<Item = usize>) -> Self {
        Self::new(order.map(|source| vec![source]), 1)
    }

    /// An activation, if it is linear.
    pub(crate) fn of(activation: &Activation) -> Option<Self> {
        match *activation {
            Activation::AveragePool(pool) => {
                Some(Self::new(windows(&pool).map(|rows| rows.concat()), pool.size[0] * pool.size[1]))
            }
            Activation::Transpose { rows, columns } => {
                Some(Self::order((0..rows * columns).map(|k| k % rows * columns + k / rows)))
            }
            _ => None,
        }
    }

    fn results(&self) -> impl Iterator<Item = &[usize]> {
        let begins = [0].into_iter().chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, &end)| &self.sources[begin..end])
    }

    /// Sums of these sums.
    pub(crate) fn then(&self, next: &Self) -> Self {
        let of_own: Vec<&[usize]> = self.results().collect();
        let joined = |result: &[usize]| result.iter().flat_map(|&k| of_own[k]).copied().collect();
        Self::new(next.results().map(joined), self.factor * next.factor)
    }

    /// Whether each result is one of the numbers: a function of each may be taken before or behind.
    pub(crate) fn is_order(&self) -> bool {
        self.factor == 1 && self.ends.iter().copied().eq(1..=self.ends.len())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }

    /// A result is so many times what the layers give. No more numbers than that are in one.
    pub(crate) fn factor(&self) -> usize {
        self.factor
    }

    /// Adds shares of numbers, number by number for so many samples each.
    pub(crate) fn words(&self, numbers: &[u64], samples: usize) -> Vec<u64> {
        let mut found = vec![0u64; self.count() * samples];
        for (sum, sources) in found.chunks_exact_mut(samples.max(1)).zip(self.results()) {
            for &source in sources {
                let words = &numbers[source * samples..][..samples];
                sum.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
            }
        }
        found
    }
}

/// The windows of a pool, each row by row; what is padded is left out.
pub(crate) fn windows(pool: &Pool) -> impl Iterator<Item = Vec<Vec<usize>>> + use<> {
    let Pool { input, output, size, stride, padding } = *pool;
    let [channels, rows, columns] = output;
    let along = move |axis: usize, place: usize| {
        let inside =
            (0..size[axis]).filter_map(move |k| (place * stride[axis] + k).checked_sub(padding[axis]));
        inside.filter(move |at| *at < input[1 + axis])
    };
    let places =
        (0..channels * rows * columns).map(move |k| (k / (rows * columns), k / columns % rows, k % columns));
    places.map(move |(channel, row, column)| {
        let of_row = |y| along(1, column).map(|x| (channel * input[1] + y) * input[2] + x).collect();
        along(0, row).map(of_row).collect()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secsv_federation::clear::{pool, transpose};

    use super::*;

    prop_compose! {
        fn some_pool()(
            channels in 1usize..3, size in (1usize..4, 1usize..4), stride in (1usize..3, 1usize..3),
            extra in (0usize..4, 0usize..4), padding in 0usize..2,
        ) -> Pool {
            let (input, size) = ([channels, size.0 + extra.0, size.1 + extra.1], [size.0, size.1]);
            let (stride, padding) = ([stride.0, stride.1], [padding.min(size[0] / 2), padding.min(size[1] / 2)]);
            let places = |axis: usize| (input[1 + axis] + 2 * padding[axis] - size[axis]) / stride[axis] + 1;
            Pool { input, output: [channels, places(0), places(1)], size, stride, padding }
        }
    }

    proptest! {
        /// Sums over windows are means times their size, alone and one after the other.
        #[test]
        fn sums_are_those_of_the_clear(shape in some_pool(), samples in 1usize..3) {
            let [c, h, w] = shape.input;
            let sums = Sums::of(&Activation::AveragePool(shape)).unwrap();
            let [_, rows, columns] = shape.output;
            let turned = sums.then(&Sums::of(&Activation::Transpose { rows: c, columns: rows * columns }).unwrap());
            prop_assert_eq!(sums.factor(), shape.size[0] * shape.size[1]);
            let numbers: Vec<u64> = (0..(c * h * w * samples) as u64).map(|k| k * k % 1009).collect();
            let (found, turned) = (sums.words(&numbers, samples), turned.words(&numbers, samples));
            for sample in 0..samples {
                let own: Vec<f64> = numbers.iter().skip(sample).step_by(samples).map(|k| *k as f64).collect();
                let (mut means, mut expected) = (Vec::new(), Vec::new());
                pool(&shape, false, &own, &mut means);
                transpose(c, rows * columns, &means, &mut expected);
                for (found, means) in [(&found, &means), (&turned, &expected)] {
                    let found = found.iter().skip(sample).step_by(samples);
                    let scaled = means.iter().map(|mean| (mean * sums.factor() as f64).round() as u64);
                    prop_assert!(found.copied().eq(scaled));
                }
            }
        }

        #[test]
        fn an_order_is_told_from_a_sum(shape in some_pool()) {
            let sums = Sums::of(&Activation::AveragePool(shape)).unwrap();
            prop_assert_eq!(sums.is_order(), shape.size == [1, 1]);
            let order = Sums::of(&Activation::Transpose { rows: 3, columns: 4 }).unwrap();
            prop_assert!(order.is_order() && order.then(&order).is_order());
        }
    }
}
