//! Models saved by PyTorch give PyTorch's outputs and predictions (recorded by bench/peers/record_torch.py and
//! bench/peers/record_layers.py).

use std::{error::Error, fs, path::Path};

use safetensors::SafeTensors;
use secsv_federation::{
    Architecture, ModelSpec, Tensor, Weights,
    clear::{predicted, scores},
};

const CASES: [&str; 17] = [
    "logistic",
    "mnist_cnn",
    "padded_cnn",
    "mirna_gru",
    "gru_in_between",
    "dnn",
    "blitz",
    "lenet",
    "conv_batch_norm",
    "resnet8",
    "separable",
    "embedding_lstm",
    "text_cnn",
    "pointwise",
    "dense",
    "signals",
    "one_output",
];

struct Recorded {
    architecture: Architecture,
    weights: Weights,
    inputs: Vec<f32>,
    double: Vec<f64>,
    single: Vec<f32>,
}

fn singles(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn doubles(bytes: &[u8]) -> Vec<f64> {
    let double = |b: &[u8]| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
    bytes.chunks_exact(8).map(double).collect()
}

fn recorded(name: &str) -> Result<Recorded, Box<dyn Error>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let file = |suffix: &str| directory.join(format!("{name}{suffix}"));
    let spec: ModelSpec = toml::from_str(&fs::read_to_string(file(".toml"))?)?;
    let bytes = fs::read(file(".model.safetensors"))?;
    let mut weights = Weights::new();
    for (tensor, view) in SafeTensors::deserialize(&bytes)?.tensors() {
        if spec.ignores(&tensor) {
            continue;
        }
        weights.insert(tensor, Tensor::new(view.shape().to_vec(), singles(view.data()))?);
    }
    let shapes = weights.shapes();
    let architecture = Architecture::new(&spec, &shapes, &file(".toml"), &file(".model.safetensors"))?;
    let bytes = fs::read(file(".io.safetensors"))?;
    let tensors = SafeTensors::deserialize(&bytes)?;
    Ok(Recorded {
        architecture,
        weights,
        inputs: singles(tensors.tensor("x")?.data()),
        double: doubles(tensors.tensor("y")?.data()),
        single: singles(tensors.tensor("y_single")?.data()),
    })
}

#[test]
fn outputs_are_those_of_pytorch() {
    for name in CASES {
        let case = recorded(name).unwrap();
        let found = scores(&case.architecture, &case.weights, &case.inputs);
        assert_eq!(found.len(), case.double.len(), "{name}");
        let outputs = case.architecture.outputs();
        for (found, double) in found.chunks(outputs).zip(case.double.chunks(outputs)) {
            assert_eq!(predicted(found), predicted(double), "{name}");
        }
        for ((found, double), single) in found.iter().zip(&case.double).zip(&case.single) {
            assert!((found - double).abs() <= 1e-11 * double.abs().max(1.0), "{name}: {found} {double}");
            assert!(
                (found - f64::from(*single)).abs() <= 1e-5 * double.abs().max(1.0),
                "{name}: {found} {single}"
            );
        }
    }
}
