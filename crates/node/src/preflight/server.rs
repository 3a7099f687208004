//! One server, from its name to its clock.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustls::pki_types::ServerName;
use secsv_evaluation::packet::Packet;
use secsv_protocol::PartyId;
use tokio::{
    net::{TcpListener, TcpStream, lookup_host},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::Check;
use crate::{
    Fingerprint,
    kit::{Address, Kit},
    transport::{PacketReader, StreamError, client_config},
};

const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// Seconds that clocks may differ before it is worth a word, and before certificates of a day may fail.
const CLOCK_WARNING: u64 = 30;
const CLOCK_FAILURE: u64 = 600;

/// Each step needs the one before it; the first that fails is the last one told.
pub(super) async fn check(kit: &Kit, server: PartyId) -> Vec<Check> {
    let name = kit.name(server);
    let Some(address) = kit.address(server) else { return Vec::new() };
    let mut checks = Vec::new();
    let found = match resolve(&name, address).await {
        Ok((check, found)) => {
            checks.push(check);
            found
        }
        Err(check) => return vec![check],
    };
    let stream = match connect(&name, address, &found).await {
        Ok((check, stream)) => {
            checks.push(check);
            stream
        }
        Err(check) => {
            checks.push(check);
            return checks;
        }
    };
    match handshake(kit, server, address, stream).await {
        Ok((check, stream)) => {
            checks.push(check);
            checks.push(clock(&name, stream).await);
        }
        Err(check) => checks.push(check),
    }
    checks
}

async fn resolve(name: &str, address: &Address) -> Result<(Check, Vec<SocketAddr>), Check> {
    let what = format!("{name}: name {}", address.host);
    let advice = "ask whoever runs it for the right name, or put it into DNS or /etc/hosts";
    let looked_up = timeout(STEP_TIMEOUT, lookup_host((address.host.as_str(), address.port))).await;
    let found: Vec<SocketAddr> = match looked_up {
        Ok(Ok(found)) => found.collect(),
        Ok(Err(error)) => return Err(Check::failed(what, error.to_string(), advice)),
        Err(_) => return Err(Check::failed(what, "no answer in time", advice)),
    };
    if found.is_empty() {
        return Err(Check::failed(what, "no address", advice));
    }
    let shown: Vec<String> = found.iter().map(|address| address.ip().to_string()).collect();
    Ok((Check::ok(what, shown.join(", ")), found))
}

async fn connect(name: &str, address: &Address, found: &[SocketAddr]) -> Result<(Check, TcpStream), Check> {
    let what = format!("{name}: port {}", address.port);
    let advice = "see that its process runs and that firewalls on the way let this port through";
    match timeout(STEP_TIMEOUT, TcpStream::connect(found)).await {
        Ok(Ok(stream)) => Ok((Check::ok(what, "reachable"), stream)),
        Ok(Err(error)) => Err(Check::failed(what, error.to_string(), advice)),
        Err(_) => Err(Check::failed(what, "no answer in time", advice)),
    }
}

type Secured = TlsStream<TcpStream>;

async fn handshake(
    kit: &Kit,
    server: PartyId,
    address: &Address,
    stream: TcpStream,
) -> Result<(Check, Secured), Check> {
    let what = format!("{}: TLS", kit.name(server));
    let advice = "see that both sides have kits of the same provisioning, and nothing between them opens TLS";
    let refused = |found: String| Check::failed(what.clone(), found, advice);
    let config = client_config(kit.tls_authority(), kit.tls_certificate(), kit.tls_key());
    let config = config.map_err(|error| refused(error.to_string()))?;
    let host = ServerName::try_from(address.host.clone()).map_err(|error| refused(error.to_string()))?;
    let connecting = TlsConnector::from(Arc::new(config)).connect(host, stream);
    let stream = match timeout(STEP_TIMEOUT, connecting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(refused(error.to_string())),
        Err(_) => return Err(refused("no answer in time".to_owned())),
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let shown = certificate.map(|certificate| (Fingerprint::sha256(certificate), kit.party_of(certificate)));
    match shown {
        Some((shown, Some(found))) if found == server => Ok((
            Check::ok(what, format!("TLS 1.3, the certificate of the federation file ({shown})")),
            stream,
        )),
        Some((shown, found)) => {
            let whose = found.map_or("nobody's".to_owned(), |p| format!("{}'s", kit.name(p)));
            let advice = "see that the right process listens there, started with its own kit";
            Err(Check::failed(what, format!("{whose} certificate ({shown})"), advice))
        }
        None => Err(refused("no certificate".to_owned())),
    }
}

/// A server's first packet has its time; and it shows that the server took our certificate, which a client of TLS 1.3 does not
/// learn from the handshake of TLS.
async fn clock(name: &str, stream: Secured) -> Check {
    let what = format!("{name}: clock");
    let advice = "see in its log why it refuses this party";
    match timeout(STEP_TIMEOUT, ask_date(stream)).await {
        Ok(Ok(theirs)) => compare_clocks(what, theirs, SystemTime::now()),
        Ok(Err(error)) => Check::failed(what, format!("it does not answer: {error}"), advice),
        Err(_) => Check::failed(what, "no answer in time", advice),
    }
}

async fn ask_date(stream: Secured) -> Result<SystemTime, StreamError> {
    match PacketReader::new(stream).next().await? {
        Some((Packet::Handshake(theirs), _)) => {
            Ok(UNIX_EPOCH + Duration::from_millis(theirs.unix_milliseconds))
        }
        Some((Packet::Refused(reason), _)) => Err(StreamError::ByPeer(reason)),
        _ => Err(StreamError::Refused("it does not tell the time".to_owned())),
    }
}

fn compare_clocks(what: String, theirs: SystemTime, ours: SystemTime) -> Check {
    let seconds = |moment: SystemTime| moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (theirs, ours) = (seconds(theirs), seconds(ours));
    let apart = theirs.abs_diff(ours);
    let side = if theirs >= ours { "ahead of" } else { "behind" };
    let found = format!("{apart} s {side} ours");
    let advice = "set both clocks by NTP";
    match apart {
        0..=1 => Check::ok(what, "the same as ours"),
        2..=CLOCK_WARNING => Check::ok(what, found),
        _ if apart < CLOCK_FAILURE => Check::warning(what, found, advice),
        _ => Check::failed(what, found, advice),
    }
}

/// Whether a server can listen where its process will.
pub(super) async fn check_own_address(address: &str) -> Check {
    let what = format!("own address {address}");
    let bound = timeout(STEP_TIMEOUT, TcpListener::bind(address)).await;
    let error = match bound.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(_) => return Check::ok(what, "free"),
        Err(error) => error,
    };
    let found = error.to_string();
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            Check::warning(what, found, "if it is not this party's own process, stop what listens there")
        }
        io::ErrorKind::AddrNotAvailable => Check::failed(
            what,
            found,
            "this machine does not have it: listen at an address that it has (--listen), and have connections forwarded",
        ),
        io::ErrorKind::PermissionDenied => Check::failed(
            what,
            found,
            "ports below 1024 need a right of their own: grant it, or listen at another port (--listen)",
        ),
        _ => Check::failed(
            what,
            found,
            "see that this machine knows its own name (DNS or /etc/hosts), or listen at an IP address (--listen)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::CheckOutcome, *};

    #[test]
    fn which_clock_is_behind_is_said() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let later = now + Duration::from_secs(180);
        assert_eq!(compare_clocks(String::new(), now, later).found, "180 s behind ours");
        assert_eq!(compare_clocks(String::new(), later, now).found, "180 s ahead of ours");
    }

    #[test]
    fn clocks_may_differ_by_seconds_but_not_by_minutes() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        for (ahead, expected) in [
            (0, CheckOutcome::Ok),
            (30, CheckOutcome::Ok),
            (31, CheckOutcome::Warning),
            (600, CheckOutcome::Failed),
        ] {
            let ahead = Duration::from_secs(ahead);
            assert_eq!(compare_clocks(String::new(), now + ahead, now).outcome, expected, "{ahead:?}");
            assert_eq!(compare_clocks(String::new(), now, now + ahead).outcome, expected, "{ahead:?}");
        }
    }
}
