//! A client that everybody knows sends what nobody can read. It is refused and named, no process ends, and when it sends what it
//! should, the values are those of a run that nobody disturbed.

use std::{collections::BTreeMap, time::Duration};

use secsv_protocol::{PartyId, decryptors::Protocol, message::Kind};

use crate::{
    federation::{CLIENTS, Fixture, Recipe},
    process::Processes,
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
        _ => return ([Kind::Session, Kind::Common, Kind::Values, Kind::RoundStart][time / 4 % 4], bytes),
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

/// The most memory that a process has had, in bytes.
fn peak_memory(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// Hundreds of messages as long as any (`SECSV_FLOOD`: as many as one likes), about tests that do not exist: servers keep as many bytes of them as the plan says and refuse
/// the others, and the run ends as if nobody had sent them.
#[test]
fn a_flood_of_large_messages_stays_within_the_bound_that_plans_print() {
    let fixture = Fixture::new(&Recipe { samples: 200, hidden: Some(64), ..Recipe::default() });
    let bounds: BTreeMap<String, u64> = fixture.most_held();
    let mut processes = Processes::new(&fixture);
    ["principal", "auxiliary", "a", "b", "c", "d"].into_iter().for_each(|party| processes.start(party));
    let honest = |_: PartyId, _: Kind, _: &[u8], _: usize, _: usize| None;
    let mut rogue = Rogue::new(&fixture, "e", &honest);
    let count = std::env::var("SECSV_FLOOD").ok().and_then(|text| text.parse().ok()).unwrap_or(560);
    rogue.flood = count;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let servers: BTreeMap<String, u32> =
        ["principal", "auxiliary"].map(|server| (server.to_owned(), processes.running[server].id())).into();
    // Until they end: a process that has ended tells nothing.
    let watched = std::thread::spawn(move || {
        let mut most = BTreeMap::new();
        while servers
            .iter()
            .all(|(server, id)| peak_memory(*id).map(|peak| most.insert(server.clone(), peak)).is_some())
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        most
    });
    runtime.block_on(rogue.take_part());
    processes.finish_all_but("e");
    let most = watched.join().unwrap();
    println!("taken and refused: {:?}; peak memory {most:?}, bounds {bounds:?}", rogue.flooded);
    let (taken, refused) = rogue.flooded[&PartyId::Auxiliary];
    assert!(taken > 0 && refused > 0 && taken + refused == count, "{taken} taken, {refused} refused");
    assert_eq!(rogue.flooded[&PartyId::Principal].0, 0);
    // A server without clients takes less than this.
    let base = 64 << 20;
    most.iter().for_each(|(server, bytes)| assert!(*bytes <= base + bounds[server], "{server}: {bytes}"));
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
