//! Digests as people and files write them: 64 hexadecimal digits.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// 32 bytes that stand for more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(pub [u8; 32]);

/// Text that is no [`Fingerprint`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 64 hexadecimal digits in lower case, found {found:?}")]
pub struct FingerprintError {
    /// The text.
    pub found: String,
}

impl Fingerprint {
    /// SHA-256, by which certificates are known: `openssl x509 -fingerprint -sha256` prints the same.
    pub fn sha256(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// BLAKE3, for everything of our own.
    pub fn blake3(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// From 64 digits.
    pub fn parse(text: &str) -> Result<Self, FingerprintError> {
        let bytes = from_hex(text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| FingerprintError { found: text.chars().take(80).collect() })
    }
}

/// Hexadecimal digits in lower case.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digits = bytes.iter().flat_map(|&byte| [byte >> 4, byte & 15]);
    digits.map(|digit| DIGITS[usize::from(digit)]).collect()
}

/// Bytes from digits in lower case: every byte string has one spelling.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect();
    if rest.is_empty() { bytes } else { None }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = FingerprintError;
    fn try_from(text: String) -> Result<Self, FingerprintError> {
        Self::parse(&text)
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_as_they_are_written() {
        let fingerprint = Fingerprint::blake3(b"x");
        assert_eq!(Fingerprint::parse(&fingerprint.to_string()), Ok(fingerprint));
        for bad in ["", "0", &"A".repeat(64), &"0".repeat(63), &"0".repeat(65), &"g".repeat(64)] {
            assert!(Fingerprint::parse(bad).is_err(), "{bad}");
        }
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Fingerprint::sha256(b"").to_string(), empty);
    }
}
