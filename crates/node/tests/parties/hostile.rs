//! Twelve strangers and worse.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant, SystemTime},
};

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use secsv_evaluation::packet::Packet;
use secsv_node::{
    kit::Kit,
    transport::{ALPN, client_config},
};
use secsv_protocol::{Scope, TestId, message::Kind};

use crate::{
    address::free_address,
    attacker::{Attack, bare, chunk, greeting, handshake, head, honest_tls, message},
    federation::{CLIENTS, Fixture, Recipe, accepting},
    impostor::Impostor,
};

/// A certificate that the consortium's own authority signed, for anybody.
fn signed(fixture: &Fixture, params: CertificateParams) -> ClientConfig {
    let kits = fixture.path().join("kits");
    let authority = std::fs::read_to_string(kits.join("authority-key.pem")).unwrap();
    let authority_certificate = std::fs::read_to_string(kits.join("authority.pem")).unwrap();
    let issuer =
        Issuer::from_ca_cert_pem(&authority_certificate, KeyPair::from_pem(&authority).unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = params;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    client_config(fixture.kit("a").tls_authority(), certificate.der().clone(), key).unwrap()
}

fn without_certificate(kit: &Kit) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(kit.tls_authority()).unwrap();
    let provider = secsv_node::crypto::provider();
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

/// Dials and says why that went no further.
async fn refused(fixture: &Fixture, config: ClientConfig) -> String {
    match Attack::dial(&fixture.principal, config).await {
        Err(reason) => reason,
        Ok(mut attack) => attack.refusal().await,
    }
}

async fn strangers(fixture: &Fixture) {
    let kit = fixture.kit("a");
    // 1. No certificate.
    let reason = handshake(&fixture.principal, without_certificate(&kit)).await;
    assert!(reason.contains("CertificateRequired"), "{reason}");
    // 2. Another authority's certificate.
    let other = fixture.provision("other", fixture.principal.clone(), free_address());
    let stranger = Kit::open(&other.join("a")).unwrap();
    let config = client_config(kit.tls_authority(), stranger.tls_certificate(), stranger.tls_key()).unwrap();
    let reason = handshake(&fixture.principal, config).await;
    assert!(reason.contains("UnknownCA") || reason.contains("DecryptError"), "{reason}");
    // 3. A certificate whose time is over.
    let mut expired = CertificateParams::default();
    expired.not_before = (SystemTime::now() - Duration::from_secs(7200)).into();
    expired.not_after = (SystemTime::now() - Duration::from_secs(3600)).into();
    let reason = handshake(&fixture.principal, signed(fixture, expired)).await;
    assert!(reason.contains("CertificateExpired"), "{reason}");
    // 4. Another party's kit: one of another consortium, and the principal's own.
    let mut attack = Attack::dial(&fixture.principal, honest_tls(&kit)).await.unwrap();
    attack.say(bare(Packet::Handshake(greeting(&stranger, [1; 16])))).await;
    let reason = attack.refusal().await;
    assert!(reason.contains("federation files differ"), "{reason}");
    let own = fixture.kit("principal");
    let reason = refused(fixture, honest_tls(&own)).await;
    assert!(reason.contains("no link"), "{reason}");
    // 5. A certificate of the authority for nobody in the federation.
    let reason = refused(fixture, signed(fixture, CertificateParams::default())).await;
    assert!(reason.contains("of no party"), "{reason}");
}

/// Those who have a kit and even know the party's state directory. Nothing of it may count as the party's word.
#[expect(clippy::too_many_lines, reason = "one attack after the other, all against one federation")]
async fn insiders(fixture: &Fixture, instance: [u8; 16]) {
    let kit = fixture.kit("e");
    let dial = || Attack::dial(&fixture.principal, honest_tls(&kit));
    // 7. A message that is too large, by its own word and in one packet.
    let mut first = dial().await.unwrap();
    first.meet(greeting(&kit, instance)).await;
    first.say(head(0, Kind::ClientHello, 1 << 40, [0; 32])).await;
    let reason = first.refusal().await;
    assert!(reason.contains("expected at most"), "{reason}");
    // 12. A second process with the same identity, while the first is there. The principal greets before it has read a
    // greeting: only a refusal like the one above shows that it knows the first.
    let mut first = dial().await.unwrap();
    first.meet(greeting(&kit, instance)).await;
    let mut second = dial().await.unwrap();
    second.say(bare(Packet::Handshake(greeting(&kit, [2; 16])))).await;
    let reason = second.refusal().await;
    assert!(reason.contains("another state directory"), "{reason}");
    drop(first);
    let mut attack = dial().await.unwrap();
    attack.meet(greeting(&kit, instance)).await;
    attack.say(chunk(&vec![0; 2 << 20])).await;
    let reason = attack.refusal().await;
    assert!(reason.contains("length of a packet: expected at most"), "{reason}");
    // 10. A message that is cut off, and one that goes on too long.
    let mut attack = dial().await.unwrap();
    attack.meet(greeting(&kit, instance)).await;
    attack.say(head(0, Kind::ClientHello, 100, [7; 32])).await;
    attack.say(chunk(&[1; 50])).await;
    drop(attack);
    let mut attack = dial().await.unwrap();
    attack.meet(greeting(&kit, instance)).await;
    attack.say(head(0, Kind::ClientHello, 10, [8; 32])).await;
    attack.say(chunk(&[1; 11])).await;
    assert!(attack.refusal().await.contains("expected 10"));
    // 9. Garbage inside a stream, and content that is not what its digest says.
    let mut attack = dial().await.unwrap();
    attack.meet(greeting(&kit, instance)).await;
    attack.say(head(0, Kind::ClientHello, 3, [9; 32])).await;
    attack.say(chunk(&[1; 3])).await;
    assert!(attack.refusal().await.contains("digest"));
    let mut attack = dial().await.unwrap();
    attack.meet(greeting(&kit, instance)).await;
    for body in message(0, Kind::ClientHello, b"no introduction") {
        attack.say(body).await;
    }
    let reason = attack.refusal().await;
    assert!(reason.contains("client hello from e"), "{reason}");
    // 11. Messages that have their time, which this is not.
    for kind in [Kind::Model, Kind::DifferenceShare, Kind::Session, Kind::Values] {
        let mut attack = dial().await.unwrap();
        attack.meet(greeting(&kit, instance)).await;
        for body in message(0, kind, &[0; 64]) {
            attack.say(body).await;
        }
        let reason = attack.refusal().await;
        assert!(reason.contains("is not expected"), "{kind}: {reason}");
    }
    // Connections without end: a new one ends the oldest, long before the time for putting it to use is over.
    let since = Instant::now();
    let mut silent = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (principal, config) = (fixture.principal.clone(), honest_tls(&kit));
        silent.spawn(async move { handshake(&principal, config).await });
    }
    for _ in 0..4 {
        silent.join_next().await.unwrap().unwrap();
    }
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    silent.shutdown().await;
    // 6. A session that is replayed: from the middle, or by somebody who was there before with other state.
    let mut attack = dial().await.unwrap();
    attack.meet(greeting(&kit, instance)).await;
    attack.say(head(5, Kind::ClientHello, 1, [0; 32])).await;
    assert!(attack.refusal().await.contains("number: expected 0"));
    let mut attack = dial().await.unwrap();
    let mut replayed = greeting(&kit, instance);
    replayed.due = 40;
    attack.say(bare(Packet::Handshake(replayed))).await;
    assert!(attack.refusal().await.contains("not the one that the run began with"));
}

/// Connects and says what no TLS library would; returns after the other side hung up.
fn without_tls(fixture: &Fixture, bytes: &[u8], trickle: bool) -> Duration {
    let address = (fixture.principal.host.as_str(), fixture.principal.port);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let since = Instant::now();
    let mut bytes = bytes.iter().copied().cycle();
    if !trickle {
        let garbage: Vec<u8> = bytes.by_ref().take(20_000).collect();
        let _ = stream.write_all(&garbage);
    }
    while since.elapsed() < Duration::from_secs(40) {
        if trickle && stream.write_all(&[bytes.next().unwrap()]).is_err() {
            break;
        }
        match stream.read(&mut [0; 512]) {
            Ok(0) => break,
            Err(e) if !matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                break;
            }
            _ => {}
        }
    }
    since.elapsed()
}

/// Strangers who connect and say nothing, more than are listened to at a time: a party gets in without waiting for them.
async fn silent_crowd(fixture: &Fixture) {
    let address = (fixture.principal.host.as_str(), fixture.principal.port);
    let crowd: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
    let since = Instant::now();
    let kit = fixture.kit("e");
    let mut attack = Attack::dial(&fixture.principal, honest_tls(&kit)).await.unwrap();
    attack.meet(greeting(&kit, fixture.instance("e"))).await;
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    drop(crowd);
}

#[test]
fn strangers_are_refused_with_a_reason_and_the_run_goes_on() {
    let fixture = Fixture::new(&Recipe::default());
    let principal = fixture.start_principal(Duration::from_secs(300));
    let auxiliary = fixture.start_auxiliary();
    let start = |party: &&str| fixture.start_client(party);
    let mut clients: Vec<_> = CLIENTS[..4].iter().map(start).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    std::thread::scope(|scope| {
        // 8. A slow one: a handshake that never ends, a byte at a time. It goes on while others come.
        let slow = scope.spawn(|| without_tls(&fixture, &[22, 3, 1, 2, 0, 1], true));
        // 9. Garbage instead of TLS.
        assert!(without_tls(&fixture, b"GET / HTTP/1.1\r\n\r\n", false) < Duration::from_secs(15));
        runtime.block_on(strangers(&fixture));
        runtime.block_on(insiders(&fixture, fixture.instance("e")));
        runtime.block_on(silent_crowd(&fixture));
        assert!(slow.join().unwrap() < Duration::from_secs(25));
    });
    clients.push(fixture.start_client("e"));
    let result = principal.join().unwrap().unwrap();
    fixture.assert_values(&result);
    assert_eq!(auxiliary.join().unwrap().unwrap().fsv, result.fsv);
    for client in clients {
        assert_eq!(client.join().unwrap().unwrap().fsv, result.fsv);
    }
}

#[test]
fn a_kit_is_one_partys() {
    let fixture = Fixture::new(&Recipe::default());
    let options = fixture.options("a");
    let client = accepting(&fixture.kit("a"), options.clone());
    let wrong = secsv_node::process::run_client(fixture.kit("auxiliary"), &fixture.run(), &client);
    assert!(wrong.unwrap_err().to_string().contains("expected a client's, found auxiliary"));
    let wrong = secsv_node::process::run_auxiliary(fixture.kit("a"), &options);
    assert!(wrong.unwrap_err().to_string().contains("expected the auxiliary's, found a"));
}

/// A server that speaks in another's name takes nothing, and says what it likes: whoever dialled hangs up, and is there for
/// the real one.
#[test]
fn a_server_that_takes_nothing_is_left() {
    let fixture = Fixture::new(&Recipe::default());
    let (kit, instance) = (fixture.kit("principal"), fixture.instance("principal"));
    let mut clients = vec![fixture.start_client("a")];
    // Tests that the run does not have: the client would believe that they are over.
    let test = |number: u32| Scope::Test(TestId { attempt: 1, request: number.into() });
    let over = |tests: u32| Packet::Finished((0..tests).map(test).collect());
    let greeting = || Packet::Handshake(greeting(&kit, instance));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let impostor = Impostor::new(&fixture.principal, &kit).await;
        // No greeting, and no room for the client's.
        assert!(impostor.is_left(0, vec![Packet::Goodbye]).await);
        // More ends than there may be in a packet, and as many.
        assert!(impostor.is_left(1, vec![greeting(), over(4097)]).await);
        assert!(!impostor.is_left(1, vec![greeting(), over(4096)]).await);
    });
    let principal = fixture.start_principal(Duration::from_secs(300));
    let auxiliary = fixture.start_auxiliary();
    clients.extend(CLIENTS[1..].iter().map(|party| fixture.start_client(party)));
    let result = principal.join().unwrap().unwrap();
    fixture.assert_values(&result);
    assert_eq!(auxiliary.join().unwrap().unwrap().fsv, result.fsv);
    for client in clients {
        assert_eq!(client.join().unwrap().unwrap().fsv, result.fsv);
    }
}
