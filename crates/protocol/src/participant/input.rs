//! What a silo brings, and digests of it: by them a party knows later whether it still has the same.

use std::collections::BTreeMap;

use secsv_federation::{RoundId, TestSet, Weights};

use crate::role::Digest;

/// What a silo brings: its samples and the models it has from training.
pub struct ClientInput {
    /// Its test set.
    pub test_set: TestSet,
    /// The models it trained, by round.
    pub local: BTreeMap<RoundId, Weights>,
    /// The aggregates of the rounds.
    pub global: BTreeMap<RoundId, Weights>,
    /// The model before the first round; empty where it is not asked for.
    pub initial: Weights,
    /// Whether its owner accepts what utilities of few samples tell, where a protocol asks for that.
    pub accepts_few: bool,
}

/// A digest of samples and labels.
pub fn test_set_digest(test_set: &TestSet) -> Digest {
    let mut hash = blake3::Hasher::new_derive_key("secsv: a test set");
    shape(&mut hash, test_set.input());
    let bytes: Vec<u8> = test_set.features().iter().flat_map(|number| number.to_le_bytes()).collect();
    numbers(&mut hash, test_set.features().len(), &bytes);
    test_set.labels().iter().for_each(|label| {
        hash.update(&label.to_le_bytes());
    });
    *hash.finalize().as_bytes()
}

/// A digest of a model.
pub fn model_digest(model: &Weights) -> Digest {
    let mut hash = blake3::Hasher::new_derive_key("secsv: a model");
    for (name, tensor) in model.iter() {
        hash.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
        shape(&mut hash, tensor.shape());
        numbers(&mut hash, tensor.len(), &tensor.to_le_bytes());
    }
    *hash.finalize().as_bytes()
}

fn shape(hash: &mut blake3::Hasher, shape: &[usize]) {
    hash.update(&(shape.len() as u64).to_le_bytes());
    shape.iter().for_each(|&size| {
        hash.update(&(size as u64).to_le_bytes());
    });
}

/// So many numbers, as their bytes.
fn numbers(hash: &mut blake3::Hasher, count: usize, bytes: &[u8]) {
    hash.update(&(count as u64).to_le_bytes()).update(bytes);
}

#[cfg(test)]
mod tests {
    use secsv_federation::Tensor;

    use super::*;

    #[test]
    fn every_number_label_shape_and_name_counts() {
        let set = |input: Vec<usize>, last: f32, label| {
            test_set_digest(&TestSet::new(input, vec![1.0, last], vec![0, label]).unwrap())
        };
        let model = |name: &str, shape: Vec<usize>, last: f32| {
            let mut weights = Weights::new();
            weights.insert(name, Tensor::new(shape, vec![1.0, last]).unwrap());
            model_digest(&weights)
        };
        let sets =
            [set(vec![1], 2.0, 1), set(vec![1], 2.5, 1), set(vec![1], 2.0, 0), set(vec![1, 1], 2.0, 1)];
        let models = [
            model("w", vec![2], 2.0),
            model("v", vec![2], 2.0),
            model("w", vec![1, 2], 2.0),
            model("w", vec![2], -2.0),
        ];
        let all: std::collections::BTreeSet<Digest> = sets.into_iter().chain(models).collect();
        assert_eq!(all.len(), sets.len() + models.len());
        assert_eq!(sets[0], set(vec![1], 2.0, 1));
    }
}
