//! Each thing that is wrong is told by the check that is about it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use secsv_evaluation::packet::{Handshake, Packet};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::{
    kit::tests::provision,
    transport::{PacketWriter, server_config, unix_milliseconds},
};

/// A listener on a port that the system picks.
async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("localhost:{}", listener.local_addr().unwrap().port());
    (listener, address)
}

fn kits(principal: &str, auxiliary: &str) -> (TempDir, PathBuf) {
    let mut provision = provision();
    provision.servers.principal = principal.parse().unwrap();
    provision.servers.auxiliary = auxiliary.replace("localhost", "127.0.0.1").parse().unwrap();
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("kits");
    provision.generate_keys(&out).unwrap();
    (parent, out)
}

/// A server with a kit that says what time it is, its own or some other.
fn serve(listener: TcpListener, kit: &Kit, date: Option<u64>) -> JoinHandle<()> {
    let config = server_config(kit.tls_authority(), kit.tls_certificate(), kit.tls_key()).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let unix_milliseconds = date.unwrap_or_else(unix_milliseconds);
            let handshake = Packet::Handshake(Handshake { unix_milliseconds, ..Handshake::default() });
            let mut writer = PacketWriter::new(stream);
            writer.send(&handshake, &[]).await.unwrap();
            writer.flush().await.unwrap();
        }
    })
}

fn outcome(checks: &[Check], what: &str) -> CheckOutcome {
    let check = checks.iter().find(|check| check.what.starts_with(what));
    check.unwrap_or_else(|| panic!("no check of {what} in {checks:#?}")).outcome
}

#[tokio::test]
async fn a_party_that_is_ready_passes() {
    let ((one, principal), (two, auxiliary)) = (listener().await, listener().await);
    let (guard, kits) = kits(&principal, &auxiliary);
    let servers = [(one, "principal"), (two, "auxiliary")]
        .map(|(listener, name)| serve(listener, &Kit::open(&kits.join(name)).unwrap(), None));
    let state = guard.path().join("state");
    let checks = super::checks(
        &Kit::open(&kits.join("north")).unwrap(),
        Circumstances { state: Some(&state), ..Circumstances::default() },
    )
    .await;
    // Disks differ between machines.
    let bad: Vec<_> = checks.iter().filter(|c| c.outcome != CheckOutcome::Ok && c.what != "disk").collect();
    assert!(bad.is_empty(), "{bad:#?}");
    for what in [
        "kit",
        "certificate",
        "state",
        "principal: name",
        "principal: port",
        "principal: TLS",
        "principal: clock",
    ] {
        outcome(&checks, what);
    }
    assert!(checks.iter().any(|check| check.what.starts_with("auxiliary: clock")));
    servers.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn a_server_that_is_away_or_somebody_else_is_told() {
    let ((one, principal), (two, auxiliary)) = (listener().await, listener().await);
    let (_guard, kits) = kits(&principal, &auxiliary);
    drop(two);
    // The auxiliary's certificate is for another host; south's is for none: both refused by TLS.
    let wrong = serve(one, &Kit::open(&kits.join("auxiliary")).unwrap(), None);
    let checks = super::checks(&Kit::open(&kits.join("north")).unwrap(), Circumstances::default()).await;
    assert_eq!(outcome(&checks, "principal: TLS"), CheckOutcome::Failed);
    assert_eq!(outcome(&checks, "auxiliary: port"), CheckOutcome::Failed);
    assert!(!checks.iter().any(|check| check.what.ends_with("clock")), "nothing to compare");
    assert!(
        checks
            .iter()
            .filter(|check| check.outcome == CheckOutcome::Failed)
            .all(|check| check.advice.is_some())
    );
    wrong.abort();
}

#[tokio::test]
async fn a_server_of_another_provisioning_or_with_the_wrong_time_is_told() {
    let ((one, principal), (two, auxiliary)) = (listener().await, listener().await);
    let ((_own, own), (_foreign, foreign)) = (kits(&principal, &auxiliary), kits(&principal, &auxiliary));
    let stranger = serve(one, &Kit::open(&foreign.join("principal")).unwrap(), None);
    let late = serve(two, &Kit::open(&own.join("auxiliary")).unwrap(), Some(784_111_777_000));
    let checks = super::checks(&Kit::open(&own.join("east")).unwrap(), Circumstances::default()).await;
    assert_eq!(outcome(&checks, "principal: TLS"), CheckOutcome::Failed);
    assert_eq!(outcome(&checks, "auxiliary: TLS"), CheckOutcome::Ok);
    assert_eq!(outcome(&checks, "auxiliary: clock"), CheckOutcome::Failed);
    [stranger, late].iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn the_same_certificate_holder_in_the_wrong_place_is_told() {
    // Both servers on one host: TLS alone would take one for the other.
    let ((one, principal), (two, _)) = (listener().await, listener().await);
    let auxiliary = format!("localhost:{}", two.local_addr().unwrap().port());
    let mut provision = provision();
    (provision.servers.principal, provision.servers.auxiliary) =
        (principal.parse().unwrap(), auxiliary.parse().unwrap());
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("kits");
    provision.generate_keys(&out).unwrap();
    let swapped = serve(one, &Kit::open(&out.join("auxiliary")).unwrap(), None);
    let checks = super::checks(&Kit::open(&out.join("west")).unwrap(), Circumstances::default()).await;
    let tls = checks.iter().find(|check| check.what == "principal: TLS").unwrap();
    assert!(tls.outcome == CheckOutcome::Failed && tls.found.starts_with("auxiliary's certificate"), "{tls}");
    swapped.abort();
}

#[tokio::test]
async fn a_server_that_cannot_listen_where_its_process_will_is_told() {
    let (taken, principal) = listener().await;
    // Nobody has an address that is kept for documentation.
    let (_guard, kits) = kits(&principal.replace("localhost", "127.0.0.1"), "192.0.2.1:7002");
    let own = async |party: &str, listen: Option<&str>| {
        let checks = super::checks(
            &Kit::open(&kits.join(party)).unwrap(),
            Circumstances { listen, ..Circumstances::default() },
        )
        .await;
        checks.into_iter().find(|check| check.what.starts_with("own address")).unwrap()
    };
    assert_eq!(own("principal", None).await.outcome, CheckOutcome::Warning, "its own process may be there");
    drop(taken);
    assert_eq!(own("principal", None).await.outcome, CheckOutcome::Ok);
    let elsewhere = own("auxiliary", None).await;
    assert_eq!(elsewhere.outcome, CheckOutcome::Failed);
    assert!(elsewhere.advice.unwrap().contains("--listen"), "{elsewhere}");
    assert_eq!(own("auxiliary", Some("127.0.0.1:0")).await.outcome, CheckOutcome::Ok);
}

#[cfg(unix)]
#[tokio::test]
async fn a_state_directory_that_others_can_read_or_nobody_can_write_is_told() {
    use std::os::unix::fs::PermissionsExt as _;
    let parent = tempfile::tempdir().unwrap();
    let open = parent.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(outcome(&state::check(&open), "state directory"), CheckOutcome::Failed);
    let file = parent.path().join("file");
    std::fs::write(&file, b"").unwrap();
    assert_eq!(outcome(&state::check(&file), "state directory"), CheckOutcome::Failed);
    assert_eq!(outcome(&state::check(&parent.path().join("new/deep")), "state directory"), CheckOutcome::Ok);
}

#[test]
fn certificates_near_their_end_are_worth_a_warning() {
    let (_guard, out) = kits("localhost:1", "localhost:2");
    let kit = Kit::open(&out.join("north")).unwrap();
    assert_eq!(certificate(&kit, SystemTime::now()).outcome, CheckOutcome::Ok);
    assert_eq!(
        certificate(&kit, SystemTime::now() + SOON + Duration::from_secs(3 * 86_400)).outcome,
        CheckOutcome::Warning
    );
}

/// A server that is told how many test cases there are knows what they take; more of them take more.
#[tokio::test]
async fn what_a_run_takes_is_told_beside_what_there_is() {
    let (_guard, kits) = kits("localhost:7001", "localhost:7002");
    let kit = Kit::open(&kits.join("principal")).unwrap();
    let told = |samples: Option<usize>| {
        let checks = super::needs::check(&kit, Some(&kits), None, samples);
        checks.into_iter().map(|check| check.to_string()).collect::<Vec<_>>()
    };
    let unknown = told(None);
    assert!(unknown.len() == 1 && unknown[0].contains("known with --samples N"), "{unknown:?}");
    let needed = |samples| -> f64 {
        let lines = told(Some(samples));
        assert!(lines.len() == 2 && lines[1].contains("disk for this run"), "{lines:?}");
        let (_, most) = lines[1].split_once("at most ").unwrap();
        let (number, unit) = most.split_once(' ').unwrap();
        number.parse::<f64>().unwrap() * if unit.starts_with("GiB") { 1024.0 } else { 1.0 }
    };
    assert!(needed(2_000_000) > 10.0 * needed(20_000));
    // Data that are none fail by their file.
    let north = Kit::open(&kits.join("north")).unwrap();
    let (check, input) = super::data::check(&north, &kits);
    assert!(check.outcome == CheckOutcome::Failed && input.is_none(), "{check}");
    assert!(check.to_string().contains("federation.toml"), "{check}");
}
