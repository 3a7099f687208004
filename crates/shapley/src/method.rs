//! Every method by its name.

use std::{fmt, str::FromStr};

use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng};
use secsv_federation::{Coalition, MAX_CLIENTS};

use crate::{
    ClientValues, Error, Estimator, EstimatorSettings, UtilityTable,
    ask_once::{AskOnce, FixedPlan},
    estimator::{EstimatorSession, SamplingPlan},
    group_testing::{GroupTests, Variant, group_tests_needed},
    grouped::Grouped,
    kernel::{Kernel, paper::KernelOfThePaper},
    least_core::LeastCore,
    leave_one_out::LeaveOneOut,
    permutation::{Permutations, permutations_needed},
    semivalue::{EveryCoalition, Weighting},
    truncated::{WalkRules, Walks},
};

/// A way to value clients. Each variant's name on the command line is [`Method::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Method {
    /// The Shapley value (Shapley 1953) from every coalition.
    Exact,
    /// Shapley values from random orders of arrival, the paper's PS (Maleki et al. 2013). Up to 8 clients no
    /// order is used twice, and once all have been used the values are exact.
    Permutation,
    /// The same, each order together with its reverse (Mitchell et al. 2022).
    Antithetic,
    /// Random orders that are left once the utility is near everybody's (truncated Monte Carlo, Ghorbani and
    /// Zou 2019). The standard error does not cover what the truncation changes.
    Truncated,
    /// Shapley values from random coalitions by group testing, the paper's GT (Jia et al. 2019).
    GroupTesting,
    /// Shapley values as a weighted least-squares fit, the paper's KS (Lundberg and Lee 2017, Covert and Lee
    /// 2021).
    KernelShap,
    /// What everybody together loses without the client.
    LeaveOneOut,
    /// Every coalition counts the same (Banzhaf 1965; for data, Wang and Jia 2023).
    Banzhaf,
    /// Coalition sizes weighted by a Beta density (Kwon and Zou 2022).
    BetaShapley,
    /// The split that leaves no coalition much to complain about (Yan and Procaccia 2021).
    LeastCore,
    /// Contribution Index by one-round reconstruction (OR, Song et al. 2019): the Shapley values of one game,
    /// played by models of each coalition rebuilt from the updates of all rounds. The utilities absorbed have
    /// to be of such accumulated models.
    ContributionIndexOneRound,
    /// Contribution Index by multi-round reconstruction (MR, Song et al. 2019): Shapley values per round,
    /// summed over rounds with weights that decay (`EstimatorSettings::decay`; without decay this is the
    /// paper's FSV).
    ContributionIndexMultiRound,
    /// Random groups valued exactly, members share equally (Group SV, Ma et al. 2021).
    GroupSv,
    /// Guided orders, truncated within a round and between rounds (GTG-Shapley, Liu et al. 2022).
    GtgShapley,
    /// Truncated orders within a round, rounds weighted by how good the round's aggregate is (WT-Shapley,
    /// Yang et al. 2022, as far as its summaries tell: see
    /// [`RoundWeights::ByUtility`](crate::RoundWeights::ByUtility)).
    WtShapley,
    /// Permutation sampling with repeats, as in the experiments of the SecSV paper: 737 orders of 5 clients,
    /// of which only 120 exist.
    PermutationWithRepeats,
    /// Group testing as in the experiments of the SecSV paper: utilities as they are instead of above the
    /// empty coalition's (inferred), and any point that fits. To compare with the paper only: it needs the
    /// same tests and errs more.
    GroupTestingOfThePaper,
    /// KernelSHAP as in the experiments of the SecSV paper: 2n + 16 samples, repeats of complements counted
    /// as new, sampled coalitions weighing 1 together whatever the kernel gives them. To compare with the
    /// paper only.
    KernelShapOfThePaper,
}

const NAMES: &[(Method, &str)] = &[
    (Method::Exact, "exact"),
    (Method::Permutation, "permutation"),
    (Method::Antithetic, "antithetic"),
    (Method::Truncated, "tmc"),
    (Method::GroupTesting, "group-testing"),
    (Method::KernelShap, "kernelshap"),
    (Method::LeaveOneOut, "leave-one-out"),
    (Method::Banzhaf, "banzhaf"),
    (Method::BetaShapley, "beta-shapley"),
    (Method::LeastCore, "least-core"),
    (Method::ContributionIndexOneRound, "contribution-index-or"),
    (Method::ContributionIndexMultiRound, "contribution-index-mr"),
    (Method::GroupSv, "group-sv"),
    (Method::GtgShapley, "gtg-shapley"),
    (Method::WtShapley, "wt-shapley"),
    (Method::PermutationWithRepeats, "permutation-with-repeats"),
    (Method::GroupTestingOfThePaper, "group-testing-of-the-paper"),
    (Method::KernelShapOfThePaper, "kernelshap-of-the-paper"),
];

impl Method {
    /// Every method there is.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().map(|(method, _)| *method)
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(method, _)| *method == self).map_or("", |(_, name)| name)
    }

    /// Whether utilities have to be of models accumulated over all rounds instead of one round's models.
    pub fn needs_cumulative_models(self) -> bool {
        self == Self::ContributionIndexOneRound
    }

    /// Whether it asks for every coalition of every round, all at once.
    pub fn asks_for_all(self) -> bool {
        matches!(self, Self::Exact | Self::ContributionIndexMultiRound | Self::Banzhaf | Self::BetaShapley)
    }

    /// What it computes, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Self::Exact => "Shapley values from every coalition: no error; tests double with each client",
            Self::Permutation => "Shapley values from random orders of arrival, with standard errors",
            Self::Antithetic => "The same with each order and its reverse: smaller errors at the same cost",
            Self::Truncated => {
                "Random orders, left early where little is to be gained (truncated Monte Carlo)"
            }
            Self::GroupTesting => "Shapley values from random coalitions by group testing",
            Self::KernelShap => "Shapley values as a weighted least-squares fit: often the fewest tests",
            Self::LeaveOneOut => {
                "What all together lose without a client: n + 1 tests a round, no Shapley value"
            }
            Self::Banzhaf => {
                "Every coalition counts the same: steady where utilities are noisy; does not add up"
            }
            Self::BetaShapley => "Small coalitions count more: another scale, does not add up",
            Self::LeastCore => "The split that leaves no coalition much to complain about",
            Self::ContributionIndexOneRound => {
                "Shapley values of models rebuilt from all rounds (nssv alone)"
            }
            Self::ContributionIndexMultiRound => "Shapley values per round, summed; without decay as exact",
            Self::GroupSv => "Random groups valued exactly, members share equally: coarse",
            Self::GtgShapley => "Guided orders, truncated within and between rounds",
            Self::WtShapley => "Truncated orders; rounds with a better result count more",
            Self::PermutationWithRepeats => "As in the paper's experiments, to compare with it",
            Self::GroupTestingOfThePaper => "As in the paper's experiments, to compare with it: errs more",
            Self::KernelShapOfThePaper => "As in the paper's experiments, to compare with it: errs more",
        }
    }

    /// Whether a number of samples can be chosen; the others ask for what they need.
    pub fn takes_samples(self) -> bool {
        !matches!(
            self,
            Self::Exact
                | Self::LeaveOneOut
                | Self::Banzhaf
                | Self::BetaShapley
                | Self::ContributionIndexOneRound
                | Self::ContributionIndexMultiRound
                | Self::GroupSv
        )
    }

    /// Whether it looks at errors and the clock on the way, and can end early. The least core asks once.
    pub fn stops_early(self) -> bool {
        self.takes_samples() && self != Self::LeastCore
    }

    /// Whether it leaves out on purpose what changes little: standard errors do not cover that.
    pub fn truncates(self) -> bool {
        matches!(self, Self::Truncated | Self::GtgShapley | Self::WtShapley)
    }

    /// Whether another seed gives other values. Some methods are exact once every coalition was tested.
    pub fn draws_by_chance(self, has_every_coalition: bool) -> bool {
        match self {
            Self::Exact
            | Self::Banzhaf
            | Self::BetaShapley
            | Self::LeaveOneOut
            | Self::ContributionIndexOneRound
            | Self::ContributionIndexMultiRound => false,
            Self::LeastCore | Self::KernelShap => !has_every_coalition,
            _ => true,
        }
    }

    /// Whether the values split v(I) - v(empty) among the clients, so that they add up to it.
    pub fn is_efficient(self) -> bool {
        !matches!(
            self,
            Self::LeaveOneOut
                | Self::Banzhaf
                | Self::BetaShapley
                | Self::GtgShapley
                | Self::WtShapley
                | Self::Truncated
        )
    }

    /// The method at work on one game: a round's participants, or everybody. `stream` separates the random
    /// numbers of games with the same seed (the round's number).
    pub fn estimator(
        self,
        players: Coalition,
        stream: u64,
        settings: &EstimatorSettings,
    ) -> Result<Box<dyn Estimator>, Error> {
        settings.check()?;
        let n = players.len();
        if n == 0 {
            return Err(Error::NoClients);
        }
        let mut rng = ChaCha20Rng::seed_from_u64(settings.seed);
        rng.set_stream(stream);
        let game = EstimatorSetup { method: self.name(), players, settings };
        match self {
            Self::Exact | Self::ContributionIndexOneRound | Self::ContributionIndexMultiRound => {
                game.ask_once(EveryCoalition::new(self.name(), n, Weighting::Shapley)?)
            }
            Self::Banzhaf => game.ask_once(EveryCoalition::new(self.name(), n, Weighting::Banzhaf)?),
            Self::BetaShapley => {
                let (alpha, beta) = settings.beta;
                game.ask_once(EveryCoalition::new(self.name(), n, Weighting::Beta { alpha, beta })?)
            }
            Self::LeaveOneOut => game.ask_once(LeaveOneOut::new(self.name(), n)),
            Self::LeastCore => {
                game.ask_once(LeastCore::new(self.name(), n, settings.samples.or(settings.stop.tests), rng))
            }
            Self::GroupSv => game.ask_once(Grouped::new(self.name(), n, settings.groups, rng)?),
            Self::KernelShap => game.start(Kernel::new(self.name(), n, game.kernel_tests(), rng)),
            Self::KernelShapOfThePaper => {
                let samples = settings.samples.or(settings.stop.tests).unwrap_or(2 * n + 16);
                game.start(KernelOfThePaper::new(self.name(), n, samples, rng))
            }
            Self::GroupTesting => game.start(game.group_tests(Variant::Proposed, rng)),
            Self::GroupTestingOfThePaper => game.start(game.group_tests(Variant::OfThePaper, rng)),
            Self::Permutation | Self::Antithetic | Self::PermutationWithRepeats => {
                let repeats = self == Self::PermutationWithRepeats;
                let antithetic = self == Self::Antithetic;
                game.start(Permutations::new(self.name(), n, antithetic, repeats, game.orders(), rng))
            }
            Self::Truncated | Self::WtShapley => game.start(Walks::new(n, game.walk_rules(false), rng)),
            Self::GtgShapley => game.start(Walks::new(n, game.walk_rules(true), rng)),
        }
    }

    /// The values of a table that holds every utility the method asks for.
    pub fn values_of(
        self,
        table: &UtilityTable,
        settings: &EstimatorSettings,
    ) -> Result<ClientValues, Error> {
        let mut estimator = self.estimator(table.players(), 0, settings)?;
        loop {
            let batch = estimator.next_batch(std::time::Duration::ZERO)?;
            if batch.is_empty() {
                return estimator.finish();
            }
            for coalition in batch {
                let utility = table.get(coalition).ok_or(Error::Missing { coalition })?;
                estimator.absorb(coalition, utility)?;
            }
        }
    }
}

struct EstimatorSetup<'a> {
    method: &'static str,
    players: Coalition,
    settings: &'a EstimatorSettings,
}

impl EstimatorSetup<'_> {
    fn start(&self, plan: impl SamplingPlan + 'static) -> Result<Box<dyn Estimator>, Error> {
        debug_assert!(self.players.len() <= MAX_CLIENTS);
        Ok(Box::new(EstimatorSession::new(plan, self.players, self.settings.stop, self.settings.batch)?))
    }

    fn ask_once(&self, plan: impl FixedPlan + 'static) -> Result<Box<dyn Estimator>, Error> {
        self.start(AskOnce::new(plan))
    }

    fn group_tests(&self, variant: Variant, rng: ChaCha20Rng) -> GroupTests {
        let EstimatorSettings { epsilon, delta, utility_range, samples, .. } = *self.settings;
        let n = self.players.len();
        let tests = samples.unwrap_or_else(|| group_tests_needed(n, epsilon, delta, utility_range));
        GroupTests::new(self.method, n, epsilon, tests, variant, rng)
    }

    fn orders(&self) -> usize {
        let EstimatorSettings { epsilon, delta, utility_range, .. } = *self.settings;
        let needed = || permutations_needed(self.players.len(), epsilon, delta, utility_range);
        self.settings.samples.unwrap_or_else(needed).max(2)
    }

    /// SHAP's own default where nothing is said.
    fn kernel_tests(&self) -> usize {
        self.settings.samples.or(self.settings.stop.tests).unwrap_or(2 * self.players.len() + 2048)
    }

    fn walk_rules(&self, guided: bool) -> WalkRules {
        WalkRules {
            method: self.method,
            tolerance: self.settings.tolerance,
            round_tolerance: guided.then_some(self.settings.round_tolerance),
            guided,
            convergence: guided.then_some(self.settings.convergence),
            walks: self.orders(),
            abreast: self.settings.batch.div_ceil(8),
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Method {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let known = NAMES.iter().find(|(_, name)| *name == text).map(|(method, _)| *method);
        known.ok_or_else(|| Error::UnknownMethod {
            expected: NAMES.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", "),
            found: text.to_owned(),
        })
    }
}
