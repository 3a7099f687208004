//! Models that a client knows from training, tested on its own samples in the clear (SECURITY.md, who decrypts what).

use secsv_federation::{
    Coalition, CollectiveTestSet, RoundId, SampleSet, Weights,
    clear::{ModelParameters, correct_samples},
};

use super::{ClientEngine, ClientInput, Testing};
use crate::{
    Error,
    error::CodecError,
    message::{Counted, OwnTest, Recount},
    role::{Effects, Incoming, Phase},
    session::Federation,
};

impl<E: ClientEngine> Testing<E> {
    /// Tests models this client knows on its own samples, in the clear.
    pub(crate) fn own_test(&mut self, message: &Incoming) -> Result<Effects<Self>, Error> {
        let bad = |what| message.malformed(CodecError::Value { what });
        let OwnTest { test, rounds, models: tests } = message.read(&())?;
        let (session, identity) = (self.session(), self.identity.clone());
        // Of one round batch: what is answered is as long as rounds times tests.
        let batch = rounds.first().map(|&round| session.rounds_of(session.round_batch_of(round)));
        if batch.is_none_or(|batch| rounds.iter().any(|round| !batch.contains(round))) {
            return Err(bad("rounds"));
        }
        if tests.iter().any(|(_, samples)| samples.total() != identity.input.test_set.len()) {
            return Err(bad("samples"));
        }
        let federation = session.federation.clone();
        let mut models = rounds.iter().flat_map(|round| tests.iter().map(move |test| (*round, test.0)));
        if !models.all(|(round, coalition)| {
            knows(&federation, identity.position, &identity.input, round, coalition)
        }) {
            return Err(bad("coalition"));
        }
        let mut effects = Effects::default();
        effects.job(move |meter| {
            meter.enter(Phase::Clear);
            let (mut rights, mut counted) = (Vec::new(), Recount::default());
            for (round, (coalition, samples)) in
                rounds.iter().flat_map(|r| tests.iter().map(move |t| (*r, t)))
            {
                let (position, input) = (identity.position, &identity.input);
                let right = own_right(&federation, position, input, round, *coalition, samples)?;
                let found = Counted { tested: samples.len(), right: right.len() };
                counted.add((round, *coalition), found);
                rights.push(right);
            }
            let outbox = E::own_result(test, rights, counted);
            Ok(move |_: &mut Self| Ok(Effects { outbox, jobs: Vec::new() }))
        });
        Ok(effects)
    }
}

/// Whether this client has the model of a coalition from training.
fn knows(
    federation: &Federation,
    position: usize,
    input: &ClientInput,
    round: RoundId,
    coalition: Coalition,
) -> bool {
    let participants = federation.participants(round);
    let (has_global, has_local) = (input.global.contains_key(&round), input.local.contains_key(&round));
    let is_rest = participants.contains(position) && coalition == participants.without(position);
    coalition.is_empty()
        || coalition == participants && has_global
        || coalition == Coalition::EMPTY.with(position) && has_local
        || is_rest && has_global && has_local
}

/// The samples of its own that a model predicts right which this client knows from training.
pub fn own_right(
    federation: &Federation,
    position: usize,
    input: &ClientInput,
    round: RoundId,
    coalition: Coalition,
    samples: &SampleSet,
) -> Result<SampleSet, Error> {
    let architecture = &federation.architecture;
    let participants = federation.participants(round);
    let of = |weights: Option<&Weights>| {
        weights
            .map(|w| ModelParameters::new(architecture, w))
            .ok_or(Error::Local { what: "a model this client should have" })
    };
    let model = if coalition.is_empty() {
        of(Some(&input.initial))?
    } else if coalition == participants {
        of(input.global.get(&round))?
    } else if coalition == Coalition::EMPTY.with(position) {
        of(input.local.get(&round))?
    } else if participants.contains(position) && coalition == participants.without(position) {
        // The aggregate less the own share of it.
        let sizes = federation.rounds.get(&round).map_or(&[][..], |sizes| sizes);
        let (total, own) =
            (sizes.iter().sum::<u64>() as f64, sizes.get(position).copied().unwrap_or(0) as f64);
        let (global, local) = (of(input.global.get(&round))?, of(input.local.get(&round))?);
        let mut rest = global.clone();
        rest.add_scaled(&global, own / (total - own));
        rest.add_scaled(&local, -own / (total - own));
        rest
    } else {
        return Err(Error::Local { what: "a model this client does not know" });
    };
    let test_set = CollectiveTestSet::new(architecture.input_size(), [&input.test_set])
        .ok_or(Error::Local { what: "samples of the model's size" })?;
    Ok(correct_samples(architecture, &model, &test_set, samples))
}
