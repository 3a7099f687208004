//! `--follow`: rounds that are valued while training goes on.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use secsv_federation::ROUNDS;
use secsv_node::process::{FollowOptions, LiveEvent, NodeOptions};

use crate::{
    failure::BadInput,
    output::{Format, print_or_end},
    program,
    result_files::ResultFiles,
};

/// Arguments of a party that follows a training.
#[derive(Args)]
pub struct FollowArgs {
    /// Value rounds one by one while training goes on: each as soon as its file (rounds/0003.toml) and models are there.
    #[arg(long)]
    follow: bool,
    /// Where values of rounds go: round-0003.json and totals.json.
    #[arg(long, value_name = "DIR", requires = "follow")]
    values: Option<PathBuf>,
    /// Where rounds' files come [default: rounds in the kit; at a client in its data].
    #[arg(long, value_name = "DIR", requires = "follow")]
    rounds: Option<PathBuf>,
    /// Seconds that a round waits without anything new, for a party, for a file or for an earlier round, before it is given up.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 600.0,
        requires = "follow",
        allow_negative_numbers = true
    )]
    late: f64,
}

impl FollowArgs {
    /// Whether rounds come one by one.
    pub fn is_wanted(&self) -> bool {
        self.follow
    }

    /// What the process is told; a client has its rounds beside its `data`.
    pub fn options(
        &self,
        kit: &Path,
        node: NodeOptions,
        data: Option<&Path>,
        files: Option<&ResultFiles>,
    ) -> Result<FollowOptions, BadInput> {
        if files.is_some_and(ResultFiles::are_wanted) {
            let found = "one of --json, --report and --csv".to_owned();
            return Err(BadInput::new("--follow", "--values DIR: there is a result for each round", found));
        }
        let late = Duration::try_from_secs_f64(self.late)
            .map_err(|_| BadInput::new("--late", "a positive number of seconds", self.late.to_string()))?;
        let rounds = self.rounds.clone().unwrap_or_else(|| data.unwrap_or(kit).join(ROUNDS));
        Ok(FollowOptions {
            kit: kit.to_owned(),
            node,
            rounds,
            late,
            values: self.values.clone(),
            made_by: program(),
        })
    }
}

/// Shows what has happened to a round: a line of JSON, or one for people.
pub fn show(event: &LiveEvent, format: Format) {
    let line = match format {
        Format::Json => serde_json::to_string(event).unwrap_or_default(),
        Format::Text => text(event),
    };
    // The files have it: nobody has to read along.
    let _ = print_or_end(&format!("{line}\n"));
}

fn text(event: &LiveEvent) -> String {
    match event {
        LiveEvent::Round { round, values, totals, seconds } => {
            let of = |(id, value): (&_, &f64)| {
                format!("{id} {value:+.4} (sum {:+.4})", totals.get(id).copied().unwrap_or_default())
            };
            let values = values.iter().map(of).collect::<Vec<_>>().join(", ");
            let after =
                seconds.map_or_else(String::new, |seconds| format!(", {seconds:.1} s after its file came"));
            format!("round {round}: {values}{after}")
        }
        LiveEvent::Missed { round, why } => format!("round {round}: no values: {why}"),
    }
}
