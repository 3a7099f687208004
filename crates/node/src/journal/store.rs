//! The database of a journal.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use redb::{Database, Key, ReadableDatabase as _, ReadableTable as _, TableDefinition, Value};
use secsv_federation::rename_durably;
use secsv_protocol::{PartyId, Scope, TestId, message::Kind};

use super::{
    ContentSlots, Digest, Filled, Inbound, JournalError, Outbound, Owner, TestRecord, Way,
    blob_store::BlobStore,
    content_slots,
    error::store,
    private_files::{ENDED, JOURNAL, new_private_file, private_file},
    tables::*,
};

/// What the store itself keeps in memory.
const CACHE: usize = 8 << 20;

/// The database.
pub(super) struct JournalStore {
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
    pub finished: BTreeSet<TestId>,
    pub replies: u64,
    pub next_row: u64,
}

fn identity_of(owner: &Owner) -> [(&'static str, String); 3] {
    let federation = blake3::Hash::from(owner.federation).to_hex().to_string();
    let version = format!("{}, journal 7", env!("CARGO_PKG_VERSION"));
    [("version", version), ("party", owner.party.to_string()), ("federation", federation)]
}

impl JournalStore {
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
            rename_durably(&new, &path).map_err(JournalError::system(&path))?;
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
        let write = left.database.begin_write().map_err(store)?;
        write.open_table(IDENTITY).map_err(store)?.insert("values", values).map_err(store)?;
        for (peer, instance) in self.rows(PEERS, |peer, instance| Ok((peer, *instance)))? {
            write.open_table(PEERS).map_err(store)?.insert(peer, &instance).map_err(store)?;
        }
        for numbers in [NEXT_IN, NEXT_OUT, ACKNOWLEDGED] {
            for (peer, number) in self.rows(numbers, |peer, number| Ok((peer, number)))? {
                write.open_table(numbers).map_err(store)?.insert(peer, number).map_err(store)?;
            }
        }
        write.commit().map_err(store)?;
        drop(left);
        rename_durably(&new, &path).map_err(JournalError::system(&path))
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
        drop(Tables::open(&write)?);
        write.open_table(PEERS).map_err(store)?;
        write.open_table(REPLIES).map_err(store)?;
        write.commit().map_err(store)
    }

    /// What `take` makes of every row of a table, in its order.
    fn rows<K: Key + 'static, V: Value + 'static, T>(
        &self,
        table: TableDefinition<'_, K, V>,
        take: impl Fn(K::SelfType<'_>, V::SelfType<'_>) -> Result<T, JournalError>,
    ) -> Result<Vec<T>, JournalError> {
        let read = self.database.begin_read().map_err(store)?;
        let table = read.open_table(table).map_err(store)?;
        let rows = table.iter().map_err(store)?;
        rows.map(|row| row.map_err(store).and_then(|(key, value)| take(key.value(), value.value()))).collect()
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
        self.check_files(directory, owner)?;
        let random = table.get("random").map_err(store)?.and_then(|random| random.value().try_into().ok());
        random.ok_or_else(|| JournalError::Damaged { path: self.path.clone(), what: "the seed" })
    }

    /// Whether the party still has what it had when the directory was begun: what it encodes is covered by randomness that
    /// serves once.
    fn check_files(&self, directory: &Path, owner: &Owner) -> Result<(), JournalError> {
        let Some(files) = &owner.files else { return Ok(()) };
        let begun = self.rows(FILES, |file, digest| Ok((file.to_owned(), *digest)))?;
        let begun: BTreeMap<String, Digest> = begun.into_iter().collect();
        let changed = files.iter().find(|(file, digest)| begun.get(*file) != Some(*digest));
        let gone = || begun.iter().find(|(file, _)| !files.contains_key(*file));
        changed.or_else(gone).map_or(Ok(()), |(file, _)| {
            Err(JournalError::OtherFile { path: directory.to_owned(), file: file.clone() })
        })
    }

    pub fn content_slots(&self) -> Result<ContentSlots, JournalError> {
        let filled = self.rows(PLACES, |(kind_of_scope, number, is_in, peer, kind, head), digest| {
            let way = if is_in { Way::In } else { Way::Out };
            let (peer, kind) = (PartyId::from_wire(peer), self.kind(kind)?);
            let slot = content_slots::ContentSlot { way, peer, kind, head: head.to_vec() };
            Ok(Filled { scope: self.scope((kind_of_scope, number))?, slot, digest: *digest })
        })?;
        let mut slots = ContentSlots::default();
        filled.iter().for_each(|filled| slots.fill(filled));
        Ok(slots)
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
        let numbers = |table| {
            let rows = self.rows(table, |peer, number| Ok((PartyId::from_wire(peer), number)))?;
            Ok::<_, JournalError>(rows.into_iter().collect())
        };
        let mut loaded = Loaded {
            next_in: numbers(NEXT_IN)?,
            next_out: numbers(NEXT_OUT)?,
            acknowledged: numbers(ACKNOWLEDGED)?,
            inbound_rows: self.rows(INBOUND, |row, _| Ok(row))?,
            emitted: self.rows(EMITTED, |row, (to, kind, scope, digest)| {
                Ok((row, (PartyId::from_wire(to), self.kind(kind)?, *digest), self.scope(scope)?))
            })?,
            finished: self.rows(FINISHED, |test, ()| self.test(test))?.into_iter().collect(),
            replies: self.rows(REPLIES, |(), replies| Ok(replies))?.into_iter().sum(),
            next_row: 0,
        };
        let rows = loaded.inbound_rows.iter().copied().chain(loaded.emitted.iter().map(|row| row.0));
        let last_assigned = self.rows(ASSIGNED, |row, _| Ok(row))?.pop();
        loaded.next_row = rows.chain(last_assigned).max().map_or(0, |row| row + 1);
        Ok(loaded)
    }

    fn kind(&self, byte: u8) -> Result<Kind, JournalError> {
        Kind::from_wire(byte).ok_or_else(|| self.damaged("a kind of message"))
    }

    fn test(&self, number: u64) -> Result<TestId, JournalError> {
        TestId::from_wire(number).map_err(|_| self.damaged("the number of a test"))
    }

    fn scope(&self, key: ScopeKey) -> Result<Scope, JournalError> {
        scope_of(key).map_err(|_| self.damaged("the number of a test"))
    }

    fn damaged(&self, what: &'static str) -> JournalError {
        JournalError::Damaged { path: self.path.clone(), what }
    }

    pub fn inbound(&self, blobs: &BlobStore) -> Result<Vec<Inbound>, JournalError> {
        self.rows(INBOUND, |_, (from, number, kind, scope, body)| {
            Ok(Inbound {
                from: PartyId::from_wire(from),
                number,
                kind: self.kind(kind)?,
                scope: self.scope(scope)?,
                digest: *body.0,
                length: body.1,
                body: body_of(blobs.received(), body)?,
            })
        })
    }

    pub fn outbound(&self, blobs: &BlobStore) -> Result<Vec<Outbound>, JournalError> {
        self.rows(OUTBOUND, |(to, number), (kind, body)| {
            Ok(Outbound {
                to: PartyId::from_wire(to),
                number,
                kind: self.kind(kind)?,
                digest: *body.0,
                length: body.1,
                body: body_of(blobs.sent(), body)?,
            })
        })
    }

    pub fn assignments(&self) -> Result<Vec<Vec<u8>>, JournalError> {
        self.rows(ASSIGNED, |_, bytes| Ok(bytes.to_vec()))
    }

    pub fn tests(&self) -> Result<Vec<TestRecord>, JournalError> {
        self.rows(TESTS, |test, (request, result)| {
            let (test, result) = (self.test(test)?, result.map(<[u8]>::to_vec));
            Ok(TestRecord { test, request: request.to_vec(), result })
        })
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
