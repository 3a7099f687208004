//! The messages, named for their senders, and their encodings. Ciphertexts stay bytes here: whoever computes with
//! them decodes them, off the state machine.

use std::fmt;

use secsv_algebra::Seed;
use secsv_federation::{Coalition, RoundId, SampleSet};

use crate::{
    codec::{Reader, Writer},
    error::CodecError,
    precision::Ranges,
};

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Client to principal: what it publishes.
    Hello = 1,
    /// Principal to all: everything parties agree on.
    Session = 2,
    /// Leader to the servers: public and evaluation keys. In SecretSV every client to the servers: the seed of what it
    /// deals.
    ServerKeys = 3,
    /// Leader to a client through the principal: the clients' secrets, sealed.
    ClientKeys = 4,
    /// Principal to participants: models of a round are needed.
    RoundStart = 5,
    /// Client to the servers: its model of a round.
    Model = 6,
    /// Client to the servers: its share of its samples.
    Data = 7,
    /// Principal to those concerned: a test.
    Test = 8,
    /// Principal to an owner: a test of a model it knows.
    OwnTest = 9,
    /// Owner to principal: which of its samples that model predicts right.
    OwnResult = 10,
    /// Auxiliary to principal: its halves of first-layer outputs. In SecretSV owner to auxiliary: its share of masks
    /// times samples.
    FirstLayer = 11,
    /// Auxiliary to principal: its halves of a later layer's outputs.
    Half = 12,
    /// Principal to a decryptor: outputs, sanitised.
    Reply = 13,
    /// Decryptor to the servers: shares of what it made of them.
    Shared = 14,
    /// Owner to the servers: shares of its blinded labels.
    Truth = 15,
    /// Last decryptor to the servers: shares of the blinded predictions.
    Predicted = 16,
    /// Auxiliary to principal: its share of the differences.
    Verdict = 17,
    /// Dealer to the servers: a multiplication triple.
    Triple = 18,
    /// Server to server: masked factors.
    Opening = 19,
    /// Server to a client: its share of outputs or of a gated sum.
    OutputShare = 20,
    /// Auxiliary to principal: the seed of their zero-sharings.
    Common = 21,
    /// Principal to auxiliary: a round or a test is over.
    Done = 22,
    /// Principal to the counting client: blinded differences, encrypted.
    Differences = 23,
    /// Counting client to principal: how many are zero.
    Count = 24,
    /// Principal to all: the values, and the utilities behind them.
    Values = 25,
    /// Principal to clients: the public key that it holds. Auxiliary to clients: the digest of the one that it holds.
    PublicKey = 26,
    /// Principal to auxiliary: the seeds of its shares of a unit's labels, for the auxiliary to count for itself.
    Opened = 27,
    /// Owner to auxiliary: how many of its samples models predict right that it knows.
    OwnCount = 28,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 28] = [
        Self::Hello,
        Self::Session,
        Self::ServerKeys,
        Self::ClientKeys,
        Self::RoundStart,
        Self::Model,
        Self::Data,
        Self::Test,
        Self::OwnTest,
        Self::OwnResult,
        Self::FirstLayer,
        Self::Half,
        Self::Reply,
        Self::Shared,
        Self::Truth,
        Self::Predicted,
        Self::Verdict,
        Self::Triple,
        Self::Opening,
        Self::OutputShare,
        Self::Common,
        Self::Done,
        Self::Differences,
        Self::Count,
        Self::Values,
        Self::PublicKey,
        Self::Opened,
        Self::OwnCount,
    ];

    /// From the byte it has in frames.
    pub fn from_wire(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// The name in accounts and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hello => "client hello",
            Self::Session => "session",
            Self::ServerKeys => "server keys",
            Self::ClientKeys => "sealed client keys",
            Self::RoundStart => "round start",
            Self::Model => "model",
            Self::Data => "data share",
            Self::Test => "test",
            Self::OwnTest => "own test",
            Self::OwnResult => "own result",
            Self::FirstLayer => "first-layer half",
            Self::Half => "layer half",
            Self::Reply => "reply",
            Self::Shared => "activation share",
            Self::Truth => "label share",
            Self::Predicted => "prediction share",
            Self::Verdict => "difference share",
            Self::Triple => "triple",
            Self::Opening => "masked factors",
            Self::OutputShare => "output share",
            Self::Common => "common seed",
            Self::Done => "done",
            Self::Differences => "blinded differences",
            Self::Count => "count",
            Self::Values => "values",
            Self::PublicKey => "public key",
            Self::Opened => "opened seeds",
            Self::OwnCount => "own count",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What one chain of decryptors does in a test, on the samples of one owner group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId {
    /// The test, counted by the principal.
    pub test: u64,
    /// The owner group.
    pub group: usize,
    /// Which of the group's units, where models are tested together.
    pub part: usize,
}

/// What a client publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// How many samples it brings.
    pub samples: u64,
    /// The size of its numbers.
    pub ranges: Ranges,
    /// The public key its envelopes are sealed to.
    pub public_key: Vec<u8>,
}

/// Who does what in the test of one group, as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitPlan {
    /// The owner group.
    pub group: usize,
    /// Which of the group's units.
    pub part: usize,
    /// Whose aggregates. Several only where a model has one layer.
    pub coalitions: Vec<Coalition>,
    /// Which samples of the group; of each owner only for coalitions whose models it does not know.
    pub samples: SampleSet,
    /// The samples whose first-layer outputs are computed together for this and other tests; without it all.
    pub gathered: Option<SampleSet>,
    /// Decryptors of the layers outside a recurrent unit.
    pub chain: Vec<usize>,
    /// Who evaluates the recurrent unit: re-sharer and gates.
    pub gru: Option<(usize, usize)>,
    /// Who deals triples.
    pub dealer: Option<usize>,
    /// Who counts (HESV).
    pub counter: Option<usize>,
}

/// A test, as it is announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestPlan {
    /// Its number.
    pub test: u64,
    /// The round, or the first of its round batch.
    pub round: RoundId,
    /// Its parts.
    pub units: Vec<UnitPlan>,
}

/// A share: the stream of a seed, or packed elements.
#[derive(Clone)]
pub enum ShareBody {
    /// The principal's.
    Seed(Seed),
    /// The auxiliary's.
    Elements(Vec<u8>),
}

/// Bytes of an envelope: a public key, the seeds of the clients' key and of their blinding factors, and a tag.
pub(crate) const ENVELOPE: usize = 32 + 2 * 32 + 16;

/// Samples that a client may bring: what is laid out for them stays within memory and machine words.
const MAX_SAMPLES: u64 = 1 << 24;

fn optional_client(writer: &mut Writer, client: Option<usize>) {
    writer.u16(client.map_or(0xffff, |client| client));
}

fn read_optional_client(reader: &mut Reader<'_>) -> Result<Option<usize>, CodecError> {
    Ok(Some(reader.u16()?).filter(|&client| client != 0xffff))
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u64(self.samples).u16(self.ranges.norms.len());
        for (&norm, &input) in self.ranges.norms.iter().zip(&self.ranges.inputs) {
            w.u32(norm as u32).u32(input as u32);
        }
        w.counted(&self.public_key);
        w.finish()
    }

    pub(crate) fn decode(bytes: &[u8], operators: usize) -> Result<Self, CodecError> {
        let mut r = Reader::new(bytes);
        let hello = Self::read(&mut r, operators)?;
        r.end().map(|()| hello)
    }

    pub(crate) fn read(r: &mut Reader<'_>, operators: usize) -> Result<Self, CodecError> {
        let samples = r.u64()?;
        if samples > MAX_SAMPLES {
            return Err(CodecError::TooLarge { what: "samples", expected: MAX_SAMPLES, found: samples });
        }
        if r.u16()? != operators {
            return Err(CodecError::Value { what: "layers" });
        }
        let mut ranges = Ranges { norms: Vec::new(), inputs: Vec::new() };
        for _ in 0..operators {
            for target in [&mut ranges.norms, &mut ranges.inputs] {
                let exponent = r.u32()? as i32;
                if !(-64..=64).contains(&exponent) {
                    return Err(CodecError::Value { what: "range" });
                }
                target.push(exponent);
            }
        }
        Ok(Self { samples, ranges, public_key: r.counted()?.to_vec() })
    }
}

impl TestPlan {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u64(self.test).u32(self.round.0).u64(self.units.len() as u64);
        for unit in &self.units {
            w.u16(unit.group).u16(unit.part).coalitions(&unit.coalitions);
            w.samples(&unit.samples).u8(unit.gathered.is_some().into());
            unit.gathered.iter().for_each(|gathered| {
                w.samples(gathered);
            });
            w.u64(unit.chain.len() as u64);
            unit.chain.iter().for_each(|&client| {
                w.u16(client);
            });
            optional_client(&mut w, unit.gru.map(|gru| gru.0));
            optional_client(&mut w, unit.gru.map(|gru| gru.1));
            optional_client(&mut w, unit.dealer);
            optional_client(&mut w, unit.counter);
        }
        w.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut r = Reader::new(bytes);
        let (test, round) = (r.u64()?, RoundId(r.u32()?));
        let count = r.count("units", 37)?;
        let mut units = Vec::with_capacity(count);
        for _ in 0..count {
            let (group, part, coalitions, samples) = (r.u16()?, r.u16()?, r.coalitions()?, r.samples()?);
            let gathered = match r.u8()? {
                0 => None,
                1 => Some(r.samples()?),
                _ => return Err(CodecError::Value { what: "gathered samples" }),
            };
            let length = r.count("decryptors", 2)?;
            let chain = (0..length).map(|_| r.u16()).collect::<Result<_, _>>()?;
            let (resharer, gates) = (read_optional_client(&mut r)?, read_optional_client(&mut r)?);
            if resharer.is_some() != gates.is_some() {
                return Err(CodecError::Value { what: "decryptors" });
            }
            let gru = resharer.zip(gates);
            units.push(UnitPlan {
                group,
                part,
                coalitions,
                samples,
                gathered,
                chain,
                gru,
                dealer: read_optional_client(&mut r)?,
                counter: read_optional_client(&mut r)?,
            });
        }
        r.end()?;
        Ok(Self { test, round, units })
    }
}

/// Head of messages about one unit: the unit, a step, and a further number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub unit: UnitId,
    pub step: usize,
    /// Which of the things received at the step.
    pub item: usize,
    /// Which chunk, where there are several.
    pub chunk: usize,
}

impl Place {
    /// Bytes it takes.
    pub(crate) const LENGTH: usize = 8 + 2 + 2 + 2 + 2 + 4;

    pub(crate) fn new(unit: UnitId, step: usize) -> Self {
        Self { unit, step, item: 0, chunk: 0 }
    }

    pub(crate) fn encode(&self, content: &[u8]) -> Vec<u8> {
        let mut w = self.head();
        w.make_room(content.len());
        w.raw(content);
        w.finish()
    }

    /// With several byte strings as content.
    pub(crate) fn encode_parts(&self, parts: &[Vec<u8>]) -> Vec<u8> {
        join_after(self.head(), parts)
    }

    fn head(&self) -> Writer {
        let mut w = Writer::default();
        w.u64(self.unit.test).u16(self.unit.group).u16(self.unit.part);
        w.u16(self.step).u16(self.item).u32(self.chunk as u32);
        w
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), CodecError> {
        let mut r = Reader::new(bytes);
        let unit = UnitId { test: r.u64()?, group: r.u16()?, part: r.u16()? };
        let place = Self { unit, step: r.u16()?, item: r.u16()?, chunk: r.u32()? as usize };
        Ok((place, r.rest()))
    }

    /// A number that no other place of the session has, to derive randomness by.
    pub(crate) fn number(&self) -> u64 {
        let parts = [self.unit.group, self.unit.part, self.step, self.item, self.chunk];
        let mut hash = blake3::Hasher::new();
        hash.update(&self.unit.test.to_le_bytes());
        parts.iter().for_each(|&part| {
            hash.update(&(part as u64).to_le_bytes());
        });
        u64::from_le_bytes(hash.finalize().as_bytes()[..8].try_into().unwrap_or_default())
    }
}

/// How many ciphertexts a message has somebody decrypt.
pub fn replies_in(kind: Kind, content: &[u8]) -> u64 {
    let parts = Place::decode(content).and_then(|(_, rest)| split(rest).map(|parts| parts.len() as u64));
    if matches!(kind, Kind::Reply | Kind::Differences) { parts.unwrap_or(0) } else { 0 }
}

/// Several byte strings one after the other.
pub(crate) fn join(parts: &[Vec<u8>]) -> Vec<u8> {
    join_after(Writer::default(), parts)
}

/// Several byte strings behind what has been written.
pub(crate) fn join_after(mut w: Writer, parts: &[Vec<u8>]) -> Vec<u8> {
    w.make_room(8 + parts.iter().map(|part| 8 + part.len()).sum::<usize>());
    w.u64(parts.len() as u64);
    parts.iter().for_each(|part| {
        w.counted(part);
    });
    w.finish()
}

pub(crate) fn split(bytes: &[u8]) -> Result<Vec<&[u8]>, CodecError> {
    let mut r = Reader::new(bytes);
    let count = r.count("parts", 8)?;
    let parts = (0..count).map(|_| r.counted()).collect::<Result<_, _>>()?;
    r.end().map(|()| parts)
}
