//! Errors between a plan and its values.

use std::time::Duration;

use secsv_federation::{Coalition, RoundId};

/// Why an estimator cannot go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A round without anybody has no values.
    #[error("no client takes part: expected at least one")]
    NoClients,
    /// The method needs every coalition, or more memory than the set of clients allows.
    #[error("{method}: expected at most {expected} clients, found {found}")]
    TooManyClients {
        /// The method's name on the command line.
        method: &'static str,
        /// The most it can take.
        expected: usize,
        /// Number of clients that take part.
        found: usize,
    },
    /// A coalition with a member who is none of the clients asked about.
    #[error("coalition {:?} has members outside {:?}", members(*.found), members(*.expected))]
    Stranger {
        /// Everybody asked about.
        expected: Coalition,
        /// The coalition offered.
        found: Coalition,
    },
    /// A utility that is no number.
    #[error("utility of coalition {:?}: expected a finite number, found {found}", members(*.coalition))]
    NotFinite {
        /// Whose utility.
        coalition: Coalition,
        /// The utility that was offered.
        found: f64,
    },
    /// Two different utilities for one coalition.
    #[error("utility of coalition {:?}: expected {expected} as before, found {found}", members(*.coalition))]
    Contradiction {
        /// Whose utility.
        coalition: Coalition,
        /// The utility absorbed first.
        expected: f64,
        /// The utility offered now.
        found: f64,
    },
    /// The values need a utility that nobody absorbed.
    #[error("the utility of coalition {:?} is missing", members(*.coalition))]
    Missing {
        /// Whose utility.
        coalition: Coalition,
    },
    /// The next batch was asked for while the last one is still out.
    #[error("{waiting} utilities of the last batch have not been absorbed")]
    Unanswered {
        /// Number of coalitions that are on their way.
        waiting: usize,
    },
    /// The number of tests allowed gives no value at all.
    #[error(
        "{method}: expected room for at least {expected} tests a round, found {found} (a limit on tests, --max-tests, is shared by all rounds)"
    )]
    Budget {
        /// The method's name on the command line.
        method: &'static str,
        /// The fewest tests that give values.
        expected: usize,
        /// Number that is allowed.
        found: usize,
    },
    /// A setting outside its range.
    #[error("setting {name}: expected {expected}, found {found}")]
    Setting {
        /// The field of the settings.
        name: &'static str,
        /// Its range.
        expected: &'static str,
        /// Its value.
        found: f64,
    },
    /// A time limit of nothing.
    #[error("setting stop.elapsed: expected more than zero, found {found:?}")]
    NoTime {
        /// The limit.
        found: Duration,
    },
    /// A name that is no method.
    #[error("method {found:?}: expected one of {expected}")]
    UnknownMethod {
        /// Every name there is.
        expected: String,
        /// The name offered.
        found: String,
    },
    /// A round that is not part of the plan.
    #[error("round {found} is not part of the plan")]
    UnknownRound {
        /// The round offered.
        found: RoundId,
    },
    /// The same round twice.
    #[error("round {found} is listed twice")]
    RepeatedRound {
        /// The round.
        found: RoundId,
    },
    /// The method values models accumulated over all rounds, not one round's.
    #[error("{method}: expected one table of models accumulated over all rounds, found a plan per round")]
    NeedsCumulativeModels {
        /// The method's name on the command line.
        method: &'static str,
    },
    /// The coalitions tested don't determine the values.
    #[error("{method}: the {found} coalitions tested don't determine the values of {clients} clients")]
    Undetermined {
        /// The method's name on the command line.
        method: &'static str,
        /// Number of clients.
        clients: usize,
        /// Number of coalitions that were tested.
        found: usize,
    },
    /// The optimisation library gave up.
    #[error("{method}: the solver stopped with {found:?}")]
    Solver {
        /// The method's name on the command line.
        method: &'static str,
        /// The library's verdict.
        found: clarabel::solver::SolverStatus,
    },
}

fn members(coalition: Coalition) -> Vec<usize> {
    coalition.members().collect()
}
