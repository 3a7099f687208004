//! Later layers: coalitions' models meet what decryptors shared again, and the gated sums of a recurrent unit.

use std::sync::Arc;

use super::{
    Halves, Principal,
    replies::{Replies, biases, ciphertexts},
};
use crate::{
    Error, PartyId,
    message::{Kind, Place, UnitId},
    role::Effects,
    server::{UnitContext, coalition_model, products, products_of, wanted_of},
    session::Session,
};

impl Principal {
    /// The principal's halves of later layers (Algorithm 4, step 5).
    pub(super) fn own_halves(
        &mut self,
        session: &Arc<Session>,
        context: &Arc<UnitContext>,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        for (step, item, operator, from) in products_of(session) {
            let id = context.id;
            let Some(state) = self.units.get_mut(&id) else { break };
            let Some(input) = state.inputs.get(&from).cloned() else { continue };
            if state.started.contains(&(step, item, 0)) {
                continue;
            }
            let model = match self.store.coalitions.get(&(id.test, operator)) {
                Some(Some(model)) => model.clone(),
                Some(None) => continue,
                None => {
                    effects.and(self.coalition(session, context, operator));
                    continue;
                }
            };
            state.started.insert((step, item, 0));
            let place = Place { item, ..Place::new(id, step) };
            let session = session.clone();
            effects.job(move |meter| {
                let columns = session.program().operators[operator].arrange(input.expose())?;
                let outputs = products(&session.encryption()?.layouts[operator], &[&model], &columns, meter)?;
                Ok(move |role: &mut Self| {
                    role.halves.entry(place).or_default().own = Some(outputs.into_iter().flatten().collect());
                    role.advance(place.unit)
                })
            });
        }
        Ok(effects)
    }

    fn coalition(&mut self, session: &Arc<Session>, context: &UnitContext, operator: usize) -> Effects<Self> {
        let mut effects = Effects::default();
        let (round, coalition, test) = (context.round, context.coalition(), context.id.test);
        let Some(models) = self.store.all_models(session, round) else { return effects };
        self.store.coalitions.insert((test, operator), None);
        let session = session.clone();
        effects.job(move |meter| {
            let model = coalition_model(&session, operator, round, coalition, &models, meter)?;
            Ok(move |role: &mut Self| {
                role.store.coalitions.insert((test, operator), Some(Arc::new(model)));
                let units: Vec<UnitId> = role.units.keys().filter(|id| id.test == test).copied().collect();
                let mut effects = Effects::default();
                for unit in units {
                    effects.and(role.advance(unit)?);
                }
                Ok(effects)
            })
        });
        effects
    }

    /// Replies with a later layer's outputs, once both halves are there.
    pub(super) fn later_replies(
        &mut self,
        session: &Arc<Session>,
        context: &Arc<UnitContext>,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        for (step, item, operator, from) in products_of(session) {
            let place = Place { item, ..Place::new(context.id, step) };
            let both =
                self.halves.get(&place).is_some_and(|halves| halves.own.is_some() && halves.other.is_some());
            let Some(Halves { own: Some(own), other: Some(other) }) =
                both.then(|| self.halves.remove(&place)).flatten()
            else {
                continue;
            };
            let models = self
                .store
                .all_models(session, context.round)
                .ok_or(Error::Local { what: "models of a round" })?;
            let to = PartyId::Client(context.client(session.program().steps[step].slot)?);
            let public = self.public.clone().ok_or(Error::Local { what: "the public key" })?;
            let seed = self.seed.derive("later reply", context.id.test).derive("reply", place.number());
            let input = self.units.get(&context.id).and_then(|state| state.input_digests.get(&from)).copied();
            let input = input.ok_or(Error::Local { what: "what a client shared" })?;
            let covered = [context.digest, self.store.digest(context.round), input, other.digest];
            let seed = seed.covering(covered.as_flattened());
            let (session, context) = (session.clone(), context.clone());
            effects.job(move |meter| {
                let layout = &session.encryption()?.layouts[operator];
                let columns = session.program().operators[operator].positions * context.places().len();
                let bytes = other.content.get(Place::LENGTH..).unwrap_or_default();
                let mut others = ciphertexts(&session, Kind::Half, bytes, own.len(), meter)?;
                let mut replies = Replies::new(&session, operator, public, &seed)?;
                for (i, own) in own.into_iter().enumerate() {
                    let (batch, row) = (i / layout.rows(), i % layout.rows());
                    let half = others.next().ok_or(Error::Local { what: "halves" })??;
                    let mut terms = biases(&session, &context, operator, row, &models);
                    terms.extend([(1, &own), (1, &half)]);
                    replies.add(&terms, row, wanted_of(layout, columns, batch, |_| true), meter)?;
                }
                let content = place.encode_parts(&replies.parts);
                Ok(move |role: &mut Self| Ok(role.send(to, Kind::Reply, content)))
            });
        }
        Ok(effects)
    }

    /// Shares of gated sums for the re-sharer (PROTOCOL.md, the recurrent unit).
    pub(super) fn updates(
        &mut self,
        session: &Session,
        context: &UnitContext,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        if let (Some(state), Some(common)) = (self.units.get_mut(&context.id), &self.common) {
            effects.outbox = state.gated_sums(session, context, true, common)?;
        }
        Ok(effects)
    }
}
