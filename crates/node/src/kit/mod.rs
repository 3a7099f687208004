//! Kits: what a party needs to take part in a consortium. A kit is a directory:
//!
//! | file | what | from |
//! | --- | --- | --- |
//! | `private-key.pem` | the certificate's key, P-256; never leaves the site | `keygen` |
//! | `envelope-key.pem` | the key that envelopes are opened with, X25519; never leaves the site | `keygen` |
//! | `certificate.pem` | who this is | `provision` |
//! | `authority.pem` | who signed that | `provision` |
//! | `federation.toml` | what all parties agree on, the same bytes in every kit | `provision` |
//! | `federation.signature` | the authority's signature over it | `provision` |
//! | `renewal.toml`, `renewal.signature` | everybody's new certificates, where they were renewed | `renew` |
//!
//! The federation file names every party with its role, the SHA-256 of its certificate and, for clients, the public key of its
//! envelopes. Its digest covers all of that; parties compare it when they meet.

mod address;
mod certificates;
mod error;
mod federation_file;
mod files;
mod provision;
mod renewal;
#[cfg(test)]
mod renewal_tests;
mod request;
mod round;
mod session_spec;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod vector_tests;

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use rcgen::PublicKeyData as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use secsv_federation::{FederationSpec, LABELS_FILE, Labels};
use secsv_protocol::{EnvelopeKeys, PartyId, Secret, session::Federation};

pub use address::{Address, AddressError};
pub use certificates::Validity;
pub(crate) use certificates::date;
pub use error::{KitDefect, KitError};
pub use federation_file::{FederationFile, PartyIdentity, PartyRole, Servers};
pub use provision::{Provision, Provisioned};
pub use renewal::renew;
pub use request::{Request, generate_keys};
pub use round::RoundNotice;
pub use session_spec::SessionSpec;

use crate::{Fingerprint, fingerprint::from_hex};
use certificates::{check_certificate, describe, is_signed, key_from_der};
use files::{
    AUTHORITY, CERTIFICATE, ENVELOPE_KEY, FEDERATION, PRIVATE_KEY, SIGNATURE, pem, read, read_private, text,
    x25519_from_pem,
};
use secsv_evaluation::EvaluationSettings;

/// Time before its end from which a certificate is worth a warning.
pub(crate) const SOON: std::time::Duration = std::time::Duration::from_secs(14 * 86_400);

/// A kit whose every file fits the others.
pub struct Kit {
    /// Whose it is.
    pub own: PartyId,
    /// The certificate, as PEM.
    pub certificate: Vec<u8>,
    /// Its private key, as PEM.
    pub private_key: Secret<Vec<u8>>,
    /// The authority's certificate, as PEM.
    pub ca: Vec<u8>,
    /// The key pair of a client's envelopes; servers have none.
    pub envelope_keys: Option<EnvelopeKeys>,
    /// What all parties agree on.
    pub federation: FederationFile,
    /// The bytes of the federation file.
    pub federation_bytes: Vec<u8>,
    /// The digest that all parties' kits have in common.
    pub digest: [u8; 32],
    /// From when until when the certificate is valid.
    pub validity: Validity,
    /// What was signed and what a round brought, where this is the kit of one round that came later.
    of_round: Option<round::OfRound>,
    path: PathBuf,
    certificate_der: Vec<u8>,
    key_der: Secret<Vec<u8>>,
    ca_der: Vec<u8>,
    renewed: renewal::Renewed,
}

impl Kit {
    /// Reads a kit and checks that it is whole, valid now and one party's own.
    pub fn open(path: &Path) -> Result<Self, KitError> {
        Self::open_at(path, SystemTime::now())
    }

    /// The same by another clock.
    pub fn open_at(path: &Path, now: SystemTime) -> Result<Self, KitError> {
        let file = |name: &str| path.join(name);
        let (ca_file, certificate_file, federation_file) =
            (file(AUTHORITY), file(CERTIFICATE), file(FEDERATION));
        let ca = read(&ca_file)?;
        let ca_der = pem(&ca_file, &ca, "CERTIFICATE")?.expose().clone();
        let federation_bytes = read(&federation_file)?;
        check_signature(path, &ca_der, &federation_bytes)?;
        let federation = FederationFile::parse(&federation_bytes, &federation_file)?;
        if Fingerprint::sha256(&ca_der) != federation.authority {
            let found = Fingerprint::sha256(&ca_der).to_string();
            return Err(KitError::invalid(&ca_file, "SHA-256", federation.authority.to_string(), found));
        }
        let digest = FederationFile::digest(&federation_bytes);
        let renewed = renewal::read_renewal(path, &federation, digest, &ca_der)?;
        let certificate = read(&certificate_file)?;
        let certificate_der = pem(&certificate_file, &certificate, "CERTIFICATE")?.expose().clone();
        let fingerprint = Fingerprint::sha256(&certificate_der);
        let known = federation.party_with(fingerprint).or_else(|| renewed.get(&fingerprint).copied());
        let listed = known.and_then(|own| Some((own, federation.party(own)?)));
        let Some((own, party)) = listed else {
            let expected = "the certificate of a party in federation.toml";
            return Err(KitError::invalid(&certificate_file, "SHA-256", expected, fingerprint.to_string()));
        };
        let described = describe(&certificate_file, &certificate_der)?;
        if described.common_name != party.id.as_str() {
            let (expected, found) = (party.id.as_str(), described.common_name);
            return Err(KitError::invalid(&certificate_file, "common name", expected, found));
        }
        let authority = (ca_file.as_path(), &CertificateDer::from_slice(&ca_der));
        let checked = CertificateDer::from_slice(&certificate_der);
        check_certificate(&certificate_file, &checked, authority, party.role, now)?;
        let (private_key, key_der) = open_private_key(path, party, &described.public_key)?;
        let envelope_keys = open_envelope_key(path, party)?;
        let (validity, path) = (described.validity, path.to_owned());
        Ok(Self {
            own,
            certificate,
            private_key,
            ca,
            envelope_keys,
            federation,
            federation_bytes,
            digest,
            validity,
            of_round: None,
            path,
            certificate_der,
            key_der,
            ca_der,
            renewed,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the party whose kit it is.
    pub fn own_name(&self) -> String {
        self.name(self.own)
    }

    /// A party's name.
    pub fn name(&self, party: PartyId) -> String {
        self.federation.name(party)
    }

    /// The federation as it was signed: all clients, whoever of them is there in a round.
    pub fn whole(&self) -> &FederationSpec {
        self.of_round.as_ref().map_or(&self.federation.federation, |of| &of.whole)
    }

    /// The digest of what was signed: the same for all rounds that come later.
    pub fn signed_digest(&self) -> [u8; 32] {
        self.federation.follows.map_or(self.digest, |digest| digest.0)
    }

    /// What people call the silos, where the kit says it. Whoever holds the kit may change that.
    pub fn labels(&self) -> Result<Labels, KitError> {
        let read = Labels::read(&self.path, self.whole());
        read.map_err(|error| KitError::new(&self.path.join(LABELS_FILE), "file", error.into()))
    }

    /// Everybody with their names.
    pub fn names(&self) -> Vec<(PartyId, String)> {
        self.federation.party_ids().map(|party| (party, self.name(party))).collect()
    }

    /// Who shows this certificate (DER), if a party of the federation does.
    pub fn party_of(&self, certificate: &[u8]) -> Option<PartyId> {
        let certificate = Fingerprint::sha256(certificate);
        self.federation.party_with(certificate).or_else(|| self.renewed.get(&certificate).copied())
    }

    /// Where a server listens; none for clients.
    pub fn address(&self, server: PartyId) -> Option<&Address> {
        match server {
            PartyId::Principal => Some(&self.federation.servers.principal),
            PartyId::Auxiliary => Some(&self.federation.servers.auxiliary),
            PartyId::Client(_) => None,
        }
    }

    /// What the roles need to know, bound to this kit's digest.
    pub fn session(&self) -> Result<Federation, KitError> {
        self.federation.session(&self.digest, &self.path.join(FEDERATION))
    }

    /// How values are computed.
    pub fn evaluation(&self) -> Result<EvaluationSettings, KitError> {
        self.federation.evaluation(&self.path.join(FEDERATION))
    }

    /// The certificate for TLS.
    pub fn tls_certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from(self.certificate_der.clone())
    }

    /// The private key for TLS.
    pub fn tls_key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key_der.expose().clone()).into()
    }

    /// The authority for TLS.
    pub fn tls_authority(&self) -> CertificateDer<'static> {
        CertificateDer::from(self.ca_der.clone())
    }
}

fn check_signature(path: &Path, ca_der: &[u8], federation: &[u8]) -> Result<(), KitError> {
    let file = path.join(SIGNATURE);
    let bytes = read(&file)?;
    let signature = text(&file, &bytes)?.strip_suffix('\n').and_then(from_hex).unwrap_or_default();
    let authority = describe(&path.join(AUTHORITY), ca_der)?;
    if !is_signed(&authority.point, federation, &signature) {
        let defect = KitDefect::Signature { signer: "the authority", what: FEDERATION };
        return Err(KitError::new(&file, "signature", defect));
    }
    Ok(())
}

/// A file of a kit that is secret.
type Pem = Secret<Vec<u8>>;

fn open_private_key(path: &Path, party: &PartyIdentity, public_key: &[u8]) -> Result<(Pem, Pem), KitError> {
    let file = path.join(PRIVATE_KEY);
    let text = read_private(&file)?;
    let der = pem(&file, text.expose(), "PRIVATE KEY")?;
    let key = key_from_der(&file, der.expose())?;
    if key.subject_public_key_info() != public_key {
        let defect = KitDefect::AnothersKey { of: format!("{}'s certificate", party.id) };
        return Err(KitError::new(&file, "key", defect));
    }
    Ok((text, der))
}

/// Servers get no envelopes: if there is a key, it is not looked at.
fn open_envelope_key(path: &Path, party: &PartyIdentity) -> Result<Option<EnvelopeKeys>, KitError> {
    let Some(expected) = party.envelope_key else { return Ok(None) };
    let file = path.join(ENVELOPE_KEY);
    let private = x25519_from_pem(&file, read_private(&file)?.expose())?;
    let keys = EnvelopeKeys::from_private(&private).filter(|keys| keys.public_key() == expected.0);
    let anothers = || KitDefect::AnothersKey { of: format!("{}'s envelopes", party.id) };
    keys.map(Some).ok_or_else(|| KitError::new(&file, "key", anothers()))
}
