//! HESV (the paper's Algorithms 1 and 2), as far as clients and the one server agree on it: what decryptors encrypt
//! again, and vectors in slots. The roles' parts are in `client/hesv.rs` and `principal/hesv.rs`.

use secsv_algebra::{Field, Matrix, Prg, Secret};
use secsv_he::{
    Ciphertext, EncryptedSlots, Flooding, Packing, PublicKey, Reply, SecretKey, linear::EncryptedBatch,
};

use crate::{
    Error, PartyId,
    activation::Handed,
    decryptors::Protocol,
    error::CodecError,
    message::{Kind, join, split},
    program::Then,
    role::{Meter, Phase},
    server::{rows_of, updates_of},
    session::Session,
};

/// Bytes of a coalition's weights in the larger basis up to which they are kept for all units and steps of a test;
/// above, every product extends them anew, a few inputs at a time.
pub(crate) const KEPT: usize = 512 << 20;

/// Whether this is the protocol with one server.
pub(crate) fn is_hesv(session: &Session) -> bool {
    session.federation.settings.protocol == Protocol::Hesv
}

/// The rotations that the server needs keys for, ascending.
pub(crate) fn rotation_steps(session: &Session) -> Result<Vec<usize>, Error> {
    let layouts = session.encryption()?.layouts.iter();
    let steps: std::collections::BTreeSet<usize> = layouts.flat_map(|l| l.rotation_steps()).collect();
    Ok(steps.into_iter().collect())
}

/// What a client made of a step, encrypted for the server.
pub(crate) struct Upload {
    /// Batches of the operator that the step feeds.
    pub batches: Vec<EncryptedBatch>,
    /// Element by element: a state that a gate will meet, or a gate and the rest of its sum.
    pub slots: Vec<EncryptedSlots>,
}

/// How many vectors in slots a step's upload has, and the elements of each.
pub(crate) fn slots_of(session: &Session, step: usize, samples: usize) -> (usize, usize) {
    let elements = session.program().gru.map_or(0, |gru| gru.hidden) * samples;
    match session.program().steps[step].then {
        Then::Gates { .. } => (2, elements),
        _ => (usize::from(updates_of(session).any(|(.., state)| state == step)), elements),
    }
}

impl Upload {
    /// Encrypts what a step hands on, or the predicted labels, with the kind of the message.
    pub(crate) fn encrypt(
        session: &Session,
        step: usize,
        handed: &Handed<Field>,
        key: &SecretKey,
        rng: &mut Prg,
        meter: &mut Meter<'_>,
    ) -> Result<(Kind, Vec<u8>), Error> {
        meter.enter(Phase::Encrypt);
        let parameters = &session.encryption()?.parameters;
        let matrix = match handed {
            Handed::Shared(matrix) => matrix,
            Handed::Labels(labels) => {
                let labels = Secret::new(labels.iter().map(|&label| label as u64).collect::<Vec<_>>());
                let slots = key.encrypt_slots(labels.expose(), rng, &mut meter.operations)?;
                return Ok((Kind::Predicted, slots.to_bytes(parameters)));
            }
        };
        let mut parts = Vec::new();
        if let Some(operator) = session.program().steps[step].feeds {
            let columns = Secret::new(session.program().operators[operator].arrange(matrix)?);
            parts = encrypt_batches(session, operator, columns.expose(), key, rng, meter)?;
        }
        let (vectors, _) = slots_of(session, step, matrix.columns());
        for vector in 0..vectors {
            let rows = matrix.rows() / vectors;
            let elements = Secret::new(rows_of(matrix, vector * rows, rows)?);
            let slots = key.encrypt_slots(elements.expose().elements(), rng, &mut meter.operations)?;
            parts.push(slots.to_bytes(parameters));
        }
        Ok((Kind::Shared, join(&parts)))
    }

    /// Decodes what the client at a step sent for so many samples.
    pub(crate) fn decode(
        session: &Session,
        step: usize,
        samples: usize,
        from: PartyId,
        bytes: &[u8],
        meter: &mut Meter<'_>,
    ) -> Result<Self, Error> {
        meter.enter(Phase::Codec);
        let malformed = |why| Error::Malformed { from, kind: Kind::Shared, why };
        let encryption = session.encryption()?;
        let parts = split(bytes).map_err(malformed)?;
        let (vectors, elements) = slots_of(session, step, samples);
        let Some(split) = parts.len().checked_sub(vectors) else {
            return Err(malformed(CodecError::Value { what: "number of vectors" }));
        };
        let batches = match session.program().steps[step].feeds {
            Some(operator) => {
                let columns = session.program().operators[operator].positions * samples;
                decode_batches(session, operator, columns, &parts[..split])?.map_err(malformed)?
            }
            None if split == 0 => Vec::new(),
            None => return Err(malformed(CodecError::Value { what: "number of batches" })),
        };
        let slots = parts[split..].iter().map(|part| {
            EncryptedSlots::from_bytes(&encryption.parameters, elements, part)
                .map_err(|e| malformed(e.into()))
        });
        Ok(Self { batches, slots: slots.collect::<Result<_, _>>()? })
    }
}

/// Encrypts columns for an operator, batch by batch.
pub(crate) fn encrypt_batches(
    session: &Session,
    operator: usize,
    columns: &Matrix<Field>,
    key: &SecretKey,
    rng: &mut Prg,
    meter: &mut Meter<'_>,
) -> Result<Vec<Vec<u8>>, Error> {
    let encryption = session.encryption()?;
    let layout = &encryption.layouts[operator];
    let batches = (0..layout.batches(columns.columns())).map(|batch| {
        let batch = layout.encrypt_batch(key, columns, batch, rng, &mut meter.operations)?;
        Ok(batch.to_bytes(&encryption.parameters))
    });
    batches.collect()
}

/// Decodes the batches of so many columns.
pub(crate) fn decode_batches(
    session: &Session,
    operator: usize,
    columns: usize,
    parts: &[&[u8]],
) -> Result<Result<Vec<EncryptedBatch>, CodecError>, Error> {
    let layout = &session.encryption()?.layouts[operator];
    if parts.len() != layout.batches(columns) {
        return Ok(Err(CodecError::Value { what: "number of batches" }));
    }
    let batches = parts.iter().map(|part| EncryptedBatch::from_bytes(layout, part).map_err(CodecError::from));
    Ok(batches.collect())
}

/// Sanitises vectors in slots for a client: everything past the last element is drowned (SECURITY.md, replies).
pub(crate) fn slot_replies(
    session: &Session,
    elements: usize,
    vectors: Vec<Ciphertext>,
    public: &PublicKey,
    flooding: &Flooding,
    rng: &mut Prg,
    meter: &mut Meter<'_>,
) -> Result<Vec<u8>, Error> {
    meter.enter(Phase::Sanitise);
    let parameters = &session.encryption()?.parameters;
    let degree = parameters.degree();
    let mut parts = Vec::with_capacity(vectors.len());
    for (index, vector) in vectors.into_iter().enumerate() {
        let left = elements - elements.min(index * degree);
        let planned = planned_slots(degree, left);
        let ops = &mut meter.operations;
        let reply = public.sanitise(&vector, Packing::Slots, &planned, flooding, rng, ops)?;
        parts.push(reply.to_bytes(parameters));
    }
    Ok(join(&parts))
}

fn planned_slots(degree: usize, elements: usize) -> Vec<bool> {
    (0..degree).map(|slot| slot < elements).collect()
}

/// Decrypts so many elements.
pub(crate) fn open_slots(
    session: &Session,
    elements: usize,
    key: &SecretKey,
    kind: Kind,
    bytes: &[u8],
    meter: &mut Meter<'_>,
) -> Result<Secret<Vec<u64>>, Error> {
    let malformed = |why| Error::Malformed { from: PartyId::Principal, kind, why };
    let parameters = &session.encryption()?.parameters;
    let parts = split(bytes).map_err(malformed)?;
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
        let slots = key.decrypt_reply(Packing::Slots, &planned, &reply, &mut meter.operations)?;
        opened.expose_mut().extend_from_slice(&slots.expose()[..left]);
    }
    Ok(opened)
}
