//! What a result is about: which federation, who took part, who made it and when.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use secsv_federation::{ClientId, FederationSpec, Labels};
use serde::{Deserialize, Serialize};

/// The federation that was valued.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FederationFacts {
    /// What people call it.
    pub name: String,
    /// BLAKE3 of its description, in hexadecimal digits: results of one federation have the same.
    pub digest: String,
    /// What people call the classes, in order; absent where they have no names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Everybody, in the order of `federation.toml`.
    pub organisations: Vec<Organisation>,
}

/// One of those who are valued.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Organisation {
    /// Its id.
    pub id: ClientId,
    /// What people call it, if it is not by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Training samples, where these are its weight in federated averaging.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training_samples: Option<u64>,
    /// Test samples, where they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_samples: Option<u64>,
}

/// Who made a result, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// The program and its version.
    pub by: String,
    /// The day and the second, as 2026-01-31T23:59:59Z.
    pub at: String,
}

impl FederationFacts {
    /// The facts of a description; `test_samples` are by position.
    pub fn new(spec: &FederationSpec, test_samples: &[Option<u64>]) -> Self {
        // A description that was read can be written.
        let text = spec.to_toml().unwrap_or_default();
        let organisations = spec.clients.iter().enumerate().map(|(position, client)| Organisation {
            id: client.id.clone(),
            label: None,
            training_samples: (client.weight.fract() == 0.0).then_some(client.weight as u64),
            test_samples: test_samples.get(position).copied().flatten(),
        });
        Self {
            name: spec.name.clone(),
            digest: blake3::hash(text.as_bytes()).to_hex().to_string(),
            classes: spec.model.class_names.clone(),
            organisations: organisations.collect(),
        }
    }
}

impl FederationFacts {
    /// The same of a round of a federation: results of all its rounds have the digest of what was agreed on for all.
    #[must_use]
    pub fn of(self, whole: &FederationSpec) -> Self {
        Self { digest: Self::new(whole, &[]).digest, ..self }
    }

    /// The same with what people call the organisations.
    #[must_use]
    pub fn labelled(mut self, labels: &Labels) -> Self {
        for organisation in &mut self.organisations {
            organisation.label = labels.get(&organisation.id).map(str::to_owned);
        }
        self
    }
}

impl Made {
    /// By this program, now.
    pub fn now(by: impl Into<String>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { by: by.into(), at: moment(since) }
    }
}

/// A moment as people and programs read it (RFC 3339, UTC).
fn moment(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

/// Year, month and day of a day since 1970, by counting.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        (days, year) = (days - length, year + 1);
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        (days, month) = (days - length, month + 1);
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_827_696, "2000-02-29T12:34:56Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(moment(Duration::from_secs(seconds)), expected);
        }
    }
}
