//! BANK: UCI Bank Marketing in the paper's 48 features.
//!
//! The encoding is the one of the paper's authors, recovered from their published test file: rows with an
//! unknown job or marital state are dropped, six attributes become one-hot groups, education is ordinal,
//! three yes/no attributes are 0 or 1, ages are binned at their deciles, and the bin and nine numbers are
//! standardised over all rows that remain. Unknown education, default, housing and loan (none in the test
//! rows) take the mode.

use std::collections::BTreeSet;

use super::files::{Content, PublicFiles};
use super::{Dataset, LoadOptions};
use crate::{Samples, TrainingError};

const FILES: PublicFiles = PublicFiles {
    dataset: "bank",
    original: "UCI Machine Learning Repository, data set Bank Marketing (Moro, Cortez, Rita 2014), file \
               bank-additional-full.csv in bank-additional.zip",
};

/// Attributes that become one-hot groups, in the order of the features, with their categories.
const GROUPS: [(&str, &[&str]); 6] = [
    ("poutcome", &["failure", "nonexistent", "success"]),
    (
        "job",
        &[
            "admin.",
            "blue-collar",
            "entrepreneur",
            "housemaid",
            "management",
            "retired",
            "self-employed",
            "services",
            "student",
            "technician",
            "unemployed",
        ],
    ),
    ("marital", &["divorced", "married", "single"]),
    ("contact", &["cellular", "telephone"]),
    ("month", &["apr", "aug", "dec", "jul", "jun", "mar", "may", "nov", "oct", "sep"]),
    ("day_of_week", &["fri", "mon", "thu", "tue", "wed"]),
];
/// From 1, as the authors count.
const EDUCATION: [&str; 7] = [
    "illiterate",
    "basic.4y",
    "basic.6y",
    "basic.9y",
    "high.school",
    "professional.course",
    "university.degree",
];
/// Yes/no attributes and what an unknown counts as (the mode).
const YES_NO: [(&str, f64); 3] = [("default", 0.0), ("housing", 1.0), ("loan", 0.0)];
const NUMBERS: [&str; 9] = [
    "duration",
    "campaign",
    "pdays",
    "previous",
    "emp.var.rate",
    "cons.price.idx",
    "cons.conf.idx",
    "euribor3m",
    "nr.employed",
];
/// Inclusive upper edges of the age bins; the last bin is open.
const AGE_EDGES: [f64; 9] = [28.0, 31.0, 33.0, 35.0, 38.0, 41.0, 45.0, 49.0, 55.0];
/// The column of the age bin: after the one-hot groups.
const AGE_COLUMN: usize = 34;
/// The first of the nine numbers: after age, education and the yes/no attributes.
const NUMBERS_COLUMN: usize = 39;
const FEATURES: usize = 48;
/// The paper's test size, used when the authors' list of test rows is not there.
const TEST_ROWS: usize = 10_000;

/// How the ten age bins are numbered before they are standardised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BankAgeCodes {
    /// 0 to 9 in the order of age: what a linear model can use.
    #[default]
    Ordered,
    /// The arbitrary order of the paper's authors, for an exact replica of their features.
    Authors,
}

impl BankAgeCodes {
    fn code(self, bin: usize) -> f64 {
        const AUTHORS: [f64; 10] = [1.0, 7.0, 6.0, 3.0, 4.0, 8.0, 2.0, 9.0, 0.0, 5.0];
        match self {
            Self::Ordered => bin as f64,
            Self::Authors => AUTHORS[bin],
        }
    }
}

/// Encoded rows in double precision, before they are cut into training and test samples.
struct Encoded {
    features: Vec<[f64; FEATURES]>,
    labels: Vec<u32>,
    /// The 1-based row of the original file that each encoded row comes from.
    origin: Vec<usize>,
}

pub(super) fn load(options: &LoadOptions<'_>) -> Result<Dataset, TrainingError> {
    let content = FILES.read(options.data, "bank-additional-full.csv")?;
    let encoded = encode(&content, options.bank_age_codes)?;
    let samples = Samples::new(
        vec![FEATURES],
        encoded.features.iter().flatten().map(|&x| x as f32).collect(),
        encoded.labels.clone(),
    );
    match FILES.read(options.data, "secsv_test_rows.txt") {
        Ok(list) => {
            let listed = listed_rows(&list, &encoded)?;
            let (test, train): (Vec<_>, Vec<_>) = (0..samples.len()).partition(|&row| listed.contains(&row));
            Ok(Dataset::new("bank", 2, samples.select(&train), samples.select(&test)))
        }
        Err(TrainingError::MissingFile { looked_for, .. }) => {
            let share = (TEST_ROWS as f64 / samples.len() as f64).min(0.5);
            let (train, test) = samples.hold_out(2, share, options.seed);
            let mut dataset = Dataset::new("bank", 2, samples.select(&train), samples.select(&test));
            dataset.notes.push(format!(
                "the authors' list of test rows ({}) is not there: {} test rows were drawn by seed instead",
                looked_for[0].display(),
                test.len()
            ));
            Ok(dataset)
        }
        Err(other) => Err(other),
    }
}

/// Positions among the encoded rows of the original rows that the list names.
fn listed_rows(list: &Content, encoded: &Encoded) -> Result<BTreeSet<usize>, TrainingError> {
    let mut rows = BTreeSet::new();
    for (line, text) in list.text()?.lines().enumerate() {
        let position =
            text.trim().parse().ok().and_then(|row: usize| encoded.origin.binary_search(&row).ok());
        let fresh = position.is_some_and(|position| rows.insert(position));
        if !fresh {
            return Err(list.wrong(
                format!("line {}", line + 1),
                "a row number of the encoded data, once",
                text,
            ));
        }
    }
    Ok(rows)
}

fn encode(content: &Content, ages: BankAgeCodes) -> Result<Encoded, TrainingError> {
    let mut reader = csv::ReaderBuilder::new().delimiter(b';').from_reader(content.bytes.as_slice());
    let header =
        reader.headers().map_err(|error| content.wrong("line 1", "a header", error.to_string()))?.clone();
    let column = |name: &str| {
        let position = header.iter().position(|field| field == name);
        position.ok_or_else(|| content.wrong("line 1", format!("a column named {name}"), "none"))
    };
    let groups = GROUPS.iter().map(|(name, _)| column(name)).collect::<Result<Vec<_>, _>>()?;
    let yes_no = YES_NO.iter().map(|(name, _)| column(name)).collect::<Result<Vec<_>, _>>()?;
    let numbers = NUMBERS.iter().map(|name| column(name)).collect::<Result<Vec<_>, _>>()?;
    let (job, marital) = (groups[1], groups[2]);
    let (age, education, label) = (column("age")?, column("education")?, column("y")?);

    let mut encoded = Encoded { features: Vec::new(), labels: Vec::new(), origin: Vec::new() };
    for (index, record) in reader.records().enumerate() {
        let place = format!("data row {}", index + 1);
        let record = record
            .map_err(|error| content.wrong(&*place, "as many fields as the header", error.to_string()))?;
        if &record[job] == "unknown" || &record[marital] == "unknown" {
            continue;
        }
        let field = BankRecord { content, place: &place, record: &record };
        let mut row = Vec::with_capacity(FEATURES);
        for (&position, (name, categories)) in groups.iter().zip(&GROUPS) {
            let chosen = field.one_of(position, name, categories)?;
            row.extend((0..categories.len()).map(|category| f64::from(category == chosen)));
        }
        let years = field.number(age, "age")?;
        row.push(ages.code(AGE_EDGES.iter().filter(|&&edge| years > edge).count()));
        row.push(match &record[education] {
            "unknown" => 7.0,
            _ => 1.0 + field.one_of(education, "education", &EDUCATION)? as f64,
        });
        for (&position, (name, mode)) in yes_no.iter().zip(&YES_NO) {
            row.push(match &record[position] {
                "unknown" => *mode,
                _ => field.one_of(position, name, &["no", "yes"])? as f64,
            });
        }
        for (&position, name) in numbers.iter().zip(&NUMBERS) {
            row.push(field.number(position, name)?);
        }
        let mut features = [0.0; FEATURES];
        features.copy_from_slice(&row);
        encoded.features.push(features);
        encoded.labels.push(field.one_of(label, "y", &["no", "yes"])? as u32);
        encoded.origin.push(index + 1);
    }
    standardise(&mut encoded.features);
    Ok(encoded)
}

/// Population z-scores over all rows of the age bin and the nine numbers.
fn standardise(rows: &mut [[f64; FEATURES]]) {
    let count = rows.len().max(1) as f64;
    for column in std::iter::once(AGE_COLUMN).chain(NUMBERS_COLUMN..FEATURES) {
        let mean = rows.iter().map(|row| row[column]).sum::<f64>() / count;
        let variance = rows.iter().map(|row| (row[column] - mean).powi(2)).sum::<f64>() / count;
        let deviation = if variance > 0.0 { variance.sqrt() } else { 1.0 };
        rows.iter_mut().for_each(|row| row[column] = (row[column] - mean) / deviation);
    }
}

/// One record, with what an error about it must say.
struct BankRecord<'a> {
    content: &'a Content,
    place: &'a str,
    record: &'a csv::StringRecord,
}

impl BankRecord<'_> {
    fn one_of(&self, position: usize, name: &str, categories: &[&str]) -> Result<usize, TrainingError> {
        let found = &self.record[position];
        categories.iter().position(|&category| category == found).ok_or_else(|| {
            self.content.wrong(format!("{}, column {name}", self.place), categories.join(" | "), found)
        })
    }

    fn number(&self, position: usize, name: &str) -> Result<f64, TrainingError> {
        let found = &self.record[position];
        match found.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err(self.content.wrong(format!("{}, column {name}", self.place), "a number", found)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const HEADER: &str = "\"age\";\"job\";\"marital\";\"education\";\"default\";\"housing\";\"loan\";\"contact\";\"month\";\"day_of_week\";\"duration\";\"campaign\";\"pdays\";\"previous\";\"poutcome\";\"emp.var.rate\";\"cons.price.idx\";\"cons.conf.idx\";\"euribor3m\";\"nr.employed\";\"y\"\r\n";

    fn content(rows: &str) -> Content {
        Content { file: "bank-additional-full.csv".into(), bytes: format!("{HEADER}{rows}").into_bytes() }
    }

    const THREE: &str = "28;student;single;basic.4y;unknown;yes;no;cellular;may;mon;10;1;999;0;nonexistent;1;2;3;4;5;no\r\n\
        40;unknown;single;basic.4y;no;yes;no;cellular;may;mon;20;1;999;0;nonexistent;1;2;3;4;5;no\r\n\
        99;retired;married;unknown;no;unknown;yes;telephone;sep;wed;30;3;3;1;success;1;2;3;4;7;yes\r\n";

    #[test]
    fn a_row_with_an_unknown_job_is_dropped_and_the_rest_encoded() {
        let encoded = encode(&content(THREE), BankAgeCodes::Ordered).unwrap();
        assert_eq!(
            (encoded.labels.as_slice(), encoded.origin.as_slice()),
            ([0, 1].as_slice(), [1, 3].as_slice())
        );
        let [first, second] = encoded.features[..] else { panic!("two rows") };
        assert_eq!(first[..3], [0.0, 1.0, 0.0], "poutcome");
        assert_eq!(first[3 + 8], 1.0, "student");
        assert_eq!((first[34], second[34]), (-1.0, 1.0), "bins 0 and 9, standardised");
        assert_eq!((first[35], second[35]), (2.0, 7.0), "education, unknown counts as a degree");
        assert_eq!(
            (first[36..39].to_vec(), second[36..39].to_vec()),
            (vec![0.0, 1.0, 0.0], vec![0.0, 1.0, 1.0])
        );
        assert_eq!((first[39], first[43], first[47]), (-1.0, 0.0, -1.0), "duration, constant, nr.employed");
        assert_eq!(first[..34].iter().sum::<f64>(), 6.0, "one of each group");
    }

    #[test]
    fn bad_rows_name_row_column_and_choices() {
        let message =
            encode(&content(&THREE.replace("telephone", "fax")), BankAgeCodes::Ordered).err().unwrap();
        assert!(message.to_string().contains("data row 3, column contact"), "{message}");
        let message = encode(&content(&THREE.replace(";30;3", ";x;3")), BankAgeCodes::Ordered).err().unwrap();
        assert!(message.to_string().contains("column duration: expected a number, found x"), "{message}");
        let encoded = encode(&content(THREE), BankAgeCodes::Ordered).unwrap();
        let list = |text: &str| Content { file: "rows".into(), bytes: text.into() };
        assert_eq!(listed_rows(&list("3\n"), &encoded).unwrap(), BTreeSet::from([1]));
        assert!(listed_rows(&list("2\n"), &encoded).is_err(), "a dropped row");
        assert!(listed_rows(&list("3\n3\n"), &encoded).is_err(), "twice");
    }

    /// The authors' own encoded test rows, to 1e-9, with their age codes.
    #[test]
    fn the_authors_test_file_is_reproduced() {
        let Ok(data) = std::env::var("SECSV_DATA") else {
            eprintln!("skipped: SECSV_DATA is not set");
            return;
        };
        let data = Some(Path::new(&data));
        let raw = FILES.read(data, "bank-additional-full.csv").unwrap();
        let encoded = encode(&raw, BankAgeCodes::Authors).unwrap();
        assert_eq!(encoded.labels.len(), 40_787);
        let origin: Vec<usize> = FILES
            .read(data, "secsv_test_rows.txt")
            .unwrap()
            .text()
            .unwrap()
            .lines()
            .map(|line| encoded.origin.binary_search(&line.parse().unwrap()).unwrap())
            .collect();
        let published = FILES.read(data, "secsv_test_data_48.csv").unwrap();
        let mut largest = 0.0f64;
        for (line, &row) in published.text().unwrap().lines().skip(1).zip(&origin) {
            let theirs: Vec<f64> = line.split(',').map(|field| field.parse().unwrap()).collect();
            assert_eq!(theirs.len(), FEATURES + 1);
            assert_eq!(theirs[FEATURES] as u32, encoded.labels[row]);
            for (ours, theirs) in encoded.features[row].iter().zip(&theirs) {
                largest = largest.max((ours - theirs).abs());
            }
        }
        assert_eq!(origin.len(), TEST_ROWS);
        assert!(largest < 1e-9, "largest difference {largest}");
    }
}
