//! A frozen journal, `vectors/journal`: every row of every table as bytes, and the files of larger contents. Whatever changes how a
//! journal is written or read fails here. With `SECSV_BLESS=1` the files are written anew; the tests that
//! read them are right again in the next run.

use std::{collections::BTreeSet, fmt::Write as _, fs};

use redb::{
    Database, Key, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableHandle as _, Value,
};

use super::{
    private_files::{ENDED, JOURNAL},
    tables::*,
    tests::{emission, first_of, inbound, open, owner},
    *,
};
use crate::{
    fingerprint::{from_hex, to_hex},
    vector_tests::{folder, frozen, refusal},
};

/// The program's version, which a journal is bound to and a release changes.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const CONTENTS: [&str; 2] = ["received.contents", "sent.contents"];

/// Something that is done with each table.
trait ForEachTable {
    fn table<K: Key + 'static, V: Value + 'static>(&mut self, table: TableDefinition<'static, K, V>);

    fn all(&mut self) {
        self.table(IDENTITY);
        self.table(FILES);
        self.table(PEERS);
        self.table(NEXT_IN);
        self.table(NEXT_OUT);
        self.table(ACKNOWLEDGED);
        self.table(INBOUND);
        self.table(OUTBOUND);
        self.table(EMITTED);
        self.table(ASSIGNED);
        self.table(TESTS);
        self.table(FINISHED);
        self.table(PLACES);
        self.table(REPLIES);
    }
}

/// Prints tables: the name and the types of each, then the bytes of its rows.
struct Printed {
    read: redb::ReadTransaction,
    names: BTreeSet<String>,
    text: String,
}

impl ForEachTable for Printed {
    fn table<K: Key + 'static, V: Value + 'static>(&mut self, table: TableDefinition<'static, K, V>) {
        self.names.insert(table.name().to_owned());
        let types = (K::type_name(), V::type_name());
        let _ = writeln!(self.text, "table {}: {} -> {}", table.name(), types.0.name(), types.1.name());
        for row in self.read.open_table(table).unwrap().iter().unwrap() {
            let (key, value) = row.unwrap();
            let (key, value) =
                (to_hex(K::as_bytes(&key.value()).as_ref()), to_hex(V::as_bytes(&value.value()).as_ref()));
            let _ = writeln!(self.text, "  {key}:{value}");
        }
    }
}

/// Writes tables from what was printed.
struct Restored<'a> {
    write: redb::WriteTransaction,
    text: &'a str,
}

impl ForEachTable for Restored<'_> {
    fn table<K: Key + 'static, V: Value + 'static>(&mut self, table: TableDefinition<'static, K, V>) {
        let head = format!("table {}: ", table.name());
        let rows = self.text.lines().skip_while(|line| !line.starts_with(&head)).skip(1);
        let mut opened = self.write.open_table(table).unwrap();
        for row in rows.map_while(|line| line.strip_prefix("  ")) {
            let (key, value) = row.split_once(':').unwrap();
            let (key, value) = (from_hex(key).unwrap(), from_hex(value).unwrap());
            opened.insert(K::from_bytes(&key), V::from_bytes(&value)).unwrap();
        }
    }
}

/// A state directory in print.
fn print(state: &Path, store: &str) -> String {
    let read = Database::open(state.join(store)).unwrap().begin_read().unwrap();
    let there: BTreeSet<String> = read.list_tables().unwrap().map(|table| table.name().to_owned()).collect();
    let mut printed = Printed { read, names: BTreeSet::new(), text: String::new() };
    printed.all();
    assert_eq!(printed.names, there, "every table is printed");
    for file in CONTENTS.into_iter().filter(|file| state.join(file).exists()) {
        let _ = writeln!(printed.text, "file {file}: {}", to_hex(&fs::read(state.join(file)).unwrap()));
    }
    printed.text.replace(&to_hex(VERSION.as_bytes()), "VERSION")
}

/// A state directory from print.
fn restore(text: &str, store: &str) -> tempfile::TempDir {
    let text = text.replace("VERSION", &to_hex(VERSION.as_bytes()));
    let state = tempfile::tempdir().unwrap();
    let database = Database::create(state.path().join(store)).unwrap();
    let mut restored = Restored { write: database.begin_write().unwrap(), text: &text };
    restored.all();
    restored.write.commit().unwrap();
    for line in text.lines().filter_map(|line| line.strip_prefix("file ")) {
        let (file, bytes) = line.split_once(": ").unwrap();
        fs::write(state.path().join(file), from_hex(bytes).unwrap()).unwrap();
    }
    state
}

fn frozen_text(name: &str) -> String {
    fs::read_to_string(folder("journal").join(name)).unwrap()
}

fn large(byte: u8) -> Vec<u8> {
    vec![byte; INLINE + 1]
}

fn filled(scope: Scope, way: Way, digest: u8) -> Filled {
    let slot =
        content_slots::ContentSlot { way, peer: PartyId::Client(0), kind: Kind::Model, head: vec![3, 4] };
    Filled { scope, slot, digest: [digest; 32] }
}

/// The sequence that is frozen.
fn write(state: &Path) {
    let random = std::array::from_fn(|at| at as u8);
    let mut journal = Journal::open(state, &owner(), || random).unwrap();
    let round = Scope::Round(secsv_federation::RoundId(3));
    journal.meet(PartyId::Principal, [9; 16]).unwrap();
    let record = |number: u32, result: Option<&[u8]>| TestRecord {
        test: TestId::first(number),
        request: vec![1, 2],
        result: result.map(<[u8]>::to_vec),
    };
    let first = Batch {
        received: vec![inbound(&journal, 0, b"keys", Scope::Session), inbound(&journal, 1, &large(5), round)],
        skipped: vec![inbound(&journal, 2, b"late", first_of(1))],
        sent: vec![
            emission(&journal, b"a", Scope::Session),
            emission(&journal, b"b", Scope::Test(TestId::from_wire(0x0102_0304_0506).unwrap())),
            emission(&journal, &large(6), first_of(1)),
        ],
        assigned: vec![vec![7, 8], vec![9]],
        tests: vec![record(1, Some(&[6])), record(2, None)],
        filled: vec![
            filled(round, Way::In, 1),
            filled(first_of(1), Way::In, 2),
            filled(first_of(2), Way::Out, 3),
        ],
        ..Batch::default()
    };
    let second = Batch {
        acknowledged: vec![(PartyId::Principal, 1), (PartyId::Client(2), 0)],
        over: vec![first_of(1)],
        ..Batch::default()
    };
    journal.commit([first]).unwrap();
    journal.commit([second]).unwrap();
}

#[test]
fn a_journal_is_written_as_frozen() {
    let state = tempfile::tempdir().unwrap();
    write(state.path());
    frozen(&folder("journal").join("journal.txt"), &print(state.path(), JOURNAL));
    end(state.path(), &owner(), b"values").unwrap();
    frozen(&folder("journal").join("ended.txt"), &print(state.path(), ENDED));
}

#[test]
fn a_frozen_journal_is_read_as_it_was_written() {
    let state = restore(&frozen_text("journal.txt"), JOURNAL);
    let journal = open(state.path());
    let random: [u8; 48] = std::array::from_fn(|at| at as u8);
    assert_eq!(
        (journal.seed().expose(), journal.instance()),
        (random[..32].try_into().unwrap(), random[32..].try_into().unwrap())
    );
    let principal = PartyId::Principal;
    let numbers =
        (journal.next_in(principal), journal.next_out(principal), journal.acknowledged_by(principal));
    assert_eq!((numbers, journal.replies()), ((3, 3, 1), 6));
    assert_eq!(journal.finished().iter().map(|test| test.to_wire()).collect::<Vec<_>>(), [1]);
    let content = |body: &Body, digest: &Digest| journal.blobs().read(body, digest).unwrap();
    let received: Vec<_> = journal
        .replay()
        .unwrap()
        .into_iter()
        .map(|m| (m.from, m.number, m.kind, m.scope, m.length, content(&m.body, &m.digest)))
        .collect();
    let round = Scope::Round(secsv_federation::RoundId(3));
    assert_eq!(
        received,
        [
            (principal, 0, Kind::Reply, Scope::Session, 4, b"keys".to_vec()),
            (principal, 1, Kind::Reply, round, INLINE as u64 + 1, large(5)),
        ]
    );
    let sent: Vec<_> = journal
        .unacknowledged()
        .unwrap()
        .into_iter()
        .map(|m| (m.to, m.number, m.kind, m.length, content(&m.body, &m.digest)))
        .collect();
    assert_eq!(
        sent,
        [
            (principal, 1, Kind::ActivationShare, 1, b"b".to_vec()),
            (principal, 2, Kind::ActivationShare, INLINE as u64 + 1, large(6)),
        ]
    );
    assert_eq!(journal.assignments().unwrap(), [vec![7, 8], vec![9]]);
    let tests: Vec<_> =
        journal.tests().unwrap().into_iter().map(|t| (t.test.to_wire(), t.request, t.result)).collect();
    assert_eq!(tests, [(1, vec![1, 2], Some(vec![6])), (2, vec![1, 2], None)]);
    let slots = journal.content_slots().unwrap();
    let all = [filled(round, Way::In, 1), filled(first_of(1), Way::In, 2), filled(first_of(2), Way::Out, 3)];
    assert_eq!(all.map(|filled| slots.claim(&filled)), [Claim::Same, Claim::New, Claim::Same]);
    assert_eq!(journal.meet(principal, [8; 16]).unwrap(), [9; 16]);
}

#[test]
fn a_frozen_end_is_read_as_it_was_written() {
    let state = restore(&frozen_text("ended.txt"), ENDED);
    assert_eq!(ended(state.path(), &owner()).unwrap().unwrap(), b"values");
    let journal = open(state.path());
    assert_eq!((journal.seed().expose(), journal.instance()[0]), (&[0; 32], 32));
    assert_eq!((journal.next_in(PartyId::Principal), journal.next_out(PartyId::Principal)), (3, 3));
}

/// Opens a state directory and reads everything in it.
fn read_all(state: &Path) -> Result<(), JournalError> {
    let journal = Journal::open(state, &owner(), || [0; 48])?;
    for message in journal.replay()? {
        journal.blobs().read(&message.body, &message.digest)?;
    }
    for message in journal.unacknowledged()? {
        journal.blobs().read(&message.body, &message.digest)?;
    }
    journal.content_slots().map(drop)
}

#[test]
fn broken_journals_are_refused_as_recorded() {
    let whole = frozen_text("journal.txt");
    let hex = |text: &str| to_hex(text.as_bytes());
    let (version, party) = (hex(", journal 7"), hex("client 2"));
    let (federation, file) = (hex(&"07".repeat(32)), hex("initial.safetensors"));
    let seed = to_hex(&std::array::from_fn::<u8, 48, _>(|at| at as u8));
    let swapped = |from: &str, to: &str| {
        assert!(whole.contains(from), "{from}");
        whole.replacen(from, to, 1)
    };
    // The kind of a message stands behind the party and the number, and of a place before its head.
    let cases = [
        ("version", swapped(&version, &hex(", journal 6"))),
        ("party", swapped(&party, &hex("client 1"))),
        ("federation", swapped(&federation, &hex(&"08".repeat(32)))),
        ("file", swapped(&file, &hex("initiale.safetensor"))),
        ("seed_cut", swapped(&seed, &seed[..94])),
        ("seed_gone", swapped(&format!("  {}:{seed}\n", hex("random")), "")),
        ("kind_received", swapped(":ffff00000000000000000d", ":ffff0000000000000000ff")),
        ("kind_sent", swapped("ffff0100000000000000:0e", "ffff0100000000000000:ff")),
        ("kind_said", swapped("0400000000000000:ffff0e", "0400000000000000:ffffff")),
        ("kind_of_place", swapped("0000060304:01", "0000ff0304:01")),
        ("content", swapped("file received.contents: 05", "file received.contents: 06")),
        (
            "contents_cut",
            swapped(&format!("file received.contents: {}", "05".repeat(100)), "file received.contents: "),
        ),
    ];
    let mut text = String::new();
    for (fault, broken) in cases {
        let state = restore(&broken, JOURNAL);
        let error = read_all(state.path()).expect_err(fault);
        text += &refusal(fault, &error, state.path()).replace(VERSION, "VERSION");
    }
    let state = restore(&whole, JOURNAL);
    let store = fs::read(state.path().join(JOURNAL)).unwrap();
    for (fault, bytes) in [("store_cut", &store[..store.len() / 2]), ("store_without_head", &store[16..])] {
        fs::write(state.path().join(JOURNAL), bytes).unwrap();
        text += &refusal(fault, &read_all(state.path()).expect_err(fault), state.path());
    }
    frozen(&folder("journal").join("refused.txt"), &text);
}
