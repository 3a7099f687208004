//! Functions without parameters. They use additions, multiplications and divisions alone, never fused, so
//! every machine gives the same bits, and loops over them become vector instructions.

use pulp::{Arch, Simd, WithSimd};

use crate::Activation;

/// Applies a function in place: any that makes as many numbers as it takes, each in its place or run by run.
pub fn activate(activation: Activation, values: &mut [f64]) {
    Arch::new().dispatch(Activated { activation, values });
}

/// The loop over all values, compiled for the widest vectors of the machine.
struct Activated<'a> {
    activation: Activation,
    values: &'a mut [f64],
}

impl WithSimd for Activated<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let values = self.values;
        match self.activation {
            Activation::Relu => values.iter_mut().for_each(|v| *v = v.max(0.0)),
            Activation::Sigmoid => values.iter_mut().for_each(|v| *v = sigmoid(*v)),
            Activation::Tanh => values.iter_mut().for_each(|v| *v = tanh(*v)),
            Activation::Square => values.iter_mut().for_each(|v| *v *= *v),
            Activation::Softmax(width) => values.chunks_exact_mut(width).for_each(softmax),
            Activation::LeakyRelu(slope) => {
                values.iter_mut().for_each(|v| *v = if *v > 0.0 { *v } else { slope * *v })
            }
            Activation::Gelu => values.iter_mut().for_each(|v| *v = gelu(*v)),
            Activation::Silu => values.iter_mut().for_each(|v| *v *= sigmoid(*v)),
            Activation::Elu(alpha) => {
                values.iter_mut().for_each(|v| *v = if *v > 0.0 { *v } else { alpha * (exp(*v) - 1.0) })
            }
            Activation::Relu6 => values.iter_mut().for_each(|v| *v = v.clamp(0.0, 6.0)),
            Activation::HardTanh => values.iter_mut().for_each(|v| *v = v.clamp(-1.0, 1.0)),
            Activation::HardSigmoid => values.iter_mut().for_each(|v| *v = (*v / 6.0 + 0.5).clamp(0.0, 1.0)),
            // Those make other numbers of values than they take.
            Activation::MaxPool(_) | Activation::AveragePool(_) | Activation::Transpose { .. } => {}
        }
    }
}

/// The gates of one step of a recurrent unit, of a block of samples.
pub(super) struct GatedStep<'a> {
    /// `[samples, hidden]`, before and after the step.
    pub(super) state: &'a mut [f64],
    /// `W_hh h + b_hh`: `[samples, 3 hidden]`.
    pub(super) recurrent: &'a [f64],
    /// `W_ih x + b_ih` of all steps: `[samples, steps, 3 hidden]`.
    pub(super) inputs: &'a [f64],
    /// Size of the hidden state.
    pub(super) hidden: usize,
    /// Number of steps.
    pub(super) steps: usize,
    /// Which step this is.
    pub(super) step: usize,
}

impl GatedStep<'_> {
    pub(super) fn apply(self) {
        Arch::new().dispatch(self);
    }
}

impl WithSimd for GatedStep<'_> {
    type Output = ();

    /// `h = (1 - z) * n + z * h` with `n = tanh(W_in x + b_in + r * (W_hn h + b_hn))`.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let (hidden, gates) = (self.hidden, 3 * self.hidden);
        let rows = self.state.chunks_exact_mut(hidden).zip(self.recurrent.chunks_exact(gates));
        for (sample, (state, recurrent)) in rows.enumerate() {
            let input = &self.inputs[(sample * self.steps + self.step) * gates..][..gates];
            let (input_r, input) = input.split_at(hidden);
            let (input_z, input_n) = input.split_at(hidden);
            let (recurrent_r, recurrent) = recurrent.split_at(hidden);
            let (recurrent_z, recurrent_n) = recurrent.split_at(hidden);
            let (input_n, recurrent_n) = (&input_n[..hidden], &recurrent_n[..hidden]);
            for (i, state) in state.iter_mut().enumerate() {
                let reset = sigmoid(input_r[i] + recurrent_r[i]);
                let update = sigmoid(input_z[i] + recurrent_z[i]);
                let new = tanh(input_n[i] + reset * recurrent_n[i]);
                *state = (1.0 - update) * new + update * *state;
            }
        }
    }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + exp(-x))
}

/// Hyperbolic tangent, to about 1e-16 absolutely.
#[inline(always)]
pub fn tanh(x: f64) -> f64 {
    1.0 - 2.0 / (exp(2.0 * x) + 1.0)
}

/// `x` times the part of a normal distribution below `x`.
#[inline(always)]
fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

/// The error function: `2 / sqrt(pi) e^(-x^2)` times the series of `2^n x^(2n+1) / (1 * 3 * ... * (2n+1))`, whose terms all
/// have one sign. Beyond 6 it is 1 to the last bit.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > 1e-17 * sum.abs() {
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    std::f64::consts::FRAC_2_SQRT_PI * exp(-x * x) * sum
}

#[inline(always)]
fn softmax(values: &mut [f64]) {
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    values.iter_mut().for_each(|v| *v = exp(*v - largest));
    let sum: f64 = values.iter().sum();
    values.iter_mut().for_each(|v| *v /= sum);
}

/// `e^x` to two units in the last place between -708 and 709; beyond, the value at that end.
///
/// `x = k ln 2 + r` with whole `k` and `|r| <= ln 2 / 2`; `e^r` by its series up to `r^13`, whose next term
/// is below 1e-17; `2^k` by its bits. No branch depends on `x`.
#[inline(always)]
pub(super) fn exp(x: f64) -> f64 {
    /// Adding it rounds to a whole number that stands in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    /// ln 2 in two parts; the first has so few bits that `k` times it is exact.
    const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    let x = x.clamp(-708.0, 709.0);
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let r = (x - k * LN2_HIGH) - k * LN2_LOW;
    // Pairs of terms, pairs of pairs ...: a short chain of operations that wait for each other.
    let (r2, r4) = (r * r, (r * r) * (r * r));
    let pair = |a: f64, b: f64| 1.0 / a + 1.0 / b * r;
    let low = (pair(1.0, 1.0) + pair(2.0, 6.0) * r2) + (pair(24.0, 120.0) + pair(720.0, 5_040.0) * r2) * r4;
    let high = (pair(40_320.0, 362_880.0) + pair(3_628_800.0, 39_916_800.0) * r2)
        + pair(479_001_600.0, 6_227_020_800.0) * r4;
    let series = low + high * (r4 * r4);
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(1023);
    series * f64::from_bits(exponent << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> impl Iterator<Item = f64> {
        (-700_000..=700_000).map(|i| f64::from(i) * 1.001e-3)
    }

    #[test]
    fn exp_is_that_of_the_standard_library_to_two_units() {
        for x in grid().chain([0.0, -0.0, 1e-300, 708.9, -707.9]) {
            let (ours, theirs) = (exp(x), x.exp());
            assert!((ours - theirs).abs() <= 2.0 * f64::EPSILON * theirs, "{x}: {ours} {theirs}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(1e308).is_finite() && exp(-1e308) > 0.0);
    }

    #[test]
    fn sigmoid_and_tanh_keep_their_limits_and_accuracy() {
        for x in grid() {
            assert!((sigmoid(x) - 1.0 / (1.0 + (-x).exp())).abs() < 4e-16, "{x}");
            assert!((tanh(x) - x.tanh()).abs() < 6e-16, "{x}");
        }
        assert_eq!((sigmoid(800.0), tanh(800.0), tanh(-800.0)), (1.0, 1.0, -1.0));
        assert_eq!(sigmoid(0.0), 0.5);
    }

    #[test]
    fn the_error_function_has_its_known_values() {
        // Abramowitz and Stegun, table 7.1.
        let known = [(0.0, 0.0), (0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265_0)];
        for (x, expected) in known {
            assert!((erf(x) - expected).abs() < 1e-10 && erf(-x) == -erf(x), "{x}: {}", erf(x));
        }
        assert!((erf(5.999) - 1.0).abs() < 1e-14 && erf(7.0) == 1.0);
    }

    #[test]
    fn softmax_sums_to_one_whatever_the_size_of_its_input() {
        let mut values = [1e300, -1e300, 1e300, 0.0, 1.0, 2.0];
        activate(Activation::Softmax(3), &mut values);
        assert_eq!(values[0], 0.5);
        assert!((values[3..].iter().sum::<f64>() - 1.0).abs() < 1e-15);
        assert!((values[5] / values[4] - std::f64::consts::E).abs() < 1e-14);
    }
}
