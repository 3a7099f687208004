//! The paper's four kinds of model as layers of a run directory, and their state before round 1.

use rand::Rng;
use secsv_federation::{Defect, LayerSpec, ModelSpec, Tensor, Weights};

use crate::TrainingError;
use crate::seeds::{Purpose, generator};

/// Hidden units of the DNN (the paper's Table "DNN classifier").
const DNN_WIDTH: usize = 100;
/// Hidden state of the GRU (the paper's Table "RNN classifier").
const GRU_WIDTH: usize = 32;
/// Output channels of the convolution and hidden units after it (the paper's Table "CNN classifier").
const CNN_CHANNELS: usize = 4;
const CNN_WIDTH: usize = 64;
/// Images at least this wide get the paper's kernel (7 x 7, stride 3); smaller ones get 3 x 3, stride 1.
const LARGE_IMAGE: usize = 20;

/// Which model to train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// One linear layer. Its raw scores order the classes as the paper's sigmoid of them does.
    Logistic,
    /// Convolution, square, linear, square, linear; for images.
    Cnn,
    /// A gated recurrent unit and a linear layer; for sequences, or images row by row.
    Gru,
    /// Linear layers of 100 with relu between them.
    Dnn {
        /// Linear layers in all (the paper's L), at least 2.
        layers: usize,
    },
}

/// A model's layers and the parameters they need.
#[derive(Clone, Debug)]
pub struct Blueprint {
    spec: ModelSpec,
    parameters: Vec<Parameter>,
}

/// A tensor to be learnt.
#[derive(Clone, Debug)]
struct Parameter {
    name: String,
    shape: Vec<usize>,
    /// Initial values are uniform in plus or minus one over the root of this.
    fan_in: usize,
}

impl ModelKind {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Logistic => "logistic",
            Self::Cnn => "cnn",
            Self::Gru => "gru",
            Self::Dnn { .. } => "dnn",
        }
    }

    /// The layers for samples of this shape. Logistic models and DNNs take samples as one row of numbers.
    pub fn blueprint(self, sample: &[usize], classes: usize) -> Result<Blueprint, TrainingError> {
        let mut plan = Blueprint {
            spec: ModelSpec::new(vec![sample.iter().product()], classes, Vec::<LayerSpec>::new()),
            parameters: Vec::new(),
        };
        let inputs = plan.spec.input[0];
        match self {
            Self::Logistic => plan.linear("fc", inputs, classes),
            Self::Cnn => plan.cnn(sample)?,
            Self::Gru => plan.gru(sample)?,
            Self::Dnn { layers } => {
                if !(2..=64).contains(&layers) {
                    let found = layers.to_string();
                    return Err(TrainingError::setting("layers", "2 to 64", found));
                }
                for layer in 1..=layers {
                    let from = if layer == 1 { inputs } else { DNN_WIDTH };
                    let to = if layer == layers { classes } else { DNN_WIDTH };
                    plan.linear(&format!("fc{layer}"), from, to);
                    if layer < layers {
                        plan.spec.layers.push(LayerSpec::Relu {}.into());
                    }
                }
            }
        }
        Ok(plan)
    }
}

impl Blueprint {
    /// The layers as `federation.toml` names them.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Random parameters, uniform within one over the root of the number of inputs, as PyTorch starts its
    /// layers.
    pub fn initial(&self, seed: u64) -> Result<Weights, Defect> {
        let mut random = generator(seed, Purpose::InitialModel);
        let mut draw = |parameter: &Parameter| {
            let bound = 1.0 / (parameter.fan_in as f32).sqrt();
            let count = parameter.shape.iter().product();
            let values = (0..count).map(|_| random.random_range(-bound..bound)).collect();
            Ok((parameter.name.clone(), Tensor::new(parameter.shape.clone(), values)?))
        };
        self.parameters.iter().map(&mut draw).collect()
    }

    fn parameter(&mut self, name: String, shape: &[usize], fan_in: usize) -> String {
        self.parameters.push(Parameter { name: name.clone(), shape: shape.to_vec(), fan_in });
        name
    }

    fn linear(&mut self, name: &str, inputs: usize, outputs: usize) {
        let weight = self.parameter(format!("{name}.weight"), &[outputs, inputs], inputs);
        let bias = Some(self.parameter(format!("{name}.bias"), &[outputs], inputs));
        self.spec.layers.push(LayerSpec::Linear { weight, bias }.into());
    }

    fn cnn(&mut self, sample: &[usize]) -> Result<(), TrainingError> {
        let refused = || TrainingError::ModelInput {
            model: "cnn",
            expected: "images [height, width] or [channels, height, width], at least 3 x 3",
            found: sample.to_vec(),
        };
        let [channels, height, width] = match *sample {
            [height, width] => [1, height, width],
            [channels, height, width] => [channels, height, width],
            _ => return Err(refused()),
        };
        let (kernel, stride) = if height.min(width) >= LARGE_IMAGE { (7, 3) } else { (3, 1) };
        if height.min(width) < kernel {
            return Err(refused());
        }
        self.spec.input = vec![channels, height, width];
        let fan_in = channels * kernel * kernel;
        let weight = self.parameter("conv1.weight".into(), &[CNN_CHANNELS, channels, kernel, kernel], fan_in);
        let bias = Some(self.parameter("conv1.bias".into(), &[CNN_CHANNELS], fan_in));
        let positions = ((height - kernel) / stride + 1) * ((width - kernel) / stride + 1);
        self.spec.layers.push(LayerSpec::conv2d(weight, bias, stride, 0).into());
        self.spec.layers.extend([LayerSpec::Square {}.into(), LayerSpec::Flatten {}.into()]);
        self.linear("fc1", CNN_CHANNELS * positions, CNN_WIDTH);
        self.spec.layers.push(LayerSpec::Square {}.into());
        self.linear("fc2", CNN_WIDTH, self.spec.classes);
        Ok(())
    }

    fn gru(&mut self, sample: &[usize]) -> Result<(), TrainingError> {
        let (steps, features) = match *sample {
            [steps, features] | [1, steps, features] => (steps, features),
            _ => {
                let expected = "sequences [steps, features] or grey images [1, height, width]";
                return Err(TrainingError::ModelInput { model: "gru", expected, found: sample.to_vec() });
            }
        };
        self.spec.input = vec![steps, features];
        let gates = 3 * GRU_WIDTH;
        let weight_ih = self.parameter("gru.weight_ih_l0".into(), &[gates, features], GRU_WIDTH);
        let weight_hh = self.parameter("gru.weight_hh_l0".into(), &[gates, GRU_WIDTH], GRU_WIDTH);
        let bias_ih = Some(self.parameter("gru.bias_ih_l0".into(), &[gates], GRU_WIDTH));
        let bias_hh = Some(self.parameter("gru.bias_hh_l0".into(), &[gates], GRU_WIDTH));
        self.spec.layers.push(LayerSpec::Gru { weight_ih, weight_hh, bias_ih, bias_hh }.into());
        self.linear("fc", GRU_WIDTH, self.spec.classes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(model: ModelKind, sample: &[usize], classes: usize) -> Vec<Vec<usize>> {
        model.blueprint(sample, classes).unwrap().parameters.into_iter().map(|p| p.shape).collect()
    }

    /// The tables of the paper's appendix.
    #[test]
    fn shapes_are_those_of_the_paper() {
        assert_eq!(shapes(ModelKind::Logistic, &[48], 2), [vec![2, 48], vec![2]]);
        assert_eq!(
            shapes(ModelKind::Cnn, &[1, 28, 28], 10),
            [vec![4, 1, 7, 7], vec![4], vec![64, 256], vec![64], vec![10, 64], vec![10]]
        );
        assert_eq!(
            shapes(ModelKind::Gru, &[10, 64], 2),
            [vec![96, 64], vec![96, 32], vec![96], vec![96], vec![2, 32], vec![2]]
        );
        assert_eq!(
            shapes(ModelKind::Dnn { layers: 3 }, &[1, 28, 28], 10),
            [vec![100, 784], vec![100], vec![100, 100], vec![100], vec![10, 100], vec![10]]
        );
        assert_eq!(shapes(ModelKind::Cnn, &[1, 8, 8], 10)[2], [64, 144], "small images, small kernel");
    }

    #[test]
    fn models_that_do_not_fit_are_refused() {
        assert!(ModelKind::Cnn.blueprint(&[48], 2).is_err());
        assert!(ModelKind::Cnn.blueprint(&[1, 2, 8], 2).is_err());
        assert!(ModelKind::Gru.blueprint(&[48], 2).is_err());
        assert!(ModelKind::Gru.blueprint(&[3, 8, 8], 2).is_err());
        assert!(ModelKind::Dnn { layers: 1 }.blueprint(&[48], 2).is_err());
    }

    #[test]
    fn initial_values_are_seeded_and_bounded() {
        let plan = ModelKind::Logistic.blueprint(&[100], 3).unwrap();
        let first = plan.initial(1).unwrap();
        assert_eq!(first, plan.initial(1).unwrap());
        assert_ne!(first, plan.initial(2).unwrap());
        let largest = first.iter().flat_map(|(_, t)| t.numbers()).fold(0.0f64, |most, x| most.max(x.abs()));
        assert!(largest <= f64::from(0.1f32) && largest > 0.09, "{largest}");
    }
}
