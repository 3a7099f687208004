//! Records what passes between the parties.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use secsv_protocol::{PartyId, message::Kind, views::SeenMessage};

use crate::{Envelope, in_process::Interceptor};

/// Stands between the parties and keeps what each receives, and of what servers send what they later need to read it.
pub struct Recorder {
    transcript: Transcript,
    inner: Box<dyn Interceptor>,
}

/// What was recorded.
#[derive(Clone, Default)]
pub struct Transcript(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    received: BTreeMap<PartyId, Vec<SeenMessage>>,
    sent: BTreeMap<PartyId, Vec<SeenMessage>>,
}

impl Recorder {
    /// Records what an interceptor lets through, and the transcript it will be in.
    pub fn around(inner: Box<dyn Interceptor>) -> (Self, Transcript) {
        let transcript = Transcript::default();
        (Self { transcript: transcript.clone(), inner }, transcript)
    }

    fn record(&self, envelopes: Vec<Envelope>) -> Vec<Envelope> {
        let mut recorded = self.transcript.lock();
        for Envelope { from, to, kind, content, .. } in &envelopes {
            let message = || SeenMessage::new(*from, *to, *kind, content);
            let is_masked = matches!(
                kind,
                Kind::MaskedFactors | Kind::MaskedFirstLayer | Kind::MaskedLayer | Kind::MaskedOpening
            );
            if is_masked || matches!(kind, Kind::Test | Kind::OwnTest | Kind::BlindTest) {
                let sent = recorded.sent.entry(*from).or_default();
                // A test is announced to many.
                let is_known = |last: &SeenMessage| {
                    matches!(last.kind, Kind::Test | Kind::BlindTest) && last.digest == message().digest
                };
                if !sent.last().is_some_and(is_known) {
                    sent.push(message());
                }
            }
            recorded.received.entry(*to).or_default().push(message());
        }
        drop(recorded);
        envelopes
    }
}

impl Transcript {
    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at what a party received and sent.
    pub fn with<T>(&self, party: PartyId, look: impl FnOnce(&[SeenMessage], &[SeenMessage]) -> T) -> T {
        let recorded = self.lock();
        let received = recorded.received.get(&party).map_or(&[][..], |messages| messages);
        let sent = recorded.sent.get(&party).map_or(&[][..], |messages| messages);
        look(received, sent)
    }
}

impl Interceptor for Recorder {
    fn pass(&mut self, envelope: Envelope) -> Vec<Envelope> {
        let passed = self.inner.pass(envelope);
        self.record(passed)
    }

    fn release(&mut self) -> Vec<Envelope> {
        let released = self.inner.release();
        self.record(released)
    }
}
