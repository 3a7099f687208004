//! The local models of one round, with what is needed to finish a forward pass from first-layer outputs.

use super::{
    ModelParameters,
    forward::{Scratch, forward, rest},
    parameters::Tail,
};
use crate::{Architecture, Coalition, CollectiveTestSet, Layer, PlacedLayer, Source, Weights, up_to_scores};

/// The layer whose outputs for a coalition are sums of those of its members: the first with parameters, if its outputs
/// are linear in them and nothing behind it takes what lies before it.
pub(super) fn summed_layer(layers: &[PlacedLayer]) -> Option<usize> {
    let first = layers.iter().position(|placed| placed.layer.has_parameters())?;
    let is_linear = matches!(
        layers[first].layer,
        Layer::Linear(_) | Layer::Conv2d(_) | Layer::Gru(_) | Layer::Lstm(_) | Layer::Embedding(_)
    );
    let is_alone = |(place, placed): (usize, &PlacedLayer)| match place <= first {
        true => placed.from == [Source::before(place)],
        false => placed.from.iter().all(|&source| source >= Source::Layer(first)),
    };
    (is_linear && layers.iter().enumerate().all(is_alone)).then_some(first)
}

/// The local models of one round and the samples they are tested on.
pub(super) struct RoundModels<'a> {
    pub(super) architecture: &'a Architecture,
    pub(super) test_set: &'a CollectiveTestSet<'a>,
    /// The layer that is summed ([`summed_layer`]); the first one, where none is.
    pub(super) first: usize,
    /// Whether there is one.
    pub(super) has_sums: bool,
    pub(super) layers: &'a [PlacedLayer],
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
        test_set: &'a CollectiveTestSet<'a>,
        models: impl IntoIterator<Item = (usize, f64, Weights)>,
    ) -> Self {
        let layers = up_to_scores(architecture.layers());
        let summed = summed_layer(layers);
        let first = summed.unwrap_or(0);
        let keeps_first = is_recurrent(&layers[first].layer);
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
        Self { architecture, test_set, first, has_sums: summed.is_some(), layers, members }
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
        let placed = &self.layers[self.first];
        if is_recurrent(&placed.layer) {
            rest(&placed.layer, parameters.layer(self.first), samples, scratch);
        }
        if placed.is_kept {
            scratch.keep(Source::Layer(self.first));
        }
        forward(self.layers, self.first + 1, parameters, samples, scratch);
    }
}

/// Whether more follows its sums within the layer.
fn is_recurrent(layer: &Layer) -> bool {
    matches!(layer, Layer::Gru(_) | Layer::Lstm(_))
}
