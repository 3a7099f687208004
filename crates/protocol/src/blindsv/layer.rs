//! The first layer: models under masks, and shares of every model's outputs on an owner's samples.

use std::ops::Range;

use secsv_algebra::{Matrix, Ring64, Secret, Seed, Share};
use secsv_federation::{RoundId, TestSet, Weights};

use super::{
    dealer::OwnerKeys,
    keys::{OwnerKey, draw_range},
    words::{pack, unpack},
};
use crate::{
    Error,
    message::Server,
    model::{EncodedModel, sample_values},
    session::BlindSession,
};

/// The seeds of both servers' masks of models: the principal's, the auxiliary's.
pub(crate) type ModelMasks = [Seed; 2];

/// Both seeds, from the clients' secret.
pub(crate) fn model_masks(secret: &Seed) -> ModelMasks {
    [0, 1].map(|server| secret.derive("model masks", server))
}

/// Some words of one server's mask of a client's model of a round.
pub(crate) fn mask_of(seed: &Seed, round: RoundId, client: usize, words: Range<usize>) -> Secret<Vec<u64>> {
    #[cfg(test)]
    let (round, client) = super::run_equivalence_tests::named_mask(round, client);
    draw_range(&seed.derive("round", round.0.into()).derive("client", client as u64), words)
}

/// A client's model of a round under both masks: E = w theta - U, operator by operator, weights row by row, then biases.
pub(crate) fn masked_model(
    session: &BlindSession,
    masks: &ModelMasks,
    (round, client): (RoundId, usize),
    weights: &Weights,
) -> Result<Vec<u8>, Error> {
    let share = session.share(round, client);
    let model = EncodedModel::new(session.program(), &session.precision, Ring64, weights, share)?;
    let model = Secret::new(model);
    let mut out = Vec::with_capacity(session.model_len());
    for (index, operator) in model.expose().operators.iter().enumerate() {
        let (words, _) = session.model_part(index);
        let [principal, auxiliary] = masks.each_ref().map(|seed| mask_of(seed, round, client, words.clone()));
        let elements = operator.weight.elements().iter().chain(&operator.bias);
        let masked = elements.zip(principal.expose()).zip(auxiliary.expose());
        let masked = masked.map(|((word, p), a)| word.wrapping_sub(*p).wrapping_sub(*a));
        pack(masked, session.hops().bytes(index), &mut out);
    }
    Ok(out)
}

/// An owner's samples as words, a row for each number.
pub(crate) fn sample_words(session: &BlindSession, test_set: &TestSet) -> Result<Share<Ring64>, Error> {
    let program = session.program();
    let values = sample_values(program, test_set);
    let samples = Secret::new(values.encode(Ring64, session.precision.operators[0].input, 1)?);
    Ok(Share::new(samples.expose().clone()))
}

/// The auxiliary's share of an owner's samples and, where they are a factor, of its labels.
pub(crate) fn data_share(
    session: &BlindSession,
    owner: usize,
    key: &OwnerKey,
    samples: &Share<Ring64>,
    labels: &[usize],
) -> Vec<u8> {
    let (shape, widths, count) = (session.chunks(owner), session.widths(), samples.expose().columns());
    let samples = samples.expose().elements();
    let mut out = Vec::new();
    let own = key.of_owner("samples", 0, samples.len());
    let rest = samples.iter().zip(own.expose()).map(|(word, own)| word.wrapping_sub(*own));
    pack(rest, session.hops().bytes(0), &mut out);
    if !shape.is_single() {
        let own = key.of_owner("labels", 0, shape.rows * count);
        let is_class =
            (0..shape.rows).flat_map(|row| labels.iter().map(move |label| u64::from(*label == row)));
        let rest = is_class.zip(own.expose()).map(|(bit, own)| bit.wrapping_sub(*own));
        pack(rest, widths.bytes(), &mut out);
    }
    out
}

/// One server's share of an owner's samples and labels.
pub(crate) struct OwnerData {
    samples: Share<Ring64>,
    /// One for each score and sample; none where labels are no factor.
    pub labels: Secret<Vec<u64>>,
}

impl OwnerData {
    /// The samples, a row for each number.
    pub(crate) fn samples(&self) -> &[u64] {
        self.samples.expose().elements()
    }

    /// Words of samples, and of labels.
    fn words(session: &BlindSession, owner: usize) -> (usize, usize) {
        let (shape, samples) = (session.chunks(owner), session.hellos[owner].samples as usize);
        let labels = if shape.is_single() { 0 } else { shape.rows * samples };
        (session.program().input_size * samples, labels)
    }

    /// Bytes of the auxiliary's share of samples, and of labels.
    fn lens(session: &BlindSession, owner: usize) -> (usize, usize) {
        let (samples, labels) = Self::words(session, owner);
        (samples * session.hops().bytes(0), labels * session.widths().bytes())
    }

    /// Bytes of the auxiliary's.
    pub(crate) fn len(session: &BlindSession, owner: usize) -> usize {
        let (samples, labels) = Self::lens(session, owner);
        samples + labels
    }

    /// The principal's, from the owner's key.
    pub(crate) fn of_principal(session: &BlindSession, owner: usize, key: &OwnerKey) -> Result<Self, Error> {
        let (samples, labels) = Self::words(session, owner);
        let mut samples = key.of_owner("samples", 0, samples);
        Self::new(session, owner, std::mem::take(samples.expose_mut()), key.of_owner("labels", 0, labels))
    }

    /// The auxiliary's, from what came, whose length was checked.
    pub(crate) fn of_auxiliary(session: &BlindSession, owner: usize, bytes: &[u8]) -> Result<Self, Error> {
        let (samples, _) = Self::lens(session, owner);
        let (samples, labels) = bytes.split_at(samples.min(bytes.len()));
        let samples = unpack(samples, session.hops().bytes(0)).collect();
        let labels = Secret::new(unpack(labels, session.widths().bytes()).collect());
        Self::new(session, owner, samples, labels)
    }

    fn new(
        session: &BlindSession,
        owner: usize,
        samples: Vec<u64>,
        labels: Secret<Vec<u64>>,
    ) -> Result<Self, Error> {
        let (inputs, count) = (session.program().input_size, session.hellos[owner].samples as usize);
        Ok(Self { samples: Share::new(Matrix::new(Ring64, inputs, count, samples)?), labels })
    }
}

/// Words of the first operator's outputs of a round's models on an owner's samples.
pub(crate) fn product_words(session: &BlindSession, round: RoundId, owner: usize) -> usize {
    let operator = &session.program().operators[0];
    session.stacked_rows(round) * operator.positions * session.hellos[owner].samples as usize
}

/// What the owner deals to the auxiliary: its share of the masks of all models of a round times the owner's samples.
pub(crate) fn deal_product(
    session: &BlindSession,
    keys: &OwnerKeys,
    masks: &ModelMasks,
    (round, owner): (RoundId, usize),
    samples: &Share<Ring64>,
) -> Result<Vec<u8>, Error> {
    let operator = &session.program().operators[0];
    let shape = operator.shape;
    let mut rows = Secret::new(Vec::with_capacity(session.stacked_rows(round) * shape.d_in));
    for client in session.federation.participants(round).members() {
        let words = 0..shape.d_out * shape.d_in;
        let [principal, auxiliary] = masks.each_ref().map(|seed| mask_of(seed, round, client, words.clone()));
        let sums = principal.expose().iter().zip(auxiliary.expose()).map(|(p, a)| p.wrapping_add(*a));
        rows.expose_mut().extend(sums);
    }
    let elements = std::mem::take(rows.expose_mut());
    let masks = Share::new(Matrix::new(Ring64, session.stacked_rows(round), shape.d_in, elements)?);
    let product = operator.multiply(masks.expose(), samples.expose())?;
    let own = keys[0].of_owner("products", round.0.into(), product_words(session, round, owner));
    let bytes = session.hops().bytes(0);
    let rest = product.expose().iter().zip(own.expose());
    let mut out = Vec::with_capacity(own.expose().len() * bytes);
    pack(rest.map(|(word, own)| word.wrapping_sub(*own)), bytes, &mut out);
    Ok(out)
}

/// What a server computes the first operator's outputs from.
pub(crate) struct LayerInput<'a> {
    pub server: Server,
    /// The seed of its masks of models.
    pub masks: &'a Seed,
    /// Its key with the owner.
    pub key: &'a OwnerKey,
    /// Models under both masks, in the order of their clients.
    pub models: &'a [std::sync::Arc<Vec<u8>>],
    /// At the auxiliary: what the owner dealt.
    pub dealt: Option<&'a [u8]>,
}

/// A server's shares of the first operator's outputs of all models of a round on an owner's samples: rows of one model below those of
/// the other.
pub(crate) fn outputs(
    session: &BlindSession,
    (round, owner): (RoundId, usize),
    input: &LayerInput<'_>,
    data: &OwnerData,
) -> Result<Secret<Vec<u64>>, Error> {
    let operator = &session.program().operators[0];
    let shape = operator.shape;
    let (bytes, weights) = (session.hops().bytes(0), shape.d_out * shape.d_in);
    let mut rows = Vec::with_capacity(session.stacked_rows(round) * shape.d_in);
    let mut biases = Secret::new(Vec::with_capacity(session.stacked_rows(round)));
    for (client, model) in session.federation.participants(round).members().zip(input.models) {
        let (words, packed) = session.model_part(0);
        let own = mask_of(input.masks, round, client, weights..words.end);
        let words: Vec<u64> = unpack(model.get(packed).unwrap_or(&[]), bytes).collect();
        let (weight, bias) = words.split_at(weights.min(words.len()));
        rows.extend(weight);
        let opened = u64::from(input.server == Server::Principal);
        let sums = bias.iter().zip(own.expose()).map(|(e, u)| u.wrapping_add(opened * e));
        biases.expose_mut().extend(sums);
    }
    let models = Matrix::new(Ring64, session.stacked_rows(round), shape.d_in, rows)?;
    let product = operator.multiply(&models, data.samples.expose())?;
    let of_row = (operator.positions * data.samples.expose().columns()).max(1);
    let mut outputs = match input.dealt {
        None => input.key.of_owner("products", round.0.into(), product_words(session, round, owner)),
        Some(dealt) => Secret::new(unpack(dealt, bytes).collect()),
    };
    let rows = outputs.expose_mut().chunks_exact_mut(of_row).zip(product.expose().chunks_exact(of_row));
    for ((outputs, product), bias) in rows.zip(biases.expose()) {
        let pairs = outputs.iter_mut().zip(product);
        pairs.for_each(|(sum, word)| *sum = sum.wrapping_add(*word).wrapping_add(*bias));
    }
    Ok(outputs)
}
