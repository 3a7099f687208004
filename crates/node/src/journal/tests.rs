//! A journal that is opened again has everything that was committed, and nothing twice.

use super::*;

pub(super) fn owner() -> Owner {
    let files =
        [("clients/b/test.safetensors".to_owned(), [1; 32]), ("initial.safetensors".to_owned(), [2; 32])];
    Owner { party: PartyId::Client(1), federation: [7; 32], files: Some(files.into()) }
}

pub(super) fn open(path: &Path) -> Journal {
    Journal::open(path, &owner(), || [5; 48]).unwrap()
}

/// The first attempt at a test.
pub(super) fn first_of(number: u32) -> Scope {
    Scope::Test(TestId::first(number))
}

pub(super) fn emission(journal: &Journal, content: &[u8], scope: Scope) -> Emission {
    let digest = *blake3::hash(content).as_bytes();
    let length = content.len() as u64;
    let body = Body::sent(journal.blobs(), &Arc::new(content.to_vec())).unwrap();
    Emission { to: PartyId::Principal, kind: Kind::ActivationShare, scope, digest, length, body, replies: 2 }
}

pub(super) fn inbound(journal: &Journal, number: u64, content: &[u8], scope: Scope) -> Inbound {
    let digest = *blake3::hash(content).as_bytes();
    let length = content.len() as u64;
    let body = Body::received(journal.blobs(), &Arc::new(content.to_vec())).unwrap();
    let from = PartyId::Principal;
    Inbound { from, number, kind: Kind::Reply, scope, digest, length, body }
}

#[test]
fn what_was_said_is_not_said_again_and_keeps_its_number() {
    let directory = tempfile::tempdir().unwrap();
    let (small, large) = (vec![1; 10], vec![2; INLINE + 1]);
    let mut journal = open(directory.path());
    assert!(matches!(Journal::open(directory.path(), &owner(), || [6; 48]), Err(JournalError::InUse { .. })));
    let sent = vec![emission(&journal, &small, first_of(1)), emission(&journal, &large, first_of(1))];
    let out = journal.commit([Batch { sent, ..Batch::default() }]).unwrap();
    assert_eq!(out.iter().map(|m| m.number).collect::<Vec<_>>(), [0, 1]);
    drop(journal);

    let mut journal = open(directory.path());
    assert_eq!(journal.seed().expose(), &[5; 32]);
    assert_eq!(journal.unacknowledged().unwrap().len(), 2);
    // In another order, with one more: the third is new, and so is the first said a second time.
    let again = [&large, &small, &vec![3; 4], &small].map(|c| emission(&journal, c, first_of(1)));
    let out = journal.commit([Batch { sent: again.into(), ..Batch::default() }]).unwrap();
    assert_eq!(out.iter().map(|m| (m.number, m.length)).collect::<Vec<_>>(), [(2, 4), (3, 10)]);
    let acknowledged = vec![(PartyId::Principal, 3)];
    journal.commit([Batch { acknowledged, ..Batch::default() }]).unwrap();
    drop(out);
    assert_eq!(journal.blobs().held(), 0, "acknowledged content is not kept");
    drop(journal);
    let journal = open(directory.path());
    let left = journal.unacknowledged().unwrap();
    assert_eq!(left.iter().map(|m| m.number).collect::<Vec<_>>(), [3]);
}

#[test]
fn what_was_received_is_replayed_in_order_until_it_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = open(directory.path());
    let large = vec![9; 3 * INLINE];
    let received = vec![
        inbound(&journal, 0, b"keys", Scope::Session),
        inbound(&journal, 1, &large, first_of(4)),
        inbound(&journal, 2, b"more", first_of(4)),
    ];
    journal.commit([Batch { received, ..Batch::default() }]).unwrap();
    drop(journal);

    let mut journal = open(directory.path());
    assert_eq!(journal.next_in(PartyId::Principal), 3);
    let replayed = journal.replay().unwrap();
    assert_eq!(replayed.iter().map(|m| m.number).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(journal.blobs().read(&replayed[1].body, &replayed[1].digest).unwrap(), large);
    journal.commit([Batch { over: vec![first_of(4)], ..Batch::default() }]).unwrap();
    drop(replayed);
    assert_eq!(journal.blobs().held(), 0);
    drop(journal);
    let left = std::fs::metadata(directory.path().join("received.contents")).unwrap().len();
    assert_eq!(left, 0, "room that nothing uses is given back");
    let journal = open(directory.path());
    assert_eq!(journal.replay().unwrap().len(), 1);
    assert_eq!(journal.next_in(PartyId::Principal), 3);
    assert!(journal.is_finished(first_of(4)) && !journal.is_finished(first_of(5)));
}

#[test]
fn leftovers_and_strangers_are_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = open(directory.path());
    let received = vec![inbound(&journal, 0, &[8; 2 * INLINE], Scope::Session)];
    journal.commit([Batch { received, ..Batch::default() }]).unwrap();
    assert_eq!(journal.meet(PartyId::Principal, [1; 16]).unwrap(), [1; 16]);
    assert_eq!(journal.meet(PartyId::Principal, [2; 16]).unwrap(), [1; 16]);
    drop(journal);
    let contents = directory.path().join("received.contents");
    // Written by somebody who was killed before it was committed.
    let mut whole = std::fs::read(&contents).unwrap();
    let kept = whole.len();
    whole.extend([6; 100]);
    std::fs::write(&contents, &whole).unwrap();
    // A store that was being made when somebody was killed is no store.
    std::fs::write(directory.path().join("journal.new"), b"half").unwrap();
    let journal = open(directory.path());
    assert_eq!(std::fs::metadata(&contents).unwrap().len(), kept as u64);
    let message = journal.replay().unwrap().remove(0);
    std::fs::write(&contents, [&whole[..5], &[0], &whole[6..]].concat()).unwrap();
    assert!(matches!(
        journal.blobs().read(&message.body, &message.digest),
        Err(JournalError::Damaged { .. })
    ));
    drop(journal);
    let other = Owner { party: PartyId::Client(2), ..owner() };
    let found = Journal::open(directory.path(), &other, || [5; 48]).err();
    assert!(matches!(found, Some(JournalError::Another { field: "party", .. })), "{found:?}");
}

/// What is said again after a kill was counted before; a message behind one that is missing is not kept.
#[test]
fn replies_count_once_and_messages_in_turn() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = open(directory.path());
    let large = vec![4; INLINE + 1];
    let sent = vec![emission(&journal, &large, first_of(1)), emission(&journal, b"b", first_of(1))];
    journal.commit([Batch { sent, ..Batch::default() }]).unwrap();
    assert_eq!(journal.replies(), 4);
    drop(journal);
    let mut journal = open(directory.path());
    let again = vec![emission(&journal, &large, first_of(1)), emission(&journal, b"c", first_of(1))];
    journal.commit([Batch { sent: again, ..Batch::default() }]).unwrap();
    assert_eq!(journal.replies(), 6);
    journal.commit([Batch { over: vec![first_of(1)], ..Batch::default() }]).unwrap();
    let late = vec![emission(&journal, &large, first_of(1))];
    assert!(journal.commit([Batch { sent: late, ..Batch::default() }]).unwrap().is_empty());
    assert_eq!(journal.replies(), 6, "nobody needs it");

    let received = vec![inbound(&journal, 1, b"second", Scope::Session)];
    let refused = journal.commit([Batch { received, ..Batch::default() }]);
    assert!(matches!(refused, Err(JournalError::OutOfTurn { expected: 0, found: 1, .. })), "{refused:?}");
    drop(journal);
    let journal = open(directory.path());
    assert_eq!((journal.replies(), journal.next_in(PartyId::Principal)), (6, 0));
}

#[test]
fn room_is_used_again_by_what_fits_and_by_nothing_before_it_is_let_go() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path());
    let put = |byte: u8, length: usize| {
        let content = Arc::new(vec![byte; length]);
        let digest = *blake3::hash(&content).as_bytes();
        (Body::received(journal.blobs(), &content).unwrap(), digest, content)
    };
    let page = |body: &Body| body.place().unwrap().page();
    let mut held = vec![put(1, 9000), put(2, 5000), put(3, 20000)];
    assert_eq!(held.iter().map(|h| page(&h.0)).collect::<Vec<_>>(), [0, 3, 5]);
    held.remove(1);
    // Three pages do not fit between the others; one does, and another.
    held.extend([put(4, 9000), put(5, 3000), put(6, 4096), put(7, 2100)]);
    assert_eq!(held.iter().map(|h| page(&h.0)).collect::<Vec<_>>(), [0, 5, 10, 3, 4, 13]);
    for (body, digest, content) in &held {
        assert_eq!(journal.blobs().read(body, digest).unwrap(), **content);
    }
    assert_eq!(journal.blobs().held(), 6);
    // The next process finds what was committed, whatever a thread of this one still receives.
    let blobs = journal.blobs().clone();
    drop(journal);
    let refused = Body::received(&blobs, &Arc::new(vec![8; 9000]));
    assert!(matches!(refused, Err(JournalError::Closed { .. })), "{refused:?}");
}

#[test]
fn a_directory_of_others_is_refused_and_an_open_one_tightened() {
    use std::{fs, os::unix::fs::PermissionsExt as _};
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("state");
    let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    fs::create_dir(&path).unwrap();
    // Empty, or begun here and closed to other writers: it becomes its owner's alone.
    for mode in [0o777, 0o755, 0o701] {
        set(mode);
        assert_eq!(open(&path).seed().expose(), &[5; 32]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
    }
    let refusal = |mode| {
        set(mode);
        let refusal = Journal::open(&path, &owner(), || [6; 48]).err().expect("refused");
        assert!(refusal.is_bad_input());
        let words = format!("mode 700, found user {}, mode {mode:o}", rustix::process::geteuid().as_raw());
        assert!(refusal.to_string().contains(&words), "{refusal}");
    };
    // Others could have put files there.
    [0o770, 0o703, 0o1777].into_iter().for_each(refusal);
    // A directory of something else.
    fs::remove_file(path.join("journal.redb")).unwrap();
    refusal(0o755);
    set(0o700);
    open(&path);
}

#[test]
fn a_link_in_the_place_of_the_lock_is_refused_and_its_target_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (victim, state) = (directory.path().join("victim"), directory.path().join("state"));
    drop(open(&state));
    std::fs::write(&victim, b"precious").unwrap();
    std::fs::remove_file(state.join("lock")).unwrap();
    std::os::unix::fs::symlink(&victim, state.join("lock")).unwrap();
    assert!(matches!(Journal::open(&state, &owner(), || [6; 48]), Err(JournalError::System { .. })));
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
}

fn contains(directory: &Path, needle: &[u8]) -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let has =
        |file: &PathBuf| std::fs::read(file).unwrap().windows(needle.len()).any(|bytes| bytes == needle);
    files.filter(has).collect()
}

/// A run has ended: nothing secret is left, and a party that is started again knows who it was, how far its links had come and the values.
#[test]
fn what_is_secret_is_gone_in_the_end_and_the_values_stay() {
    let directory = tempfile::tempdir().unwrap();
    let (small, large) = (b"a small secret that is kept in the store".to_vec(), vec![0xa5; 3 * INLINE]);
    let mut journal = open(directory.path());
    let sent = vec![emission(&journal, &small, Scope::Session), emission(&journal, &large, Scope::Session)];
    journal.commit([Batch { sent, ..Batch::default() }]).unwrap();
    let received =
        vec![inbound(&journal, 0, &small, Scope::Session), inbound(&journal, 1, &large, Scope::Session)];
    journal
        .commit([Batch { received, acknowledged: vec![(PartyId::Principal, 1)], ..Batch::default() }])
        .unwrap();
    journal.meet(PartyId::Principal, [3; 16]).unwrap();
    let instance = journal.instance();
    assert!(matches!(end(directory.path(), &owner(), b"values"), Err(JournalError::InUse { .. })));
    drop(journal);
    let secrets = [&[5; 32][..], &small, &large];
    assert!(secrets.iter().all(|secret| !contains(directory.path(), secret).is_empty()));
    let before = std::fs::read(directory.path().join("journal.redb")).unwrap();
    assert_eq!(ended(directory.path(), &owner()).unwrap(), None);
    end(directory.path(), &owner(), b"values").unwrap();
    let check = || {
        assert!(secrets.iter().all(|secret| contains(directory.path(), secret).is_empty()));
        assert_eq!(ended(directory.path(), &owner()).unwrap().unwrap(), b"values");
        let journal = Journal::open(directory.path(), &owner(), || panic!("it has ended")).unwrap();
        assert_eq!((journal.instance(), journal.seed().expose()), (instance, &[0; 32]));
        let numbers = (journal.next_in(PartyId::Principal), journal.next_out(PartyId::Principal));
        assert_eq!((numbers, journal.acknowledged_by(PartyId::Principal)), ((2, 2), 1));
        assert_eq!(journal.meet(PartyId::Principal, [4; 16]).unwrap(), [3; 16]);
        assert!(journal.replay().unwrap().is_empty() && journal.unacknowledged().unwrap().is_empty());
    };
    check();
    // Killed before everything was overwritten: the next process goes on with that.
    std::fs::write(directory.path().join("journal.redb"), before).unwrap();
    assert!(!contains(directory.path(), secrets[0]).is_empty());
    assert_eq!(ended(directory.path(), &owner()).unwrap().unwrap(), b"values");
    check();
    let another = Owner { party: PartyId::Client(2), ..owner() };
    assert!(matches!(ended(directory.path(), &another), Err(JournalError::Another { .. })));
}

/// What a party encodes is covered by randomness that serves once: with other files it must not go on.
#[test]
fn a_state_is_bound_to_the_files_it_was_begun_with() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let refused = |change: &dyn Fn(&mut BTreeMap<String, Digest>)| {
        let mut owner = owner();
        change(owner.files.as_mut().unwrap());
        match Journal::open(directory.path(), &owner, || [6; 48]) {
            Err(error @ JournalError::OtherFile { .. }) => {
                assert!(error.is_bad_input());
                error.to_string()
            }
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("opened with other files"),
        }
    };
    let changed = refused(&|files| {
        files.insert("initial.safetensors".to_owned(), [3; 32]);
    });
    let gone = refused(&|files| {
        files.remove("initial.safetensors");
    });
    let new = refused(&|files| {
        files.insert("global/round-0001.safetensors".to_owned(), [3; 32]);
    });
    for (message, file) in [(changed, "initial"), (gone, "initial"), (new, "global/round-0001")] {
        assert!(message.contains("these are not the files this state was begun with"), "{message}");
        assert!(message.contains(&format!("{file}.safetensors")), "{message}");
    }
    drop(open(directory.path()));
}

#[test]
fn places_stay_filled_over_restarts_until_their_test_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let filled = |scope, head: &[u8]| Filled {
        scope,
        slot: content_slots::ContentSlot {
            way: Way::In,
            peer: PartyId::Client(0),
            kind: Kind::Model,
            head: head.to_vec(),
        },
        digest: [4; 32],
    };
    let round = Scope::Round(secsv_federation::RoundId(1));
    let all = [filled(round, &[1]), filled(first_of(1), &[1, 2]), filled(first_of(2), &[])];
    let mut journal = open(directory.path());
    journal.commit([Batch { filled: all.to_vec(), ..Batch::default() }]).unwrap();
    journal.commit([Batch { over: vec![round, first_of(1)], ..Batch::default() }]).unwrap();
    drop(journal);
    let places = open(directory.path()).content_slots().unwrap();
    let claims = all.map(|filled| places.claim(&filled));
    assert_eq!(claims, [Claim::Same, Claim::New, Claim::Same]);
}
