//! Models that a client knows from training, tested on its own samples in the clear (SECURITY.md, who decrypts what).

use secsv_federation::{
    Coalition, CollectiveTestSet, RoundId, SampleSet, Weights,
    clear::{ModelParameters, correct_samples},
};

use super::{Client, ClientInput};
use crate::{
    Error, PartyId,
    codec::{Reader, Writer},
    error::CodecError,
    message::Kind,
    role::{Effects, Phase},
    server::{Counted, Recount},
    session::Federation,
};

impl Client {
    /// Tests models this client knows on its own samples, in the clear.
    pub(super) fn own_test(&mut self, content: &[u8]) -> Result<Effects<Self>, CodecError> {
        let position = self.position;
        let mut r = Reader::new(content);
        let (test, rounds) = (r.u64()?, r.rounds()?);
        // Of one round batch: what is answered is as long as rounds times tests.
        let round_batch =
            self.session.as_ref().zip(rounds.first()).map(|(s, &round)| s.rounds_of(s.round_batch_of(round)));
        if round_batch.is_none_or(|round_batch| rounds.iter().any(|round| !round_batch.contains(round))) {
            return Err(CodecError::Value { what: "rounds" });
        }
        let mut tests = Vec::new();
        for _ in 0..r.count("coalitions", size_of::<u128>())? {
            tests.push((Coalition::from_bits(r.u128()?), r.samples()?));
        }
        r.end()?;
        if tests.iter().any(|(_, samples)| samples.total() != self.input.test_set.len()) {
            return Err(CodecError::Value { what: "samples" });
        }
        let is_known = |round: &RoundId| {
            tests
                .iter()
                .all(|(coalition, _)| knows(&self.federation, position, &self.input, *round, *coalition))
        };
        if !rounds.iter().all(is_known) {
            return Err(CodecError::Value { what: "coalition" });
        }
        let mut effects = Effects::default();
        let (federation, input) = (self.federation.clone(), self.input.clone());
        let counts = self.is_hesv();
        effects.job(move |meter| {
            meter.enter(Phase::Clear);
            let mut w = Writer::default();
            w.u64(test);
            let mut counted = Recount::default();
            for (round, (coalition, samples)) in
                rounds.iter().flat_map(|r| tests.iter().map(move |t| (*r, t)))
            {
                let right = own_right(&federation, position, &input, round, *coalition, samples)?;
                let found = Counted { tested: samples.len(), right: right.len() };
                counted.add((round, *coalition), found);
                if counts {
                    w.u64(right.len() as u64)
                } else {
                    w.samples(&right)
                };
            }
            let content = w.finish();
            let mut w = Writer::default();
            w.u64(test);
            counted.write(&mut w);
            let counted = w.finish();
            Ok(move |role: &mut Self| {
                let mut effects = role.send(PartyId::Principal, Kind::OwnResult, content);
                if !counts {
                    effects.and(role.send(PartyId::Auxiliary, Kind::OwnCount, counted));
                }
                Ok(effects)
            })
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
