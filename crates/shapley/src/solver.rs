//! Linear and quadratic programs, by the interior-point library clarabel.

use clarabel::{
    algebra::CscMatrix,
    solver::{DefaultSettings, DefaultSolver, IPSolver, NonnegativeConeT, SolverStatus, ZeroConeT},
};

use crate::Error;

/// Minimise 1/2 sum curvature_i x_i^2 + slope . x, subject to rows, equalities first.
pub(crate) struct QuadraticProgram {
    curvature: Vec<f64>,
    slope: Vec<f64>,
    equalities: usize,
    rows: Vec<(Vec<(usize, f64)>, f64)>,
}

impl QuadraticProgram {
    pub(crate) fn new(curvature: Vec<f64>, slope: Vec<f64>) -> Self {
        Self { curvature, slope, equalities: 0, rows: Vec::new() }
    }

    /// row . x = bound. All equalities come before the first inequality.
    pub(crate) fn equal(&mut self, row: Vec<(usize, f64)>, bound: f64) {
        debug_assert_eq!(self.equalities, self.rows.len(), "equalities come first");
        self.equalities += 1;
        self.rows.push((row, bound));
    }

    /// row . x <= bound.
    pub(crate) fn at_most(&mut self, row: Vec<(usize, f64)>, bound: f64) {
        self.rows.push((row, bound));
    }

    /// The minimiser.
    pub(crate) fn solve(&self, method: &'static str) -> Result<Vec<f64>, Error> {
        let variables = self.slope.len();
        let quadratic = diagonal(&self.curvature);
        let (mut at_row, mut at_column, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        for (index, (row, _)) in self.rows.iter().enumerate() {
            for &(variable, coefficient) in row {
                at_row.push(index);
                at_column.push(variable);
                entries.push(coefficient);
            }
        }
        let matrix = CscMatrix::new_from_triplets(self.rows.len(), variables, at_row, at_column, entries);
        let bounds: Vec<f64> = self.rows.iter().map(|(_, bound)| *bound).collect();
        let cones = [ZeroConeT(self.equalities), NonnegativeConeT(self.rows.len() - self.equalities)];
        let settings = DefaultSettings {
            verbose: false,
            tol_gap_abs: 1e-11,
            tol_gap_rel: 1e-11,
            tol_feas: 1e-11,
            ..DefaultSettings::default()
        };
        let mut solver = DefaultSolver::new(&quadratic, &self.slope, &matrix, &bounds, &cones, settings)
            .map_err(|_| Error::Solver { method, found: SolverStatus::Unsolved })?;
        solver.solve();
        match solver.solution.status {
            // The tolerances asked for are near what doubles give: a result at the library's reduced ones
            // will do.
            SolverStatus::Solved | SolverStatus::AlmostSolved => Ok(solver.solution.x.clone()),
            found => Err(Error::Solver { method, found }),
        }
    }
}

fn diagonal(entries: &[f64]) -> CscMatrix<f64> {
    let places: Vec<usize> = (0..entries.len()).filter(|&place| entries[place] != 0.0).collect();
    let kept = places.iter().map(|&place| entries[place]).collect();
    CscMatrix::new_from_triplets(entries.len(), entries.len(), places.clone(), places, kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_program_has_its_known_minimum() {
        // Nearest point to the origin with x + y = 2 and x <= 0.5.
        let mut program = QuadraticProgram::new(vec![1.0, 1.0], vec![0.0, 0.0]);
        program.equal(vec![(0, 1.0), (1, 1.0)], 2.0);
        program.at_most(vec![(0, 1.0)], 0.5);
        let found = program.solve("test").unwrap();
        assert!((found[0] - 0.5).abs() < 1e-8 && (found[1] - 1.5).abs() < 1e-8, "{found:?}");
    }

    #[test]
    fn an_infeasible_program_is_reported() {
        let mut program = QuadraticProgram::new(vec![0.0], vec![1.0]);
        program.at_most(vec![(0, 1.0)], -1.0);
        program.at_most(vec![(0, -1.0)], -1.0);
        assert!(matches!(program.solve("test"), Err(Error::Solver { .. })));
    }
}
