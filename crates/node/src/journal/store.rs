//! The tables of a journal.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    path::Path,
    sync::Arc,
};

use redb::{Database, ReadableDatabase as _, ReadableTable as _, Table, TableDefinition, WriteTransaction};
use secsv_federation::RoundId;
use secsv_protocol::{PartyId, Scope, message::Kind};

use super::{
    Body, Digest, Filled, Inbound, JournalError, Outbound, Owner, Places, TestRecord, Way,
    error::store,
    places,
    shelf::{Room, Shelf, new_private_file, private_file},
};

/// The store's file, and its file once the run has ended.
pub(super) const JOURNAL: &str = "journal.redb";
pub(super) const ENDED: &str = "ended.redb";

/// What the store itself keeps in memory.
const CACHE: usize = 8 << 20;

/// Kind of scope and its number.
type ScopeKey = (u8, u64);
/// Digest, length, the content where it is small and where it stands where it is not.
type BodyRow<'a> = (&'a [u8; 32], u64, Option<&'a [u8]>, u64);
/// From, number, kind, scope, body.
type InboundRow<'a> = (u16, u64, u8, ScopeKey, BodyRow<'a>);

const IDENTITY: TableDefinition<&str, &[u8]> = TableDefinition::new("identity");
const PEERS: TableDefinition<u16, &[u8; 16]> = TableDefinition::new("peers");
const NEXT_IN: TableDefinition<u16, u64> = TableDefinition::new("next in");
const NEXT_OUT: TableDefinition<u16, u64> = TableDefinition::new("next out");
const ACKNOWLEDGED: TableDefinition<u16, u64> = TableDefinition::new("acknowledged");
const INBOUND: TableDefinition<u64, InboundRow<'static>> = TableDefinition::new("inbound");
const OUTBOUND: TableDefinition<(u16, u64), (u8, BodyRow<'static>)> = TableDefinition::new("outbound");
const EMITTED: TableDefinition<u64, (u16, u8, ScopeKey, &[u8; 32])> = TableDefinition::new("emitted");
const ASSIGNED: TableDefinition<u64, &[u8]> = TableDefinition::new("assigned");
const TESTS: TableDefinition<u64, (&[u8], Option<&[u8]>)> = TableDefinition::new("tests");
const FINISHED: TableDefinition<u64, ()> = TableDefinition::new("finished");
/// Scope, way, peer, kind and head: the digest of what fills the place.
type PlaceKey<'a> = (u8, u64, bool, u16, u8, &'a [u8]);
const PLACES: TableDefinition<PlaceKey<'static>, &[u8; 32]> = TableDefinition::new("places");
/// Digests of the files that the party encodes.
const FILES: TableDefinition<&str, &[u8; 32]> = TableDefinition::new("files");
/// One row: ciphertexts that others were to decrypt.
const REPLIES: TableDefinition<(), u64> = TableDefinition::new("replies");

pub(super) struct Store {
    database: Database,
    path: std::path::PathBuf,
}

/// What a journal keeps in memory.
#[derive(Default)]
pub(super) struct Loaded {
    pub next_in: BTreeMap<PartyId, u64>,
    pub next_out: BTreeMap<PartyId, u64>,
    pub acknowledged: BTreeMap<PartyId, u64>,
    pub inbound_rows: Vec<u64>,
    pub emitted: Vec<(u64, (PartyId, Kind, Digest), Scope)>,
    pub finished: BTreeSet<u64>,
    pub replies: u64,
    pub next_row: u64,
}

fn scope_key(scope: Scope) -> ScopeKey {
    match scope {
        Scope::Session => (0, 0),
        Scope::Round(round) => (1, round.0.into()),
        Scope::Test(test) => (2, test),
    }
}

fn scope_of((kind, number): ScopeKey) -> Scope {
    match kind {
        0 => Scope::Session,
        1 => Scope::Round(RoundId(number as u32)),
        _ => Scope::Test(number),
    }
}

fn body_row<'a>(body: &'a Body, digest: &'a Digest, length: u64) -> BodyRow<'a> {
    match body {
        Body::Inline(content) => (digest, length, Some(content.as_slice()), 0),
        Body::Shelved(place, _) => (digest, length, None, place.page()),
    }
}

fn body_of(room: &Arc<Room>, (_, length, inline, page): BodyRow<'_>) -> Result<Body, JournalError> {
    match inline {
        Some(content) => Ok(Body::Inline(Arc::new(content.to_vec()))),
        None => Ok(Body::Shelved(room.find(page, length)?, None)),
    }
}

fn identity_of(owner: &Owner) -> [(&'static str, String); 3] {
    let federation = blake3::Hash::from(owner.federation).to_hex().to_string();
    let version = format!("{}, journal 7", env!("CARGO_PKG_VERSION"));
    [("version", version), ("party", owner.party.to_string()), ("federation", federation)]
}

impl Store {
    /// Opens the store of a state directory. A new one gets its name when it is whole: whoever is killed while it is made
    /// leaves nothing that could be taken for one.
    pub fn open(
        directory: &Path,
        owner: &Owner,
        draw: impl FnOnce() -> [u8; 48],
    ) -> Result<(Self, [u8; 48]), JournalError> {
        let ended = directory.join(ENDED);
        if ended.try_exists().map_err(JournalError::system(&ended))? {
            let store = Self::at(&ended)?;
            let random = store.identity(directory, owner)?;
            return Ok((store, random));
        }
        let path = directory.join(JOURNAL);
        if !path.try_exists().map_err(JournalError::system(&path))? {
            let new = directory.join("journal.new");
            drop(new_private_file(&new).map_err(JournalError::system(&new))?);
            let store = Self::at(&new)?;
            store.begin_tables(owner, &draw())?;
            drop(store);
            fs::rename(&new, &path).map_err(JournalError::system(&path))?;
            File::open(directory).and_then(|d| d.sync_all()).map_err(JournalError::system(directory))?;
        }
        let store = Self::at(&path)?;
        let random = store.identity(directory, owner)?;
        Ok((store, random))
    }

    /// Writes beside this store what is left of it when the run has ended: who it is, without its seed, how far its links had come, and
    /// the values.
    pub fn write_ended(self, directory: &Path, owner: &Owner, values: &[u8]) -> Result<(), JournalError> {
        let (new, path) = (directory.join("ended.new"), directory.join(ENDED));
        drop(new_private_file(&new).map_err(JournalError::system(&new))?);
        let mut random = self.identity(directory, owner)?;
        random[..32].fill(0);
        let left = Self::at(&new)?;
        left.begin_tables(owner, &random)?;
        let (read, write) =
            (self.database.begin_read().map_err(store)?, left.database.begin_write().map_err(store)?);
        write.open_table(IDENTITY).map_err(store)?.insert("values", values).map_err(store)?;
        for row in read.open_table(PEERS).map_err(store)?.iter().map_err(store)? {
            let (peer, instance) = row.map_err(store)?;
            write.open_table(PEERS).map_err(store)?.insert(peer.value(), instance.value()).map_err(store)?;
        }
        for numbers in [NEXT_IN, NEXT_OUT, ACKNOWLEDGED] {
            for row in read.open_table(numbers).map_err(store)?.iter().map_err(store)? {
                let (peer, number) = row.map_err(store)?;
                write
                    .open_table(numbers)
                    .map_err(store)?
                    .insert(peer.value(), number.value())
                    .map_err(store)?;
            }
        }
        write.commit().map_err(store)?;
        drop(left);
        fs::rename(&new, &path).map_err(JournalError::system(&path))?;
        File::open(directory).and_then(|d| d.sync_all()).map_err(JournalError::system(directory))
    }

    /// The values, if the run has ended.
    pub fn values(&self) -> Result<Option<Vec<u8>>, JournalError> {
        let read = self.database.begin_read().map_err(store)?;
        let table = read.open_table(IDENTITY).map_err(store)?;
        Ok(table.get("values").map_err(store)?.map(|values| values.value().to_vec()))
    }

    fn at(path: &Path) -> Result<Self, JournalError> {
        // Opened here, so that nobody else can read it from its first byte on, and no link is followed.
        let file = private_file(path).map_err(JournalError::system(path))?;
        let database = Database::builder().set_cache_size(CACHE).create_file(file).map_err(store)?;
        Ok(Self { database, path: path.to_owned() })
    }

    fn begin_tables(&self, owner: &Owner, random: &[u8; 48]) -> Result<(), JournalError> {
        let write = self.database.begin_write().map_err(store)?;
        {
            let mut table = write.open_table(IDENTITY).map_err(store)?;
            table.insert("random", random.as_slice()).map_err(store)?;
            for (field, value) in identity_of(owner) {
                table.insert(field, value.as_bytes()).map_err(store)?;
            }
            let mut files = write.open_table(FILES).map_err(store)?;
            for (file, digest) in owner.files.iter().flatten() {
                files.insert(file.as_str(), digest).map_err(store)?;
            }
        }
        write.open_table(PLACES).map_err(store)?;
        write.open_table(PEERS).map_err(store)?;
        for table in [NEXT_IN, NEXT_OUT, ACKNOWLEDGED] {
            write.open_table(table).map_err(store)?;
        }
        write.open_table(INBOUND).map_err(store)?;
        write.open_table(OUTBOUND).map_err(store)?;
        write.open_table(EMITTED).map_err(store)?;
        write.open_table(ASSIGNED).map_err(store)?;
        write.open_table(TESTS).map_err(store)?;
        write.open_table(FINISHED).map_err(store)?;
        write.open_table(REPLIES).map_err(store)?;
        write.commit().map_err(store)
    }

    /// What was drawn when the directory was begun, if it is this party's.
    fn identity(&self, directory: &Path, owner: &Owner) -> Result<[u8; 48], JournalError> {
        let read = self.database.begin_read().map_err(store)?;
        let table = read.open_table(IDENTITY).map_err(store)?;
        for (field, expected) in identity_of(owner) {
            let found = table.get(field).map_err(store)?;
            let found = found.map_or(String::new(), |f| String::from_utf8_lossy(f.value()).into_owned());
            if found != expected {
                let path = directory.to_owned();
                // Settings stand in the federation file.
                if field == "federation" {
                    return Err(JournalError::OtherFile { path, file: "federation.toml".to_owned() });
                }
                return Err(JournalError::Another { path, field, expected, found });
            }
        }
        self.check_files(directory, owner, &read)?;
        let random = table.get("random").map_err(store)?.and_then(|random| random.value().try_into().ok());
        random.ok_or_else(|| JournalError::Damaged { path: self.path.clone(), what: "the seed" })
    }

    /// Whether the party still has what it had when the directory was begun: what it encodes is covered by randomness that
    /// serves once.
    fn check_files(
        &self,
        directory: &Path,
        owner: &Owner,
        read: &redb::ReadTransaction,
    ) -> Result<(), JournalError> {
        let Some(files) = &owner.files else { return Ok(()) };
        let table = read.open_table(FILES).map_err(store)?;
        let other =
            |file: &str| Err(JournalError::OtherFile { path: directory.to_owned(), file: file.to_owned() });
        for (file, digest) in files {
            let begun = table.get(file.as_str()).map_err(store)?.map(|begun| *begun.value());
            if begun != Some(*digest) {
                return other(file);
            }
        }
        for row in table.iter().map_err(store)? {
            let file = row.map_err(store)?.0;
            if !files.contains_key(file.value()) {
                return other(file.value());
            }
        }
        Ok(())
    }

    pub fn places(&self) -> Result<Places, JournalError> {
        let read = self.database.begin_read().map_err(store)?;
        let mut places = Places::default();
        for row in read.open_table(PLACES).map_err(store)?.iter().map_err(store)? {
            let (key, digest) = row.map_err(store)?;
            let (kind_of_scope, number, is_in, peer, kind, head) = key.value();
            let way = if is_in { Way::In } else { Way::Out };
            let (peer, kind) = (PartyId::from_wire(peer), self.kind(kind)?);
            let place = places::Place { way, peer, kind, head: head.to_vec() };
            places.fill(&Filled { scope: scope_of((kind_of_scope, number)), place, digest: *digest.value() });
        }
        Ok(places)
    }

    /// The instance of a peer that was met first.
    pub fn meet(&self, peer: PartyId, instance: [u8; 16]) -> Result<[u8; 16], JournalError> {
        let write = self.database.begin_write().map_err(store)?;
        let known = {
            let mut table = write.open_table(PEERS).map_err(store)?;
            let known = table.get(peer.to_wire()).map_err(store)?.map(|known| *known.value());
            if known.is_none() {
                table.insert(peer.to_wire(), &instance).map_err(store)?;
            }
            known
        };
        match known {
            Some(known) => Ok(known),
            None => write.commit().map_err(store).map(|()| instance),
        }
    }

    pub fn load(&self) -> Result<Loaded, JournalError> {
        let read = self.database.begin_read().map_err(store)?;
        let mut loaded = Loaded::default();
        let numbers = |definition| -> Result<BTreeMap<PartyId, u64>, JournalError> {
            let table = read.open_table(definition).map_err(store)?;
            let rows = table.iter().map_err(store)?;
            rows.map(|row| {
                let (peer, number) = row.map_err(store)?;
                Ok((PartyId::from_wire(peer.value()), number.value()))
            })
            .collect()
        };
        loaded.next_in = numbers(NEXT_IN)?;
        loaded.next_out = numbers(NEXT_OUT)?;
        loaded.acknowledged = numbers(ACKNOWLEDGED)?;
        for row in read.open_table(INBOUND).map_err(store)?.iter().map_err(store)? {
            loaded.inbound_rows.push(row.map_err(store)?.0.value());
        }
        for row in read.open_table(EMITTED).map_err(store)?.iter().map_err(store)? {
            let (row, value) = row.map_err(store)?;
            let (to, kind, scope, digest) = value.value();
            let key = (PartyId::from_wire(to), self.kind(kind)?, *digest);
            loaded.emitted.push((row.value(), key, scope_of(scope)));
        }
        for row in read.open_table(FINISHED).map_err(store)?.iter().map_err(store)? {
            loaded.finished.insert(row.map_err(store)?.0.value());
        }
        let replies = read.open_table(REPLIES).map_err(store)?.get(()).map_err(store)?;
        loaded.replies = replies.map_or(0, |replies| replies.value());
        let assigned = read.open_table(ASSIGNED).map_err(store)?;
        let last_assigned = assigned.last().map_err(store)?.map(|(row, _)| row.value());
        let rows = loaded.inbound_rows.iter().copied().chain(loaded.emitted.iter().map(|row| row.0));
        loaded.next_row = rows.chain(last_assigned).max().map_or(0, |row| row + 1);
        Ok(loaded)
    }

    fn kind(&self, byte: u8) -> Result<Kind, JournalError> {
        let damaged = || JournalError::Damaged { path: self.path.clone(), what: "a kind of message" };
        Kind::from_wire(byte).ok_or_else(damaged)
    }

    pub fn inbound(&self, shelf: &Shelf) -> Result<Vec<Inbound>, JournalError> {
        let read = self.database.begin_read().map_err(store)?;
        let table = read.open_table(INBOUND).map_err(store)?;
        let rows = table.iter().map_err(store)?;
        rows.map(|row| {
            let (_, value) = row.map_err(store)?;
            let (from, number, kind, scope, body) = value.value();
            Ok(Inbound {
                from: PartyId::from_wire(from),
                number,
                kind: self.kind(kind)?,
                scope: scope_of(scope),
                digest: *body.0,
                length: body.1,
                body: body_of(shelf.received(), body)?,
            })
        })
        .collect()
    }

    pub fn outbound(&self, shelf: &Shelf) -> Result<Vec<Outbound>, JournalError> {
        let read = self.database.begin_read().map_err(store)?;
        let table = read.open_table(OUTBOUND).map_err(store)?;
        let rows = table.iter().map_err(store)?;
        rows.map(|row| {
            let (key, value) = row.map_err(store)?;
            let ((to, number), (kind, body)) = (key.value(), value.value());
            Ok(Outbound {
                to: PartyId::from_wire(to),
                number,
                kind: self.kind(kind)?,
                digest: *body.0,
                length: body.1,
                body: body_of(shelf.sent(), body)?,
            })
        })
        .collect()
    }

    pub fn assignments(&self) -> Result<Vec<Vec<u8>>, JournalError> {
        let read = self.database.begin_read().map_err(store)?;
        let table = read.open_table(ASSIGNED).map_err(store)?;
        let rows = table.iter().map_err(store)?;
        rows.map(|row| Ok(row.map_err(store)?.1.value().to_vec())).collect()
    }

    pub fn tests(&self) -> Result<Vec<TestRecord>, JournalError> {
        let read = self.database.begin_read().map_err(store)?;
        let table = read.open_table(TESTS).map_err(store)?;
        let rows = table.iter().map_err(store)?;
        rows.map(|row| {
            let (test, value) = row.map_err(store)?;
            let (request, result) = value.value();
            let (request, result) = (request.to_vec(), result.map(<[u8]>::to_vec));
            Ok(TestRecord { test: test.value(), request, result })
        })
        .collect()
    }

    /// One transaction: all of it or nothing.
    pub fn transact<T>(
        &self,
        work: impl FnOnce(&mut Tables<'_>) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let write = self.database.begin_write().map_err(store)?;
        let done = {
            let mut tables = Tables::open(&write)?;
            let done = work(&mut tables)?;
            tables.write_numbers()?;
            done
        };
        write.commit().map_err(store)?;
        Ok(done)
    }
}

/// The tables of one transaction.
pub(super) struct Tables<'t> {
    next_in: Table<'t, u16, u64>,
    next_out: Table<'t, u16, u64>,
    acknowledged: Table<'t, u16, u64>,
    inbound: Table<'t, u64, InboundRow<'static>>,
    outbound: Table<'t, (u16, u64), (u8, BodyRow<'static>)>,
    emitted: Table<'t, u64, (u16, u8, ScopeKey, &'static [u8; 32])>,
    assigned: Table<'t, u64, &'static [u8]>,
    tests: Table<'t, u64, (&'static [u8], Option<&'static [u8]>)>,
    finished: Table<'t, u64, ()>,
    places: Table<'t, PlaceKey<'static>, &'static [u8; 32]>,
    /// Written once, in the end.
    numbers: [BTreeMap<PartyId, u64>; 3],
    replies: Option<u64>,
    write: &'t WriteTransaction,
}

impl<'t> Tables<'t> {
    fn open(write: &'t WriteTransaction) -> Result<Self, JournalError> {
        Ok(Self {
            next_in: write.open_table(NEXT_IN).map_err(store)?,
            next_out: write.open_table(NEXT_OUT).map_err(store)?,
            acknowledged: write.open_table(ACKNOWLEDGED).map_err(store)?,
            inbound: write.open_table(INBOUND).map_err(store)?,
            outbound: write.open_table(OUTBOUND).map_err(store)?,
            emitted: write.open_table(EMITTED).map_err(store)?,
            assigned: write.open_table(ASSIGNED).map_err(store)?,
            tests: write.open_table(TESTS).map_err(store)?,
            finished: write.open_table(FINISHED).map_err(store)?,
            places: write.open_table(PLACES).map_err(store)?,
            numbers: Default::default(),
            replies: None,
            write,
        })
    }

    fn write_numbers(&mut self) -> Result<(), JournalError> {
        let tables = [&mut self.next_in, &mut self.next_out, &mut self.acknowledged];
        for (table, numbers) in tables.into_iter().zip(&self.numbers) {
            for (peer, number) in numbers {
                table.insert(peer.to_wire(), number).map_err(store)?;
            }
        }
        if let Some(replies) = self.replies {
            self.write.open_table(REPLIES).map_err(store)?.insert((), replies).map_err(store)?;
        }
        Ok(())
    }

    pub fn replies(&mut self, replies: u64) {
        self.replies = Some(replies);
    }

    pub fn received(&mut self, row: u64, message: &Inbound) -> Result<(), JournalError> {
        let body = body_row(&message.body, &message.digest, message.length);
        let (from, number) = (message.from.to_wire(), message.number);
        let value = (from, number, message.kind as u8, scope_key(message.scope), body);
        self.inbound.insert(row, value).map_err(store)?;
        self.due(message.from, number + 1);
        Ok(())
    }

    pub fn due(&mut self, from: PartyId, number: u64) {
        self.numbers[0].insert(from, number);
    }

    pub fn sent(&mut self, row: u64, message: &Outbound, scope: Scope) -> Result<(), JournalError> {
        let body = body_row(&message.body, &message.digest, message.length);
        let key = (message.to.to_wire(), message.number);
        self.outbound.insert(key, (message.kind as u8, body)).map_err(store)?;
        self.numbers[1].insert(message.to, message.number + 1);
        let value = (message.to.to_wire(), message.kind as u8, scope_key(scope), &message.digest);
        self.emitted.insert(row, value).map(drop).map_err(store)
    }

    pub fn acknowledged(&mut self, peer: PartyId, number: u64) {
        self.numbers[2].insert(peer, number);
    }

    pub fn assigned(&mut self, row: u64, bytes: &[u8]) -> Result<(), JournalError> {
        self.assigned.insert(row, bytes).map(drop).map_err(store)
    }

    pub fn test(&mut self, test: &TestRecord) -> Result<(), JournalError> {
        let value = (test.request.as_slice(), test.result.as_deref());
        self.tests.insert(test.test, value).map(drop).map_err(store)
    }

    pub fn finished(&mut self, test: u64) -> Result<(), JournalError> {
        self.finished.insert(test, ()).map(drop).map_err(store)
    }

    pub fn filled(&mut self, filled: &Filled) -> Result<(), JournalError> {
        let places::Place { way, peer, kind, head } = &filled.place;
        let (kind_of_scope, number) = scope_key(filled.scope);
        let key = (kind_of_scope, number, *way == Way::In, peer.to_wire(), *kind as u8, head.as_slice());
        self.places.insert(key, &filled.digest).map(drop).map_err(store)
    }

    pub fn forget_places(&mut self, test: u64) -> Result<(), JournalError> {
        let (kind, number) = scope_key(Scope::Test(test));
        let first: PlaceKey<'_> = (kind, number, false, 0, 0, &[]);
        match number.checked_add(1) {
            Some(next) => self.places.retain_in(first..(kind, next, false, 0, 0, &[][..]), |_, _| false),
            None => self.places.retain_in(first.., |_, _| false),
        }
        .map_err(store)
    }

    pub fn forget_inbound(&mut self, row: u64) -> Result<(), JournalError> {
        self.inbound.remove(row).map(drop).map_err(store)
    }

    pub fn forget_emitted(&mut self, row: u64) -> Result<(), JournalError> {
        self.emitted.remove(row).map(drop).map_err(store)
    }

    pub fn forget_outbound(&mut self, (peer, number): (PartyId, u64)) -> Result<(), JournalError> {
        self.outbound.remove((peer.to_wire(), number)).map(drop).map_err(store)
    }
}
