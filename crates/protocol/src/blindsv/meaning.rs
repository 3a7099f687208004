//! What the numbers stand for that servers open, as views say it (docs/VIEWS.md): of which sum they are, modulo what, and how many times
//! a real number they are. Nothing in a run follows from it.

use secsv_federation::{Coalition, RoundId};

use super::{
    hops::{Scales, factor},
    shape::{Circuit, Stage},
    view::opened_at,
    wiring::{Node, NodeKind, Term},
};
use crate::{
    session::BlindSession,
    views::{SeenStage, SeenSum, SeenTerm},
};

/// How a number stands for a real one: it is the real number over `scale`, plus `offset`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Meaning {
    pub scale: f64,
    pub offset: i64,
}

impl Circuit {
    /// What is opened, stage by stage.
    pub(crate) fn seen_stages(&self) -> Vec<SeenStage> {
        let seen = |(index, &stage): (usize, &Stage)| SeenStage {
            stage: index,
            what: opened_at(stage),
            sum: self.sum_at(stage),
            numbers: stage.is_numbers().then(|| self.numbers(stage).0),
            bits: stage.is_numbers().then(|| match stage {
                // Servers compare them modulo this, and need no more.
                Stage::Larger(hop, _) => self.hops.all[hop].kept,
                _ => self.numbers(stage).1,
            }),
        };
        self.all_stages().iter().enumerate().map(seen).collect()
    }

    /// What is added up before each of these.
    pub(crate) fn seen_sums(&self) -> Vec<SeenSum> {
        let seen = |(index, node): (usize, &Node)| SeenSum {
            sum: index,
            terms: node.terms.iter().map(seen_term).collect(),
            of_model: node.kind != NodeKind::Sample,
        };
        self.hops.wiring.nodes.iter().enumerate().map(seen).collect()
    }

    /// The sum that the numbers of a stage are of, or are made of.
    pub(super) fn sum_at(&self, stage: Stage) -> usize {
        match stage {
            Stage::Outputs(hop)
            | Stage::RangeComparison(hop, _)
            | Stage::PairComparison(hop, ..)
            | Stage::Larger(hop, _)
            | Stage::HopComparison(hop, _)
            | Stage::Inputs(hop) => hop,
            Stage::Scores | Stage::Margins | Stage::Comparison(_) | Stage::Conjunction(_) => {
                self.hops.all.len()
            }
        }
    }
}

impl Circuit {
    /// The operator whose outputs the numbers of a stage are, or that takes them first.
    pub(super) fn operator_at(&self, stage: Stage) -> Option<usize> {
        let nodes = &self.hops.wiring.nodes;
        let node = match stage {
            Stage::Inputs(hop) => nodes.iter().find(|node| {
                node.terms.iter().any(|term| term.product().is_some() && term.values().contains(&(hop + 1)))
            }),
            _ => nodes.get(self.sum_at(stage)),
        };
        node?.operators().next()
    }
}

fn seen_term(term: &Term) -> SeenTerm {
    let what = match term {
        Term::Spread { .. } => "spread",
        _ if term.product().is_some() => "product",
        _ if term.operator().is_some() => "biases",
        _ if term.is_scaled() => "scaled",
        _ => "values",
    };
    SeenTerm { what, operator: term.operator(), values: term.values().to_vec() }
}

impl BlindSession {
    /// What the numbers of a stage stand for, of a coalition's model; none where planes are opened.
    pub(super) fn meaning(&self, stage: Stage, (round, coalition): (RoundId, Coalition)) -> Option<Meaning> {
        let (share, scales) = (self.total_share(round, coalition), self.scales(round, coalition));
        let hops = self.hops();
        let is_last = |stage| matches!(stage, Stage::Scores | Stage::Margins);
        let times = match stage {
            Stage::Outputs(sum) => self.summed(sum, share, &scales)? * factor(hops.all[sum].before.as_ref()),
            Stage::Larger(sum, _) => {
                let outputs = self.summed(sum, share, &scales)? * factor(hops.all[sum].before.as_ref());
                outputs * f64::powi(0.5, scales.dropped[sum] as i32)
            }
            Stage::Inputs(sum) => self.handed_on(sum + 1, &scales)?,
            stage if is_last(stage) => {
                self.summed(hops.all.len(), share, &scales)? * factor(hops.scores.as_ref())
            }
            _ => return None,
        };
        let offset = match stage {
            Stage::Outputs(sum) => hops.all[sum].offset(scales.dropped[sum]).cast_signed(),
            _ => 0,
        };
        Some(Meaning { scale: times.recip(), offset })
    }

    /// How many times the real numbers a sum is, brought to scale.
    fn summed(&self, sum: usize, share: f64, scales: &Scales) -> Option<f64> {
        let hops = self.hops();
        let Some(of_node) = hops.nodes.get(sum) else {
            let format = self.precision.operators.get(sum)?;
            let kappa = scales.kappas.get(sum).copied().unwrap_or(1.0);
            return Some(share * kappa * f64::powi(2.0, format.product_bits() as i32));
        };
        let node = hops.wiring.nodes.get(sum)?;
        let has_operators = node.operators().next().is_some();
        let share = if has_operators { share } else { 1.0 };
        let bits = match node.operators().next() {
            // Biases at the scale of the sum have so many bits, and their factor.
            Some(operator) => {
                let bias = self.precision.operators.get(operator)?.bias;
                (bias.fractional_bits() + hops.factors[operator]) as i32
            }
            None => of_node.target()?,
        };
        Some(share * f64::powi(2.0, bits) * scales.sum(sum) as f64)
    }

    /// How many times the real numbers a value is that later sums take.
    fn handed_on(&self, value: usize, scales: &Scales) -> Option<f64> {
        let hops = self.hops();
        if hops.nodes.is_empty() {
            let bits = self.precision.operators.get(value)?.input.fractional_bits();
            return Some(scales.kappas.get(value)? * f64::powi(2.0, bits as i32));
        }
        let nodes = hops.wiring.nodes.iter().zip(&hops.nodes);
        let mut of_terms = nodes.flat_map(|(node, scales)| node.terms.iter().zip(scales.stands_for()));
        of_terms.find_map(|(term, stands_for)| {
            let place = term.values().iter().position(|other| *other == value)?;
            stands_for.get(place).copied()
        })
    }
}
