//! Owners deal for all rounds at the start and leave.

use std::{
    cell::Cell,
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use secsv_node::audit::RESULT_FILE;
use secsv_protocol::{PartyId, decryptors::Protocol, message::Kind};

use crate::{
    federation::{Fixture, Recipe},
    frames::{all_sent, by_link, received_by},
    ideal::planned,
    process::Processes,
    rogue::Rogue,
};

/// Owners that leave.
const LEAVING: [&str; 4] = ["a", "b", "c", "d"];

/// The last client gives the auxiliary no model until the others have dealt everything and were killed: so no test had ended, and
/// the two servers end all of them by themselves. Whoever left comes back for the values.
#[test]
fn owners_that_have_dealt_everything_may_leave() {
    let fixture = Fixture::new(&Recipe { protocol: Protocol::BlindSv, rounds: 6, ..Recipe::default() });
    let result = fixture.options("principal").state.join(RESULT_FILE);
    let processes = Mutex::new(Processes::new(&fixture));
    let lock = || -> MutexGuard<'_, Processes<'_>> { processes.lock().unwrap() };
    ["principal", "auxiliary"].iter().chain(&LEAVING).for_each(|party| lock().start(party));
    let has_left = Cell::new(false);
    let mischief = |to, kind, _: &[u8], said: usize, time: usize| {
        let is_first = (to, kind, said, time) == (PartyId::Auxiliary, Kind::MaskedModel, 0, 0);
        // A message that was not heard is said again.
        if is_first && !has_left.replace(true) {
            for party in LEAVING {
                let has_dealt = || lock().log(party).contains("everything is dealt");
                wait_until(|| format!("everything that {party} deals\n{}", lock().log(party)), has_dealt);
                assert!(lock().kill(party), "{party} has ended");
            }
            assert!(!result.exists(), "the run has ended without a model");
        }
        None
    };
    let mut rogue = Rogue::new(&fixture, "e", &mischief);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let logs = || ["principal", "auxiliary"].map(|server| lock().log(server)).join("\n");
            wait_until(|| format!("the result\n{}", logs()), || result.exists());
            LEAVING.iter().for_each(|party| lock().start(party));
        });
        let part = async { tokio::time::timeout(Duration::from_secs(90), rogue.take_part()).await };
        runtime.block_on(part).unwrap();
    });
    lock().finish_all_but("e");
    fixture.assert_values(&serde_json::from_slice(&std::fs::read(result).unwrap()).unwrap());
}

/// The auxiliary and an owner are killed when some of what the owner deals for all rounds is there, and some is not. What was dealt
/// before counts, and the rest comes.
#[test]
fn parties_that_are_killed_while_owners_deal_go_on() {
    let recipe =
        Recipe { protocol: Protocol::BlindSv, rounds: 36, samples: 12, hidden: Some(3), ..Recipe::default() };
    let fixture = Fixture::new(&recipe);
    let planned = planned(&fixture.run(), fixture.kit("principal").session().unwrap()).traffic;
    let (_, all) = planned[&(PartyId::Client(0), PartyId::Auxiliary, Kind::Dealing)];
    let mut processes = Processes::new(&fixture);
    processes.start_all();
    for victim in ["auxiliary", "a"] {
        let dealt = || received_by(&fixture, "auxiliary", ("a", Kind::Dealing));
        let before = dealt();
        processes.wait_until("something more is dealt", || dealt() > before);
        assert!(processes.kill(victim), "{victim} has ended");
        let (dealt, tested) =
            (dealt(), received_by(&fixture, "auxiliary", ("principal", Kind::TestFinished)));
        println!("{victim} killed: {dealt} of {all} dealt, {tested} tested");
        assert!((1..all).contains(&(dealt as u64)) && tested < dealt, "{dealt} of {all}, {tested} tested");
        processes.start(victim);
    }
    processes.finish();
    let result = fixture.options("principal").state.join(RESULT_FILE);
    fixture.assert_values(&serde_json::from_slice(&std::fs::read(result).unwrap()).unwrap());
    let dealt = by_link(&all_sent(&fixture))[&("a".into(), "auxiliary".into(), Kind::Dealing.name().into())];
    assert_eq!(dealt, planned[&(PartyId::Client(0), PartyId::Auxiliary, Kind::Dealing)]);
}

fn wait_until(what: impl Fn() -> String, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(60), "not yet: {}", what());
        std::thread::sleep(Duration::from_millis(10));
    }
}
