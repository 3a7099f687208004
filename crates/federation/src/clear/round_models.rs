//! The local models of one round, with what is needed to finish a forward pass from first-layer outputs.

use super::{
    ModelParameters,
    forward::{Scratch, forward, rest},
    parameters::Tail,
};
use crate::{Activation, Architecture, Coalition, CollectiveTestSet, Layer, Weights};

/// The layers up to the numbers whose order decides: what grows strictly with its input cannot change it.
pub fn up_to_scores(layers: &[Layer]) -> &[Layer] {
    let keeps_order = |layer: &Layer| match layer {
        Layer::Activation(Activation::Sigmoid | Activation::Tanh, _) => true,
        // Of several softmaxes side by side each has a scale of its own.
        Layer::Activation(Activation::Softmax(width), size) => width == size,
        _ => false,
    };
    let last = layers.iter().rposition(|layer| !keeps_order(layer)).unwrap_or(0);
    &layers[..=last]
}

/// The local models of one round and the samples they are tested on.
pub(super) struct RoundModels<'a> {
    pub(super) architecture: &'a Architecture,
    pub(super) test_set: &'a CollectiveTestSet,
    /// The first layer that has parameters.
    pub(super) first: usize,
    pub(super) layers: &'a [Layer],
    /// In ascending order of their positions.
    pub(super) members: Vec<MemberModel>,
}

/// One client's model, times its weight where it is to be summed.
pub(super) struct MemberModel {
    pub(super) position: usize,
    pub(super) weight: f64,
    pub(super) parameters: ModelParameters,
    /// The parameters that are needed after the first layer's linear part.
    pub(super) tail: Vec<f64>,
}

impl<'a> RoundModels<'a> {
    /// Local models by their client's position, with their weights, which must not be 0.
    pub(super) fn new(
        architecture: &'a Architecture,
        test_set: &'a CollectiveTestSet,
        models: impl IntoIterator<Item = (usize, f64, Weights)>,
    ) -> Self {
        let layers = up_to_scores(architecture.layers());
        let has_parameters = |layer: &Layer| !matches!(layer, Layer::Activation(..));
        let first = layers.iter().position(has_parameters).unwrap_or(0);
        let keeps_first = matches!(&layers[first], Layer::Gru(_));
        let mut members: Vec<MemberModel> = models
            .into_iter()
            .map(|(position, weight, weights)| {
                let parameters = ModelParameters::new(architecture, &weights);
                let begin = parameters.begins()[if keeps_first { first } else { first + 1 }];
                let tail = parameters.values()[begin..].iter().map(|v| weight * v).collect();
                MemberModel { position, weight, parameters, tail }
            })
            .collect();
        members.sort_by_key(|member| member.position);
        Self { architecture, test_set, first, layers, members }
    }

    /// Models of a coalition's members.
    pub(super) fn members_of(&self, coalition: Coalition) -> impl Iterator<Item = &MemberModel> {
        self.members.iter().filter(move |member| coalition.contains(member.position))
    }

    /// From the first layer's linear outputs to scores.
    pub(super) fn finish(&self, tail: &[f64], samples: usize, scratch: &mut Scratch) {
        let Some(member) = self.members.first() else { return };
        let begins = member.parameters.begins();
        let left_out = member.parameters.values().len() - tail.len();
        let parameters = Tail { values: tail, begins, left_out };
        if let layer @ Layer::Gru(_) = &self.layers[self.first] {
            rest(layer, parameters.layer(self.first), samples, scratch);
        }
        forward(&self.layers[self.first + 1..], parameters.after(self.first + 1), samples, scratch);
    }
}
