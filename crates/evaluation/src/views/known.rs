//! What a client knew before: its samples and the models it has from training.

use secsv_federation::Weights;
use secsv_protocol::ClientInput;

/// An array that a party knew before.
pub struct Known {
    /// Its name: `x`, `y`, `local/round-0001/` and a tensor's name, `global/...`, `initial/...`.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers, row by row.
    pub values: Values,
}

/// Numbers of the two types that a run directory has.
pub enum Values {
    /// Of samples and models.
    Singles(Vec<f32>),
    /// Of labels.
    Labels(Vec<i64>),
}

/// What a client brought.
pub(super) fn of(input: &ClientInput) -> Vec<Known> {
    let samples = &input.test_set;
    let shape: Vec<usize> = [&[samples.len()], samples.input()].concat();
    let mut known = vec![
        Known { name: "x".to_owned(), shape, values: Values::Singles(samples.features().to_vec()) },
        Known {
            name: "y".to_owned(),
            shape: vec![samples.len()],
            values: Values::Labels(samples.labels().to_vec()),
        },
    ];
    model(&mut known, "initial", &input.initial);
    for (kind, models) in [("global", &input.global), ("local", &input.local)] {
        for (round, weights) in models {
            model(&mut known, &format!("{kind}/round-{:04}", round.0), weights);
        }
    }
    known
}

fn model(known: &mut Vec<Known>, of: &str, weights: &Weights) {
    known.extend(weights.iter().map(|(name, tensor)| Known {
        name: format!("{of}/{name}"),
        shape: tensor.shape().to_vec(),
        values: Values::Singles(tensor.values().to_vec()),
    }));
}
