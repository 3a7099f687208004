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
    eprintln!("error: {error:#}");
    ExitCode::from(if is_bad_input(error) { 2 } else { 1 })
}

/// Whether the user can mend it.
pub fn is_bad_input(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<BadInput>()
            || cause.downcast_ref().is_some_and(secsv_federation::Error::is_bad_input)
            || cause.downcast_ref().is_some_and(secsv_runtime::Error::is_bad_input)
            || cause.downcast_ref().is_some_and(secsv_runtime::kit::KitError::is_bad_input)
            || cause.is::<secsv_runtime::verify::VerifyError>()
            || cause.downcast_ref().is_some_and(secsv_training::TrainingError::is_bad_input)
    })
}
