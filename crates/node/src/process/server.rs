//! The auxiliary's process.

use std::{collections::BTreeMap, sync::Arc};

use secsv_federation::skip::SkipMode;
use secsv_protocol::{Auxiliary, PartyId, role::Effects};

use super::{
    Followed, Heartbeat, NodeOptions, PartyNetwork, PublishedValues, await_values, check_rounds, ended,
    finish,
};
use crate::{
    Error,
    kit::Kit,
    party::{Party, local},
};
use secsv_evaluation::{Agreed, Confirmation};

/// Runs the auxiliary until the values have come.
pub fn run_auxiliary(kit: Kit, options: &NodeOptions) -> Result<PublishedValues, Error> {
    run(kit, options, None)
}

/// The same, perhaps for one of several rounds.
pub(super) fn run(
    kit: Kit,
    options: &NodeOptions,
    followed: Option<&Followed>,
) -> Result<PublishedValues, Error> {
    check_rounds(&kit)?;
    if kit.own != PartyId::Auxiliary {
        let found = kit.own_name();
        return Err(Error::Data { field: "kit", expected: "the auxiliary's".to_owned(), found });
    }
    let kit = Arc::new(kit);
    if let Some(values) = ended::ended(&kit, &options.state)? {
        return ended::say_again(&kit, options, &values, &[PartyId::Principal], followed);
    }
    let party =
        Party::open(kit.clone(), &options.state, Some(BTreeMap::new()), None, |federation, journal| {
            let seed = journal.seed().derive("auxiliary", 0);
            let mut auxiliary = Auxiliary::new(federation.clone(), seed);
            for counted in journal.tests()? {
                let damaged = |_| local("counts that decode");
                auxiliary.remember_counted(&counted.request).map_err(damaged)?;
            }
            Ok((auxiliary, Effects::default(), Vec::new()))
        })?;
    let network = PartyNetwork::start(&party, &kit, options, &[PartyId::Principal], followed)?;
    let mut nobody = |_| {};
    let mut heartbeat = Heartbeat::new(&mut nobody);
    let values = await_values(&party, &network, &mut heartbeat, |role| role.values().map(<[u8]>::to_vec));
    let values = values.and_then(|bytes| PublishedValues::decode(&bytes)).and_then(|values| {
        confirm(&party, &kit, &values)?;
        Ok(values)
    });
    let values = finish(&party, network, values)?;
    ended::wipe(&kit, &options.state, &values)?;
    Ok(values)
}

/// Holds the counts that were told against what this server counted for itself, if it counts.
fn confirm(party: &Party<Auxiliary>, kit: &Kit, values: &PublishedValues) -> Result<(), Error> {
    let federation = kit.session()?;
    if !federation.settings.protocol.rules().recounts() {
        return Ok(());
    }
    let recount = party.look(Auxiliary::recount);
    let samples = party
        .look(|auxiliary| secsv_protocol::role::Role::session(auxiliary).map(|session| session.samples()));
    let settings = kit.evaluation()?;
    let agreed = Agreed {
        samples: samples.unwrap_or(0),
        may_skip: settings.skip != SkipMode::Off,
        verifies_skipped: settings.verify_skip,
    };
    let spec = &kit.federation.federation;
    let found = Confirmation::new(spec, &federation, agreed, &values.utilities, &recount);
    tracing::info!(confirmed = found.confirmed, told = found.told, "counts confirmed");
    party.audit().record_recount(&found)?;
    Ok(found.check()?)
}
