//! Errors of arithmetic.

/// An error of this crate. Messages name shapes, positions and exponents, never a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AlgebraError {
    /// Two matrices do not fit together.
    #[error("{operation}: expected a {}x{} matrix, found {}x{}", expected.0, expected.1, found.0, found.1)]
    Shape {
        /// The operation that was attempted.
        operation: &'static str,
        /// Rows and columns that would fit.
        expected: (usize, usize),
        /// Rows and columns that came.
        found: (usize, usize),
    },
    /// A real number is larger than its format holds.
    #[error("value out of range: expected |x| <= 2^{expected_exponent}, found |x| > 2^{found_exponent}")]
    OutOfRange {
        /// The format holds magnitudes up to two to this power.
        expected_exponent: i32,
        /// The magnitude exceeds two to this power.
        found_exponent: i32,
    },
    /// A real number is not finite.
    #[error("value is not a finite number")]
    NotFinite,
    /// A fixed-point format does not fit the ring.
    #[error("fixed point: {bits} bits of magnitude do not fit a ring of {ring_bits} bits")]
    FormatTooWide {
        /// Bits of the largest magnitude.
        bits: i32,
        /// Bits of the ring.
        ring_bits: u32,
    },
    /// An element is not reduced.
    #[error("element {index}: expected a residue below {modulus}, found a larger word")]
    Unreduced {
        /// Position of the first such element.
        index: usize,
        /// Every element must be below this.
        modulus: u64,
    },
    /// Elements of different rings meet.
    #[error("mixed rings: expected modulus {expected}, found {found}")]
    MixedRings {
        /// Modulus of the left operand (0 stands for 2^64).
        expected: u64,
        /// Modulus of the right operand.
        found: u64,
    },
    /// A number that must be an odd prime within bounds is not.
    #[error("{found} is not a usable modulus: expected an odd prime of at most {max_bits} bits")]
    BadModulus {
        /// The number offered.
        found: u64,
        /// The most bits allowed.
        max_bits: u32,
    },
}
