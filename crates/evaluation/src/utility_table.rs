//! Utilities in a document: row by row as long as people may look at them, and by column in a table beyond that.
//!
//! Twenty clients have a million coalitions: as rows they took 191 MB.

use std::collections::{BTreeMap, BTreeSet};

use secsv_federation::{ClientId, Coalition, MAX_CLIENTS, RoundId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::UtilityResult;

/// More rows than this are written by column.
pub const MOST_ROWS: usize = 10_000;

/// Utilities by column.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UtilityTable {
    /// Whose bits coalitions have: the first one's is the lowest.
    members: Vec<ClientId>,
    /// Samples of all clients together, the same in every row.
    total: usize,
    round: Vec<RoundId>,
    /// Hexadecimal.
    coalition: Vec<String>,
    correct: Vec<usize>,
    /// Left out where no sample was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tested: Option<Vec<usize>>,
    /// Left out where that was not looked into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wrongly_skipped: Option<Vec<Option<usize>>>,
    /// Left out where utilities do not ask for classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    correct_of_classes: Option<Vec<Vec<usize>>>,
}

/// Both forms.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Rows(Vec<UtilityResult>),
    Table(UtilityTable),
}

/// Writes utilities in the form that fits their number.
pub fn serialize<S: Serializer>(utilities: &[UtilityResult], serializer: S) -> Result<S::Ok, S::Error> {
    let table = if utilities.len() > MOST_ROWS { UtilityTable::of(utilities) } else { None };
    match table {
        Some(table) => table.serialize(serializer),
        None => utilities.serialize(serializer),
    }
}

/// Reads either form.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<UtilityResult>, D::Error> {
    match Written::deserialize(deserializer)? {
        Written::Rows(rows) => Ok(rows),
        Written::Table(table) => table.rows().map_err(D::Error::custom),
    }
}

impl UtilityTable {
    /// The table of these rows; none if they have nothing in common.
    fn of(rows: &[UtilityResult]) -> Option<Self> {
        let total = rows.first()?.total;
        let members: BTreeSet<&ClientId> = rows.iter().flat_map(|row| &row.coalition).collect();
        if rows.iter().any(|row| row.total != total) || members.len() > MAX_CLIENTS {
            return None;
        }
        let places: BTreeMap<&ClientId, usize> =
            members.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        let coalition = |row: &UtilityResult| {
            let coalition: Coalition =
                row.coalition.iter().filter_map(|id| places.get(id)).copied().collect();
            format!("{:x}", coalition.bits())
        };
        let skips = rows.iter().any(|row| row.tested != total);
        let verifies = rows.iter().any(|row| row.wrongly_skipped.is_some());
        let counts_classes = rows.iter().any(|row| !row.correct_of_classes.is_empty());
        Some(Self {
            total,
            round: rows.iter().map(|row| row.round).collect(),
            coalition: rows.iter().map(coalition).collect(),
            correct: rows.iter().map(|row| row.correct).collect(),
            tested: skips.then(|| rows.iter().map(|row| row.tested).collect()),
            wrongly_skipped: verifies.then(|| rows.iter().map(|row| row.wrongly_skipped).collect()),
            correct_of_classes: counts_classes
                .then(|| rows.iter().map(|row| row.correct_of_classes.clone()).collect()),
            members: members.into_iter().cloned().collect(),
        })
    }

    /// The rows, or what is wrong with the table.
    fn rows(self) -> Result<Vec<UtilityResult>, String> {
        let length = self.round.len();
        let lengths = [self.coalition.len(), self.correct.len()];
        let others = [
            self.tested.as_ref().map(Vec::len),
            self.wrongly_skipped.as_ref().map(Vec::len),
            self.correct_of_classes.as_ref().map(Vec::len),
        ];
        if lengths.into_iter().chain(others.into_iter().flatten()).any(|found| found != length) {
            return Err(format!("utilities: expected {length} entries in every column, as round has"));
        }
        let mut rows = Vec::with_capacity(length);
        for (place, (round, bits)) in self.round.iter().zip(&self.coalition).enumerate() {
            let coalition = u128::from_str_radix(bits, 16).map(Coalition::from_bits).ok();
            let coalition = coalition.filter(|c| c.members().all(|member| member < self.members.len()));
            let coalition = coalition.ok_or_else(|| {
                format!(
                    "utilities.coalition[{place}]: expected bits of {} members, found {bits}",
                    self.members.len()
                )
            })?;
            rows.push(UtilityResult {
                round: *round,
                coalition: coalition.members().map(|member| self.members[member].clone()).collect(),
                correct: self.correct[place],
                total: self.total,
                tested: self.tested.as_ref().map_or(self.total, |tested| tested[place]),
                wrongly_skipped: self.wrongly_skipped.as_ref().and_then(|wrong| wrong[place]),
                correct_of_classes: self
                    .correct_of_classes
                    .as_ref()
                    .map(|counts| counts[place].clone())
                    .unwrap_or_default(),
            });
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows(clients: usize, skips: bool, verifies: bool, seed: u64) -> Vec<UtilityResult> {
        let ids: Vec<ClientId> = (0..clients).map(|k| ClientId::new(format!("c{k:03}")).unwrap()).collect();
        let coalition = |place: u64| {
            let bits = u128::from(place.wrapping_mul(seed | 1)) << (place % 60);
            ids.iter().enumerate().filter(|(k, _)| bits >> k & 1 == 1).map(|(_, id)| id.clone()).collect()
        };
        (0..200u64)
            .map(|place| UtilityResult {
                round: RoundId(1 + (place / 50) as u32),
                coalition: coalition(place),
                correct: (place * 7 % 90) as usize,
                total: 100,
                tested: if skips { (place % 101) as usize } else { 100 },
                wrongly_skipped: (verifies && place % 2 == 0).then_some((place % 3) as usize),
                correct_of_classes: if seed.is_multiple_of(2) {
                    Vec::new()
                } else {
                    vec![place as usize % 7, 3]
                },
            })
            .collect()
    }

    proptest! {
        #[test]
        fn a_table_is_its_rows(
            clients in 1usize..=128, skips: bool, verifies: bool, seed: u64,
        ) {
            let rows = rows(clients, skips, verifies, seed);
            let table = UtilityTable::of(&rows).unwrap();
            let text = serde_json::to_string(&table).unwrap();
            let read = deserialize(&mut serde_json::Deserializer::from_str(&text)).unwrap();
            prop_assert_eq!(read, rows);
        }
    }

    /// As many coalitions as twenty clients have.
    #[test]
    fn a_million_coalitions_fit_a_document() {
        let ids: Vec<ClientId> =
            (0..20).map(|k| ClientId::new(format!("hospital-{k:02}")).unwrap()).collect();
        let row = |bits: u128| UtilityResult {
            round: RoundId(1),
            coalition: Coalition::from_bits(bits).members().map(|k| ids[k].clone()).collect(),
            correct: 30,
            total: 50,
            tested: 50,
            wrongly_skipped: None,
            correct_of_classes: Vec::new(),
        };
        // A sixteenth of them: they take a sixteenth of the room.
        let rows: Vec<_> = (0..1 << 16).map(|low| row(low << 4)).collect();
        let mut text = Vec::new();
        serialize(&rows, &mut serde_json::Serializer::new(&mut text)).unwrap();
        assert!(16 * text.len() < 16_000_000, "{} bytes", 16 * text.len());
    }

    #[test]
    fn tables_that_do_not_add_up_are_refused() {
        for (table, said) in [
            (
                r#"{"members":["a"],"total":1,"round":[1],"coalition":[],"correct":[1]}"#,
                "entries in every column",
            ),
            (
                r#"{"members":["a"],"total":1,"round":[1],"coalition":["2"],"correct":[1]}"#,
                "bits of 1 members, found 2",
            ),
            (r#"{"members":["a"],"total":1,"round":[1],"coalition":["x"],"correct":[1]}"#, "found x"),
        ] {
            let error = deserialize(&mut serde_json::Deserializer::from_str(table)).unwrap_err().to_string();
            assert!(error.contains(said), "{table}: {error}");
        }
    }
}
