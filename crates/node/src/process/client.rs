//! A client's process.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use secsv_evaluation::check_numbers;
use secsv_federation::{ClientId, RoundId, RunDirectory, Weights};
use secsv_protocol::{Client, ClientInput, PartyId, model_digest, role::Digest, test_set_digest};

use super::{
    Followed, Heartbeat, NodeOptions, POLL_INTERVAL, PartyNetwork, PublishedValues, TestProgress,
    await_values, check_rounds, ended, finish,
};
use crate::{
    Error,
    consent::Question,
    kit::Kit,
    party::Party,
    record::{FILE, Record, SessionEntry},
    status::ProcessPhase,
};

/// How often it is looked whether the servers have everything.
const SENT_INTERVAL: Duration = Duration::from_millis(50);

/// What a client's process is told.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// What every process is told.
    pub node: NodeOptions,
    /// The word by which its owner accepts what others can do with its samples and models ([`Question::exposure`]).
    pub accept_exposure: Option<String>,
    /// Whether its owner accepts what utilities of few samples tell, where a protocol asks for that.
    pub accept_few_samples: bool,
    /// Where the record of its sessions is, if not beside the data.
    pub record: Option<PathBuf>,
    /// The word by which its owner accepts another session over the same samples.
    pub again: Option<String>,
}

/// Runs a client until the values have come. Of the run directory it opens its own part alone.
pub fn run_client(kit: Kit, data: &RunDirectory, options: &ClientOptions) -> Result<PublishedValues, Error> {
    run_client_observed(kit, data, options, &mut |_| {})
}

/// The same; `observe` is told of every test that is through.
pub fn run_client_observed(
    kit: Kit,
    data: &RunDirectory,
    options: &ClientOptions,
    observe: &mut dyn FnMut(TestProgress),
) -> Result<PublishedValues, Error> {
    run(kit, data, options, (None, observe))
}

/// The same, perhaps for one of several rounds: for all of them its owner was asked before.
pub(super) fn run(
    mut kit: Kit,
    data: &RunDirectory,
    options: &ClientOptions,
    (followed, observe): (Option<&Followed>, &mut dyn FnMut(TestProgress)),
) -> Result<PublishedValues, Error> {
    check_rounds(&kit)?;
    let PartyId::Client(position) = kit.own else {
        let found = kit.own_name();
        return Err(Error::data("kit", "a client's", found));
    };
    let servers = [PartyId::Principal, PartyId::Auxiliary];
    if let Some(values) = ended::ended(&kit, &options.node.state)? {
        return ended::say_again(&Arc::new(kit), &options.node, &values, &servers, followed);
    }
    if let Some(question) = Question::exposure(&kit)?.filter(|_| followed.is_none()) {
        question.answered(options.accept_exposure.as_deref())?;
    }
    let begins_with_model = followed.is_none_or(|followed| !followed.inherits);
    let mut input = own_input(&kit, data, position, begins_with_model)?;
    input.accepts_few = options.accept_few_samples;
    let beside = || data.path().join("clients").join(kit.own_name()).join(FILE);
    let record = Record::open(&options.record.clone().unwrap_or_else(beside))?;
    let files = file_digests(&kit.federation.federation.clients[position].id, &input);
    let keys = kit.envelope_keys.take().ok_or(Error::data("kit", "a key for envelopes", "none"))?;
    let kit = Arc::new(kit);
    let node = &options.node;
    let party = Party::open(kit.clone(), &node.state, Some(files), None, |federation, journal| {
        record.enter(
            &SessionEntry::new(&kit, &journal.instance(), &input),
            &kit,
            options.again.as_deref(),
        )?;
        let seed = journal.seed().derive("client", position as u64);
        let mut client = Client::with_envelope_keys(federation.clone(), position, input, seed, keys);
        let first = client.start();
        Ok((client, first, Vec::new()))
    })?;
    let network = PartyNetwork::start(&party, &kit, node, &servers, followed)?;
    let mut heartbeat = Heartbeat::new(observe);
    let values = say_when_dealt(&party, &network, &mut heartbeat).and_then(|()| {
        await_values(&party, &network, &mut heartbeat, |role| role.values().map(<[u8]>::to_vec))
    });
    let values = finish(&party, network, values.and_then(|bytes| PublishedValues::decode(&bytes)))?;
    ended::wipe(&kit, &node.state, &values)?;
    Ok(values)
}

/// Says when everything is dealt and the servers have it, if that comes before the values.
fn say_when_dealt(
    party: &Party<Client>,
    network: &PartyNetwork,
    heartbeat: &mut Heartbeat<'_>,
) -> Result<(), Error> {
    party.board().phase(ProcessPhase::Running);
    let has_ended = |role: &Client| role.values().is_some();
    let is_due = |role: &Client| (has_ended(role) || role.has_dealt_all()).then_some(());
    while party.wait_for(POLL_INTERVAL, is_due)?.is_none() {
        network.check()?;
        network.check_principal(party)?;
        heartbeat.beat(party);
    }
    // What was dealt is on its way once the journal has it.
    party.flush();
    while !party.peers().values().all(|peer| peer.has_sent_all()) {
        network.check()?;
        if party.wait_for(SENT_INTERVAL, |role| has_ended(role).then_some(()))?.is_some() {
            return Ok(());
        }
    }
    if !party.look(has_ended) {
        tracing::info!("everything is dealt: this process may be stopped, and started again for the values");
    }
    Ok(())
}

/// Digests of the files that a silo's state is bound to: everything that it will ever encode.
pub fn bound_files(kit: &Kit, data: &RunDirectory) -> Result<BTreeMap<String, Digest>, Error> {
    let PartyId::Client(position) = kit.own else { return Ok(BTreeMap::new()) };
    let input = own_input(kit, data, position, true)?;
    Ok(file_digests(&kit.federation.federation.clients[position].id, &input))
}

/// The same, by the file of the run directory.
fn file_digests(id: &ClientId, input: &ClientInput) -> BTreeMap<String, Digest> {
    let of_round = |directory: String| {
        move |(round, model): (&RoundId, &Weights)| {
            (format!("{directory}/round-{:04}.safetensors", round.0), model_digest(model))
        }
    };
    let local = input.local.iter().map(of_round(format!("clients/{id}")));
    let global = input.global.iter().map(of_round("global".to_owned()));
    let test_set = (format!("clients/{id}/test.safetensors"), test_set_digest(&input.test_set));
    let initial = ("initial.safetensors".to_owned(), model_digest(&input.initial));
    local.chain(global).chain([test_set, initial]).collect()
}

/// What a silo brings, checked against what everybody agreed on. The model before the first round is not asked for everywhere.
pub(crate) fn own_input(
    kit: &Kit,
    data: &RunDirectory,
    position: usize,
    begins_with_model: bool,
) -> Result<ClientInput, Error> {
    let agreed = &kit.federation.federation;
    if data.spec() != kit.whole() {
        return Err(Error::data(
            "federation.toml",
            "the federation that the kit was made for",
            "another one",
        ));
    }
    if *data.architecture().tensors() != kit.federation.tensors {
        return Err(Error::data("initial.safetensors", "the tensors that the kit was made for", "others"));
    }
    let id: &ClientId = &agreed.clients[position].id;
    let mut local = BTreeMap::new();
    let mut global = BTreeMap::new();
    for round in agreed.round_ids() {
        let expected = kit.federation.participants(round).contains(position);
        if expected {
            local.insert(round, data.local_model(id, round)?);
        }
        // A round of nobody has no aggregate. Where clients test no models that they know, none is needed.
        let is_needed = kit.federation.session.tests_known_models();
        let is_there = data.has_global_model(round) && agreed.limits.is_none();
        if !kit.federation.participants(round).is_empty() && (is_needed || is_there) {
            global.insert(round, data.global_model(round)?);
        }
    }
    let initial = match begins_with_model {
        true => data.model_before(RoundId(agreed.first))?,
        false => Weights::new(),
    };
    let test_set = data.test_set(id)?;
    let input = ClientInput { test_set, local, global, initial, accepts_few: false };
    check_numbers(data, id, &input)?;
    Ok(input)
}
