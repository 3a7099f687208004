//! Candidates recognised among an owner's samples: a known model gives the same outputs for the same record.

use nalgebra::DMatrix;

use crate::equations::System;

/// The candidate behind each sample, where exactly one fits: off by at most `tolerance` deviations of the
/// rounding in every equation. `candidates` has a column for each.
pub fn recognise(system: &System, candidates: &DMatrix<f64>, tolerance: f64) -> Vec<Option<usize>> {
    let outputs = &system.matrix * candidates;
    let bound = |candidate: usize| {
        tolerance * system.rounding * (1.0 + candidates.column(candidate).norm_squared()).sqrt()
    };
    let bounds: Vec<f64> = (0..candidates.ncols()).map(bound).collect();
    let of_sample = |sample: usize| {
        let values = system.values.column(sample);
        let fits = |candidate: &usize| {
            let pairs = values.iter().zip(outputs.column(*candidate));
            pairs.into_iter().all(|(a, b)| (a - b).abs() <= bounds[*candidate])
        };
        let mut fitting = (0..candidates.ncols()).filter(fits);
        fitting.next().filter(|_| fitting.next().is_none())
    };
    (0..system.values.ncols()).map(of_sample).collect()
}
