//! Before and around tests: what clients publish, what everybody agrees on, when models are needed.

use secsv_federation::RoundId;
use secsv_he::linear::{BlockShape, MatrixMethod};

use super::{Kind, Message};
use crate::{
    agreement::Agreement,
    codec::{Reader, Writer},
    error::CodecError,
    precision::Ranges,
};

/// Samples that a client may bring: what is laid out for them stays within memory and machine words.
const MAX_SAMPLES: u64 = 1 << 24;

/// Client to principal: what it publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// How many samples it brings.
    pub samples: u64,
    /// The size of its numbers.
    pub ranges: Ranges,
    /// The public key its envelopes are sealed to.
    pub public_key: Vec<u8>,
    /// Whether its owner accepts what utilities of few samples tell.
    pub accepts_few: bool,
    /// How often functions by straight pieces give the exact model's labels; nothing where functions are exact.
    pub agreement: Agreement,
}

impl Message<'_> for ClientHello {
    const KIND: Kind = Kind::ClientHello;
    /// Linear operators of the model.
    type Context = usize;

    fn write(&self, w: &mut Writer) {
        w.u64(self.samples).u16(self.ranges.norms.len());
        let Ranges { norms, inputs, outputs } = &self.ranges;
        for ((&norm, &input), &output) in norms.iter().zip(inputs).zip(outputs) {
            w.u32(norm as u32).u32(input as u32).u32(output as u32);
        }
        w.counted(&self.public_key).u8(self.accepts_few.into());
        w.u64(self.agreement.labels).u64(self.agreement.equal);
    }

    fn read(r: &mut Reader<'_>, operators: &usize) -> Result<Self, CodecError> {
        let samples = r.u64()?;
        if samples > MAX_SAMPLES {
            return Err(CodecError::TooLarge { what: "samples", expected: MAX_SAMPLES, found: samples });
        }
        if r.u16()? != *operators {
            return Err(CodecError::Value { what: "layers" });
        }
        let mut ranges = Ranges { norms: Vec::new(), inputs: Vec::new(), outputs: Vec::new() };
        for _ in 0..*operators {
            for target in [&mut ranges.norms, &mut ranges.inputs, &mut ranges.outputs] {
                let exponent = r.u32()? as i32;
                if !(-64..=64).contains(&exponent) {
                    return Err(CodecError::Value { what: "range" });
                }
                target.push(exponent);
            }
        }
        let public_key = r.counted()?.to_vec();
        let accepts_few = match r.u8()? {
            0 => false,
            1 => true,
            _ => return Err(CodecError::Value { what: "acceptance" }),
        };
        let agreement = Agreement { labels: r.u64()?, equal: r.u64()? };
        if agreement.equal > agreement.labels {
            return Err(CodecError::Value { what: "agreement" });
        }
        Ok(Self { samples, ranges, public_key, accepts_few, agreement })
    }
}

/// Principal to all: everything parties agree on. The rest of the session follows from it and the federation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SessionProposal {
    /// The client that makes the clients' common secrets.
    pub leader: usize,
    /// What each client published.
    pub hellos: Vec<ClientHello>,
    /// How many rounds are tested together, at most.
    pub rounds: usize,
    /// The matrix method of each operator; none where nothing is encrypted.
    pub methods: Vec<MatrixMethod>,
}

/// What a federation says of the length of a proposal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProposalShape {
    pub clients: usize,
    pub operators: usize,
    /// Whether something is encrypted.
    pub is_encrypted: bool,
}

impl Message<'_> for SessionProposal {
    const KIND: Kind = Kind::Session;
    type Context = ProposalShape;

    fn write(&self, w: &mut Writer) {
        w.u16(self.leader);
        self.hellos.iter().for_each(|hello| hello.write(w));
        w.u16(self.rounds);
        for method in &self.methods {
            let (kind, block) = match *method {
                MatrixMethod::Squaring => (0, BlockShape { rows: 0, columns: 0, samples: 0 }),
                MatrixMethod::Reducing => (1, BlockShape { rows: 0, columns: 0, samples: 0 }),
                MatrixMethod::Packed(block) => (2, block),
            };
            w.u8(kind).index(block.rows).index(block.columns).index(block.samples);
        }
    }

    fn read(r: &mut Reader<'_>, shape: &ProposalShape) -> Result<Self, CodecError> {
        let leader = r.u16()?;
        if leader >= shape.clients {
            return Err(CodecError::Value { what: "leader" });
        }
        let hellos = (0..shape.clients).map(|_| ClientHello::read(r, &shape.operators));
        let hellos = hellos.collect::<Result<_, _>>()?;
        let rounds = r.u16()?;
        let methods = if shape.is_encrypted { 0..shape.operators } else { 0..0 };
        let methods = methods.map(|_| method(r)).collect::<Result<_, _>>()?;
        Ok(Self { leader, hellos, rounds, methods })
    }
}

fn method(r: &mut Reader<'_>) -> Result<MatrixMethod, CodecError> {
    let (kind, block) = (r.u8()?, BlockShape { rows: r.index()?, columns: r.index()?, samples: r.index()? });
    let is_zero = block == BlockShape { rows: 0, columns: 0, samples: 0 };
    match kind {
        0 if is_zero => Ok(MatrixMethod::Squaring),
        1 if is_zero => Ok(MatrixMethod::Reducing),
        2 => Ok(MatrixMethod::Packed(block)),
        _ => Err(CodecError::Value { what: "method" }),
    }
}

/// Principal to participants: models of a round are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundStart {
    pub round: RoundId,
}

impl Message<'_> for RoundStart {
    const KIND: Kind = Kind::RoundStart;
    type Context = ();

    fn write(&self, w: &mut Writer) {
        w.u32(self.round.0);
    }

    fn read(r: &mut Reader<'_>, (): &()) -> Result<Self, CodecError> {
        Ok(Self { round: RoundId(r.u32()?) })
    }
}
