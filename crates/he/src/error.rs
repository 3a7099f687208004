//! Errors of matrices that are encrypted, multiplied or read from the wire.

use secsv_algebra::AlgebraError;

/// An error of this crate. Messages name shapes, counts and parameters, never a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeError {
    /// Parameters that the Homomorphic Encryption Standard does not rate at 128 bits.
    #[error(
        "degree {degree}: expected at most {expected} bits of ciphertext modulus for 128-bit security, found {found}"
    )]
    Insecure {
        /// Degree of the polynomials.
        degree: usize,
        /// The standard's bound; 0 where it lists no such degree.
        expected: u32,
        /// Bits of the modulus offered.
        found: u32,
    },
    /// A plaintext modulus that does not fit below every ciphertext limb.
    #[error(
        "limb {limb} of the ciphertext modulus: expected more than the plaintext modulus {plaintext}, found {found}"
    )]
    LimbTooSmall {
        /// Position of the limb.
        limb: usize,
        /// The plaintext modulus.
        plaintext: u64,
        /// The limb offered.
        found: u64,
    },
    /// A limb that is there twice.
    #[error(
        "limb {limb} of the ciphertext modulus: expected a prime that is not there yet, found {found} again"
    )]
    RepeatedLimb {
        /// Position of the second one.
        limb: usize,
        /// The limb offered.
        found: u64,
    },
    /// A limb the transforms or the kernel cannot use.
    #[error(
        "limb {found}: expected a prime 2^54 - c or 2^55 - c, c below 2^22, that is 1 modulo {twice_degree}"
    )]
    UnusableLimb {
        /// The limb offered.
        found: u64,
        /// Twice the degree of the polynomials.
        twice_degree: u64,
    },
    /// A public key that is no encryption of zero under the secret key it is said to belong to.
    #[error("the public key is no encryption of zero under the secret key, with an error as small as one")]
    PublicKey,
    /// A number of limbs or terms outside what is supported.
    #[error("{what}: expected {expected}, found {found}")]
    Count {
        /// The things that were counted.
        what: &'static str,
        /// Number that is expected.
        expected: usize,
        /// Number that was found.
        found: usize,
    },
    /// Operands of different parameters meet.
    #[error("{what}: made under other parameters")]
    Mixed {
        /// The operand.
        what: &'static str,
    },
    /// A layer's shape does not fit the method or the operand.
    #[error("{what}: expected {}x{}, found {}x{}", expected.0, expected.1, found.0, found.1)]
    Shape {
        /// The operand.
        what: &'static str,
        /// Rows and columns that would fit.
        expected: (usize, usize),
        /// Rows and columns that came.
        found: (usize, usize),
    },
    /// A block that does not fit the layer or the degree.
    #[error(
        "a block of {rows}x{columns}x{samples}: expected positive sizes with a product of at most {degree}"
    )]
    BlockShape {
        /// Rows of a block.
        rows: usize,
        /// Columns of a block.
        columns: usize,
        /// Samples of a group.
        samples: usize,
        /// Degree of the polynomials.
        degree: usize,
    },
    /// The noise of this operation does not fit these parameters.
    #[error("{operation} needs {needed} bits of noise budget, the parameters leave {available}")]
    Budget {
        /// The operation that was asked for.
        operation: &'static str,
        /// Bits it takes.
        needed: u32,
        /// Bits there are.
        available: u32,
    },
    /// A reply that would keep too little statistical distance.
    #[error("this reply would keep {found} bits of statistical distance, {expected} are required")]
    Statistical {
        /// Bits the parameters promise.
        expected: u32,
        /// Bits this reply would keep.
        found: u32,
    },
    /// A rotation without its key.
    #[error("no key for a rotation by {step}")]
    MissingRotationKey {
        /// The rotation asked for.
        step: usize,
    },
    /// Rotation steps that do not ascend.
    #[error("rotation steps: expected each above the one before it, found {found} at {index}")]
    Steps {
        /// Position of the first such step.
        index: usize,
        /// The step there.
        found: usize,
    },
    /// Bytes that are no encoding of what was expected.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Numbers or matrices that do not fit.
    #[error(transparent)]
    Algebra(#[from] AlgebraError),
}

impl HeError {
    /// The error that there are more or fewer of something than expected.
    pub fn count(what: &'static str, expected: usize, found: usize) -> Self {
        Self::Count { what, expected, found }
    }
}

/// Why bytes were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Too few or too many bytes.
    #[error("expected {expected} bytes, found {found}")]
    Length {
        /// The exact length of this object under these parameters.
        expected: usize,
        /// The length that came.
        found: usize,
    },
    /// Not one of ours.
    #[error("expected the magic bytes {expected:02x?}, found {found:02x?}")]
    Magic {
        /// The first bytes of every object.
        expected: [u8; 3],
        /// The value that was found.
        found: [u8; 3],
    },
    /// Another version of the format.
    #[error("expected format version {expected}, found {found}")]
    Version {
        /// The version this code writes and reads.
        expected: u8,
        /// The value that was found.
        found: u8,
    },
    /// Another kind of object.
    #[error("expected an object of kind {expected}, found {found}")]
    Kind {
        /// The kind asked for.
        expected: u8,
        /// The value that was found.
        found: u8,
    },
    /// Made under other parameters or for another layout.
    #[error("expected parameter digest {expected:016x}, found {found:016x}")]
    Parameters {
        /// Digest of this side's parameters.
        expected: u64,
        /// Digest in the object.
        found: u64,
    },
    /// A word that is no residue.
    #[error("word {index}: expected a residue below {modulus}, found a larger number")]
    Unreduced {
        /// Position of the word.
        index: usize,
        /// Every word must be below this.
        modulus: u64,
    },
}
