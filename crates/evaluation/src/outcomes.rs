//! The tests of one round, with or without SampleSkip.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use rayon::prelude::*;
use secsv_federation::{
    Coalition, SampleSet,
    skip::{Lattice, SkipMode, SkipTable},
};

use secsv_protocol::TestResult;

use crate::{CostModel, Error, EvaluationSettings, Test, Utility};

/// How one coalition did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TestOutcome {
    /// Samples predicted right, skipped ones included.
    pub(crate) correct: usize,
    /// Samples that were not skipped.
    pub(crate) tested: usize,
    pub(crate) wrongly_skipped: Option<usize>,
    /// Samples of each class predicted right, skipped ones included, where classes count.
    pub(crate) of_classes: Vec<usize>,
    /// Hidden numbers out of range, where they are counted.
    pub(crate) overflows: Option<u64>,
}

/// What samples are of, where the utility asks for it.
pub(crate) struct Classes {
    utility: Utility,
    /// Of every sample; nothing where that is hidden.
    labels: Vec<usize>,
    /// Samples of each class; not known before the first test where they are hidden.
    sizes: OnceLock<Vec<usize>>,
}

impl Classes {
    /// The classes of these labels; refused where the utility does not fit them.
    pub(crate) fn new(utility: Utility, labels: &[i64], classes: usize) -> Result<Self, Error> {
        let labels: Vec<usize> = labels.iter().map(|&label| label as usize).collect();
        let mut sizes = vec![0; classes];
        labels.iter().for_each(|&label| sizes[label] += 1);
        utility.check(&sizes)?;
        Ok(Self { utility, labels, sizes: sizes.into() })
    }

    /// So many classes, of hidden labels; refused where the utility does not fit them.
    pub(crate) fn hidden(utility: Utility, classes: usize) -> Result<Self, Error> {
        utility.check_classes(classes)?;
        Ok(Self { utility, labels: Vec::new(), sizes: OnceLock::new() })
    }

    /// Samples of each class; nothing before that is known.
    pub(crate) fn sizes(&self) -> &[usize] {
        self.sizes.get().map_or(&[], |sizes| sizes)
    }

    /// Takes what a test of `tested` samples counted: every test must find the same samples.
    pub(crate) fn learn(&self, found: &TestResult, tested: usize) -> Result<(), Error> {
        if found.of_classes.is_empty() {
            return Ok(());
        }
        let sizes: Vec<usize> = found.of_classes.iter().map(|class| class.samples).collect();
        let known = self.sizes.get_or_init(|| sizes.clone());
        let wrong = |expected: String| Err(Error::ClassCounts { expected, found: format!("{sizes:?}") });
        if *known != sizes {
            return wrong(format!("{known:?} samples of each class, as before"));
        }
        let total = sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
        if total != Some(tested) || found.of_classes.iter().any(|class| class.right > class.samples) {
            return wrong(format!("{tested} samples in all"));
        }
        self.utility.check(known)
    }

    fn count(&self, right: &SampleSet) -> Vec<usize> {
        let mut counts = vec![0; self.sizes().len()];
        right.iter().for_each(|sample| counts[self.labels[sample]] += 1);
        counts
    }
}

impl TestOutcome {
    /// The paper's v: right samples over all samples, unless the utility asks for classes.
    pub(crate) fn utility(&self, total: usize, classes: Option<&Classes>) -> f64 {
        match classes {
            None => self.correct as f64 / total as f64,
            Some(classes) => classes.utility.value(&self.of_classes, classes.sizes()),
        }
    }
}

/// What was tested in one round.
pub(crate) struct RoundOutcomes {
    participants: Coalition,
    samples: usize,
    /// All of them.
    all: Arc<SampleSet>,
    mode: SkipMode,
    verify: bool,
    /// The sets of right samples, kept only where something may be skipped.
    table: Option<SkipTable>,
    outcomes: BTreeMap<Coalition, TestOutcome>,
    lattice: Option<Lattice>,
    gathering: Option<Gathering>,
    running: BTreeMap<Coalition, Running>,
    classes: Option<Arc<Classes>>,
}

impl RoundOutcomes {
    pub(crate) fn new(
        participants: Coalition,
        all: &Arc<SampleSet>,
        settings: &EvaluationSettings,
        gathers: bool,
    ) -> Self {
        let (mode, verify, samples) = (settings.skip, settings.verify_skip, all.total());
        let gathering = (gathers && mode != SkipMode::Off).then(|| Gathering::new(samples));
        Self {
            participants,
            samples,
            all: all.clone(),
            mode,
            verify,
            table: None,
            outcomes: BTreeMap::new(),
            lattice: None,
            gathering,
            running: BTreeMap::new(),
            classes: None,
        }
    }

    /// The same where the utility asks for classes.
    pub(crate) fn with_classes(self, classes: Option<Arc<Classes>>) -> Self {
        Self { classes, ..self }
    }

    pub(crate) fn participants(&self) -> Coalition {
        self.participants
    }

    pub(crate) fn len(&self) -> usize {
        self.outcomes.len()
    }

    pub(crate) fn get(&self, coalition: Coalition) -> Option<TestOutcome> {
        self.outcomes.get(&coalition).cloned()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Coalition, TestOutcome)> {
        self.outcomes.iter().map(|(coalition, outcome)| (*coalition, outcome.clone()))
    }

    pub(crate) fn insert(&mut self, coalition: Coalition, outcome: TestOutcome) {
        self.outcomes.insert(coalition, outcome);
    }

    /// Notes which coalitions are wanted, and returns the tests that can begin.
    pub(crate) fn begin(&mut self, mut wanted: BTreeSet<Coalition>, cost: &CostModel) -> Vec<Test> {
        wanted.retain(|coalition| !self.outcomes.contains_key(coalition));
        if self.mode == SkipMode::Off {
            return wanted.into_iter().map(|coalition| self.start(coalition, None)).collect();
        }
        let table = self.table.get_or_insert_with(|| SkipTable::new(self.participants, self.samples));
        if let Some(gathering) = &mut self.gathering {
            gathering.wanted = wanted.clone();
            self.lattice = Some(Lattice::by_size(wanted));
        } else {
            self.lattice = Some(Lattice::new(wanted, |coalition| table.get(coalition).is_some()));
        }
        self.ready(cost)
    }

    /// Takes a result, and returns the tests that can begin now.
    pub(crate) fn complete(&mut self, test: &Test, found: TestResult, cost: &CostModel) -> Vec<Test> {
        let coalition = test.coalition;
        let Some(Running { skipped, verifies }) = self.running.remove(&coalition) else { return Vec::new() };
        let without = skipped.as_ref().map_or(0, SampleSet::len);
        if let Some(outcome) = verifies {
            let wrongly_skipped = Some(without - found.correct);
            self.outcomes.insert(coalition, TestOutcome { wrongly_skipped, ..outcome });
            return Vec::new();
        }
        let tested = self.samples - without;
        let is_verified = self.verify && self.mode != SkipMode::Off;
        let wrongly_skipped = is_verified.then_some(0);
        let of_classes = self.of_classes(&found, skipped.as_ref());
        let outcome = TestOutcome {
            correct: found.correct + without,
            tested,
            wrongly_skipped,
            of_classes,
            overflows: found.overflows,
        };
        self.outcomes.insert(coalition, outcome.clone());
        if let (Some(table), Some(mut right)) = (&mut self.table, found.right)
            && !coalition.is_empty()
        {
            skipped.iter().for_each(|skipped| right.union_with(skipped));
            table.record(coalition, right);
        }
        if let Some(lattice) = &mut self.lattice {
            lattice.complete(coalition);
        }
        let mut more = self.ready(cost);
        if let Some(skipped) = skipped.filter(|_| is_verified && without > 0) {
            more.push(Test::new(coalition, skipped.clone()));
            self.running.insert(coalition, Running { skipped: Some(skipped), verifies: Some(outcome) });
        }
        more
    }

    fn of_classes(&self, found: &TestResult, skipped: Option<&SampleSet>) -> Vec<usize> {
        if !found.of_classes.is_empty() {
            return found.of_classes.iter().map(|class| class.right).collect();
        }
        let (Some(classes), Some(right)) = (&self.classes, &found.right) else { return Vec::new() };
        let mut right = right.clone();
        skipped.into_iter().for_each(|skipped| right.union_with(skipped));
        classes.count(&right)
    }

    fn start(&mut self, coalition: Coalition, skipped: Option<SampleSet>) -> Test {
        let all = &self.all;
        let samples = skipped.as_ref().map_or_else(|| all.clone(), |skipped| all.difference(skipped).into());
        self.running.insert(coalition, Running { skipped, verifies: None });
        let test = Test::new(coalition, samples);
        match self.gathering.as_ref().filter(|gathering| gathering.hold(&test.samples)) {
            Some(gathering) => Test { candidate_samples: gathering.candidate_samples.clone().into(), ..test },
            None => test,
        }
    }

    /// Coalitions whose parts are all tested, with what each may skip.
    fn ready(&mut self, cost: &CostModel) -> Vec<Test> {
        let Some(lattice) = &mut self.lattice else { return Vec::new() };
        let ready = lattice.take_ready();
        if let (Some(gathering), Some(table), Some(size)) =
            (&mut self.gathering, &self.table, ready.iter().map(|coalition| coalition.len()).min())
        {
            gathering.gather(table, self.participants, size);
        }
        let this = &*self;
        let worth: Vec<(Coalition, bool)> =
            ready.into_iter().map(|c| (c, this.is_worth_a_search(c, cost))).collect();
        let found: Vec<(Coalition, Option<SampleSet>)> = worth
            .into_par_iter()
            .map(|(c, worth)| (c, this.table.as_ref().filter(|_| worth).map(|table| table.skippable(c))))
            .collect();
        let kept: Vec<(Coalition, Option<SampleSet>)> = found
            .into_iter()
            .map(|(c, skipped)| (c, skipped.filter(|skipped| this.saves_work(c, skipped, cost))))
            .collect();
        kept.into_iter().map(|(coalition, skipped)| self.start(coalition, skipped)).collect()
    }

    fn is_worth_a_search(&self, coalition: Coalition, cost: &CostModel) -> bool {
        let search = self.table.as_ref().map_or(f64::INFINITY, |table| table.search_cost(coalition));
        match self.mode {
            SkipMode::Off => false,
            SkipMode::On => true,
            SkipMode::Auto => coalition.len() > 1 && search < cost(coalition, self.samples),
        }
    }

    fn saves_work(&self, coalition: Coalition, skipped: &SampleSet, cost: &CostModel) -> bool {
        if self.mode != SkipMode::Auto {
            return true;
        }
        let search = self.table.as_ref().map_or(0.0, |table| table.search_cost(coalition));
        let rest = cost(coalition, self.samples - skipped.len()) + search;
        !skipped.is_empty() && rest < cost(coalition, self.samples)
    }
}

/// Which samples larger coalitions may still need. First-layer outputs of these are computed once more, in fewer
/// batches, if that is less work than it spares.
struct Gathering {
    /// The coalitions asked for.
    wanted: BTreeSet<Coalition>,
    candidate_samples: SampleSet,
    times: usize,
}

/// How often samples of a round are gathered, at most.
pub(crate) const MAX_GATHERED: usize = 2;
/// What one model's first-layer output costs, in replies with it: two products and a half handed on.
const OUTPUT_COST: usize = 2;

impl Gathering {
    fn new(samples: usize) -> Self {
        Self { wanted: BTreeSet::new(), candidate_samples: SampleSet::all(samples), times: 0 }
    }

    /// Before the first coalition of a size is tested.
    fn gather(&mut self, table: &SkipTable, participants: Coalition, size: usize) {
        // Owners test everybody's model themselves.
        self.wanted.retain(|coalition| coalition.len() >= size && *coalition != participants);
        if size < 2 || self.times == MAX_GATHERED {
            return;
        }
        let Some(found) = table.unsettled(self.wanted.iter().copied()) else { return };
        let (before, after) = (self.candidate_samples.len(), found.len());
        let spared = before.saturating_sub(after) * self.wanted.len();
        if after > 0 && spared > OUTPUT_COST * participants.len() * after {
            self.candidate_samples = found;
            self.times += 1;
        }
    }

    /// Whether all of these samples are among those gathered.
    fn hold(&self, samples: &SampleSet) -> bool {
        samples.difference(&self.candidate_samples).is_empty()
    }
}

/// A test under way.
struct Running {
    /// Nothing where nothing may be skipped.
    skipped: Option<SampleSet>,
    /// What is known already, if the test looks into what was skipped.
    verifies: Option<TestOutcome>,
}
