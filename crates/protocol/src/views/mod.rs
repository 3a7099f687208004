//! What a party saw: every message it received, read as far as its own keys, its own seeds and earlier messages allow
//! (docs/VIEWS.md). A view is computed from recorded messages after a run: roles do nothing for it while they run.

mod arrays;
mod heads;
mod labels;
mod server;
mod shares;
mod units;

use std::collections::BTreeSet;

use secsv_algebra::Secret;
use secsv_federation::{Coalition, RoundId};
use zeroize::Zeroize;

use crate::{
    PartyId,
    disclosure::Disclosure,
    message::{Kind, UnitPart, UnitPlan},
    session::Session,
};
pub(crate) use arrays::{Entry, by_owner, outputs_scale};
pub(crate) use labels::zeros;
pub(crate) use server::server_view;
pub(crate) use shares::scaled;
pub(crate) use units::{Announced, announced, time_step_of};

/// Bytes that are kept of a ciphertext that its receiver has no key to: its head.
const HEAD: usize = 64;

/// A message as it was recorded.
pub struct SeenMessage {
    /// The sender.
    pub from: PartyId,
    /// The receiver.
    pub to: PartyId,
    /// What it holds.
    pub kind: Kind,
    /// Bytes of the content.
    pub length: usize,
    /// BLAKE3 of the content.
    pub digest: [u8; 32],
    /// The content, or its head where the receiver can read no more.
    content: Secret<Vec<u8>>,
}

impl SeenMessage {
    /// A message with its content. Ciphertexts for servers are kept by their heads alone.
    pub fn new(from: PartyId, to: PartyId, kind: Kind, content: &[u8]) -> Self {
        let is_readable =
            !matches!(to, PartyId::Principal | PartyId::Auxiliary) || !heads::is_ciphertext(kind);
        let kept = if is_readable { content } else { &content[..content.len().min(HEAD)] };
        Self {
            from,
            to,
            kind,
            length: content.len(),
            digest: *blake3::hash(content).as_bytes(),
            content: Secret::new(kept.to_vec()),
        }
    }

    pub(crate) fn content(&self) -> &[u8] {
        self.content.expose()
    }
}

/// What a message or an array is about, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The test, by its number in messages.
    pub test: Option<u64>,
    /// The group of owners.
    pub group: Option<usize>,
    /// Which of the group's units.
    pub part: Option<UnitPart>,
    /// The visit to a decryptor.
    pub step: Option<usize>,
    /// Which of the things received there.
    pub item: Option<usize>,
    /// Which chunk.
    pub chunk: Option<usize>,
    /// The client it is for or about.
    pub client: Option<usize>,
    /// The round.
    pub round: Option<RoundId>,
    /// Whose aggregate.
    pub coalition: Option<Coalition>,
    /// Whose samples.
    pub owner: Option<usize>,
    /// Which of them: positions in the owner's test set.
    pub samples: Vec<usize>,
    /// The operator.
    pub operator: Option<usize>,
    /// The first position of the operator, and how many.
    pub positions: Option<(usize, usize)>,
    /// The step of a recurrent unit.
    pub time_step: Option<usize>,
}

/// A message of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The sender.
    pub from: PartyId,
    /// What it holds.
    pub kind: Kind,
    /// Bytes that it counts for in the traffic: those of its content.
    pub bytes: usize,
    /// Bytes of the content.
    pub length: usize,
    /// BLAKE3 of the content.
    pub digest: [u8; 32],
    /// What its head says.
    pub about: About,
    /// Whether an array follows from it.
    pub read: bool,
    /// What it is.
    pub holds: &'static str,
}

/// Numbers of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Elements of the field, those of smallest magnitude; counts.
    Signed(Vec<i64>),
    /// Elements of Z_2^64.
    Ring(Vec<u64>),
    /// Bits, seeds, classes, shares of labels.
    Bytes(Vec<u8>),
    /// Classes and shares of labels where there are more than 256.
    Words(Vec<u16>),
}

impl Zeroize for Numbers {
    fn zeroize(&mut self) {
        match self {
            Self::Signed(numbers) => numbers.zeroize(),
            Self::Ring(numbers) => numbers.zeroize(),
            Self::Bytes(numbers) => numbers.zeroize(),
            Self::Words(numbers) => numbers.zeroize(),
        }
    }
}

/// Something that a party could read.
pub struct Opened {
    /// The file it goes to, without its ending: a message's kind, or `derived-` and what it is.
    pub file: String,
    /// What it is.
    pub what: &'static str,
    /// The kind of the messages that it follows from.
    pub kind: Kind,
    /// Their sender, where there is one.
    pub from: Option<PartyId>,
    /// Their numbers in the view.
    pub messages: Vec<usize>,
    /// The entry of the list of disclosures that it stands on.
    pub disclosure: Option<Disclosure>,
    /// Where it belongs.
    pub about: About,
    /// Rows and columns.
    pub shape: (usize, usize),
    /// A number, less the offset, times this is the real one.
    pub scale: Option<f64>,
    /// What numbers are above those that the scale is of; none where that is 0 everywhere.
    pub offset: Option<i64>,
    /// Row by row.
    pub numbers: Secret<Numbers>,
}

impl Opened {
    /// The real numbers, row by row, where these stand for some.
    pub fn reals(&self) -> Option<Vec<f64>> {
        let scale = self.scale?;
        match self.numbers.expose() {
            Numbers::Signed(numbers) => {
                let offset = self.offset.unwrap_or(0);
                Some(numbers.iter().map(|&x| x.wrapping_sub(offset) as f64 * scale).collect())
            }
            Numbers::Ring(numbers) => Some(numbers.iter().map(|&x| x as i64 as f64 * scale).collect()),
            Numbers::Bytes(_) | Numbers::Words(_) => None,
        }
    }
}

/// A test that the party was told of, or planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenPlan {
    /// Its number in messages.
    pub test: u64,
    /// The round, or the first of its round batch.
    pub round: RoundId,
    /// All rounds of the round batch.
    pub rounds: Vec<RoundId>,
    /// Who does what; samples are places in the group.
    pub unit: UnitPlan,
    /// The samples by owner, as positions in its test set.
    pub samples: Vec<(usize, Vec<usize>)>,
}

/// What two servers that compute under masks open at one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenStage {
    /// Its number, which arrays have as their step.
    pub stage: usize,
    /// What an array of it holds.
    pub what: &'static str,
    /// The sum that it is, or is made of.
    pub sum: usize,
    /// Numbers of one sample; none where planes are opened.
    pub numbers: Option<usize>,
    /// Numbers are modulo two to this power; none where planes are opened.
    pub bits: Option<u32>,
}

/// What is added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSum {
    /// Its number; what is handed on of it is the value of the next number.
    pub sum: usize,
    /// All terms.
    pub terms: Vec<SeenTerm>,
    /// Whether it is the same for all samples: it has one column then.
    pub of_model: bool,
}

/// A term of a sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenTerm {
    /// `product`, `values`, `biases`, `spread` or `scaled`.
    pub what: &'static str,
    /// The operator.
    pub operator: Option<usize>,
    /// The values that it takes, one behind the other: 0 is the sample.
    pub values: Vec<usize>,
}

impl Session {
    /// What the servers open, stage by stage; none under protocols that have no such stages.
    pub fn seen_stages(&self) -> Vec<SeenStage> {
        self.circuit().map_or(Vec::new(), |circuit| circuit.seen_stages())
    }

    /// Bits of an operator's words under masks.
    pub fn word_bits(&self, operator: usize) -> Option<u32> {
        self.circuit()?.hops().words.get(operator).copied()
    }

    /// The sums that are opened or handed on there.
    pub fn seen_sums(&self) -> Vec<SeenSum> {
        self.circuit().map_or(Vec::new(), |circuit| circuit.seen_sums())
    }
}

/// Everything that one party saw.
pub struct View {
    /// The party.
    pub party: PartyId,
    /// All messages it received, in order.
    pub messages: Vec<Seen>,
    /// What it could read.
    pub arrays: Vec<Opened>,
    /// Tests that it knows of.
    pub plans: Vec<SeenPlan>,
    /// Secrets it has by the end, by name.
    pub secrets: Vec<&'static str>,
}

impl View {
    /// The messages of a party, and what was read in them.
    pub(crate) fn new(
        party: PartyId,
        received: &[SeenMessage],
        plans: Vec<SeenPlan>,
        arrays: Vec<Opened>,
    ) -> Self {
        let read: BTreeSet<usize> = arrays.iter().flat_map(|array| array.messages.iter().copied()).collect();
        let seen = |(number, message): (usize, &SeenMessage)| Seen {
            from: message.from,
            kind: message.kind,
            bytes: message.length,
            length: message.length,
            digest: message.digest,
            about: heads::about(message),
            read: read.contains(&number),
            holds: heads::holds(message.kind),
        };
        let messages = received.iter().enumerate().map(seen).collect();
        Self { party, messages, arrays, plans, secrets: Vec::new() }
    }
}

/// A kind of message as the name of a file.
pub fn file_name(kind: Kind) -> String {
    kind.name().replace(' ', "-")
}
