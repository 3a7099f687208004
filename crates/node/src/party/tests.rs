//! A party with a role that does what a message's last byte says.

use std::time::{Duration, Instant};

use secsv_protocol::{
    CodecError, TestId,
    role::{Incoming, Outgoing, Role},
    session::Session,
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
/// A byte that makes work which finds the sender at fault, and one that has the clerk answer with how many it has taken.
const LATE: u8 = 30;
const COUNT: u8 = 40;

struct Clerk {
    taken: Vec<u8>,
    ended: Vec<Scope>,
    is_open: bool,
}

impl Role for Clerk {
    fn session(&self) -> Option<&Arc<Session>> {
        None
    }

    fn handle(&mut self, message: Incoming) -> Result<Effects<Self>, RoleError> {
        let Incoming { from, kind, content, .. } = message;
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
        if last == LATE {
            let why = CodecError::Value { what: "what work found" };
            effects.jobs.push(Box::new(move |_| Err(RoleError::Malformed { from, kind, why })));
        }
        if last == COUNT {
            let content = [&7u64.to_le_bytes()[..], &[0; 12], &[self.taken.len() as u8]].concat();
            effects.outbox.push(Outgoing { to: from, kind: Kind::Reply, content: Arc::new(content) });
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

impl HostedRole for Clerk {
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
    let build = |_: &_, _: &_| Ok((clerk, Effects::default(), vec![Scope::Test(TestId::first(7u32))]));
    Party::open(kit(directory), &state, None, None, build).unwrap()
}

/// A message about test 7, for a place of its own.
fn arrive(party: &Party<Clerk>, number: u64, last: u8) {
    arrive_for(party, number, number as u32, last);
}

/// A message about test 7, for some place of it.
fn arrive_for(party: &Party<Clerk>, number: u64, place: u32, last: u8) {
    let content = [&7u64.to_le_bytes()[..], &[0; 8], &place.to_le_bytes(), &[last]].concat();
    let digest = *blake3::hash(&content).as_bytes();
    party.arrive(Arrival {
        from: PartyId::Client(0),
        number,
        kind: Kind::LabelShare,
        content,
        digest,
        room: None,
    });
}

fn await_taken(party: &Party<Clerk>, taken: &[u8]) {
    let begun = Instant::now();
    while party.look(|clerk| clerk.taken.clone()) != taken {
        assert!(begun.elapsed() < PATIENCE, "{:?}", party.look(|clerk| clerk.taken.clone()));
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// It was kept before the role could judge it: neither this process nor the next may end because of it.
#[test]
fn a_bad_message_that_had_to_wait_does_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let party = open(&directory, false);
    [5, BAD, 6].into_iter().zip(0..).for_each(|(last, number)| arrive(&party, number, last));
    assert!(party.look(|clerk| clerk.taken.is_empty()));
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
    assert!(party.wait_for(Duration::ZERO, |_| Some(())).is_ok());
    party.stop();
}

/// What the role made of a message could not be kept, so the message was not: the next must not be acknowledged.
#[test]
fn nothing_is_taken_after_a_failure() {
    let directory = tempfile::tempdir().unwrap();
    let party = open(&directory, true);
    arrive(&party, 0, FATAL);
    assert!(party.wait_for(PATIENCE, |_| None::<()>).is_err());
    arrive(&party, 1, 9);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(party.look(|clerk| clerk.taken.clone()), [FATAL]);
    party.stop();
    let kit = kit(&directory);
    let owner = Owner { party: kit.own, federation: kit.digest, files: None };
    let journal = Journal::open(&directory.path().join("state"), &owner, || [0; 48]).unwrap();
    assert_eq!(journal.next_in(PartyId::Client(0)), 0);
}

/// What the principal says has ended is let go of, and what comes about it later is not looked at. Nobody else can say so.
#[test]
fn what_has_ended_is_let_go_of() {
    let directory = tempfile::tempdir().unwrap();
    let party = open(&directory, true);
    arrive(&party, 0, 5);
    party.finished(PartyId::Auxiliary, vec![Scope::Test(TestId::first(3u32))], None);
    party.finished(PartyId::Principal, vec![Scope::Test(TestId::first(7u32))], None);
    arrive(&party, 1, 6);
    party.act(Box::new(|clerk| {
        clerk.taken.push(9);
        Ok((Effects::default(), Vec::new()))
    }));
    await_taken(&party, &[5, 9]);
    assert_eq!(party.look(|clerk| clerk.ended.clone()), [Scope::Test(TestId::first(7u32))]);
    party.stop();
    let kit = kit(&directory);
    let owner = Owner { party: kit.own, federation: kit.digest, files: None };
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

/// Under the same randomness a second content would tell what the first hides.
#[test]
fn a_place_is_filled_once_by_whichever_process() {
    let directory = tempfile::tempdir().unwrap();
    let party = open(&directory, true);
    arrive_for(&party, 0, 3, 5);
    await_taken(&party, &[5]);
    arrive_for(&party, 1, 3, 6);
    arrive_for(&party, 1, 4, 7);
    await_taken(&party, &[5, 7]);
    arrive_for(&party, 2, 3, 5);
    await_taken(&party, &[5, 7, 5]);
    let refused = party.board().status().peers.iter().map(|peer| peer.refused).sum::<u64>();
    assert_eq!(refused, 1, "the second content for place 3");
    party.stop();
    let party = open(&directory, true);
    arrive_for(&party, 3, 4, 6);
    arrive_for(&party, 3, 4, 7);
    await_taken(&party, &[5, 7, 5, 7]);
    party.stop();
}

/// A party that would say something else in a place where it has spoken says nothing.
#[test]
fn nothing_is_said_twice_with_other_words() {
    let directory = tempfile::tempdir().unwrap();
    let party = open(&directory, true);
    arrive(&party, 0, COUNT);
    await_taken(&party, &[COUNT]);
    arrive(&party, 1, COUNT);
    let failure = party.wait_for(PATIENCE, |_| None::<()>).unwrap_err();
    assert!(failure.to_string().contains("a second reply from principal for one place"), "{failure}");
    party.stop();
    let kit = kit(&directory);
    let owner = Owner { party: kit.own, federation: kit.digest, files: None };
    let journal = Journal::open(&directory.path().join("state"), &owner, || [0; 48]).unwrap();
    assert_eq!(journal.unacknowledged().unwrap().len(), 1);
}

/// The sender is named and cut off; neither this process nor the next ends because of it.
#[test]
fn a_fault_that_work_finds_harms_its_sender_alone() {
    let directory = tempfile::tempdir().unwrap();
    let party = open(&directory, true);
    [LATE, 5].into_iter().zip(0..).for_each(|(last, number)| arrive(&party, number, last));
    await_taken(&party, &[LATE, 5]);
    let begun = Instant::now();
    let refused = || {
        let status = party.board().status();
        status.peers.into_iter().find(|peer| peer.refused > 0).map(|peer| (peer.name, peer.refused_because))
    };
    while refused().is_none() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(2));
    }
    let (name, because) = refused().unwrap();
    assert_eq!(name, party.kit.name(PartyId::Client(0)));
    assert!(because.unwrap().contains("what work found"));
    assert!(party.wait_for(Duration::ZERO, |_| Some(())).is_ok());
    party.stop();
    let party = open(&directory, true);
    arrive(&party, 2, 6);
    await_taken(&party, &[LATE, 5, 6]);
    party.stop();
}
