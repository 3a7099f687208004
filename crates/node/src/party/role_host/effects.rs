//! What a role wants done, on its way to the journal.

use std::sync::Arc;

use secsv_evaluation::executor::HostedRole;
use secsv_protocol::{
    Assignment, Error as RoleError, PartyId, Scope, TestId, TestResult,
    message::{Kind, replies_in},
    role::{Effects, Job, Outgoing},
};

use super::{JournalEntry, NodeHost, NodeRole, NodeState};
use crate::{
    Error,
    journal::{Batch, Body, Claim, Digest, Emission, TestRecord, Way},
    party::journal_writer::JournalCommand,
};

/// The content that was written last, for a message to several parties.
type Written = Option<(Arc<Vec<u8>>, Digest, Body)>;

impl NodeHost {
    /// Has the journal's writer store an event's consequences. Returns the jobs that follow.
    pub(super) fn settle<R: HostedRole>(
        &self,
        running: &mut NodeRole<R>,
        effects: Effects<R>,
        entry: JournalEntry,
    ) -> Result<Vec<Job<R>>, Error> {
        let JournalEntry { mut batch, room } = entry;
        let mut written = None;
        for message in effects.outbox {
            self.send(&mut running.state, message, &mut written, &mut batch)?;
        }
        let harvest = running.role.harvest();
        batch.assigned = harvest.assigned.iter().map(Assignment::encode).collect();
        for (id, result) in harvest.results {
            let request = running.state.requests.remove(&id).unwrap_or_default();
            let (test, result) = (TestId::first(id), Some(TestResult::encode(&result)));
            batch.tests.push(TestRecord { test, request, result });
        }
        let counted = harvest.counted.into_iter();
        batch.tests.extend(counted.map(|(test, request)| TestRecord { test, request, result: None }));
        let finished = running.role.drain_finished();
        if self.own == PartyId::Principal && !finished.is_empty() {
            self.send_finished(&finished);
        }
        batch.over.extend(finished);
        running.state.finish(&batch.over);
        if !batch.is_empty() && self.writer.send(JournalCommand::Store(batch, room)).is_err() {
            return Err(RoleError::Local { what: "the journal's writer" }.into());
        }
        Ok(effects.jobs)
    }

    /// Enters a message in a batch.
    fn send(
        &self,
        state: &mut NodeState,
        message: Outgoing,
        written: &mut Written,
        batch: &mut Batch,
    ) -> Result<(), Error> {
        let Outgoing { to, kind, content } = message;
        let emission = self.emission(to, kind, &content, written)?;
        let (scope, digest) = (emission.scope, emission.digest);
        for filled in self.filled(Way::Out, to, kind, scope, (&content, digest)) {
            match state.slots.claim(&filled) {
                Claim::Other => return Err(RoleError::Second { from: self.own, kind }.into()),
                Claim::Same => {}
                Claim::New => {
                    state.slots.fill(&filled);
                    batch.filled.push(filled);
                }
            }
        }
        if let Some(peer) = self.peers.get(&to).filter(|_| kind == Kind::RoundStart) {
            peer.begin_round(scope);
        }
        state.accounts.count(self.own, to, kind, emission.length);
        batch.sent.push(emission);
        Ok(())
    }

    /// A message on its way to the journal. One to several parties is hashed and written once.
    fn emission(
        &self,
        to: PartyId,
        kind: Kind,
        content: &Arc<Vec<u8>>,
        written: &mut Written,
    ) -> Result<Emission, Error> {
        let malformed = |why| RoleError::Malformed { from: self.own, kind, why };
        let scope = self.federation.scope(kind, content).map_err(malformed)?;
        let (length, replies) = (content.len() as u64, replies_in(kind, content));
        let (digest, body) = match written {
            Some((same, digest, body)) if Arc::ptr_eq(same, content) => (*digest, body.clone()),
            _ => {
                let digest = *blake3::hash(content).as_bytes();
                let body = Body::sent(&self.blobs, content)?;
                *written = Some((content.clone(), digest, body.clone()));
                (digest, body)
            }
        };
        Ok(Emission { to, kind, scope, digest, length, body, replies })
    }
}

impl NodeState {
    /// Forgets what was kept for scopes that are finished.
    fn finish(&mut self, scopes: &[Scope]) {
        for scope in scopes {
            self.slots.forget(*scope);
            match scope {
                Scope::Test(test) => {
                    self.finished.insert(*test);
                }
                // A round that ends before it was taken up again takes with it what was held for then.
                Scope::Round(_) => {
                    self.resuming.remove(scope);
                    self.held.retain(|message| message.scope != *scope);
                }
                Scope::Session => {}
            }
        }
    }
}
