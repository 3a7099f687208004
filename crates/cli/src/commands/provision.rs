//! `secsv provision`: kits for all parties of a federation.

use std::{collections::BTreeMap, path::PathBuf, time::SystemTime};

use clap::Args;
use secsv_federation::{Labels, RunDirectory};
use secsv_node::kit::{Address, AddressError, Provision, Request, Servers, SessionSpec, Validity};
use serde_json::json;

use super::{
    protocols::{EncryptionArgs, check_estimator},
    valuation::ValuationArgs,
};
use crate::{
    failure::BadInput,
    output::{Document, Format, say},
    protocol_name::{ProtocolName, SecureProtocolArg},
};

/// Arguments of `secsv provision`.
#[derive(Args)]
pub struct ProvisionArgs {
    /// The federation's federation.toml, with initial.safetensors beside it.
    federation: PathBuf,
    /// The directory with everybody's requests (*.request.toml).
    #[arg(long, required_unless_present = "generate_keys", conflicts_with = "generate_keys")]
    requests: Option<PathBuf>,
    /// Make everybody's private keys here as well: for trials, because whoever has them can speak for
    /// everybody.
    #[arg(long)]
    generate_keys: bool,
    /// Where the principal will listen.
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    principal: Address,
    /// Where the auxiliary will listen.
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    auxiliary: Address,
    /// Says that neither server is run by whoever aggregated the training, who knows all models.
    #[arg(long)]
    servers_did_not_aggregate: bool,
    /// Where the kits go: a directory for each party.
    #[arg(long)]
    out: PathBuf,
    /// How many days certificates are valid.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    #[command(flatten)]
    protocol: SecureProtocolArg,
    #[command(flatten)]
    encryption: EncryptionArgs,
    #[command(flatten)]
    valuation: ValuationArgs,
}

fn address(text: &str) -> Result<Address, AddressError> {
    text.parse()
}

/// Runs the command.
pub fn run(args: &ProvisionArgs, format: Format) -> anyhow::Result<()> {
    if args.federation.file_name().is_none_or(|name| name != "federation.toml") {
        let found = args.federation.display().to_string();
        return Err(BadInput::new("FEDERATION", "a file named federation.toml", found).into());
    }
    let parent = args.federation.parent().filter(|parent| !parent.as_os_str().is_empty());
    let run = RunDirectory::open(parent.unwrap_or_else(|| ".".as_ref()))?;
    let protocol = args.protocol.of(&run)?;
    let labels = Labels::read(run.path(), run.spec())?;
    args.encryption.check_used(&[ProtocolName::Secure(protocol)])?;
    if !args.servers_did_not_aggregate {
        let (.., why) = protocol.rules().exposure().aggregator;
        let setting = "--servers-did-not-aggregate";
        anyhow::bail!(BadInput::new(setting, "this assurance", format!("none. {why}")));
    }
    let evaluation = args.valuation.settings(None)?;
    check_estimator(&evaluation)?;
    let settings = args.encryption.settings(protocol, evaluation.skip, evaluation.method)?;
    evaluation.utility.check_classes(run.spec().model.classes)?;
    let session = SessionSpec::new(evaluation.utility.settings(settings)?, &evaluation);
    let servers = Servers { principal: args.principal.clone(), auxiliary: args.auxiliary.clone() };
    let provision = Provision::of_run(&run, servers, session, Validity::days(SystemTime::now(), args.days))
        .labelled(labels);
    let made = match &args.requests {
        Some(requests) => {
            let read = Request::read_all(requests)?;
            for request in &read {
                say(format_args!("request of {}: fingerprint {}", request.id, request.fingerprint));
            }
            provision.sign(&read, requests, &args.out)?
        }
        None => provision.generate_keys(&args.out)?,
    };
    let kits: BTreeMap<_, _> = made.kits.iter().map(|(id, path)| (id.as_str(), path)).collect();
    let document = json!({ "kits": kits, "federation": made.digest, "exposure": made.exposure });
    format.show(&Document::first("secsv-provision", document), || {
        let kits: String = made.kits.iter().map(|(_, path)| format!("{}\n", path.display())).collect();
        format!("{kits}federation {}\n{}", made.digest, made.exposure)
    })?;
    say("next: each site puts the files of its directory beside its keys and runs secsv preflight");
    Ok(())
}
