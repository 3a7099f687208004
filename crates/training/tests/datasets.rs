//! Data sets as a user loads them: the embedded ones always, the public ones where `SECSV_DATA` says they
//! are.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

use secsv_training::{Dataset, DatasetSource, LoadOptions, Samples, Split, TrainingError};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Loads a public data set, or says why the test is skipped.
fn public(source: &DatasetSource) -> Outcome<Option<Dataset>> {
    let Ok(data) = std::env::var("SECSV_DATA") else {
        eprintln!("skipped: SECSV_DATA is not set, so {source:?} is not read");
        return Ok(None);
    };
    let data = PathBuf::from(data);
    Ok(Some(source.load(&LoadOptions { data: Some(&data), ..LoadOptions::default() })?))
}

fn sizes(dataset: &Dataset) -> (usize, usize) {
    (dataset.train.len(), dataset.test.len())
}

/// The largest mean and the largest distance of a deviation from 1 over all columns.
fn moments(samples: &Samples) -> (f64, f64) {
    let (width, count) = (samples.width(), samples.len() as f64);
    let column = |column: usize| (0..samples.len()).map(move |row| f64::from(samples.row(row)[column]));
    (0..width).fold((0.0, 0.0), |(mean, spread): (f64, f64), index| {
        let average = column(index).sum::<f64>() / count;
        let deviation = (column(index).map(|x| (x - average).powi(2)).sum::<f64>() / count).sqrt();
        (mean.max(average.abs()), spread.max((deviation - 1.0).abs()))
    })
}

#[test]
fn embedded_data_sets_need_no_files() -> Outcome<()> {
    let cancer = DatasetSource::BreastCancer.load(&LoadOptions::default())?;
    assert_eq!((sizes(&cancer), cancer.train.shape(), cancer.classes), ((379, 190), [30].as_slice(), 2));
    let all: Vec<usize> =
        (0..2).map(|c| cancer.train.class_sizes(2)[c] + cancer.test.class_sizes(2)[c]).collect();
    assert_eq!(all, [212, 357]);
    let (mean, spread) = moments(&cancer.train);
    assert!(mean < 1e-5 && spread < 1e-5, "training columns are standardised: {mean} {spread}");

    let digits = DatasetSource::Digits.load(&LoadOptions::default())?;
    assert_eq!((digits.train.len() + digits.test.len(), digits.train.shape()), (1797, [1, 8, 8].as_slice()));
    assert!(digits.train.features().iter().all(|pixel| (0.0..=1.0).contains(pixel)));
    let other = DatasetSource::Digits.load(&LoadOptions { seed: 1, ..LoadOptions::default() })?;
    assert_ne!(digits.test, other.test, "the seed draws the test rows");
    Ok(())
}

#[test]
fn mnist_as_published() -> Outcome<()> {
    let Some(mnist) = public(&DatasetSource::Mnist)? else { return Ok(()) };
    assert_eq!((sizes(&mnist), mnist.train.shape()), ((60_000, 10_000), [1, 28, 28].as_slice()));
    assert_eq!(mnist.train.class_sizes(10), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]);
    assert_eq!(mnist.test.class_sizes(10), [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]);
    Ok(())
}

#[test]
fn bank_in_the_authors_split() -> Outcome<()> {
    let Some(bank) = public(&DatasetSource::Bank)? else { return Ok(()) };
    assert_eq!((sizes(&bank), bank.train.shape()), ((30_787, 10_000), [48].as_slice()));
    assert_eq!((bank.train.class_sizes(2)[1], bank.test.class_sizes(2)[1]), (3_330, 1_264));
    assert!(bank.notes.is_empty(), "{:?}", bank.notes);
    Ok(())
}

#[test]
fn agnews_features() -> Outcome<()> {
    let Some(news) = public(&DatasetSource::Agnews)? else { return Ok(()) };
    assert_eq!((sizes(&news), news.train.shape()), ((42_595, 7_600), [300].as_slice()));
    assert_eq!(news.train.class_sizes(4), [10_584, 10_688, 10_594, 10_729]);
    assert_eq!(news.test.class_sizes(4), [1_900; 4]);
    let (mean, spread) = moments(&news.train);
    assert!(mean < 1e-4 && spread < 1e-4, "{mean} {spread}");
    Ok(())
}

#[test]
fn mirna_pairs() -> Outcome<()> {
    let Some(pairs) = public(&DatasetSource::Mirna)? else { return Ok(()) };
    assert_eq!((sizes(&pairs), pairs.train.shape()), ((30_784, 4_000), [10, 64].as_slice()));
    assert_eq!((pairs.train.class_sizes(2), pairs.test.class_sizes(2)), (vec![15_392; 2], vec![2_000; 2]));
    Ok(())
}

#[test]
fn heart_keeps_its_four_hospitals() -> Outcome<()> {
    let Some(heart) = public(&DatasetSource::Heart)? else { return Ok(()) };
    assert_eq!((heart.train.len() + heart.test.len(), heart.train.shape()), (920, [13].as_slice()));
    let silos = Split::Natural.deal(&heart, 4, 0)?;
    let rows: Vec<usize> = silos.iter().map(|silo| silo.train.len() + silo.test.len()).collect();
    assert_eq!(rows, [303, 294, 123, 200]);
    let sick = |silo: &secsv_training::Silo| {
        let part = |samples: &Samples, rows: &[usize]| {
            rows.iter().filter(|&&row| samples.labels()[row] == 1).count()
        };
        part(&heart.train, &silo.train) + part(&heart.test, &silo.test)
    };
    assert_eq!(silos.iter().map(sick).collect::<Vec<_>>(), [139, 106, 115, 149]);
    let limited = heart.clone().limited(Some(300), Some(100), 0);
    let kept = Split::Natural.deal(&limited, 4, 0)?;
    assert_eq!(kept.iter().map(|silo| silo.train.len()).sum::<usize>(), 300);
    assert!(Split::Natural.deal(&heart, 5, 0).is_err());
    Ok(())
}

#[test]
fn a_missing_public_data_set_says_where_it_is() -> Outcome<()> {
    let empty = tempfile::tempdir()?;
    for source in [
        DatasetSource::Mnist,
        DatasetSource::Bank,
        DatasetSource::Agnews,
        DatasetSource::Mirna,
        DatasetSource::Heart,
    ] {
        let options = LoadOptions { data: Some(empty.path()), ..LoadOptions::default() };
        let error = source.load(&options).err().ok_or("loaded from nothing")?;
        assert!(matches!(error, TrainingError::MissingFile { .. }) && error.is_bad_input(), "{error}");
        let message = error.to_string();
        assert!(message.contains("looked for") && message.contains("public original"), "{message}");
        let error = source.load(&LoadOptions::default()).err().ok_or("loaded from nowhere")?;
        assert!(error.to_string().contains("--data"), "{error}");
    }
    Ok(())
}

#[test]
fn own_tables_are_read_and_standardised() -> Outcome<()> {
    let place = tempfile::tempdir()?;
    let path = place.path().join("own.csv");
    let mut file = std::fs::File::create(&path)?;
    writeln!(file, "kind,height,width")?;
    for row in 0..60 {
        writeln!(file, "{},{},{}", ["cat", "dog", "eel"][row % 3], row, row * row)?;
    }
    let source: DatasetSource = path.to_str().ok_or("a path that is no text")?.parse()?;
    let own = source.load(&LoadOptions { label: Some("kind"), ..LoadOptions::default() })?;
    assert_eq!((own.name.as_str(), own.classes, sizes(&own)), ("own", 3, (39, 21)));
    assert!(own.notes[0].contains("cat, dog, eel"), "{:?}", own.notes);
    let (mean, spread) = moments(&own.train);
    assert!(mean < 1e-5 && spread < 1e-5, "{mean} {spread}");
    let error =
        DatasetSource::File("nothing.csv".into()).load(&LoadOptions::default()).err().ok_or("loaded")?;
    assert!(error.to_string().contains("breast-cancer, digits"), "{error}");
    Ok(())
}
