//! Discrete records from few sharp equations: categories by meeting in the middle, numbers on grids by the
//! nearest points of a lattice.
//!
//! Numbers are taken out first: in the complement of their columns an equation holds of categories alone.
//! There the categories' blocks are split in two halves whose sums must meet; what meets is completed by the
//! grid points near the least-squares solution, and judged by all equations.

use nalgebra::{DMatrix, DVector, SymmetricEigen};

use crate::{
    equations::System,
    grid::{Grid, Schema},
};

/// A record that fits the equations.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// All numbers of the record.
    pub record: Vec<f64>,
    /// Root mean square of what the equations are off, in deviations of the rounding.
    pub misfit: f64,
}

/// The search for the records behind one system.
pub struct RecordSearch<'a> {
    system: &'a System,
    schema: &'a Schema,
    /// Orthonormal: the columns of numbers first, then their complement.
    basis: DMatrix<f64>,
    /// The triangle of the columns of numbers, times their steps.
    triangle: DMatrix<f64>,
    /// Values when every number is at its grid's origin.
    origin: DVector<f64>,
    left: Half,
    right: Half,
    /// Deviation of one equation for a record of usual length.
    noise: f64,
}

/// Sums of one half's blocks in the complement, ordered by the first coordinate, which tells most.
struct Half {
    blocks: Vec<usize>,
    /// Numbers of the entries.
    choices: Vec<Vec<u16>>,
    sums: Vec<Vec<f64>>,
}

/// Lattice points looked at for one record, at most.
const MAX_POINTS: usize = 4096;

impl<'a> RecordSearch<'a> {
    /// Prepares what does not depend on a sample; nothing if there are no more equations than columns of
    /// numbers.
    pub fn new(system: &'a System, schema: &'a Schema) -> Option<Self> {
        let (equations, numbers) = (system.matrix.nrows(), schema.grids.len());
        if equations <= numbers {
            return None;
        }
        let steps = |i: usize, j: usize| {
            let grid = &schema.grids[j];
            system.matrix[(i, grid.column)] * grid.step
        };
        let columns = DMatrix::from_fn(equations, numbers, steps);
        let (basis, triangle) = complete(&columns);
        let mut origin = DVector::zeros(equations);
        schema.grids.iter().for_each(|grid| origin += system.matrix.column(grid.column) * grid.origin);
        let (one, other) = halves(schema);
        let complement = basis.columns(numbers, equations - numbers).into_owned();
        let spread = widest_first(&complement, system, schema);
        let rotated = &complement * spread;
        let mut basis = basis;
        basis.columns_mut(numbers, equations - numbers).copy_from(&rotated);
        let left = Half::new(system, schema, one, &rotated).sorted();
        let right = Half::new(system, schema, other, &rotated);
        let noise = system.rounding * (1.0 + schema.square).sqrt();
        Some(Self { system, schema, basis, triangle, origin, left, right, noise })
    }

    /// Number of sums of both halves.
    pub fn sizes(&self) -> (usize, usize) {
        (self.left.sums.len(), self.right.sums.len())
    }

    /// Records that fit the equations of the sample at a place, best first: off by at most `tolerance`
    /// deviations.
    pub fn candidates(&self, place: usize, tolerance: f64) -> Vec<Candidate> {
        let values = self.system.values.column(place) - &self.origin;
        let numbers = self.schema.grids.len();
        let turned = self.basis.transpose() * &values;
        let target: Vec<f64> = turned.iter().skip(numbers).copied().collect();
        let radius = tolerance * self.noise * (self.system.matrix.nrows() as f64).sqrt();
        let mut found = Vec::new();
        for (i, right) in self.right.sums.iter().enumerate() {
            let wanted: Vec<f64> = target.iter().zip(right).map(|(t, r)| t - r).collect();
            for j in self.left.near(&wanted, radius) {
                found.extend(self.complete(&values, j, i, radius));
            }
        }
        found.sort_by(|a, b| a.misfit.total_cmp(&b.misfit));
        found
    }

    /// The tolerance is widened until candidates appear: nobody need say how sharp the equations are.
    pub fn widening(&self, place: usize, tolerances: &[f64]) -> Vec<Candidate> {
        let found = tolerances.iter().map(|&tolerance| self.candidates(place, tolerance));
        found.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// Numbers for two halves that meet.
    fn complete(&self, values: &DVector<f64>, left: usize, right: usize, radius: f64) -> Vec<Candidate> {
        let mut record = vec![0.0; self.system.matrix.ncols()];
        self.left.write(left, self.schema, &mut record);
        self.right.write(right, self.schema, &mut record);
        let mut rest = values.clone();
        for (column, &x) in record.iter().enumerate().filter(|(_, x)| **x != 0.0) {
            rest -= self.system.matrix.column(column) * x;
        }
        let turned = self.basis.transpose() * rest;
        let numbers = self.schema.grids.len();
        let outside: f64 = turned.iter().skip(numbers).map(|x| x * x).sum();
        let left_over = radius * radius - outside;
        if left_over < 0.0 {
            return Vec::new();
        }
        let mut points = Vec::new();
        let target: Vec<f64> = turned.iter().take(numbers).copied().collect();
        let mut point = vec![0; numbers];
        near_points(&self.triangle, &self.schema.grids, &target, left_over, &mut point, numbers, &mut points);
        let equations = self.system.matrix.nrows() as f64;
        let candidate = |(point, square): (Vec<i64>, f64)| {
            let mut record = record.clone();
            for (grid, multiple) in self.schema.grids.iter().zip(point) {
                record[grid.column] = grid.value(multiple);
            }
            let misfit = ((square + outside) / equations).sqrt() / self.noise;
            Candidate { record, misfit }
        };
        points.into_iter().map(candidate).collect()
    }
}

/// Grid points whose image is within a radius of a target, and how far (squared), coordinate by coordinate
/// from the last.
fn near_points(
    triangle: &DMatrix<f64>,
    grids: &[Grid],
    target: &[f64],
    room: f64,
    point: &mut Vec<i64>,
    open: usize,
    found: &mut Vec<(Vec<i64>, f64)>,
) {
    let Some(place) = open.checked_sub(1) else { return found.push((point.clone(), 0.0)) };
    let behind: f64 = (open..target.len()).map(|j| triangle[(place, j)] * point[j] as f64).sum();
    let (slope, value) = (triangle[(place, place)], target[place] - behind);
    let (centre, width) = (value / slope, room.sqrt() / slope.abs());
    let (low, high) = grids[place].range;
    let first = ((centre - width).ceil() as i64).max(low);
    let last = ((centre + width).floor() as i64).min(high);
    for multiple in first..=last {
        if found.len() > MAX_POINTS {
            return;
        }
        let off = (slope * multiple as f64 - value).powi(2);
        point[place] = multiple;
        let before = found.len();
        near_points(triangle, grids, target, room - off, point, place, found);
        found[before..].iter_mut().for_each(|(_, square)| *square += off);
    }
}

/// An orthonormal basis that begins with the span of some columns, and the triangle that they are in it.
fn complete(columns: &DMatrix<f64>) -> (DMatrix<f64>, DMatrix<f64>) {
    let (rows, count) = columns.shape();
    let mut wide = DMatrix::zeros(rows, rows + count);
    wide.columns_mut(0, count).copy_from(columns);
    // What the columns leave out comes from the identity behind them.
    for place in 0..rows {
        wide[(place, count + place)] = 1.0;
    }
    let basis = wide.qr().q().columns(0, rows).into_owned();
    let triangle = basis.columns(0, count).transpose() * columns;
    (basis, triangle)
}

/// Blocks in two halves with about as many sums.
fn halves(schema: &Schema) -> (Vec<usize>, Vec<usize>) {
    let mut order: Vec<usize> = (0..schema.blocks.len()).collect();
    order.sort_by_key(|&block| std::cmp::Reverse(schema.blocks[block].entries.len()));
    let (mut one, mut other, mut sizes) = (Vec::new(), Vec::new(), (1.0, 1.0));
    for block in order {
        let entries = schema.blocks[block].entries.len() as f64;
        if sizes.0 <= sizes.1 {
            one.push(block);
            sizes.0 *= entries;
        } else {
            other.push(block);
            sizes.1 *= entries;
        }
    }
    (one, other)
}

/// Coordinates of the complement in which sums of categories differ most, widest first.
fn widest_first(complement: &DMatrix<f64>, system: &System, schema: &Schema) -> DMatrix<f64> {
    let dimensions = complement.ncols();
    let mut spread = DMatrix::zeros(dimensions, dimensions);
    for block in &schema.blocks {
        let sums: Vec<DVector<f64>> =
            block.entries.iter().map(|entry| image(complement, system, &block.columns, entry)).collect();
        let mean = sums.iter().fold(DVector::zeros(dimensions), |sum, x| sum + x) / sums.len().max(1) as f64;
        for x in &sums {
            let off = x - &mean;
            spread += &off * off.transpose() / sums.len() as f64;
        }
    }
    let eigen = SymmetricEigen::new(spread);
    let mut order: Vec<usize> = (0..dimensions).collect();
    order.sort_by(|&a, &b| eigen.eigenvalues[b].total_cmp(&eigen.eigenvalues[a]));
    DMatrix::from_fn(dimensions, dimensions, |i, j| eigen.eigenvectors[(i, order[j])])
}

fn image(basis: &DMatrix<f64>, system: &System, columns: &[usize], entry: &[f64]) -> DVector<f64> {
    let mut sum = DVector::zeros(system.matrix.nrows());
    for (&column, &x) in columns.iter().zip(entry) {
        sum += system.matrix.column(column) * x;
    }
    basis.transpose() * sum
}

impl Half {
    fn new(system: &System, schema: &Schema, blocks: Vec<usize>, basis: &DMatrix<f64>) -> Self {
        let mut choices = vec![Vec::new()];
        let mut sums = vec![vec![0.0; basis.ncols()]];
        for &block in &blocks {
            let block = &schema.blocks[block];
            let images: Vec<_> =
                block.entries.iter().map(|entry| image(basis, system, &block.columns, entry)).collect();
            let (mut more, mut added) = (Vec::new(), Vec::new());
            for (choice, sum) in choices.iter().zip(&sums) {
                for (number, image) in images.iter().enumerate() {
                    more.push([choice.as_slice(), &[number as u16]].concat());
                    added.push(sum.iter().zip(image.iter()).map(|(a, b)| a + b).collect::<Vec<f64>>());
                }
            }
            (choices, sums) = (more, added);
        }
        Self { blocks, choices, sums }
    }

    fn sorted(self) -> Self {
        let first = |i: usize| self.sums[i].first().copied().unwrap_or(0.0);
        let mut order: Vec<usize> = (0..self.sums.len()).collect();
        order.sort_by(|&a, &b| first(a).total_cmp(&first(b)));
        let choices = order.iter().map(|&i| self.choices[i].clone()).collect();
        let sums = order.iter().map(|&i| self.sums[i].clone()).collect();
        Self { blocks: self.blocks, choices, sums }
    }

    /// Sums within a radius, where sums are sorted.
    fn near(&self, wanted: &[f64], radius: f64) -> Vec<usize> {
        let Some(&first) = wanted.first() else { return (0..self.sums.len()).collect() };
        let start = self.sums.partition_point(|sum| sum[0] < first - radius);
        let in_reach = (start..self.sums.len()).take_while(|&i| self.sums[i][0] <= first + radius);
        let is_near = |&i: &usize| {
            let square: f64 = self.sums[i].iter().zip(wanted).map(|(a, b)| (a - b) * (a - b)).sum();
            square <= radius * radius
        };
        in_reach.filter(is_near).collect()
    }

    /// Writes the entries behind a sum into a record.
    fn write(&self, number: usize, schema: &Schema, record: &mut [f64]) {
        for (&block, &choice) in self.blocks.iter().zip(&self.choices[number]) {
            let block = &schema.blocks[block];
            for (&column, &x) in block.columns.iter().zip(&block.entries[usize::from(choice)]) {
                record[column] = x;
            }
        }
    }
}
