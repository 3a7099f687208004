//! Logs on standard error: text on a terminal, JSON lines otherwise. `SECSV_LOG` says how much (info).

use std::io::{IsTerminal as _, stderr};

use tracing::level_filters::LevelFilter;

use crate::output::LossyStderr;

/// From now on what is worth knowing is logged.
pub fn start() {
    let level = std::env::var("SECSV_LOG").ok().and_then(|level| level.parse().ok());
    let logs = tracing_subscriber::fmt()
        .with_max_level(level.unwrap_or(LevelFilter::INFO))
        .with_writer(|| LossyStderr)
        .with_target(false);
    if stderr().is_terminal() {
        logs.init();
    } else {
        logs.json().flatten_event(true).init();
    }
}
