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
        let OwnTest { request, rounds, models: tests } = message.read(&())?;
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
            known_model(&federation, identity.position, &identity.input, round, coalition).is_some()
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
            let outbox = E::own_result(request, rights, counted);
            Ok(move |_: &mut Self| Ok(Effects { outbox, jobs: Vec::new() }))
        });
        Ok(effects)
    }
}

/// A model that a client has from training.
enum KnownModel<'a> {
    /// The initial one, an aggregate, or its own.
    Whole(&'a Weights),
    /// The aggregate less the own share of it.
    Rest { global: &'a Weights, local: &'a Weights },
}

/// The model of a coalition, if this client has it from training.
fn known_model<'a>(
    federation: &Federation,
    position: usize,
    input: &'a ClientInput,
    round: RoundId,
    coalition: Coalition,
) -> Option<KnownModel<'a>> {
    let participants = federation.participants(round);
    let (global, local) = (input.global.get(&round), input.local.get(&round));
    if coalition.is_empty() {
        return Some(&input.initial).filter(|initial| !initial.is_empty()).map(KnownModel::Whole);
    }
    let own = local.filter(|_| coalition == Coalition::EMPTY.with(position));
    if let Some(whole) = global.filter(|_| coalition == participants).or(own) {
        return Some(KnownModel::Whole(whole));
    }
    let is_rest = participants.contains(position) && coalition == participants.without(position);
    let (global, local) = global.zip(local).filter(|_| is_rest)?;
    Some(KnownModel::Rest { global, local })
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
    let unknown = Error::Unsupported { what: "a test of a model that its owner does not know" };
    let model = match known_model(federation, position, input, round, coalition).ok_or(unknown)? {
        KnownModel::Whole(weights) => ModelParameters::new(architecture, weights),
        KnownModel::Rest { global, local } => {
            let sizes = federation.rounds.get(&round).map_or(&[][..], |sizes| sizes);
            let (total, own) = (sizes.iter().sum::<f64>(), sizes.get(position).copied().unwrap_or(0.0));
            let [global, local] = [global, local].map(|weights| ModelParameters::new(architecture, weights));
            let mut rest = global.clone();
            rest.add_scaled(&global, own / (total - own));
            rest.add_scaled(&local, -own / (total - own));
            rest
        }
    };
    let other_size = Error::Unsupported { what: "samples of another size than the model's" };
    let test_set = CollectiveTestSet::new(architecture.input_size(), [&input.test_set]).ok_or(other_size)?;
    Ok(correct_samples(architecture, &model, &test_set, samples))
}
