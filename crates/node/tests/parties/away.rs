//! A client that stays away: others decrypt for it where the rules leave somebody, and the run waits where they do not.

use std::{fs, time::Duration};

use secsv_federation::skip::SkipMode;
use secsv_protocol::decryptors::Protocol;

use crate::{
    federation::{Fixture, Recipe},
    process::Processes,
};

/// Only the first client has samples, so b, c and d close the circle that can take everything. e decrypts nothing, and takes over
/// what it may from one of them that stays away.
fn recipe(protocol: Protocol) -> Recipe {
    Recipe { protocol, samples: 60, owners: 1, ..Recipe::default() }
}

/// Starts everybody, and kills a client as soon as the servers have its model: most tests are still to come.
fn lose<'a>(fixture: &'a Fixture, client: &str) -> Processes<'a> {
    let mut processes = Processes::new(fixture);
    processes.away_after = Some(Duration::from_millis(1500));
    processes.start_all();
    let has_model = |party: &str| {
        let log = fs::read_to_string(fixture.options(party).state.join("audit.jsonl")).unwrap_or_default();
        let peer = format!("\"{client}\"");
        // Encrypted, or shared under SecretSV.
        let is_model = |line: &str| [r#""model""#, r#""model share""#].iter().any(|kind| line.contains(kind));
        let is_it = |line: &str| line.contains(r#""received""#) && line.contains(&peer) && is_model(line);
        log.lines().any(is_it)
    };
    processes.wait_until("the servers have its model", || has_model("principal") && has_model("auxiliary"));
    assert!(processes.kill(client));
    processes
}

/// Others take over from b what they may, and the rest waits until it is back.
fn without_b(recipe: &Recipe) {
    let fixture = Fixture::new(recipe);
    let mut processes = lose(&fixture, "b");
    processes.wait_until("b is missed", || processes.log("principal").contains("others take over"));
    processes.wait_until("b is awaited", || is_awaited(&processes, "b"));
    assert!(!fixture.options("principal").state.join("result.json").exists());
    processes.start("b");
    processes.finish();
}

fn is_awaited(processes: &Processes<'_>, client: &str) -> bool {
    let (log, name) = (processes.log("principal"), format!("\"{client}\""));
    log.lines().any(|line| line.contains("awaited: the run goes on") && line.contains(&name))
}

#[test]
fn others_take_over_from_a_client_that_stays_away() {
    without_b(&Recipe { skip: SkipMode::On, ..recipe(Protocol::SecSv) });
}

#[test]
fn whoever_has_nothing_left_to_do_is_not_missed() {
    let fixture = Fixture::new(&recipe(Protocol::SecSv));
    let mut processes = lose(&fixture, "e");
    let result = fixture.options("principal").state.join("result.json");
    processes.wait_until("the values are there without e", || result.exists());
    // It learns the values as soon as it is back.
    processes.start("e");
    processes.finish();
}

#[test]
fn others_take_over_under_secretsv() {
    without_b(&recipe(Protocol::SecretSv));
}

#[test]
fn where_the_rules_leave_nobody_the_run_waits_and_says_for_whom() {
    without_b(&recipe(Protocol::SecSv));
}

/// Two owners share a batch, so coalitions that were tested together differ in whose samples they are tested on. Some others
/// take over; the rest waits, and a principal that was killed in the meantime goes on with the same words.
#[test]
fn a_principal_that_is_killed_after_others_took_over_goes_on() {
    let fixture = Fixture::new(&Recipe { owners: 2, rounds: 2, ..recipe(Protocol::SecSv) });
    let mut processes = lose(&fixture, "e");
    let is_awaited = |processes: &Processes<'_>| {
        let log = processes.log("principal");
        log.lines().filter(|line| line.contains("awaited: the run goes on") && line.contains("\"e\"")).count()
    };
    processes.wait_until("e is awaited", || is_awaited(&processes) > 0);
    let before = is_awaited(&processes);
    assert!(processes.kill("principal"));
    processes.start("principal");
    processes.wait_until("e is awaited again", || is_awaited(&processes) > before);
    processes.start("e");
    processes.finish();
}
