//! The constrained fit and its sampling error.

use nalgebra::{DMatrix, DVector};

use super::{Kernel, Stratum};
use crate::{Error, UtilityTable, utility::everybody, values::Estimate};

/// With psi = phi - total/n the constraint is "sums to nothing", and a coalition's row z - |S|/n is
/// orthogonal to the constraint, so adding any multiple of the all-ones matrix makes the normal equations
/// regular without changing their solution.
pub(super) fn fit(kernel: &Kernel, table: &UtilityTable) -> Result<Estimate, Error> {
    let n = kernel.clients;
    let (empty, all) = table.ends()?;
    let total = all - empty;
    if n == 1 {
        return Ok(Estimate::exact(vec![total]));
    }
    let undetermined = || Error::Undetermined { method: kernel.method, clients: n, found: table.len() };
    let game = FitProblem { n, empty, total, table };
    let mut weighted = Vec::new();
    for stratum in kernel.strata.iter().filter(|stratum| !stratum.drawn.is_empty()) {
        let weight = stratum.mass / stratum.drawn.len() as f64 / 2.0;
        weighted.extend(stratum.drawn.iter().flat_map(|&pair| game.both(pair)).map(|s| (s, weight)));
    }
    let (inverse, psi) = solve(&game, &weighted)?.ok_or_else(undetermined)?;
    let values = psi.iter().map(|value| value + total / n as f64).collect();
    let standard_errors =
        if kernel.is_complete() { None } else { Some(standard_errors(kernel, &game, &inverse, &psi)?) };
    Ok(Estimate::sampled(values, standard_errors))
}

/// The values that fit coalitions of these weights, for a plan that weighs them itself; `None` if they say
/// too little.
pub(super) fn fit_weighted(
    n: usize,
    weighted: &[(u128, f64)],
    table: &UtilityTable,
) -> Result<Option<Vec<f64>>, Error> {
    let (empty, all) = table.ends()?;
    let total = all - empty;
    let fitted = solve(&FitProblem { n, empty, total, table }, weighted)?;
    Ok(fitted.map(|(_, psi)| psi.iter().map(|value| value + total / n as f64).collect()))
}

/// The inverse of the normal matrix, and psi.
type Fitted = (DMatrix<f64>, DVector<f64>);

/// `None` where the coalitions do not determine the fit.
fn solve(game: &FitProblem<'_>, weighted: &[(u128, f64)]) -> Result<Option<Fitted>, Error> {
    let n = game.n;
    let mut normal = DMatrix::from_element(n, n, 1.0 / n as f64);
    let mut right = DVector::zeros(n);
    for &(coalition, weight) in weighted {
        let row = game.row(coalition);
        right.axpy(weight * game.target(coalition)?, &row, 1.0);
        normal.ger(weight, &row, &row, 1.0);
    }
    Ok(invert(normal).map(|inverse| {
        let psi = &inverse * right;
        (inverse, psi)
    }))
}

struct FitProblem<'a> {
    n: usize,
    empty: f64,
    total: f64,
    table: &'a UtilityTable,
}

impl FitProblem<'_> {
    fn both(&self, pair: u128) -> [u128; 2] {
        [pair, everybody(self.n) & !pair]
    }

    fn row(&self, coalition: u128) -> DVector<f64> {
        let share = f64::from(coalition.count_ones()) / self.n as f64;
        DVector::from_fn(self.n, |client, _| f64::from(coalition >> client & 1 == 1) - share)
    }

    fn target(&self, coalition: u128) -> Result<f64, Error> {
        let share = f64::from(coalition.count_ones()) / self.n as f64;
        Ok(self.table.need(coalition)? - self.empty - share * self.total)
    }
}

fn invert(normal: DMatrix<f64>) -> Option<DMatrix<f64>> {
    let largest = normal.diagonal().max();
    let cholesky = normal.cholesky()?;
    let smallest_pivot = cholesky.l_dirty().diagonal().min();
    (smallest_pivot * smallest_pivot > 1e-10 * largest).then(|| cholesky.inverse())
}

/// The fit makes the weighted scores of all pairs sum to nothing; how far that sum would move with other
/// pairs drawn, taken through the inverse of the normal matrix, is the sampling error (the sandwich formula
/// with the finite-population factor of each size).
fn standard_errors(
    kernel: &Kernel,
    game: &FitProblem<'_>,
    inverse: &DMatrix<f64>,
    psi: &DVector<f64>,
) -> Result<Vec<f64>, Error> {
    let n = game.n;
    let mut scatters = Vec::new();
    for stratum in &kernel.strata {
        scatters.push(scatter(stratum, game, psi)?);
    }
    let freedom: usize = kernel.strata.iter().map(|stratum| stratum.drawn.len().saturating_sub(1)).sum();
    let pooled =
        scatters.iter().fold(DMatrix::zeros(n, n), |sum, scatter| sum + scatter) / freedom.max(1) as f64;
    let mut middle = DMatrix::zeros(n, n);
    for (stratum, scatter) in kernel.strata.iter().zip(scatters) {
        let drawn = stratum.drawn.len() as f64;
        if drawn == 0.0 || stratum.is_exhausted() {
            continue;
        }
        let covariance = if drawn > 1.0 { scatter / (drawn - 1.0) } else { pooled.clone() };
        middle += covariance * (stratum.mass * stratum.mass / drawn * (1.0 - drawn / stratum.pairs));
    }
    let covariance = inverse * middle * inverse;
    Ok(covariance.diagonal().iter().map(|variance| variance.max(0.0).sqrt()).collect())
}

/// Sum over the pairs drawn of (score - mean)(score - mean)', a pair's score being the mean of row times
/// residual.
fn scatter(stratum: &Stratum, game: &FitProblem<'_>, psi: &DVector<f64>) -> Result<DMatrix<f64>, Error> {
    let mut scores = Vec::with_capacity(stratum.drawn.len());
    for &pair in &stratum.drawn {
        let mut score = DVector::zeros(game.n);
        for coalition in game.both(pair) {
            let row = game.row(coalition);
            let residual = game.target(coalition)? - row.dot(psi);
            score.axpy(0.5 * residual, &row, 1.0);
        }
        scores.push(score);
    }
    let mut sum = DMatrix::zeros(game.n, game.n);
    let mean =
        scores.iter().fold(DVector::zeros(game.n), |sum, score| sum + score) / scores.len().max(1) as f64;
    for score in scores {
        let off = score - &mean;
        sum.ger(1.0, &off, &off, 1.0);
    }
    Ok(sum)
}
