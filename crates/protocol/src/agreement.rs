//! How often a model with functions by straight pieces predicts what the exact model does: each owner counts on its own samples, under
//! models that it knows, in fixed-point numbers as they will be computed. It publishes two counts, and a session begins only if the
//! labels of all owners together are the same often enough.

use secsv_algebra::{Ring64, Seed};
use secsv_federation::{
    Coalition, RoundId, TestSet, Weights,
    clear::{predicted, scores},
};

use crate::{
    Error, Program,
    activation::{Values, largest},
    blindsv::{
        hops::approximated,
        ideal::{Rounding, computed},
        keys::{OwnerKey, Place},
        shape::{Outcome, Shape},
    },
    decryptors::Protocol,
    model::{EncodedModel, first_columns, ranges, sample_values},
    precision::shares,
    session::{Federation, Formats, circuit, formats},
};

/// Samples that are looked at, for each model.
const SAMPLES: usize = 256;

/// Labels that the approximate model and the exact one were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// All of them.
    pub labels: u64,
    /// Those that are the same.
    pub equal: u64,
}

impl Agreement {
    /// Of several owners together.
    pub fn sum(all: impl IntoIterator<Item = Self>) -> Self {
        all.into_iter().fold(Self::default(), |sum, one| Self {
            labels: sum.labels.saturating_add(one.labels),
            equal: sum.equal.saturating_add(one.equal),
        })
    }

    /// The share of labels that are the same, rounded down to one in ten thousand; nothing was asked for, nothing differs.
    pub fn per_ten_thousand(self) -> u16 {
        match self.labels {
            0 => 10_000,
            labels => (u128::from(self.equal) * 10_000 / u128::from(labels)).min(10_000) as u16,
        }
    }

    /// What an owner counts on its own samples under models that it knows; nothing where functions are exact.
    pub(crate) fn measure(
        federation: &Federation,
        models: &[&Weights],
        test_set: &TestSet,
    ) -> Result<Self, Error> {
        let program = &federation.program;
        if !federation.is_approximate() || test_set.is_empty() {
            return Ok(Self::default());
        }
        // Formats of all clients are not known yet: these are of the models that are tried.
        let Formats { precision, hops } = formats(federation, &ranges(federation, models, &[], test_set))?;
        let samples: Values = first_columns(&sample_values(program, test_set), SAMPLES);
        let encoded = samples.encode(Ring64, precision.operators[0].input, 1)?;
        let share = shares(&[1.0])[0];
        let (scales, count) = (hops.scales(share), samples.columns());
        let shape = Shape::new(circuit(program, hops, count as u64, Outcome::Total).into(), count);
        // Of no use to anybody: any masks round.
        let keys = [0, 1].map(|server| OwnerKey::new(Seed::from_bytes([server; 32])));
        let mut found = Self::default();
        for (round, model) in (0..).map(RoundId).zip(models) {
            let place = Place::of_model(round, Coalition::EMPTY);
            let rounding = Rounding { keys: &keys, place, scales: &scales };
            let operators = EncodedModel::new(program, &precision, Ring64, model, share)?.operators;
            let computed = computed(program, &shape, &rounding, &operators, &encoded)?;
            let labels = largest(&computed.scores, count, program.classes);
            let exact = test_set.features().chunks_exact(program.input_size.max(1)).take(count);
            let exact = exact.map(|sample| predicted(&scores(&federation.architecture, model, sample)));
            found.labels += count as u64;
            found.equal +=
                exact.zip(&labels).filter(|(exact, label)| *exact == usize::from(**label)).count() as u64;
        }
        Ok(found)
    }
}

impl Federation {
    /// Whether some functions are computed by straight pieces.
    pub fn is_approximate(&self) -> bool {
        !self.approximations().is_empty()
    }

    /// Functions that are computed by straight pieces, by name.
    pub fn approximations(&self) -> Vec<&'static str> {
        approximations(self.settings.protocol, &self.program)
    }
}

/// Functions of a model that a protocol computes by straight pieces, by name: none where somebody computes them in the clear.
pub fn approximations(protocol: Protocol, program: &Program) -> Vec<&'static str> {
    match protocol.rules().has_decryptors() {
        true => Vec::new(),
        false => approximated(program).into_iter().collect(),
    }
}
