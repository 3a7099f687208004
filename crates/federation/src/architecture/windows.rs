//! Convolutions and pools: where their windows are.

use super::{
    layer::{Activation, Conv2d, Layer, Pool},
    walk::{ShapeWalk, Shaped},
};
use crate::{ConvolutionSpec, Error, PoolSpec};

impl ShapeWalk<'_> {
    pub(super) fn conv2d(
        &mut self,
        field: &str,
        value: &Shaped,
        spec: &ConvolutionSpec,
    ) -> Result<(Layer, Shaped), Error> {
        let &[channels, height, width] = &value.shape[..] else {
            return Err(self.input(field, "conv2d", "[channels, height, width]", &value.shape));
        };
        let (conv, output) = self.convolution((field, "conv2d"), [channels, height, width], spec, 2)?;
        Ok((Layer::Conv2d(conv), Shaped::new(output.to_vec())))
    }

    /// The same over images of height 1.
    pub(super) fn conv1d(
        &mut self,
        field: &str,
        value: &Shaped,
        spec: &ConvolutionSpec,
    ) -> Result<(Layer, Shaped), Error> {
        self.refuse_keras(field, "conv1d", "say it as a conv2d over images of height 1")?;
        let &[channels, length] = &value.shape[..] else {
            return Err(self.input(field, "conv1d", "[channels, length]", &value.shape));
        };
        let (conv, [outputs, _, length]) =
            self.convolution((field, "conv1d"), [channels, 1, length], spec, 1)?;
        Ok((Layer::Conv2d(conv), Shaped::new(vec![outputs, length])))
    }

    fn convolution(
        &mut self,
        (field, kind): (&str, &'static str),
        input: [usize; 3],
        spec: &ConvolutionSpec,
        dimensions: usize,
    ) -> Result<(Conv2d, [usize; 3]), Error> {
        let ConvolutionSpec { weight, bias, stride, padding, dilation, groups } = spec;
        let [channels, height, width] = input;
        if channels % groups != 0 {
            let expected = format!("[a multiple of {groups} channels, ...]");
            return Err(self.input(field, kind, &expected, &input));
        }
        let kernel = self.tensors.kernel(weight, (channels, *groups), dimensions)?;
        let [outputs, kernel @ ..] = kernel;
        if outputs % groups != 0 {
            let found = self.tensors.shape_of(weight)?;
            return Err(self.tensors.wrong(weight, format!("a multiple of {groups} outputs"), found, false));
        }
        // In one dimension there is nothing above and below.
        let down = |number: usize, alone: usize| if dimensions == 2 { number } else { alone };
        let (strides, paddings) = ([down(*stride, 1), *stride], [down(*padding, 0), *padding]);
        let dilations = [down(*dilation, 1), *dilation];
        let steps = |size: usize, side: usize| {
            let spread = (kernel[side] - 1).checked_mul(dilations[side])?.checked_add(1)?;
            size.checked_add(2 * paddings[side])?.checked_sub(spread).map(|room| room / strides[side] + 1)
        };
        let (Some(rows), Some(columns)) = (steps(height, 0), steps(width, 1)) else {
            let least = format!("at least [{channels}, {}, {}] with its padding", kernel[0], kernel[1]);
            return Err(self.input(field, kind, &least, &input));
        };
        self.tensors.expect(bias.as_ref(), &[outputs], None)?;
        let output = [outputs, rows, columns];
        let conv = Conv2d {
            weight: weight.clone(),
            bias: bias.clone(),
            input,
            output,
            kernel,
            stride: strides,
            padding: paddings,
            dilation: dilations,
            groups: *groups,
        };
        Ok((conv, output))
    }

    pub(super) fn pool(
        &mut self,
        field: &str,
        (value, dimensions): (&Shaped, usize),
        spec: &PoolSpec,
        make: fn(Pool) -> Activation,
    ) -> Result<(Layer, Shaped), Error> {
        let kind = if dimensions == 2 { "pool" } else { "one-dimensional pool" };
        let input = match (&value.shape[..], dimensions) {
            (&[channels, height, width], 2) => [channels, height, width],
            (&[channels, length], 1) => {
                self.refuse_keras(field, kind, "say it over images of height 1")?;
                [channels, 1, length]
            }
            (found, _) => {
                let expected =
                    if dimensions == 2 { "[channels, height, width]" } else { "[channels, length]" };
                return Err(self.input(field, kind, expected, found));
            }
        };
        let (size, stride, padding) = (spec.size, spec.stride.unwrap_or(spec.size), spec.padding);
        let down = |number: usize, alone: usize| if dimensions == 2 { number } else { alone };
        let (size, stride, padding) =
            ([down(size, 1), size], [down(stride, 1), stride], [down(padding, 0), padding]);
        let steps = |side: usize| {
            let room = input[side + 1].checked_add(2 * padding[side])?.checked_sub(size[side])?;
            (2 * padding[side] <= size[side]).then_some(room / stride[side] + 1)
        };
        let (Some(rows), Some(columns)) = (steps(0), steps(1)) else {
            let least = format!(
                "at least [{}, {}, {}] and padding of at most half a window",
                input[0], size[0], size[1]
            );
            return Err(self.input(field, kind, &least, &value.shape));
        };
        let output = [input[0], rows, columns];
        let shape = if dimensions == 2 { output.to_vec() } else { vec![input[0], columns] };
        let layer = Layer::Activation(make(Pool { input, output, size, stride, padding }), value.size());
        Ok((layer, Shaped::new(shape)))
    }

    /// One window over everything of each channel.
    pub(super) fn global_pool(
        &mut self,
        field: &str,
        value: &Shaped,
        make: fn(Pool) -> Activation,
    ) -> Result<(Layer, Shaped), Error> {
        let input = match value.shape[..] {
            [channels, height, width] => [channels, height, width],
            [channels, length] => {
                self.refuse_keras(field, "global pool of sequences", "say it over images of height 1")?;
                [channels, 1, length]
            }
            _ => return Err(self.input(field, "global pool", "[channels, ...]", &value.shape)),
        };
        let [channels, height, width] = input;
        if height * width == 0 {
            return Err(self.input(field, "global pool", "[channels, at least 1, at least 1]", &value.shape));
        }
        let (size, output) = ([height, width], [channels, 1, 1]);
        let pool = Pool { input, output, size, stride: size, padding: [0, 0] };
        Ok((Layer::Activation(make(pool), value.size()), Shaped::new(vec![channels])))
    }
}
