//! Certificates: the authority that signs them, and whether one is what it says. Keys are on the curve P-256, which every
//! TLS library and hardware module knows.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SigningKey,
};
use rustls::pki_types::{CertificateDer, UnixTime, alg_id};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::{KitDefect, KitError, PartyRole};
use crate::crypto;

/// From when until when certificates are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first moment.
    pub from: SystemTime,
    /// The last moment.
    pub until: SystemTime,
}

impl Validity {
    /// So many days from now on; an hour earlier, for clocks that are slow.
    pub fn days(now: SystemTime, days: u32) -> Self {
        let from = now.checked_sub(Duration::from_secs(3600)).unwrap_or(UNIX_EPOCH);
        Self { from, until: now + Duration::from_secs(u64::from(days) * 86_400) }
    }
}

/// Moments as people write them.
pub(crate) fn date(moment: SystemTime) -> String {
    OffsetDateTime::from(moment)
        .replace_nanosecond(0)
        .ok()
        .and_then(|t| t.format(&Rfc3339).ok())
        .unwrap_or_default()
}

/// A fresh key.
pub(super) fn generate_key(file: &Path) -> Result<KeyPair, KitError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| made(file, &error))
}

/// A key that was kept, from PKCS#8.
pub(super) fn key_from_der(file: &Path, der: &[u8]) -> Result<KeyPair, KitError> {
    let key = KeyPair::from_pkcs8_der_and_sign_algo(&der.into(), &PKCS_ECDSA_P256_SHA256);
    key.map_err(|_| KitError::invalid(file, "file", "a P-256 private key in PKCS#8", "another key"))
}

/// What went wrong in making something, which no input should bring about.
pub(super) fn made(file: &Path, error: &rcgen::Error) -> KitError {
    KitError::new(file, "file", KitDefect::Unwritable(std::io::Error::other(error.to_string())))
}

/// Signs certificates and the federation file of one consortium.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    pub(super) certificate: CertificateDer<'static>,
}

impl Authority {
    pub(super) fn generate(name: &str, validity: Validity, file: &Path) -> Result<Self, KitError> {
        let key = generate_key(file)?;
        let mut params = named(&format!("{name}: authority"), validity);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).map_err(|error| made(file, &error))?;
        Ok(Self { issuer: Issuer::new(params, key), certificate: certificate.der().clone() })
    }

    /// The authority of a certificate and its key.
    pub(super) fn of(certificate: CertificateDer<'static>, key: KeyPair) -> Result<Self, rcgen::Error> {
        Ok(Self { issuer: Issuer::from_ca_cert_der(&certificate, key)?, certificate })
    }

    /// A certificate for a party: servers for the host they listen on, clients for dialling alone.
    pub(super) fn sign(
        &self,
        id: &str,
        role: PartyRole,
        host: Option<&str>,
        key: &impl PublicKeyData,
        validity: Validity,
        file: &Path,
    ) -> Result<CertificateDer<'static>, KitError> {
        let hosts: Vec<String> = host.into_iter().map(str::to_owned).collect();
        let names = CertificateParams::new(hosts).map_err(|error| made(file, &error))?.subject_alt_names;
        let mut params = named(id, validity);
        params.subject_alt_names = names;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if role != PartyRole::Client {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        let certificate = params.signed_by(key, &self.issuer).map_err(|error| made(file, &error))?;
        Ok(certificate.der().clone())
    }

    pub(super) fn sign_bytes(&self, bytes: &[u8], file: &Path) -> Result<Vec<u8>, KitError> {
        self.issuer.key().sign(bytes).map_err(|error| made(file, &error))
    }

    /// Its private key in PKCS#8.
    pub(super) fn key_der(&self) -> &[u8] {
        self.issuer.key().serialized_der()
    }
}

fn named(name: &str, validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, "secsv");
    (params.not_before, params.not_after) = (validity.from.into(), validity.until.into());
    params
}

/// Whether the authority signed a certificate for this role, and it is valid now. `file` is the certificate's.
pub(super) fn check_certificate(
    file: &Path,
    certificate: &CertificateDer<'_>,
    authority: (&Path, &CertificateDer<'_>),
    role: PartyRole,
    now: SystemTime,
) -> Result<(), KitError> {
    let (authority_file, authority) = authority;
    let anchor = anchor_from_trusted_cert(authority).map_err(|_| {
        KitError::invalid(authority_file, "file", "an authority's certificate", "something else")
    })?;
    let end = EndEntityCert::try_from(certificate)
        .map_err(|_| KitError::invalid(file, "file", "a party's certificate", "something else"))?;
    let provider = crypto::provider();
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let usages = match role {
        PartyRole::Client => vec![KeyUsage::client_auth()],
        _ => vec![KeyUsage::client_auth(), KeyUsage::server_auth()],
    };
    for usage in usages {
        let time = UnixTime::since_unix_epoch(since);
        let algorithms = provider.signature_verification_algorithms.all;
        end.verify_for_usage(algorithms, std::slice::from_ref(&anchor), &[], time, usage, None, None)
            .map_err(|error| refused(file, &error, now))?;
    }
    Ok(())
}

fn refused(file: &Path, error: &webpki::Error, now: SystemTime) -> KitError {
    let moment = |time: &UnixTime| date(UNIX_EPOCH + Duration::from_secs(time.as_secs()));
    let now = date(now);
    match error {
        webpki::Error::CertExpired { not_after, .. } => {
            KitError::new(file, "validity", KitDefect::Expired { until: moment(not_after), now })
        }
        webpki::Error::CertNotValidYet { not_before, .. } => {
            KitError::new(file, "validity", KitDefect::NotYetValid { from: moment(not_before), now })
        }
        other => KitError::invalid(
            file,
            "signature",
            "a certificate of this party's role, signed by the kit's authority",
            format!("one that is refused: {other}"),
        ),
    }
}

/// The public key of a certificate as SubjectPublicKeyInfo, its common name and its dates.
pub(super) struct Described {
    pub(super) public_key: Vec<u8>,
    /// The bare point, as signatures are checked with.
    pub(super) point: Vec<u8>,
    pub(super) common_name: String,
    pub(super) validity: Validity,
}

pub(super) fn describe(file: &Path, certificate: &[u8]) -> Result<Described, KitError> {
    let wrong = || KitError::invalid(file, "file", "an X.509 certificate", "something else");
    let (rest, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| wrong())?;
    if !rest.is_empty() {
        return Err(wrong());
    }
    let common_name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    let moment = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    let validity = parsed.validity();
    Ok(Described {
        public_key: parsed.public_key().raw.to_vec(),
        point: parsed.public_key().subject_public_key.data.to_vec(),
        common_name: common_name.unwrap_or_default().to_owned(),
        validity: Validity {
            from: moment(validity.not_before.timestamp()),
            until: moment(validity.not_after.timestamp()),
        },
    })
}

/// Whether the holder of a P-256 key signed these bytes.
pub(super) fn is_signed(point: &[u8], bytes: &[u8], signature: &[u8]) -> bool {
    let provider = crypto::provider();
    let algorithm = provider.signature_verification_algorithms.all.iter().find(|algorithm| {
        algorithm.public_key_alg_id() == alg_id::ECDSA_P256
            && algorithm.signature_alg_id() == alg_id::ECDSA_SHA256
    });
    algorithm.is_some_and(|algorithm| algorithm.verify_signature(point, bytes, signature).is_ok())
}
