//! A model's linear maps, as everybody has them.

use secsv_algebra::{Matrix, Ring64};
use secsv_federation::Weights;
use secsv_protocol::{Error, Program};

/// A model's numbers for an operator: its rows of weights, one after the other, and its biases.
pub fn numbers(program: &Program, operator: usize, model: &Weights) -> (Vec<f64>, Vec<f64>) {
    let is_compared = operator + 1 == program.operators.len() && program.compares_with_last_class();
    let operator = &program.operators[operator];
    let (rows, d_in) = (operator.shape.d_out + usize::from(is_compared), operator.shape.d_in);
    let mut weights = tensor(model, Some(&operator.weight), rows * d_in);
    let mut biases = tensor(model, operator.bias.as_ref(), rows);
    let has_one_score = is_compared && model.get(&operator.weight).is_some_and(|t| t.len() < rows * d_in);
    if has_one_score {
        // The one score says how far the second class is above the first.
        weights.truncate(d_in);
        biases.truncate(1);
        weights.iter_mut().chain(&mut biases).for_each(|number| *number = -*number);
    } else if is_compared {
        // Rows are what the scores of a class are above the last one's.
        let last = weights.split_off((rows - 1) * d_in);
        weights.iter_mut().zip(last.iter().cycle()).for_each(|(weight, last)| *weight -= last);
        let last = biases.pop().unwrap_or(0.0);
        biases.iter_mut().for_each(|bias| *bias -= last);
    }
    (weights, biases)
}

/// Which number of a sample is input `o` at a position, at `position * d_in + o`; none where a convolution is
/// padded.
pub fn sources(program: &Program, operator: usize) -> Result<Vec<Option<usize>>, Error> {
    let operator = &program.operators[operator];
    // A sample that says of each number which it is.
    let numbered = Matrix::from_fn(Ring64, operator.input_size(), 1, |number, _| number as u64 + 1);
    let columns = operator.arrange(&numbered)?;
    let places = (0..operator.positions).flat_map(|p| (0..operator.shape.d_in).map(move |o| (o, p)));
    Ok(places.map(|(o, position)| (columns.at(o, position) as usize).checked_sub(1)).collect())
}

/// A tensor's numbers; zeros where a model has none.
fn tensor(model: &Weights, name: Option<&String>, size: usize) -> Vec<f64> {
    let found = name.and_then(|name| model.get(name));
    let mut numbers: Vec<f64> = found.map_or(Vec::new(), |tensor| tensor.numbers().collect());
    numbers.resize(size, 0.0);
    numbers
}
