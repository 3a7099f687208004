//! Parties are killed at random moments, connections are cut and delayed. The values stay the same to the bit.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use secsv_node::{
    audit::RESULT_FILE,
    journal::{Journal, Owner},
};
use secsv_protocol::decryptors::Protocol;

use crate::{
    address::free_address,
    federation::{FirstLayer, Fixture, Recipe},
    frames::{all_sent, by_link},
    process::{Processes, parties},
};

/// Numbers that follow from a seed.
pub struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Stands between parties and a server: passes bytes on, late, and cuts connections.
struct Wire {
    stop: Arc<AtomicBool>,
    cut: Arc<AtomicU64>,
}

impl Wire {
    fn new(listener: TcpListener, target: String, seed: u64, spare: Duration) -> Self {
        let (stop, cut) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopping, cuts) = (stop.clone(), cut.clone());
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            let mut dice = Dice(seed);
            while !stopping.load(Ordering::Relaxed) {
                let Ok((from, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                };
                let Ok(to) = TcpStream::connect(&target) else { continue };
                let life = spare + Duration::from_millis(dice.below(800));
                let delay = Duration::from_millis(dice.below(8));
                carry(from, to, life, delay, cuts.clone());
            }
        });
        Self { stop, cut }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Carries bytes both ways until the connection's life is over.
fn carry(from: TcpStream, to: TcpStream, life: Duration, delay: Duration, cuts: Arc<AtomicU64>) {
    let until = Instant::now() + life;
    from.set_nonblocking(false).unwrap();
    for (mut source, mut target) in [(from.try_clone().unwrap(), to.try_clone().unwrap()), (to, from)] {
        let cuts = cuts.clone();
        std::thread::spawn(move || {
            let _ = source.set_read_timeout(Some(Duration::from_millis(50)));
            let mut buffer = [0; 16 << 10];
            while Instant::now() < until {
                match source.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => {
                        std::thread::sleep(delay);
                        if target.write_all(&buffer[..count]).is_err() {
                            break;
                        }
                    }
                    Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                    Err(_) => break,
                }
            }
            if Instant::now() >= until {
                cuts.fetch_add(1, Ordering::Relaxed);
            }
            let _ = source.shutdown(Shutdown::Both);
            let _ = target.shutdown(Shutdown::Both);
        });
    }
}

fn role(party: &str) -> &str {
    if matches!(party, "principal" | "auxiliary") { party } else { "client" }
}

/// Kills parties and starts them again until `kills` are done or the run has ended; how often each role was hit.
fn disturb(processes: &mut Processes<'_>, dice: &mut Dice, kills: u64, pause: u64) -> BTreeMap<String, u64> {
    let everybody = parties();
    let mut hit: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(20 + dice.below(pause)));
        // The role that was hit least, or any party.
        let count = |name: &str| hit.get(name).copied().unwrap_or(0);
        let least = ["principal", "auxiliary", "client"].into_iter().min_by_key(|name| count(name));
        let among: Vec<&String> =
            everybody.iter().filter(|party| dice.0 & 1 == 0 || Some(role(party)) == least).collect();
        let victim = among[dice.below(among.len() as u64) as usize].clone();
        if !processes.kill(&victim) {
            break;
        }
        *hit.entry(role(&victim).to_owned()).or_default() += 1;
        std::thread::sleep(Duration::from_millis(dice.below(pause)));
        processes.start(&victim);
    }
    hit
}

/// State directories of parties that were killed open and can be read.
fn assert_states_open(fixture: &Fixture) {
    for party in parties() {
        let kit = fixture.kit(&party);
        // The run has ended: nothing is encoded any more.
        let owner = Owner { files: None, ..fixture.owner(&kit) };
        let state = fixture.options(&party).state;
        let journal = Journal::open(&state, &owner, || panic!("it has a seed")).unwrap();
        for message in journal.replay().unwrap() {
            journal.blobs().read(&message.body, &message.digest).unwrap();
        }
        journal.unacknowledged().unwrap();
    }
}

fn killed(recipe: &Recipe, seed: u64, kills: u64, pause: u64) -> BTreeMap<String, u64> {
    killed_in(&Fixture::new(recipe), seed, kills, pause)
}

fn killed_in(fixture: &Fixture, seed: u64, kills: u64, pause: u64) -> BTreeMap<String, u64> {
    let mut processes = Processes::new(fixture);
    processes.start_all();
    let hit = disturb(&mut processes, &mut Dice(seed), kills, pause);
    println!("seed {seed}: killed {hit:?}");
    processes.finish();
    assert_states_open(fixture);
    let result = std::fs::read(fixture.options("principal").state.join(RESULT_FILE)).unwrap();
    fixture.assert_values(&serde_json::from_slice(&result).unwrap());
    hit
}

fn assert_all_were_killed(hit: &BTreeMap<String, u64>, kills: u64) {
    assert_eq!(hit.values().sum::<u64>(), kills, "the run ended before it was disturbed enough: {hit:?}");
    assert!(kills < 20 || (hit.len() == 3 && hit.values().all(|&times| times >= 3)), "{hit:?}");
}

/// Kills parties of BlindSV. Everybody says, byte for byte and once, what it says when the same run is not disturbed.
fn killed_as_undisturbed(recipe: &Recipe, seed: u64) {
    let seed = setting("SECSV_CHAOS_SEED", seed);
    let kills = setting("SECSV_KILLS", 6);
    let recipe = Recipe { rounds: recipe.rounds * kills as u32, ..recipe.clone() };
    let fixture = Fixture::new(&recipe);
    assert_all_were_killed(&killed_in(&fixture, seed, kills, 150), kills);
    let disturbed = all_sent(&fixture);
    fixture.forget_run();
    let mut processes = Processes::new(&fixture);
    processes.start_all();
    processes.finish();
    let undisturbed = all_sent(&fixture);
    assert_eq!(by_link(&disturbed), by_link(&undisturbed));
    let other = disturbed.iter().zip(&undisturbed).find(|(one, another)| one != another);
    assert_eq!(other, None);
}

#[test]
fn killed_parties_go_on_and_the_values_are_the_same() {
    let seed = setting("SECSV_CHAOS_SEED", 7);
    let (kills, pause) = (setting("SECSV_CHAOS_KILLS", 20), setting("SECSV_CHAOS_PAUSE", 150));
    let rounds = setting("SECSV_CHAOS_ROUNDS", 24) as u32;
    let recipe = Recipe { rounds, hidden: Some(3), ..Recipe::default() };
    let hit = killed(&recipe, seed, kills, pause);
    assert_all_were_killed(&hit, kills);
}

/// Models of one layer are tested together.
#[test]
fn killed_parties_that_test_models_together_go_on() {
    let seed = setting("SECSV_CHAOS_SEED", 5);
    killed(&Recipe { rounds: 12, ..Recipe::default() }, seed, 6, 200);
}

#[test]
fn killed_parties_of_secretsv_go_on() {
    let seed = setting("SECSV_CHAOS_SEED", 11);
    let recipe = Recipe { protocol: Protocol::SecretSv, rounds: 4, hidden: Some(3), ..Recipe::default() };
    killed(&recipe, seed, 5, 250);
}

#[test]
fn killed_parties_of_blindsv_go_on() {
    killed_as_undisturbed(&Recipe { protocol: Protocol::BlindSv, rounds: 8, ..Recipe::default() }, 17);
}

#[test]
fn killed_parties_of_deep_blindsv_go_on() {
    let protocol = Protocol::BlindSv;
    let (hidden, first) = (Some(3), FirstLayer::Convolution);
    killed_as_undisturbed(&Recipe { protocol, hidden, first, rounds: 2, ..Recipe::default() }, 19);
}

#[test]
fn killed_parties_of_hesv_go_on_with_skipping_off() {
    let seed = setting("SECSV_CHAOS_SEED", 13);
    let recipe = Recipe { protocol: Protocol::Hesv, ..Recipe::default() };
    killed(&recipe, seed, 5, 250);
}

#[test]
fn cut_and_delayed_connections_change_nothing() {
    let seed = setting("SECSV_CHAOS_SEED", 7);
    let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let public = listeners.each_ref().map(|l| l.local_addr().unwrap().to_string().parse().unwrap());
    let recipe = Recipe { rounds: 4, addresses: Some(public), ..Recipe::default() };
    let fixture = Fixture::new(&recipe);
    let inner = [0, 1].map(|_| free_address().to_string());
    let mut processes = Processes::new(&fixture);
    for (party, address) in ["principal", "auxiliary"].into_iter().zip(&inner) {
        processes.listen.insert(party.to_owned(), address.clone());
    }
    let spare = Duration::from_millis(200);
    let wires: Vec<Wire> = listeners
        .into_iter()
        .zip(inner)
        .zip(seed..)
        .map(|((listener, target), seed)| Wire::new(listener, target, seed, spare))
        .collect();
    processes.start_all();
    processes.finish();
    let cuts: u64 = wires.iter().map(|wire| wire.cut.load(Ordering::Relaxed)).sum();
    println!("connections cut: {cuts}");
    assert!(cuts > 0, "the wire was too good");
}
