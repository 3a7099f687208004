//! Tables that become Markdown and CSV: in each compared cell our figure, the paper's, and the ratio.

use std::fmt::Write as _;

use serde::Serialize;

/// One cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A figure of ours alone.
    Number(f64),
    /// A count: printed whole.
    Count(u64),
    /// A figure of ours beside the paper's.
    Compared {
        /// Ours.
        ours: f64,
        /// The paper's.
        paper: Option<f64>,
        /// Factor by which ours is better.
        ratio: Option<f64>,
    },
    /// Nothing, with a reason.
    Gap {
        /// Why.
        gap: String,
    },
}

impl Cell {
    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A count; a mean of counts that is not whole keeps its decimals.
    pub fn count(count: f64) -> Self {
        if count >= 0.0 && count.fract() == 0.0 { Self::Count(count as u64) } else { Self::Number(count) }
    }

    /// Why there is no figure.
    pub fn gap(reason: impl Into<String>) -> Self {
        Self::Gap { gap: reason.into() }
    }

    /// A figure of which less is better; the ratio is the paper's over ours.
    pub fn less_is_better(ours: f64, paper: Option<f64>) -> Self {
        let ratio = paper.filter(|paper| *paper > 0.0 && ours > 0.0).map(|paper| paper / ours);
        Self::Compared { ours, paper, ratio }
    }

    /// Ours beside the paper's, of which none is the better one.
    pub fn beside(ours: f64, paper: Option<f64>) -> Self {
        Self::Compared { ours, paper, ratio: None }
    }

    fn markdown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(value) => figure(*value),
            Self::Count(count) => count.to_string(),
            Self::Compared { ours, paper: None, .. } => figure(*ours),
            Self::Compared { ours, paper: Some(paper), ratio: None } => {
                format!("**{}** / {}", figure(*ours), figure(*paper))
            }
            Self::Compared { ours, paper: Some(paper), ratio: Some(ratio) } => {
                format!("**{}** / {} ({}x)", figure(*ours), figure(*paper), figure(*ratio))
            }
            Self::Gap { gap } => format!("gap: {gap}"),
        }
    }
}

/// Three figures are what measurements here are worth.
pub fn figure(value: f64) -> String {
    let size = value.abs();
    match () {
        () if value == 0.0 => "0".to_owned(),
        () if !value.is_finite() => "-".to_owned(),
        () if size < 1e-3 => format!("{value:.2e}"),
        () if size < 0.1 => format!("{value:.4}"),
        () if size < 10.0 => format!("{value:.2}"),
        () if size < 100.0 => format!("{value:.1}"),
        () => format!("{value:.0}"),
    }
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ResultTable {
    /// Its file's name without `.csv`.
    pub name: String,
    /// Heads of the columns.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
}

impl ResultTable {
    /// An empty table.
    pub fn new(name: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        Self { name: name.to_owned(), columns, rows: Vec::new() }
    }

    /// Adds a row; what it has no cell for stays empty.
    pub fn push(&mut self, mut row: Vec<Cell>) {
        row.resize(self.columns.len(), Cell::text(""));
        self.rows.push(row);
    }

    /// For people.
    pub fn markdown(&self) -> String {
        let mut text = format!("| {} |\n|{}\n", self.columns.join(" | "), "---|".repeat(self.columns.len()));
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|cell| cell.markdown().replace('|', "/")).collect();
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        text
    }

    /// For programs: a compared column becomes three.
    pub fn csv(&self) -> String {
        let is_compared = |place: usize| {
            self.rows.iter().any(|row| matches!(row.get(place), Some(Cell::Compared { paper: Some(_), .. })))
        };
        let compared: Vec<bool> = (0..self.columns.len()).map(is_compared).collect();
        let mut head = Vec::new();
        for (column, compared) in self.columns.iter().zip(&compared) {
            head.push(quoted(column));
            if *compared {
                head.extend([quoted(&format!("{column}, paper")), quoted(&format!("{column}, ratio"))]);
            }
        }
        let mut text = head.join(",") + "\n";
        for row in &self.rows {
            let mut line = Vec::new();
            for (cell, compared) in row.iter().zip(&compared) {
                let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
                let (ours, paper, ratio) = match cell {
                    Cell::Text(text) => (quoted(text), None, None),
                    Cell::Number(value) => (value.to_string(), None, None),
                    Cell::Count(count) => (count.to_string(), None, None),
                    Cell::Compared { ours, paper, ratio } => (ours.to_string(), *paper, *ratio),
                    Cell::Gap { gap } => (quoted(&format!("gap: {gap}")), None, None),
                };
                line.push(ours);
                if *compared {
                    line.extend([number(paper), number(ratio)]);
                }
            }
            text.push_str(&line.join(","));
            text.push('\n');
        }
        text
    }
}

fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compared_column_has_ours_the_papers_and_the_ratio() {
        let mut table = ResultTable::new("t", &["task", "total s"]);
        table.rows.push(vec![Cell::text("BANK, \"x\""), Cell::less_is_better(0.5, Some(137.0))]);
        table.rows.push(vec![Cell::text("digits"), Cell::less_is_better(0.25, None)]);
        table.rows.push(vec![Cell::text("MNIST"), Cell::gap("no data")]);
        table.rows.push(vec![Cell::text("n"), Cell::count(4.0)]);
        table.rows.push(vec![Cell::text("mean"), Cell::count(4.5)]);
        assert_eq!(
            table.csv(),
            "task,total s,\"total s, paper\",\"total s, ratio\"\n\"BANK, \"\"x\"\"\",0.5,137,274\ndigits,0.25,,\nMNIST,gap: no data,,\nn,4,,\nmean,4.5,,\n"
        );
        assert_eq!(
            table.markdown(),
            "| task | total s |\n|---|---|\n| BANK, \"x\" | **0.50** / 137 (274x) |\n| digits | 0.25 |\n| MNIST | gap: no data |\n| n | 4 |\n| mean | 4.50 |\n"
        );
    }
}
