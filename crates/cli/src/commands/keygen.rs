//! `secsv keygen`: a party's keys, made where they stay.

use std::path::PathBuf;

use clap::Args;
use secsv_federation::ClientId;
use secsv_node::kit::{Request, generate_keys};

use crate::{
    failure::BadInput,
    output::{Document, Format, say},
};

/// Arguments of `secsv keygen`.
#[derive(Args)]
pub struct KeygenArgs {
    /// The party: a client's id in federation.toml, principal or auxiliary.
    #[arg(long)]
    id: String,
    /// The kit: the directory in which the keys stay.
    #[arg(long)]
    out: PathBuf,
}

/// Runs the command.
pub fn run(args: &KeygenArgs, format: Format) -> anyhow::Result<()> {
    let id = ClientId::new(args.id.as_str()).map_err(|error| {
        BadInput::new("--id", "1 to 64 characters of [A-Za-z0-9._-], not beginning with a dot", error.found)
    })?;
    let request = generate_keys(&id, &args.out)?;
    let fingerprint = Request::read(&request)?.fingerprint;
    say(format_args!(
        "send {} to whoever provisions, and read its fingerprint over the telephone: {fingerprint}",
        request.display()
    ));
    let document = serde_json::json!({ "request": request, "fingerprint": fingerprint });
    format.show(&Document::first("secsv-request", document), || format!("{}\n", request.display()))
}
