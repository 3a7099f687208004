//! Values as if somebody had been no player: from utilities that are there, nothing is tested again.

use std::{collections::BTreeMap, time::Duration};

use secsv_evaluation::{EvaluationResult, RoundResult, Utility, UtilityResult};
use secsv_federation::{ClientId, Coalition, RoundId};
use secsv_shapley::{ClientValues, EstimatorSettings, Federated, Method};

use crate::failure::BadInput;

/// The result of the game that the other clients play: exact values, from utilities of coalitions without `left_out`. What
/// everybody trained from stays what it was.
pub fn without(result: &EvaluationResult, left_out: &[String]) -> anyhow::Result<EvaluationResult> {
    if result.estimator != Method::Exact.name() {
        let expected = "a result of exact values: others have not tested all coalitions";
        return Err(BadInput::new("estimator", expected, result.estimator.clone()).into());
    }
    if result.utility != Utility::Accuracy.to_string() {
        return Err(BadInput::new("utility", "accuracy", result.utility.clone()).into());
    }
    for id in left_out {
        if !result.clients.iter().any(|client| client.as_str() == id) {
            let (expected, found) = ("clients of the result", id.clone());
            return Err(BadInput::new("silos", expected, found).into());
        }
    }
    let stays = |id: &ClientId| !left_out.iter().any(|out| out == id.as_str());
    let clients: Vec<ClientId> = result.clients.iter().filter(|id| stays(id)).cloned().collect();
    if clients.is_empty() {
        return Err(BadInput::new("silos", "fewer than all clients", left_out.join(", ")).into());
    }
    let utilities: Vec<UtilityResult> =
        result.utilities.iter().filter(|utility| utility.coalition.iter().all(stays)).cloned().collect();
    let mut rounds: BTreeMap<RoundId, Coalition> = BTreeMap::new();
    for utility in &utilities {
        let members = positions(&clients, &utility.coalition);
        let all = rounds.entry(utility.round).or_insert(Coalition::EMPTY);
        *all = all.members().chain(members.members()).collect();
    }
    let rounds: Vec<(RoundId, Coalition)> =
        rounds.into_iter().filter(|(_, participants)| !participants.is_empty()).collect();
    let values = values(&rounds, &clients, &utilities)?;
    let by_client = |of: &ClientValues| -> BTreeMap<ClientId, f64> {
        clients.iter().cloned().enumerate().map(|(position, id)| (id, of.value(position))).collect()
    };
    let left = left_out.join(", ");
    let mut found = result.clone();
    found.ssv = (values.rounds.iter())
        .map(|round| RoundResult {
            round: round.round,
            values: by_client(&round.values),
            standard_error: None,
        })
        .collect();
    found.fsv = by_client(&values.total);
    (found.standard_error, found.test_noise, found.recount) = (None, None, None);
    found.notes.push(format!(
        "values of the others without {left}, from the same utilities: the models that the others trained from had been made with \
         {left} all the same, and test samples of {left} count"
    ));
    if let Some(facts) = &mut found.federation {
        facts.organisations.retain(|organisation| stays(&organisation.id));
    }
    (found.utilities, found.clients) = (utilities, clients);
    Ok(found)
}

fn values(
    rounds: &[(RoundId, Coalition)],
    clients: &[ClientId],
    utilities: &[UtilityResult],
) -> anyhow::Result<secsv_shapley::FederatedValues> {
    let known: BTreeMap<(RoundId, Coalition), &UtilityResult> = (utilities.iter())
        .map(|utility| ((utility.round, positions(clients, &utility.coalition)), utility))
        .collect();
    let mut plan = Federated::new(Method::Exact, rounds, &EstimatorSettings::default())?;
    loop {
        let batch = plan.next_batch(Duration::ZERO)?;
        if batch.is_empty() {
            return Ok(plan.finish()?);
        }
        for (round, coalition) in batch {
            let missing =
                || BadInput::new("utilities", "one for every coalition", format!("none in round {round}"));
            let utility = known.get(&(round, coalition)).ok_or_else(missing)?;
            plan.absorb(round, coalition, utility.correct as f64 / utility.total as f64)?;
        }
    }
}

fn positions(clients: &[ClientId], members: &[ClientId]) -> Coalition {
    members.iter().filter_map(|id| clients.iter().position(|client| client == id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(estimator: &str) -> EvaluationResult {
        let utility = |coalition: &[&str], correct: u32| serde_json::json!({ "round": 1, "coalition": coalition, "correct": correct, "total": 10, "tested": 10 });
        let utilities = [
            utility(&[], 2),
            utility(&["a"], 4),
            utility(&["b"], 5),
            utility(&["c"], 1),
            utility(&["a", "b"], 9),
            utility(&["a", "c"], 3),
            utility(&["b", "c"], 3),
            utility(&["a", "b", "c"], 8),
        ];
        serde_json::from_value(serde_json::json!({
            "protocol": "nssv", "estimator": estimator, "skip": false, "clients": ["a", "b", "c"],
            "fsv": { "a": 0.0, "b": 0.0, "c": 0.0 }, "ssv": [], "utilities": utilities, "seed": 0
        }))
        .unwrap()
    }

    /// By hand: of a and b alone, a adds 2 alone and 4 behind b, b adds 3 alone and 5 behind a.
    #[test]
    fn the_others_play_their_own_game() {
        let found = without(&result("exact"), &["c".to_owned()]).unwrap();
        let values: Vec<f64> = found.fsv.values().copied().collect();
        assert_eq!(found.clients.len(), 2);
        assert!((values[0] - 0.3).abs() < 1e-12 && (values[1] - 0.4).abs() < 1e-12, "{values:?}");
        assert_eq!((found.ssv.len(), found.utilities.len()), (1, 4));
        assert!(found.notes.iter().any(|note| note.contains("without c")), "{:?}", found.notes);
    }

    #[test]
    fn what_cannot_be_known_is_refused() {
        for (estimator, out) in
            [("permutation", vec!["a"]), ("exact", vec!["nobody"]), ("exact", vec!["a", "b", "c"])]
        {
            let out: Vec<String> = out.into_iter().map(str::to_owned).collect();
            assert!(
                crate::failure::is_bad_input(&without(&result(estimator), &out).unwrap_err()),
                "{estimator}"
            );
        }
    }
}
