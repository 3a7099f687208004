//! The cryptographic provider of TLS, named here and nowhere else.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The provider.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
