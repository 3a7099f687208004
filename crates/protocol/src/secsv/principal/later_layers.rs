//! Later layers: coalitions' models meet what decryptors shared again.

use std::sync::Arc;

use secsv_he::Ciphertext;

use super::SecSvPrincipal;
use crate::{
    Error, PartyId,
    check::{self, wanted_of},
    encrypted::{Replies, ciphertexts, member_terms},
    error::CodecError,
    message::LayerHalf,
    role::{Effects, Incoming},
    scheduler::{Engine as _, Scheduler},
    secsv::server::{coalition_model, products},
    unit::{Product, UnitContext, products_of, server_address},
};

impl Scheduler<SecSvPrincipal> {
    /// The principal's halves of later layers (Algorithm 4, step 5).
    pub(super) fn own_halves(&mut self, context: &Arc<UnitContext>) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let session = self.engine.session.clone();
        let Some(unit) = self.units.get_mut(&context.id) else { return Ok(effects) };
        for product in products_of(&session) {
            let (address, Product { operator, from, .. }) = (product.address(context.id), product);
            let Some(input) = unit.inputs.get(&from).cloned() else { continue };
            if unit.begun.contains(&address) {
                continue;
            }
            let store = &mut self.engine.store;
            let model = coalition_model(store, &session, context, operator, &mut effects);
            let Some(model) = model else { continue };
            unit.begun.insert(address);
            let session = session.clone();
            effects.job(move |meter| {
                let columns = session.program().operators[operator].arrange(input.share.expose())?;
                let outputs = products(session.layout(operator), &[&model], &columns, meter)?;
                let outputs: Vec<Ciphertext> = outputs.into_iter().flatten().collect();
                Ok(move |role: &mut Self| {
                    let Some(unit) = role.units.get_mut(&address.unit) else { return Ok(Effects::default()) };
                    let context = unit.context.clone();
                    let both = unit.halves.take_own(address, outputs);
                    Ok(role.reply(&context, product, both))
                })
            });
        }
        Ok(effects)
    }

    /// The auxiliary's halves of a later layer's outputs.
    pub(super) fn take_layer_half(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        let LayerHalf { ciphertexts, .. } = message.read(&())?;
        let session = self.engine.session.clone();
        let (address, context) = server_address(&session, &message, |id| self.context(id))?;
        let mut products = products_of(&session);
        let product = products.find(|product| product.address(context.id) == address);
        let product = product.ok_or(malformed(CodecError::Value { what: "step" }))?;
        let operator = product.operator;
        let unit = self.unit(address.unit, &message)?;
        let columns = session.program().operators[operator].positions * context.places().len();
        let layout = session.layout(operator);
        check::ciphertexts(&session, layout.batches(columns) * layout.rows(), &ciphertexts)
            .map_err(malformed)?;
        let both = unit.halves.take_other(address, message);
        let mut effects = self.reply(&context, product, both);
        effects.and(SecSvPrincipal::advance(self, context.id)?);
        Ok(effects)
    }

    /// Replies with a later layer's outputs, if both halves are there.
    fn reply(
        &mut self,
        context: &Arc<UnitContext>,
        product: Product,
        both: Option<(Vec<Ciphertext>, Incoming)>,
    ) -> Effects<Self> {
        let mut effects = Effects::default();
        let engine = &self.engine;
        let session = engine.session.clone();
        let input = self.units.get(&context.id).and_then(|unit| unit.inputs.get(&product.from));
        let models = engine.store.models.all(&session, context.round);
        let (Some((own, other)), Some(input), Some(models), Some(replies)) =
            (both, input, models, engine.replies(context, &self.seed))
        else {
            return effects;
        };
        let (address, operator) = (product.address(context.id), product.operator);
        let seed = replies.seed(address, "later reply", &[input.digest, other.digest]);
        let (to, public) = (PartyId::Client(context.decryptor(product.step)), replies.public.clone());
        let context = context.clone();
        effects.job(move |meter| {
            let layout = session.layout(operator);
            let columns = session.program().operators[operator].positions * context.places().len();
            let LayerHalf { ciphertexts: halves, .. } = other.read(&())?;
            let others = ciphertexts(&session, &other, halves, own.len(), meter)?;
            let mut replies = Replies::new(&session, operator, &public, &seed);
            for (i, (own, half)) in own.iter().zip(others).enumerate() {
                let (batch, row, half) = (i / layout.rows(), i % layout.rows(), half?);
                let mut terms =
                    member_terms(&session, context.model(), &models, |model| &model.biases[operator][row]);
                terms.extend([(1, own), (1, &half)]);
                replies.add(&terms, row, wanted_of(layout, columns, batch, |_| true), meter)?;
            }
            let message = replies.message(to, address);
            Ok(move |_: &mut Self| Ok(Effects::send(message)))
        });
        effects
    }
}
