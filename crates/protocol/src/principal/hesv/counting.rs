//! How many predictions are right: a counting client sees differences of labels under random factors.

use std::sync::Arc;

use secsv_algebra::{Prg, Ring as _};
use secsv_he::{EncryptedSlots, Flooding, NoiseBound};

use super::{Principal, base_test, label_slots};
use crate::{
    Error, PartyId,
    error::CodecError,
    hesv::slot_replies,
    message::{BlindedDifferences, Count, Head, Kind, Message as _, OwnResultCounts, Parts, StepAddress},
    role::{Effects, Incoming, Outgoing, Phase},
    server::{UnitContext, may_send},
    session::Session,
};

impl Principal {
    /// Differences of predicted and true labels, each times a random number that is not zero, for the counting client
    /// (Algorithm 2, step 10; PROTOCOL.md 2).
    pub(super) fn compare(
        &mut self,
        session: &Arc<Session>,
        context: &Arc<UnitContext>,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let id = context.id;
        let Some(uploads) = self.hesv.units.get_mut(&id) else { return Ok(effects) };
        if uploads.compared || uploads.truth.is_none() || uploads.predicted.is_none() {
            return Ok(effects);
        }
        uploads.compared = true;
        let (Some(truth), Some(predicted)) = (uploads.truth.take(), uploads.predicted.take()) else {
            return Err(Error::Local { what: "labels to compare" });
        };
        let counter = context.plan.counter.ok_or(Error::Local { what: "a counting client" })?;
        let last = session.program().steps.len() - 1;
        let public = self.public_key()?;
        let address = StepAddress::new(id, last);
        let seed = address.seed(&self.seed, "differences");
        let seed = seed.covering([context.digest, truth.digest, predicted.digest].as_flattened());
        let (session, samples) = (session.clone(), context.places().len());
        effects.job(move |meter| {
            meter.enter(Phase::Codec);
            let parameters = &session.encryption()?.parameters;
            let open = |message: &Incoming| {
                let slots = EncryptedSlots::from_bytes(parameters, samples, label_slots(message)?);
                let slots = slots.map_err(|e| message.malformed(e.into()))?;
                Ok::<_, Error>(slots.expand(parameters)?)
            };
            let (predicted, truth) = (open(&predicted)?, open(&truth)?);
            meter.enter(Phase::Linear);
            let mut rng = Prg::new(&seed);
            let mut factors = secsv_algebra::Secret::new(vec![0; parameters.degree()]);
            let mut differences = Vec::new();
            for (mut difference, truth) in predicted.into_iter().zip(truth) {
                difference.sub_assign(parameters.limbs(), &truth)?;
                rng.fill_uniform(parameters.field().modulus() - 1, factors.expose_mut());
                factors.expose_mut().iter_mut().for_each(|factor| *factor += 1);
                differences.push(difference.scale_slots(
                    parameters,
                    factors.expose(),
                    &mut meter.operations,
                )?);
            }
            let flooding = Flooding::new(parameters, NoiseBound::scaled_difference(parameters))?;
            let replies = slot_replies(&session, samples, differences, &public, &flooding, &mut rng, meter)?;
            let differences = BlindedDifferences { address, replies: Parts::from(&replies[..]) };
            let message = Outgoing::of(PartyId::Client(counter), &differences);
            Ok(move |_: &mut Self| Ok(Effects::send(message)))
        });
        Ok(effects)
    }

    /// How many predictions of a unit are right.
    pub(super) fn count(
        &mut self,
        session: &Session,
        client: usize,
        message: &Incoming,
    ) -> Result<Effects<Self>, Error> {
        let Count { address, right: found } = message.read(&())?;
        let id = address.unit;
        let compared = self.hesv.units.get(&id).is_some_and(|uploads| uploads.compared);
        let context = self.units.get(&id).and_then(|state| state.plan.clone());
        let Some(context) =
            context.filter(|c| compared && may_send(session, c, client, Kind::Count, address))
        else {
            return Err(message.unexpected("nothing to count, or somebody else's part"));
        };
        let expected = context.places().len() as u64;
        if found > expected {
            let why = CodecError::TooLarge { what: "right predictions", expected, found };
            return Err(message.malformed(why));
        }
        if let Some(test) = self.tests.get_mut(&base_test(id.test)) {
            test.counted[0] += found as usize;
            test.units_left.remove(&(id.group, 0));
        }
        self.units.remove(&id);
        self.hesv.units.remove(&id);
        self.finish(base_test(id.test))
    }

    /// How many of its own samples a model predicts right that the owner knows.
    pub(super) fn own_count(
        &mut self,
        session: &Session,
        client: usize,
        content: &[u8],
    ) -> Result<Result<Effects<Self>, Error>, CodecError> {
        let Head::Test(test) = Head::of(Kind::OwnResultCounts, content)?.0 else {
            return Err(CodecError::Value { what: "test" });
        };
        let read = |models| OwnResultCounts::decode(content, &models).map(|result| result.right);
        let (state, found) = self.own_answers(client, test, read)?;
        let first = session.offset(client);
        let own = first..first + session.hellos[client].samples as usize;
        let expected = own.filter(|&sample| state.request.samples.contains(sample)).count() as u64;
        if let Some(&(_, found)) = found.iter().find(|(_, found)| *found > expected) {
            return Err(CodecError::TooLarge { what: "right predictions", expected, found });
        }
        state.owners_left.remove(&client);
        for (number, found) in found {
            state.counted[number] += found as usize;
        }
        Ok(self.finish(test))
    }
}
