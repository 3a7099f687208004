//! Fixed-point formats that cannot wrap (PROTOCOL.md 1): from what clients publish about their weights and data to the
//! fractional bits of every operator.

use secsv_algebra::{FixedPoint, Ring};

use crate::{Error, Program};

/// What a client publishes about the size of its numbers, one entry for each operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    /// Rows of weights, biases included, have an L1 norm of at most two to this power, in all rounds.
    pub norms: Vec<i32>,
    /// Inputs are at most two to this power, as far as this client can tell.
    pub inputs: Vec<i32>,
    /// Outputs are at most two to this power on some of its samples under the models it knows; 0 where somebody reads them.
    pub outputs: Vec<i32>,
}

impl Ranges {
    /// The smallest ranges that contain all.
    pub fn union<'a>(all: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        let mut all = all.into_iter();
        let first = all.next()?.clone();
        Some(all.fold(first, |mut union, ranges| {
            union.norms.iter_mut().zip(&ranges.norms).for_each(|(a, &b)| *a = b.max(*a));
            union.inputs.iter_mut().zip(&ranges.inputs).for_each(|(a, &b)| *a = b.max(*a));
            union.outputs.iter_mut().zip(&ranges.outputs).for_each(|(a, &b)| *a = b.max(*a));
            union
        }))
    }
}

/// Formats of one operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorFormat {
    /// Fractional bits of the weights; magnitudes up to the published norm.
    pub weight: FixedPoint,
    /// Format of the inputs.
    pub input: FixedPoint,
    /// Format of the biases: that of products.
    pub bias: FixedPoint,
}

impl OperatorFormat {
    /// Fractional bits of products.
    pub fn product_bits(&self) -> u32 {
        self.weight.fractional_bits() + self.input.fractional_bits()
    }
}

/// Formats of a whole model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Precision {
    /// Of each operator.
    pub operators: Vec<OperatorFormat>,
    /// Of the update gate of a recurrent unit.
    pub gate: FixedPoint,
    /// Of u = (1 - z) n, and so of u + z h: gate and state bits together.
    pub update: FixedPoint,
}

/// No more fractional bits than this are of use: data and weights are single precision.
const MAX_BITS: i32 = 26;

/// Numbers that are added up are below two to this power: with [`MAX_BITS`] fractional ones, doubles hold them, and many stay below half of 2^64 together.
const SUM_EXPONENT: i32 = 24;

/// The shares of a round's clients add up to this much less than 1, as a power of one half: products stay below half a
/// modulus that is as close to a power of two.
const SLACK: i32 = 8;

impl Precision {
    /// As many fractional bits as fit: no product of numbers within their ranges reaches half the modulus.
    pub fn new(program: &Program, ranges: &Ranges, ring: impl Ring, clients: usize) -> Result<Self, Error> {
        Self::within(program, ranges, (ring.bits(), is_close(ring)), clients)
    }

    /// The same modulo a power of two.
    pub(crate) fn modulo_power(
        program: &Program,
        ranges: &Ranges,
        bits: u32,
        clients: usize,
    ) -> Result<Self, Error> {
        Self::within(program, ranges, (bits, false), clients)
    }

    /// The same for a modulus of so many bits, which may be close to the power of two above it.
    fn within(
        program: &Program,
        ranges: &Ranges,
        (bits, is_close): (u32, bool),
        clients: usize,
    ) -> Result<Self, Error> {
        // Magnitudes below 2^room are below half the modulus, and survive the trip through a double's 53 bits.
        let room = (bits as i32 - 2).min(61);
        // Those of products are a little below a power of two: one bit more where the modulus is as close to one.
        let products = (bits as i32 - i32::from(!is_close) - 1).min(61);
        // A client's share of the training data, on average.
        let share = -(clients.max(1) as f64).log2().round() as i32;
        let mut operators = Vec::with_capacity(program.operators.len());
        for (index, operator) in program.operators.iter().enumerate() {
            let (norm, input) = (ranges.norms[index], ranges.inputs[index]);
            // Encoded rows keep to their norm: where rounding would lead beyond it, weights are cut off instead.
            let magnitude = norm + input.max(0);
            // Encoders go through doubles, whose 53 bits must hold a bias at the scale of products.
            let fractional = (products - magnitude).min(50 - norm.max(0));
            let inputs = (operator.shape.d_in as f64).log2().round() as i32;
            // Equal parts of the error: a weight is about its share of 2^norm / d_in, a number about a quarter of the largest.
            let lean = (input - 2) - (norm - inputs + share);
            let (weight, data) = split(fractional, lean);
            if weight < 1 || data < 1 {
                let (needed, available) = (magnitude + 2, products);
                return Err(Error::Precision { layer: index + 1, needed, available });
            }
            operators.push(OperatorFormat {
                weight: FixedPoint::new(weight as u32, norm),
                input: FixedPoint::new(data as u32, input),
                bias: FixedPoint::new((weight + data) as u32, norm),
            });
        }
        let state = program.gru.map_or(0, |gru| operators[gru.hidden_operator].input.fractional_bits());
        // |u + z h| is at most 1 but for rounding.
        let gate = (room - 2 - state as i32).min(MAX_BITS - 2) as u32;
        let (gate, update) = (FixedPoint::new(gate, 0), FixedPoint::new(gate + state, 1));
        Ok(Self { operators, gate, update })
    }

    /// Of numbers that servers add up.
    pub fn sum(&self) -> FixedPoint {
        FixedPoint::new(MAX_BITS as u32, SUM_EXPONENT)
    }
}

/// Whether a modulus is so little below a power of two that products of coalitions stay below half of it.
fn is_close(ring: impl Ring) -> bool {
    let (power, modulus) = (1u128 << ring.bits(), u128::from(ring.modulus()));
    modulus != 0 && (power - modulus) << (SLACK + 1) < power
}

/// Both get at least one, however much larger the numbers on one side are.
fn split(fractional: i32, lean: i32) -> (i32, i32) {
    let most = MAX_BITS.min(fractional - 1);
    let weight = ((fractional + lean).div_euclid(2)).clamp(1.min(most), most);
    let data = (fractional - weight).min(MAX_BITS);
    ((fractional - data).min(MAX_BITS), data)
}

/// Each client's share of a round's weights, and together a little less than 1. A client encodes its model times
/// its share, so a coalition's model is the plain sum of its members' over the sum of their shares: the proportions
/// within every coalition are the same, which the rules of decryption rely on.
pub fn shares(weights: &[f64]) -> Vec<f64> {
    let total: f64 = weights.iter().sum();
    let scale = (1.0 - f64::powi(0.5, SLACK)) / if total > 0.0 { total } else { 1.0 };
    weights.iter().map(|&weight| weight * scale).collect()
}

/// The smallest power of two that is not below a magnitude.
pub fn exponent(magnitude: f64) -> i32 {
    let mut exponent = magnitude.max(f64::MIN_POSITIVE).log2().ceil() as i32;
    while f64::powi(2.0, exponent) < magnitude {
        exponent += 1;
    }
    exponent.max(-16)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use secsv_algebra::{Field, Ring64};
    use secsv_federation::{Architecture, LayerSpec, ModelSpec, Tensor, Weights};

    use super::*;
    use crate::{activation::Values, model::EncodedModel};

    /// One output of so many inputs.
    fn row(weights: &[f32], bias: f32) -> (Program, Weights) {
        let inputs = weights.len();
        let names = ["weight".to_owned(), "bias".to_owned()];
        let mut model = Weights::new();
        // Two classes, as every model has: the row is what the first is above the second.
        let both = [weights, &vec![0.0; inputs]].concat();
        model.insert(&names[0], Tensor::new(vec![2, inputs], both).unwrap());
        model.insert(&names[1], Tensor::new(vec![2], vec![bias, 0.0]).unwrap());
        let [weight, bias] = names;
        let layers = vec![LayerSpec::Linear { weight, bias: Some(bias) }];
        let spec = ModelSpec::new(vec![inputs], 2, layers);
        let file = Path::new("test");
        let architecture = Architecture::new(&spec, &model.shapes(), file, file).unwrap();
        (Program::new(&architecture).unwrap(), model)
    }

    /// The largest product that encoders let through if all clients have the same extreme model, in units of half the
    /// modulus.
    fn largest<R: Ring>(ring: R, numbers: &[f32], norm: i32, input: i32, sizes: &[f64]) -> Option<f64> {
        // Scaled to the norm that was published, the bias included.
        let sum: f64 = numbers.iter().map(|x| f64::from(x.abs())).sum::<f64>().max(1e-9);
        let scale = f64::powi(2.0, norm) / sum * (1.0 - 1e-6);
        let numbers: Vec<f32> = numbers.iter().map(|x| (f64::from(*x) * scale) as f32).collect();
        let (bias, weights) = numbers.split_first().unwrap();
        let (program, model) = row(weights, *bias);
        let ranges = Ranges { norms: vec![norm], inputs: vec![input], outputs: vec![0] };
        let precision = match Precision::new(&program, &ranges, ring, sizes.len()) {
            Ok(precision) => precision,
            Err(Error::Precision { layer: 1, .. }) => return None,
            Err(other) => panic!("{other}"),
        };
        let extreme = Values::new(1, vec![f64::powi(2.0, input); weights.len()]);
        let extreme = extreme.encode(ring, precision.operators[0].input, 1).unwrap();
        let product = |share: f64| -> i128 {
            let encoded = EncodedModel::new(&program, &precision, ring, &model, share).unwrap();
            let operator = &encoded.operators[0];
            let magnitude = |x: u64| i128::from(ring.centre(x).abs());
            let terms = (0..weights.len()).map(|o| (operator.weight.at(0, o), extreme.at(o, 0)));
            magnitude(operator.bias[0]) + terms.map(|(w, x)| magnitude(w) * magnitude(x)).sum::<i128>()
        };
        let product: i128 = shares(sizes).into_iter().map(product).sum();
        let modulus = if ring.modulus() == 0 { 1i128 << 64 } else { i128::from(ring.modulus()) };
        Some(product as f64 / (modulus as f64 / 2.0))
    }

    proptest! {
        #[test]
        fn shares_keep_the_proportions(sizes in prop::collection::vec(0.0..100_000.0f64, 1..12)) {
            let (shares, total) = (shares(&sizes), sizes.iter().sum::<f64>());
            let sum: f64 = shares.iter().sum();
            prop_assert!(sum < 1.0);
            for (share, &size) in shares.iter().zip(&sizes) {
                prop_assert!((share - size / total * 255.0 / 256.0).abs() < 1e-15);
            }
        }

        /// Whatever the row, at the largest inputs and the largest coalition: no product wraps.
        #[test]
        fn the_largest_product_does_not_wrap(
            numbers in prop::collection::vec(-1.0f32..1.0, 2..400),
            (norm, input) in (-16i32..24, -16i32..12),
            sizes in prop::collection::vec(1.0..2000.0f64, 1..8),
        ) {
            for part in [largest(Field::standard(), &numbers, norm, input, &sizes),
                largest(Field::compact(), &numbers, norm, input, &sizes),
                largest(Ring64, &numbers, norm, input, &sizes)].into_iter().flatten() {
                prop_assert!(part < 1.0, "{part}");
            }
        }

        #[test]
        fn exponents_cover(magnitude in 1e-3f64..1e6) {
            prop_assert!(f64::powi(2.0, exponent(magnitude)) >= magnitude);
        }
    }

    #[test]
    fn all_of_the_norm_in_one_place_does_not_wrap() {
        for numbers in [vec![1.0, 0.0], vec![0.0, 1.0], vec![1.0; 785], vec![0.5; 3]] {
            for (norm, input) in [(0, 0), (10, 3), (-16, 10), (3, -16), (3, 20)] {
                let part = largest(Field::standard(), &numbers, norm, input, &[3.0, 1.0, 200.0]).unwrap();
                assert!(part < 1.0, "{part}: {norm} {input}");
            }
        }
    }

    #[test]
    fn a_planted_weight_or_sample_names_its_layer() {
        let (program, _) = row(&[0.5, 0.25], 0.1);
        let ranges = Ranges { norms: vec![0], inputs: vec![0], outputs: vec![0] };
        let precision = Precision::new(&program, &ranges, Field::standard(), 4).unwrap();
        // One weight beyond the published norm; a row whose norm is beyond it though no weight is.
        let many = vec![0.9; 2];
        for weights in [vec![3.0, 0.0], [many.clone(), vec![0.9]].concat(), many.repeat(20)] {
            let (program, model) = row(&weights, 0.9);
            let found = EncodedModel::new(&program, &precision, Field::standard(), &model, 0.25);
            assert_eq!(found.err(), Some(Error::Norm { layer: 1 }), "{weights:?}");
        }
        let sample =
            Values::new(1, vec![0.5, 1.01]).encode(Field::standard(), precision.operators[0].input, 1);
        assert!(
            matches!(sample, Err(Error::OutOfRange { layer: 1, expected_exponent: 0, .. })),
            "{sample:?}"
        );
        let wide = Ranges { norms: vec![40], inputs: vec![0], outputs: vec![0] };
        let refused = Precision::new(&program, &wide, Field::standard(), 4);
        assert!(matches!(refused, Err(Error::Precision { layer: 1, .. })));
    }
}
