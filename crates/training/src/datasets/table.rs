//! Any CSV of numbers with a label column.

use std::collections::BTreeSet;

use super::files::Content;
use crate::{Samples, TrainingError};

/// A table read from CSV: standard 0-based labels and what they were called in the file.
#[derive(Debug)]
pub(crate) struct LabelledTable {
    pub(crate) samples: Samples,
    pub(crate) class_names: Vec<String>,
    /// Where the labels were, and whether a line named columns.
    pub(crate) layout: String,
}

/// Reads a table. The delimiter (comma, semicolon or tab) and a header line are detected. `label` is a
/// column's name or its number from 1; without it the last column holds the labels.
pub(crate) fn parse(content: &Content, label: Option<&str>) -> Result<LabelledTable, TrainingError> {
    let text = content.text()?.trim_start_matches('\u{feff}');
    let first = text.lines().next().unwrap_or_default();
    let delimiter =
        [b',', b';', b'\t'].into_iter().max_by_key(|&d| first.bytes().filter(|&b| b == d).count());
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter.unwrap_or(b','))
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
    let header = take_header(&mut records);
    let Some(width) = records.first().map(csv::StringRecord::len) else {
        return Err(content.wrong("rows", "at least one row of numbers", "none"));
    };
    if width < 2 {
        return Err(content.wrong("columns", "a label and at least one feature", width.to_string()));
    }
    let column = label_column(content, label, header.as_ref(), width)?;
    let features = numbers(content, &records, column, width)?;
    let names: Vec<&str> = records.iter().map(|record| &record[column]).collect();
    let (labels, class_names) = classes(content, &names)?;
    if header.is_none() {
        check_first(content, &labels, &class_names)?;
    }
    let called = header.as_ref().filter(|header| header.len() == width).map(|header| &header[column]);
    let called = called.map_or(String::new(), |name| format!(" ({name})"));
    let header = if header.is_some() { "a header" } else { "no header" };
    let layout = format!("{header}, labels in column {}{called}", column + 1);
    Ok(LabelledTable { samples: Samples::new(vec![width - 1], features, labels), class_names, layout })
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
fn take_header(records: &mut Vec<csv::StringRecord>) -> Option<csv::StringRecord> {
    let (first, second) = (records.first()?, records.get(1)?);
    let texts =
        |record: &csv::StringRecord| record.iter().filter(|field| field.parse::<f64>().is_err()).count();
    let is_header = texts(first) > texts(second) || first.len() != second.len();
    is_header.then(|| records.remove(0))
}

fn label_column(
    content: &Content,
    label: Option<&str>,
    header: Option<&csv::StringRecord>,
    width: usize,
) -> Result<usize, TrainingError> {
    let Some(label) = label else { return Ok(width - 1) };
    let named = header.filter(|header| header.len() == width);
    let by_name = named.and_then(|header| header.iter().position(|field| field == label));
    let by_number =
        label.parse::<usize>().ok().filter(|number| (1..=width).contains(number)).map(|number| number - 1);
    by_name.or(by_number).ok_or_else(|| {
        let names = named
            .map_or(String::new(), |header| format!(" ({})", header.iter().collect::<Vec<_>>().join(", ")));
        content.wrong("label column", format!("a column's name or number 1 to {width}{names}"), label)
    })
}

fn numbers(
    content: &Content,
    records: &[csv::StringRecord],
    label: usize,
    width: usize,
) -> Result<Vec<f32>, TrainingError> {
    let mut features = Vec::with_capacity(records.len() * (width - 1));
    for record in records {
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != width {
            return Err(content.wrong(
                format!("line {line}"),
                format!("{width} fields"),
                record.len().to_string(),
            ));
        }
        for (column, field) in record.iter().enumerate().filter(|&(column, _)| column != label) {
            match field.parse::<f32>() {
                Ok(number) if number.is_finite() => features.push(number),
                _ => {
                    return Err(content.wrong(
                        format!("line {line}, column {}", column + 1),
                        "a number",
                        field,
                    ));
                }
            }
        }
    }
    Ok(features)
}

/// Whole numbers keep their order, names are sorted; both become 0, 1, 2 ...
fn classes(content: &Content, names: &[&str]) -> Result<(Vec<u32>, Vec<String>), TrainingError> {
    let numeric: Option<Vec<f64>> = names.iter().map(|name| name.parse::<f64>().ok()).collect();
    let keys: Vec<(i64, &str)> = match numeric {
        Some(numbers) => {
            if let Some(row) = numbers.iter().position(|number| number.fract() != 0.0 || number.abs() > 1e15)
            {
                return Err(content.wrong(
                    format!("label of row {}", row + 1),
                    "a whole number or a name",
                    names[row],
                ));
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

    #[test]
    fn a_header_of_numbers_is_no_sample() {
        let rows = "1,2,0\n3,4,1\n5,6,0\n7,8,1\n";
        let message = read(&format!("1,2,3\n{rows}"), None).unwrap_err().to_string();
        assert!(
            message.contains("line 1: expected a header of names") && message.contains("class 3"),
            "{message}"
        );
        assert_eq!(read(&format!("a,b,3\n{rows}"), None).unwrap().class_names, ["0", "1"]);
        assert_eq!(read(rows, None).unwrap().layout, "no header, labels in column 3");
        let named = read(&format!("a,b,y\n{rows}"), None).unwrap();
        assert_eq!(named.layout, "a header, labels in column 3 (y)");
    }

    #[test]
    fn mistakes_name_line_and_column() {
        for (text, label, expected) in [
            ("a,b,y\n1,2,0\n1,x,1\n", None, "line 3, column 2: expected a number, found x"),
            ("a,b,y\n1,2,0\n1,,1\n", None, "line 3, column 2"),
            ("a,b,y\n1,nan,0\n1,2,1\n", None, "line 2, column 2"),
            ("a,b,y\n1,2,0\n1,2\n", None, "line 3: expected 3 fields, found 2"),
            ("a,b,y\n1,2,0\n1,2,0.5\n", None, "label of row 2"),
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
