//! Whether a silo's data are those that its kit was made for.

use std::path::Path;

use secsv_federation::RunDirectory;
use secsv_protocol::{ClientInput, PartyId};

use super::Check;
use crate::{Error, kit::Kit, process::own_input};

/// Reads everything that the client will ever encode, as it will when it starts.
pub(super) fn check(kit: &Kit, data: &Path) -> (Check, Option<ClientInput>) {
    let what = format!("data {}", data.display());
    let PartyId::Client(position) = kit.own else {
        let advice = "leave --data out: servers bring none";
        return (Check::failed(what, format!("a kit of the {}", kit.own_name()), advice), None);
    };
    let read = RunDirectory::open(data)
        .map_err(Error::from)
        .and_then(|run| own_input(kit, &run, position, !kit.federation.federation.comes_later()));
    match read {
        Ok(input) => {
            let (cases, models) = (input.test_set.len(), input.local.len());
            (
                Check::ok(what, format!("{cases} test cases, {models} local models, as the kit says")),
                Some(input),
            )
        }
        Err(error) => {
            let advice = "mend the file, or have kits made for these data (docs/RUN_DIRECTORY.md)";
            (Check::failed(what, error.to_string(), advice), None)
        }
    }
}
