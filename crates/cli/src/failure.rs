//! Exit codes: 2 where the input is at fault, 1 where this program or machine is.

use std::process::ExitCode;

/// Input that the user can mend.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: expected {expected}, found {found}")]
pub struct BadInput {
    /// The argument or field.
    pub setting: &'static str,
    /// What belongs there.
    pub expected: &'static str,
    /// What is there.
    pub found: String,
}

/// Says what went wrong on standard error and gives the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {}", told(error));
    ExitCode::from(if is_bad_input(error) { 2 } else { 1 })
}

/// What went wrong and why. Some errors end with their cause, which is not said again then.
fn told(error: &anyhow::Error) -> String {
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
    fn every_cause_is_told_once() {
        let source = || io::Error::other("disk on fire");
        let ends_with_cause = secsv_node::Error::System { what: "a thread", source: source() };
        let error = anyhow::Error::from(ends_with_cause).context("run");
        assert_eq!(told(&error), "run: a thread: disk on fire");
        let error = Err::<(), _>(source()).context("a.json: cannot be written").unwrap_err();
        assert_eq!(told(&error), "a.json: cannot be written: disk on fire");
    }
}
