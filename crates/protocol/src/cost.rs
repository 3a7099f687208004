//! What a session will cost, before it runs: the same operations and bytes that its parties would count, because who
//! does what is planned by the same planner and every length is the encoder's own.
//!
//! Without SampleSkip nothing depends on anybody's data, so operations and traffic are exact. [`Work`] is what seconds
//! are estimated from.

mod hesv;
mod memory;
mod rehearsal;
mod secretsv;
mod secsv;
mod tally;

use std::collections::btree_map::Entry;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use secsv_algebra::{Prg, Seed};
use secsv_federation::{Coalition, RoundId, SampleSet, Weights};
use secsv_he::{Operations, UnitCosts};

use crate::{
    ClientInput, Error, PartyId, TestRequest,
    codec::Writer,
    decryptors::{Planner, Protocol, Unit},
    first_layer_batch::may_gather,
    message::{Hello, Kind, TestPlan, UnitPlan},
    model::ranges,
    principal::{
        plan_of,
        split::{SplitTest, split_by_known_models},
    },
    sealed::EnvelopeKeys,
    server::{Counted, Recount, UnitContext},
    session::{Federation, Session},
};
pub(crate) use memory::open_rounds;
pub use rehearsal::{rehearse_activation, rehearse_labels, rehearse_sharing, rehearse_sum};
use tally::Tally;
pub use tally::{LayerWork, Work};

/// What a session will cost.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// Operations of all parties.
    pub operations: Operations,
    /// Bytes and frames by sender, receiver and kind.
    pub traffic: BTreeMap<(PartyId, PartyId, Kind), (u64, u64)>,
    /// What seconds are estimated from.
    pub work: Work,
    /// Memory of all parties in one process, estimated.
    pub memory: u64,
    /// Who decrypts what, and what that leaves to be known.
    pub planner: Planner,
}

/// The agreement that clients with these inputs will come to.
pub fn session(
    federation: &Arc<Federation>,
    inputs: &[ClientInput],
    costs: Option<&UnitCosts>,
) -> Result<Session, Error> {
    let public_key = EnvelopeKeys::derive(&Seed::from_bytes([0; 32])).public();
    let hello = |input: &ClientInput| {
        let own: Vec<&Weights> = input.local.values().collect();
        let known: Vec<&Weights> = input.global.values().chain([&input.initial]).collect();
        let ranges = ranges(&federation.program, &own, &known, &input.test_set);
        Hello { samples: input.test_set.len() as u64, ranges, public_key: public_key.clone() }
    };
    let hellos: Vec<Hello> = inputs.iter().map(hello).collect();
    let proposal = Session::propose(federation, federation.leader(), &hellos, costs)?;
    Session::decode(federation, &proposal).map_err(|_| Error::Local { what: "a proposal that decodes" })?
}

/// What these tests will cost if all are asked for at once, in this order, and rounds are closed after their last one.
/// If samples of a round may be gathered so many times: what they cost at most.
pub fn predict(session: &Session, tests: &[TestRequest], gathered: usize) -> Result<Prediction, Error> {
    let protocol = session.federation.settings.protocol;
    let mut planner = session.planner()?;
    let mut tally = Tally { gathered, ..Tally::new(session) };
    agreement(&mut tally)?;
    match protocol {
        Protocol::SecSv => secsv::prepare(&mut tally)?,
        Protocol::Hesv => hesv::prepare(&mut tally)?,
        Protocol::SecretSv => secretsv::prepare(&mut tally)?,
    }
    // The principal starts the earliest round's tests first, in the order they were asked for.
    let mut queue: Vec<(u64, &TestRequest)> = (0..).zip(tests).collect();
    queue.sort_by_key(|(number, request)| (request.round, *number));
    let mut planned = BTreeMap::new();
    let mut round_batches = BTreeSet::new();
    for (test, request) in queue {
        let plan = plan(&mut tally, &mut planner, &mut planned, test, request)?;
        if !plan.units.is_empty() {
            if round_batches.insert(request.round) {
                open_round(&mut tally, request.round)?;
            }
            announce(&mut tally, &plan);
            match protocol {
                Protocol::SecSv => secsv::test(&mut tally, &plan)?,
                Protocol::Hesv => hesv::test(&mut tally, &plan)?,
                Protocol::SecretSv => secretsv::test(&mut tally, &plan)?,
            }
        }
        done(&mut tally);
    }
    round_batches.iter().for_each(|_| done(&mut tally));
    let Tally { operations, traffic, work, .. } = tally;
    let memory = memory::estimate(session);
    Ok(Prediction { operations, traffic, work, memory, planner })
}

/// Until everybody knows the session and clients have their secrets.
fn agreement(tally: &mut Tally<'_>) -> Result<(), Error> {
    let session = tally.session;
    let clients = session.federation.clients;
    for (client, hello) in session.hellos.iter().enumerate() {
        tally.send(PartyId::Client(client), PartyId::Principal, Kind::Hello, hello.encode().len());
    }
    let proposal = session.proposal().len();
    for to in (0..clients).map(PartyId::Client).chain(tally.auxiliary()) {
        tally.send(PartyId::Principal, to, Kind::Session, proposal);
    }
    let [leader, keys] = [0, 1].map(|i| EnvelopeKeys::derive(&Seed::from_bytes([i; 32])));
    let (from, to) = (PartyId::Client(session.leader), PartyId::Principal);
    let rng = &mut Prg::new(&Seed::from_bytes([2; 32]));
    let sealed = leader.seal(from, to, &keys.public(), &[], &[0; 2 * SEED], rng)?.len();
    for client in (0..clients).filter(|&client| client != session.leader) {
        tally.send(from, PartyId::Principal, Kind::ClientKeys, sealed + size_of::<u16>());
        tally.send(PartyId::Principal, PartyId::Client(client), Kind::ClientKeys, sealed);
    }
    if let Some(auxiliary) = tally.auxiliary() {
        tally.send(auxiliary, PartyId::Principal, Kind::Common, SEED);
    }
    Ok(())
}

/// Bytes of a seed.
pub(crate) const SEED: usize = 32;

fn done(tally: &mut Tally<'_>) {
    if let Some(auxiliary) = tally.auxiliary() {
        let mut w = Writer::default();
        w.u8(0).u64(0);
        tally.send(PartyId::Principal, auxiliary, Kind::Done, w.finish().len());
    }
}

/// A test as the principal cuts it.
fn plan(
    tally: &mut Tally<'_>,
    planner: &mut Planner,
    planned: &mut BTreeMap<(RoundId, u128, usize), UnitPlan>,
    test: u64,
    request: &TestRequest,
) -> Result<TestPlan, Error> {
    let (session, round) = (tally.session, request.round);
    let participants = session.federation.participants(round);
    let roles = |coalition: Coalition, group: usize| match planned.entry((round, coalition.bits(), group)) {
        Entry::Occupied(known) => Ok(known.get().clone()),
        Entry::Vacant(entry) => {
            let unit = Unit { round, participants, group, coalition };
            let roles = planner.assign(unit, Coalition::EMPTY)?;
            Ok(entry.insert(plan_of(&roles)).clone())
        }
    };
    let SplitTest { own, mut plan, .. } = split_by_known_models(session, test, request, roles)?;
    for unit in plan.units.iter_mut().filter(|unit| tally.gathered > 0 && may_gather(session, unit.group)) {
        unit.gathered = Some(SampleSet::all(session.groups[unit.group].size));
    }
    for (owner, tests) in own {
        own_test(tally, owner, &request.rounds, &tests);
    }
    Ok(plan)
}

/// Tests of models that the owner of the samples knows.
fn own_test(tally: &mut Tally<'_>, owner: usize, rounds: &[RoundId], tests: &[(usize, SampleSet)]) {
    let owner = PartyId::Client(owner);
    let (mut asked, mut answer) = (Writer::default(), Writer::default());
    asked.u64(0).rounds(rounds).u64(0);
    answer.u64(0);
    for (_, samples) in tests {
        asked.u128(0).samples(samples);
        for _ in rounds {
            match tally.session.federation.settings.protocol {
                Protocol::Hesv => answer.u64(0),
                _ => answer.samples(samples),
            };
        }
        tally.work.clear_samples += (rounds.len() * samples.len()) as u64;
    }
    tally.send(PartyId::Principal, owner, Kind::OwnTest, asked.finish().len());
    tally.send(owner, PartyId::Principal, Kind::OwnResult, answer.finish().len());
    if let Some(auxiliary) = tally.auxiliary() {
        let mut counted = Recount::default();
        let models = rounds.iter().flat_map(|&round| tests.iter().map(move |(number, _)| (round, *number)));
        models.for_each(|(round, number)| {
            counted.add((round, Coalition::from_bits(number as u128)), Counted::default());
        });
        let mut told = Writer::default();
        told.u64(0);
        counted.write(&mut told);
        tally.send(owner, auxiliary, Kind::OwnCount, told.finish().len());
    }
}

fn open_round(tally: &mut Tally<'_>, round: RoundId) -> Result<(), Error> {
    let session = tally.session;
    let mut concerned = session.federation.participants(round);
    if session.encryption.is_none() {
        concerned = session.groups.iter().fold(concerned, |all, group| all.union(group.owners));
    }
    for client in concerned.members() {
        let start = round.0.to_le_bytes().len();
        tally.send(PartyId::Principal, PartyId::Client(client), Kind::RoundStart, start);
    }
    match session.federation.settings.protocol {
        Protocol::SecSv => secsv::round(tally, round),
        Protocol::Hesv => hesv::round(tally, round),
        Protocol::SecretSv => secretsv::round(tally, round),
    }
}

fn announce(tally: &mut Tally<'_>, plan: &TestPlan) {
    let content = plan.encode().len();
    let mut concerned: BTreeSet<PartyId> = tally.auxiliary().into_iter().collect();
    for context in UnitContext::of(tally.session, plan) {
        concerned.extend(context.decryptors().chain(context.owners(tally.session)).map(PartyId::Client));
        tally.work.activated_samples += context.labels() as u64;
    }
    for to in concerned {
        tally.send(PartyId::Principal, to, Kind::Test, content);
    }
}
