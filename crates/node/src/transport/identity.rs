//! Who a party is in TLS, and whom it knows.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::WebPkiClientVerifier,
};
use secsv_protocol::PartyId;

use crate::{
    crypto,
    kit::{Address, Kit},
};

/// What the stream of packets is called in TLS.
pub const ALPN: &[u8] = b"secsv";

/// Why there can be no TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The kit's keys or certificates are refused.
    #[error("the kit's certificates: {0}")]
    Refused(#[from] rustls::Error),
    /// The authority's certificate is refused.
    #[error("the kit's authority: {0}")]
    Authority(#[from] rustls::server::VerifierBuilderError),
    /// The address cannot be listened on.
    #[error("{address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Who this party is, and whom it knows.
pub(crate) struct Identity {
    kit: Arc<Kit>,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Identity {
    /// Of a kit.
    pub fn new(kit: Arc<Kit>) -> Result<Self, TlsError> {
        let (authority, certificate) = (kit.tls_authority(), kit.tls_certificate());
        let server = Arc::new(server_config(authority.clone(), certificate.clone(), kit.tls_key())?);
        let client = Arc::new(client_config(authority, certificate, kit.tls_key())?);
        Ok(Self { kit, server, client })
    }

    /// Whose certificate this is.
    pub fn party_of(&self, certificate: &[u8]) -> Option<PartyId> {
        self.kit.party_of(certificate)
    }

    /// A party's name.
    pub fn name(&self, party: PartyId) -> String {
        self.kit.name(party)
    }

    /// Where a server is.
    pub fn address(&self, server: PartyId) -> Option<&Address> {
        self.kit.address(server)
    }

    /// For connections that come in.
    pub fn server(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }

    /// For connections that go out.
    pub fn client(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }
}

fn roots(authority: CertificateDer<'static>) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add(authority)?;
    Ok(Arc::new(roots))
}

/// Certificates of the authority alone, of TLS 1.3 alone.
pub fn server_config(
    authority: CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, TlsError> {
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots(authority)?, crypto::provider()).build()?;
    let mut config = ServerConfig::builder_with_provider(crypto::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Everybody shows their certificate every time.
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The same for whoever dials.
pub fn client_config(
    authority: CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, TlsError> {
    let mut config = ClientConfig::builder_with_provider(crypto::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots(authority)?)
        .with_client_auth_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}
