//! A journal that is opened again has everything that was committed, and nothing twice.

use secsv_federation::RoundId;

use super::*;

fn owner() -> Owner {
    Owner { party: PartyId::Client(1), federation: [7; 32] }
}

fn open(path: &Path) -> Journal {
    Journal::open(path, &owner(), || [5; 48]).unwrap()
}

fn emission(journal: &Journal, content: &[u8], scope: Scope) -> Emission {
    let digest = *blake3::hash(content).as_bytes();
    let length = content.len() as u64;
    let (body, fresh) = put(journal.shelf(), digest, &Arc::new(content.to_vec()), false).unwrap();
    Emission { to: PartyId::Principal, kind: Kind::Shared, scope, digest, length, body, fresh }
}

fn inbound(journal: &Journal, number: u64, content: &[u8], scope: Scope) -> (Inbound, Option<Fresh>) {
    let digest = *blake3::hash(content).as_bytes();
    let length = content.len() as u64;
    let (body, fresh) = put(journal.shelf(), digest, &Arc::new(content.to_vec()), true).unwrap();
    let from = PartyId::Principal;
    (Inbound { from, number, kind: Kind::Reply, scope, digest, length, body }, fresh)
}

fn blobs(path: &Path) -> usize {
    std::fs::read_dir(path.join("blobs")).unwrap().count()
}

#[test]
fn what_was_said_is_not_said_again_and_keeps_its_number() {
    let directory = tempfile::tempdir().unwrap();
    let (small, large) = (vec![1; 10], vec![2; INLINE + 1]);
    let mut journal = open(directory.path());
    assert!(matches!(Journal::open(directory.path(), &owner(), || [6; 48]), Err(JournalError::InUse { .. })));
    let sent = vec![emission(&journal, &small, Scope::Test(1)), emission(&journal, &large, Scope::Test(1))];
    let out = journal.commit([Batch { sent, ..Batch::default() }]).unwrap();
    assert_eq!(out.iter().map(|m| m.number).collect::<Vec<_>>(), [0, 1]);
    drop(journal);

    let mut journal = open(directory.path());
    assert_eq!(journal.seed().expose(), &[5; 32]);
    assert_eq!(journal.unacknowledged().unwrap().len(), 2);
    // In another order, with one more: the third is new, and so is the first said a second time.
    let again = [&large, &small, &vec![3; 4], &small].map(|c| emission(&journal, c, Scope::Test(1)));
    let out = journal.commit([Batch { sent: again.into(), ..Batch::default() }]).unwrap();
    assert_eq!(out.iter().map(|m| (m.number, m.length)).collect::<Vec<_>>(), [(2, 4), (3, 10)]);
    let acknowledged = vec![(PartyId::Principal, 3)];
    journal.commit([Batch { acknowledged, ..Batch::default() }]).unwrap();
    assert_eq!(blobs(directory.path()), 0, "acknowledged content is not kept");
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
        inbound(&journal, 1, &large, Scope::Test(4)),
        inbound(&journal, 2, b"more", Scope::Test(4)),
    ];
    journal.commit([Batch { received, ..Batch::default() }]).unwrap();
    drop(journal);

    let mut journal = open(directory.path());
    assert_eq!(journal.next_in(PartyId::Principal), 3);
    let replayed = journal.replay().unwrap();
    assert_eq!(replayed.iter().map(|m| m.number).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(journal.shelf().read(&replayed[1].body, &replayed[1].digest).unwrap(), large);
    journal.commit([Batch { over: vec![Scope::Test(4)], ..Batch::default() }]).unwrap();
    assert_eq!(blobs(directory.path()), 0);
    drop(journal);
    let journal = open(directory.path());
    assert_eq!(journal.replay().unwrap().len(), 1);
    assert_eq!(journal.next_in(PartyId::Principal), 3);
    assert!(journal.is_finished(Scope::Test(4)) && !journal.is_finished(Scope::Test(5)));
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
    let leftover = directory.path().join("blobs").join("0123.partial");
    std::fs::write(&leftover, b"half").unwrap();
    // A store that was being made when somebody was killed is no store.
    std::fs::write(directory.path().join("journal.new"), b"half").unwrap();
    let journal = open(directory.path());
    assert!(!leftover.exists());
    let message = journal.replay().unwrap().remove(0);
    let Body::File(path, _) = &message.body else { panic!("large content is in a file") };
    std::fs::write(path, [8; 5]).unwrap();
    assert!(matches!(
        journal.shelf().read(&message.body, &message.digest),
        Err(JournalError::Damaged { .. })
    ));
    drop(journal);
    let other = Owner { party: PartyId::Client(2), ..owner() };
    let found = Journal::open(directory.path(), &other, || [5; 48]).err();
    assert!(matches!(found, Some(JournalError::Another { field: "party", .. })), "{found:?}");
}

#[test]
fn what_a_power_cut_took_is_sent_under_its_number_when_it_is_said_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = open(directory.path());
    let [first, second] = [vec![4; INLINE + 1], vec![5; INLINE + 2]];
    let sent = [&first, &second].map(|content| emission(&journal, content, Scope::Round(RoundId(1))));
    journal.commit([Batch { sent: sent.into(), ..Batch::default() }]).unwrap();
    let path = journal.shelf().path(blake3::hash(&first).as_bytes());
    drop(journal);
    std::fs::write(path, vec![0; INLINE + 1]).unwrap();

    let mut journal = open(directory.path());
    let left = journal.unacknowledged().unwrap();
    assert_eq!(left.iter().map(|m| m.number).collect::<Vec<_>>(), [1]);
    let again = [&second, &first].map(|content| emission(&journal, content, Scope::Round(RoundId(1))));
    let out = journal.commit([Batch { sent: again.into(), ..Batch::default() }]).unwrap();
    assert_eq!(out.iter().map(|m| m.number).collect::<Vec<_>>(), [0]);
    assert_eq!(journal.shelf().read(&out[0].body, &out[0].digest).unwrap(), first);
    assert_eq!(journal.unacknowledged().unwrap().len(), 2);
}
