//! What lies between two operators, as one hop computes it: sums of outputs, the largest of some, a function of each, sums of results.

use secsv_federation::{Activation, Pool};

use super::{curve::Curve, hops::Gate, largest::Tournament, sums::Sums};

/// Layers without parameters, as one hop.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Between {
    /// Sums of outputs.
    pub before: Option<Sums>,
    /// The largest of some of these.
    pub largest: Option<Tournament>,
    /// A function of each of these.
    pub gate: Gate,
    /// Sums of what it gives.
    pub after: Option<Sums>,
}

impl Between {
    /// As many layers as one hop can compute, from the first on, and how many these are.
    pub(crate) fn of(activations: &[Activation]) -> (Self, usize) {
        let mut found = Parts::default();
        let taken = activations.iter().take_while(|activation| found.take(activation)).count();
        let largest = Tournament::of(&found.pools);
        let gate = Gate::of(&found.functions).unwrap_or(Gate::Linear);
        (Self { before: found.before, largest, gate, after: found.after }, taken)
    }
}

/// What a hop would have to compute.
#[derive(Default)]
struct Parts {
    before: Option<Sums>,
    pools: Vec<Pool>,
    functions: Vec<Activation>,
    after: Option<Sums>,
}

impl Parts {
    /// Takes one more layer, if one hop still computes them all.
    fn take(&mut self, activation: &Activation) -> bool {
        if let Some(sums) = Sums::of(activation) {
            let is_first = self.pools.is_empty() && self.functions.is_empty();
            let place = if is_first { &mut self.before } else { &mut self.after };
            *place = Some(match place.take() {
                Some(before) => before.then(&sums),
                None => sums,
            });
            return true;
        }
        // A function of each number does not mind their order.
        let is_summed = self.after.as_ref().is_some_and(|sums| !sums.is_order());
        match activation {
            // The largest of values of a rising function is the value of the largest.
            Activation::MaxPool(pool) if self.after.is_none() => {
                let is_rising = Curve::of(&self.functions).is_some_and(|curve| curve.is_rising());
                if is_rising {
                    self.pools.push(*pool);
                }
                is_rising
            }
            activation if activation.is_pointwise() && !is_summed => {
                self.functions.push(*activation);
                let is_one = Gate::of(&self.functions).is_some();
                if !is_one {
                    self.functions.pop();
                }
                is_one
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use secsv_federation::Activation::{
        AveragePool, LeakyRelu, MaxPool, Relu, Relu6, Sigmoid, Softmax, Square, Transpose,
    };

    use super::*;

    #[test]
    fn a_hop_takes_what_it_can_compute() {
        let pool =
            Pool { input: [1, 4, 4], output: [1, 2, 2], size: [2; 2], stride: [2; 2], padding: [0; 2] };
        let turned = Transpose { rows: 2, columns: 2 };
        let taken = |activations: &[Activation]| Between::of(activations).1;
        assert_eq!(taken(&[]), 0);
        assert_eq!(taken(&[Relu, Relu6, MaxPool(pool), turned, Relu]), 5);
        assert_eq!(taken(&[AveragePool(pool), Relu, turned]), 3);
        assert_eq!(taken(&[MaxPool(pool), LeakyRelu(-1.0), turned]), 3);
        // The largest number is not behind the largest value of what falls, a mean not behind the mean's.
        assert_eq!(taken(&[LeakyRelu(-1.0), MaxPool(pool)]), 1);
        assert_eq!(taken(&[Square, MaxPool(pool)]), 1);
        assert_eq!(taken(&[Relu, AveragePool(pool), Relu]), 2);
        assert_eq!(taken(&[Relu, Square]), 1);
        assert_eq!(taken(&[Square, Relu]), 1);
        assert_eq!(taken(&[Softmax(4)]), 0);
        // By straight pieces.
        assert_eq!(taken(&[Sigmoid, Relu, MaxPool(pool)]), 3);
        let (between, _) = Between::of(&[AveragePool(pool), Relu, turned]);
        assert_eq!(between.before.map(|sums| (sums.count(), sums.factor())), Some((4, 4)));
        assert_eq!((between.largest, between.gate), (None, Gate::Relu));
    }
}
