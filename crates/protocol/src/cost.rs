//! What a session will cost, before it runs: the same operations and bytes that its parties would count, because who
//! does what is planned by the same planner and every length is the encoder's own.
//!
//! Without SampleSkip nothing depends on anybody's data, so operations and traffic are exact. [`Work`] is what seconds
//! are estimated from.

mod blindsv;
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

use secsv_algebra::Seed;
use secsv_federation::{Coalition, RoundId, SampleSet, Weights};
use secsv_he::{Operations, UnitCosts};

use crate::{
    Agreement, ClientInput, Error, PartyId, TestRequest,
    decryptors::{Planner, Unit},
    message::{
        ClientHello, CommonSeed, Counted, Kind, Message, OwnCount, OwnResult, OwnResultCounts, OwnTest,
        Recount, RoundFinished, RoundStart, SealedClientKeys, TestFinished, TestPlan, UnitPlan,
    },
    model::ranges,
    scheduler::{
        plan_of,
        split::{SplitTest, split_by_known_models},
    },
    sealed::EnvelopeKeys,
    session::{Agreed, Federation, Session},
    test_id::{RequestId, TestId},
    unit::UnitContext,
};
pub use rehearsal::{rehearse_activation, rehearse_labels, rehearse_masked, rehearse_sharing, rehearse_sum};
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
    /// Who decrypts what, and what that leaves to be known; none where nobody does.
    pub planner: Option<Planner>,
}

/// The agreement that clients with these inputs will come to.
pub fn session(
    federation: &Arc<Federation>,
    inputs: &[ClientInput],
    costs: Option<&UnitCosts>,
) -> Result<Arc<Session>, Error> {
    let public_key = EnvelopeKeys::derive(&Seed::from_bytes([0; 32])).public();
    let hello = |input: &ClientInput| -> Result<ClientHello, Error> {
        let own: Vec<&Weights> = input.local.values().collect();
        let known: Vec<&Weights> = input.global.values().chain([&input.initial]).collect();
        let ranges = ranges(federation, &own, &known, &input.test_set);
        let all: Vec<&Weights> = own.iter().chain(&known).copied().collect();
        Ok(ClientHello {
            samples: input.test_set.len() as u64,
            ranges,
            public_key: public_key.clone(),
            accepts_few: input.accepts_few,
            agreement: Agreement::measure(federation, &all, &input.test_set)?,
        })
    };
    let hellos: Vec<ClientHello> = inputs.iter().map(hello).collect::<Result<_, Error>>()?;
    Ok(Arc::new(Session::propose(federation, federation.leader(), &hellos, costs)?.0))
}

/// What these tests will cost, by the engine of the session, if all are asked for at once, in this order, and rounds are closed after their last one.
/// If samples of a round may be gathered so many times: what they cost at most.
pub fn predict(session: &Arc<Session>, tests: &[TestRequest], gathered: usize) -> Result<Prediction, Error> {
    let engine = match session.agreed() {
        Agreed::SecSv(session) => Box::new(secsv::SecSvCosts(session)) as Box<dyn EngineCosts>,
        Agreed::SecretSv(session) => Box::new(secretsv::SecretSvCosts(session)),
        Agreed::Hesv(session) => Box::new(hesv::HesvCosts(session)),
        Agreed::BlindSv(blind) => return blindsv::predict(session, &blind, tests),
    };
    let mut planner = session.planner()?;
    let mut tally = Tally { gathered, ..Tally::new(session) };
    agreement(&mut tally);
    engine.prepare(&mut tally)?;
    // The principal starts the earliest round's tests first, in the order they were asked for.
    let mut queue: Vec<(u32, &TestRequest)> = (0..).zip(tests).collect();
    queue.sort_by_key(|(number, request)| (request.round, *number));
    let mut planned = BTreeMap::new();
    let mut round_batches = BTreeSet::new();
    for (number, request) in queue {
        let test = TestId::first(number);
        let mut plan = plan(&mut tally, &mut planner, &mut planned, test, request)?;
        if gathered > 0 {
            engine.gather(&mut plan);
        }
        if !plan.units.is_empty() {
            if round_batches.insert(request.round) {
                for client in engine.concerned(session, request.round).members() {
                    let start = RoundStart { round: request.round };
                    tally.message(PartyId::Principal, PartyId::Client(client), &start);
                }
                engine.round(&mut tally, request.round)?;
            }
            announce(&mut tally, &plan)?;
            engine.test(&mut tally, &plan)?;
        }
        finished(&mut tally, &TestFinished { test });
    }
    round_batches.iter().for_each(|&round| finished(&mut tally, &RoundFinished { round }));
    let Tally { operations, traffic, work, .. } = tally;
    let memory = memory::estimate(session, &*engine);
    Ok(Prediction { operations, traffic, work, memory, planner: Some(planner) })
}

/// What the engine of a protocol costs.
trait EngineCosts {
    /// Keys, and samples.
    fn prepare(&self, tally: &mut Tally<'_>) -> Result<(), Error>;

    /// Clients that are told when a round begins.
    fn concerned(&self, session: &Session, round: RoundId) -> Coalition {
        session.federation.participants(round)
    }

    /// Models of a round, and their first layers.
    fn round(&self, tally: &mut Tally<'_>, round: RoundId) -> Result<(), Error>;

    /// A test's units.
    fn test(&self, tally: &mut Tally<'_>, plan: &TestPlan) -> Result<(), Error>;

    /// Has units gather their samples, where that may come.
    fn gather(&self, _plan: &mut TestPlan) {}

    /// Bytes beside what all protocols keep.
    fn memory(&self) -> usize;
}

/// Until everybody knows the session and clients have their secrets.
fn agreement(tally: &mut Tally<'_>) {
    let session = tally.session;
    let clients = session.federation.clients;
    for (client, hello) in session.hellos.iter().enumerate() {
        tally.message(PartyId::Client(client), PartyId::Principal, hello);
    }
    let proposal = session.proposal().len();
    for to in (0..clients).map(PartyId::Client).chain(tally.auxiliary()) {
        tally.send(PartyId::Principal, to, Kind::Session, proposal);
    }
    let leader = PartyId::Client(session.leader);
    for client in (0..clients).filter(|&client| client != session.leader) {
        tally.send(leader, PartyId::Principal, Kind::SealedClientKeys, SealedClientKeys::LENGTH);
        let client = PartyId::Client(client);
        tally.send(PartyId::Principal, client, Kind::SealedClientKeys, SealedClientKeys::LENGTH);
    }
    let has_common = Kind::CommonSeed.is_of(session.federation.settings.protocol);
    if let Some(auxiliary) = tally.auxiliary().filter(|_| has_common) {
        let seed = Seed::from_bytes([0; 32]);
        tally.message(auxiliary, PartyId::Principal, &CommonSeed { seed });
    }
}

/// Bytes of a seed.
pub(crate) const SEED: usize = 32;

/// Something has ended: the auxiliary is told.
fn finished<'a>(tally: &mut Tally<'_>, message: &impl Message<'a>) {
    if let Some(auxiliary) = tally.auxiliary() {
        tally.message(PartyId::Principal, auxiliary, message);
    }
}

/// A test as the principal cuts it.
fn plan(
    tally: &mut Tally<'_>,
    planner: &mut Planner,
    planned: &mut BTreeMap<(RoundId, u128, usize), UnitPlan>,
    test: TestId,
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
    let SplitTest { own, plan, .. } = split_by_known_models(session, test, request, roles)?;
    for (owner, tests) in own {
        own_test(tally, owner, &request.rounds, &tests);
    }
    Ok(plan)
}

/// Tests of models that the owner of the samples knows.
fn own_test(tally: &mut Tally<'_>, owner: usize, rounds: &[RoundId], tests: &[(usize, SampleSet)]) {
    let owner = PartyId::Client(owner);
    let coalition = |number: usize| Coalition::from_bits(number as u128);
    let models = tests.iter().map(|(number, samples)| (coalition(*number), samples.clone())).collect();
    let request = RequestId::FIRST;
    let own_test = OwnTest { request, rounds: rounds.to_vec(), models };
    tally.message(PartyId::Principal, owner, &own_test);
    let of_all = |samples: &SampleSet| (rounds.len() * samples.len()) as u64;
    tally.work.clear_samples += tests.iter().map(|(_, samples)| of_all(samples)).sum::<u64>();
    let Some(auxiliary) = tally.auxiliary() else {
        let right = vec![0; rounds.len() * tests.len()];
        return tally.message(owner, PartyId::Principal, &OwnResultCounts { request, right });
    };
    let right = rounds.iter().flat_map(|_| tests.iter().map(|(_, samples)| samples.clone())).collect();
    tally.message(owner, PartyId::Principal, &OwnResult { request, right });
    let mut counted = Recount::default();
    for &round in rounds {
        tests.iter().for_each(|(number, _)| counted.add((round, coalition(*number)), Counted::default()));
    }
    tally.message(owner, auxiliary, &OwnCount { request, counted });
}

fn announce(tally: &mut Tally<'_>, plan: &TestPlan) -> Result<(), Error> {
    let content = plan.encode().len();
    let mut concerned: BTreeSet<PartyId> = tally.auxiliary().into_iter().collect();
    for context in UnitContext::of(tally.session, plan)? {
        concerned.extend(context.assigned().chain(context.owners(tally.session)).map(PartyId::Client));
        tally.work.activated_samples += context.labels() as u64;
    }
    for to in concerned {
        tally.send(PartyId::Principal, to, Kind::Test, content);
    }
    Ok(())
}
