//! How a table writes its cells: what parts them, and how numbers look.

/// What parts columns, and what parts the fraction of a number from the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    pub(super) delimiter: u8,
    pub(super) decimal: Decimal,
}

/// What parts the fraction of a number from the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decimal {
    Point,
    Comma,
}

impl Dialect {
    /// The dialect of a text. Semicolons and tabs part columns where each line has as many; commas otherwise.
    pub(super) fn of(text: &str) -> Self {
        let lines: Vec<&str> =
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        let count = |line: &str, delimiter: u8| line.bytes().filter(|byte| *byte == delimiter).count();
        let most = |delimiter: u8| lines.first().map_or(0, |line| count(line, delimiter));
        let parts_all = |delimiter: &u8| {
            let expected = most(*delimiter);
            expected > 0 && lines.iter().all(|line| count(line, *delimiter) == expected)
        };
        let usual = || [b',', b';', b'\t'].into_iter().max_by_key(|delimiter| most(*delimiter));
        let delimiter = [b';', b'\t'].into_iter().find(parts_all).or_else(usual).unwrap_or(b',');
        let has_commas = || {
            let cells = || {
                lines
                    .iter()
                    .flat_map(|line| line.split(char::from(delimiter)))
                    .map(|cell| cell.trim().trim_matches('"'))
            };
            cells().any(|cell| Decimal::Point.double(cell).is_none() && Decimal::Comma.double(cell).is_some())
        };
        let decimal = if delimiter != b',' && has_commas() { Decimal::Comma } else { Decimal::Point };
        Self { delimiter, decimal }
    }
}

impl Decimal {
    /// The number of a cell, if it is one.
    pub(super) fn double(self, cell: &str) -> Option<f64> {
        match self {
            Self::Point => cell.parse().ok(),
            Self::Comma if cell.contains('.') => None,
            Self::Comma => cell.replacen(',', ".", 1).parse().ok(),
        }
    }

    /// The number of a cell in single precision, or what was expected instead.
    pub(super) fn single(self, cell: &str) -> Result<f32, &'static str> {
        let number = self.double(cell).filter(|number| number.is_finite() || is_large(cell));
        match (number.map(|number| number as f32), self) {
            (Some(number), _) if number.is_finite() => Ok(number),
            (Some(_), _) => Err("a number from -3.4e38 to 3.4e38"),
            (None, Self::Point) => Err("a number"),
            (None, Self::Comma) => Err("a number with a decimal comma, as elsewhere in this file"),
        }
    }
}

/// Whether a cell is a number that is merely too large, and not a word for infinity.
fn is_large(cell: &str) -> bool {
    cell.bytes().any(|byte| byte.is_ascii_digit())
}

/// A cell as it is told.
pub(super) fn described(cell: &str) -> String {
    if cell.is_empty() { "an empty cell".to_owned() } else { cell.to_owned() }
}
