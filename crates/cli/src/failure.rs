//! Exit codes: 2 where the input is at fault, 3 where a party was told to stop before its run had ended, 4 where there is a result
//! that may be wrong, 1 where this program or machine is at fault.

use secsv_evaluation::EvaluationResult;
use secsv_protocol::session::SettingsConflict;

use crate::output::say;

/// Input that the user can mend.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: expected {expected}, found {found}")]
pub struct BadInput {
    /// The argument or field.
    pub setting: &'static str,
    /// The value that belongs there.
    pub expected: &'static str,
    /// The value that is there.
    pub found: String,
}

impl BadInput {
    /// The error that a setting is not what is expected.
    pub fn new(setting: &'static str, expected: &'static str, found: impl Into<String>) -> Self {
        Self { setting, expected, found: found.into() }
    }
}

/// There is a result, and it may be wrong.
#[derive(Debug, thiserror::Error)]
#[error("the result is there, and do not rely on it: {0}")]
pub struct InDoubt(String);

/// Refuses to call a result done whose hidden numbers left their ranges.
pub fn check_ranges(result: &EvaluationResult) -> Result<(), InDoubt> {
    result.warning().map_or(Ok(()), |warning| Err(InDoubt(warning)))
}

impl From<SettingsConflict> for BadInput {
    fn from(SettingsConflict { setting, expected, found }: SettingsConflict) -> Self {
        let setting = match setting {
            "skip" => "--skip",
            "ranges" => "--ranges",
            "check-ranges" => "--check-ranges",
            "agreement" => "--agreement",
            _ => "--matmul",
        };
        Self { setting, expected, found: found.to_owned() }
    }
}

/// Says what went wrong on standard error and gives the exit code.
pub fn report(error: &anyhow::Error) -> u8 {
    say(format_args!("error: {}", message(error)));
    match is_bad_input(error) {
        true => 2,
        false if was_stopped(error) => 3,
        false if error.chain().any(|cause| cause.is::<InDoubt>()) => 4,
        false => 1,
    }
}

/// Whether somebody ended it: no failure, and it can go on.
fn was_stopped(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(secsv_node::Error::Stopped)))
}

/// The error and its causes. Some errors end with their cause, which is not said again then.
pub fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        match text.as_str() {
            "" => text = cause,
            said if said.ends_with(&cause) => {}
            _ => text = format!("{text}: {cause}"),
        }
    }
    text
}

/// Whether the user can mend it.
pub fn is_bad_input(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<BadInput>()
            || cause.downcast_ref().is_some_and(secsv_federation::Error::is_bad_input)
            || cause.downcast_ref().is_some_and(secsv_evaluation::Error::is_bad_input)
            || cause.downcast_ref().is_some_and(secsv_node::Error::is_bad_input)
            || cause.downcast_ref().is_some_and(secsv_node::kit::KitError::is_bad_input)
            || cause.downcast_ref().is_some_and(secsv_node::consent::ConsentError::is_bad_input)
            || cause.is::<secsv_node::verify::VerifyError>()
            || cause.downcast_ref().is_some_and(secsv_training::TrainingError::is_bad_input)
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context as _;

    use super::*;

    #[test]
    fn every_cause_is_in_the_message_once() {
        let source = || io::Error::other("disk on fire");
        let ends_with_cause = secsv_node::Error::System { what: "a thread", source: source() };
        let error = anyhow::Error::from(ends_with_cause).context("run");
        assert_eq!(message(&error), "run: a thread: disk on fire");
        let error = Err::<(), _>(source()).context("a.json: cannot be written").unwrap_err();
        assert_eq!(message(&error), "a.json: cannot be written: disk on fire");
    }
}
