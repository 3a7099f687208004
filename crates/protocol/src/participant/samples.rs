//! Samples in two shares.

use secsv_algebra::{Secret, share::split as share};

use super::{ClientEngine, Testing};
use crate::{
    PartyId,
    codec::pack,
    message::{DataShare, ShareBody},
    model::sample_values,
    role::{Effects, Outgoing, Phase},
};

/// Shares the samples: the principal's share is a seed, the auxiliary's what is left.
pub(crate) fn share_samples<E: ClientEngine>(testing: &Testing<E>) -> Effects<Testing<E>> {
    let mut effects = Effects::default();
    if testing.identity.input.test_set.is_empty() {
        return effects;
    }
    let (session, input) = (testing.engine.session().clone(), testing.identity.input.clone());
    let (ring, seed) = (testing.engine.ring(), testing.identity.seed.derive("data share", 0));
    effects.job(move |meter| {
        meter.enter(Phase::Share);
        let values = sample_values(session.program(), &input.test_set);
        let samples = Secret::new(values.encode(ring, session.precision.operators[0].input, 1)?);
        let seed = seed.covering_words([samples.expose().elements()]);
        let (seeded, rest) = share(samples.expose(), seed);
        let rest = pack(ring, rest.expose().elements());
        let seeded = DataShare { share: ShareBody::Seed(seeded.seed().clone()) };
        let principal = Outgoing::of(PartyId::Principal, &seeded);
        let rest = DataShare { share: ShareBody::Elements(&rest) };
        let auxiliary = Outgoing::of(PartyId::Auxiliary, &rest);
        Ok(move |_: &mut Testing<E>| Ok(Effects { outbox: vec![principal, auxiliary], jobs: Vec::new() }))
    });
    effects
}
