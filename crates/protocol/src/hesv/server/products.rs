//! Later layers: coalitions' encrypted models meet what clients encrypted again, and the gated sums of a recurrent unit.

use std::sync::Arc;

use secsv_algebra::Prg;
use secsv_he::{
    Ciphertext, EvaluationKey, Flooding, NoiseBound,
    linear::{EncryptedBatch, EncryptedMatrix, ExtendedMatrix, Layout},
};

use super::{HesvPrincipal, Keys};
use crate::{
    Error, PartyId,
    encrypted::{Replies, RoundModels, member_terms},
    hesv::{KEPT, slot_replies},
    message::{OutputReply, Parts},
    role::{Effects, Meter, Outgoing, Phase},
    scheduler::Scheduler,
    unit::{Product, UnitContext, products_of, updates_of},
};

impl Scheduler<HesvPrincipal> {
    /// Replies with later layers' outputs (Algorithm 2, step 2).
    pub(super) fn full_products(
        &mut self,
        context: &Arc<UnitContext>,
        keys: &Keys,
        models: &RoundModels<EncryptedMatrix>,
    ) -> Result<Effects<Self>, Error> {
        let (mut effects, id) = (Effects::default(), context.id);
        let session = self.engine.session.clone();
        for product in products_of(&session) {
            let (address, Product { step, operator, from, .. }) = (product.address(id), product);
            let Some(unit) = self.units.get(&id) else { break };
            let has_come = unit.steps.get(&from).is_some_and(Option::is_some);
            if unit.begun.contains(&address) || !has_come {
                continue;
            }
            let mut kept = None;
            if session.layout(operator).extended_bytes()? <= KEPT {
                kept = self.extended_coalition(context, operator, models, &mut effects);
                if kept.is_none() {
                    continue;
                }
            }
            let Some(unit) = self.units.get_mut(&id) else { break };
            unit.begun.insert(address);
            let uploaded = unit.uploaded(from);
            let batches = uploaded.and_then(|uploaded| Some((uploaded.batches.take()?, uploaded.digest)));
            let Some((batches, input)) = batches else { continue };
            let to = PartyId::Client(context.decryptor(step));
            let seed = self.engine.replies(context, keys, &self.seed).seed(address, "full reply", &[input]);
            let (session, context, keys, models) =
                (session.clone(), context.clone(), keys.clone(), models.clone());
            effects.job(move |meter| {
                meter.enter(Phase::Linear);
                let layout = session.layout(operator);
                let products = match kept {
                    Some(model) => multiply_extended(layout, &model, &batches, &keys.evaluation, meter)?,
                    None => {
                        let terms =
                            member_terms(&session, context.model(), &models, |m| &m.weights[operator]);
                        let ops = &mut meter.operations;
                        layout.multiply_sums(&[&terms], &batches, &keys.evaluation, ops)?.concat()
                    }
                };
                let columns = session.program().operators[operator].positions * context.places().len();
                let mut replies = Replies::new(&session, operator, &keys.public, &seed);
                for (i, product) in products.iter().enumerate() {
                    let (start, row) = (i / layout.rows() * layout.batch(), i % layout.rows());
                    let mut terms =
                        member_terms(&session, context.model(), &models, |m| &m.biases[operator][row]);
                    terms.push((1, product));
                    replies.add(&terms, row, |column| start + column < columns, meter)?;
                }
                let message = replies.message(to, address);
                Ok(move |_: &mut Self| Ok(Effects::send(message)))
            });
        }
        Ok(effects)
    }

    /// The weights of a coalition's model, extended once for all units and steps of a test (Algorithm 1, step 6), if that is done;
    /// else `effects` get the job that does, unless it is under way.
    fn extended_coalition(
        &mut self,
        context: &UnitContext,
        operator: usize,
        models: &RoundModels<EncryptedMatrix>,
        effects: &mut Effects<Self>,
    ) -> Option<Arc<ExtendedMatrix>> {
        let test = context.id.test.request;
        if let Some(known) = self.engine.coalitions.get(&(test, operator)) {
            return known.clone();
        }
        self.engine.coalitions.insert((test, operator), None);
        let (session, models, model) = (self.engine.session.clone(), models.clone(), context.model());
        effects.job(move |meter| {
            meter.enter(Phase::Linear);
            let terms = member_terms(&session, model, &models, |member| &member.weights[operator]);
            let extended = session.layout(operator).extend_sum(&terms, &mut meter.operations)?;
            Ok(move |role: &mut Self| {
                // Unless the test is over.
                if let Some(room) = role.engine.coalitions.get_mut(&(test, operator)) {
                    *room = Some(Arc::new(extended));
                }
                role.advance_all(|id| id.test.request == test)
            })
        });
        None
    }

    /// Gated sums u + z h for the re-sharer, entry by entry (PROTOCOL.md, the recurrent unit): nobody sees both factors.
    pub(super) fn gated_sums(&mut self, context: &Arc<UnitContext>, keys: &Keys) -> Effects<Self> {
        let mut effects = Effects::default();
        let session = self.engine.session.clone();
        let Some(unit) = self.units.get_mut(&context.id) else { return effects };
        for update in updates_of(&session) {
            let (gates, state) = (unit.slots(update.gates), unit.slots(update.state));
            let (Some((gates, of_gates)), Some((state, of_state))) = (gates, state) else { continue };
            let address = update.address(context.id);
            if !unit.begun.insert(address) {
                continue;
            }
            let to = PartyId::Client(context.decryptor(update.step));
            let seed = address.seed(&self.seed, "gated sum");
            let seed = seed.covering([context.digest, of_gates, of_state].as_flattened());
            let (session, keys, samples) = (session.clone(), keys.clone(), context.places().len());
            effects.job(move |meter| {
                meter.enter(Phase::Linear);
                let parameters = session.parameters();
                // What was uploaded was checked to have as many.
                let [z, u, h] = [&gates[0], &gates[1], &state[0]].map(|slots| slots.expand(parameters));
                let mut sums = Vec::new();
                for ((z, u), h) in z?.iter().zip(&u?).zip(&h?) {
                    let mut sum = keys.evaluation.multiply(parameters, z, h, &mut meter.operations)?;
                    sum.add_assign(parameters.limbs(), u)?;
                    sums.push(sum);
                }
                let flooding = Flooding::new(parameters, NoiseBound::slot_product(parameters))?;
                let elements = session.program().hidden() * samples;
                let rng = &mut Prg::new(&seed);
                let replies = slot_replies(&session, elements, sums, &keys.public, &flooding, rng, meter)?;
                let message = Outgoing::of(to, &OutputReply { address, replies: Parts::from(&replies[..]) });
                Ok(move |_: &mut Self| Ok(Effects::send(message)))
            });
        }
        effects
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
