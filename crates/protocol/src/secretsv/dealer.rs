//! What a client shares and deals in SecretSV: models, and masks for what it shares.

use secsv_algebra::{Matrix, Ring64, Secret, Seed, share::split};
use secsv_federation::{RoundId, TestSet, Weights};

use super::Masks;
use crate::{
    Error, PartyId,
    codec::pack,
    message::{DealtProduct, ModelShare, ShareBody, StepAddress},
    model::{EncodedModel, sample_values},
    role::Outgoing,
    session::Session,
};

/// What a client deals to the principal and to the auxiliary.
pub(super) fn masks(seed: &Seed) -> [Masks; 2] {
    [0, 1].map(|server| Masks(seed.derive("masks", server)))
}

/// The model of a round for the principal and the auxiliary.
pub(super) fn share_model(
    session: &Session,
    round: RoundId,
    weights: &Weights,
    share: f64,
    seed: Seed,
) -> Result<Vec<Outgoing>, Error> {
    let model = EncodedModel::new(session.program(), &session.precision, Ring64, weights, share)?;
    let model = Secret::new(model);
    let flat = Secret::new(flatten(model.expose())?);
    let seed = seed.covering_words([flat.expose().elements()]);
    let (seeded, rest) = split(flat.expose(), seed);
    let rest = pack(Ring64, rest.expose().elements());
    let shares = [
        (PartyId::Principal, ShareBody::Seed(seeded.seed().clone())),
        (PartyId::Auxiliary, ShareBody::Elements(&rest)),
    ];
    Ok(shares.into_iter().map(|(to, share)| Outgoing::of(to, &ModelShare { round, share })).collect())
}

/// All elements of a model, operator by operator, biases behind weights.
fn flatten(model: &EncodedModel<Ring64>) -> Result<Matrix<Ring64>, Error> {
    let parts = model.operators.iter().flat_map(|o| [o.weight.elements(), &o.bias]);
    let elements: Vec<u64> = parts.flatten().copied().collect();
    Ok(Matrix::new(Ring64, 1, elements.len(), elements)?)
}

/// The auxiliary's share of a round's first-layer masks times the client's samples.
pub(super) fn deal_first_layer(
    session: &Session,
    position: usize,
    test_set: &TestSet,
    round: RoundId,
    [principal, auxiliary]: &[Masks; 2],
) -> Result<Outgoing, Error> {
    let program = session.program();
    let values = sample_values(program, test_set);
    let samples = Secret::new(values.encode(Ring64, session.precision.operators[0].input, 1)?);
    let columns = Secret::new(program.operators[0].arrange(samples.expose())?);
    let mask = principal.first_masks(session, round).add(&auxiliary.first_masks(session, round))?;
    let product = Secret::new(mask.expose().product(columns.expose())?);
    let rest = product.expose().sub(principal.first_products(session, round, position).expose())?;
    let dealt = DealtProduct { round, elements: &pack(Ring64, rest.elements()) };
    Ok(Outgoing::of(PartyId::Auxiliary, &dealt))
}

/// The auxiliary's shares of later operators' masks times what the client shares for them at a step, one after the other.
pub(super) fn deal_product(
    session: &Session,
    address: StepAddress,
    shared: &Matrix<Ring64>,
    [principal, auxiliary]: &[Masks; 2],
) -> Result<Vec<u8>, Error> {
    let mut dealt = Vec::new();
    for (operator, rows) in session.program().fed(address.step) {
        let part = Secret::new(shared.row_range(rows));
        let columns = Secret::new(session.program().operators[operator].arrange(part.expose())?);
        let of = |masks: &Masks| masks.mask(session, address.unit, operator);
        let product = Secret::new(of(principal).add(&of(auxiliary))?.expose().product(columns.expose())?);
        let own = principal.product(session, address, operator, shared.columns());
        dealt.extend(pack(Ring64, product.expose().sub(own.expose())?.elements()));
    }
    Ok(dealt)
}
