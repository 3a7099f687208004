//! Where a server listens: HOST:PORT.

use std::{fmt, net::IpAddr, str::FromStr};

use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};

/// A server's address. The host is a name or an IP address that others dial; the server's certificate is for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address {
    /// A name or an IP address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Text that is no [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected HOST:PORT with a name or IP address that others can dial and a port from 1 to 65535, found {found:?}"
)]
pub struct AddressError {
    /// The text.
    pub found: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError { found: text.chars().take(300).collect() };
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) => inner.parse().ok().filter(IpAddr::is_ipv6).map(|_| inner),
            None => Some(host).filter(|host| is_host(host)),
        };
        let host = host.filter(|host| can_be_dialled(host));
        let port = port.parse().ok().filter(|&port: &u16| port > 0);
        let (host, port) = host.zip(port).ok_or_else(wrong)?;
        Ok(Self { host: host.to_owned(), port })
    }
}

fn is_host(host: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    host.len() <= 253 && host.split('.').all(is_label)
}

/// Whether TLS takes it for a name or an IP address, and it is that of one machine. Half an address such as 127.1 is
/// neither.
fn can_be_dialled(host: &str) -> bool {
    let is_unspecified = |ip: IpAddr| ip.to_canonical().is_unspecified();
    ServerName::try_from(host).is_ok() && !host.parse().is_ok_and(is_unspecified)
}

impl Address {
    /// Whether both are the same place, however they are spelled.
    pub(super) fn is_same_place(&self, other: &Self) -> bool {
        let ip = |address: &Self| address.host.parse().ok().map(|ip: IpAddr| ip.to_canonical());
        let is_same_host = match (ip(self), ip(other)) {
            (None, None) => self.host.eq_ignore_ascii_case(&other.host),
            (one, another) => one == another,
        };
        is_same_host && self.port == other.port
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;
    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_names_or_numbers_with_a_port() {
        for good in ["principal.example.org:8443", "127.0.0.1:1", "[::1]:65535", "localhost:80"] {
            assert_eq!(good.parse::<Address>().unwrap().to_string(), good);
        }
        for bad in
            ["", "host", "host:", "host:0", "host:65536", "::1:80", "a b:1", "-a:1", "[x]:1", "http://a:1"]
        {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_that_nobody_can_dial_are_none() {
        let unspecified = ["0.0.0.0:80", "[::]:80", "[0:0::0]:80", "[::ffff:0.0.0.0]:80"];
        let half = ["127.1:80", "1:80", "127.0.0.256:80", "10.0.0.1.2:80"];
        for bad in unspecified.into_iter().chain(half) {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn one_place_has_several_spellings() {
        let is_same =
            |one: &str, other: &str| one.parse::<Address>().unwrap().is_same_place(&other.parse().unwrap());
        assert!(is_same("a.example:80", "A.Example:80"));
        assert!(is_same("[::1]:80", "[0:0::1]:80"));
        assert!(is_same("127.0.0.1:80", "[::ffff:127.0.0.1]:80"));
        assert!(!is_same("a.example:80", "a.example:81"));
        assert!(!is_same("a.example:80", "b.example:80"));
        assert!(!is_same("127.0.0.1:80", "localhost:80"));
    }
}
