//! A party with a role that does what a message's last byte says.

use std::time::{Duration, Instant};

use secsv_protocol::{
    CodecError,
    role::{Outgoing, Role},
};
use tempfile::TempDir;

use super::*;
use crate::kit::tests::provision;

const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes that make the role refuse a message, and say something that cannot be sent.
const BAD: u8 = 0;
const FATAL: u8 = 1;
/// A byte that makes work, of which the next byte comes.
const WORK: u8 = 20;

struct Clerk {
    taken: Vec<u8>,
    ended: Vec<Scope>,
    is_open: bool,
}

impl Role for Clerk {
    fn handle(&mut self, from: PartyId, kind: Kind, content: Vec<u8>) -> Result<Effects<Self>, RoleError> {
        let last = content.last().copied().unwrap_or(BAD);
        if last == BAD {
            return Err(RoleError::Malformed { from, kind, why: CodecError::Value { what: "last byte" } });
        }
        self.taken.push(last);
        let mut effects = Effects::default();
        if last == WORK {
            effects.jobs.push(Box::new(|_| {
                std::thread::sleep(Duration::from_millis(50));
                Ok(Box::new(|clerk: &mut Self| {
                    clerk.taken.push(WORK + 1);
                    Ok(Effects::default())
                }))
            }));
        }
        if last == FATAL {
            effects.outbox.push(Outgoing { to: from, kind: Kind::Model, content: Arc::default() });
        }
        Ok(effects)
    }

    fn end(&mut self, scope: Scope) {
        self.ended.push(scope);
    }

    fn awaiting(&self) -> String {
        "nothing".to_owned()
    }
}

impl Hosted for Clerk {
    fn is_open(&self, _: Scope) -> bool {
        self.is_open
    }
}

fn kit(directory: &TempDir) -> Arc<Kit> {
    let kits = directory.path().join("kits");
    if !kits.exists() {
        provision().generate_keys(&kits).unwrap();
    }
    Arc::new(Kit::open(&kits.join("principal")).unwrap())
}

fn open(directory: &TempDir, is_open: bool) -> Arc<Party<Clerk>> {
    let clerk = Clerk { taken: Vec::new(), ended: Vec::new(), is_open };
    let state = directory.path().join("state");
    Party::open(kit(directory), &state, None, |_, _| Ok((clerk, Effects::default(), vec![Scope::Test(7)])))
        .unwrap()
}

/// A message about test 7.
fn arrive(party: &Party<Clerk>, number: u64, last: u8) {
    let content = [&7u64.to_le_bytes()[..], &[last]].concat();
    let digest = *blake3::hash(&content).as_bytes();
    party.arrive(Arrival {
        from: PartyId::Client(0),
        number,
        kind: Kind::Truth,
        content,
        digest,
        room: None,
    });
}

fn await_taken(party: &Party<Clerk>, taken: &[u8]) {
    let begun = Instant::now();
    while party.desk().look(|clerk| clerk.taken.clone()) != taken {
        assert!(begun.elapsed() < PATIENCE, "{:?}", party.desk().look(|clerk| clerk.taken.clone()));
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// It was kept before the role could judge it: neither this process nor the next may end because of it.
#[test]
fn a_bad_message_that_had_to_wait_does_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let party = open(&directory, false);
    [5, BAD, 6].into_iter().zip(0..).for_each(|(last, number)| arrive(&party, number, last));
    assert!(party.desk().look(|clerk| clerk.taken.is_empty()));
    party.act(Box::new(|clerk| {
        clerk.is_open = true;
        Ok((Effects::default(), Vec::new()))
    }));
    await_taken(&party, &[5, 6]);
    party.stop();
    let party = open(&directory, true);
    await_taken(&party, &[5, 6]);
    arrive(&party, 3, 8);
    await_taken(&party, &[5, 6, 8]);
    assert!(party.desk().wait_for(Duration::ZERO, |_| Some(())).is_ok());
    party.stop();
}

/// What the role made of a message could not be kept, so the message was not: the next must not be acknowledged.
#[test]
fn nothing_is_taken_after_a_failure() {
    let directory = tempfile::tempdir().unwrap();
    let party = open(&directory, true);
    arrive(&party, 0, FATAL);
    assert!(party.desk().wait_for(PATIENCE, |_| None::<()>).is_err());
    arrive(&party, 1, 9);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(party.desk().look(|clerk| clerk.taken.clone()), [FATAL]);
    party.stop();
    let kit = kit(&directory);
    let owner = Owner { party: kit.own, federation: kit.digest };
    let journal = Journal::open(&directory.path().join("state"), &owner, || [0; 48]).unwrap();
    assert_eq!(journal.next_in(PartyId::Client(0)), 0);
}

/// What the principal says has ended is let go of, and what comes about it later is not looked at. Nobody else can say so.
#[test]
fn what_has_ended_is_let_go_of() {
    let directory = tempfile::tempdir().unwrap();
    let party = open(&directory, true);
    arrive(&party, 0, 5);
    party.over(PartyId::Auxiliary, vec![Scope::Test(3)], None);
    party.over(PartyId::Principal, vec![Scope::Test(7)], None);
    arrive(&party, 1, 6);
    party.act(Box::new(|clerk| {
        clerk.taken.push(9);
        Ok((Effects::default(), Vec::new()))
    }));
    await_taken(&party, &[5, 9]);
    assert_eq!(party.desk().look(|clerk| clerk.ended.clone()), [Scope::Test(7)]);
    party.stop();
    let kit = kit(&directory);
    let owner = Owner { party: kit.own, federation: kit.digest };
    let journal = Journal::open(&directory.path().join("state"), &owner, || [0; 48]).unwrap();
    assert_eq!((journal.next_in(PartyId::Client(0)), journal.replay().unwrap().len()), (2, 0));
}

/// Where work takes time, messages come meanwhile. When they are taken again, each finds what it found at first or more.
#[test]
fn a_message_of_the_journal_waits_for_what_came_of_those_before() {
    let directory = tempfile::tempdir().unwrap();
    let party = open(&directory, true);
    [WORK, 5, WORK].into_iter().zip(0..).for_each(|(last, number)| arrive(&party, number, last));
    await_taken(&party, &[WORK, 5, WORK, WORK + 1, WORK + 1]);
    party.stop();
    let party = open(&directory, true);
    arrive(&party, 3, 6);
    await_taken(&party, &[WORK, WORK + 1, 5, WORK, WORK + 1, 6]);
    party.stop();
}
