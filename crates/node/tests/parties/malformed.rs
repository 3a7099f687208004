//! A client that everybody knows sends what nobody can read. It is refused and named, no process ends, and when it sends what it
//! should, the values are those of a run that nobody disturbed.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Duration,
};

use secsv_protocol::{PartyId, decryptors::Protocol, message::Kind};

use crate::{
    federation::{CLIENTS, FirstLayer, Fixture, Recipe},
    process::{Processes, parties},
    rogue::{Rogue, State, Tally},
};

/// How often each kind is sent malformed, to each server; more where somebody asks for it.
fn times() -> usize {
    asked().unwrap_or(6)
}

/// How often each kind is sent in each state where nobody waits for it.
fn intrusions() -> usize {
    asked().unwrap_or(1)
}

fn asked() -> Option<usize> {
    std::env::var("SECSV_MALFORMED").ok().and_then(|text| text.parse().ok())
}

/// Kinds that say where in a test they belong: test, group and part, and then step, item and chunk.
const ADDRESSED: [Kind; 8] = [
    Kind::ActivationShare,
    Kind::LabelShare,
    Kind::PredictionShare,
    Kind::Triple,
    Kind::Count,
    Kind::EncryptedActivations,
    Kind::EncryptedLabels,
    Kind::EncryptedPredictions,
];

/// Cut off, continued, under a name that is another's, with numbers that are none, and for places that are none, where there are such.
fn damaged(to: PartyId, kind: Kind, content: &[u8], time: usize) -> (Kind, Vec<u8>) {
    let mut bytes = content.to_vec();
    let place = time.wrapping_mul(0x9e37_79b9) % content.len().max(1);
    // Seeds, labels and words modulo 2^64 may be anything.
    let has_numbers = kind == Kind::Model
        || to == PartyId::Auxiliary && matches!(kind, Kind::DataShare | Kind::ActivationShare);
    match time % 5 {
        0 => bytes.truncate(place.max(1)),
        1 => bytes.extend(vec![0; time + 1]),
        2 if has_numbers && bytes.len() > 1000 => bytes[600..800].fill(0xff),
        2 => bytes.truncate(content.len() - 1),
        3 if ADDRESSED.contains(&kind) => bytes[[12, 14, 16][time / 5 % 3] + time % 2] ^= 0x40,
        _ => return ([Kind::Session, Kind::CommonSeed, Kind::Values, Kind::RoundStart][time / 5 % 4], bytes),
    }
    (kind, bytes)
}

/// Kinds that a client sends to a server, if it leads and brings samples.
fn of_client(recipe: &Recipe, to: PartyId, is_leader: bool) -> BTreeSet<Kind> {
    let is_principal = to == PartyId::Principal;
    let (is_secret, is_hesv) = (recipe.protocol == Protocol::SecretSv, recipe.protocol == Protocol::Hesv);
    if is_hesv && !is_principal {
        return BTreeSet::new();
    }
    if recipe.protocol == Protocol::BlindSv {
        let kinds = [
            (Kind::ClientHello, is_principal),
            (Kind::ModelMaskSeed, is_leader),
            (Kind::MaskSeed, true),
            (Kind::SealedClientKeys, is_leader && is_principal),
            (Kind::MaskedModel, true),
            (Kind::DataShare, !is_principal),
            (Kind::DealtProduct, !is_principal),
            (Kind::Dealing, !is_principal),
        ];
        return kinds.into_iter().filter(|(_, is_sent)| *is_sent).map(|(kind, _)| kind).collect();
    }
    let has_layers = recipe.hidden.is_some();
    let is_secsv = !is_secret && !is_hesv;
    let kinds = [
        (Kind::ClientHello, is_principal),
        (Kind::ServerKeys, is_leader && is_secsv),
        (Kind::EvaluationKeys, is_leader && is_hesv),
        (Kind::MaskSeed, is_secret),
        (Kind::SealedClientKeys, is_leader && is_principal),
        (Kind::Model, !is_secret),
        (Kind::ModelShare, is_secret),
        (Kind::DataShare, !is_hesv),
        (Kind::EncryptedData, is_hesv),
        (Kind::OwnResult, is_principal && !is_hesv),
        (Kind::OwnResultCounts, is_hesv),
        (Kind::DealtProduct, is_secret && !is_principal),
        (Kind::ActivationShare, has_layers && !is_hesv),
        (Kind::EncryptedActivations, has_layers && is_hesv),
        (Kind::LabelShare, !is_hesv),
        (Kind::EncryptedLabels, is_hesv),
        (Kind::PredictionShare, !is_hesv),
        (Kind::EncryptedPredictions, is_hesv),
        (Kind::Triple, recipe.first == FirstLayer::Recurrent && !is_hesv),
        (Kind::Count, is_hesv),
        (Kind::OwnCount, !is_principal),
    ];
    kinds.into_iter().filter(|(_, is_sent)| *is_sent).map(|(kind, _)| kind).collect()
}

/// Everything that it was its part to send it has sent malformed before, and was refused by name.
fn assert_refused(rogue: &Rogue<'_>, recipe: &Recipe, position: usize, is_leader: bool) {
    let name = format!("from {}", CLIENTS[position]);
    let is_named = |reason: &String| reason.contains(&name) || reason.contains("expected");
    for server in [PartyId::Principal, PartyId::Auxiliary] {
        let kinds = of_client(recipe, server, is_leader);
        assert_eq!(rogue.said(server), kinds, "to {server}");
        for kind in kinds {
            let reasons = &rogue.refused[&(server, kind)];
            assert!(reasons.len() >= times(), "{kind} to {server}: {}", reasons.len());
            assert_eq!(reasons.iter().find(|reason| !is_named(reason)), None, "{kind} to {server}");
        }
    }
    for ((state, server, kind), tally) in &rogue.intruded {
        // A party that has told or read the values ends, and says so.
        let is_ending = |reason: &String| *state == State::AfterValues && reason.contains("shutting down");
        let unnamed = tally.refused.iter().find(|reason| !is_named(reason) && !is_ending(reason));
        assert_eq!(unnamed, None, "{kind} to {server}, {state:?}");
        let sent = tally.refused.len() + tally.taken + tally.waited + tally.gone;
        // The auxiliary does not wait for who has not parted.
        let may_leave = (*state, *server) == (State::AfterValues, PartyId::Auxiliary);
        assert!(sent == intrusions() || may_leave && sent > 0, "{kind} to {server}, {state:?}: {sent}");
    }
}

/// What was sent and what became of it, for whoever reads along.
fn report(rogue: &Rogue<'_>, recipe: &Recipe, is_leader: bool) {
    let role = if is_leader { "leader" } else { "client" };
    println!("{:?}, {role}: malformed where they were due, all refused", recipe.protocol);
    for ((server, kind), reasons) in &rogue.refused {
        println!("  {kind} to {server}: {}", reasons.len());
    }
    for state in [State::BeforeSession, State::Testing, State::AfterValues] {
        for server in [PartyId::Principal, PartyId::Auxiliary] {
            let tallies = rogue.intruded.iter().filter(|((s, to, _), _)| (*s, *to) == (state, server));
            let mut sums = [0; 5];
            for (_, Tally { refused, taken, waited, gone }) in tallies {
                let found = [1, refused.len(), *taken, *waited, *gone];
                sums.iter_mut().zip(found).for_each(|(sum, found)| *sum += found);
            }
            let [kinds, refused, taken, waited, gone] = sums;
            println!(
                "  {state:?}, {server}: {kinds} kinds; {refused} refused, {taken} taken without effect, \
                 {waited} not looked at, {gone} to nobody"
            );
        }
    }
}

/// Runs a federation of which one client attacks: nobody's process ends, and everybody learns the values of one process.
fn undisturbed(recipe: &Recipe, is_leader: bool) {
    let fixture = Fixture::new(recipe);
    let leader = fixture.kit("principal").session().unwrap().leader();
    let position = if is_leader { leader } else { (leader + 1) % CLIENTS.len() };
    let id = CLIENTS[position];
    let mut processes = Processes::new(&fixture);
    parties().iter().filter(|party| *party != id).for_each(|party| processes.start(party));
    let times = times();
    // Of each kind the first to each server, or the first two: there are hundreds of some.
    let first = if asked().is_some() { 2 } else { 1 };
    let mischief = |to, kind: Kind, content: &[u8], said: usize, time| {
        (said < first && time < times).then(|| damaged(to, kind, content, time))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut rogue = Rogue::new(&fixture, id, &mischief);
    rogue.intrusions = intrusions();
    // A server that could not start is waited for no longer than this.
    let patience = Duration::from_secs(240 + 20 * times as u64);
    let part = async { tokio::time::timeout(patience, rogue.take_part()).await.unwrap() };
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(part)));
    if let Err(panic) = outcome {
        let log = |server| eprintln!("{server}:\n{}", processes.log(server));
        ["principal", "auxiliary"].into_iter().for_each(log);
        resume_unwind(panic);
    }
    processes.finish_all_but(id);
    report(&rogue, recipe, is_leader);
    assert_refused(&rogue, recipe, position, is_leader);
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
    undisturbed(&Recipe { samples: 2, ..Recipe::default() }, false);
}

#[test]
fn a_leader_s_malformed_messages_of_every_kind_harm_it_alone_under_secsv() {
    undisturbed(
        &Recipe { samples: 1, hidden: Some(2), first: FirstLayer::Recurrent, ..Recipe::default() },
        true,
    );
}

#[test]
fn malformed_messages_of_every_kind_harm_their_sender_alone_under_secretsv() {
    let protocol = Protocol::SecretSv;
    undisturbed(
        &Recipe { protocol, samples: 1, hidden: Some(2), first: FirstLayer::Recurrent, ..Recipe::default() },
        true,
    );
}

#[test]
fn malformed_messages_of_every_kind_harm_their_sender_alone_under_blindsv() {
    undisturbed(&Recipe { protocol: Protocol::BlindSv, samples: 1, ..Recipe::default() }, true);
}

#[test]
fn malformed_messages_of_every_kind_harm_their_sender_alone_under_hesv() {
    undisturbed(&Recipe { protocol: Protocol::Hesv, samples: 1, hidden: Some(2), ..Recipe::default() }, true);
}
