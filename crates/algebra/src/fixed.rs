//! Fixed point: real numbers as ring elements, with the range checked where it could be lost.

use crate::{AlgebraError, Ring};

/// A fixed-point format: multiples of 2^-`fractional_bits` with magnitude at most 2^`exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedPoint {
    fractional_bits: u32,
    exponent: i32,
}

impl FixedPoint {
    /// A format with these fractional bits for numbers of magnitude at most 2^`exponent`.
    pub const fn new(fractional_bits: u32, exponent: i32) -> Self {
        Self { fractional_bits, exponent }
    }

    /// Bits after the binary point.
    pub const fn fractional_bits(self) -> u32 {
        self.fractional_bits
    }

    /// Magnitudes up to two to this power fit.
    pub const fn exponent(self) -> i32 {
        self.exponent
    }

    /// Whether every number of the format fits the signed half of the ring.
    pub fn check_fits(self, ring: impl Ring) -> Result<(), AlgebraError> {
        let bits = self.exponent + self.fractional_bits as i32;
        // Magnitude 2^bits must stay below modulus/2, which is at least 2^(ring bits - 2).
        if bits > ring.bits() as i32 - 2 || bits > 52 {
            return Err(AlgebraError::FormatTooWide { bits, ring_bits: ring.bits() });
        }
        Ok(())
    }

    /// The nearest element (ties to even); an error if the number is outside the range or not finite.
    pub fn encode(self, ring: impl Ring, x: f64) -> Result<u64, AlgebraError> {
        self.check_fits(ring)?;
        if !x.is_finite() {
            return Err(AlgebraError::NotFinite);
        }
        if x.abs() > f64::powi(2.0, self.exponent) {
            let found_exponent = x.abs().log2().ceil() as i32 - 1;
            return Err(AlgebraError::OutOfRange { expected_exponent: self.exponent, found_exponent });
        }
        let scaled = x * f64::powi(2.0, self.fractional_bits as i32);
        Ok(ring.embed(scaled.round_ties_even() as i64))
    }

    /// Encodes many numbers, as [`FixedPoint::encode`] does one.
    pub fn encode_all(self, ring: impl Ring, numbers: &[f64]) -> Result<Vec<u64>, AlgebraError> {
        self.check_fits(ring)?;
        let limit = f64::powi(2.0, self.exponent);
        if let Some(&bad) = numbers.iter().find(|x| x.is_nan() || x.abs() > limit) {
            // Not a number, or outside the range: say which.
            return self.encode(ring, bad).map(|_| Vec::new());
        }
        let scale = f64::powi(2.0, self.fractional_bits as i32);
        Ok(numbers.iter().map(|x| ring.embed((x * scale).round_ties_even() as i64)).collect())
    }

    /// Encodes numbers of magnitude at most `most`, which need not be a power of two: it may come closer to
    /// half the modulus than the format's own range.
    pub fn encode_within(
        self,
        ring: impl Ring,
        numbers: &[f64],
        most: f64,
    ) -> Result<Vec<u64>, AlgebraError> {
        let scale = f64::powi(2.0, self.fractional_bits as i32);
        let half = if ring.modulus() == 0 { f64::powi(2.0, 63) } else { ring.modulus() as f64 / 2.0 };
        if most * scale >= half.min(f64::powi(2.0, 52)) {
            let bits = (most * scale).log2().ceil() as i32;
            return Err(AlgebraError::FormatTooWide { bits, ring_bits: ring.bits() });
        }
        let outside = |x: &&f64| x.is_nan() || x.abs() > most;
        match numbers.iter().find(outside) {
            None => Ok(numbers.iter().map(|x| ring.embed((x * scale).round_ties_even() as i64)).collect()),
            Some(x) if x.is_nan() => Err(AlgebraError::NotFinite),
            Some(x) => Err(AlgebraError::OutOfRange {
                expected_exponent: self.exponent,
                found_exponent: x.abs().log2().ceil() as i32 - 1,
            }),
        }
    }

    /// The real number an element stands for.
    pub fn decode(self, ring: impl Ring, element: u64) -> f64 {
        ring.centre(element) as f64 * f64::powi(2.0, -(self.fractional_bits as i32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Field, Ring64};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decoding_is_within_half_a_step(x in -16.0f64..16.0, bits in 0u32..30) {
            let fixed = FixedPoint::new(bits, 4);
            for decoded in [
                fixed.decode(Field::standard(), fixed.encode(Field::standard(), x).unwrap()),
                fixed.decode(Ring64, fixed.encode(Ring64, x).unwrap()),
            ] {
                prop_assert!((decoded - x).abs() <= f64::powi(0.5, bits as i32 + 1));
            }
        }
    }

    #[test]
    fn many_numbers_are_encoded_as_each_alone() {
        let (field, fixed) = (Field::standard(), FixedPoint::new(7, 2));
        let numbers = [0.0, -4.0, 4.0, 0.00390625, -1.3, 2.9];
        let each: Vec<u64> = numbers.iter().map(|&x| fixed.encode(field, x).unwrap()).collect();
        assert_eq!(fixed.encode_all(field, &numbers).unwrap(), each);
        assert_eq!(fixed.encode_all(field, &[0.0, 4.1]), fixed.encode(field, 4.1).map(|_| vec![]));
        assert_eq!(fixed.encode_all(field, &[f64::NAN]), Err(AlgebraError::NotFinite));
    }

    #[test]
    fn up_to_half_the_modulus_fits() {
        let (field, fixed) = (Field::standard(), FixedPoint::new(30, 10));
        let most = 1023.0;
        let elements = fixed.encode_within(field, &[most, -most, 0.25], most).unwrap();
        let decoded: Vec<f64> = elements.iter().map(|&x| fixed.decode(field, x)).collect();
        assert_eq!(decoded, [most, -most, 0.25]);
        assert!(fixed.encode_within(field, &[1.0], 1024.0).is_err(), "half the modulus is a little less");
        assert!(fixed.encode_within(field, &[1.5], 1.0).is_err());
        assert_eq!(fixed.encode_within(field, &[f64::NAN], 1.0), Err(AlgebraError::NotFinite));
        let wide = FixedPoint::new(50, 0);
        assert!(wide.encode_within(Ring64, &[0.5], 1.0).is_ok());
        assert!(wide.encode_within(Ring64, &[0.5], 4.0).is_err(), "beyond what doubles hold");
    }

    #[test]
    fn a_number_out_of_range_is_an_error() {
        let (field, fixed) = (Field::standard(), FixedPoint::new(10, 3));
        assert!(fixed.encode(field, 8.0).is_ok() && fixed.encode(field, -8.0).is_ok());
        let error = fixed.encode(field, 8.0001).unwrap_err();
        assert_eq!(error, AlgebraError::OutOfRange { expected_exponent: 3, found_exponent: 3 });
        assert_eq!(fixed.encode(field, f64::NAN), Err(AlgebraError::NotFinite));
        assert!(FixedPoint::new(30, 10).encode(field, 0.0).is_err(), "40 bits do not fit half of 41");
        assert!(FixedPoint::new(30, 9).encode(field, 512.0).is_ok());
    }
}
