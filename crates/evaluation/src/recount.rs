//! Whether the counts that the principal tells are those that the auxiliary counted for itself.

use std::collections::BTreeMap;

use secsv_federation::{ClientId, Coalition, FederationSpec, RoundId};
use secsv_protocol::{Counted, Recount, session::Federation};

use crate::{Confirmation, Difference, Error, UtilityResult};

/// What everybody agreed on, which a principal's words are held to.
#[derive(Clone, Copy, Debug)]
pub struct Agreed {
    /// Samples of all owners.
    pub samples: usize,
    /// Whether samples may be skipped.
    pub may_skip: bool,
    /// Whether skipped samples are tested as well, to say how many were skipped wrongly.
    pub verifies_skipped: bool,
}

impl Confirmation {
    /// Holds what was told against what was counted.
    pub fn new(
        spec: &FederationSpec,
        federation: &Federation,
        agreed: Agreed,
        utilities: &[UtilityResult],
        recount: &Recount,
    ) -> Self {
        let positions: BTreeMap<&ClientId, usize> =
            spec.ids().enumerate().map(|(position, id)| (id, position)).collect();
        let mut found = Self { told: utilities.len(), ..Self::default() };
        let name = |client: &usize| spec.clients.get(*client).map(|client| client.id.clone());
        found.disputed = recount.disputed.iter().filter_map(name).collect();
        for told in utilities {
            let coalition: Option<Coalition> =
                told.coalition.iter().map(|id| positions.get(id).copied()).collect();
            let counted = coalition.and_then(|coalition| {
                recount.counts.get(&measured(federation, told.round, coalition)).copied()
            });
            let is_possible = coalition.is_some() && agreed.allows(told);
            let correct = told.correct.saturating_sub(told.wrongly_skipped.unwrap_or(0));
            match counted.map(|counted| (counted, of_all(&counted, told, agreed.may_skip))) {
                Some((_, Some(right))) if is_possible && right == correct => found.confirmed += 1,
                Some((_, None)) | None if is_possible => {}
                counted => {
                    let right = |(counted, right): (Counted, Option<usize>)| right.unwrap_or(counted.right);
                    let (round, coalition, told) = (told.round, told.coalition.clone(), told.correct);
                    let counted = counted.map_or(0, right);
                    found.differing.push(Difference { round, coalition, told, counted });
                }
            }
        }
        found
    }

    /// An error where something that was told is not what was counted.
    pub fn check(&self) -> Result<(), Error> {
        if let Some(Difference { round, coalition, told, counted }) = self.differing.first() {
            let names: Vec<&str> = coalition.iter().map(ClientId::as_str).collect();
            return Err(Error::Recount {
                round: *round,
                coalition: names.join("+"),
                told: *told,
                counted: *counted,
                others: self.differing.len() - 1,
            });
        }
        if self.disputed.is_empty() {
            return Ok(());
        }
        let clients: Vec<&str> = self.disputed.iter().map(ClientId::as_str).collect();
        Err(Error::Disputed { clients: clients.join(", ") })
    }
}

impl Agreed {
    /// Whether a count can be about these samples. What cannot be is told falsely, whatever was counted.
    fn allows(&self, told: &UtilityResult) -> bool {
        let is_whole = self.may_skip || told.tested == told.total;
        let is_verified = told.wrongly_skipped.is_none() || self.verifies_skipped;
        told.total == self.samples && told.correct <= told.total && is_whole && is_verified
    }
}

/// Where a coalition's model was tested: nobody's model is that of everybody in the round before, but for the first round.
fn measured(federation: &Federation, round: RoundId, coalition: Coalition) -> (RoundId, Coalition) {
    let (mut round, mut coalition) = (round, coalition);
    while coalition.is_empty() {
        let Some((&before, _)) = federation.rounds.range(..round).next_back() else { break };
        (round, coalition) = (before, federation.participants(before));
    }
    (round, coalition)
}

/// Right samples of all, if all were counted; where samples may be skipped, those that were not tested are taken as right.
fn of_all(counted: &Counted, told: &UtilityResult, may_skip: bool) -> Option<usize> {
    let skipped = told.total.checked_sub(counted.tested)?;
    let is_whole = match told.wrongly_skipped {
        Some(_) => skipped == 0,
        None => counted.tested == told.tested && (may_skip || skipped == 0),
    };
    is_whole.then_some(counted.right + skipped)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use secsv_federation::{Architecture, ClientSpec, LayerSpec, ModelSpec};
    use secsv_protocol::{
        Preset,
        decryptors::Protocol,
        session::{Matmul, Settings},
    };

    use super::*;

    fn federation() -> (FederationSpec, Federation) {
        let layers = vec![LayerSpec::Linear { weight: "a".into(), bias: None }];
        let model = ModelSpec::new(vec![3], 2, layers);
        let client = |id: &str| ClientSpec::new(ClientId::new(id).unwrap(), 10.0);
        let clients = ["north", "south", "east", "west"].into_iter().map(client).collect();
        let spec = FederationSpec::new("four".into(), 2, model.clone(), clients);
        let shapes = BTreeMap::from([("a".to_owned(), vec![2, 3])]);
        let architecture = Architecture::new(&model, &shapes, Path::new("a"), Path::new("a")).unwrap();
        let settings = Settings {
            protocol: Protocol::SecSv,
            preset: Preset::Compact,
            matmul: Matmul::Packed,
            always_skips: false,
            whole_rounds: false,
            hidden: Default::default(),
            by_class: false,
        };
        let federation = Federation::new(&spec, &architecture, |_| Coalition::first(4), settings).unwrap();
        (spec, federation)
    }

    fn told(round: u32, coalition: &[&str], correct: usize, tested: usize) -> UtilityResult {
        let coalition = coalition.iter().map(|id| ClientId::new(*id).unwrap()).collect();
        UtilityResult {
            round: RoundId(round),
            coalition,
            correct,
            total: 10,
            tested,
            wrongly_skipped: None,
            correct_of_classes: Vec::new(),
        }
    }

    fn counted(entries: &[(u32, &[usize], usize, usize)]) -> Recount {
        let counts = entries.iter().map(|&(round, members, right, tested)| {
            ((RoundId(round), members.iter().copied().collect()), Counted { tested, right })
        });
        Recount { counts: counts.collect(), ..Recount::default() }
    }

    #[test]
    fn a_principal_that_tells_other_counts_is_found_out() {
        let (spec, federation) = federation();
        let recount =
            counted(&[(1, &[], 4, 10), (1, &[0, 2], 6, 10), (1, &[0, 1, 2, 3], 8, 10), (2, &[1], 5, 9)]);
        let honest = vec![
            told(1, &[], 4, 10),
            told(1, &["east", "north"], 6, 10),
            told(1, &["east", "north", "south", "west"], 8, 10),
            // Nobody's model in the second round is everybody's of the first.
            told(2, &[], 8, 10),
            // Counted on nine samples alone, and not at all.
            told(2, &["south"], 5, 10),
            told(2, &["west"], 7, 10),
        ];
        let agreed = |may_skip| Agreed { samples: 10, may_skip, verifies_skipped: false };
        let confirm = |utilities: &[UtilityResult], may_skip| {
            Confirmation::new(&spec, &federation, agreed(may_skip), utilities, &recount)
        };
        let found = confirm(&honest, false);
        assert_eq!((found.told, found.confirmed, found.differing.len()), (6, 4, 0));
        found.check().unwrap();
        for place in 0..4 {
            let mut lies = honest.clone();
            lies[place].correct += 1;
            let error = confirm(&lies, false).check().unwrap_err().to_string();
            let (round, told, counted) = (lies[place].round, lies[place].correct, honest[place].correct);
            assert!(error.contains(&format!("round {round}")), "{error}");
            assert!(
                error.contains(&format!("told {told}")) && error.contains(&format!("counted {counted}")),
                "{error}"
            );
        }
        // Fewer samples, samples that were skipped wrongly, or clients that nobody knows would hide a false count.
        let hidden = UtilityResult { wrongly_skipped: Some(3), ..told(1, &["east", "north"], 9, 10) };
        let fewer = UtilityResult { total: 9, ..told(1, &["east", "north"], 6, 9) };
        for lie in [hidden, fewer, told(1, &["east", "norrth"], 6, 10), told(1, &["east", "north"], 6, 9)] {
            assert!(confirm(std::slice::from_ref(&lie), false).check().is_err(), "{lie:?}");
        }
        // Skipping where nothing may be skipped is refused; where it may, skipped samples count as right.
        let skipped = [told(2, &["south"], 6, 9)];
        assert_eq!((confirm(&skipped, false).confirmed, confirm(&skipped, false).differing.len()), (0, 1));
        assert_eq!(confirm(&skipped, true).confirmed, 1);
        assert!(confirm(&[told(2, &["south"], 7, 9)], true).check().is_err());
        let disputed = Recount { disputed: [2].into(), ..recount.clone() };
        let error =
            Confirmation::new(&spec, &federation, agreed(false), &honest, &disputed).check().unwrap_err();
        assert!(error.to_string().contains("east"), "{error}");
    }
}
