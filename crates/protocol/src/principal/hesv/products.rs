//! Later layers: coalitions' encrypted models meet what clients encrypted again, and the gated sums of a recurrent unit.

use std::sync::Arc;

use secsv_algebra::Prg;
use secsv_he::{
    Ciphertext, EvaluationKey, Flooding, NoiseBound,
    linear::{EncryptedBatch, EncryptedMatrix, ExtendedMatrix, Layout},
};

use super::{
    super::replies::{Replies, biases},
    Principal, base_test,
};
use crate::{
    Error, PartyId,
    hesv::{KEPT, slot_replies},
    message::{OutputReply, Parts, StepAddress, UnitId},
    role::{Digest, Effects, Meter, Outgoing, Phase},
    server::{UnitContext, products_of, updates_of},
    session::Session,
};

impl Principal {
    /// Replies with later layers' outputs (Algorithm 2, step 2).
    pub(super) fn full_products(
        &mut self,
        session: &Arc<Session>,
        context: &Arc<UnitContext>,
    ) -> Result<Effects<Self>, Error> {
        let (mut effects, id) = (Effects::default(), context.id);
        for (step, item, operator, from) in products_of(session) {
            if self.is_started(id, (step, item)) || self.uploaded(id, from).is_none() {
                continue;
            }
            let (Some(weights), Some(models)) =
                (self.weights(session, context.round), self.store.all_models(session, context.round))
            else {
                continue;
            };
            let kept = if session.encryption()?.layouts[operator].extended_bytes()? <= KEPT {
                match self.hesv.coalitions.get(&(base_test(id.test), operator)) {
                    Some(Some(model)) => Some(model.clone()),
                    Some(None) => continue,
                    None => {
                        effects.and(self.extended_coalition(session, context, operator, weights));
                        continue;
                    }
                }
            } else {
                None
            };
            self.set_started(id, (step, item));
            let (batches, input) = self.take_batches(id, from)?;
            let address = StepAddress { item, ..StepAddress::new(id, step) };
            let to = PartyId::Client(context.client(session.program().steps[step].slot)?);
            let (public, evaluation) = (self.public_key()?, self.evaluation()?);
            let covered = [context.digest, self.store.digest(context.round), input];
            let seed = address.seed(&self.seed, "full reply").covering(covered.as_flattened());
            let (session, context) = (session.clone(), context.clone());
            effects.job(move |meter| {
                meter.enter(Phase::Linear);
                let layout = &session.encryption()?.layouts[operator];
                let products = match kept {
                    Some(model) => multiply_extended(layout, &model, &batches, &evaluation, meter)?,
                    None => {
                        let terms = coalition_terms(&session, &context, operator, &weights);
                        let ops = &mut meter.operations;
                        layout.multiply_sums(&[&terms], &batches, &evaluation, ops)?.concat()
                    }
                };
                let columns = session.program().operators[operator].positions * context.places().len();
                let mut replies = Replies::new(&session, operator, public, &seed)?;
                for (i, product) in products.iter().enumerate() {
                    let (start, row) = (i / layout.rows() * layout.batch(), i % layout.rows());
                    let mut terms = biases(&session, &context, operator, row, &models);
                    terms.push((1, product));
                    replies.add(&terms, row, |column| start + column < columns, meter)?;
                }
                let message = replies.message(to, address);
                Ok(move |_: &mut Self| Ok(Effects::send(message)))
            });
        }
        Ok(effects)
    }

    /// Batches that a client uploaded at a step, to be used once, with the digest of their message.
    fn take_batches(&mut self, id: UnitId, from: usize) -> Result<(Vec<EncryptedBatch>, Digest), Error> {
        let uploaded = self.uploaded(id, from);
        let batches = uploaded.and_then(|uploaded| Some((uploaded.batches.take()?, uploaded.digest)));
        batches.ok_or(Error::Local { what: "batches that were not used yet" })
    }

    /// The weights of a coalition's model, extended once for all units and steps of a test (Algorithm 1, step 6).
    pub(super) fn extended_coalition(
        &mut self,
        session: &Arc<Session>,
        context: &Arc<UnitContext>,
        operator: usize,
        weights: Vec<(usize, Arc<Vec<EncryptedMatrix>>)>,
    ) -> Effects<Self> {
        let mut effects = Effects::default();
        let test = base_test(context.id.test);
        self.hesv.coalitions.insert((test, operator), None);
        let (session, context) = (session.clone(), context.clone());
        effects.job(move |meter| {
            meter.enter(Phase::Linear);
            let terms = coalition_terms(&session, &context, operator, &weights);
            let layout = &session.encryption()?.layouts[operator];
            let model = layout.extend_sum(&terms, &mut meter.operations)?;
            Ok(move |role: &mut Self| {
                // Unless the test is over.
                if let Some(room) = role.hesv.coalitions.get_mut(&(test, operator)) {
                    *room = Some(Arc::new(model));
                }
                role.advance_all(|id| base_test(id.test) == test)
            })
        });
        effects
    }

    /// Gated sums u + z h for the re-sharer, entry by entry (PROTOCOL.md, the recurrent unit): nobody sees both factors.
    pub(super) fn gated_sums(
        &mut self,
        session: &Arc<Session>,
        context: &Arc<UnitContext>,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let id = context.id;
        for (step, item, gates, state) in updates_of(session) {
            let (Some((gates, of_gates)), Some((state, of_state))) =
                (self.slots(id, gates), self.slots(id, state))
            else {
                continue;
            };
            if self.is_started(id, (step, item)) {
                continue;
            }
            self.set_started(id, (step, item));
            let address = StepAddress { item, ..StepAddress::new(id, step) };
            let to = PartyId::Client(context.client(session.program().steps[step].slot)?);
            let (public, evaluation) = (self.public_key()?, self.evaluation()?);
            let seed = address.seed(&self.seed, "gated sum");
            let seed = seed.covering([context.digest, of_gates, of_state].as_flattened());
            let (session, samples) = (session.clone(), context.places().len());
            effects.job(move |meter| {
                meter.enter(Phase::Linear);
                let parameters = &session.encryption()?.parameters;
                let ([z, u], [h]) = (&gates[..], &state[..]) else {
                    return Err(Error::Local { what: "gates and a state" });
                };
                let [z, u, h] = [z, u, h].map(|slots| slots.expand(parameters));
                let mut sums = Vec::new();
                for ((z, u), h) in z?.iter().zip(&u?).zip(&h?) {
                    let mut sum = evaluation.multiply(parameters, z, h, &mut meter.operations)?;
                    sum.add_assign(parameters.limbs(), u)?;
                    sums.push(sum);
                }
                let flooding = Flooding::new(parameters, NoiseBound::slot_product(parameters))?;
                let elements = session.program().gru.map_or(0, |gru| gru.hidden) * samples;
                let rng = &mut Prg::new(&seed);
                let replies = slot_replies(&session, elements, sums, &public, &flooding, rng, meter)?;
                let message = Outgoing::of(to, &OutputReply { address, replies: Parts::from(&replies[..]) });
                Ok(move |_: &mut Self| Ok(Effects::send(message)))
            });
        }
        Ok(effects)
    }
}

/// Products of an extended model with batches, batch after batch.
fn multiply_extended(
    layout: &Layout,
    model: &ExtendedMatrix,
    batches: &[EncryptedBatch],
    evaluation: &EvaluationKey,
    meter: &mut Meter<'_>,
) -> Result<Vec<Ciphertext>, Error> {
    let multiply = |batch| layout.multiply_full(model, batch, evaluation, &mut meter.operations);
    Ok(batches.iter().map(multiply).collect::<Result<Vec<_>, _>>()?.concat())
}

/// Members' matrices of one operator, each counted once.
fn coalition_terms<'a>(
    session: &Session,
    context: &UnitContext,
    operator: usize,
    weights: &'a [(usize, Arc<Vec<EncryptedMatrix>>)],
) -> Vec<(u32, &'a EncryptedMatrix)> {
    let members = session.members(context.round, context.coalition());
    let matrix = |i: usize| weights.iter().find(|(client, _)| *client == i).map(|(_, m)| &m[operator]);
    members.iter().filter_map(|&(i, _)| Some((1, matrix(i)?))).collect()
}
