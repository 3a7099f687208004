//! What all roles have in common: they take messages and return messages and jobs. A job is work that needs nothing but
//! what it was given, so it may run anywhere; what it finds is handed back by its continuation. A role has no clock,
//! thread or randomness of its own: whoever runs it brings them.

use std::sync::Arc;

use secsv_he::Operations;

use crate::{
    Error, PartyId,
    error::CodecError,
    message::{Kind, Message},
    scope::Scope,
    session::Session,
};

/// A message as its sender hands it over: whoever runs the role numbers and frames it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The receiver.
    pub to: PartyId,
    /// What it holds.
    pub kind: Kind,
    /// The content; a message to several parties is in memory once.
    pub content: Arc<Vec<u8>>,
}

impl Outgoing {
    /// A message to a party.
    pub fn new(to: PartyId, kind: Kind, content: impl Into<Arc<Vec<u8>>>) -> Self {
        Self { to, kind, content: content.into() }
    }

    /// A message of one kind to a party.
    pub(crate) fn of<'a, M: Message<'a>>(to: PartyId, message: &M) -> Self {
        Self::new(to, M::KIND, message.encode())
    }
}

/// A digest of some content.
pub type Digest = [u8; 32];

/// A message as its receiver takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The sender.
    pub from: PartyId,
    /// What it holds.
    pub kind: Kind,
    /// The content.
    pub content: Vec<u8>,
    /// Of the content: whoever carries it has computed it.
    pub digest: Digest,
}

impl Incoming {
    /// A message whose digest nobody has computed yet.
    pub fn new(from: PartyId, kind: Kind, content: Vec<u8>) -> Self {
        let digest = *blake3::hash(&content).as_bytes();
        Self { from, kind, content, digest }
    }

    /// The content as a message of one kind.
    pub(crate) fn read<'a, M: Message<'a>>(&'a self, context: &M::Context) -> Result<M, Error> {
        M::decode(&self.content, context).map_err(|why| self.malformed(why))
    }

    /// The error that its content is not what it should be.
    pub(crate) fn malformed(&self, why: CodecError) -> Error {
        Error::Malformed { from: self.from, kind: self.kind, why }
    }

    /// The error that nobody waits for it.
    pub(crate) fn unexpected(&self, state: &'static str) -> Error {
        Error::Unexpected { from: self.from, kind: self.kind, state }
    }
}

/// What a job is busy with, for the accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Encryption of models and data.
    Encrypt,
    /// Making and opening of shares.
    Share,
    /// Products and sums, on ciphertexts or shares.
    Linear,
    /// Re-randomising and flooding of replies.
    Sanitise,
    /// Decryption.
    Decrypt,
    /// Activations.
    Activate,
    /// Tests that an owner does itself.
    Clear,
    /// Packing and unpacking.
    Codec,
}

/// Told what a job is busy with.
pub trait Probe {
    /// From now on it is this.
    fn enter(&mut self, phase: Phase);
}

/// What a job reports to.
pub struct Meter<'a> {
    /// Counted operations.
    pub operations: Operations,
    probe: &'a mut dyn Probe,
}

impl<'a> Meter<'a> {
    /// Nothing counted yet.
    pub fn new(probe: &'a mut dyn Probe) -> Self {
        Self { operations: Operations::default(), probe }
    }

    /// From now on the job is busy with this.
    pub fn enter(&mut self, phase: Phase) {
        self.probe.enter(phase);
    }
}

/// What a job found, to be told to its role.
pub type Continuation<R> = Box<dyn FnOnce(&mut R) -> Result<Effects<R>, Error> + Send>;

/// Work that may run on any thread.
pub type Job<R> = Box<dyn FnOnce(&mut Meter<'_>) -> Result<Continuation<R>, Error> + Send>;

/// What a role wants done.
pub struct Effects<R> {
    /// To be delivered.
    pub outbox: Vec<Outgoing>,
    /// To be run.
    pub jobs: Vec<Job<R>>,
}

impl<R> Default for Effects<R> {
    fn default() -> Self {
        Self { outbox: Vec::new(), jobs: Vec::new() }
    }
}

impl<R> Effects<R> {
    /// Adds what something else wants done.
    pub fn and(&mut self, other: Self) {
        self.outbox.extend(other.outbox);
        self.jobs.extend(other.jobs);
    }

    /// A message to be delivered, and nothing else.
    pub(crate) fn send(message: Outgoing) -> Self {
        Self { outbox: vec![message], jobs: Vec::new() }
    }

    /// Effects of a part of a role as effects of the role. `part` finds the part; where it is gone, a job that ends has no effect.
    pub(crate) fn lift<O: 'static>(self, part: fn(&mut O) -> Option<&mut R>) -> Effects<O>
    where
        R: 'static,
    {
        let lift_job = |job: Job<R>| -> Job<O> {
            Box::new(move |meter| {
                let next = job(meter)?;
                let lifted = move |role: &mut O| match part(role) {
                    Some(found) => Ok(next(found)?.lift(part)),
                    None => Ok(Effects::default()),
                };
                Ok(Box::new(lifted) as Continuation<O>)
            })
        };
        Effects { outbox: self.outbox, jobs: self.jobs.into_iter().map(lift_job).collect() }
    }

    /// Adds a job.
    pub(crate) fn job<F, C>(&mut self, work: F)
    where
        F: FnOnce(&mut Meter<'_>) -> Result<C, Error> + Send + 'static,
        C: FnOnce(&mut R) -> Result<Effects<R>, Error> + Send + 'static,
    {
        self.jobs.push(Box::new(move |meter| work(meter).map(|next| Box::new(next) as Continuation<R>)));
    }
}

/// The first few of what a party waits for, in words.
pub(crate) fn waits_for(party: PartyId, missing: &[String]) -> String {
    match missing.len() {
        0 => format!("{party}: nothing"),
        count if count > 4 => format!("{party}: {} and {} more", missing[..4].join(", "), count - 4),
        _ => format!("{party}: {}", missing.join(", ")),
    }
}

/// A party's state machine.
pub trait Role: Sized + Send + 'static {
    /// Takes a message. What the sender is to blame for is an error now, and never one of a job.
    fn handle(&mut self, message: Incoming) -> Result<Effects<Self>, Error>;

    /// The agreement, once it is known.
    fn session(&self) -> Option<&Arc<Session>>;

    /// What has ended since this was last asked: messages about it are not needed any more.
    fn drain_finished(&mut self) -> Vec<Scope> {
        Vec::new()
    }

    /// Something has ended, whatever this role had to do with it: what is kept for it is not needed any more.
    fn end(&mut self, _: Scope) {}

    /// What it waits for, in words, and from whom: for the message when nothing moves any more.
    fn awaiting(&self) -> String;
}
