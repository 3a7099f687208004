//! HESV (the paper's Algorithms 1 and 2): everything is encrypted, for one server. Here is what clients and the server agree on: what
//! decryptors encrypt again, and vectors in slots.

pub(crate) mod client;
mod server;

pub(crate) use server::{HesvPrincipal, bytes_of_test, most_active};

use std::collections::BTreeSet;

use secsv_algebra::{Field, Matrix, Prg, Secret};
use secsv_he::{
    Ciphertext, EncryptedSlots, Flooding, Packing, PublicKey, Reply, SecretKey, linear::EncryptedBatch,
};

use crate::{
    Error, PartyId,
    activation::Handed,
    error::CodecError,
    message::{EncryptedActivations, EncryptedPredictions, Kind, Parts, StepAddress},
    opening::Opening,
    role::{Incoming, Meter, Outgoing, Phase},
    session::{EncryptedSession, Encryption},
    unit::slots_of,
};

/// Bytes of a coalition's weights in the larger basis up to which they are kept for all units and steps of a test;
/// above, every product extends them anew, a few inputs at a time.
pub(crate) const KEPT: usize = 512 << 20;

/// The rotations that the server needs keys for, ascending.
pub(crate) fn rotation_steps(encryption: &Encryption) -> Vec<usize> {
    let steps: BTreeSet<usize> =
        encryption.layouts.iter().flat_map(|layout| layout.rotation_steps()).collect();
    steps.into_iter().collect()
}

/// What a client made of a step, encrypted for the server.
pub(crate) struct Upload {
    /// Batches of the operator that the step feeds.
    pub batches: Vec<EncryptedBatch>,
    /// Element by element: a state that a gate will meet, or a gate and the rest of its sum.
    pub slots: Vec<EncryptedSlots>,
}

impl Upload {
    /// Encrypts what a step hands on, or the predicted labels, for the server.
    pub(crate) fn encrypt(
        session: &EncryptedSession,
        address: StepAddress,
        handed: &Handed<Field>,
        key: &SecretKey,
        rng: &mut Prg,
        meter: &mut Meter<'_>,
    ) -> Result<Outgoing, Error> {
        meter.enter(Phase::Encrypt);
        let step = address.step;
        let parameters = session.parameters();
        let matrix = match handed {
            Handed::Shared(matrix) => matrix,
            Handed::Labels(labels) => {
                let labels = Secret::new(labels.iter().map(|&label| label as u64).collect::<Vec<_>>());
                let slots = key.encrypt_slots(labels.expose(), rng, &mut meter.operations)?;
                let message = EncryptedPredictions { address, slots: &slots.to_bytes(parameters) };
                return Ok(Outgoing::of(PartyId::Principal, &message));
            }
        };
        let mut parts = Vec::new();
        if let Some(operator) = session.program().steps[step].feeds() {
            let columns = Secret::new(session.program().operators[operator].arrange(matrix)?);
            parts = encrypt_batches(session, operator, columns.expose(), key, rng, meter)?;
        }
        let (vectors, _) = slots_of(session, step, matrix.columns());
        for vector in 0..vectors {
            let rows = matrix.rows() / vectors;
            let elements = Secret::new(matrix.row_range(vector * rows..(vector + 1) * rows));
            let slots = key.encrypt_slots(elements.expose().elements(), rng, &mut meter.operations)?;
            parts.push(slots.to_bytes(parameters));
        }
        let message = EncryptedActivations { address, parts: Parts::from(&parts[..]) };
        Ok(Outgoing::of(PartyId::Principal, &message))
    }

    /// Decodes what the client at a step sent for so many samples.
    pub(crate) fn decode(
        session: &EncryptedSession,
        samples: usize,
        message: &Incoming,
        meter: &mut Meter<'_>,
    ) -> Result<Self, Error> {
        meter.enter(Phase::Codec);
        let malformed = |why| message.malformed(why);
        let EncryptedActivations { address: StepAddress { step, .. }, parts: Parts(parts) } =
            message.read(&())?;
        let (vectors, elements) = slots_of(session, step, samples);
        let Some(split) = parts.len().checked_sub(vectors) else {
            return Err(malformed(CodecError::Value { what: "number of vectors" }));
        };
        let batches = match session.program().steps[step].feeds() {
            Some(operator) => {
                let columns = session.program().operators[operator].positions * samples;
                decode_batches(session, operator, columns, &parts[..split]).map_err(malformed)?
            }
            None if split == 0 => Vec::new(),
            None => return Err(malformed(CodecError::Value { what: "number of batches" })),
        };
        let slots = parts[split..].iter().map(|part| {
            EncryptedSlots::from_bytes(session.parameters(), elements, part).map_err(|e| malformed(e.into()))
        });
        Ok(Self { batches, slots: slots.collect::<Result<_, _>>()? })
    }
}

/// Encrypts columns for an operator, batch by batch.
pub(crate) fn encrypt_batches(
    session: &EncryptedSession,
    operator: usize,
    columns: &Matrix<Field>,
    key: &SecretKey,
    rng: &mut Prg,
    meter: &mut Meter<'_>,
) -> Result<Vec<Vec<u8>>, Error> {
    let layout = session.layout(operator);
    let batches = (0..layout.batches(columns.columns())).map(|batch| {
        let batch = layout.encrypt_batch(key, columns, batch, rng, &mut meter.operations)?;
        Ok(batch.to_bytes(session.parameters()))
    });
    batches.collect()
}

/// Decodes the batches of so many columns.
pub(crate) fn decode_batches(
    session: &EncryptedSession,
    operator: usize,
    columns: usize,
    parts: &[&[u8]],
) -> Result<Vec<EncryptedBatch>, CodecError> {
    let layout = session.layout(operator);
    if parts.len() != layout.batches(columns) {
        return Err(CodecError::Value { what: "number of batches" });
    }
    parts.iter().map(|part| EncryptedBatch::from_bytes(layout, part).map_err(CodecError::from)).collect()
}

/// Sanitises vectors in slots for a client: everything past the last element is drowned (SECURITY.md, replies).
pub(crate) fn slot_replies(
    session: &EncryptedSession,
    elements: usize,
    vectors: Vec<Ciphertext>,
    public: &PublicKey,
    flooding: &Flooding,
    rng: &mut Prg,
    meter: &mut Meter<'_>,
) -> Result<Vec<Vec<u8>>, Error> {
    meter.enter(Phase::Sanitise);
    let parameters = session.parameters();
    let degree = parameters.degree();
    let mut parts = Vec::with_capacity(vectors.len());
    for (index, vector) in vectors.into_iter().enumerate() {
        let left = elements - elements.min(index * degree);
        let planned = planned_slots(degree, left);
        let ops = &mut meter.operations;
        let reply = public.sanitise(&vector, Packing::Slots, &planned, flooding, rng, ops)?;
        parts.push(reply.to_bytes(parameters));
    }
    Ok(parts)
}

fn planned_slots(degree: usize, elements: usize) -> Vec<bool> {
    (0..degree).map(|slot| slot < elements).collect()
}

/// Decrypts so many elements.
pub(crate) fn open_slots(
    opening: &Opening,
    session: &EncryptedSession,
    elements: usize,
    key: &SecretKey,
    kind: Kind,
    Parts(parts): &Parts<'_>,
    meter: &mut Meter<'_>,
) -> Result<Secret<Vec<u64>>, Error> {
    let malformed = |why| Error::Malformed { from: PartyId::Principal, kind, why };
    let parameters = session.parameters();
    if parts.len() != elements.div_ceil(parameters.degree()) {
        return Err(malformed(CodecError::Value { what: "number of replies" }));
    }
    let mut opened = Secret::new(Vec::with_capacity(elements));
    for part in parts {
        meter.enter(Phase::Codec);
        let degree = parameters.degree();
        let reply = Reply::from_bytes(parameters, degree, part).map_err(|e| malformed(e.into()))?;
        meter.enter(Phase::Decrypt);
        let left = (elements - opened.expose().len()).min(degree);
        let planned = planned_slots(degree, left);
        let slots = opening.reply(key, Packing::Slots, &planned, &reply, &mut meter.operations)?;
        opened.expose_mut().extend_from_slice(&slots.expose()[..left]);
    }
    Ok(opened)
}
