//! What a client knew before: its samples and the models it has from training.

use secsv_federation::Weights;
use secsv_protocol::ClientInput;

/// An array that a party knew before.
pub struct KnownArray {
    /// Its name: `x`, `y`, `local/round-0001/` and a tensor's name, `global/...`, `initial/...`.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers, row by row.
    pub values: KnownValues,
}

/// Numbers of the two types that a run directory has.
pub enum KnownValues {
    /// Of samples and models.
    Singles(Vec<f32>),
    /// Of labels.
    Labels(Vec<i64>),
}

/// What a client brought.
pub(super) fn of(input: &ClientInput) -> Vec<KnownArray> {
    let samples = &input.test_set;
    let shape: Vec<usize> = [&[samples.len()], samples.input()].concat();
    let mut known = vec![
        KnownArray { name: "x".to_owned(), shape, values: KnownValues::Singles(samples.features().to_vec()) },
        KnownArray {
            name: "y".to_owned(),
            shape: vec![samples.len()],
            values: KnownValues::Labels(samples.labels().to_vec()),
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

fn model(known: &mut Vec<KnownArray>, of: &str, weights: &Weights) {
    known.extend(weights.iter().map(|(name, tensor)| KnownArray {
        name: format!("{of}/{name}"),
        shape: tensor.shape().to_vec(),
        values: KnownValues::Singles(tensor.singles().into_owned()),
    }));
}
