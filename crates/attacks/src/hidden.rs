//! Numbers of layers that the servers of BlindSV open to each other under masks, stage by stage (docs/VIEWS.md): as one server has them,
//! under the other's masks alone, or as both have them together, without masks.

use std::collections::BTreeMap;

use nalgebra::DMatrix;
use secsv_federation::{Coalition, RoundId};
use secsv_protocol::{Program, precision::shares};
use serde::Deserialize;

use crate::{
    operators::sources,
    view::{ClientView, DecryptedOutputs},
};

/// What the servers open at a stage.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Stage {
    /// Its number.
    pub stage: usize,
    /// What it is: `masked outputs`, `masked inputs` and so on.
    pub what: String,
    /// The sum that it is, or is made of.
    pub sum: usize,
    /// Numbers of one sample; none where bits are opened.
    pub numbers: Option<usize>,
    /// They are modulo two to this power.
    pub bits: Option<u32>,
}

/// What is added up before the servers open it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Sum {
    /// Its number. What is handed on of it is the value of the next number.
    pub sum: usize,
    /// All terms.
    pub terms: Vec<Term>,
    /// Whether it is the same for all samples.
    pub of_model: bool,
}

/// A term of a sum.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Term {
    /// `product`, `values`, `biases`, `spread` or `scaled`.
    pub what: String,
    /// The operator.
    pub operator: Option<usize>,
    /// The values that it takes; 0 is the sample.
    pub values: Vec<usize>,
}

/// The numbers of a stage, of one coalition's model on some samples of one owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Hidden {
    /// The round.
    pub round: RoundId,
    /// Whose model.
    pub coalition: Coalition,
    /// Whose samples.
    pub owner: usize,
    /// Which of them.
    pub samples: Vec<usize>,
    /// The stage.
    pub stage: usize,
    /// A number less the offset, times this, is the real one.
    pub scale: f64,
    /// See `scale`.
    pub offset: i64,
    /// One for each sample, or one where numbers are the same for all.
    pub columns: usize,
    /// A row for each number, row by row.
    pub numbers: Vec<i64>,
}

/// Whose numbers they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The round.
    pub round: RoundId,
    /// Whose model.
    pub coalition: Coalition,
    /// Whose samples.
    pub owner: usize,
    /// The first of them.
    pub first: Option<usize>,
    /// The stage.
    pub stage: usize,
}

impl Hidden {
    /// Where they stand.
    pub fn place(&self) -> Place {
        let Self { round, coalition, owner, stage, .. } = *self;
        Place { round, coalition, owner, first: self.samples.first().copied(), stage }
    }

    /// The real number of a row for the sample at a place of the list.
    pub fn real(&self, row: usize, place: usize) -> f64 {
        let column = if self.columns == self.samples.len() { place } else { 0 };
        self.numbers[row * self.columns + column].wrapping_sub(self.offset) as f64 * self.scale
    }
}

/// What somebody has of the stages of a run.
#[derive(Clone, Debug)]
pub struct HiddenNumbers {
    /// All stages, as everybody knows them.
    pub stages: Vec<Stage>,
    /// All sums.
    pub sums: Vec<Sum>,
    /// Numbers that were read. Opened bits are not among them.
    pub all: Vec<Hidden>,
    /// Samples that it has, by owner: a row for each number, a column for each sample.
    pub samples: BTreeMap<usize, DMatrix<f64>>,
}

/// Two to this power is the modulus: the number of smallest magnitude.
pub(crate) fn centred(number: i64, bits: u32) -> i64 {
    (number << (64 - bits)) >> (64 - bits)
}

impl HiddenNumbers {
    /// Bits of a stage's numbers.
    pub fn bits(&self, stage: usize) -> u32 {
        self.stages.get(stage).and_then(|stage| stage.bits).unwrap_or(64)
    }

    /// Y + V_A and Y + V_P, less both parts of Y + V_P + V_A, is Y.
    pub(crate) fn pooled(self, other: &Self, sent: &[Vec<Hidden>; 2]) -> Self {
        let by_place =
            |all: &[Hidden]| all.iter().map(|h| (h.place(), h.numbers.clone())).collect::<BTreeMap<_, _>>();
        let (other, sent) = (by_place(&other.all), sent.each_ref().map(|all| by_place(all)));
        let mut pooled = self;
        let stages = pooled.stages.clone();
        pooled.all.retain_mut(|hidden| {
            let place = hidden.place();
            let (Some(other), Some(p), Some(a)) =
                (other.get(&place), sent[0].get(&place), sent[1].get(&place))
            else {
                return false;
            };
            let bits = stages.get(hidden.stage).and_then(|stage| stage.bits).unwrap_or(64);
            for (index, number) in hidden.numbers.iter_mut().enumerate() {
                let sum = number.wrapping_add(other[index]).wrapping_sub(p[index]).wrapping_sub(a[index]);
                *number = centred(sum, bits);
            }
            true
        });
        pooled
    }

    /// The stage at which a sum is opened: as it is, or, if it is handed on, what is made of it.
    fn stage(&self, sum: usize, what: &str) -> Option<usize> {
        let found = self.stages.iter().find(|stage| stage.sum == sum && stage.what == what);
        found.map(|stage| stage.stage)
    }

    /// The numbers of a stage, by round, coalition and owner, chunk by chunk.
    fn of_stage(&self, stage: usize) -> BTreeMap<(RoundId, Coalition, usize), Vec<&Hidden>> {
        let mut found: BTreeMap<_, Vec<&Hidden>> = BTreeMap::new();
        for hidden in self.all.iter().filter(|hidden| hidden.stage == stage) {
            found.entry((hidden.round, hidden.coalition, hidden.owner)).or_default().push(hidden);
        }
        found.values_mut().for_each(|chunks| chunks.sort_by_key(|hidden| hidden.samples.first().copied()));
        found
    }

    /// Sums that are nothing but the outputs of one operator, as a client of other protocols would decrypt them: those of a coalition are
    /// the sum of its members'.
    pub fn outputs(&self, view: &ClientView) -> Vec<DecryptedOutputs> {
        let mut found = Vec::new();
        for sum in &self.sums {
            let [Term { what, operator: Some(operator), .. }] = &sum.terms[..] else { continue };
            let (map, format) = (&view.program.operators[*operator], view.precision.operators[*operator]);
            let size = map.output_size();
            let stage = self.stage(sum.sum, "masked outputs");
            let is_plain = |stage: &usize| self.stages[*stage].numbers == Some(size);
            let Some(stage) = stage.filter(is_plain).filter(|_| what == "product") else { continue };
            for ((round, coalition, owner), chunks) in self.of_stage(stage) {
                let scale = share_of(view, round, coalition) * f64::powi(2.0, format.product_bits() as i32);
                let mut numbers = Vec::new();
                for (position, j) in
                    (0..map.positions).flat_map(|p| (0..map.shape.d_out).map(move |j| (p, j)))
                {
                    let row = map.target(j, position);
                    let of_chunk = |hidden: &&Hidden| {
                        (0..hidden.samples.len()).map(|k| hidden.real(row, k)).collect::<Vec<_>>()
                    };
                    numbers
                        .extend(chunks.iter().flat_map(of_chunk).map(|real| (real * scale).round() as i64));
                }
                let samples = chunks.iter().flat_map(|hidden| hidden.samples.iter().copied()).collect();
                let (step, operator, first) = (stage, *operator, 0);
                found.push(DecryptedOutputs {
                    round,
                    coalition,
                    owner,
                    samples,
                    step,
                    operator,
                    first,
                    numbers,
                });
            }
        }
        found
    }

    /// Inputs and outputs of an operator of one coalition's model, on all samples of which both are there and in all sums that it is in: a
    /// row for each of the operator's windows, the constant 1 last. Values that are added to it are taken off; sums with anything else are
    /// left out. Inputs may be somebody else's.
    pub fn ends(
        &self,
        inputs_of: &Self,
        program: &Program,
        operator: usize,
        model: (RoundId, Coalition),
    ) -> Option<(DMatrix<f64>, DMatrix<f64>)> {
        let (map, sources) = (&program.operators[operator], sources(program, operator).ok()?);
        let (mut rows, mut values) = (Vec::new(), Vec::new());
        for sum in &self.sums {
            let (own, others): (Vec<&Term>, Vec<&Term>) =
                sum.terms.iter().partition(|term| term.what == "product" && term.operator == Some(operator));
            let Some(stage) = self.stage(sum.sum, "masked outputs") else { continue };
            let is_plain = self.stages[stage].numbers == Some(map.output_size())
                && others.iter().all(|term| term.what == "values");
            let ([own], true) = (&own[..], is_plain) else { continue };
            let is_meant =
                |hidden: &&Hidden| hidden.stage == stage && (hidden.round, hidden.coalition) == model;
            for hidden in self.all.iter().filter(is_meant) {
                let others = others.iter().map(|term| inputs_of.values(&term.values, hidden));
                let others: Option<Vec<Vec<Vec<f64>>>> = others.collect();
                let Some((inputs, others)) = inputs_of.values(&own.values, hidden).zip(others) else {
                    continue;
                };
                for (k, position) in
                    (0..hidden.samples.len()).flat_map(|k| (0..map.positions).map(move |p| (k, p)))
                {
                    let window = &sources[position * map.shape.d_in..][..map.shape.d_in];
                    let numbers = window.iter().map(|from| from.map_or(0.0, |from| inputs[from][k]));
                    rows.extend(numbers.chain([1.0]));
                    let output = |j: usize| {
                        let row = map.target(j, position);
                        hidden.real(row, k) - others.iter().map(|other| other[row][k]).sum::<f64>()
                    };
                    values.extend((0..map.shape.d_out).map(output));
                }
            }
        }
        let (d_out, d_in) = (map.shape.d_out, map.shape.d_in);
        let count = rows.len() / (d_in + 1);
        let matrix = DMatrix::from_row_slice(count, d_in + 1, &rows);
        (count > 0).then(|| (matrix, DMatrix::from_row_slice(count, d_out, &values)))
    }

    /// Real numbers of some values on the samples of an array, one value behind the other: number by number, sample by sample.
    fn values(&self, values: &[usize], of: &Hidden) -> Option<Vec<Vec<f64>>> {
        let mut found = Vec::new();
        for value in values {
            let Some(sum) = value.checked_sub(1) else {
                let samples = self.samples.get(&of.owner)?;
                let row = |row: usize| of.samples.iter().map(|&k| samples[(row, k)]).collect();
                found.extend((0..samples.nrows()).map(row));
                continue;
            };
            let stage = self.stage(sum, "masked inputs")?;
            let place = Place { stage, ..of.place() };
            let hidden = self.all.iter().find(|hidden| hidden.place() == place)?;
            let row = |row: usize| (0..of.samples.len()).map(|k| hidden.real(row, k)).collect();
            found.extend((0..self.stages[stage].numbers?).map(row));
        }
        Some(found)
    }
}

/// A coalition's share of the training data of a round.
fn share_of(view: &ClientView, round: RoundId, coalition: Coalition) -> f64 {
    let shares = shares(view.sizes.get(&round).map_or(&[][..], |sizes| sizes));
    coalition.members().filter_map(|client| shares.get(client)).sum()
}
