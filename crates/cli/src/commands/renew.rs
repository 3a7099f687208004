//! `secsv renew`: new certificates for a federation that runs on.

use std::{collections::BTreeMap, path::PathBuf, time::SystemTime};

use clap::Args;
use secsv_node::kit::{Validity, renew};
use serde_json::json;

use crate::output::{Document, Format};

/// Arguments of `secsv renew`.
#[derive(Args)]
pub struct RenewArgs {
    /// The directory that `provision` wrote, with authority-key.pem in it.
    kits: PathBuf,
    /// Where the new files go: a directory for each party.
    #[arg(long)]
    out: PathBuf,
    /// How many days the new certificates are valid.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
}

/// Runs the command.
pub fn run(args: &RenewArgs, format: Format) -> anyhow::Result<()> {
    let made = renew(&args.kits, Validity::days(SystemTime::now(), args.days), &args.out)?;
    let places: BTreeMap<_, _> = made.iter().map(|(id, path)| (id.as_str(), path)).collect();
    format.show(&Document::first("secsv-renewal", json!({ "renewed": places })), || {
        let mut text = String::new();
        made.iter().for_each(|(_, path)| text.push_str(&format!("{}\n", path.display())));
        text.push_str(
            "Each site copies the files of its directory into its kit (certificate.pem is replaced) and starts its process again \
             with the same state directory. Parties that have not done so yet are refused until they have.\n",
        );
        text
    })
}
