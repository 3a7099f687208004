//! Faults to plant in a federation, so that experiments know who should contribute less.

use rand::Rng;
use rand::seq::index::sample;
use rand_distr::{Distribution, Normal};
use secsv_federation::{ClientId, Tensor, Weights};

use crate::seeds::{Purpose, generator};
use crate::{Samples, TrainingError};

/// Something wrong with one client.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// A fraction of its training labels, drawn by seed, is each replaced by another class. Test labels stay.
    FlippedLabels {
        /// Whose labels.
        client: ClientId,
        /// The fraction of them, from 0 to 1.
        fraction: f64,
    },
    /// It trains on a copy of another client's training samples (with that client's flipped labels, if any).
    Duplicate {
        /// Who copies.
        client: ClientId,
        /// From whom.
        of: ClientId,
    },
    /// It does not train: it uploads the global model it was given, with normally distributed noise or
    /// without.
    FreeRider {
        /// Who.
        client: ClientId,
        /// The deviation of the noise; 0 uploads the model unchanged.
        noise: f64,
    },
}

impl Fault {
    /// The client that is faulty.
    pub fn client(&self) -> &ClientId {
        match self {
            Self::FlippedLabels { client, .. }
            | Self::Duplicate { client, .. }
            | Self::FreeRider { client, .. } => client,
        }
    }
}

/// Every fault is about a known client and within its range.
pub(crate) fn check(faults: &[Fault], clients: &[ClientId]) -> Result<(), TrainingError> {
    let known = |setting, id: &ClientId| {
        if clients.contains(id) {
            return Ok(());
        }
        Err(TrainingError::UnknownClient { setting, expected: clients.to_vec(), found: id.to_string() })
    };
    let within = |setting, expected: &str, holds: bool, found: f64| {
        if holds {
            return Ok(());
        }
        Err(TrainingError::setting(setting, expected.to_owned(), found.to_string()))
    };
    for fault in faults {
        match fault {
            Fault::FlippedLabels { client, fraction } => {
                known("flipped labels", client)?;
                within(
                    "flipped labels",
                    "a fraction from 0 to 1",
                    (0.0..=1.0).contains(fraction),
                    *fraction,
                )?;
            }
            Fault::Duplicate { client, of } => {
                known("duplicated data", client)?;
                known("duplicated data", of)?;
                if client == of {
                    let (expected, found) =
                        ("two different clients".to_owned(), format!("{client} and {of}"));
                    return Err(TrainingError::setting("duplicated data", expected, found));
                }
            }
            Fault::FreeRider { client, noise } => {
                known("free rider", client)?;
                within("free rider", "noise of 0 or more", noise.is_finite() && *noise >= 0.0, *noise)?;
            }
        }
    }
    Ok(())
}

/// Changes the training samples of faulty clients: first all flips, then all copies.
pub(crate) fn plant(
    faults: &[Fault],
    clients: &[ClientId],
    train: &mut [Samples],
    classes: usize,
    seed: u64,
) {
    let position = |id: &ClientId| clients.iter().position(|client| client == id);
    for fault in faults {
        if let Fault::FlippedLabels { client, fraction } = fault
            && let Some(client) = position(client)
        {
            let mut random = generator(seed, Purpose::FlippedLabels { client });
            flip_labels(train[client].labels_mut(), *fraction, classes, &mut random);
        }
    }
    for fault in faults {
        if let Fault::Duplicate { client, of } = fault
            && let (Some(client), Some(of)) = (position(client), position(of))
        {
            train[client] = train[of].clone();
        }
    }
}

fn flip_labels(labels: &mut [u32], fraction: f64, classes: usize, random: &mut impl Rng) {
    let count = (labels.len() as f64 * fraction).round() as usize;
    for row in sample(random, labels.len(), count.min(labels.len())) {
        // A step of 1 to classes - 1 around the circle of classes reaches every other one equally often.
        let step = random.random_range(1..classes as u32);
        labels[row] = (labels[row] + step) % classes as u32;
    }
}

/// The model that a free rider uploads.
pub(crate) fn free_ride(
    global: &Weights,
    noise: f64,
    random: &mut impl Rng,
) -> Result<Weights, TrainingError> {
    let Ok(normal) = Normal::new(0.0, noise) else { return Ok(global.clone()) };
    let mut disturbed =
        |tensor: &Tensor| tensor.numbers().map(|value| (value + normal.sample(random)) as f32).collect();
    let tensors = global.iter().map(|(name, tensor)| {
        let values = disturbed(tensor);
        Ok((name.to_owned(), Tensor::new(tensor.shape().to_vec(), values)?))
    });
    tensors.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> Vec<ClientId> {
        ["a", "b", "c", "d"].map(|id| ClientId::new(id).unwrap()).to_vec()
    }

    fn samples(first: u32) -> Samples {
        Samples::new(vec![1], vec![first as f32; 50], (0..50).map(|row| (row + first) % 5).collect())
    }

    #[test]
    fn exactly_the_fraction_of_labels_changes_class() {
        let mut train = vec![samples(0), samples(1), samples(2), samples(3)];
        let faults = [Fault::FlippedLabels { client: ids()[1].clone(), fraction: 0.3 }];
        plant(&faults, &ids(), &mut train, 5, 9);
        let changed = |client: usize| {
            let before = samples(client as u32);
            train[client].labels().iter().zip(before.labels()).filter(|(now, before)| now != before).count()
        };
        assert_eq!([0, 1, 2, 3].map(changed), [0, 15, 0, 0]);
        assert!(train[1].labels().iter().all(|&label| label < 5));
        let mut again = vec![samples(0), samples(1), samples(2), samples(3)];
        plant(&faults, &ids(), &mut again, 5, 9);
        assert_eq!(train, again);
    }

    #[test]
    fn a_copy_takes_the_flipped_labels_along() {
        let mut train = vec![samples(0), samples(1), samples(2), samples(3)];
        let [a, b] = [ids()[0].clone(), ids()[1].clone()];
        let faults = [
            Fault::Duplicate { client: a, of: b.clone() },
            Fault::FlippedLabels { client: b, fraction: 1.0 },
        ];
        plant(&faults, &ids(), &mut train, 5, 9);
        assert_eq!(train[0], train[1]);
        assert!(train[0].labels().iter().zip(samples(1).labels()).all(|(now, before)| now != before));
    }

    #[test]
    fn a_free_rider_uploads_what_it_got() {
        let global: Weights =
            [("w".to_owned(), Tensor::new(vec![4000], vec![0.5; 4000]).unwrap())].into_iter().collect();
        let mut random = generator(1, Purpose::Local { round: 1, client: 0 });
        assert_eq!(free_ride(&global, 0.0, &mut random).unwrap(), global);
        let noisy = free_ride(&global, 0.1, &mut random).unwrap();
        let values = noisy.get("w").unwrap().singles();
        let variance = values.iter().map(|x| (x - 0.5).powi(2)).sum::<f32>() / 4000.0;
        assert!((variance.sqrt() - 0.1).abs() < 0.01, "{variance}");
    }

    #[test]
    fn faults_of_nobody_or_out_of_range_are_refused() {
        let [a, stranger] = ["a", "x"].map(|id| ClientId::new(id).unwrap());
        for bad in [
            Fault::FlippedLabels { client: stranger.clone(), fraction: 0.5 },
            Fault::FlippedLabels { client: a.clone(), fraction: 1.5 },
            Fault::FlippedLabels { client: a.clone(), fraction: f64::NAN },
            Fault::Duplicate { client: a.clone(), of: a.clone() },
            Fault::Duplicate { client: a.clone(), of: stranger.clone() },
            Fault::FreeRider { client: a.clone(), noise: -1.0 },
            Fault::FreeRider { client: stranger, noise: 0.0 },
        ] {
            assert!(check(std::slice::from_ref(&bad), &ids()).is_err(), "{bad:?}");
        }
        assert!(check(&[Fault::FreeRider { client: a, noise: 0.0 }], &ids()).is_ok());
    }
}
