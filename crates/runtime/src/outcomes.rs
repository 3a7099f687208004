//! The tests of one round, with or without SampleSkip.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use secsv_federation::{
    Coalition, RoundId, SampleSet,
    skip::{Lattice, SkipMode, SkipTable},
};

use secsv_protocol::TestResult;

use crate::{Error, Evaluator, Test};

/// How one coalition did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Samples predicted right, skipped ones included.
    pub(crate) correct: usize,
    /// Samples that were not skipped.
    pub(crate) tested: usize,
    pub(crate) wrongly_skipped: Option<usize>,
}

impl Outcome {
    /// The paper's v: right samples over all samples.
    pub(crate) fn utility(&self, total: usize) -> f64 {
        self.correct as f64 / total as f64
    }
}

/// What was tested in one round.
pub(crate) struct RoundOutcomes {
    participants: Coalition,
    samples: usize,
    mode: SkipMode,
    verify: bool,
    /// The sets of right samples, kept only where something may be skipped.
    table: Option<SkipTable>,
    outcomes: BTreeMap<Coalition, Outcome>,
}

impl RoundOutcomes {
    pub(crate) fn new(participants: Coalition, samples: usize, mode: SkipMode, verify: bool) -> Self {
        Self { participants, samples, mode, verify, table: None, outcomes: BTreeMap::new() }
    }

    pub(crate) fn participants(&self) -> Coalition {
        self.participants
    }

    pub(crate) fn len(&self) -> usize {
        self.outcomes.len()
    }

    pub(crate) fn get(&self, coalition: Coalition) -> Option<Outcome> {
        self.outcomes.get(&coalition).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Coalition, Outcome)> {
        self.outcomes.iter().map(|(coalition, outcome)| (*coalition, *outcome))
    }

    pub(crate) fn insert(&mut self, coalition: Coalition, outcome: Outcome) {
        self.outcomes.insert(coalition, outcome);
    }

    /// Tests coalitions, whatever can run together at once.
    pub(crate) fn test(
        &mut self,
        evaluator: &mut impl Evaluator,
        round: RoundId,
        mut wanted: BTreeSet<Coalition>,
        mut observe: impl FnMut(usize),
    ) -> Result<(), Error> {
        wanted.retain(|coalition| !self.outcomes.contains_key(coalition));
        if self.mode == SkipMode::Off {
            let nothing = SampleSet::none(self.samples);
            let tests = wanted.into_iter().map(|coalition| (coalition, nothing.clone())).collect();
            self.run(evaluator, round, tests)?;
            observe(self.outcomes.len());
            return Ok(());
        }
        let table = self.table.take().unwrap_or_else(|| SkipTable::new(self.participants, self.samples));
        let mut lattice = Lattice::new(wanted, |coalition| table.get(coalition).is_some());
        self.table = Some(table);
        while !lattice.is_done() {
            let ready = lattice.take_ready();
            let tests = self.skippable(evaluator, round, &ready)?;
            self.run(evaluator, round, tests)?;
            ready.into_iter().for_each(|coalition| lattice.complete(coalition));
            observe(self.outcomes.len());
        }
        Ok(())
    }

    /// The samples each coalition may skip.
    fn skippable(
        &self,
        evaluator: &mut impl Evaluator,
        round: RoundId,
        coalitions: &[Coalition],
    ) -> Result<Vec<(Coalition, SampleSet)>, Error> {
        let nothing = || SampleSet::none(self.samples);
        let Some(table) = &self.table else {
            return Ok(coalitions.iter().map(|&coalition| (coalition, nothing())).collect());
        };
        let mut worth_a_search = Vec::with_capacity(coalitions.len());
        for &coalition in coalitions {
            let worth = match self.mode {
                SkipMode::Off => false,
                SkipMode::On => true,
                SkipMode::Auto => {
                    coalition.len() > 1
                        && table.search_cost(coalition) < evaluator.cost(round, coalition, self.samples)?
                }
            };
            worth_a_search.push((coalition, worth));
        }
        let mut found: Vec<(Coalition, SampleSet)> = worth_a_search
            .into_par_iter()
            .map(|(c, worth)| (c, if worth { table.skippable(c) } else { nothing() }))
            .collect();
        if self.mode == SkipMode::Auto {
            for (coalition, skipped) in found.iter_mut().filter(|(_, skipped)| !skipped.is_empty()) {
                let left = self.samples - skipped.len();
                let rest = evaluator.cost(round, *coalition, left)? + table.search_cost(*coalition);
                if rest >= evaluator.cost(round, *coalition, self.samples)? {
                    *skipped = nothing();
                }
            }
        }
        Ok(found)
    }

    /// Tests coalitions on what is not skipped.
    fn run(
        &mut self,
        evaluator: &mut impl Evaluator,
        round: RoundId,
        skips: Vec<(Coalition, SampleSet)>,
    ) -> Result<(), Error> {
        let all = SampleSet::all(self.samples);
        let tests: Vec<Test> = skips
            .iter()
            .map(|(coalition, skipped)| Test { coalition: *coalition, samples: all.difference(skipped) })
            .collect();
        let correct = ask(evaluator, round, &tests)?;
        let verified = self.verify_skips(evaluator, round, &skips)?;
        for (((coalition, skipped), found), wrongly_skipped) in skips.into_iter().zip(correct).zip(verified) {
            let tested = self.samples - skipped.len();
            let correct = found.correct + skipped.len();
            self.outcomes.insert(coalition, Outcome { correct, tested, wrongly_skipped });
            if let (Some(table), Some(mut right)) = (&mut self.table, found.right)
                && !coalition.is_empty()
            {
                right.union_with(&skipped);
                table.record(coalition, right);
            }
        }
        Ok(())
    }

    /// How many of the skipped samples each model would have predicted wrong, where that is asked for.
    fn verify_skips(
        &self,
        evaluator: &mut impl Evaluator,
        round: RoundId,
        skips: &[(Coalition, SampleSet)],
    ) -> Result<Vec<Option<usize>>, Error> {
        if !self.verify || self.mode == SkipMode::Off {
            return Ok(vec![None; skips.len()]);
        }
        let tests: Vec<Test> = skips
            .iter()
            .filter(|(_, skipped)| !skipped.is_empty())
            .map(|(coalition, skipped)| Test { coalition: *coalition, samples: skipped.clone() })
            .collect();
        let mut right = ask(evaluator, round, &tests)?.into_iter();
        let wrong = |skipped: &SampleSet, right: Option<TestResult>| {
            Some(skipped.len() - right.map_or(0, |right| right.correct))
        };
        Ok(skips
            .iter()
            .map(|(_, skipped)| if skipped.is_empty() { Some(0) } else { wrong(skipped, right.next()) })
            .collect())
    }
}

fn ask(evaluator: &mut impl Evaluator, round: RoundId, tests: &[Test]) -> Result<Vec<TestResult>, Error> {
    if tests.is_empty() {
        return Ok(Vec::new());
    }
    let found = evaluator.test(round, tests)?;
    if found.len() != tests.len() {
        return Err(Error::Answers { expected: tests.len(), found: found.len() });
    }
    Ok(found)
}
