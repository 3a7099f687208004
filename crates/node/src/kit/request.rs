//! What a site makes for itself and sends: keys that stay, and a request that goes to whoever provisions.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rand::{TryRngCore as _, rngs::OsRng};
use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType, DnValue, KeyPair,
    PublicKey, PublicKeyData as _, SigningKey as _,
};
use secsv_federation::ClientId;
use secsv_protocol::{EnvelopeKeys, Secret, Seed};
use serde::{Deserialize, Serialize};

use super::{
    KitDefect, KitError,
    certificates::{generate_key, is_signed, made},
    files::{
        ENVELOPE_KEY, PRIVATE_KEY, REQUEST_SUFFIX, from_toml, make_directory, pem, read, to_pem, write,
        write_private, x25519_to_pem,
    },
};
use crate::{
    Fingerprint,
    fingerprint::{from_hex, to_hex},
};

const FORMAT: u32 = 1;
const REQUEST_TAG: &str = "CERTIFICATE REQUEST";

/// A request as it lies in its file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestFile {
    format: u32,
    id: ClientId,
    envelope_key: Fingerprint,
    certificate_request: String,
    /// The signature of the certificate's key over everything above.
    proof: String,
}

/// A request whose signatures hold.
pub struct Request {
    /// Who asks.
    pub id: ClientId,
    /// The file it came in.
    pub file: PathBuf,
    /// Short enough to be read over a telephone: both sides compute it from the file.
    pub fingerprint: String,
    pub(super) key: PublicKey,
    pub(super) envelope_key: Fingerprint,
}

/// The private keys of one party.
pub(super) struct PartyKeys {
    pub(super) certificate: KeyPair,
    pub(super) envelope: EnvelopeKeys,
}

impl PartyKeys {
    pub(super) fn generate(file: &Path) -> Result<Self, KitError> {
        let mut bytes = [0; 32];
        OsRng.try_fill_bytes(&mut bytes).map_err(|error| {
            KitError::new(file, "file", KitDefect::Unwritable(std::io::Error::other(error.to_string())))
        })?;
        let seed = Seed::from_bytes(bytes);
        Ok(Self { certificate: generate_key(file)?, envelope: EnvelopeKeys::derive(&seed) })
    }

    /// Writes both keys for their owner alone.
    pub(super) fn write(&self, directory: &Path) -> Result<(), KitError> {
        let certificate = Secret::new(to_pem("PRIVATE KEY", self.certificate.serialized_der()));
        write_private(&directory.join(PRIVATE_KEY), certificate.expose().as_bytes())?;
        let envelope = x25519_to_pem(&self.envelope.private());
        write_private(&directory.join(ENVELOPE_KEY), envelope.expose().as_bytes())
    }
}

/// Makes a party's keys in a directory, and the request that goes with them. Nothing is overwritten.
pub fn generate_keys(id: &ClientId, directory: &Path) -> Result<PathBuf, KitError> {
    let request = directory.join(format!("{id}{REQUEST_SUFFIX}"));
    for file in [&directory.join(PRIVATE_KEY), &directory.join(ENVELOPE_KEY), &request] {
        if file.exists() {
            return Err(KitError::new(file, "file", KitDefect::Exists));
        }
    }
    make_directory(directory)?;
    let keys = PartyKeys::generate(directory)?;
    let text = request_text(id, &keys, &request)?;
    keys.write(directory)?;
    write(&request, text.as_bytes())?;
    Ok(request)
}

fn request_text(id: &ClientId, keys: &PartyKeys, file: &Path) -> Result<String, KitError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, id.as_str());
    let csr = params.serialize_request(&keys.certificate).map_err(|error| made(file, &error))?;
    let envelope_key = Fingerprint(keys.envelope.public_key());
    let statement = statement(id, envelope_key, csr.der());
    let proof = keys.certificate.sign(&statement).map_err(|error| made(file, &error))?;
    let request = RequestFile {
        format: FORMAT,
        id: id.clone(),
        envelope_key,
        certificate_request: to_pem(REQUEST_TAG, csr.der()),
        proof: to_hex(&proof),
    };
    toml::to_string(&request)
        .map_err(|error| KitError::new(file, "file", KitDefect::Unwritable(std::io::Error::other(error))))
}

fn statement(id: &ClientId, envelope_key: Fingerprint, csr: &[u8]) -> Vec<u8> {
    format!("secsv request, format {FORMAT}\n{id}\n{envelope_key}\n{}", to_hex(csr)).into_bytes()
}

/// 80 bits of BLAKE3 in five groups of four digits: nobody finds another file that has them.
fn short_fingerprint(bytes: &[u8]) -> String {
    let mut hash = blake3::Hasher::new();
    hash.update(b"secsv request fingerprint, format 1\n").update(bytes);
    let digits = to_hex(&hash.finalize().as_bytes()[..10]);
    let groups: Vec<&str> = (0..5).map(|group| &digits[4 * group..4 * group + 4]).collect();
    groups.join("-")
}

impl Request {
    /// Reads a request and checks that its sender has the key it asks a certificate for.
    pub fn read(file: &Path) -> Result<Self, KitError> {
        let bytes = read(file)?;
        let parsed: RequestFile = from_toml(file, &bytes)?;
        if parsed.format != FORMAT {
            return Err(KitError::invalid(file, "format", FORMAT.to_string(), parsed.format.to_string()));
        }
        let der = pem(file, parsed.certificate_request.as_bytes(), REQUEST_TAG)?;
        let wrong =
            |expected: &str, found: String| KitError::invalid(file, "certificate_request", expected, found);
        let csr =
            CertificateSigningRequestParams::from_der(&der.expose().as_slice().into()).map_err(|error| {
                wrong("a request signed by its own key", format!("one that is refused: {error}"))
            })?;
        let name = match csr.params.distinguished_name.get(&DnType::CommonName) {
            Some(DnValue::Utf8String(name)) => name.clone(),
            _ => String::new(),
        };
        if name != parsed.id.as_str() {
            return Err(wrong(&format!("the name {}", parsed.id), name));
        }
        let proof = from_hex(&parsed.proof).unwrap_or_default();
        let statement = statement(&parsed.id, parsed.envelope_key, der.expose());
        if !is_signed(csr.public_key.der_bytes(), &statement, &proof) {
            let defect = KitDefect::Signature { signer: "the request's own key", what: "the request" };
            return Err(KitError::new(file, "proof", defect));
        }
        let (id, key, envelope_key) = (parsed.id, csr.public_key, parsed.envelope_key);
        Ok(Self { id, file: file.to_owned(), fingerprint: short_fingerprint(&bytes), key, envelope_key })
    }

    /// All requests in a directory: the files whose names end in `.request.toml`.
    pub fn read_all(directory: &Path) -> Result<Vec<Self>, KitError> {
        let listing = fs::read_dir(directory).map_err(|error| KitError::reading(directory, error))?;
        let mut files = Vec::new();
        for entry in listing {
            let path = entry.map_err(|error| KitError::reading(directory, error))?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(REQUEST_SUFFIX)) {
                files.push(path);
            }
        }
        files.sort();
        files.iter().map(|file| Self::read(file)).collect()
    }
}
