//! An evaluator that somebody can stop between two tests.

use std::sync::atomic::{AtomicBool, Ordering};

use secsv_evaluation::{CostModel, Error, Evaluator, Next, Test};
use secsv_federation::{Coalition, RoundId};
use secsv_protocol::TestResult;

/// An evaluator that ends when it is told to.
pub struct Stoppable<'a, E> {
    inner: &'a mut E,
    stop: &'a AtomicBool,
}

impl<'a, E> Stoppable<'a, E> {
    /// The evaluator `inner`, until `stop` is true.
    pub fn new(inner: &'a mut E, stop: &'a AtomicBool) -> Self {
        Self { inner, stop }
    }
}

fn check(stop: &AtomicBool) -> Result<(), Error> {
    if stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
}

impl<E: Evaluator> Evaluator for Stoppable<'_, E> {
    type Error = E::Error;

    fn protocol(&self) -> &'static str {
        self.inner.protocol()
    }

    fn samples(&self) -> usize {
        self.inner.samples()
    }

    fn rounds(&self) -> Vec<(RoundId, Coalition)> {
        self.inner.rounds()
    }

    fn tells_samples(&self) -> bool {
        self.inner.tells_samples()
    }

    fn knows_outcomes(&self) -> bool {
        self.inner.knows_outcomes()
    }

    fn gathers(&self) -> bool {
        self.inner.gathers()
    }

    fn tests_together(&self) -> bool {
        self.inner.tests_together()
    }

    fn counted_classes(&self) -> Option<usize> {
        self.inner.counted_classes()
    }

    fn labels(&self) -> Option<(&[i64], usize)> {
        self.inner.labels()
    }

    fn tests_empty_each_round(&self) -> bool {
        self.inner.tests_empty_each_round()
    }

    fn test(&mut self, round: RoundId, tests: &[Test]) -> Result<Vec<TestResult>, Self::Error> {
        check(self.stop)?;
        self.inner.test(round, tests)
    }

    fn drive(&mut self, tests: Vec<(RoundId, Test)>, next: &mut Next<'_>) -> Result<(), Self::Error> {
        check(self.stop)?;
        let stop = self.stop;
        self.inner.drive(tests, &mut |round, test, result| {
            check(stop)?;
            next(round, test, result)
        })
    }

    fn cost_model(&self) -> CostModel {
        self.inner.cost_model()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knows every answer, and is stopped by the third test.
    struct Counting<'a> {
        tests: usize,
        stop: &'a AtomicBool,
    }

    impl Evaluator for Counting<'_> {
        type Error = Error;

        fn protocol(&self) -> &'static str {
            "counting"
        }

        fn samples(&self) -> usize {
            1
        }

        fn rounds(&self) -> Vec<(RoundId, Coalition)> {
            Vec::new()
        }

        fn test(&mut self, _: RoundId, tests: &[Test]) -> Result<Vec<TestResult>, Error> {
            self.tests += 1;
            self.stop.store(self.tests == 3, Ordering::Relaxed);
            Ok(tests.iter().map(|test| TestResult::from((*test.samples).clone())).collect())
        }

        fn cost_model(&self) -> CostModel {
            Box::new(|_, _| 1.0)
        }
    }

    #[test]
    fn nothing_more_is_tested_once_it_was_stopped() {
        let stop = AtomicBool::new(false);
        let mut counting = Counting { tests: 0, stop: &stop };
        let of_round = |round| {
            let samples = secsv_federation::SampleSet::all(1);
            (RoundId(round), Test::new(Coalition::EMPTY, samples))
        };
        let mut told = 0;
        let ended =
            Stoppable::new(&mut counting, &stop).drive((1..=9).map(of_round).collect(), &mut |_, _, _| {
                told += 1;
                Ok(Vec::new())
            });
        assert!(matches!(ended, Err(Error::Stopped)), "{ended:?}");
        assert_eq!((counting.tests, told), (3, 2));
    }
}
