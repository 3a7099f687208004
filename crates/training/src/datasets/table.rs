//! Any CSV of numbers with a label column.

mod cells;

use std::collections::BTreeSet;

use cells::{Decimal, Dialect};

use super::files::Content;
use crate::{Samples, TrainingError};

/// A table read from CSV: standard 0-based labels and what they were called in the file.
#[derive(Debug)]
pub(crate) struct LabelledTable {
    pub(crate) samples: Samples,
    pub(crate) class_names: Vec<String>,
    /// Where the labels were, whether a line named columns, and how numbers are written.
    pub(crate) layout: String,
}

/// The rows of a table, and what its columns are called.
struct Rows {
    records: Vec<csv::StringRecord>,
    header: Option<csv::StringRecord>,
    decimal: Decimal,
}

impl Rows {
    /// The header, if it names every column.
    fn names(&self) -> Option<&csv::StringRecord> {
        let width = self.records.first().map(csv::StringRecord::len);
        self.header.as_ref().filter(|header| Some(header.len()) == width)
    }

    /// A place in the table, with the column's name where it has one.
    fn place(&self, line: u64, column: usize) -> String {
        let named = self.names().map_or(String::new(), |names| format!(" ({})", &names[column]));
        format!("line {line}, column {}{named}", column + 1)
    }
}

/// Reads a table. The delimiter (comma, semicolon or tab), decimal commas and a header line are detected. `label` is a
/// column's name or its number from 1; without it the last column holds the labels.
pub(crate) fn parse(content: &Content, label: Option<&str>) -> Result<LabelledTable, TrainingError> {
    let rows = read(content)?;
    let Some(width) = rows.records.first().map(csv::StringRecord::len) else {
        let found = if rows.header.is_some() { "a header alone" } else { "none" };
        return Err(content.wrong("rows", "at least one row of numbers", found));
    };
    if width < 2 {
        return Err(content.wrong("columns", "a label and at least one feature", width.to_string()));
    }
    let column = label_column(content, label, rows.names(), width)?;
    let features = numbers(content, &rows, column, width)?;
    let (labels, class_names) = classes(content, &rows, column)?;
    if rows.header.is_none() {
        check_first(content, &labels, &class_names)?;
        check_counting(content, &rows)?;
    }
    let called = rows.names().map_or(String::new(), |names| format!(" ({})", &names[column]));
    let header = match rows.records.first() {
        Some(first) if rows.header.is_none() => format!("no header: line {} is a sample", line(first)),
        _ => "a header".to_owned(),
    };
    let commas = if rows.decimal == Decimal::Comma { ", decimal commas" } else { "" };
    let layout = format!("{header}, labels in column {}{called}{commas}", column + 1);
    Ok(LabelledTable { samples: Samples::new(vec![width - 1], features, labels), class_names, layout })
}

/// The rows, without blank lines, lines that begin with `#`, and a header.
fn read(content: &Content) -> Result<Rows, TrainingError> {
    let text = content.text()?.trim_start_matches('\u{feff}');
    let dialect = Dialect::of(text);
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(dialect.delimiter)
        .comment(Some(b'#'))
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let mut records = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| content.wrong("CSV", "a table", error.to_string()))?;
        if !(record.len() == 1 && record[0].is_empty()) {
            records.push(record);
        }
    }
    let header = take_header(&mut records, dialect.decimal);
    Ok(Rows { records, header, decimal: dialect.decimal })
}

/// A first line of numbers whose label nobody else has is a header more likely than a sample.
fn check_first(content: &Content, labels: &[u32], class_names: &[String]) -> Result<(), TrainingError> {
    let counts = counts(labels, class_names.len());
    let is_alone = |class: &u32| counts.get(*class as usize) == Some(&1);
    let Some(first) = labels.first().filter(|class| is_alone(class)) else { return Ok(()) };
    // Of two rows each may be alone.
    if counts.iter().filter(|count| **count == 1).count() > 1 {
        return Ok(());
    }
    let found = format!(
        "the only sample of class {}: name the columns if it is a header",
        class_names[*first as usize]
    );
    Err(content.wrong("line 1", "a header of names, or a sample of a class that others have", found))
}

/// A first line that counts its fields, from 0 or 1, is what programs write where columns have no names. It is no sample unless its
/// owner says so, by a header before it.
fn check_counting(content: &Content, rows: &Rows) -> Result<(), TrainingError> {
    let Some(first) = rows.records.first() else { return Ok(()) };
    let number = |field: &str| field.parse::<usize>().ok();
    let start = first.get(0).and_then(number).filter(|start| *start <= 1);
    let counts = |start: usize| (start..).zip(first).all(|(expected, field)| number(field) == Some(expected));
    if first.len() < MIN_COUNTED || !start.is_some_and(counts) {
        return Ok(());
    }
    let found = format!(
        "numbers that count the columns ({}, ...): put names in their place, or a header of names before this line if it is a sample",
        first.iter().take(3).collect::<Vec<_>>().join(", ")
    );
    Err(content.wrong(format!("line {}", line(first)), "a header of names, or a sample", found))
}

/// Fewer fields may count by chance.
const MIN_COUNTED: usize = 4;

/// Samples of each class.
pub(crate) fn counts(labels: &[u32], classes: usize) -> Vec<usize> {
    let mut counts = vec![0; classes];
    labels.iter().filter_map(|&label| usize::try_from(label).ok()).for_each(|label| {
        if let Some(count) = counts.get_mut(label) {
            *count += 1;
        }
    });
    counts
}

/// Takes the first line away if it is no row of numbers: it names columns, or gives counts and class names as
/// the tables bundled with scikit-learn do (`rows,features,name,name`).
fn take_header(records: &mut Vec<csv::StringRecord>, decimal: Decimal) -> Option<csv::StringRecord> {
    let texts =
        |record: &csv::StringRecord| record.iter().filter(|field| decimal.double(field).is_none()).count();
    let first = records.first()?;
    let is_header = match records.get(1) {
        Some(second) => texts(first) > texts(second) || first.len() != second.len(),
        // Of a sample the label alone may be a name.
        None => texts(first) > 1,
    };
    is_header.then(|| records.remove(0))
}

fn label_column(
    content: &Content,
    label: Option<&str>,
    header: Option<&csv::StringRecord>,
    width: usize,
) -> Result<usize, TrainingError> {
    let Some(label) = label else { return Ok(width - 1) };
    let by_name = header.and_then(|header| header.iter().position(|field| field == label));
    let by_number =
        label.parse::<usize>().ok().filter(|number| (1..=width).contains(number)).map(|number| number - 1);
    by_name.or(by_number).ok_or_else(|| {
        let names = header
            .map_or(String::new(), |header| format!(" ({})", header.iter().collect::<Vec<_>>().join(", ")));
        content.wrong("label column", format!("a column's name or number 1 to {width}{names}"), label)
    })
}

fn numbers(content: &Content, rows: &Rows, label: usize, width: usize) -> Result<Vec<f32>, TrainingError> {
    let mut features = Vec::with_capacity(rows.records.len() * (width - 1));
    for record in &rows.records {
        let line = line(record);
        if record.len() != width {
            let (expected, found) = (format!("{width} fields"), record.len().to_string());
            return Err(content.wrong(format!("line {line}"), expected, found));
        }
        for (column, field) in record.iter().enumerate().filter(|&(column, _)| column != label) {
            match rows.decimal.single(field) {
                Ok(number) => features.push(number),
                Err(expected) => {
                    let found = cells::described(field) + &others(rows, label);
                    return Err(content.wrong(rows.place(line, column), expected, found));
                }
            }
        }
    }
    Ok(features)
}

/// How many cells hold no number, if there are several: their owner decides what becomes of them, because nothing is filled
/// in here.
fn others(rows: &Rows, label: usize) -> String {
    let is_lacking =
        |(column, field): &(usize, &str)| *column != label && rows.decimal.single(field).is_err();
    let lacking: usize =
        rows.records.iter().map(|record| record.iter().enumerate().filter(is_lacking).count()).sum();
    match lacking {
        0 | 1 => " (fill it in or leave its row out)".to_owned(),
        many => format!(" (one of {many} cells without a number: fill them in or leave their rows out)"),
    }
}

fn line(record: &csv::StringRecord) -> u64 {
    record.position().map_or(0, csv::Position::line)
}

/// Whole numbers keep their order, names are sorted; both become 0, 1, 2 ...
fn classes(content: &Content, rows: &Rows, column: usize) -> Result<(Vec<u32>, Vec<String>), TrainingError> {
    let names: Vec<&str> = rows.records.iter().map(|record| &record[column]).collect();
    if let Some(row) = names.iter().position(|name| name.is_empty()) {
        let place = rows.place(line(&rows.records[row]), column);
        return Err(content.wrong(place, "a label", "an empty cell"));
    }
    let numeric: Option<Vec<f64>> = names.iter().map(|name| rows.decimal.double(name)).collect();
    let keys: Vec<(i64, &str)> = match numeric {
        Some(numbers) => {
            if let Some(row) = numbers.iter().position(|number| number.fract() != 0.0 || number.abs() > 1e15)
            {
                let place = format!("label in {}", rows.place(line(&rows.records[row]), column));
                let found = format!("{} (--label names the column of labels)", names[row]);
                return Err(content.wrong(place, "a whole number or a name", found));
            }
            numbers.iter().map(|&number| (number as i64, "")).collect()
        }
        None => names.iter().map(|&name| (0, name)).collect(),
    };
    let distinct: BTreeSet<_> = keys.iter().copied().collect();
    if distinct.len() < 2 {
        return Err(content.wrong("labels", "at least two classes", distinct.len().to_string()));
    }
    let order: Vec<_> = distinct.into_iter().collect();
    let labels = keys.iter().map(|key| order.binary_search(key).unwrap_or_default() as u32).collect();
    let called =
        |&(number, name): &(i64, &str)| if name.is_empty() { number.to_string() } else { name.to_owned() };
    Ok((labels, order.iter().map(called).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, label: Option<&str>) -> Result<LabelledTable, TrainingError> {
        parse(&Content { file: "own.csv".into(), bytes: text.into() }, label)
    }

    #[test]
    fn header_delimiter_and_label_column_are_found() {
        let table = read("kind;a;b\nno;1;2\nyes;3;4\nno;5;6\n", Some("kind")).unwrap();
        assert_eq!(table.samples, Samples::new(vec![2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![0, 1, 0]));
        assert_eq!(table.class_names, ["no", "yes"]);
        assert_eq!(read("1,2,7\n3,4,-2\n", None).unwrap().samples.labels(), [1, 0]);
        assert_eq!(read("1,2,7\n2,4,7\n", Some("1")).unwrap().samples.row(1), [4.0, 7.0]);
        assert_eq!(read("2,1,bad,good\n0.5,0\n0.25,1\n", None).unwrap().samples.labels(), [0, 1]);
        assert_eq!(read("\u{feff}a\tb\n0.5\tx\n0.25\ty\n\n", None).unwrap().samples.features(), [0.5, 0.25]);
    }

    /// As spreadsheets write them where numbers have commas.
    #[test]
    fn decimal_commas_are_read_where_commas_part_no_columns() {
        let points = read("a;b;y\n1.288;2;0\n-3.5e1;4;1\n", None).unwrap();
        for text in ["a;b;y\n1,288;2;0\n-3,5e1;4;1\n", "a\tb\ty\n1,288\t2\t0\n-3,5e1\t4\t1\n"] {
            let commas = read(text, None).unwrap();
            assert_eq!(commas.samples, points.samples, "{text}");
            assert_eq!(commas.layout, "a header, labels in column 3 (y), decimal commas");
        }
        assert_eq!(read("1,5;2,5;3,5;0\n1;2;3;1\n", None).unwrap().samples.row(0), [1.5, 2.5, 3.5]);
        // A thousand and a half, or a mistake: whoever wrote it knows.
        let mixed = read("a;y\n1,5;0\n1.5;1\n", None).unwrap_err().to_string();
        assert!(mixed.contains("line 3, column 1 (a): expected a number with a decimal comma"), "{mixed}");
        let thousands = read("a,y\n\"1,234.5\",0\n2,1\n", None).unwrap_err().to_string();
        assert!(thousands.contains("line 2, column 1 (a): expected a number, found 1,234.5"), "{thousands}");
    }

    #[test]
    fn a_header_of_numbers_is_no_sample() {
        let rows = "1,2,0\n3,4,1\n5,6,0\n7,8,1\n";
        let message = read(&format!("1,2,3\n{rows}"), None).unwrap_err().to_string();
        assert!(
            message.contains("line 1: expected a header of names") && message.contains("class 3"),
            "{message}"
        );
        assert_eq!(read(&format!("a,b,3\n{rows}"), None).unwrap().class_names, ["0", "1"]);
        assert_eq!(read(rows, None).unwrap().layout, "no header: line 1 is a sample, labels in column 3");
        // The last field may be a class that there is: pandas numbers columns from 0.
        let wide = "5,1,2,1,0\n6,3,4,0,1\n5,5,6,0,4\n4,7,8,0,4\n";
        for header in ["0,1,2,3,4\n", "1,2,3,4,5\n"] {
            let text = format!("{header}{wide}1,1,1,1,5\n2,2,1,1,5\n");
            let message = read(&text, None).unwrap_err().to_string();
            assert!(
                message.contains("line 1: expected a header of names, or a sample, found numbers that count"),
                "{message}"
            );
            let said = read(&format!("a,b,c,d,y\n{text}"), None).unwrap();
            assert_eq!(said.samples.len(), 7, "its owner says that it is a sample");
        }
        let named = read(&format!("a,b,y\n{rows}"), None).unwrap();
        assert_eq!(named.layout, "a header, labels in column 3 (y)");
    }

    #[test]
    fn mistakes_name_line_and_column() {
        for (text, label, expected) in [
            ("a,b,y\n1,2,0\n1,x,1\n", None, "line 3, column 2 (b): expected a number, found x"),
            ("a,b,y\n1,2,0\n1,,1\n", None, "line 3, column 2"),
            ("a,b,y\n1,nan,0\n1,2,1\n", None, "line 2, column 2"),
            ("a,b,y\n1,2,0\n1,2\n", None, "line 3: expected 3 fields, found 2"),
            (
                "a,b,y\n1,,0\n1,NA,1\n",
                None,
                "line 2, column 2 (b): expected a number, found an empty cell (one of 2 cells",
            ),
            (
                "a,b,y\n1,1e300,0\n1,2,1\n",
                None,
                "column 2 (b): expected a number from -3.4e38 to 3.4e38, found 1e300",
            ),
            ("a,b,y\n1,2,0\n1,2,\n", None, "line 3, column 3 (y): expected a label, found an empty cell"),
            (
                "a,b,y\n1,2,0\n1,2,0.5\n",
                None,
                "label in line 3, column 3 (y): expected a whole number or a name, found 0.5 (--label",
            ),
            ("\n# from the registry\n1,2,0\n1,x,1\n", None, "line 4, column 2"),
            ("a,b,y\n", None, "rows: expected at least one row of numbers, found a header alone"),
            ("a,b,y\n1,2,0\n1,2,0\n", None, "at least two classes"),
            ("a,b,y\n1,2,0\n1,2,1\n", Some("z"), "(a, b, y), found z"),
            ("0\n1\n", None, "columns"),
            ("", None, "at least one row"),
        ] {
            let message = read(text, label).unwrap_err().to_string();
            assert!(message.contains(expected), "{text:?}: {message}");
        }
    }
}
