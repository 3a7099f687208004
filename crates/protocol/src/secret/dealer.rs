//! The client's part in SecretSV: shares models, deals masks for what it shares, and adds outputs up.

use secsv_algebra::{Matrix, Ring64, Secret, Seed, share::split};
use secsv_federation::{RoundId, TestSet, Weights};
use zeroize::Zeroize;

use super::Masks;
use crate::{
    Error,
    codec::{pack, unpack_matrix},
    message::{DealtProduct, Kind, Message as _, ModelShare, OutputShare, Server, ShareBody, StepAddress},
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
    let content = |share| ModelShare { round, share }.encode();
    let rest = pack(Ring64, rest.expose().elements());
    Ok([content(ShareBody::Seed(seeded.seed().clone())), content(ShareBody::Elements(&rest))])
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
    Ok(DealtProduct { round, elements: &pack(Ring64, rest.elements()) }.encode())
}

/// The auxiliary's share of a later operator's mask times what the client shares at a step.
pub(crate) fn deal_product(
    session: &Session,
    address: StepAddress,
    shared: &Matrix<Ring64>,
    [principal, auxiliary]: &[Masks; 2],
) -> Result<Vec<u8>, Error> {
    let Some(operator) = session.program().steps[address.step].feeds else { return Ok(Vec::new()) };
    let columns = Secret::new(session.program().operators[operator].arrange(shared)?);
    let of = |masks: &Masks| masks.mask(session, address.unit, operator);
    let product = Secret::new(of(principal).add(&of(auxiliary))?.expose().product(columns.expose())?);
    let own = principal.product(session, address, operator, shared.columns());
    Ok(pack(Ring64, product.expose().sub(own.expose())?.elements()))
}

/// Adds up both servers' shares of everything a step receives. `part` is the message with a server's share of an item.
pub(crate) fn receive<'a>(
    session: &Session,
    context: &UnitContext,
    step: usize,
    part: impl Fn(usize, Server) -> Option<&'a [u8]>,
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
        let open = |server: Server| {
            let bytes = part(item, server).ok_or(Error::Local { what: "a part of a step" })?;
            let malformed = |why| Error::Malformed { from: server.party(), kind: Kind::OutputShare, why };
            let OutputShare { elements, .. } = OutputShare::decode(bytes, &()).map_err(malformed)?;
            unpack_matrix(Ring64, rows, columns, elements).map_err(malformed)
        };
        let sum = open(Server::Principal)?.add(&open(Server::Auxiliary)?)?;
        received.expose_mut().0.push(sum);
    }
    Ok(received)
}
