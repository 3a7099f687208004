//! A GRU's state after a step, u + z h, from shares (PROTOCOL.md, the recurrent unit): both servers open masked factors
//! to each other and hand their shares of the sum to the re-sharer.

use secsv_algebra::{Field, Matrix, Prg, Ring, Seed, Share};

use super::{UnitContext, UnitState, rows_of};
use crate::{
    Error, PartyId,
    codec::{pack, unpack_matrix},
    error::CodecError,
    message::{Kind, MaskedFactors, OutputShare, StepAddress},
    program::Receive,
    role::Outgoing,
    session::Session,
};

/// One server's share of a multiplication triple: c = a * b, entry by entry.
pub(crate) struct Triple<R: Ring = Field> {
    pub a: Share<R>,
    pub b: Share<R>,
    pub c: Share<R>,
}

/// Masked factors: the own share once computed, the other server's once received.
pub(crate) struct Opening<R: Ring = Field> {
    pub own: Option<(Matrix<R>, Matrix<R>)>,
    pub other: Option<Vec<u8>>,
}

impl<R: Ring> Default for Opening<R> {
    fn default() -> Self {
        Self { own: None, other: None }
    }
}

/// z - a and h - b, one server's share of each.
pub(crate) fn masked_factors<R: Ring>(
    triple: &Triple<R>,
    gates: &Share<R>,
    state: &Share<R>,
) -> Result<(Matrix<R>, Matrix<R>), Error> {
    let half = gates.expose().rows() / 2;
    let z = rows_of(gates.expose(), 0, half)?;
    Ok((z.sub(triple.a.expose())?, state.expose().sub(triple.b.expose())?))
}

/// One server's share of u + z h, re-randomised: d b + e a + c, and d e at one of the two.
pub(crate) fn gated_sum<R: Ring>(
    triple: &Triple<R>,
    gates: &Share<R>,
    opened: (&(Matrix<R>, Matrix<R>), &[u8]),
    principal: bool,
    zero: &Seed,
) -> Result<Matrix<R>, Error> {
    let field = gates.expose().ring();
    let ((own_d, own_e), other) = opened;
    let (rows, columns) = own_d.shape();
    let from = if principal { PartyId::Auxiliary } else { PartyId::Principal };
    let other = unpack_matrix(field, 2 * rows, columns, other).map_err(|why| Error::Malformed {
        from,
        kind: Kind::MaskedFactors,
        why,
    })?;
    let d = own_d.add(&rows_of(&other, 0, rows)?)?;
    let e = own_e.add(&rows_of(&other, rows, rows)?)?;
    let u = rows_of(gates.expose(), rows, rows)?;
    let mask = Matrix::uniform(field, rows, columns, &mut Prg::new(zero));
    let entries = (0..rows * columns).map(|i| {
        let [d, e, a, b, c, u, r] =
            [&d, &e, triple.a.expose(), triple.b.expose(), triple.c.expose(), &u, &mask]
                .map(|m| m.elements()[i]);
        let product = field.add(field.mul(d, b), field.mul(e, a));
        let product = field.add(product, if principal { field.mul(d, e) } else { 0 });
        let sum = field.add(field.add(product, c), u);
        if principal { field.add(sum, r) } else { field.sub(sum, r) }
    });
    Ok(Matrix::new(field, rows, columns, entries.collect())?)
}

/// Gated sums of a program: step, item, step of the gates, step of the state.
pub(crate) fn updates_of(session: &Session) -> impl Iterator<Item = (usize, usize, usize, usize)> + '_ {
    let steps = session.program().steps.iter().enumerate();
    steps
        .flat_map(|(step, decryption)| {
            decryption.receives.iter().enumerate().map(move |(item, receive)| (step, item, receive))
        })
        .filter_map(|(step, item, receive)| match receive {
            Receive::Update { gates, state } => Some((step, item, *gates, *state)),
            _ => None,
        })
}

impl UnitState {
    /// Takes the other server's masked factors for a gated sum.
    pub(crate) fn take_masked(
        &mut self,
        session: &Session,
        MaskedFactors { address, elements }: MaskedFactors<'_>,
    ) -> Result<(), CodecError> {
        let Some(context) = &self.plan else { return Err(CodecError::Value { what: "test" }) };
        if !updates_of(session).any(|(step, ..)| step == address.step) {
            return Err(CodecError::Value { what: "step" });
        }
        let hidden = session.program().gru.map_or(0, |gru| gru.hidden);
        crate::codec::check_elements(
            session.field(),
            (2 * hidden).checked_mul(context.places().len()),
            elements,
        )?;
        self.openings.entry(address.step).or_default().other = Some(elements.to_vec());
        Ok(())
    }

    /// What a server sends for the gated sums of a unit that it has everything for by now: masked factors to the other
    /// server, shares of sums to the re-sharer. `common` is the seed of the servers' sharings of zero.
    pub(crate) fn gated_sums(
        &mut self,
        session: &Session,
        context: &UnitContext,
        is_principal: bool,
        common: &Seed,
    ) -> Result<Vec<Outgoing>, Error> {
        let other_server = if is_principal { PartyId::Auxiliary } else { PartyId::Principal };
        let mut outbox = Vec::new();
        for (step, item, gates, held) in updates_of(session) {
            let (Some(gates), Some(held), Some(triple)) =
                (self.inputs.get(&gates), self.inputs.get(&held), self.triples.get(&step))
            else {
                continue;
            };
            if self.started.contains(&(step, item, 0)) {
                continue;
            }
            let address = StepAddress { item, ..StepAddress::new(context.id, step) };
            let opening: &mut Opening = self.openings.entry(step).or_default();
            if opening.own.is_none() {
                let (d, e) = masked_factors(triple, gates, held)?;
                let elements = &pack(session.field(), &[d.elements(), e.elements()].concat());
                outbox.push(Outgoing::of(other_server, &MaskedFactors { address, elements }));
                opening.own = Some((d, e));
            }
            if let (Some(own), Some(other)) = (&opening.own, &opening.other) {
                let zero = address.seed(common, "gated sum").covering(&context.digest);
                let share = gated_sum(triple, gates, (own, other), is_principal, &zero)?;
                let to = PartyId::Client(context.client(session.program().steps[step].slot)?);
                let elements = &pack(session.field(), share.elements());
                outbox.push(Outgoing::of(to, &OutputShare { address, elements }));
                self.started.insert((step, item, 0));
                self.triples.remove(&step);
                self.openings.remove(&step);
            }
        }
        Ok(outbox)
    }
}
