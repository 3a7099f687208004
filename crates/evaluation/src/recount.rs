//! Whether the counts that the principal tells are those that the auxiliary counted for itself.

use std::collections::BTreeMap;

use secsv_federation::{ClientId, Coalition, FederationSpec, RoundId};
use secsv_protocol::{Counted, Recount, session::Federation};

use crate::{Confirmation, Difference, Error, UtilityResult};

impl Confirmation {
    /// Holds what was told against what was counted.
    pub fn new(
        spec: &FederationSpec,
        federation: &Federation,
        utilities: &[UtilityResult],
        may_skip: bool,
        recount: &Recount,
    ) -> Self {
        let positions: BTreeMap<&ClientId, usize> =
            spec.ids().enumerate().map(|(position, id)| (id, position)).collect();
        let mut found = Self { told: utilities.len(), ..Self::default() };
        let name = |client: &usize| spec.clients.get(*client).map(|client| client.id.clone());
        found.disputed = recount.disputed.iter().filter_map(name).collect();
        for told in utilities {
            let coalition: Coalition =
                told.coalition.iter().filter_map(|id| positions.get(id).copied()).collect();
            let counted = recount.counts.get(&measured(federation, told.round, coalition));
            let Some(counted) = counted.and_then(|counted| of_all(counted, told, may_skip)) else { continue };
            if counted == told.correct - told.wrongly_skipped.unwrap_or(0).min(told.correct) {
                found.confirmed += 1;
            } else {
                let (round, coalition, told) = (told.round, told.coalition.clone(), told.correct);
                found.differing.push(Difference { round, coalition, told, counted });
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
        let model = ModelSpec { input: vec![3], classes: 2, layers };
        let client = |id: &str| ClientSpec { id: ClientId::new(id).unwrap(), train_size: 10, rounds: vec![] };
        let clients = ["north", "south", "east", "west"].into_iter().map(client).collect();
        let spec = FederationSpec { name: "four".into(), rounds: 2, model: model.clone(), clients };
        let shapes = BTreeMap::from([("a".to_owned(), vec![2, 3])]);
        let architecture = Architecture::new(&model, &shapes, Path::new("a"), Path::new("a")).unwrap();
        let settings = Settings {
            protocol: Protocol::SecSv,
            preset: Preset::Compact,
            matmul: Matmul::Packed,
            always_skips: false,
            whole_rounds: false,
        };
        let federation = Federation::new(&spec, &architecture, |_| Coalition::first(4), settings).unwrap();
        (spec, federation)
    }

    fn told(round: u32, coalition: &[&str], correct: usize, tested: usize) -> UtilityResult {
        let coalition = coalition.iter().map(|id| ClientId::new(*id).unwrap()).collect();
        UtilityResult { round: RoundId(round), coalition, correct, total: 10, tested, wrongly_skipped: None }
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
        let confirm = |utilities: &[UtilityResult], may_skip| {
            Confirmation::new(&spec, &federation, utilities, may_skip, &recount)
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
        // Skipping where nothing may be skipped is not confirmed; where it may, skipped samples count as right.
        let skipped = [told(2, &["south"], 6, 9)];
        assert_eq!(confirm(&skipped, false).confirmed, 0);
        assert_eq!(confirm(&skipped, true).confirmed, 1);
        assert!(confirm(&[told(2, &["south"], 7, 9)], true).check().is_err());
        let disputed = Recount { disputed: [2].into(), ..recount.clone() };
        let error = Confirmation::new(&spec, &federation, &honest, false, &disputed).check().unwrap_err();
        assert!(error.to_string().contains("east"), "{error}");
    }
}
