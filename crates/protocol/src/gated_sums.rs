//! A GRU's state after a step, u + z h, from shares (PROTOCOL.md, the recurrent unit): both servers open masked factors
//! to each other and hand their shares of the sum to the re-sharer.

use std::collections::BTreeMap;

use secsv_algebra::{Matrix, Prg, Ring, Seed, Share};

use crate::{
    Error, PartyId,
    codec::{check_elements, pack, unpack_matrix},
    disclosure::Disclosure,
    error::CodecError,
    message::{Kind, MaskedFactors, OutputShare, Server, TripleShare},
    role::Outgoing,
    session::Session,
    unit::{UnitContext, updates_of},
};

/// One server's share of a multiplication triple: c = a * b, entry by entry.
struct Triple<R: Ring> {
    a: Share<R>,
    b: Share<R>,
    c: Share<R>,
}

/// A gated sum at one server, by what it waits for.
enum GatedSum<R: Ring> {
    /// The gates or the state.
    Factors(Triple<R>),
    /// The other server's masked factors.
    OtherServer { triple: Triple<R>, masked: (Matrix<R>, Matrix<R>) },
    /// Nothing: the share of the sum was sent.
    Sent,
}

/// The gated sums of a unit at one server, by step; none before their triple has come.
pub(crate) struct GatedSums<R: Ring> {
    ring: R,
    server: Server,
    /// What the servers' sharings of zero are derived for.
    purpose: &'static str,
    sums: BTreeMap<usize, GatedSum<R>>,
    /// The other server's masked factors.
    others: BTreeMap<usize, Vec<u8>>,
}

impl<R: Ring> GatedSums<R> {
    /// No gated sums yet at a server.
    pub(crate) fn new(ring: R, server: Server, purpose: &'static str) -> Self {
        Self { ring, server, purpose, sums: BTreeMap::new(), others: BTreeMap::new() }
    }

    /// Takes a share of a triple: all of it the stream of a seed, but for the auxiliary's product.
    pub(crate) fn take_triple(
        &mut self,
        session: &Session,
        context: &UnitContext,
        TripleShare { address, seed, product }: TripleShare<'_>,
    ) -> Result<(), CodecError> {
        let (rows, columns) = factor_shape(session, context, address.step)?;
        let mut prg = Prg::new(&seed);
        let mut draw = || Share::new(Matrix::uniform(self.ring, rows, columns, &mut prg));
        let (a, b) = (draw(), draw());
        let c = match product {
            None => draw(),
            Some(product) => Share::new(unpack_matrix(self.ring, rows, columns, product)?),
        };
        self.sums.entry(address.step).or_insert(GatedSum::Factors(Triple { a, b, c }));
        Ok(())
    }

    /// Takes the other server's masked factors.
    pub(crate) fn take_masked(
        &mut self,
        session: &Session,
        context: &UnitContext,
        MaskedFactors { address, elements }: MaskedFactors<'_>,
    ) -> Result<(), CodecError> {
        let (rows, columns) = factor_shape(session, context, address.step)?;
        check_elements(self.ring, (2 * rows).checked_mul(columns), elements)?;
        self.others.insert(address.step, elements.to_vec());
        Ok(())
    }

    /// What the server sends for the sums that it has everything for by now: masked factors to the other server, shares of
    /// sums to the re-sharer. `inputs` are the shares of what clients shared, by step; `common` is the seed of the servers'
    /// sharings of zero.
    pub(crate) fn advance<'a>(
        &mut self,
        session: &Session,
        context: &UnitContext,
        common: &Seed,
        inputs: impl Fn(usize) -> Option<&'a Share<R>>,
    ) -> Result<Vec<Outgoing>, Error> {
        let mut outbox = Vec::new();
        for update in updates_of(session) {
            let (Some(gates), Some(state)) = (inputs(update.gates), inputs(update.state)) else { continue };
            let (address, step) = (update.address(context.id), update.step);
            let Some(mut sum) = self.sums.remove(&step) else { continue };
            if let GatedSum::Factors(triple) = sum {
                let masked = triple.masked_factors(gates, state)?;
                let elements = &pack(self.ring, &[masked.0.elements(), masked.1.elements()].concat());
                let to = self.server.other().party();
                outbox.push(Outgoing::of(to, &MaskedFactors { address, elements }));
                sum = GatedSum::OtherServer { triple, masked };
            }
            if let (GatedSum::OtherServer { triple, masked }, Some(other)) = (&sum, self.others.get(&step)) {
                let zero = address.seed(common, self.purpose).covering(&context.digest);
                let opened = triple.opened_factors(session, (masked, other), self.server)?;
                let share = triple.gated_sum(gates, &opened, self.server, &zero)?;
                let to = PartyId::Client(context.decryptor(step));
                let elements = &pack(self.ring, share.elements());
                outbox.push(Outgoing::of(to, &OutputShare { address, elements }));
                self.others.remove(&step);
                sum = GatedSum::Sent;
            }
            self.sums.insert(step, sum);
        }
        Ok(outbox)
    }

    /// What is missing of the triple that is needed first, and of masked factors, in words.
    pub(crate) fn missing(&self, session: &Session, context: &UnitContext) -> Vec<String> {
        let (test, group) = (context.id.test, context.id.group);
        let undealt = updates_of(session).map(|sum| sum.step).find(|step| !self.sums.contains_key(step));
        let triple = undealt.zip(context.plan.dealer).map(|(step, dealer)| {
            let dealer = PartyId::Client(dealer);
            format!("{} of test {test} group {group} step {step} from {dealer}", Kind::Triple)
        });
        let is_open = |(step, sum): &(&usize, &GatedSum<R>)| {
            matches!(sum, GatedSum::OtherServer { .. }) && !self.others.contains_key(step)
        };
        let openings = self.sums.iter().filter(is_open).map(|(step, _)| {
            format!("{} of test {test} group {group} step {step} from the other server", Kind::MaskedFactors)
        });
        triple.into_iter().chain(openings).collect()
    }
}

impl<R: Ring> Triple<R> {
    /// z - a and h - b, one server's share of each.
    fn masked_factors(&self, gates: &Share<R>, state: &Share<R>) -> Result<(Matrix<R>, Matrix<R>), Error> {
        let half = gates.expose().rows() / 2;
        let z = gates.expose().row_range(0..half);
        Ok((z.sub(self.a.expose())?, state.expose().sub(self.b.expose())?))
    }

    /// d = z - a and e = h - b, opened between the servers.
    fn opened_factors(
        &self,
        session: &Session,
        ((own_d, own_e), other): (&(Matrix<R>, Matrix<R>), &[u8]),
        server: Server,
    ) -> Result<(Matrix<R>, Matrix<R>), Error> {
        let (rows, columns) = own_d.shape();
        let from = server.other().party();
        let other = unpack_matrix(own_d.ring(), 2 * rows, columns, other);
        let other = other.map_err(|why| Error::Malformed { from, kind: Kind::MaskedFactors, why })?;
        let d = session.opening(Disclosure::MaskedFactors)?.sum(own_d, &other.row_range(0..rows))?;
        let e = session.opening(Disclosure::MaskedFactors)?.sum(own_e, &other.row_range(rows..2 * rows))?;
        Ok((d, e))
    }

    /// One server's share of u + z h, re-randomised: d b + e a + c, and d e at one of the two.
    fn gated_sum(
        &self,
        gates: &Share<R>,
        (d, e): &(Matrix<R>, Matrix<R>),
        server: Server,
        zero: &Seed,
    ) -> Result<Matrix<R>, Error> {
        let ring = gates.expose().ring();
        let (rows, columns) = d.shape();
        let u = gates.expose().row_range(rows..2 * rows);
        let mask = Matrix::seeded(ring, rows, columns, zero);
        let is_principal = server == Server::Principal;
        let entries = (0..rows * columns).map(|i| {
            let [d, e, a, b, c, u, r] =
                [d, e, self.a.expose(), self.b.expose(), self.c.expose(), &u, &mask].map(|m| m.elements()[i]);
            let product = ring.add(ring.mul(d, b), ring.mul(e, a));
            let product = ring.add(product, if is_principal { ring.mul(d, e) } else { 0 });
            let sum = ring.add(ring.add(product, c), u);
            if is_principal { ring.add(sum, r) } else { ring.sub(sum, r) }
        });
        Ok(Matrix::new(ring, rows, columns, entries.collect())?)
    }
}

/// The shape of either factor of the gated sum at a step.
fn factor_shape(session: &Session, context: &UnitContext, step: usize) -> Result<(usize, usize), CodecError> {
    if !updates_of(session).any(|sum| sum.step == step) {
        return Err(CodecError::Value { what: "step" });
    }
    Ok((session.program().hidden(), context.places().len()))
}
