//! The messages, named for their senders, and their encodings. Ciphertexts stay bytes here: whoever computes with
//! them decodes them, off the state machine.

mod address;
mod kind;

pub(crate) use address::StepAddress;
pub use address::UnitId;
pub use kind::Kind;

use secsv_algebra::Seed;
use secsv_federation::{Coalition, RoundId, SampleSet};

use crate::{
    codec::{Reader, Writer},
    error::CodecError,
    frame::OVERHEAD,
    precision::Ranges,
};

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

/// How many ciphertexts a message has somebody decrypt.
pub fn replies_in(kind: Kind, content: &[u8]) -> u64 {
    let parts =
        StepAddress::decode(content).and_then(|(_, rest)| split(rest).map(|parts| parts.len() as u64));
    if matches!(kind, Kind::Reply | Kind::BlindedDifferences) { parts.unwrap_or(0) } else { 0 }
}

/// Several byte strings one after the other.
pub(crate) fn join(parts: &[Vec<u8>]) -> Vec<u8> {
    join_after(Writer::default(), parts)
}

/// Several byte strings behind what has been written.
pub(crate) fn join_after(mut w: Writer, parts: &[Vec<u8>]) -> Vec<u8> {
    w.make_room(8 + parts.iter().map(|part| 8 + part.len()).sum::<usize>() + OVERHEAD);
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
