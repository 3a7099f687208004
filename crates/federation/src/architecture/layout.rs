//! How other frameworks lay out tensors, and the way from there to what layers take.

use crate::{Defect, Tensor};

/// A tensor that does not lie in files as layers take it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stored {
    /// `[inputs, outputs]` instead of `[outputs, inputs]`. Where the inputs were images, `order` says which input each
    /// row belongs to.
    Dense { inputs: usize, outputs: usize, order: Option<Vec<usize>> },
    /// `[height, width, inputs, outputs]` instead of these `[outputs, inputs, height, width]`.
    Kernel([usize; 4]),
    /// `[height, width, channels, multiplier]` instead of these `[channels * multiplier, 1, height, width]`.
    Depthwise { shape: [usize; 4], multiplier: usize },
    /// A vector in the order of a flattened image.
    Vector(Vec<usize>),
}

impl Stored {
    /// The tensor as layers take it.
    pub(super) fn arrange(&self, tensor: &Tensor) -> Result<Tensor, Defect> {
        let shape = self.shape();
        let count = shape.iter().product();
        let mut sources = vec![0; count];
        match self {
            Self::Dense { inputs, outputs, order } => {
                for row in 0..*inputs {
                    let input = order.as_ref().map_or(row, |order| order[row]);
                    for output in 0..*outputs {
                        sources[output * inputs + input] = row * outputs + output;
                    }
                }
            }
            Self::Kernel([outputs, inputs, height, width]) => {
                for (place, source) in sources.iter_mut().enumerate() {
                    let (output, input) =
                        (place / (inputs * height * width), place / (height * width) % inputs);
                    let (y, x) = (place / width % height, place % width);
                    *source = ((y * width + x) * inputs + input) * outputs + output;
                }
            }
            Self::Depthwise { shape: [outputs, _, height, width], multiplier } => {
                let channels = outputs / multiplier;
                for (place, source) in sources.iter_mut().enumerate() {
                    let output = place / (height * width);
                    let (y, x) = (place / width % height, place % width);
                    *source =
                        ((y * width + x) * channels + output / multiplier) * multiplier + output % multiplier;
                }
            }
            Self::Vector(order) => order.iter().enumerate().for_each(|(row, &place)| sources[place] = row),
        }
        if tensor.len() != count {
            return Err(Defect::Shape { expected: format!("{shape:?}"), found: tensor.shape().to_vec() });
        }
        let numbers: Vec<f64> = tensor.numbers().collect();
        let arranged = sources.into_iter().map(|source| numbers[source]);
        match tensor.is_double() {
            true => Tensor::of_doubles(shape, arranged.collect()),
            false => Tensor::new(shape, arranged.map(|number| number as f32).collect()),
        }
    }

    fn shape(&self) -> Vec<usize> {
        match self {
            Self::Dense { inputs, outputs, .. } => vec![*outputs, *inputs],
            Self::Kernel(shape) | Self::Depthwise { shape, .. } => shape.to_vec(),
            Self::Vector(order) => vec![order.len()],
        }
    }
}

/// For each number of an image as `[height, width, channels]` has it, its place among `[channels, height, width]`.
pub(crate) fn stored_order([channels, height, width]: [usize; 3]) -> Vec<usize> {
    let positions = height * width;
    (0..positions).flat_map(|at| (0..channels).map(move |channel| channel * positions + at)).collect()
}
