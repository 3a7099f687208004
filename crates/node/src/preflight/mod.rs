//! Whether a party could take part now: everything that usually goes wrong on the first day, checked before it does.

mod data;
mod needs;
mod server;
mod state;
#[cfg(test)]
mod tests;

use std::{fmt, io, path::Path, time::SystemTime};

use secsv_protocol::PartyId;
use serde::Serialize;

use crate::{
    kit::{Kit, SOON, date},
    process::listen_address,
};

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckOutcome {
    /// As it should be.
    Ok,
    /// It will do for now.
    Warning,
    /// The run cannot work like this.
    Failed,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// How it went.
    pub outcome: CheckOutcome,
    /// Of what.
    pub what: String,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<&'static str>,
}

impl Check {
    fn ok(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self { outcome: CheckOutcome::Ok, what: what.into(), found: found.into(), advice: None }
    }

    fn warning(what: impl Into<String>, found: impl Into<String>, advice: &'static str) -> Self {
        Self { outcome: CheckOutcome::Warning, advice: Some(advice), ..Self::ok(what, found) }
    }

    fn failed(what: impl Into<String>, found: impl Into<String>, advice: &'static str) -> Self {
        Self { outcome: CheckOutcome::Failed, advice: Some(advice), ..Self::ok(what, found) }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            CheckOutcome::Ok => "ok",
            CheckOutcome::Warning => "warning",
            CheckOutcome::Failed => "failed",
        };
        write!(f, "{outcome:7}  {}: {}", self.what, self.found)?;
        self.advice.map_or(Ok(()), |advice| write!(f, " -> {advice}"))
    }
}

/// What a party says of itself before its checks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circumstances<'a> {
    /// Where it will keep its state.
    pub state: Option<&'a Path>,
    /// Where a server will listen, if not at the address in the federation file.
    pub listen: Option<&'a str>,
    /// A client's part of a run directory, or all of one.
    pub data: Option<&'a Path>,
    /// Test cases of all silos together, where somebody knows how many there will be.
    pub samples: Option<usize>,
}

/// Checks everything about a kit that opened, its servers, and what the party says of itself. Takes no more than a few seconds for
/// each server.
pub fn preflight(kit: &Kit, own: Circumstances<'_>) -> io::Result<Vec<Check>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(checks(kit, own)))
}

async fn checks(kit: &Kit, own: Circumstances<'_>) -> Vec<Check> {
    let Circumstances { state, listen, data, samples } = own;
    let digest = crate::Fingerprint(kit.digest);
    let mut checks = vec![
        Check::ok("kit", format!("{}, federation {digest}", kit.own_name())),
        certificate(kit, SystemTime::now()),
    ];
    let input = data.and_then(|data| {
        let (check, input) = data::check(kit, data);
        checks.push(check);
        input
    });
    if let Some(state) = state {
        checks.extend(state::check(state));
    }
    checks.extend(needs::check(kit, state, input, samples));
    for server in [PartyId::Principal, PartyId::Auxiliary] {
        if server == kit.own {
            if let Some(address) = listen_address(kit, listen) {
                checks.push(server::check_own_address(&address).await);
            }
        } else if dials(kit.own, server) {
            checks.extend(server::check(kit, server).await);
        }
    }
    checks
}

/// Clients dial both servers, the auxiliary dials the principal, and the principal nobody.
fn dials(own: PartyId, server: PartyId) -> bool {
    match own {
        PartyId::Client(_) => true,
        PartyId::Auxiliary => server == PartyId::Principal,
        PartyId::Principal => false,
    }
}

fn certificate(kit: &Kit, now: SystemTime) -> Check {
    let until = date(kit.validity.until);
    match kit.validity.until.duration_since(now) {
        Ok(left) if left < SOON => Check::warning(
            "certificate",
            format!("valid until {until}"),
            "have the certificates renewed if the run may take longer (secsv renew)",
        ),
        _ => Check::ok("certificate", format!("valid until {until}")),
    }
}
