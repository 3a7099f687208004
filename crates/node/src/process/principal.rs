//! The principal's process.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use secsv_evaluation::executor::HostedRole;
use secsv_federation::{Coalition, Labels, RoundId};
use secsv_protocol::{
    Assignment, PartyId, Principal, RequestId, Scope, TestId, TestRequest, TestResult,
    role::Effects,
    session::{Session, typical_costs},
};

use super::{
    Followed, NodeOptions, POLL_INTERVAL, PartyNetwork, PublishedValues, check_rounds, ended,
    evaluator::{NetworkEvaluator, known_tests},
    finish,
};
use crate::{
    Error,
    audit::{AuditDefect, AuditError, RESULT_FILE},
    journal::TestRecord,
    kit::Kit,
    party::{Party, local},
    status::ProcessPhase,
    transport::{LinkState, PeerLink},
};
use secsv_evaluation::{
    EvaluationResult, FederationFacts, Made, Progress, evaluate,
    secure_result::{account, disclosed},
};

/// What the principal is told beside.
#[derive(Clone, Debug)]
pub struct PrincipalOptions {
    /// What every process is told.
    pub node: NodeOptions,
    /// After how long others take over what a client was to decrypt.
    pub away_after: Duration,
    /// How long it waits for parties that have not fetched the values.
    pub wait_to_deliver: Duration,
    /// The program that the result says it was made by.
    pub made_by: String,
}

/// Runs the principal: values the federation, has `keep` write the result down, and tells everybody the values.
pub fn run_principal(
    kit: Kit,
    options: &PrincipalOptions,
    observe: impl FnMut(Progress),
    keep: impl FnOnce(&EvaluationResult) -> Result<(), Error>,
) -> Result<EvaluationResult, Error> {
    run(kit, options, None, observe, keep)
}

/// The same, perhaps for one of several rounds.
pub(super) fn run(
    kit: Kit,
    options: &PrincipalOptions,
    followed: Option<&Followed>,
    observe: impl FnMut(Progress),
    keep: impl FnOnce(&EvaluationResult) -> Result<(), Error>,
) -> Result<EvaluationResult, Error> {
    check_rounds(&kit)?;
    if kit.own != PartyId::Principal {
        let found = kit.own_name();
        return Err(Error::Data { field: "kit", expected: "the principal's".to_owned(), found });
    }
    let kit = Arc::new(kit);
    if ended::ended(&kit, &options.node.state)?.is_some() {
        return tell_again(&kit, options, keep);
    }
    let (results, found) = mpsc::channel();
    let (party, Resumed { known, left_open }) = open(&kit, options, results)?;
    let network = PartyNetwork::start(&party, &kit, &options.node, &[], followed)?;
    let mut patience = Patience::new(followed);
    let finished: Vec<_> = known.iter().filter(|t| t.result.is_some()).map(|t| t.test).collect();
    remind(&party, &finished);
    let (known, next_request) = known_tests(known)?;
    let outcome = (|| {
        let session = await_session(&party, &network, &mut patience)?;
        party.board().phase(ProcessPhase::Running);
        let needs_auxiliary = kit.session()?.settings.protocol.rules().has_auxiliary();
        let mut attendance = Attendance::new(options.away_after, needs_auxiliary);
        let mut watch = || attendance.look(&party).and_then(|()| patience.check_tests(&party));
        let mut evaluator = NetworkEvaluator {
            party: &party,
            network: &network,
            session: session.clone(),
            results: found,
            known,
            next_request,
            before: followed.and_then(|followed| followed.before.clone()),
            left_open,
            watch: &mut watch,
        };
        let spec = &kit.federation.federation;
        let result = evaluate(spec, &mut evaluator, &kit.evaluation()?, observe)?;
        publish(&party, (&network, &session), &kit, options, result, keep)
    })();
    // Whoever has not fetched the values needs what comes before them, too.
    let has_sent_all = party.peers().values().all(|peer| peer.has_sent_all());
    let result = finish(&party, network, outcome)?;
    // Where rounds go on nobody comes back for this one.
    if has_sent_all || followed.is_some() {
        ended::wipe(&kit, &options.node.state, &PublishedValues::of(&result))?;
    } else {
        tracing::warn!("the state is kept until everybody has the values: seed and shares stay with it");
    }
    Ok(result)
}

/// Work of an earlier process.
#[derive(Default)]
struct Resumed {
    known: Vec<TestRecord>,
    /// Rounds that it left open.
    left_open: BTreeSet<RoundId>,
}

/// The principal's party, and what an earlier process has left.
fn open(
    kit: &Arc<Kit>,
    options: &PrincipalOptions,
    results: mpsc::Sender<(RequestId, Vec<TestResult>)>,
) -> Result<(Arc<Party<Principal>>, Resumed), Error> {
    let mut resumed = Resumed::default();
    let (state, files) = (&options.node.state, Some(BTreeMap::new()));
    let party = Party::open(kit.clone(), state, files, Some(results), |federation, journal| {
        let Resumed { known, left_open } = &mut resumed;
        *known = journal.tests()?;
        left_open.extend(journal.replay()?.iter().filter_map(|message| match message.scope {
            Scope::Round(round) => Some(round),
            _ => None,
        }));
        let seed = journal.seed().derive("principal", 0);
        let costs = Some(typical_costs(federation.settings.preset));
        let mut principal = Principal::new(federation.clone(), costs, seed);
        let assigned = journal.assignments()?;
        let assigned: Result<Vec<_>, _> = assigned.iter().map(|bytes| Assignment::decode(bytes)).collect();
        let assigned = assigned.map_err(|_| local("assignments that decode"))?;
        let last = known.iter().map(|test| test.test.request).max();
        let next = last.map_or(Ok(RequestId::FIRST), RequestId::next)?;
        principal.remember(assigned, next);
        principal.deal_ahead();
        Ok((principal, Effects::default(), open_scopes(known)?))
    })?;
    Ok((party, resumed))
}

/// Writes the result down, and sends everybody the values.
fn publish(
    party: &Arc<Party<Principal>>,
    (network, session): (&PartyNetwork, &Session),
    kit: &Kit,
    options: &PrincipalOptions,
    mut result: EvaluationResult,
    keep: impl FnOnce(&EvaluationResult) -> Result<(), Error>,
) -> Result<EvaluationResult, Error> {
    settle(party, network)?;
    let labels = kit.labels()?;
    account_for(party, (kit, &labels), &mut result);
    result.made = Some(Made::now(options.made_by.as_str()));
    let samples: Vec<_> = session.hellos.iter().map(|hello| Some(hello.samples)).collect();
    let facts = FederationFacts::new(&kit.federation.federation, &samples).of(kit.whole());
    result.federation = Some(facts.labelled(&labels));
    // An earlier process may have recorded the same values, and what they cost.
    if party.audit().has_result() {
        result = recorded(&options.node.state, &result)?;
    }
    keep(&result)?;
    let json = serde_json::to_vec(&result).map_err(|_| local("a result that can be written"))?;
    party.audit().record_result(&options.node.state, &json)?;
    deliver(party, network, &result, options.wait_to_deliver)?;
    Ok(result)
}

/// The principal of a run that has ended: the result again, and a farewell to whoever missed it.
fn tell_again(
    kit: &Arc<Kit>,
    options: &PrincipalOptions,
    keep: impl FnOnce(&EvaluationResult) -> Result<(), Error>,
) -> Result<EvaluationResult, Error> {
    let party = ended::open(kit, &options.node.state)?;
    let network = PartyNetwork::start(&party, kit, &options.node, &[], None)?;
    let outcome = read_result(&options.node.state).and_then(|result| {
        keep(&result)?;
        part(&party);
        Ok(result)
    });
    finish(&party, network, outcome)
}

/// The result that stands in the state directory.
fn read_result(state: &Path) -> Result<EvaluationResult, Error> {
    let file = state.join(RESULT_FILE);
    let unreadable = |error| AuditError::new(&file, None, AuditDefect::Unreadable(error));
    let bytes = std::fs::read(&file).map_err(unreadable)?;
    Ok(serde_json::from_slice(&bytes).map_err(|error| unreadable(error.into()))?)
}

/// The same, if it is the one that was found.
fn recorded(state: &Path, found: &EvaluationResult) -> Result<EvaluationResult, Error> {
    let (file, result) = (state.join(RESULT_FILE), read_result(state)?);
    if (&result.fsv, &result.utilities) != (&found.fsv, &found.utilities) {
        return Err(AuditError::new(&file, None, AuditDefect::AnothersResult).into());
    }
    Ok(result)
}

/// What an earlier process had asked for and not found.
fn open_scopes(known: &[TestRecord]) -> Result<Vec<Scope>, Error> {
    let mut scopes = Vec::new();
    for test in known.iter().filter(|test| test.result.is_none()) {
        let request = TestRequest::decode(&test.request).map_err(|_| local("a request that decodes"))?;
        scopes.extend([Scope::Test(test.test), Scope::Round(request.round)]);
    }
    Ok(scopes)
}

/// Who has not come, and why, as far as that is known.
fn with_troubles(party: &Party<Principal>) -> String {
    let awaiting = party.named(&party.look(secsv_protocol::role::Role::awaiting));
    let awaiting = awaiting.strip_prefix("principal: ").unwrap_or(&awaiting).to_owned();
    let peers = party.board().status().peers.into_iter();
    let away = peers.filter(|peer| peer.connected_since.is_none());
    let troubles = away.filter_map(|peer| Some(format!("{}: {}", peer.name, peer.trouble?)));
    let troubles: Vec<String> = troubles.collect();
    if troubles.is_empty() { awaiting } else { format!("{awaiting} ({})", troubles.join("; ")) }
}

/// How long a round waits without anything new, where that is told.
struct Patience {
    late: Option<Duration>,
    since: Instant,
    /// Messages that had come by then: one more is something new.
    received: u64,
}

impl Patience {
    fn new(followed: Option<&Followed>) -> Self {
        Self { late: followed.map(|followed| followed.late), since: Instant::now(), received: 0 }
    }

    /// Gives up if it has waited long enough.
    fn check(&mut self, party: &Party<Principal>, awaited: impl FnOnce() -> String) -> Result<(), Error> {
        let Some(late) = self.late else { return Ok(()) };
        let received = party.board().received_frames();
        if received > self.received {
            (self.received, self.since) = (received, Instant::now());
        }
        match self.since.elapsed() > late {
            true => Err(Error::Late { awaited: awaited(), seconds: late.as_secs() }),
            false => Ok(()),
        }
    }

    /// The same while tests run.
    fn check_tests(&mut self, party: &Party<Principal>) -> Result<(), Error> {
        let is_away = |peer: &&Arc<PeerLink>| peer.link_state().connected.is_none();
        let away = || names(party, party.peers().values().filter(is_away).map(|peer| peer.id));
        self.check(party, || Some(away()).filter(|away| !away.is_empty()).unwrap_or("tests".to_owned()))
    }
}

/// Who stays away, and for how long.
struct Attendance {
    begun: Instant,
    away_after: Duration,
    needs_auxiliary: bool,
    away: Coalition,
    awaited: Vec<PartyId>,
}

impl Attendance {
    fn new(away_after: Duration, needs_auxiliary: bool) -> Self {
        let (begun, away, awaited) = (Instant::now(), Coalition::EMPTY, Vec::new());
        Self { begun, away_after, needs_auxiliary, away, awaited }
    }

    /// Has others take over from clients that stay away, and says who is awaited where nobody can.
    fn look(&mut self, party: &Arc<Party<Principal>>) -> Result<(), Error> {
        let away: Coalition = party
            .peers()
            .values()
            .filter_map(|peer| match peer.id {
                PartyId::Client(client) if self.is_away(&peer.link_state()) => Some(client),
                _ => None,
            })
            .collect();
        if away != self.away {
            let clients = names(party, away.members().map(PartyId::Client));
            tracing::warn!(clients, "away: others take over where the rules allow it");
            self.away = away;
            party.act(Box::new(move |role| Ok((role.set_away(away)?, Vec::new()))));
        }
        let clients = party.look(Principal::awaited);
        let auxiliary = party.peers().get(&PartyId::Auxiliary).filter(|_| self.needs_auxiliary);
        let auxiliary = auxiliary.filter(|auxiliary| self.is_away(&auxiliary.link_state()));
        let clients = clients.members().map(PartyId::Client);
        let awaited: Vec<PartyId> =
            auxiliary.map(|auxiliary| auxiliary.id).into_iter().chain(clients).collect();
        if awaited == self.awaited {
            return Ok(());
        }
        if awaited.is_empty() {
            party.board().phase(ProcessPhase::Running);
        } else {
            let parties = names(party, awaited.iter().copied());
            tracing::warn!(parties, "awaited: the run goes on when they are back");
            party.board().paused_for(&awaited);
        }
        self.awaited = awaited;
        Ok(())
    }

    fn is_away(&self, link: &LinkState) -> bool {
        link.connected.is_none() && link.last_seen.unwrap_or(self.begun).elapsed() > self.away_after
    }
}

fn names(party: &Party<Principal>, parties: impl Iterator<Item = PartyId>) -> String {
    let name = |id| party.peers().get(&id).map(|peer| peer.name.as_str());
    parties.filter_map(name).collect::<Vec<_>>().join(", ")
}

/// Clients that were away when tests ended learn it now.
fn remind(party: &Party<Principal>, finished: &[TestId]) {
    let over: Vec<_> = finished.iter().map(|&test| Scope::Test(test)).collect();
    party.send_finished(&over);
}

/// The agreement, once everybody has introduced themselves.
fn await_session(
    party: &Party<Principal>,
    network: &PartyNetwork,
    patience: &mut Patience,
) -> Result<Arc<Session>, Error> {
    let mut said = Instant::now();
    loop {
        network.check()?;
        patience.check(party, || with_troubles(party))?;
        if let Some(session) = party.wait_for(POLL_INTERVAL, |role| role.session().cloned())? {
            return Ok(session);
        }
        if said.elapsed() > Duration::from_secs(30) {
            said = Instant::now();
            let awaiting = party.named(&party.look(secsv_protocol::role::Role::awaiting));
            tracing::info!(awaiting, "waiting");
        }
    }
}

/// Waits until the role has done everything that it was had to do: closing the last round is part of what a run cost.
fn settle(party: &Party<Principal>, network: &PartyNetwork) -> Result<(), Error> {
    let (done, is_done) = (Arc::new(AtomicBool::new(false)), Ordering::Relaxed);
    let last = done.clone();
    party.act(Box::new(move |_| {
        last.store(true, is_done);
        Ok((Effects::default(), Vec::new()))
    }));
    while party.wait_for(POLL_INTERVAL, |_| done.load(is_done).then_some(()))?.is_none() {
        network.check()?;
    }
    Ok(())
}

/// What the principal's own process knows about cost, and what was disclosed.
fn account_for(party: &Party<Principal>, (kit, labels): (&Kit, &Labels), result: &mut EvaluationResult) {
    let (accounts, replies) = (party.accounts(), party.replies());
    let (spec, skips) = (&kit.federation.federation, result.skip);
    let found = party.look(|role| disclosed(role, (spec, labels), replies, skips));
    account(&accounts, spec, result, found);
}

/// Tells everybody the values, and waits until everybody has them.
fn deliver(
    party: &Arc<Party<Principal>>,
    network: &PartyNetwork,
    result: &EvaluationResult,
    patience: Duration,
) -> Result<(), Error> {
    let values = PublishedValues::of(result).encode()?;
    party.act(Box::new(move |role| Ok((role.publish(values), Vec::new()))));
    let since = Instant::now();
    while party.wait_for(POLL_INTERVAL, |role| role.has_published().then_some(()))?.is_none() {
        network.check()?;
    }
    party.flush();
    loop {
        let left: Vec<&str> = party
            .peers()
            .values()
            .filter(|peer| !peer.has_sent_all())
            .map(|peer| peer.name.as_str())
            .collect();
        if left.is_empty() {
            break;
        }
        if since.elapsed() > patience || network.check().is_err() {
            tracing::warn!(
                parties = left.join(", "),
                "have not fetched the values; start again to tell them"
            );
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // Whoever hears the farewell is gone: a principal that is started again must know that nobody misses anything.
    party.flush();
    part(party);
    Ok(())
}

/// Says farewell to everybody who is there.
fn part<R: HostedRole>(party: &Party<R>) {
    party.set_over();
    party.peers().values().for_each(|peer| peer.say_goodbye());
    std::thread::sleep(Duration::from_millis(300));
}
