//! SecretSV (the paper's appendix): nothing is encrypted, everything is shared modulo 2^64.
//!
//! A product of a shared model theta and shared numbers X takes a mask U that a client deals: the servers open
//! E = theta - U between them, and theta X = E X + U X, whose first summand each server has for its share of X and whose
//! second, W, the client deals as shares. That is a matrix triple (SecureML) whose second factor is X itself, because
//! **whoever deals for a product is the client that shared X**: the owner for the first layer, a layer's decryptor for
//! the next. The usual triple with a random V would open X - V as well, and cost each server a second product; it would
//! also let its dealer and one server together open data that are not the dealer's. Whoever deals for a product never
//! sees its outcome: owners decrypt no first-layer output of their own group, and no client decrypts two layers in a
//! row (SECURITY.md, who decrypts what). The gated sum of a recurrent unit goes back to the client that shared the
//! state, so its triples, ordinary ones, come from a dealer who is neither (PROTOCOL.md, the recurrent unit).
//!
//! Masks are streams of two seeds that every client gives the servers once, one each: the principal's shares of U and W
//! and the auxiliary's of U are never sent.
//!
//! - The mask of a first-layer model is used for one owner and round, so samples are shared once for all rounds and
//!   models; coalitions' outputs are sums of those of local models (PROTOCOL.md 2).
//! - The mask of a later layer is used for one unit; a recurrent unit's hidden layer has one for all steps.
//! - Before a client gets its two shares of anything, the servers add a common sharing of zero to them: it learns the
//!   sum alone.

pub(crate) mod client;
mod dealer;
mod engines;
mod server;

pub(crate) use engines::{SecretSvAuxiliary, SecretSvPrincipal};

use secsv_algebra::{Matrix, Ring64, Seed, SeedShare, Share};
use secsv_federation::RoundId;

use crate::{
    Error,
    message::{StepAddress, UnitId},
    program::Program,
    session::Session,
};

/// One server's shares of everything that one client deals, but for the auxiliary's share of products.
#[derive(Clone)]
pub(crate) struct Masks(Seed);

impl Masks {
    pub(crate) fn seed(&self) -> &Seed {
        &self.0
    }

    fn draw(seed: Seed, rows: usize, columns: usize) -> Share<Ring64> {
        SeedShare::new(Ring64, rows, columns, seed).expand()
    }

    /// Of the masks of a round's models in the first layer, one below the other.
    fn first_masks(&self, session: &Session, round: RoundId) -> Share<Ring64> {
        let d_in = session.program().operators[0].shape.d_in;
        Self::draw(self.0.derive("first-layer masks", round.0.into()), session.stacked_rows(round), d_in)
    }

    /// Of those masks times the client's samples.
    fn first_products(&self, session: &Session, round: RoundId, client: usize) -> Share<Ring64> {
        let seed = self.0.derive("first-layer products", round.0.into());
        Self::draw(seed, session.stacked_rows(round), session.first_columns(client))
    }

    /// Of the mask of a later operator in a unit.
    fn mask(&self, session: &Session, unit: UnitId, operator: usize) -> Share<Ring64> {
        let shape = session.program().operators[operator].shape;
        let address = StepAddress { item: operator, ..StepAddress::new(unit, 0) };
        let seed = address.seed(&self.0, "mask of a test");
        Self::draw(seed, shape.d_out, shape.d_in)
    }

    /// Of that mask times what the client shares at a step.
    fn product(
        &self,
        session: &Session,
        address: StepAddress,
        operator: usize,
        samples: usize,
    ) -> Share<Ring64> {
        let fed = session.program().fed(address.step);
        let item = fed.iter().position(|(fed, _)| *fed == operator).unwrap_or(0);
        let operator = &session.program().operators[operator];
        let seed = StepAddress { item, ..address }.seed(&self.0, "product of a test");
        Self::draw(seed, operator.shape.d_out, operator.positions * samples)
    }
}

/// One server's share of a model: weights and biases (a column) of each operator.
pub(crate) struct SharedModel {
    operators: Vec<(Share<Ring64>, Share<Ring64>)>,
}

impl SharedModel {
    /// From a share of all elements, operator by operator, biases behind weights.
    fn new(program: &Program, share: &Share<Ring64>) -> Result<Self, Error> {
        let mut rest = share.expose().elements();
        let mut cut = |rows: usize, columns: usize| -> Result<Share<Ring64>, Error> {
            let (taken, left) = rest.split_at(rows * columns);
            rest = left;
            Ok(Share::new(Matrix::new(Ring64, rows, columns, taken.to_vec())?))
        };
        let shapes = program.operators.iter().map(|operator| operator.shape);
        let operators = shapes.map(|shape| Ok((cut(shape.d_out, shape.d_in)?, cut(shape.d_out, 1)?)));
        Ok(Self { operators: operators.collect::<Result<_, Error>>()? })
    }
}
