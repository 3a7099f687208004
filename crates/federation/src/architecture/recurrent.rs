//! Layers over sequences.

use super::{
    layer::{Embedding, Gru, Layer, Lstm, Source},
    walk::{ShapeWalk, Shaped},
};
use crate::{Defect, Error};

/// Names of a recurrent layer's tensors.
pub(super) struct RecurrentTensors<'a> {
    pub(super) weights: [&'a String; 2],
    pub(super) biases: [Option<&'a String>; 2],
}

impl ShapeWalk<'_> {
    pub(super) fn gru(
        &mut self,
        field: &str,
        value: &Shaped,
        names: &RecurrentTensors,
    ) -> Result<(Layer, Shaped), Error> {
        self.refuse_keras(
            field,
            "gru",
            "Keras orders its gates otherwise: save the tensors in PyTorch's layout",
        )?;
        let [steps, features, hidden] = self.recurrent((field, "gru"), value, names, 3)?;
        let ([weight_ih, weight_hh], [bias_ih, bias_hh]) =
            (names.weights.map(Clone::clone), names.biases.map(|b| b.cloned()));
        let gru = Gru { weight_ih, weight_hh, bias_ih, bias_hh, steps, features, hidden };
        Ok((Layer::Gru(gru), Shaped::new(vec![hidden])))
    }

    pub(super) fn lstm(
        &mut self,
        field: &str,
        value: &Shaped,
        names: &RecurrentTensors,
        sequence: bool,
    ) -> Result<(Layer, Shaped), Error> {
        let [steps, features, hidden] = self.recurrent((field, "lstm"), value, names, 4)?;
        let ([weight_ih, weight_hh], [bias_ih, bias_hh]) =
            (names.weights.map(Clone::clone), names.biases.map(|b| b.cloned()));
        let lstm = Lstm { weight_ih, weight_hh, bias_ih, bias_hh, steps, features, hidden, sequence };
        let shape = if sequence { vec![steps, hidden] } else { vec![hidden] };
        Ok((Layer::Lstm(lstm), Shaped::new(shape)))
    }

    /// Steps, features and hidden numbers of a layer with so many gates.
    fn recurrent(
        &mut self,
        (field, kind): (&str, &'static str),
        value: &Shaped,
        names: &RecurrentTensors,
        gates: usize,
    ) -> Result<[usize; 3], Error> {
        let &[steps, features] = &value.shape[..] else {
            return Err(self.input(field, kind, "[steps, features]", &value.shape));
        };
        if steps == 0 {
            return Err(self.input(field, kind, "[at least 1, features]", &value.shape));
        }
        let rows = self.tensors.matrix(names.weights[0], features, None)?;
        if rows % gates != 0 {
            let found = self.tensors.shape_of(names.weights[0])?;
            let expected = format!("[{gates} hidden, {features}]");
            return Err(self.tensors.wrong(names.weights[0], expected, found, false));
        }
        let hidden = rows / gates;
        if self.tensors.matrix(names.weights[1], hidden, None)? != rows {
            let found = self.tensors.shape_of(names.weights[1])?;
            return Err(self.tensors.wrong(names.weights[1], format!("[{rows}, {hidden}]"), found, false));
        }
        for bias in names.biases {
            self.tensors.expect(bias, &[rows], None)?;
        }
        Ok([steps, features, hidden])
    }

    pub(super) fn embedding(
        &mut self,
        field: &str,
        value: &Shaped,
        weight: &String,
    ) -> Result<(Layer, Shaped), Error> {
        if value.source != Source::Sample {
            return Err(Error::defect(self.spec_file, field, Defect::NotIntegers));
        }
        let found = self.tensors.shape_of(weight)?;
        let &[rows, width] = &found[..] else {
            return Err(self.tensors.wrong(weight, "[rows, width]".to_owned(), found, false));
        };
        if rows == 0 || width == 0 {
            return Err(self.tensors.wrong(weight, "[rows, width]".to_owned(), found, false));
        }
        self.tensors.expect(Some(weight), &found, None)?;
        let layer = Embedding { weight: weight.clone(), positions: value.size(), rows, width };
        let mut shape = value.shape.clone();
        shape.push(width);
        Ok((Layer::Embedding(layer), Shaped::new(shape)))
    }
}
