//! Who holds which samples.
//!
//! The paper's split: for every class one draw from a symmetric Dirichlet distribution says what share of
//! that class each client holds, in the training and in the test samples alike. So that nobody is left with
//! nothing, the largest class first reserves a floor of 100 training and 10 test samples for each client, but
//! never more than half of that class. The authors look for the largest class of training and test samples
//! separately, which breaks when the two differ; here the training samples decide.

use rand::Rng;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Gamma};
use secsv_federation::{ClientId, MAX_CLIENTS};

use crate::datasets::{Dataset, Silo};
use crate::seeds::{Purpose, generator};
use crate::{Samples, TrainingError};

/// How samples are dealt to clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Split {
    /// The paper's: one Dirichlet(alpha) draw per class.
    Dirichlet {
        /// Small values give clients few classes each, large ones equal shares.
        alpha: f64,
    },
    /// Every client gets the same share of every class.
    Even,
    /// As the data set says, e.g. one client per hospital.
    Natural,
}

/// Training samples of the largest class that every client gets before the draw.
const TRAIN_FLOOR: usize = 100;
/// The same for test samples.
const TEST_FLOOR: usize = 10;
/// Fewer could not evaluate contributions securely.
const MIN_CLIENTS: usize = 2;

impl Split {
    /// Deals a data set's samples to `clients` clients named `client-1`, `client-2` ... (or as the data set
    /// names them). Every sample goes to exactly one client, and every client gets at least one of each part.
    pub fn deal(self, dataset: &Dataset, clients: usize, seed: u64) -> Result<Vec<Silo>, TrainingError> {
        if !(MIN_CLIENTS..=MAX_CLIENTS).contains(&clients) {
            let expected = format!("{MIN_CLIENTS} to {MAX_CLIENTS}");
            return Err(TrainingError::setting("clients", expected, clients.to_string()));
        }
        let mut random = generator(seed, Purpose::Split);
        let mut shares_of_class = match self {
            Self::Natural => return natural(dataset, clients),
            Self::Even => vec![vec![1.0 / clients as f64; clients]; dataset.classes],
            Self::Dirichlet { alpha } if alpha > 0.0 && alpha.is_finite() => (0..dataset.classes)
                .map(|_| dirichlet(alpha, clients, &mut random))
                .collect::<Result<_, _>>()?,
            Self::Dirichlet { alpha } => return Err(bad_alpha(alpha)),
        };
        // Rounding favours nobody in particular: shares are laid out in a fixed order and cut at rounded
        // bounds.
        shares_of_class.iter_mut().for_each(|shares| normalise(shares));
        let largest = largest_class(&dataset.train, dataset.classes);
        let train = part(&dataset.train, &shares_of_class, largest, ("training", TRAIN_FLOOR), &mut random)?;
        let test = part(&dataset.test, &shares_of_class, largest, ("test", TEST_FLOOR), &mut random)?;
        let silos = train.into_iter().zip(test).zip(client_ids(clients)?);
        Ok(silos.map(|((train, test), id)| Silo { id, train, test }).collect())
    }
}

/// `client-1` ... padded with zeros so that names sort as numbers do.
fn client_ids(clients: usize) -> Result<Vec<ClientId>, TrainingError> {
    let digits = clients.to_string().len();
    (1..=clients)
        .map(|number| {
            ClientId::new(format!("client-{number:0digits$}")).map_err(|error| {
                TrainingError::setting("clients", "a number that makes client ids", error.found)
            })
        })
        .collect()
}

fn natural(dataset: &Dataset, clients: usize) -> Result<Vec<Silo>, TrainingError> {
    let Some(silos) = dataset.silos.as_ref() else {
        let expected = "a split that the data set itself gives".to_owned();
        return Err(TrainingError::setting("split natural", expected, dataset.name.clone()));
    };
    if silos.len() != clients {
        let expected = format!("{} (those of the data set)", silos.len());
        return Err(TrainingError::setting("clients", expected, clients.to_string()));
    }
    for (part, fewest) in [
        ("training", silos.iter().map(|silo| silo.train.len()).min()),
        ("test", silos.iter().map(|silo| silo.test.len()).min()),
    ] {
        if fewest == Some(0) {
            return Err(TrainingError::TooFewSamples { part, clients, expected: 1, found: 0 });
        }
    }
    Ok(silos.clone())
}

fn bad_alpha(alpha: f64) -> TrainingError {
    TrainingError::setting("alpha", "a positive number", alpha.to_string())
}

/// A symmetric Dirichlet draw, as logarithms of gamma variables so that a tiny alpha cannot underflow to
/// nothing: Gamma(alpha) has the distribution of Gamma(alpha + 1) * U^(1/alpha).
fn dirichlet(alpha: f64, clients: usize, random: &mut impl Rng) -> Result<Vec<f64>, TrainingError> {
    let gamma = Gamma::new(alpha + 1.0, 1.0).map_err(|_| bad_alpha(alpha))?;
    let logarithms: Vec<f64> = (0..clients)
        .map(|_| {
            let uniform = 1.0 - random.random::<f64>();
            gamma.sample(random).ln() + uniform.ln() / alpha
        })
        .collect();
    let largest = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Ok(logarithms.iter().map(|logarithm| (logarithm - largest).exp()).collect())
}

fn normalise(shares: &mut [f64]) {
    let sum: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= sum);
}

/// The lowest of the largest classes.
fn largest_class(samples: &Samples, classes: usize) -> usize {
    let sizes = samples.class_sizes(classes);
    (0..classes).rev().max_by_key(|&class| sizes[class]).unwrap_or_default()
}

/// Rows of one part (training or test) by client.
fn part(
    samples: &Samples,
    shares_of_class: &[Vec<f64>],
    largest: usize,
    (part, floor): (&'static str, usize),
    random: &mut impl Rng,
) -> Result<Vec<Vec<usize>>, TrainingError> {
    let clients = shares_of_class.first().map_or(0, Vec::len);
    let mut held = vec![Vec::new(); clients];
    for (class, mut rows) in samples.rows_by_class(shares_of_class.len()).into_iter().enumerate() {
        rows.shuffle(random);
        let reserved = if class == largest { floor.min(rows.len() / 2 / clients) } else { 0 };
        if class == largest && reserved == 0 {
            return Err(TrainingError::TooFewSamples {
                part,
                clients,
                expected: 2 * clients,
                found: rows.len(),
            });
        }
        let (floors, rest) = rows.split_at(reserved * clients);
        for (client, own) in held.iter_mut().enumerate() {
            own.extend_from_slice(&floors[client * reserved..(client + 1) * reserved]);
        }
        let mut cumulative = 0.0;
        let mut from = 0;
        for (client, (own, share)) in held.iter_mut().zip(&shares_of_class[class]).enumerate() {
            cumulative += share;
            let bound = (cumulative * rest.len() as f64).round() as usize;
            let to = if client + 1 == clients { rest.len() } else { bound.clamp(from, rest.len()) };
            own.extend_from_slice(&rest[from..to]);
            from = to;
        }
    }
    held.iter_mut().for_each(|own| own.sort_unstable());
    Ok(held)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Samples without features: only labels matter here.
    fn labelled(counts: &[usize]) -> Samples {
        let labels: Vec<u32> =
            counts.iter().enumerate().flat_map(|(class, &count)| vec![class as u32; count]).collect();
        Samples::new(vec![1], vec![0.0; labels.len()], labels)
    }

    fn per_class(samples: &Samples, rows: &[usize], class: usize) -> usize {
        rows.iter().filter(|&&row| samples.labels()[row] as usize == class).count()
    }

    proptest! {
        #[test]
        fn every_sample_goes_to_one_client_who_gets_its_floor_and_its_share(
            train_counts in prop::collection::vec(0usize..900, 2..6),
            test_counts in prop::collection::vec(0usize..300, 6),
            clients in 4usize..12,
            alpha in 0.01f64..20.0,
            seed in any::<u64>(),
        ) {
            let classes = train_counts.len();
            let dataset = Dataset::new("generated", classes, labelled(&train_counts), labelled(&test_counts[..classes]));
            let largest = largest_class(&dataset.train, classes);
            let enough = train_counts[largest] >= 2 * clients && test_counts[largest] >= 2 * clients;
            let dealt = Split::Dirichlet { alpha }.deal(&dataset, clients, seed);
            prop_assert_eq!(dealt.is_ok(), enough);
            let Ok(silos) = dealt else { return Ok(()) };
            for (samples, rows_of, most) in [
                (&dataset.train, silos.iter().map(|s| &s.train).collect::<Vec<_>>(), 100),
                (&dataset.test, silos.iter().map(|s| &s.test).collect::<Vec<_>>(), 10),
            ] {
                let mut all: Vec<usize> = rows_of.iter().copied().flatten().copied().collect();
                all.sort_unstable();
                prop_assert_eq!(all, (0..samples.len()).collect::<Vec<_>>());
                let size = per_class(samples, &(0..samples.len()).collect::<Vec<_>>(), largest);
                let floor = most.min(size / 2 / clients);
                prop_assert!(rows_of.iter().all(|rows| per_class(samples, rows, largest) >= floor && !rows.is_empty()));
            }
            // One draw for both parts: what a client holds beyond the floor is the same share of each class.
            for class in 0..classes {
                let beyond = |samples: &Samples, rows: &[usize], count: usize, most: usize| {
                    let floor = if class == largest { most.min(count / 2 / clients) } else { 0 };
                    ((per_class(samples, rows, class) - floor) as f64, (count - floor * clients) as f64)
                };
                for silo in &silos {
                    let (train, train_all) = beyond(&dataset.train, &silo.train, train_counts[class], 100);
                    let (test, test_all) = beyond(&dataset.test, &silo.test, test_counts[class], 10);
                    if train_all > 0.0 && test_all > 0.0 {
                        let slack = 1.0 / train_all + 1.0 / test_all + 1e-9;
                        prop_assert!((train / train_all - test / test_all).abs() <= slack);
                    }
                }
            }
        }
    }

    #[test]
    fn seeds_reproduce_and_differ() {
        let dataset = Dataset::new("generated", 2, labelled(&[400, 300]), labelled(&[90, 80]));
        let deal = |seed| Split::Dirichlet { alpha: 0.5 }.deal(&dataset, 5, seed).unwrap();
        assert_eq!(deal(1), deal(1));
        assert_ne!(deal(1), deal(2));
        assert_eq!(deal(1)[4].id.as_str(), "client-5");
    }

    /// Mean 1/n and variance (n-1) / (n^2 (n alpha + 1)) of a symmetric Dirichlet share.
    #[test]
    fn shares_have_the_moments_of_a_dirichlet_distribution() {
        for alpha in [0.05, 0.5, 3.0] {
            let mut random = generator(5, Purpose::Split);
            let draws: Vec<f64> = (0..20_000)
                .map(|_| {
                    let mut shares = dirichlet(alpha, 5, &mut random).unwrap();
                    normalise(&mut shares);
                    shares[2]
                })
                .collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
            let expected = 4.0 / (25.0 * (5.0 * alpha + 1.0));
            assert!((mean - 0.2).abs() < 0.01, "alpha {alpha}: mean {mean}");
            assert!(
                (variance / expected - 1.0).abs() < 0.06,
                "alpha {alpha}: variance {variance}, expected {expected}"
            );
        }
    }

    #[test]
    fn an_even_split_is_even_and_bad_settings_are_refused() {
        let dataset = Dataset::new("generated", 2, labelled(&[1000, 500]), labelled(&[100, 50]));
        for silo in Split::Even.deal(&dataset, 5, 0).unwrap() {
            assert_eq!((silo.train.len(), silo.test.len()), (300, 30));
        }
        for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Split::Dirichlet { alpha }.deal(&dataset, 5, 0).is_err());
        }
        assert!(Split::Even.deal(&dataset, 1, 0).is_err());
        assert!(Split::Even.deal(&dataset, 129, 0).is_err());
        assert!(Split::Natural.deal(&dataset, 5, 0).is_err());
    }
}
