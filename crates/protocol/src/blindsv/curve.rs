//! Piecewise-linear functions of masked numbers: any continuous one is a line plus, at each **knot**, the change of slope there times
//! what the number is above the knot, if it is. So it takes a sign for each knot. Knots and slopes are public.

use secsv_federation::Activation;

use super::approximation::Approximation;
use crate::precision::exponent;

/// Fractional bits of slopes, at most.
const SLOPE_BITS: u32 = 12;
/// Pieces of one over a root between a number and twice it: 2 to the power of one over this is their ratio.
const PER_OCTAVE: i32 = 8;
/// Slopes are off by this much at most.
const SLOPE_ERROR: f64 = 1.0 / 4096.0;

/// A continuous function of straight pieces.
#[derive(Clone, Debug, PartialEq)]
struct Pieces {
    /// Where slopes change, in order.
    knots: Vec<f64>,
    /// Slopes below the first knot, between knots, above the last one.
    slopes: Vec<f64>,
    /// The value at the first knot, or at 0 without one.
    value: f64,
}

impl Pieces {
    /// Those of an activation, if it has them, or if they come close to it.
    fn of(activation: Activation) -> Option<Self> {
        if let Some(close) = Approximation::of(activation) {
            return Some(Self::close(close));
        }
        let (knots, slopes, value): (&[f64], Vec<f64>, f64) = match activation {
            Activation::Relu => (&[0.0], vec![0.0, 1.0], 0.0),
            Activation::LeakyRelu(slope) => (&[0.0], vec![slope, 1.0], 0.0),
            Activation::Relu6 => (&[0.0, 6.0], vec![0.0, 1.0, 0.0], 0.0),
            Activation::HardTanh => (&[-1.0, 1.0], vec![0.0, 1.0, 0.0], -1.0),
            Activation::HardSigmoid => (&[-3.0, 3.0], vec![0.0, 1.0 / 6.0, 0.0], 0.0),
            _ => return None,
        };
        Some(Self { knots: knots.to_vec(), slopes, value })
    }

    /// Those that come close to a function.
    fn close(to: Approximation) -> Self {
        let (knots, slopes): (_, Vec<f64>) = to.pieces.into_iter().unzip();
        Self { knots, slopes: [vec![0.0], slopes].concat(), value: to.first }
    }

    fn identity() -> Self {
        Self { knots: Vec::new(), slopes: vec![1.0], value: 0.0 }
    }

    fn slope(&self, x: f64) -> f64 {
        self.slopes[self.knots.partition_point(|knot| *knot <= x)]
    }

    fn at(&self, x: f64) -> f64 {
        let origin = self.knots.first().copied().unwrap_or(0.0);
        let line = self.value + (x - origin) * self.slopes[0];
        let changes = self.knots.iter().zip(self.slopes.windows(2));
        changes.fold(line, |sum, (knot, slopes)| sum + (slopes[1] - slopes[0]) * (x - knot).max(0.0))
    }

    /// This one's values of another one's.
    fn after(&self, inner: &Self) -> Self {
        let mut knots = inner.knots.clone();
        let bounds = |piece: usize| {
            let below = piece.checked_sub(1).map_or(f64::NEG_INFINITY, |knot| inner.knots[knot]);
            (below, inner.knots.get(piece).copied().unwrap_or(f64::INFINITY))
        };
        for (piece, slope) in inner.slopes.iter().enumerate().filter(|(_, slope)| **slope != 0.0) {
            let (below, above) = bounds(piece);
            let within = if below.is_finite() {
                below
            } else if above.is_finite() {
                above
            } else {
                0.0
            };
            let reached = self.knots.iter().map(|knot| within + (knot - inner.at(within)) / slope);
            knots.extend(reached.filter(|x| below < *x && *x < above));
        }
        knots.sort_by(f64::total_cmp);
        knots.dedup();
        let inside = |piece: usize| match (piece.checked_sub(1).map(|knot| knots[knot]), knots.get(piece)) {
            (None, None) => 0.0,
            (None, Some(above)) => above - 1.0,
            (Some(below), None) => below + 1.0,
            (Some(below), Some(above)) => (below + above) / 2.0,
        };
        let slopes = (0..=knots.len()).map(inside).map(|x| inner.slope(x) * self.slope(inner.at(x)));
        let slopes: Vec<f64> = slopes.collect();
        let first = knots.first().copied().unwrap_or(0.0);
        Self { value: self.at(inner.at(first)), knots, slopes }.simple()
    }

    /// Without knots at which nothing changes.
    fn simple(self) -> Self {
        let changes = |knot: usize| self.slopes[knot] != self.slopes[knot + 1];
        let kept: Vec<usize> = (0..self.knots.len()).filter(|&knot| changes(knot)).collect();
        let knots: Vec<f64> = kept.iter().map(|&knot| self.knots[knot]).collect();
        let slopes = [self.slopes[0]].into_iter().chain(kept.iter().map(|&knot| self.slopes[knot + 1]));
        let value = self.at(knots.first().copied().unwrap_or(0.0));
        Self { slopes: slopes.collect(), knots, value }
    }

    /// The largest magnitude for numbers up to `most`.
    fn largest(&self, most: f64) -> f64 {
        let inside = self.knots.iter().copied().filter(|knot| knot.abs() < most);
        inside.chain([-most, most]).map(|x| self.at(x).abs()).fold(0.0, f64::max)
    }
}

/// A piecewise-linear function as it is computed: **slopes are whole numbers**, and what comes out is so many times the function.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    pieces: Pieces,
    /// Slopes times the factor.
    slopes: Vec<i64>,
    /// What comes out over what the function gives.
    factor: f64,
}

impl Curve {
    /// That of activations one after the other; none if one of them is no piecewise-linear function.
    pub(crate) fn of(activations: &[Activation]) -> Option<Self> {
        let pieces = activations
            .iter()
            .try_fold(Pieces::identity(), |inner, activation| Some(Pieces::of(*activation)?.after(&inner)))?;
        Some(Self::new(pieces))
    }

    /// A function of recurrent units, with more pieces than it has elsewhere.
    pub(crate) fn fine(activations: &[Activation]) -> Option<Self> {
        let [activation] = activations else { return None };
        Approximation::fine(*activation).map(Pieces::close).map(Self::new)
    }

    fn new(pieces: Pieces) -> Self {
        let steepest = pieces.slopes.iter().fold(0.0f64, |most, slope| most.max(slope.abs()));
        let steepest = if steepest > 0.0 && steepest.is_finite() { steepest } else { 1.0 };
        let is_close = |bits: &u32| {
            let scale = f64::powi(2.0, *bits as i32);
            pieces.slopes.iter().all(|slope| {
                let slope = slope / steepest;
                ((slope * scale).round() / scale - slope).abs() <= SLOPE_ERROR
            })
        };
        // Slopes that have few bits as they are stay what they are.
        let power = f64::powi(2.0, exponent(steepest));
        let is_whole = |bits: &u32| {
            let scale = f64::powi(2.0, *bits as i32) / power;
            pieces.slopes.iter().all(|slope| (slope * scale).fract() == 0.0)
        };
        let factor = match (0..=SLOPE_BITS + 1).find(is_whole) {
            Some(bits) => f64::powi(2.0, bits as i32) / power,
            None => f64::powi(2.0, (0..SLOPE_BITS).find(is_close).unwrap_or(SLOPE_BITS) as i32) / steepest,
        };
        let slopes = pieces.slopes.iter().map(|slope| (slope * factor).round() as i64).collect();
        Self { pieces, slopes, factor }
    }

    /// One over the root of numbers between two to the powers of `low` and `high`: pieces so short that it is off by 2^-11 of itself.
    pub(crate) fn of_root(low: i32, high: i32) -> Self {
        let octaves = (high - low).max(1);
        // Roots and products are the same on every machine.
        let ratio = 2f64.sqrt().sqrt().sqrt();
        let places = (0..=octaves * PER_OCTAVE).scan(f64::powi(2.0, low), |next, _| {
            let place = *next;
            *next *= ratio;
            Some(place)
        });
        let knots: Vec<f64> = places.collect();
        // Between two knots a chord is above by this factor at most: half of that is taken off everywhere.
        let root = ratio.sqrt();
        let sum = ratio + root + 1.0;
        let above = 2.0 / 3.0 * sum / (ratio + root) * (sum / 3.0).sqrt();
        let value = |x: f64| 2.0 / (1.0 + above) / x.sqrt();
        let between = knots.windows(2).map(|pair| (value(pair[1]) - value(pair[0])) / (pair[1] - pair[0]));
        let slopes: Vec<f64> = [0.0].into_iter().chain(between).chain([0.0]).collect();
        // What rounded slopes leave at the far end is small beside the smallest value.
        let bits = 12 + (3 * (low + octaves) + 1).div_euclid(2);
        let factor = f64::powi(2.0, bits);
        let rounded = slopes.iter().map(|slope| (slope * factor).round() as i64).collect();
        let pieces = Pieces { value: value(knots[0]), knots, slopes };
        Self { pieces, slopes: rounded, factor }
    }

    /// Bits that numbers may have less than what comes of them: the function is flatter than a line by so many, or steeper.
    pub(crate) fn coarser(&self) -> i32 {
        let steepest = self.pieces.slopes.iter().fold(0.0f64, |most, slope| most.max(slope.abs()));
        if steepest > 0.0 { (-steepest.log2()).floor().clamp(-4.0, 4.0) as i32 } else { 0 }
    }

    /// Whether it gives back what it takes.
    pub(crate) fn is_identity(&self) -> bool {
        self.pieces == Pieces::identity()
    }

    /// Whether it is the larger of the number and zero.
    pub(crate) fn is_relu(&self) -> bool {
        Some(&self.pieces) == Pieces::of(Activation::Relu).as_ref()
    }

    /// Whether larger numbers give no smaller ones: the largest of several may be taken before it.
    pub(crate) fn is_rising(&self) -> bool {
        self.pieces.slopes.iter().all(|slope| *slope >= 0.0)
    }

    /// Signs that are found of each number.
    pub(crate) fn knots(&self) -> usize {
        self.pieces.knots.len()
    }

    /// What comes out over what the function gives, as a power of two and a factor between one half and one.
    pub(crate) fn factor(&self) -> (i32, f64) {
        let mut bits = self.factor.log2().ceil() as i32;
        while f64::powi(2.0, bits) < self.factor {
            bits += 1;
        }
        (bits, self.factor * f64::powi(0.5, bits))
    }

    /// The largest magnitude of the function for numbers of at most two to this power.
    pub(crate) fn largest(&self, bound: i32) -> f64 {
        self.pieces.largest(f64::powi(2.0, bound))
    }

    /// How far the function of whole numbers may be from the exact one, for a number of this magnitude in whole units of `unit`:
    /// slopes, knots and the value at the first are rounded.
    pub(crate) fn error(&self, magnitude: f64, unit: f64) -> f64 {
        let origin = self.pieces.knots.first().map_or(0.0, |knot| knot.abs());
        let slopes = self.slopes.iter().zip(&self.pieces.slopes);
        let of_slopes =
            slopes.map(|(whole, slope)| (*whole as f64 / self.factor - slope).abs()).fold(0.0, f64::max);
        let changes: i64 = self.slopes.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum();
        of_slopes * (magnitude + origin) + (1 + changes) as f64 / self.factor * unit / 2.0
    }

    /// For numbers T that stand for `scale` times the real ones and are at most two to the power of `bits`. Knots that they do not
    /// reach change nothing, and what is below all of them is part of the line.
    pub(crate) fn at_scale(&self, scale: f64, bits: u32) -> Knots {
        let most = f64::powi(2.0, bits as i32);
        let origin = self.pieces.knots.first().copied().unwrap_or(0.0);
        let mut line = Knots { slope: self.slopes[0], offset: 0, changes: Vec::new() };
        let mut offset = self.pieces.value * self.factor - origin * self.slopes[0] as f64;
        for (knot, slopes) in self.pieces.knots.iter().zip(self.slopes.windows(2)) {
            let (place, change) = (knot * scale, slopes[1] - slopes[0]);
            if place < -most {
                line.slope += change;
                offset -= change as f64 * knot;
            }
            let is_reached = place.abs() <= most;
            line.changes.push(if is_reached { (place.round() as i64, change) } else { (0, 0) });
        }
        Knots { offset: (offset * scale).round() as i64, ..line }
    }
}

/// A piecewise-linear function of whole numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Knots {
    /// The slope below the first knot.
    pub slope: i64,
    /// What the line below the first knot is at 0.
    pub offset: i64,
    /// Where slopes change, and by how much.
    pub changes: Vec<(i64, i64)>,
}

impl Knots {
    /// Its value, in plain integers.
    pub(crate) fn at(&self, number: i64) -> i64 {
        let line = self.offset.wrapping_add(self.slope.wrapping_mul(number));
        self.changes.iter().fold(line, |sum, (knot, change)| {
            sum.wrapping_add(change.wrapping_mul((number.wrapping_sub(*knot)).max(0)))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secsv_federation::clear::activate;

    use super::*;

    fn activation() -> impl Strategy<Value = Activation> {
        prop_oneof![
            Just(Activation::Relu),
            (-2.0f64..2.0).prop_map(Activation::LeakyRelu),
            Just(Activation::LeakyRelu(0.01)),
            Just(Activation::Relu6),
            Just(Activation::HardTanh),
            Just(Activation::HardSigmoid),
        ]
    }

    proptest! {
        /// One after the other they are one function: that of the clear, but for rounded slopes and knots.
        #[test]
        fn a_sequence_is_one_function(
            activations in prop::collection::vec(activation(), 0..4),
            numbers in prop::collection::vec(-12.0f64..12.0, 1..20),
            kappa in 0.5f64..1.0,
        ) {
            let curve = Curve::of(&activations).unwrap();
            let scale = kappa * f64::powi(2.0, 20);
            let knots = curve.at_scale(scale, 24);
            let (bits, factor) = curve.factor();
            prop_assert!(factor > 0.5 && factor <= 1.0);
            for number in numbers {
                let mut expected = [number];
                activations.iter().for_each(|activation| activate(*activation, &mut expected));
                let found = knots.at((number * scale).round() as i64) as f64;
                let found = found / (scale * factor * f64::powi(2.0, bits));
                // Slopes are off by their error times the steepest, over at most the width of each piece.
                let steepest = curve.pieces.slopes.iter().fold(0.0f64, |most, slope| most.max(slope.abs()));
                let width = curve.pieces.knots.iter().fold(number.abs(), |most, knot| most.max(knot.abs()));
                let slack = 2.0 * SLOPE_ERROR * steepest.max(1e-3) * width + 1e-4;
                prop_assert!((found - expected[0]).abs() <= slack, "{number}: {found} is not {}", expected[0]);
                prop_assert!(expected[0].abs() <= curve.largest(4) + 1e-9);
            }
        }
    }

    proptest! {
        #[test]
        fn one_over_a_root_is_close(low in -10i32..2, octaves in 1i32..11, at in 0.0f64..=1.0) {
            let curve = Curve::of_root(low, low + octaves);
            let fraction = 13 - low;
            let knots = curve.at_scale(f64::powi(2.0, fraction), (fraction + low + octaves + 1) as u32);
            let number = f64::powf(2.0, f64::from(low) + at * f64::from(octaves));
            let (bits, factor) = curve.factor();
            prop_assert_eq!(factor, 1.0);
            let found = knots.at((number * f64::powi(2.0, fraction)).round() as i64) as f64;
            let found = found / f64::powi(2.0, fraction + bits);
            let error = found * number.sqrt() - 1.0;
            prop_assert!(error.abs() < f64::powi(0.5, 11), "{number}: {found}, off by {error}");
        }
    }

    #[test]
    fn simple_functions_are_known() {
        use Activation::{HardSigmoid, HardTanh, LeakyRelu, Relu, Relu6, Square};
        assert!(Curve::of(&[]).unwrap().is_identity());
        assert!(Curve::of(&[Relu, Relu]).unwrap().is_relu());
        assert!(Curve::of(&[LeakyRelu(0.0)]).unwrap().is_relu());
        assert!(Curve::of(&[LeakyRelu(-1.0)]).unwrap().knots() == 1);
        assert_eq!(Curve::of(&[Relu, Square]), None);
        // Between 0 and 1 only one knot is left of each.
        let both = Curve::of(&[Relu6, HardTanh]).unwrap();
        assert_eq!((both.pieces.knots.clone(), both.slopes.clone()), (vec![0.0, 1.0], vec![0, 1, 0]));
        // The sixth is in what numbers stand for.
        let sigmoid = Curve::of(&[HardSigmoid]).unwrap();
        assert_eq!((sigmoid.slopes.clone(), sigmoid.factor()), (vec![0, 1, 0], (3, 0.75)));
        assert_eq!(sigmoid.largest(10), 1.0);
    }
}
