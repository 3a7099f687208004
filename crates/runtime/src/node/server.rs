//! The auxiliary's process.

use std::sync::Arc;

use secsv_protocol::{Auxiliary, PartyId, role::Effects};

use super::{Network, NodeOptions, Values, await_values, ended, finish};
use crate::{Error, kit::Kit, party::Party};

/// Runs the auxiliary until the values have come.
pub fn run_auxiliary(kit: Kit, options: &NodeOptions) -> Result<Values, Error> {
    if kit.own != PartyId::Auxiliary {
        let found = kit.own_name();
        return Err(Error::Data { field: "kit", expected: "the auxiliary's".to_owned(), found });
    }
    let kit = Arc::new(kit);
    if let Some(values) = ended::ended(&kit, &options.state)? {
        return ended::say_again(&kit, options, &values, &[PartyId::Principal]);
    }
    let party = Party::open(kit.clone(), &options.state, None, |federation, journal| {
        let seed = journal.seed().derive("auxiliary", 0);
        Ok((Auxiliary::new(federation.clone(), seed), Effects::default(), Vec::new()))
    })?;
    let network = Network::start(&party, &kit, options, &[PartyId::Principal])?;
    let values = await_values(&party, &network, |role| role.values().map(<[u8]>::to_vec));
    let values = finish(&party, network, values.and_then(|bytes| Values::decode(&bytes)))?;
    ended::wipe(&kit, &options.state, &values)?;
    Ok(values)
}
