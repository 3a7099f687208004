//! UCI Heart Disease: four real hospitals, each a client of its own.
//!
//! 13 features: age, sex, chest pain 2, 3 and 4 (one-hot), resting blood pressure, cholesterol, fasting
//! sugar, resting ECG 1 and 2 (one-hot), maximal heart rate, exercise angina, ST depression. slope, ca and
//! thal are mostly missing outside Cleveland and left out. A blood pressure or cholesterol of 0 was not
//! measured. Missing values take the median, and all columns are standardised, both over the training rows of
//! all hospitals.

use secsv_federation::ClientId;

use super::files::{Content, PublicFiles};
use super::{Dataset, LoadOptions, Silo};
use crate::{Samples, Standardiser, TrainingError};

const FILES: PublicFiles = PublicFiles {
    dataset: "heart",
    original: "UCI Machine Learning Repository, data set Heart Disease (Janosi, Steinbrunn, Pfisterer, Detrano), \
               files processed.cleveland.data, processed.hungarian.data, processed.switzerland.data and \
               processed.va.data",
};

/// File name part and the client's id.
const HOSPITALS: [(&str, &str); 4] = [
    ("cleveland", "cleveland"),
    ("hungarian", "budapest"),
    ("switzerland", "zurich-basel"),
    ("va", "long-beach"),
];
const COLUMNS: usize = 14;
const FEATURES: usize = 13;

pub(super) fn load(options: &LoadOptions<'_>) -> Result<Dataset, TrainingError> {
    let (mut rows, mut labels) = (Vec::new(), Vec::new());
    let (mut train, mut test) = (Vec::new(), Vec::new());
    let mut silos = Vec::new();
    for (hospital, (name, id)) in HOSPITALS.iter().enumerate() {
        let content = FILES.read(options.data, &format!("processed.{name}.data"))?;
        let first = labels.len();
        patients(&content, &mut rows, &mut labels)?;
        let own = Samples::new(vec![0], Vec::new(), labels[first..].to_vec());
        let (own_train, own_test) =
            own.hold_out(2, options.test_share, options.seed.wrapping_add(hospital as u64));
        silos.push(Silo {
            id: ClientId::new(*id).map_err(|error| content.wrong("client id", "a client id", error.found))?,
            train: (train.len()..train.len() + own_train.len()).collect(),
            test: (test.len()..test.len() + own_test.len()).collect(),
        });
        train.extend(own_train.iter().map(|row| first + row));
        test.extend(own_test.iter().map(|row| first + row));
    }
    fill_with_medians(&mut rows, &train);
    let all = Samples::new(vec![FEATURES], rows.iter().flatten().map(|x| x.unwrap_or(0.0)).collect(), labels);
    let dataset = Dataset::new("heart", 2, all.select(&train), all.select(&test));
    Ok(Dataset { silos: Some(silos), ..dataset.standardised(Standardiser::per_column) })
}

type Patient = [Option<f32>; FEATURES];

fn patients(content: &Content, rows: &mut Vec<Patient>, labels: &mut Vec<u32>) -> Result<(), TrainingError> {
    for (line, text) in content.text()?.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let mut values = Vec::with_capacity(COLUMNS);
        for field in text.split(',').map(str::trim) {
            match (field, field.parse::<f32>()) {
                ("?", _) => values.push(None),
                (_, Ok(number)) if number.is_finite() => values.push(Some(number)),
                _ => return Err(content.wrong(format!("line {}", line + 1), "a number or ?", field)),
            }
        }
        let (COLUMNS, Some(disease)) = (values.len(), values[values.len() - 1]) else {
            return Err(content.wrong(format!("line {}", line + 1), "14 fields, the last one known", text));
        };
        let measured = |value: Option<f32>| value.filter(|&number| number != 0.0);
        let is = |value: Option<f32>, kind: f32| value.map(|number| f32::from(number == kind));
        let [age, sex, pain, pressure, cholesterol, sugar, ecg, rate, angina, depression] =
            std::array::from_fn(|column| values[column]);
        rows.push([
            age,
            sex,
            is(pain, 2.0),
            is(pain, 3.0),
            is(pain, 4.0),
            measured(pressure),
            measured(cholesterol),
            sugar,
            is(ecg, 1.0),
            is(ecg, 2.0),
            rate,
            angina,
            depression,
        ]);
        labels.push(u32::from(disease > 0.0));
    }
    Ok(())
}

fn fill_with_medians(rows: &mut [Patient], train: &[usize]) {
    for column in 0..FEATURES {
        let mut known: Vec<f32> = train.iter().filter_map(|&row| rows[row][column]).collect();
        known.sort_by(f32::total_cmp);
        let median = match known.len() {
            0 => 0.0,
            count => (known[(count - 1) / 2] + known[count / 2]) / 2.0,
        };
        rows.iter_mut().for_each(|row| _ = row[column].get_or_insert(median));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patients_are_encoded_and_gaps_take_the_training_median() {
        let text = "63,1,4,140,260,0,1,112,1,3,2,?,?,2\n44,1,1,0,0,?,2,127,0,-0.5,?,?,?,0\n50,0,3,120,200,1,0,100,0,1,?,?,?,1\n";
        let content = Content { file: "processed.va.data".into(), bytes: text.into() };
        let (mut rows, mut labels) = (Vec::new(), Vec::new());
        patients(&content, &mut rows, &mut labels).unwrap();
        assert_eq!(labels, [1, 0, 1]);
        assert_eq!(
            rows[0].map(|x| x.unwrap_or(-9.0))[..10],
            [63.0, 1.0, 0.0, 0.0, 1.0, 140.0, 260.0, 0.0, 1.0, 0.0]
        );
        assert_eq!((rows[1][5], rows[1][6], rows[1][7]), (None, None, None));
        fill_with_medians(&mut rows, &[0, 2]);
        assert_eq!((rows[1][5], rows[1][6], rows[1][7]), (Some(130.0), Some(230.0), Some(0.5)));
    }

    #[test]
    fn broken_lines_are_named() {
        for bad in ["1,2,3", "63,1,4,140,260,0,1,112,1,3,2,?,?,?", "x,1,4,140,260,0,1,112,1,3,2,?,?,2"] {
            let content = Content { file: "processed.va.data".into(), bytes: bad.into() };
            let message = patients(&content, &mut Vec::new(), &mut Vec::new()).unwrap_err().to_string();
            assert!(message.contains("line 1"), "{message}");
        }
    }
}
