//! The tables of a journal, and one transaction on them.

use std::{collections::BTreeMap, sync::Arc};

use redb::{Table, TableDefinition, WriteTransaction};
use secsv_federation::RoundId;
use secsv_protocol::{CodecError, PartyId, Scope, TestId};

use super::{
    Body, Digest, Filled, Inbound, JournalError, Outbound, TestRecord, Way, blob_store::BlobFile,
    error::store,
};

/// Kind of scope and its number.
pub(super) type ScopeKey = (u8, u64);
/// Digest, length, the content where it is small and where it stands where it is not.
pub(super) type BodyRow<'a> = (&'a [u8; 32], u64, Option<&'a [u8]>, u64);
/// From, number, kind, scope, body.
pub(super) type InboundRow<'a> = (u16, u64, u8, ScopeKey, BodyRow<'a>);

pub(super) const IDENTITY: TableDefinition<&str, &[u8]> = TableDefinition::new("identity");
pub(super) const PEERS: TableDefinition<u16, &[u8; 16]> = TableDefinition::new("peers");
pub(super) const NEXT_IN: TableDefinition<u16, u64> = TableDefinition::new("next in");
pub(super) const NEXT_OUT: TableDefinition<u16, u64> = TableDefinition::new("next out");
pub(super) const ACKNOWLEDGED: TableDefinition<u16, u64> = TableDefinition::new("acknowledged");
pub(super) const INBOUND: TableDefinition<u64, InboundRow<'static>> = TableDefinition::new("inbound");
pub(super) const OUTBOUND: TableDefinition<(u16, u64), (u8, BodyRow<'static>)> =
    TableDefinition::new("outbound");
pub(super) const EMITTED: TableDefinition<u64, (u16, u8, ScopeKey, &[u8; 32])> =
    TableDefinition::new("emitted");
pub(super) const ASSIGNED: TableDefinition<u64, &[u8]> = TableDefinition::new("assigned");
pub(super) const TESTS: TableDefinition<u64, (&[u8], Option<&[u8]>)> = TableDefinition::new("tests");
pub(super) const FINISHED: TableDefinition<u64, ()> = TableDefinition::new("finished");
/// Scope, way, peer, kind and head: the digest of what fills the place.
pub(super) type PlaceKey<'a> = (u8, u64, bool, u16, u8, &'a [u8]);
pub(super) const PLACES: TableDefinition<PlaceKey<'static>, &[u8; 32]> = TableDefinition::new("places");
/// Digests of the files that the party encodes.
pub(super) const FILES: TableDefinition<&str, &[u8; 32]> = TableDefinition::new("files");
/// One row: ciphertexts that others were to decrypt.
pub(super) const REPLIES: TableDefinition<(), u64> = TableDefinition::new("replies");

pub(super) fn scope_key(scope: Scope) -> ScopeKey {
    match scope {
        Scope::Session => (0, 0),
        Scope::Round(round) => (1, round.0.into()),
        Scope::Test(test) => (2, test.to_wire()),
    }
}

pub(super) fn scope_of((kind, number): ScopeKey) -> Result<Scope, CodecError> {
    Ok(match kind {
        0 => Scope::Session,
        1 => Scope::Round(RoundId(number as u32)),
        _ => Scope::Test(TestId::from_wire(number)?),
    })
}

pub(super) fn body_row<'a>(body: &'a Body, digest: &'a Digest, length: u64) -> BodyRow<'a> {
    match body {
        Body::Inline(content) => (digest, length, Some(content.as_slice()), 0),
        Body::Stored(place, _) => (digest, length, None, place.page()),
    }
}

pub(super) fn body_of(
    room: &Arc<BlobFile>,
    (_, length, inline, page): BodyRow<'_>,
) -> Result<Body, JournalError> {
    match inline {
        Some(content) => Ok(Body::Inline(Arc::new(content.to_vec()))),
        None => Ok(Body::Stored(room.find(page, length)?, None)),
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
    pub fn open(write: &'t WriteTransaction) -> Result<Self, JournalError> {
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

    pub fn write_numbers(&mut self) -> Result<(), JournalError> {
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
        self.tests.insert(test.test.to_wire(), value).map(drop).map_err(store)
    }

    pub fn finished(&mut self, test: TestId) -> Result<(), JournalError> {
        self.finished.insert(test.to_wire(), ()).map(drop).map_err(store)
    }

    pub fn filled(&mut self, filled: &Filled) -> Result<(), JournalError> {
        let super::content_slots::ContentSlot { way, peer, kind, head } = &filled.slot;
        let (kind_of_scope, number) = scope_key(filled.scope);
        let key = (kind_of_scope, number, *way == Way::In, peer.to_wire(), *kind as u8, head.as_slice());
        self.places.insert(key, &filled.digest).map(drop).map_err(store)
    }

    pub fn forget_places(&mut self, test: TestId) -> Result<(), JournalError> {
        let (kind, number) = scope_key(Scope::Test(test));
        let first: PlaceKey<'_> = (kind, number, false, 0, 0, &[]);
        let next: PlaceKey<'_> = (kind, number + 1, false, 0, 0, &[]);
        self.places.retain_in(first..next, |_, _| false).map_err(store)
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
