//! Messages that have come, now or to an earlier process.

use std::sync::Arc;

use secsv_evaluation::executor::HostedRole;
use secsv_protocol::{
    Error as RoleError, MAX_EARLY_BYTES, PartyId, Scope,
    message::Kind,
    role::{Effects, Incoming},
};

use super::{JournalEntry, NodeHost, NodeRole, NodeState, is_early};
use crate::{
    Error,
    journal::{Body, Claim, Filled, Inbound, Way},
    transport::Arrival,
};

impl NodeHost {
    /// Has the role take a message, unless it is refused or comes again.
    pub(super) fn on_arrival<R: HostedRole>(
        &self,
        running: &mut NodeRole<R>,
        arrival: Arrival,
        entry: &mut JournalEntry,
    ) -> Result<Option<Effects<R>>, Error> {
        let Arrival { from, number, kind, content, digest, room } = arrival;
        if number != *running.state.due.entry(from).or_insert(0) {
            // Known already, or behind one that was refused: it will come again.
            return Ok(None);
        }
        let scope = match self.federation.scope(kind, &content) {
            Ok(scope) => scope,
            Err(why) => {
                self.blame(from, kind, &RoleError::Malformed { from, kind, why });
                return Ok(None);
            }
        };
        let length = content.len() as u64;
        let message = |body| Inbound { from, number, kind, scope, digest, length, body };
        if running.state.is_finished(scope) {
            self.accepted(&mut running.state, from);
            entry.batch.skipped.push(message(Body::Inline(Arc::default())));
            entry.room = room;
            return Ok(Some(Effects::default()));
        }
        let filled = self.filled(Way::In, from, kind, scope, (&content, digest));
        let max_held = match running.state.is_resuming(scope) {
            true => Some(MAX_EARLY_BYTES as u64),
            false => running.role.ahead(from, kind, scope),
        };
        if let Some(defect) = running.state.defect((from, kind, scope), length, max_held, &filled) {
            self.blame(from, kind, &defect);
            return Ok(None);
        }
        let content = Arc::new(content);
        let message = message(Body::received(&self.blobs, &content)?);
        let Some(effects) = self.hand_over(running, &message, Arc::unwrap_or_clone(content))? else {
            return Ok(None);
        };
        for filled in filled {
            if running.state.slots.claim(&filled) != Claim::New {
                continue;
            }
            running.state.slots.fill(&filled);
            entry.batch.filled.push(filled);
        }
        self.accepted(&mut running.state, from);
        // Small contents wait for the journal's writer in memory.
        entry.room = room.filter(|_| matches!(message.body, Body::Inline(_)));
        entry.batch.received.push(message);
        running.state.accounts.count(from, self.own, kind, length);
        Ok(Some(effects))
    }

    /// Gives a message to the role, or holds it until the role can understand it; nothing if it is refused.
    fn hand_over<R: HostedRole>(
        &self,
        running: &mut NodeRole<R>,
        message: &Inbound,
        content: Vec<u8>,
    ) -> Result<Option<Effects<R>>, Error> {
        if is_early(&running.role, &running.state.resuming, message) {
            running.state.held.push(message.clone());
            return Ok(Some(Effects::default()));
        }
        let Inbound { from, kind, digest, .. } = *message;
        match running.role.handle(Incoming { from, kind, content, digest }) {
            Ok(effects) => Ok(Some(effects)),
            Err(error) if error.is_of_peer() => {
                self.blame(from, kind, &error);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The message that was due is accepted.
    fn accepted(&self, state: &mut NodeState, from: PartyId) {
        let due = state.due.entry(from).or_insert(0);
        *due += 1;
        if let Some(peer) = self.peers.get(&from) {
            peer.accepted(*due);
        }
    }

    /// A message that the journal has. It may have been stored before the role could judge it: then nobody is told what is wrong
    /// with it, and it has no effect.
    pub(super) fn on_replay<R: HostedRole>(
        &self,
        running: &mut NodeRole<R>,
        message: &Inbound,
    ) -> Result<Effects<R>, Error> {
        let content = self.blobs.read(&message.body, &message.digest)?;
        let Inbound { from, kind, number, digest, .. } = *message;
        match running.role.handle(Incoming { from, kind, content, digest }) {
            Err(error) if error.is_of_peer() => {
                let peer = self.peers.get(&from).map(|peer| peer.name.as_str());
                tracing::warn!(peer, %kind, number, %error, "message ignored");
                self.board.refused(from, &error.to_string());
                Ok(Effects::default())
            }
            taken => Ok(taken?),
        }
    }
}

impl NodeState {
    fn is_resuming(&self, scope: Scope) -> bool {
        self.resuming.contains(&scope.whole())
    }

    /// Why a message is refused before the role sees it: its slot has another content, or more bytes of the peer wait than there is
    /// `room` for, if it is one that waits.
    fn defect(
        &self,
        (from, kind, scope): (PartyId, Kind, Scope),
        length: u64,
        room: Option<u64>,
        filled: &[Filled],
    ) -> Option<RoleError> {
        if filled.iter().any(|filled| self.slots.claim(filled) == Claim::Other) {
            return Some(RoleError::Second { from, kind });
        }
        let is_resuming = self.is_resuming(scope);
        let held = self.held.iter().filter(|held| held.from == from && (is_resuming || held.kind == kind));
        let held = held.map(|held| held.length).sum::<u64>();
        let is_full = room.is_some_and(|room| held.saturating_add(length) > room);
        let state = if is_resuming { "the test is being taken up again" } else { "more than is dealt ahead" };
        is_full.then_some(RoleError::Unexpected { from, kind, state })
    }
}
