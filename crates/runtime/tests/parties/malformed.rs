//! A client that everybody knows sends what nobody can read. It is refused and named, no process ends, and when it sends what it
//! should, the values are those of a run that nobody disturbed.

use std::{collections::BTreeMap, time::Duration};

use secsv_protocol::{PartyId, decryptors::Protocol, message::Kind};

use crate::{
    federation::{CLIENTS, Fixture, Recipe},
    rogue::Rogue,
};

/// How often each kind is sent malformed, to each server; more where somebody asks for it.
fn times() -> usize {
    std::env::var("SECSV_MALFORMED").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

/// Cut off, continued, under a name that is another's, and with numbers that are none where there are such.
fn damaged(to: PartyId, kind: Kind, content: &[u8], time: usize) -> (Kind, Vec<u8>) {
    let mut bytes = content.to_vec();
    let place = time.wrapping_mul(0x9e37_79b9) % content.len().max(1);
    // Seeds, labels and words modulo 2^64 may be anything.
    let has_numbers =
        kind == Kind::Model || to == PartyId::Auxiliary && matches!(kind, Kind::Data | Kind::Shared);
    match time % 4 {
        0 => bytes.truncate(place.max(1)),
        1 => bytes.extend(vec![0; time + 1]),
        2 if has_numbers && bytes.len() > 1000 => bytes[600..800].fill(0xff),
        2 => bytes.truncate(content.len() - 1),
        _ => return ([Kind::Session, Kind::Verdict, Kind::Reply, Kind::Done][time / 4 % 4], bytes),
    }
    (kind, bytes)
}

fn undisturbed(recipe: &Recipe) -> BTreeMap<Kind, usize> {
    if std::env::var("SECSV_TRACE").is_ok() {
        let _ = tracing_subscriber::fmt().with_writer(std::io::stderr).try_init();
    }
    let fixture = Fixture::new(recipe);
    let principal = fixture.start_principal(Duration::from_secs(300));
    let auxiliary = fixture.start_auxiliary();
    let others: Vec<_> = CLIENTS[..4].iter().map(|client| fixture.start_client(client)).collect();
    let times = times();
    // Of each kind the first two to each server: there are hundreds of some.
    let mischief = |to, kind: Kind, content: &[u8], said: usize, time| {
        (said < 2 && time < times).then(|| damaged(to, kind, content, time))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut rogue = Rogue::new(&fixture, "e", &mischief);
    runtime.block_on(rogue.take_part());
    let result = principal.join().unwrap().unwrap();
    fixture.assert_values(&result);
    auxiliary.join().unwrap().unwrap();
    others.into_iter().for_each(|client| drop(client.join().unwrap().unwrap()));
    for (kind, reasons) in &rogue.refused {
        let unnamed =
            reasons.iter().find(|reason| !reason.contains("client 5") && !reason.contains("expected"));
        assert_eq!(unnamed, None, "{kind}");
    }
    let counts = rogue.refused.iter().map(|(kind, reasons)| (*kind, reasons.len())).collect();
    println!("{:?}: refused {counts:?}", recipe.protocol);
    counts
}

#[test]
fn malformed_messages_of_every_kind_harm_their_sender_alone_under_secsv() {
    let counts = undisturbed(&Recipe { hidden: Some(6), ..Recipe::default() });
    for kind in
        [Kind::Hello, Kind::Data, Kind::Model, Kind::OwnResult, Kind::Shared, Kind::Truth, Kind::Predicted]
    {
        assert!(counts.get(&kind).is_some_and(|count| *count >= times()), "{kind}: {counts:?}");
    }
}

#[test]
fn malformed_messages_of_every_kind_harm_their_sender_alone_under_secretsv() {
    let counts = undisturbed(&Recipe { protocol: Protocol::SecretSv, hidden: Some(6), ..Recipe::default() });
    for kind in [Kind::Data, Kind::Model, Kind::FirstLayer, Kind::Shared, Kind::Truth, Kind::Predicted] {
        assert!(counts.get(&kind).is_some_and(|count| *count >= times()), "{kind}: {counts:?}");
    }
}

#[test]
fn malformed_messages_of_every_kind_harm_their_sender_alone_under_hesv() {
    let counts = undisturbed(&Recipe { protocol: Protocol::Hesv, samples: 2, ..Recipe::default() });
    for kind in [Kind::Data, Kind::Model, Kind::OwnResult, Kind::Truth] {
        assert!(counts.get(&kind).is_some_and(|count| *count >= times()), "{kind}: {counts:?}");
    }
}
