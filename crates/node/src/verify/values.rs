//! Values computed again from the utilities, by the same estimator, and compared bit for bit.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use secsv_federation::{ClientId, Coalition, RoundId};
use secsv_shapley::{ClientValues, Federated, FederatedValues};

use super::{Finding, Verification};
use crate::kit::FederationFile;
use secsv_evaluation::{EvaluationResult, UtilityResult};

/// Utilities by round and coalition.
type Table<'a> = BTreeMap<(RoundId, Coalition), &'a UtilityResult>;

pub(super) fn check(
    file: &Path,
    result: &EvaluationResult,
    federation: &FederationFile,
    found: &mut Verification,
) {
    let mut wrong = |what: String| found.findings.push(Finding::new(file, None, what));
    let clients: Vec<ClientId> = federation.federation.ids().cloned().collect();
    let session = &federation.session;
    let said = [
        ("protocol", &session.protocol, &result.protocol),
        ("estimator", &session.estimator, &result.estimator),
        ("utility", &session.utility, &result.utility),
        ("seed", &session.seed.to_string(), &result.seed.to_string()),
    ];
    for (field, expected, found) in said {
        if expected != found {
            wrong(format!("{field}: expected {expected} as the federation file says, found {found}"));
        }
    }
    if result.clients != clients {
        wrong("clients: expected those of the federation file, found others".to_owned());
        return;
    }
    let table = match table(result, &clients, federation) {
        Ok(table) => table,
        Err(problems) => return problems.into_iter().for_each(wrong),
    };
    match recompute(&table, &result.class_samples, federation) {
        Ok((values, asked)) => {
            for (round, coalition) in table.keys().filter(|key| !asked.contains(*key)) {
                let names = names(&clients, *coalition);
                wrong(format!(
                    "utilities: expected what the estimator asks for, found round {round} {names} as well"
                ));
            }
            let (compared, problems) = compare(result, &values, &clients);
            problems.into_iter().for_each(&mut wrong);
            found.values += compared;
        }
        Err(problem) => wrong(problem),
    }
}

fn table<'a>(
    result: &'a EvaluationResult,
    clients: &[ClientId],
    federation: &FederationFile,
) -> Result<Table<'a>, Vec<String>> {
    let mut problems = Vec::new();
    let mut table = Table::new();
    let total = result.utilities.first().map_or(0, |utility| utility.total);
    for (index, utility) in result.utilities.iter().enumerate() {
        let mut wrong = |what: String| problems.push(format!("utilities[{index}].{what}"));
        let positions: Option<Coalition> =
            utility.coalition.iter().map(|id| clients.iter().position(|client| client == id)).collect();
        let Some(coalition) = positions.filter(|c| c.is_subset_of(federation.participants(utility.round)))
        else {
            wrong(format!("coalition: expected participants of round {}, found others", utility.round));
            continue;
        };
        if utility.total != total || total == 0 {
            wrong(format!("total: expected {total} as everywhere, found {}", utility.total));
        }
        if utility.correct > utility.total {
            wrong(format!("correct: expected at most {}, found {}", utility.total, utility.correct));
        }
        if let Some(expected) = misfit(result, utility) {
            wrong(format!("correct_of_classes: expected {expected}, found {:?}", utility.correct_of_classes));
        }
        if utility.tested > utility.total
            || utility.total - utility.tested.min(utility.total) > utility.correct
        {
            wrong(format!(
                "tested: expected what {} right samples allow, found {}",
                utility.correct, utility.tested
            ));
        }
        if table.insert((utility.round, coalition), utility).is_some() {
            wrong("coalition: expected each coalition once in a round, found it again".to_owned());
        }
    }
    if problems.is_empty() { Ok(table) } else { Err(problems) }
}

/// What counts of classes should be, where they are not.
fn misfit(result: &EvaluationResult, utility: &UtilityResult) -> Option<String> {
    let (sizes, right) = (&result.class_samples, &utility.correct_of_classes);
    let fits = right.len() == sizes.len() && right.iter().zip(sizes).all(|(right, size)| right <= size);
    let sum = |counts: &[usize]| counts.iter().try_fold(0usize, |sum, &count| sum.checked_add(count));
    let is_whole =
        sizes.is_empty() || (sum(sizes) == Some(utility.total) && sum(right) == Some(utility.correct));
    (!fits || !is_whole).then(|| {
        format!("{} in all, of classes of {sizes:?} samples, {} in all", utility.correct, utility.total)
    })
}

/// Asks the estimator what it asked then.
fn recompute(
    table: &Table<'_>,
    class_samples: &[usize],
    federation: &FederationFile,
) -> Result<(FederatedValues, BTreeSet<(RoundId, Coalition)>), String> {
    let clients: Vec<ClientId> = federation.federation.ids().cloned().collect();
    let rounds: Vec<(RoundId, Coalition)> =
        federation.federation.round_ids().map(|round| (round, federation.participants(round))).collect();
    let settings = federation.evaluation(Path::new("federation.toml")).map_err(|error| error.to_string())?;
    let failed =
        |error: secsv_shapley::Error| format!("values: expected what follows from the utilities: {error}");
    let mut plan = Federated::new(settings.method, &rounds, &settings.estimator).map_err(failed)?;
    let mut asked = BTreeSet::new();
    loop {
        let batch = plan.next_batch(Duration::ZERO).map_err(failed)?;
        if batch.is_empty() {
            break;
        }
        for (round, coalition) in batch {
            let names = || names(&clients, coalition);
            let utility = table.get(&(round, coalition)).ok_or_else(|| {
                format!("utilities: expected one for round {round} {}, found none", names())
            })?;
            if let Some((before, everybody)) = inherited(&rounds, round).filter(|_| coalition.is_empty()) {
                let other = table.get(&(before, everybody));
                if other.is_none_or(|other| other.correct != utility.correct) {
                    let expected = other.map_or_else(|| "one".to_owned(), |other| other.correct.to_string());
                    return Err(format!(
                        "utilities: expected {expected} right samples for nobody in round {round}, as for everybody in \
                         round {before}, found {}",
                        utility.correct
                    ));
                }
                asked.insert((before, everybody));
            }
            asked.insert((round, coalition));
            let value = match settings.utility.needs_classes() {
                true => settings.utility.value(&utility.correct_of_classes, class_samples),
                false => utility.correct as f64 / utility.total as f64,
            };
            plan.absorb(round, coalition, value).map_err(failed)?;
        }
    }
    plan.finish().map(|values| (values, asked)).map_err(failed)
}

/// After the first round nobody's model is everybody's of the round before.
fn inherited(rounds: &[(RoundId, Coalition)], round: RoundId) -> Option<(RoundId, Coalition)> {
    rounds.iter().rev().find(|(other, _)| *other < round).copied()
}

/// How many values were compared, and which differ.
fn compare(
    result: &EvaluationResult,
    values: &FederatedValues,
    clients: &[ClientId],
) -> (usize, Vec<String>) {
    let (mut compared, mut problems) = (0, Vec::new());
    let mut check = |place: String, said: &BTreeMap<ClientId, f64>, expected: &dyn Fn(usize) -> f64| {
        for (position, client) in clients.iter().enumerate() {
            compared += 1;
            let expected = expected(position);
            match said.get(client) {
                Some(said) if said.to_bits() == expected.to_bits() => {}
                said => {
                    let said = said.map_or_else(|| "none".to_owned(), f64::to_string);
                    problems.push(format!(
                        "{place}.{client}: expected {expected} from the utilities, found {said}"
                    ));
                }
            }
        }
    };
    let mut pair = |place: &str,
                    said: (&BTreeMap<ClientId, f64>, Option<&BTreeMap<ClientId, f64>>),
                    values: &ClientValues| {
        check(place.to_owned(), said.0, &|client| values.value(client));
        if values.standard_errors().is_some() {
            let errors = said.1.cloned().unwrap_or_default();
            let expected = |client| values.standard_error(client).unwrap_or(0.0);
            check(format!("{place} standard_error"), &errors, &expected);
        }
    };
    pair("fsv", (&result.fsv, result.standard_error.as_ref()), &values.total);
    for round in &values.rounds {
        let said = result.ssv.iter().find(|said| said.round == round.round);
        let empty = BTreeMap::new();
        let said = said.map_or((&empty, None), |said| (&said.values, said.standard_error.as_ref()));
        pair(&format!("ssv round {}", round.round), said, &round.values);
    }
    if result.ssv.len() != values.rounds.len() {
        problems.push(format!("ssv: expected {} rounds, found {}", values.rounds.len(), result.ssv.len()));
    }
    (compared, problems)
}

fn names(clients: &[ClientId], coalition: Coalition) -> String {
    let names: Vec<&str> = coalition.members().filter_map(|c| clients.get(c)).map(ClientId::as_str).collect();
    format!("{{{}}}", names.join(", "))
}
