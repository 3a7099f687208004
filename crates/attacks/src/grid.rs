//! The values that columns of a table take: categories and grids, learnt from the attacker's own rows.

/// Columns whose values come together, and every combination that was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The columns.
    pub columns: Vec<usize>,
    /// Their values, one entry a combination.
    pub entries: Vec<Vec<f64>>,
}

/// A column of numbers on a grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// The column.
    pub column: usize,
    /// A value on the grid.
    pub origin: f64,
    /// The distance of neighbours.
    pub step: f64,
    /// The lowest and highest multiple of the step that is looked at.
    pub range: (i64, i64),
}

/// The form that an attacker expects of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// Categories.
    pub blocks: Vec<Block>,
    /// Numbers.
    pub grids: Vec<Grid>,
    /// The mean of a row's squared length.
    pub square: f64,
}

/// Own rows are single precision and standardised: closer values are equal.
const EQUAL: f64 = 2e-4;

impl Schema {
    /// From own rows of `width` numbers: which columns form categories, and which are numbers, each with how
    /// many times finer its grid is known to be than the attacker's own records show.
    pub fn learn(rows: &[f32], width: usize, blocks: &[&[usize]], numbers: &[(usize, u32)]) -> Self {
        let rows: Vec<&[f32]> = rows.chunks_exact(width.max(1)).collect();
        let block = |columns: &&[usize]| {
            let entry = |row: &&[f32]| columns.iter().map(|&c| f64::from(row[c])).collect::<Vec<f64>>();
            let mut entries: Vec<Vec<f64>> = rows.iter().map(entry).collect();
            entries.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
            entries.dedup();
            Block { columns: columns.to_vec(), entries }
        };
        let grid = |&(column, finer): &(usize, u32)| {
            let values: Vec<f64> = rows.iter().map(|row| f64::from(row[column])).collect();
            Grid::learn(column, &values, finer)
        };
        let square: f64 = rows.iter().flat_map(|row| row.iter()).map(|&x| f64::from(x) * f64::from(x)).sum();
        Self {
            blocks: blocks.iter().map(block).collect(),
            grids: numbers.iter().map(grid).collect(),
            square: square / rows.len().max(1) as f64,
        }
    }
}

impl Grid {
    /// The coarsest grid that holds all values, made `finer`, over twice their range.
    fn learn(column: usize, values: &[f64], finer: u32) -> Self {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let origin = values.first().copied().unwrap_or(0.0);
        let distances: Vec<f64> = values.iter().map(|v| v - origin).filter(|d| *d > EQUAL).collect();
        let coarse = distances.iter().copied().reduce(common_step).unwrap_or(1.0);
        // All values together say the step more precisely than two of them.
        let pairs = distances.iter().map(|d| (d, (d / coarse).round()));
        let (up, down) = pairs.fold((0.0, 0.0), |(up, down), (d, k)| (up + d * k, down + k * k));
        let step = if down > 0.0 { up / down } else { coarse } / f64::from(finer.max(1));
        let span = distances.last().map_or(0, |most| (most / step).round() as i64).max(1);
        Self { column, origin, step, range: (-span / 2, span + span / 2) }
    }

    /// The value at a multiple of the step.
    pub fn value(&self, multiple: i64) -> f64 {
        self.origin + self.step * multiple as f64
    }
}

/// The largest step of which both are multiples, by Euclid's algorithm on numbers that are nearly exact.
fn common_step(mut a: f64, mut b: f64) -> f64 {
    while b > EQUAL {
        let rest = (a - (a / b).round() * b).abs();
        (a, b) = (b, rest);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_found_behind_a_standardised_column() {
        let raw = [29.0, 35.0, 44.0, 50.0, 63.0];
        let values: Vec<f64> = raw.iter().map(|x| f64::from(((x - 47.3) / 9.41) as f32)).collect();
        let grid = Grid::learn(2, &values, 1);
        assert!((grid.step - 1.0 / 9.41).abs() < 1e-6, "{grid:?}");
        assert_eq!(grid.range, (-17, 51));
        assert!((grid.value(34) - (63.0 - 47.3) / 9.41).abs() < 1e-5);
        let halves = Grid::learn(0, &[0.0, 0.5, 1.5, 3.0], 5);
        assert!((halves.step - 0.1).abs() < 1e-9);
    }

    #[test]
    fn categories_are_those_that_were_seen() {
        let rows = [1.0, 0.0, 5.0, 0.0, 1.0, 5.0, 1.0, 0.0, 6.0];
        let schema = Schema::learn(&rows, 3, &[&[0, 1]], &[(2, 1)]);
        assert_eq!(schema.blocks[0].entries, [[0.0, 1.0], [1.0, 0.0]]);
        assert_eq!((schema.grids[0].origin, schema.grids[0].step), (5.0, 1.0));
    }
}
