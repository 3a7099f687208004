//! How many predictions are right: a counting client sees differences of labels under random factors.

use std::sync::Arc;

use secsv_algebra::{Prg, Ring as _};
use secsv_he::{EncryptedSlots, Flooding, NoiseBound};

use super::{Principal, base_test};
use crate::{
    Error, PartyId,
    codec::Reader,
    error::CodecError,
    hesv::slot_replies,
    message::{Kind, Place},
    role::{Effects, Incoming, Phase},
    server::UnitContext,
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
        let place = Place::new(id, last);
        let seed = self.seed.derive("differences", id.test).derive("reply", place.number());
        let seed = seed.covering([context.digest, truth.digest, predicted.digest].as_flattened());
        let (session, samples) = (session.clone(), context.places().len());
        effects.job(move |meter| {
            meter.enter(Phase::Codec);
            let parameters = &session.encryption()?.parameters;
            let open = |message: &Incoming| {
                let bytes = message.content.get(Place::LENGTH..).unwrap_or_default();
                let slots = EncryptedSlots::from_bytes(parameters, samples, bytes);
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
            let content = place.encode(&replies);
            Ok(move |role: &mut Self| Ok(role.send(PartyId::Client(counter), Kind::Differences, content)))
        });
        Ok(effects)
    }

    /// How many predictions of a unit are right.
    pub(super) fn count(&mut self, client: usize, content: &[u8]) -> Result<Effects<Self>, Error> {
        let (from, kind) = (PartyId::Client(client), Kind::Count);
        let malformed = |why| Error::Malformed { from, kind, why };
        let (place, rest) = Place::decode(content).map_err(malformed)?;
        let mut r = Reader::new(rest);
        let found = r.u64().map_err(malformed)?;
        r.end().map_err(malformed)?;
        let id = place.unit;
        let compared = self.hesv.units.get(&id).is_some_and(|uploads| uploads.compared);
        let context = self.units.get(&id).and_then(|state| state.plan.clone());
        let Some(context) = context.filter(|c| compared && c.plan.counter == Some(client)) else {
            return Err(Error::Unexpected { from, kind, state: "nothing to count, or somebody else's part" });
        };
        let expected = context.places().len() as u64;
        if found > expected {
            return Err(malformed(CodecError::TooLarge { what: "right predictions", expected, found }));
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
        let (test, state, found) = self.own_answers(client, content, Reader::u64)?;
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
