//! A client's process.

use std::{collections::BTreeMap, sync::Arc};

use secsv_federation::{ClientId, RunDirectory};
use secsv_protocol::{Client, ClientInput, PartyId};

use super::{Network, NodeOptions, Values, await_values, finish};
use crate::{Error, kit::Kit, party::Party};

/// Runs a client until the values have come. Of the run directory it opens its own part alone.
pub fn run_client(mut kit: Kit, data: &RunDirectory, options: &NodeOptions) -> Result<Values, Error> {
    let PartyId::Client(position) = kit.own else {
        let found = kit.own_name();
        return Err(Error::Data { field: "kit", expected: "a client's".to_owned(), found });
    };
    let input = own_input(&kit, data, position)?;
    let keys = kit.envelope_keys.take().ok_or(Error::Data {
        field: "kit",
        expected: "a key for envelopes".to_owned(),
        found: "none".to_owned(),
    })?;
    let kit = Arc::new(kit);
    let party = Party::open(kit.clone(), &options.state, None, |federation, journal| {
        let seed = journal.seed().derive("client", position as u64);
        let mut client = Client::with_envelope_keys(federation.clone(), position, input, seed, keys);
        let first = client.start();
        Ok((client, first, Vec::new()))
    })?;
    let network = Network::start(&party, &kit, options, &[PartyId::Principal, PartyId::Auxiliary])?;
    let values = await_values(&party, &network, |role| role.values().map(<[u8]>::to_vec));
    finish(&party, network, values.and_then(|bytes| Values::decode(&bytes)))
}

/// What a silo brings, checked against what everybody agreed on.
fn own_input(kit: &Kit, data: &RunDirectory, position: usize) -> Result<ClientInput, Error> {
    let agreed = &kit.federation.federation;
    if data.spec() != agreed {
        return Err(Error::Data {
            field: "federation.toml",
            expected: "the federation that the kit was made for".to_owned(),
            found: "another one".to_owned(),
        });
    }
    if *data.architecture().tensors() != kit.federation.tensors {
        return Err(Error::Data {
            field: "initial.safetensors",
            expected: "the tensors that the kit was made for".to_owned(),
            found: "others".to_owned(),
        });
    }
    let id: &ClientId = &agreed.clients[position].id;
    let mut local = BTreeMap::new();
    let mut global = BTreeMap::new();
    for round in agreed.round_ids() {
        let expected = kit.federation.participants(round).contains(position);
        if expected {
            local.insert(round, data.local_model(id, round)?);
        }
        // A round of nobody has no aggregate.
        if !kit.federation.participants(round).is_empty() {
            global.insert(round, data.global_model(round)?);
        }
    }
    Ok(ClientInput { test_set: data.test_set(id)?, local, global, initial: data.initial_model()? })
}
