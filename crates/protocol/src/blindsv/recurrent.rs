//! What a recurrent unit would cost by straight pieces: too much, so that such models are refused with the figure.
//!
//! A hidden unit of a step takes two sigmoids and one tanh, each a curve with its knots, and two products of numbers that are both
//! hidden: r times what enters tanh, and z times the old state less the new one. Between any two of them numbers are opened and cut.

use secsv_federation::Activation;

use super::{
    between::Between,
    hops::{Gate, Hop, Hops},
    lanes::LANES,
    shape::{Circuit, DealtNumbers, Outcome, Shape, Stage, Widths},
};
use crate::{Error, Program};

/// Bits of a word, of what is kept and of what is dropped of a number: those of the paper's recurrent models, as planned.
const WORD: u32 = 48;
const KEPT: u32 = 20;
const DROPPED: u32 = 20;
/// Numbers that are dealt for a product of two hidden ones: both masks and their product, both top bits and their products.
const PRODUCT_NUMBERS: usize = 8;

/// Bytes that all parties send for one number of one sample and coalition that goes through a function.
fn function_bytes(activation: Activation) -> usize {
    let gate = Gate::of(&[activation]).unwrap_or(Gate::Linear);
    let between = Between { before: None, largest: None, gate, after: None };
    let hop = Hop { word: WORD, ..Hop::new(&between, 1, (KEPT, DROPPED)) };
    let mut hops = Hops::of_layer(WORD);
    (hops.all, hops.words) = (vec![hop], vec![WORD; 2]);
    let circuit = Circuit::new(hops, Widths::new(WORD, LANES as u64), (1, 2), Outcome::Total);
    let shape = Shape::new(circuit.into(), LANES);
    let of_hop =
        |stage: &Stage| matches!(stage, Stage::Outputs(_) | Stage::HopComparison(..) | Stage::Inputs(_));
    let stages = shape.all_stages().iter().copied().filter(of_hop);
    let opened = stages.map(|stage| {
        let (each, planes) = (shape.opened(stage) * shape.bytes(stage), shape.dealt_planes(stage));
        2 * each + planes * size_of::<u64>()
    });
    let dealt = shape.dealt_arrays().into_iter().filter(|array| matches!(array.what, DealtNumbers::Item(..)));
    (opened.sum::<usize>() + dealt.map(|array| array.count * array.bytes()).sum::<usize>()) / LANES
}

/// Bytes that all parties would send for a hidden unit and step of one sample and coalition.
pub(super) fn unit_bytes() -> usize {
    let (word, opened) = (WORD as usize / 8, 2 * (KEPT + DROPPED) as usize / 8);
    let product = PRODUCT_NUMBERS * word + opened;
    2 * function_bytes(Activation::Sigmoid) + function_bytes(Activation::Tanh) + 2 * product
}

/// Refuses a recurrent unit, with what it would cost.
pub(crate) fn check(program: &Program) -> Result<(), Error> {
    let Some(gru) = program.gru else { return Ok(()) };
    let (hidden, steps) = (program.hidden(), gru.steps);
    Err(Error::Recurrent { hidden, steps, bytes: unit_bytes() * hidden * steps })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A knot costs a sign and three numbers, and whatever is opened once costs little beside.
    #[test]
    fn a_hidden_unit_costs_more_than_a_kilobyte() {
        let (relu, sigmoid, tanh) = (
            function_bytes(Activation::Relu),
            function_bytes(Activation::Sigmoid),
            function_bytes(Activation::Tanh),
        );
        let knot = (tanh - sigmoid) / 4;
        assert!((20..60).contains(&knot), "{knot}");
        assert!(relu > knot && sigmoid > 12 * knot && sigmoid < 12 * knot + relu, "{relu} {sigmoid} {tanh}");
        assert!((1_000..2_500).contains(&unit_bytes()), "{}", unit_bytes());
    }
}
