//! The files of a kit: their names, how they are read within bounds and written for their owner alone.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::Path,
};

use secsv_protocol::Secret;
use serde::de::DeserializeOwned;

use super::{KitDefect, KitError};

/// The private key of the certificate. Never leaves its site.
pub const PRIVATE_KEY: &str = "private-key.pem";
/// The private key that envelopes are opened with. Never leaves its site.
pub const ENVELOPE_KEY: &str = "envelope-key.pem";
/// Who this is, signed by the federation's authority.
pub const CERTIFICATE: &str = "certificate.pem";
/// The federation's authority.
pub const AUTHORITY: &str = "authority.pem";
/// What all parties agree on.
pub const FEDERATION: &str = "federation.toml";
/// The authority's signature over it, in hexadecimal digits.
pub const SIGNATURE: &str = "federation.signature";
/// The authority's private key; it stays with whoever provisions.
pub const AUTHORITY_KEY: &str = "authority-key.pem";
/// Certificates that were renewed since, if any were.
pub const RENEWAL: &str = "renewal.toml";
/// The authority's signature over it.
pub const RENEWAL_SIGNATURE: &str = "renewal.signature";
/// How names of requests end.
pub const REQUEST_SUFFIX: &str = ".request.toml";

/// More than any such file needs: a federation of 128 clients that missed every second of 9999 rounds.
const MAX_BYTES: u64 = 1 << 26;

/// Head of an X25519 private key in PKCS#8 (RFC 8410); 32 bytes follow.
const X25519_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x6e, 0x04, 0x22, 0x04, 0x20];

pub(super) fn read(path: &Path) -> Result<Vec<u8>, KitError> {
    let failed = |error| KitError::reading(path, error);
    let file = fs::File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?.len();
    if found > MAX_BYTES {
        return Err(KitError::new(path, "file", KitDefect::TooLarge { most: MAX_BYTES, found }));
    }
    let mut bytes = Vec::with_capacity(found as usize);
    file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// The bytes of a file as text.
pub(super) fn text<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a str, KitError> {
    str::from_utf8(bytes).map_err(|error| {
        let found = format!("other bytes at position {}", error.valid_up_to());
        KitError::invalid(path, "file", "UTF-8 text", found)
    })
}

/// What the TOML in a file says.
pub(super) fn from_toml<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, KitError> {
    let wrong = |error| KitError::new(path, "file", KitDefect::Toml(Box::new(error)));
    toml::from_str(text(path, bytes)?).map_err(wrong)
}

/// The bytes of a private key, refused if anybody else on the machine could read them.
pub(super) fn read_private(path: &Path) -> Result<Secret<Vec<u8>>, KitError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(path).map_err(|e| KitError::reading(path, e))?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KitError::new(path, "permissions", KitDefect::OpenToOthers { mode }));
        }
    }
    read(path).map(Secret::new)
}

/// The one object of a PEM file. Whatever is not exactly what would be written again is refused, so that a
/// changed byte does not go unnoticed in what a lenient reader would skip.
pub(super) fn pem(path: &Path, text: &[u8], tag: &'static str) -> Result<Secret<Vec<u8>>, KitError> {
    let expected = || format!("one {tag} in PEM");
    let wrong = |found: &str| KitError::invalid(path, "file", expected(), found);
    let parsed = pem::parse(text).map_err(|_| wrong("something else"))?;
    if parsed.tag() != tag {
        return Err(wrong(&format!("a {}", parsed.tag())));
    }
    let contents = Secret::new(parsed.into_contents());
    let again = Secret::new(to_pem(tag, contents.expose()));
    if again.expose().as_bytes() != text {
        return Err(wrong("text beside it, or in another form"));
    }
    Ok(contents)
}

pub(super) fn to_pem(tag: &str, contents: &[u8]) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(tag, contents), config)
}

/// Writes a file that was not there.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), KitError> {
    write_with(path, bytes, 0o644)
}

/// Writes a file that was not there and that its owner alone can read, from its first byte on.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), KitError> {
    write_with(path, bytes, 0o600)
}

fn write_with(path: &Path, bytes: &[u8], mode: u32) -> Result<(), KitError> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    options
        .open(path)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .map_err(|error| KitError::writing(path, error))
}

/// Makes a directory that its owner alone can enter; one that is there already is left as it is.
pub(super) fn make_directory(path: &Path) -> Result<(), KitError> {
    if path.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|error| KitError::writing(path, error))
}

/// An X25519 private key as others write it too, with the five bits set that the curve ignores (RFC 7748).
pub(super) fn x25519_to_pem(private: &Secret<[u8; 32]>) -> Secret<String> {
    let key = clamped(private);
    let der = Secret::new([&X25519_HEAD[..], key.expose()].concat());
    Secret::new(to_pem("PRIVATE KEY", der.expose()))
}

fn clamped(private: &Secret<[u8; 32]>) -> Secret<[u8; 32]> {
    let mut key = private.clone();
    key.expose_mut()[0] &= 0xf8;
    key.expose_mut()[31] = key.expose()[31] & 0x7f | 0x40;
    key
}

/// A key in the one spelling that is written, so that a changed bit does not go unnoticed where it makes no difference.
pub(super) fn x25519_from_pem(path: &Path, text: &[u8]) -> Result<Secret<[u8; 32]>, KitError> {
    let der = pem(path, text, "PRIVATE KEY")?;
    let key = der.expose().strip_prefix(&X25519_HEAD).and_then(|key| key.try_into().ok());
    let key = key.map(Secret::new).filter(|key| clamped(key).constant_time_eq(key));
    key.ok_or_else(|| KitError::invalid(path, "file", "an X25519 private key", "another key"))
}
