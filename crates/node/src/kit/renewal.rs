//! New certificates for the keys of a federation that runs on: what all parties agreed on stays, byte for byte, and so does
//! its digest, to which state directories are bound.
//!
//! The authority signs a list of everybody's new certificates beside the federation file. A party takes the old ones and the
//! listed ones, so that not everybody has to change at one moment. Keys stay: whoever must not have one any more is kept out
//! by provisioning anew.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use rcgen::SubjectPublicKeyInfo;
use rustls::pki_types::CertificateDer;
use secsv_federation::ClientId;
use secsv_protocol::PartyId;
use serde::{Deserialize, Serialize};

use super::{
    FederationFile, KitError, PartyRole, Validity,
    certificates::{Authority, describe, is_signed, key_from_der, made},
    check_signature,
    files::{
        AUTHORITY, AUTHORITY_KEY, CERTIFICATE, FEDERATION, RENEWAL, RENEWAL_SIGNATURE, from_toml,
        make_directory, pem, read, read_private, text, to_pem, write,
    },
    provision::whole,
};
use crate::{
    Fingerprint,
    fingerprint::{from_hex, to_hex},
};

const FORMAT: u32 = 1;

/// New certificates, as the authority signs them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RenewalFile {
    format: u32,
    /// Of which federation.
    renews: Fingerprint,
    /// When, in seconds since 1970.
    made: u64,
    parties: Vec<RenewedParty>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RenewedParty {
    id: ClientId,
    certificate: Fingerprint,
}

/// Certificates that were renewed, with whose they are.
pub(super) type Renewed = BTreeMap<Fingerprint, PartyId>;

/// The renewed certificates of a kit, if there are any.
pub(super) fn read_renewal(
    path: &Path,
    federation: &FederationFile,
    digest: [u8; 32],
    authority: &[u8],
) -> Result<Renewed, KitError> {
    let file = path.join(RENEWAL);
    if !file.exists() {
        return Ok(Renewed::new());
    }
    let bytes = read(&file)?;
    let signature_file = path.join(RENEWAL_SIGNATURE);
    let signature = read(&signature_file)?;
    let signature =
        text(&signature_file, &signature)?.strip_suffix('\n').and_then(from_hex).unwrap_or_default();
    if !is_signed(&describe(&path.join(AUTHORITY), authority)?.point, &bytes, &signature) {
        let defect = super::KitDefect::Signature { signer: "the authority", what: RENEWAL };
        return Err(KitError::new(&signature_file, "signature", defect));
    }
    let parsed: RenewalFile = from_toml(&file, &bytes)?;
    let wrong =
        |field: &str, expected: String, found: String| Err(KitError::invalid(&file, field, expected, found));
    if parsed.format != FORMAT {
        return wrong("format", FORMAT.to_string(), parsed.format.to_string());
    }
    if parsed.renews.0 != digest {
        return wrong("renews", Fingerprint(digest).to_string(), parsed.renews.to_string());
    }
    let mut renewed = Renewed::new();
    for party in parsed.parties {
        let Some(id) = federation.party_named(party.id.as_str()) else {
            return wrong("parties.id", "a party of the federation".to_owned(), party.id.to_string());
        };
        let is_known = federation.party_with(party.certificate).is_some_and(|known| known != id);
        if is_known || renewed.insert(party.certificate, id).is_some() {
            return wrong("parties.certificate", "one of its own".to_owned(), "another party's".to_owned());
        }
    }
    Ok(renewed)
}

/// Signs new certificates for everybody whose kit was made in `kits`, and writes what goes beside or over the files of each
/// kit to a directory for each party.
pub fn renew(kits: &Path, validity: Validity, out: &Path) -> Result<Vec<(ClientId, PathBuf)>, KitError> {
    let authority_file = kits.join(AUTHORITY);
    let authority = pem(&authority_file, &read(&authority_file)?, "CERTIFICATE")?.expose().clone();
    let key_file = kits.join(AUTHORITY_KEY);
    let key =
        key_from_der(&key_file, pem(&key_file, read_private(&key_file)?.expose(), "PRIVATE KEY")?.expose())?;
    let own = CertificateDer::from(authority.clone());
    let signer = Authority::of(own, key).map_err(|error| made(&authority_file, &error))?;
    // Any kit has the federation file.
    let kit = kits.join(PartyRole::Principal.name());
    let bytes = read(&kit.join(FEDERATION))?;
    check_signature(&kit, &authority, &bytes)?;
    let federation = FederationFile::parse(&bytes, &kit.join(FEDERATION))?;
    let mut certificates = Vec::new();
    for (id, party) in federation.party_ids().zip(&federation.parties) {
        let file = kits.join(party.id.as_str()).join(CERTIFICATE);
        let old = pem(&file, &read(&file)?, "CERTIFICATE")?.expose().clone();
        if Fingerprint::sha256(&old) != party.certificate {
            let expected = format!("{}'s certificate, as provisioned", party.id);
            let found = Fingerprint::sha256(&old).to_string();
            return Err(KitError::invalid(&file, "SHA-256", expected, found));
        }
        let key = SubjectPublicKeyInfo::from_der(&describe(&file, &old)?.public_key);
        let key = key.map_err(|error| made(&file, &error))?;
        let host = match id {
            PartyId::Principal => Some(federation.servers.principal.host.as_str()),
            PartyId::Auxiliary => Some(federation.servers.auxiliary.host.as_str()),
            PartyId::Client(_) => None,
        };
        certificates.push((party, signer.sign(party.id.as_str(), party.role, host, &key, validity, out)?));
    }
    let file = RenewalFile {
        format: FORMAT,
        renews: Fingerprint(FederationFile::digest(&bytes)),
        made: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        parties: certificates
            .iter()
            .map(|(party, new)| RenewedParty { id: party.id.clone(), certificate: Fingerprint::sha256(new) })
            .collect(),
    };
    let renewal = toml::to_string(&file)
        .map_err(|error| KitError::invalid(out, RENEWAL, "numbers that TOML can hold", error.to_string()))?;
    let signature = format!("{}\n", to_hex(&signer.sign_bytes(renewal.as_bytes(), out)?));
    whole(out, |directory| {
        for (party, certificate) in &certificates {
            let place = directory.join(party.id.as_str());
            make_directory(&place)?;
            write(&place.join(CERTIFICATE), to_pem("CERTIFICATE", certificate).as_bytes())?;
            write(&place.join(RENEWAL), renewal.as_bytes())?;
            write(&place.join(RENEWAL_SIGNATURE), signature.as_bytes())?;
        }
        Ok(certificates.iter().map(|(party, _)| (party.id.clone(), out.join(party.id.as_str()))).collect())
    })
}
