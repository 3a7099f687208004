//! A result as comma-separated tables, for spreadsheets and data frames.

use std::{fs, path::Path};

use anyhow::Context as _;
use secsv_evaluation::{EvaluationResult, Organisation};
use secsv_federation::ClientId;

use crate::{failure::BadInput, findings::shares, output_file};

/// Spreadsheets take a file for UTF-8 that begins with this mark.
const MARK: &[u8] = "\u{feff}".as_bytes();
/// The file that is looked at before any work is done.
const FIRST: &str = "values.csv";

/// Refuses a place where tables cannot be written, or that a command reads.
pub fn check(setting: &'static str, directory: &Path, inputs: &[&Path]) -> anyhow::Result<()> {
    if directory.exists() && !directory.is_dir() {
        let found = format!("{}, which is none", directory.display());
        return Err(BadInput::new(setting, "a directory, there or not", found).into());
    }
    let file = if directory.is_dir() { directory.join(FIRST) } else { directory.to_owned() };
    output_file::check_apart(setting, &file, inputs)?;
    output_file::check(setting, &file)
}

/// Writes all tables of a result.
pub fn write(directory: &Path, result: &EvaluationResult) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("{}: cannot be written", directory.display()))?;
    let tables = [
        (FIRST, values(result)?),
        ("rounds.csv", rounds(result)?),
        ("utilities.csv", utilities(result)?),
        ("traffic.csv", traffic(result)?),
        ("messages.csv", messages(result)?),
    ];
    tables.iter().try_for_each(|(name, table)| output_file::write(&directory.join(name), table))
}

/// A table of these columns; `fill` writes the rows.
fn table(
    columns: &[&str],
    fill: impl FnOnce(&mut csv::Writer<Vec<u8>>) -> csv::Result<()>,
) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(MARK.to_vec());
    writer.write_record(columns)?;
    fill(&mut writer)?;
    writer.into_inner().map_err(|error| anyhow::anyhow!("a table: {error}"))
}

fn values(result: &EvaluationResult) -> anyhow::Result<Vec<u8>> {
    let columns = [
        "organisation",
        "label",
        "value",
        "points",
        "share_of_positive",
        "standard_error",
        "test_standard_error",
        "training_samples",
        "test_samples",
    ];
    let shares = shares(&result.fsv);
    let known = |id: &ClientId| {
        result.federation.iter().flat_map(|facts| &facts.organisations).find(|known| known.id == *id)
    };
    let noise = result.test_noise.as_ref().map(|noise| &noise.standard_error);
    table(&columns, |writer| {
        for id in &result.clients {
            let value = result.fsv.get(id).copied().unwrap_or_default();
            writer.write_record([
                id.to_string(),
                cell(known(id).and_then(|known| known.label.as_deref()).map(unexecuted)),
                value.to_string(),
                (100.0 * value).to_string(),
                cell(shares.get(id)),
                cell(result.standard_error.as_ref().and_then(|errors| errors.get(id))),
                cell(noise.and_then(|errors| errors.get(id))),
                cell(known(id).and_then(|known: &Organisation| known.training_samples)),
                cell(known(id).and_then(|known| known.test_samples)),
            ])?;
        }
        Ok(())
    })
}

fn rounds(result: &EvaluationResult) -> anyhow::Result<Vec<u8>> {
    table(&["round", "organisation", "value", "points", "standard_error"], |writer| {
        for round in &result.ssv {
            for (id, value) in &round.values {
                let error = round.standard_error.as_ref().and_then(|errors| errors.get(id));
                writer.write_record([
                    round.round.to_string(),
                    id.to_string(),
                    value.to_string(),
                    (100.0 * value).to_string(),
                    cell(error),
                ])?;
            }
        }
        Ok(())
    })
}

fn utilities(result: &EvaluationResult) -> anyhow::Result<Vec<u8>> {
    let columns =
        ["round", "organisations", "size", "correct", "total", "tested", "wrongly_skipped", "utility"];
    table(&columns, |writer| {
        for utility in &result.utilities {
            let members: Vec<_> = utility.coalition.iter().map(ClientId::as_str).collect();
            writer.write_record([
                utility.round.to_string(),
                members.join(" "),
                members.len().to_string(),
                utility.correct.to_string(),
                utility.total.to_string(),
                utility.tested.to_string(),
                cell(utility.wrongly_skipped),
                result.worth(utility).to_string(),
            ])?;
        }
        Ok(())
    })
}

fn traffic(result: &EvaluationResult) -> anyhow::Result<Vec<u8>> {
    table(&["from", "to", "bytes"], |writer| {
        result
            .traffic
            .iter()
            .try_for_each(|link| writer.write_record([&link.from, &link.to, &link.bytes.to_string()]))
    })
}

fn messages(result: &EvaluationResult) -> anyhow::Result<Vec<u8>> {
    table(&["kind", "messages", "bytes"], |writer| {
        result.messages.iter().try_for_each(|kind| {
            writer.write_record([kind.kind.clone(), kind.messages.to_string(), kind.bytes.to_string()])
        })
    })
}

/// A label as spreadsheets may hold it: what begins like a formula is not to be computed.
fn unexecuted(label: &str) -> String {
    if label.starts_with(['=', '+', '-', '@', '\t']) { format!("'{label}") } else { label.to_owned() }
}

/// A number that may be absent.
fn cell(number: Option<impl ToString>) -> String {
    number.map_or(String::new(), |number| number.to_string())
}
