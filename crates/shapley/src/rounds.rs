//! Values across training rounds: one game per round, and one sum.

use std::{collections::BTreeMap, time::Duration};

use secsv_federation::{Coalition, RoundId};

use crate::{ClientValues, Error, Estimator, EstimatorSettings, Method, UtilityTable, values::combine};

/// How rounds count in the sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RoundWeights {
    /// All the same: the sum is the paper's FSV.
    Equal,
    /// The t-th round counts decay^(t-1) (Song et al. 2019).
    Decay(f64),
    /// A round counts v(I) of that round over the mean v(I) of all rounds, so the rounds that end in better
    /// models count more (the round weighting of WT-Shapley, Yang et al. 2022; its text was not at hand, so
    /// this follows the idea and not a formula of theirs). Weights average to 1.
    ByUtility,
}

impl RoundWeights {
    /// The weighting a method brings along.
    pub fn of(method: Method, settings: &EstimatorSettings) -> Self {
        match method {
            Method::ContributionIndexMultiRound if settings.decay < 1.0 => Self::Decay(settings.decay),
            Method::WtShapley => Self::ByUtility,
            _ => Self::Equal,
        }
    }

    /// One weight per round, from each round's utility of everybody who took part in it.
    fn weights(self, of_everybody: &[f64]) -> Vec<f64> {
        let rounds = of_everybody.len();
        let mean = of_everybody.iter().sum::<f64>() / rounds as f64;
        match self {
            Self::Decay(decay) => (0..rounds).map(|place| decay.powi(place as i32)).collect(),
            Self::ByUtility if mean > 0.0 => of_everybody.iter().map(|utility| utility / mean).collect(),
            Self::Equal | Self::ByUtility => vec![1.0; rounds],
        }
    }
}

/// One estimator per round, driven together so that a caller can test coalitions of all rounds at once.
pub struct Federated {
    rounds: BTreeMap<RoundId, Box<dyn Estimator>>,
    weights: RoundWeights,
}

/// The values of a federation.
#[derive(Clone, Debug, PartialEq)]
pub struct FederatedValues {
    /// Per round the values of its participants (the paper's SSV), unweighted.
    pub rounds: Vec<RoundValues>,
    /// The weighted sum over rounds (the paper's FSV where weights are 1).
    pub total: ClientValues,
}

/// The values of one round.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundValues {
    /// Which round.
    pub round: RoundId,
    /// How much it counts in the sum.
    pub weight: f64,
    /// Whether the method found the round not worth sampling.
    pub is_skipped: bool,
    /// The values.
    pub values: ClientValues,
}

impl Federated {
    /// A plan for each round over those who took part in it. Methods that value accumulated models take one
    /// round, of which every coalition's utility is that of its accumulated model. The stopping rule is for
    /// the whole federation: tests are divided equally among the rounds, the standard error by the square
    /// root of their number.
    pub fn new(
        method: Method,
        rounds: &[(RoundId, Coalition)],
        settings: &EstimatorSettings,
    ) -> Result<Self, Error> {
        if method.needs_cumulative_models() && rounds.len() > 1 {
            return Err(Error::NeedsCumulativeModels { method: method.name() });
        }
        let mut share = *settings;
        let count = rounds.len().max(1);
        share.stop.tests = settings.stop.tests.map(|tests| tests / count);
        share.stop.standard_error = settings.stop.standard_error.map(|error| error / (count as f64).sqrt());
        let mut plans = BTreeMap::new();
        for &(round, players) in rounds {
            let estimator = method.estimator(players, u64::from(round.0), &share)?;
            if plans.insert(round, estimator).is_some() {
                return Err(Error::RepeatedRound { found: round });
            }
        }
        Ok(Self { rounds: plans, weights: RoundWeights::of(method, settings) })
    }

    /// The coalitions wanted next, of all rounds; none when every round is done. See
    /// [`Estimator::next_batch`].
    pub fn next_batch(&mut self, elapsed: Duration) -> Result<Vec<(RoundId, Coalition)>, Error> {
        let mut batch = Vec::new();
        for (&round, estimator) in &mut self.rounds {
            batch.extend(estimator.next_batch(elapsed)?.into_iter().map(|coalition| (round, coalition)));
        }
        Ok(batch)
    }

    /// Takes one utility. See [`Estimator::absorb`].
    pub fn absorb(&mut self, round: RoundId, coalition: Coalition, utility: f64) -> Result<(), Error> {
        let estimator = self.rounds.get_mut(&round).ok_or(Error::UnknownRound { found: round })?;
        estimator.absorb(coalition, utility)
    }

    /// Utilities of a round that have been absorbed.
    pub fn utilities(&self, round: RoundId) -> Option<&UtilityTable> {
        self.rounds.get(&round).map(|estimator| estimator.utilities())
    }

    /// The values of every round and their sum.
    pub fn finish(&self) -> Result<FederatedValues, Error> {
        let everybody = |estimator: &dyn Estimator| {
            let table = estimator.utilities();
            table.get(table.players()).ok_or(Error::Missing { coalition: table.players() })
        };
        let weights = match self.weights {
            RoundWeights::ByUtility => {
                let best = self.rounds.values().map(|estimator| everybody(estimator.as_ref()));
                self.weights.weights(&best.collect::<Result<Vec<f64>, Error>>()?)
            }
            weights => weights.weights(&vec![1.0; self.rounds.len()]),
        };
        let mut rounds = Vec::with_capacity(self.rounds.len());
        for ((&round, estimator), weight) in self.rounds.iter().zip(weights) {
            let is_skipped = estimator.is_round_skipped();
            rounds.push(RoundValues { round, weight, is_skipped, values: estimator.finish()? });
        }
        let weighted: Vec<(f64, &ClientValues)> =
            rounds.iter().map(|round| (round.weight, &round.values)).collect();
        let total = combine(&weighted)?;
        Ok(FederatedValues { rounds, total })
    }
}
