//! Element types of tensors, and what they become.

use safetensors::Dtype;

use crate::{Defect, Tensor};

/// Whole numbers up to this size are exact in single precision.
const MOST_EXACT: i64 = 1 << 24;

/// The floating-point types of weights.
#[derive(Clone, Copy)]
pub(super) enum Floats {
    Half,
    Brain,
    Single,
    Double,
}

impl Floats {
    pub(super) fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F16 => Some(Self::Half),
            Dtype::BF16 => Some(Self::Brain),
            Dtype::F32 => Some(Self::Single),
            Dtype::F64 => Some(Self::Double),
            _ => None,
        }
    }

    /// A tensor of these bytes, as precise as they are.
    pub(super) fn tensor(self, shape: Vec<usize>, bytes: &[u8]) -> Result<Tensor, Defect> {
        let pair = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
        match self {
            Self::Half => Tensor::new(shape, bytes.chunks_exact(2).map(|b| from_half(pair(b))).collect()),
            Self::Brain => {
                let single = |b: &[u8]| f32::from_bits(u32::from(pair(b)) << 16);
                Tensor::new(shape, bytes.chunks_exact(2).map(single).collect())
            }
            Self::Single => {
                let single = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                Tensor::new(shape, bytes.chunks_exact(4).map(single).collect())
            }
            Self::Double => {
                let double = |b: &[u8]| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
                Tensor::of_doubles(shape, bytes.chunks_exact(8).map(double).collect())
            }
        }
    }
}

/// IEEE 754 half precision: a sign, 5 bits of exponent, 10 of the fraction.
fn from_half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (bits >> 10 & 31, f32::from(bits & 1023));
    match exponent {
        0 => sign * fraction * f32::powi(2.0, -24),
        31 if fraction == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        _ => sign * (1.0 + fraction / 1024.0) * f32::powi(2.0, i32::from(exponent) - 15),
    }
}

/// Integers of any type; none if the type is another one. Beyond 63 bits they are the largest there is.
pub(super) fn integers(dtype: Dtype, bytes: &[u8]) -> Option<Vec<i64>> {
    macro_rules! widened {
        ($integer:ty) => {{
            let (elements, _) = bytes.as_chunks::<{ size_of::<$integer>() }>();
            let widen = |b: &[u8; size_of::<$integer>()]| {
                i64::try_from(<$integer>::from_le_bytes(*b)).unwrap_or(i64::MAX)
            };
            elements.iter().map(widen).collect()
        }};
    }
    Some(match dtype {
        Dtype::BOOL => bytes.iter().map(|&b| i64::from(b != 0)).collect(),
        Dtype::U8 => widened!(u8),
        Dtype::I8 => widened!(i8),
        Dtype::U16 => widened!(u16),
        Dtype::I16 => widened!(i16),
        Dtype::U32 => widened!(u32),
        Dtype::I32 => widened!(i32),
        Dtype::U64 => widened!(u64),
        Dtype::I64 => widened!(i64),
        _ => return None,
    })
}

/// Integers in single precision; what would be rounded is refused.
pub(super) fn exact_singles(integers: &[i64]) -> Result<Vec<f32>, Defect> {
    let fits = |value: &i64| (-MOST_EXACT..=MOST_EXACT).contains(value);
    match integers.iter().position(|value| !fits(value)) {
        Some(position) => Err(Defect::NotExact { position, found: integers[position] }),
        None => Ok(integers.iter().map(|&value| value as f32).collect()),
    }
}

/// Floating-point numbers that are whole.
pub(super) fn whole_numbers(numbers: &[f64]) -> Result<Vec<i64>, Defect> {
    match numbers.iter().position(|number| number.fract() != 0.0) {
        Some(position) => Err(Defect::NotWhole { position, found: numbers[position] }),
        None => Ok(numbers.iter().map(|&number| number as i64).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_read_bit_by_bit() {
        let cases = [
            (0x0000, 0.0),
            (0x8000, -0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_5e-8),
            (0x03ff, 6.097_555e-5),
            (0x0400, 6.103_515_6e-5),
            (0x3555, 0.333_251_95),
            (0xfc00, f32::NEG_INFINITY),
        ];
        for (bits, expected) in cases {
            assert_eq!(from_half(bits).to_bits(), f32::to_bits(expected), "{bits:#x}");
        }
        assert!(from_half(0x7e00).is_nan());
    }

    #[test]
    fn integers_of_every_type_are_widened() {
        let negative = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        for (dtype, size) in [(Dtype::I8, 1), (Dtype::I16, 2), (Dtype::I32, 4), (Dtype::I64, 8)] {
            assert_eq!(integers(dtype, &negative[..size]), Some(vec![-2]));
        }
        for (dtype, size) in [(Dtype::U8, 1), (Dtype::U16, 2), (Dtype::U32, 4), (Dtype::U64, 8)] {
            let mut three = vec![0; size];
            three[0] = 3;
            assert_eq!(integers(dtype, &three), Some(vec![3]));
        }
        assert_eq!(integers(Dtype::U64, &negative), Some(vec![i64::MAX]));
        assert_eq!(integers(Dtype::BOOL, &[0, 1, 7]), Some(vec![0, 1, 1]));
        assert_eq!(integers(Dtype::F32, &[0; 4]), None);
        assert!(exact_singles(&[1 << 24, -3]).is_ok() && exact_singles(&[(1 << 24) + 1]).is_err());
        assert!(whole_numbers(&[1.0, -0.0]).is_ok() && whole_numbers(&[0.5]).is_err());
    }
}
