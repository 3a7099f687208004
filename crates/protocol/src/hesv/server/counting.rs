//! How many predictions are right: a counting client sees differences of labels under random factors.

use std::sync::Arc;

use secsv_algebra::{Prg, Ring as _, Secret};
use secsv_he::{EncryptedSlots, Flooding, NoiseBound};

use super::{EncryptedComparison, HesvPrincipal, Keys, label_slots};
use crate::{
    Error, PartyId,
    disclosure::Disclosure,
    error::CodecError,
    hesv::slot_replies,
    message::{BlindedDifferences, Count, Kind, Parts, StepAddress},
    role::{Effects, Incoming, Outgoing, Phase},
    scheduler::Scheduler,
    unit::{UnitContext, may_send},
};

impl Scheduler<HesvPrincipal> {
    /// Differences of predicted and true labels, each times a random number that is not zero, for the counting client
    /// (Algorithm 2, step 10; PROTOCOL.md 2).
    pub(super) fn compare_encrypted(&mut self, context: &Arc<UnitContext>, keys: &Keys) -> Effects<Self> {
        let (mut effects, id) = (Effects::default(), context.id);
        let Some(unit) = self.units.get_mut(&id) else { return effects };
        let EncryptedComparison::Labels { truth, predicted } = &mut unit.labels else { return effects };
        let Some(counter) = context.plan.counter else { return effects };
        if truth.is_none() || predicted.is_none() {
            return effects;
        }
        let (Some(predicted), Some(truth)) = (predicted.take(), truth.take()) else { return effects };
        unit.labels = EncryptedComparison::Count;
        let session = self.engine.session.clone();
        let address = StepAddress::new(id, session.program().steps.len() - 1);
        let seed = address.seed(&self.seed, "differences");
        let seed = seed.covering([context.digest, truth.digest, predicted.digest].as_flattened());
        let (public, samples) = (keys.public.clone(), context.places().len());
        effects.job(move |meter| {
            meter.enter(Phase::Codec);
            let parameters = session.parameters();
            let open = |message: &Incoming| {
                let slots = EncryptedSlots::from_bytes(parameters, samples, label_slots(message)?);
                let slots = slots.map_err(|e| message.malformed(e.into()))?;
                Ok::<_, Error>(slots.expand(parameters)?)
            };
            let (predicted, truth) = (open(&predicted)?, open(&truth)?);
            meter.enter(Phase::Linear);
            let mut rng = Prg::new(&seed);
            let mut factors = Secret::new(vec![0; parameters.degree()]);
            let mut differences = Vec::new();
            for (mut difference, truth) in predicted.into_iter().zip(truth) {
                difference.sub_assign(parameters.limbs(), &truth)?;
                rng.fill_uniform(parameters.field().modulus() - 1, factors.expose_mut());
                factors.expose_mut().iter_mut().for_each(|factor| *factor += 1);
                let ops = &mut meter.operations;
                differences.push(difference.scale_slots(parameters, factors.expose(), ops)?);
            }
            let flooding = Flooding::new(parameters, NoiseBound::scaled_difference(parameters))?;
            let replies = slot_replies(&session, samples, differences, &public, &flooding, &mut rng, meter)?;
            let differences = BlindedDifferences { address, replies: Parts::from(&replies[..]) };
            let message = Outgoing::of(PartyId::Client(counter), &differences);
            Ok(move |_: &mut Self| Ok(Effects::send(message)))
        });
        effects
    }

    /// How many predictions of a unit are right.
    pub(super) fn take_count(&mut self, client: usize, message: &Incoming) -> Result<Effects<Self>, Error> {
        let Count { address, right: found } = message.read(&())?;
        let unit = self.units.get(&address.unit).filter(|unit| {
            matches!(unit.labels, EncryptedComparison::Count)
                && may_send(&self.session, &unit.context, client, Kind::Count, address)
        });
        let Some(context) = unit.map(|unit| unit.context.clone()) else {
            return Err(message.unexpected("nothing to count, or somebody else's part"));
        };
        let expected = context.places().len() as u64;
        if found > expected {
            let why = CodecError::TooLarge { what: "right predictions", expected, found };
            return Err(message.malformed(why));
        }
        let found = self.session.opening(Disclosure::Counts)?.told(found);
        self.settle_count(&context, found as usize)
    }
}
