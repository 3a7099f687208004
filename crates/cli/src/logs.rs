//! Logs on standard error: text on a terminal, JSON lines otherwise. `SECSV_LOG` says how much (info).

use std::io::{IsTerminal as _, stderr};

use tracing::level_filters::LevelFilter;

use crate::{failure::BadInput, output::LossyStderr};

/// The variable that says how much is logged.
const VARIABLE: &str = "SECSV_LOG";

/// From now on what is worth knowing is logged.
pub fn start(is_quiet: bool) -> Result<(), BadInput> {
    let usual = if is_quiet { LevelFilter::WARN } else { LevelFilter::INFO };
    let said = std::env::var_os(VARIABLE).map(|level| level.to_string_lossy().into_owned());
    let level = level(said)?.unwrap_or(usual);
    let logs = tracing_subscriber::fmt().with_max_level(level).with_writer(|| LossyStderr).with_target(false);
    if stderr().is_terminal() {
        logs.init();
    } else {
        logs.json().flatten_event(true).init();
    }
    Ok(())
}

/// How much is logged, if anything is said about it.
fn level(said: Option<String>) -> Result<Option<LevelFilter>, BadInput> {
    let Some(said) = said.filter(|said| !said.is_empty()) else { return Ok(None) };
    let expected = "off, error, warn, info, debug or trace";
    said.parse().map(Some).map_err(|_| BadInput::new(VARIABLE, expected, said))
}
