//! A party whose run has ended. It wipes its state, and if it is started again it has its values and still acknowledges them to whoever
//! missed that.

use std::{path::Path, sync::Arc};

use secsv_evaluation::executor::HostedRole;
use secsv_protocol::{
    Error as RoleError, PartyId,
    role::{Effects, Incoming, Role},
    session::Session,
};

use super::{Followed, Heartbeat, NodeOptions, PartyNetwork, PublishedValues, await_values, finish};
use crate::{
    Error,
    journal::{self, Owner},
    kit::Kit,
    party::Party,
};

/// The role of a party that has nothing left to do.
pub(super) struct Ended;

impl Role for Ended {
    /// Whatever comes late is about something that is over.
    fn session(&self) -> Option<&Arc<Session>> {
        None
    }

    fn handle(&mut self, _: Incoming) -> Result<Effects<Self>, RoleError> {
        Ok(Effects::default())
    }

    fn awaiting(&self) -> String {
        "nothing: the run has ended".to_owned()
    }
}

impl HostedRole for Ended {
    const HAS_SESSION: bool = false;
}

fn owner(kit: &Kit) -> Owner {
    Owner { party: kit.own, federation: kit.digest, files: None }
}

/// The values, if the run of this state directory has ended.
pub(super) fn ended(kit: &Kit, state: &Path) -> Result<Option<Vec<u8>>, Error> {
    Ok(journal::ended(state, &owner(kit))?)
}

/// A party at its links, with nothing left to do.
pub(super) fn open(kit: &Arc<Kit>, state: &Path) -> Result<Arc<Party<Ended>>, Error> {
    tracing::info!("the run of this state directory has ended: its values are told again");
    Party::open(kit.clone(), state, None, None, |_, _| Ok((Ended, Effects::default(), Vec::new())))
}

/// Stays until nobody needs this party any more.
pub(super) fn say_again(
    kit: &Arc<Kit>,
    options: &NodeOptions,
    values: &[u8],
    dialled: &[PartyId],
    followed: Option<&Followed>,
) -> Result<PublishedValues, Error> {
    let party = open(kit, &options.state)?;
    let network = PartyNetwork::start(&party, kit, options, dialled, followed)?;
    let mut heartbeat = |_| {};
    let values =
        await_values(&party, &network, &mut Heartbeat::new(&mut heartbeat), |_| Some(values.to_vec()));
    finish(&party, network, values.and_then(|bytes| PublishedValues::decode(&bytes)))
}

/// Wipes the state of a run that has ended.
pub(super) fn wipe(kit: &Kit, state: &Path, values: &PublishedValues) -> Result<(), Error> {
    journal::end(state, &owner(kit), &values.encode()?)?;
    tracing::info!("seed, shares and messages are wiped; audit log, federation file and result stay");
    Ok(())
}
