//! The client's part in SecretSV: shares models, deals masks for what it shares, and adds outputs up.

use std::collections::BTreeMap;

use secsv_algebra::{Matrix, Ring64, Secret, Seed, share::split};
use secsv_federation::{RoundId, TestSet, Weights};
use zeroize::Zeroize;

use super::Masks;
use crate::{
    Error, PartyId,
    codec::{Writer, pack, unpack_matrix},
    message::{Kind, Place},
    model::{EncodedModel, sample_values},
    program::Receive,
    role::{Meter, Phase},
    server::UnitContext,
    session::Session,
};

/// Matrices that are wiped.
pub(crate) struct Hidden(pub Vec<Matrix<Ring64>>);

impl Zeroize for Hidden {
    fn zeroize(&mut self) {
        self.0.iter_mut().for_each(Zeroize::zeroize);
    }
}

/// What a client deals to the principal and to the auxiliary.
pub(crate) fn masks(seed: &Seed) -> [Masks; 2] {
    [0, 1].map(|server| Masks(seed.derive("masks", server)))
}

/// The model of a round for the principal and the auxiliary.
pub(crate) fn share_model(
    session: &Session,
    round: RoundId,
    weights: &Weights,
    share: f64,
    seed: Seed,
) -> Result<[Vec<u8>; 2], Error> {
    let model = EncodedModel::new(session.program(), &session.precision, Ring64, weights, share)?;
    let model = Secret::new(model);
    let flat = Secret::new(flatten(model.expose())?);
    let seed = seed.covering_words([flat.expose().elements()]);
    let (seeded, rest) = split(flat.expose(), seed);
    let content = |share: &[u8]| {
        let mut w = Writer::default();
        w.u32(round.0).raw(share);
        w.finish()
    };
    Ok([content(seeded.seed().expose()), content(&pack(Ring64, rest.expose().elements()))])
}

/// All elements of a model, operator by operator, biases behind weights.
fn flatten(model: &EncodedModel<Ring64>) -> Result<Matrix<Ring64>, Error> {
    let parts = model.operators.iter().flat_map(|o| [o.weight.elements(), &o.bias]);
    let elements: Vec<u64> = parts.flatten().copied().collect();
    Ok(Matrix::new(Ring64, 1, elements.len(), elements)?)
}

/// The auxiliary's share of a round's first-layer masks times the client's samples.
pub(crate) fn deal_first_layer(
    session: &Session,
    position: usize,
    test_set: &TestSet,
    round: RoundId,
    [principal, auxiliary]: &[Masks; 2],
) -> Result<Vec<u8>, Error> {
    let program = session.program();
    let values = sample_values(program, test_set);
    let samples = Secret::new(values.encode(Ring64, session.precision.operators[0].input, 1)?);
    let columns = Secret::new(program.operators[0].arrange(samples.expose())?);
    let mask = principal.first_masks(session, round).add(&auxiliary.first_masks(session, round))?;
    let product = Secret::new(mask.expose().product(columns.expose())?);
    let rest = product.expose().sub(principal.first_products(session, round, position).expose())?;
    let mut w = Writer::default();
    w.u32(round.0).raw(&pack(Ring64, rest.elements()));
    Ok(w.finish())
}

/// The auxiliary's share of a later operator's mask times what the client shares at a step.
pub(crate) fn deal_product(
    session: &Session,
    place: Place,
    shared: &Matrix<Ring64>,
    [principal, auxiliary]: &[Masks; 2],
) -> Result<Vec<u8>, Error> {
    let Some(operator) = session.program().steps[place.step].feeds else { return Ok(Vec::new()) };
    let columns = Secret::new(session.program().operators[operator].arrange(shared)?);
    let of = |masks: &Masks| masks.mask(session, place.unit, operator);
    let product = Secret::new(of(principal).add(&of(auxiliary))?.expose().product(columns.expose())?);
    let own = principal.product(session, place, operator, shared.columns());
    Ok(pack(Ring64, product.expose().sub(own.expose())?.elements()))
}

/// Adds up both servers' shares of everything a step receives; `others` is where the auxiliary's are.
pub(crate) fn receive(
    session: &Session,
    context: &UnitContext,
    step: usize,
    parts: &BTreeMap<(usize, usize), Vec<u8>>,
    others: usize,
    meter: &mut Meter<'_>,
) -> Result<Secret<Hidden>, Error> {
    meter.enter(Phase::Share);
    let (program, samples) = (session.program(), context.places().len());
    let mut received = Secret::new(Hidden(Vec::new()));
    for (item, receive) in program.steps[step].receives.iter().enumerate() {
        let (rows, columns) = match *receive {
            Receive::Outputs { operator, count, .. } => {
                (program.operators[operator].shape.d_out, count * samples)
            }
            Receive::Bias { operator } => (program.operators[operator].shape.d_out, samples),
            Receive::Update { .. } => (program.gru.map_or(0, |gru| gru.hidden), samples),
        };
        let open = |from, server| {
            let bytes = parts.get(&(item, server)).ok_or(Error::Local { what: "a part of a step" })?;
            let malformed = |why| Error::Malformed { from, kind: Kind::OutputShare, why };
            unpack_matrix(Ring64, rows, columns, bytes).map_err(malformed)
        };
        let sum = open(PartyId::Principal, 0)?.add(&open(PartyId::Auxiliary, others)?)?;
        received.expose_mut().0.push(sum);
    }
    Ok(received)
}
