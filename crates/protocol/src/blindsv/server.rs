//! What both servers do: shares of the first operator's outputs of all models once a round, then stage after stage what a test opens.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use secsv_algebra::{Secret, Seed};
use secsv_federation::{Coalition, RoundId, SampleSet};

use super::{
    evaluator::{Evaluator, Held, Memory, Opened},
    hops::Scales,
    keys::{OwnerKey, Place, Purpose},
    later::Later,
    layer::{LayerInput, OwnerData, outputs, product_words},
    shape::{Chunks, Outcome, Shape},
    words::unpack,
};
use crate::{
    Error, PartyId,
    disclosure::Disclosure,
    error::CodecError,
    message::{
        BlindTest, DataShare, DealtProduct, Kind, MaskSeed, MaskedModel, MaskedOpening, ModelMaskSeed,
        Server, ShareBody,
    },
    role::{Effects, Incoming, Outgoing, Phase},
    session::BlindSession,
    test_id::RequestId,
};

/// A server: which of the two it is, and where it keeps what.
pub(crate) trait BlindHost: Sized + Send + 'static {
    /// Which of the two it is.
    const SERVER: Server;

    fn server(&mut self) -> &mut BlindServer;

    /// A test has counted its shares of right predictions on all owners' samples.
    fn counted(&mut self, request: RequestId) -> Result<Effects<Self>, Error>;
}

/// One server's shares.
pub(crate) struct BlindServer {
    pub session: BlindSession,
    /// The seed of its masks of models.
    masks: Option<Seed>,
    keys: BTreeMap<usize, OwnerKey>,
    data: BTreeMap<usize, Arc<OwnerData>>,
    rounds: BTreeMap<RoundId, MaskedRound>,
    pub tests: BTreeMap<RequestId, ServerTest>,
    /// Models whose masks were used: each is tested once.
    used: BTreeSet<(RoundId, Coalition)>,
}

/// Models of a round, and the first operator's outputs of all on each owner's samples.
#[derive(Default)]
struct MaskedRound {
    models: BTreeMap<usize, Arc<Vec<u8>>>,
    /// At the auxiliary: its share of the masks times samples, by owner.
    dealt: BTreeMap<usize, Arc<Vec<u8>>>,
    outputs: BTreeMap<usize, Outputs>,
}

/// The first operator's outputs of all models of a round on an owner's samples.
enum Outputs {
    /// They are computed.
    Computed,
    Known(Arc<Secret<Vec<u64>>>),
}

/// A test at a server.
pub(crate) struct ServerTest {
    pub round: RoundId,
    pub coalitions: Vec<Coalition>,
    /// Samples that are tested, where it is not all.
    pub samples: Option<SampleSet>,
    units: BTreeMap<usize, BlindUnit>,
    /// The server's shares of what is found, coalition by coalition: one word for all owners, or each owner's planes behind the other's.
    pub found: Vec<u64>,
    /// Its shares of how many numbers are out of range, by coalition; none where nothing is checked.
    pub overflows: Vec<u64>,
}

impl ServerTest {
    /// Whether all owners' samples are counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.units.values().all(|unit| matches!(unit.state, UnitState::Counted))
    }
}

/// One owner's part of a test.
struct BlindUnit {
    context: Arc<UnitContext>,
    /// At the auxiliary: the message with what the owner dealt.
    dealt: Option<Arc<Vec<u8>>>,
    /// The other server's message of the stage that comes next.
    other: Option<Arc<Vec<u8>>>,
    state: UnitState,
}

/// What a unit is about.
struct UnitContext {
    request: RequestId,
    round: RoundId,
    owner: usize,
    chunks: Chunks,
    /// Places of the tested samples among the owner's, where it is not all.
    tested: Option<Vec<usize>>,
    /// Where the owner's part of what is found begins for a coalition, and words for all owners.
    found: (usize, usize),
    /// Coalitions that the owner does not know, with their numbers in the test.
    secure: Vec<(usize, Coalition)>,
    /// Their public numbers.
    scales: Vec<Scales>,
    /// Coalitions that the owner knows and counts itself.
    known: Vec<(usize, Coalition)>,
}

impl UnitContext {
    /// Bytes that the owner deals to the auxiliary.
    fn dealt_len(&self) -> usize {
        self.secure.len() * self.chunks.dealt_len() + self.known.len() * self.chunks.outcome_len()
    }

    /// Bytes of a stage's message.
    fn opened_len(&self, stage: usize) -> usize {
        self.secure.len() * self.chunks.opened_len(stage)
    }
}

/// A unit, by what it waits for.
enum UnitState {
    /// The first operator's outputs, or what the owner deals.
    Outputs,
    /// The own message of a stage, which is computed.
    Message(usize),
    /// The other server's message of a stage.
    Other { stage: usize, own: Arc<Vec<u8>>, known: Known },
    /// Nothing.
    Counted,
}

/// What later stages need of what was opened, for each coalition's chunks.
type Known = Arc<Vec<Memory>>;

/// What a job of a unit found.
enum Step {
    /// The message of a stage, and what later stages need of what was opened.
    Message { stage: usize, out: Vec<u8>, known: Known, overflows: Vec<(usize, u64)> },
    /// Shares of what is found, coalition by coalition.
    Found(Vec<u64>),
}

impl BlindServer {
    pub(crate) fn new(session: BlindSession) -> Self {
        Self {
            session,
            masks: None,
            keys: BTreeMap::new(),
            data: BTreeMap::new(),
            rounds: BTreeMap::new(),
            tests: BTreeMap::new(),
            used: BTreeSet::new(),
        }
    }

    /// Begins a test. A model that was tested is refused: its masks were used.
    pub(crate) fn begin(&mut self, test: &BlindTest) -> Result<(), CodecError> {
        check_test(&self.session, test)?;
        let BlindTest { request, round, ref coalitions, ref samples } = *test;
        if coalitions.iter().any(|&coalition| self.used.contains(&(round, coalition))) {
            return Err(CodecError::Value { what: "coalition, which was tested before" });
        }
        self.used.extend(coalitions.iter().map(|&coalition| (round, coalition)));
        let owners: Vec<(usize, Option<Vec<usize>>, Chunks)> = self.session.parts(samples.as_ref()).collect();
        let is_sum = self.session.outcome().is_sum();
        let words = match is_sum {
            true => self.session.summed_words(),
            false => owners.iter().map(|(_, _, chunks)| chunks.outcome_words()).sum(),
        };
        let mut first = 0;
        let unit = |(owner, tested, chunks): (usize, Option<Vec<usize>>, Chunks)| {
            let begin = if is_sum { 0 } else { first };
            first += chunks.outcome_words();
            let numbered = || coalitions.iter().copied().enumerate();
            let knows = |&(_, coalition): &(usize, Coalition)| self.session.knows(owner, round, coalition);
            let secure: Vec<(usize, Coalition)> = numbered().filter(|model| !knows(model)).collect();
            let scales = |&(_, coalition): &(usize, Coalition)| self.session.scales(round, coalition);
            let context = UnitContext {
                request,
                round,
                owner,
                chunks,
                tested,
                found: (begin, words),
                scales: secure.iter().map(scales).collect(),
                secure,
                known: numbered().filter(knows).collect(),
            };
            let unit =
                BlindUnit { context: Arc::new(context), dealt: None, other: None, state: UnitState::Outputs };
            (owner, unit)
        };
        let units = owners.into_iter().map(unit).collect();
        let found = vec![0; coalitions.len() * words];
        let overflows = vec![0; if self.session.overflow_bytes() > 0 { coalitions.len() } else { 0 }];
        let (coalitions, samples) = (coalitions.clone(), samples.clone());
        self.tests.insert(request, ServerTest { round, coalitions, samples, units, found, overflows });
        Ok(())
    }

    pub(crate) fn forget_round(&mut self, round: RoundId) {
        self.rounds.remove(&round);
    }

    /// What has not come, in words. `rounds` are those that tests are about.
    pub(crate) fn missing(&self, server: Server) -> Vec<String> {
        let from = |kind: Kind, client: usize| format!("{kind} from {}", PartyId::Client(client));
        let mut missing = Vec::new();
        if self.masks.is_none() {
            missing.push(from(Kind::ModelMaskSeed, self.session.leader));
        }
        let owners: Vec<usize> = self.session.owners().collect();
        missing
            .extend(owners.iter().filter(|o| !self.keys.contains_key(o)).map(|&o| from(Kind::MaskSeed, o)));
        missing
            .extend(owners.iter().filter(|o| !self.data.contains_key(o)).map(|&o| from(Kind::DataShare, o)));
        let rounds: BTreeSet<RoundId> = self.tests.values().map(|test| test.round).collect();
        let nothing = MaskedRound::default();
        for round in rounds {
            let state = self.rounds.get(&round).unwrap_or(&nothing);
            let participants = self.session.federation.participants(round).members();
            let models = participants.filter(|client| !state.models.contains_key(client));
            missing.extend(
                models.map(|c| format!("{} of round {round} from {}", Kind::MaskedModel, PartyId::Client(c))),
            );
            if server == Server::Auxiliary {
                let dealt = owners.iter().filter(|owner| !state.dealt.contains_key(owner));
                missing.extend(dealt.map(|&o| {
                    format!("{} of round {round} from {}", Kind::DealtProduct, PartyId::Client(o))
                }));
            }
        }
        for (request, test) in &self.tests {
            for (&owner, unit) in &test.units {
                let party = PartyId::Client(owner);
                match &unit.state {
                    UnitState::Outputs if server == Server::Auxiliary && unit.dealt.is_none() => {
                        missing.push(format!("{} of test {request} from {party}", Kind::Dealing));
                    }
                    UnitState::Other { stage, .. } => missing.push(format!(
                        "{} of test {request}, samples of {party}, stage {stage} from {}",
                        Kind::MaskedOpening,
                        server.other().party()
                    )),
                    _ => {}
                }
            }
        }
        missing
    }
}

/// Whether a test is one that an honest principal asks for.
pub(crate) fn check_test(session: &BlindSession, test: &BlindTest) -> Result<(), CodecError> {
    let BlindTest { round, ref coalitions, ref samples, .. } = *test;
    if !session.federation.rounds.contains_key(&round) {
        return Err(CodecError::Value { what: "round" });
    }
    let participants = session.federation.participants(round);
    let distinct: BTreeSet<Coalition> = coalitions.iter().copied().collect();
    let is_sound = !coalitions.is_empty()
        && coalitions.len() <= session.most_together()
        && distinct.len() == coalitions.len()
        && coalitions.iter().all(|coalition| coalition.difference(participants).is_empty());
    let is_skipped = |samples: &SampleSet| {
        session.outcome() == Outcome::Each && samples.total() == session.samples() && !samples.is_all()
    };
    if samples.as_ref().is_some_and(|samples| !is_skipped(samples)) {
        return Err(CodecError::Value { what: "samples" });
    }
    if is_sound { Ok(()) } else { Err(CodecError::Value { what: "coalitions" }) }
}

/// Takes what clients send once a session or once a round.
pub(crate) fn take_upload<H: BlindHost>(host: &mut H, message: &Incoming) -> Result<Effects<H>, Error> {
    let server = host.server();
    let session = server.session.clone();
    let PartyId::Client(client) = message.from else {
        return Err(message.unexpected("clients upload"));
    };
    let malformed = |why| message.malformed(why);
    let owns = session.hellos[client].samples > 0;
    match message.kind {
        Kind::ModelMaskSeed if client == session.leader && server.masks.is_none() => {
            let ModelMaskSeed { seed } = message.read(&())?;
            server.masks = Some(seed);
        }
        Kind::MaskSeed if owns && !server.keys.contains_key(&client) => {
            let MaskSeed { seed } = message.read(&())?;
            let key = OwnerKey::new(seed);
            if H::SERVER == Server::Principal {
                let data = OwnerData::of_principal(&session, client, &key)?;
                server.data.insert(client, Arc::new(data));
            }
            server.keys.insert(client, key);
        }
        Kind::DataShare if owns && H::SERVER == Server::Auxiliary && !server.data.contains_key(&client) => {
            let DataShare { share } = message.read(&Server::Auxiliary)?;
            let ShareBody::Elements(bytes) = share else {
                return Err(malformed(CodecError::Value { what: "share" }));
            };
            check_len(bytes, OwnerData::len(&session, client)).map_err(malformed)?;
            let data = OwnerData::of_auxiliary(&session, client, bytes)?;
            server.data.insert(client, Arc::new(data));
        }
        Kind::MaskedModel => {
            let MaskedModel { round, elements } = message.read(&())?;
            if !session.federation.participants(round).contains(client) {
                return Err(malformed(CodecError::Value { what: "round" }));
            }
            check_len(elements, session.model_len()).map_err(malformed)?;
            let models = &mut server.rounds.entry(round).or_default().models;
            models.entry(client).or_insert_with(|| Arc::new(elements.to_vec()));
        }
        Kind::DealtProduct if owns && H::SERVER == Server::Auxiliary => {
            let DealtProduct { round, elements } = message.read(&())?;
            if !session.federation.rounds.contains_key(&round) {
                return Err(malformed(CodecError::Value { what: "round" }));
            }
            let words = product_words(&session, round, client);
            check_len(elements, words * session.hops().bytes(0)).map_err(malformed)?;
            let dealt = &mut server.rounds.entry(round).or_default().dealt;
            dealt.entry(client).or_insert_with(|| Arc::new(elements.to_vec()));
        }
        _ => return Err(message.unexpected("it was taken, or is for others")),
    }
    advance_all(host)
}

fn check_len(bytes: &[u8], expected: usize) -> Result<(), CodecError> {
    match bytes.len() {
        found if found < expected => Err(CodecError::Truncated),
        found if found > expected => Err(CodecError::Trailing { found: found - expected }),
        _ => Ok(()),
    }
}

/// Takes what an owner deals for a test that is known, at the auxiliary.
pub(crate) fn take_dealing<H: BlindHost>(
    host: &mut H,
    request: RequestId,
    message: Incoming,
) -> Result<Effects<H>, Error> {
    let PartyId::Client(owner) = message.from else { return Err(message.unexpected("owners deal")) };
    let unit = host.server().tests.get_mut(&request).and_then(|test| test.units.get_mut(&owner));
    let Some(unit) = unit.filter(|unit| unit.dealt.is_none()) else {
        return Err(message.unexpected("nothing is dealt twice, or by somebody without samples"));
    };
    let expected = crate::message::Dealing::HEAD + unit.context.dealt_len();
    check_len(&message.content, expected).map_err(|why| message.malformed(why))?;
    unit.dealt = Some(Arc::new(message.content));
    advance(host, request, owner)
}

/// Takes the other server's message of a stage.
pub(crate) fn take_opening<H: BlindHost>(host: &mut H, message: Incoming) -> Result<Effects<H>, Error> {
    let MaskedOpening { request, owner, stage, masked } = message.read(&())?;
    let unit = host.server().tests.get_mut(&request).and_then(|test| test.units.get_mut(&owner));
    let Some(unit) = unit else { return Err(message.unexpected("no such test")) };
    let next = match unit.state {
        UnitState::Outputs => 0,
        UnitState::Message(stage) | UnitState::Other { stage, .. } => stage,
        UnitState::Counted => return Err(message.unexpected("it is counted")),
    };
    if stage != next || unit.other.is_some() || stage >= unit.context.chunks.stages() {
        return Err(message.unexpected("another stage"));
    }
    check_len(masked, unit.context.opened_len(stage)).map_err(|why| message.malformed(why))?;
    unit.other = Some(Arc::new(message.content));
    advance(host, request, owner)
}

/// Starts whatever has everything.
pub(crate) fn advance_all<H: BlindHost>(host: &mut H) -> Result<Effects<H>, Error> {
    let units = |server: &BlindServer| -> Vec<(RequestId, usize)> {
        let tests = server.tests.iter();
        tests.flat_map(|(id, test)| test.units.keys().map(move |owner| (*id, *owner))).collect()
    };
    let mut effects = Effects::default();
    for (request, owner) in units(host.server()) {
        effects.and(advance(host, request, owner)?);
    }
    Ok(effects)
}

/// Starts whatever a unit has everything for.
pub(crate) fn advance<H: BlindHost>(
    host: &mut H,
    request: RequestId,
    owner: usize,
) -> Result<Effects<H>, Error> {
    let server = host.server();
    let unit = server.tests.get(&request).and_then(|test| test.units.get(&owner));
    let Some(unit) = unit else { return Ok(Effects::default()) };
    let is_dealt = H::SERVER == Server::Principal || unit.dealt.is_some();
    match &unit.state {
        UnitState::Outputs if is_dealt && unit.context.secure.is_empty() => {
            if server.keys.contains_key(&owner) {
                settle(host, request, owner, &[])
            } else {
                Ok(Effects::default())
            }
        }
        UnitState::Outputs if is_dealt => {
            let (context, dealt) = (unit.context.clone(), unit.dealt.clone());
            match server.outputs_of(context.round, owner) {
                Some(Outputs::Known(outputs)) => {
                    let outputs = outputs.clone();
                    Ok(begin_unit(host, context, dealt, outputs))
                }
                Some(Outputs::Computed) => Ok(Effects::default()),
                None => compute_outputs(host, context.round, owner),
            }
        }
        UnitState::Other { .. } if unit.other.is_some() => Ok(go_on(host, request, owner)),
        _ => Ok(Effects::default()),
    }
}

impl BlindServer {
    fn outputs_of(&self, round: RoundId, owner: usize) -> Option<&Outputs> {
        self.rounds.get(&round)?.outputs.get(&owner)
    }

    /// The masked models of a round, in the order of their clients, once all are there.
    fn models(&self, round: RoundId) -> Option<Vec<Arc<Vec<u8>>>> {
        let state = self.rounds.get(&round)?;
        let participants = self.session.federation.participants(round);
        participants.members().map(|client| state.models.get(&client).cloned()).collect()
    }

    fn unit(&mut self, request: RequestId, owner: usize) -> Option<&mut BlindUnit> {
        self.tests.get_mut(&request)?.units.get_mut(&owner)
    }
}

/// Computes the first operator's outputs of a round's models on an owner's samples, once everything for that has come.
fn compute_outputs<H: BlindHost>(host: &mut H, round: RoundId, owner: usize) -> Result<Effects<H>, Error> {
    let server = host.server();
    let session = server.session.clone();
    let mut effects = Effects::default();
    let (Some(masks), Some(key), Some(data), Some(models)) = (
        server.masks.clone(),
        server.keys.get(&owner).cloned(),
        server.data.get(&owner).cloned(),
        server.models(round),
    ) else {
        return Ok(effects);
    };
    let Some(state) = server.rounds.get_mut(&round) else { return Ok(effects) };
    let dealt = state.dealt.get(&owner).cloned();
    if H::SERVER == Server::Auxiliary && dealt.is_none() {
        return Ok(effects);
    }
    state.outputs.insert(owner, Outputs::Computed);
    effects.job(move |meter| {
        meter.enter(Phase::Linear);
        let dealt = dealt.as_ref().map(|dealt| &dealt[..]);
        let input = LayerInput { server: H::SERVER, masks: &masks, key: &key, models: &models, dealt };
        let found = Arc::new(outputs(&session, (round, owner), &input, &data)?);
        Ok(move |host: &mut H| {
            let Some(state) = host.server().rounds.get_mut(&round) else { return Ok(Effects::default()) };
            state.outputs.insert(owner, Outputs::Known(found));
            state.dealt.remove(&owner);
            advance_all(host)
        })
    });
    Ok(effects)
}

/// Computes the first message of a unit.
fn begin_unit<H: BlindHost>(
    host: &mut H,
    context: Arc<UnitContext>,
    dealt: Option<Arc<Vec<u8>>>,
    outputs: Arc<Secret<Vec<u64>>>,
) -> Effects<H> {
    let server = host.server();
    let mut effects = Effects::default();
    let session = server.session.clone();
    let Some(key) = server.keys.get(&context.owner).cloned() else { return effects };
    if let Some(unit) = server.unit(context.request, context.owner) {
        unit.state = UnitState::Message(0);
    }
    effects.job(move |meter| {
        meter.enter(Phase::Share);
        let mut out = Vec::with_capacity(context.opened_len(0));
        let samples = session.hellos[context.owner].samples as usize;
        let rows = session.program().operators[0].output_size();
        let participants: Vec<usize> = session.federation.participants(context.round).members().collect();
        let mut sum = Secret::new(Vec::new());
        for unit in units::<H>(&context, &key, dealt.as_ref()) {
            let columns = context.columns(&unit);
            sum.expose_mut().clear();
            sum.expose_mut().resize(rows * unit.shape.samples(), 0);
            let (_, coalition) = context.secure[unit.place];
            for (member, _) in participants.iter().enumerate().filter(|(_, c)| coalition.contains(**c)) {
                let own = &outputs.expose()[member * rows * samples..][..rows * samples];
                columns.add(own, samples, sum.expose_mut());
            }
            unit.evaluator().begin(sum.expose(), &mut out);
        }
        Ok(move |host: &mut H| {
            send(
                host,
                &context,
                Step::Message { stage: 0, out, known: Arc::default(), overflows: Vec::new() },
            )
        })
    });
    effects
}

/// Some columns of a matrix that stands row by row.
enum Columns<'a> {
    Range(Range<usize>),
    Of(&'a [usize]),
}

impl Columns<'_> {
    /// Adds these columns of a matrix, so many wide, to another.
    fn add(&self, matrix: &[u64], width: usize, sum: &mut [u64]) {
        let add = |(sum, word): (&mut u64, &u64)| *sum = sum.wrapping_add(*word);
        let rows = matrix.chunks_exact(width.max(1));
        match self {
            Self::Range(range) => {
                for (row, sum) in rows.zip(sum.chunks_exact_mut(range.len().max(1))) {
                    sum.iter_mut().zip(&row[range.clone()]).for_each(add);
                }
            }
            Self::Of(columns) => {
                for (row, sum) in rows.zip(sum.chunks_exact_mut(columns.len().max(1))) {
                    sum.iter_mut().zip(columns.iter().map(|&column| &row[column])).for_each(add);
                }
            }
        }
    }
}

/// One coalition of a unit on one chunk.
struct UnitChunk<'a> {
    context: &'a UnitContext,
    key: &'a OwnerKey,
    dealt: Option<&'a [u8]>,
    server: Server,
    /// Which of the coalitions that the owner does not know.
    place: usize,
    /// Where the chunk begins among the tested samples.
    first: usize,
    shape: Shape,
}

impl UnitChunk<'_> {
    fn evaluator(&self) -> Evaluator<'_> {
        let (_, coalition) = self.context.secure[self.place];
        Evaluator {
            shape: &self.shape,
            server: self.server,
            key: self.key,
            place: Place { round: self.context.round, coalition, first: self.first },
            scales: &self.context.scales[self.place],
            dealt: self.dealt,
        }
    }
}

impl UnitContext {
    /// A chunk's samples among all of the owner's.
    fn columns(&self, unit: &UnitChunk<'_>) -> Columns<'_> {
        let range = unit.first..unit.first + unit.shape.samples();
        match &self.tested {
            None => Columns::Range(range),
            Some(tested) => Columns::Of(&tested[range]),
        }
    }
}

/// A unit's coalitions, chunk by chunk.
fn units<'a, H: BlindHost>(
    context: &'a UnitContext,
    key: &'a OwnerKey,
    dealt: Option<&'a Arc<Vec<u8>>>,
) -> impl Iterator<Item = UnitChunk<'a>> {
    let mut dealt = dealt.map(|dealt| &dealt[crate::message::Dealing::HEAD..]);
    let chunks = (0..context.secure.len())
        .flat_map(|place| context.chunks.iter().map(move |(first, shape)| (place, first, shape)));
    chunks.map(move |(place, first, shape)| {
        let own = dealt.map(|rest| {
            let (own, rest) = rest.split_at(shape.dealt_len().min(rest.len()));
            dealt = Some(rest);
            own
        });
        UnitChunk { context, key, dealt: own, server: H::SERVER, place, first, shape }
    })
}

/// What a job of a stage works on.
struct StageInput {
    stage: usize,
    own: Arc<Vec<u8>>,
    other: Arc<Vec<u8>>,
    known: Known,
    dealt: Option<Arc<Vec<u8>>>,
    data: Arc<OwnerData>,
    /// The seed of the server's masks of models, and the round's models.
    models: Option<(Seed, Vec<Arc<Vec<u8>>>)>,
}

/// Opens a stage whose messages are both there, and computes what comes next.
fn go_on<H: BlindHost>(host: &mut H, request: RequestId, owner: usize) -> Effects<H> {
    let server = host.server();
    let mut effects = Effects::default();
    let (session, key) = (server.session.clone(), server.keys.get(&owner).cloned());
    let data = server.data.get(&owner).cloned();
    let round = server.tests.get(&request).map(|test| test.round);
    let models = round.and_then(|round| server.masks.clone().zip(server.models(round)));
    let (Some(unit), Some(key), Some(data)) = (server.unit(request, owner), key, data) else {
        return effects;
    };
    let (context, dealt, other) = (unit.context.clone(), unit.dealt.clone(), unit.other.take());
    let state = std::mem::replace(&mut unit.state, UnitState::Counted);
    let (UnitState::Other { stage, own, known }, Some(other)) = (state, other) else { return effects };
    unit.state = UnitState::Message(stage + 1);
    let input = StageInput { stage, own, other, known, dealt, data, models };
    effects.job(move |meter| {
        meter.enter(Phase::Share);
        let step = next::<H>(&session, &context, &key, &input)?;
        Ok(move |host: &mut H| send(host, &context, step))
    });
    effects
}

/// What comes behind a stage: the next one's message or, after the last, counts.
fn next<H: BlindHost>(
    session: &BlindSession,
    context: &UnitContext,
    key: &OwnerKey,
    input: &StageInput,
) -> Result<Step, Error> {
    let (chunks, stage) = (&context.chunks, input.stage);
    let is_last = stage + 1 == chunks.stages();
    let operators = chunks.operators_at(stage + 1);
    let samples = session.hellos[context.owner].samples as usize;
    let mut out = Vec::with_capacity(context.opened_len(stage + 1));
    let (mut found, mut known) = (vec![Vec::new(); context.secure.len()], Vec::new());
    let mut overflows = Vec::new();
    let nothing = Memory::default();
    let mut later: Option<(usize, Vec<Later<'_>>)> = None;
    let (mut own, mut other) = (&input.own[..], &input.other[MaskedOpening::HEAD..]);
    for (index, unit) in units::<H>(context, key, input.dealt.as_ref()).enumerate() {
        let evaluator = unit.evaluator();
        let parts = [&mut own, &mut other].map(|bytes| {
            let (part, rest) = bytes.split_at(unit.shape.opened_len(stage).min(bytes.len()));
            *bytes = rest;
            part
        });
        let opening = session.opening(Disclosure::MaskedFactors)?;
        let opened = opening.told(evaluator.open(stage, parts[0], parts[1]));
        overflows
            .extend(evaluator.overflows(stage, &opened).map(|count| (context.secure[unit.place].0, count)));
        if is_last {
            add_found(&unit.shape, &mut found[unit.place], evaluator.outcome(&opened));
            continue;
        }
        if !operators.is_empty() && later.as_ref().is_none_or(|(of, _)| *of != unit.place) {
            let missing = Error::Local { what: "models of a round that is tested" };
            let (masks, models) = input.models.as_ref().ok_or(missing)?;
            let model = (context.round, context.secure[unit.place].1);
            let part = |&operator: &usize| Later::new(session, (H::SERVER, masks), model, operator, models);
            later = Some((unit.place, operators.iter().map(part).collect::<Result<_, Error>>()?));
        }
        let columns = |words: &[u64], is_needed: bool| {
            let mut found = Secret::new(Vec::new());
            if is_needed {
                let rows = words.len().checked_div(samples).unwrap_or(0);
                found.expose_mut().resize(rows * unit.shape.samples(), 0);
                context.columns(&unit).add(words, samples, found.expose_mut());
            }
            found
        };
        let labels = columns(input.data.labels.expose(), chunks.takes_labels(stage + 1));
        let own = columns(input.data.samples(), chunks.takes_samples(stage + 1));
        let before = input.known.get(index).unwrap_or(&nothing);
        let of_unit = evaluator.known(stage, &opened, before);
        let state = Opened { opened: &opened, known: of_unit.as_ref().unwrap_or(before) };
        let later = later.as_ref().map_or(&[][..], |(_, later)| later);
        let held = Held { labels: labels.expose(), samples: own.expose(), later };
        evaluator.message(stage + 1, state, held, &mut out)?;
        known.extend(of_unit);
    }
    let known = if known.is_empty() { input.known.clone() } else { Arc::new(known) };
    Ok(match is_last {
        true => Step::Found(found.concat()),
        false => Step::Message { stage: stage + 1, out, known, overflows },
    })
}

/// Adds what is found of a chunk to what is found of those before it.
pub(super) fn add_found(shape: &Shape, found: &mut Vec<u64>, of_chunk: Vec<u64>) {
    if !shape.outcome().is_sum() || found.is_empty() {
        found.extend(of_chunk);
    } else {
        found.iter_mut().zip(of_chunk).for_each(|(sum, own)| *sum = shape.found(*sum, own));
    }
}

/// Sends the message of a stage, or takes the counts.
fn send<H: BlindHost>(host: &mut H, context: &UnitContext, step: Step) -> Result<Effects<H>, Error> {
    let (request, owner) = (context.request, context.owner);
    let (stage, own, known, overflows) = match step {
        Step::Found(found) => return settle(host, request, owner, &found),
        Step::Message { stage, out, known, overflows } => (stage, Arc::new(out), known, overflows),
    };
    let session = host.server().session.clone();
    if let Some(test) = host.server().tests.get_mut(&request) {
        for (number, count) in overflows {
            test.overflows[number] = session.add_overflows(test.overflows[number], count);
        }
    }
    let Some(unit) = host.server().unit(request, owner) else { return Ok(Effects::default()) };
    let to = H::SERVER.other().party();
    let mut effects = Effects::send(Outgoing::of(to, &MaskedOpening { request, owner, stage, masked: &own }));
    unit.state = UnitState::Other { stage, own, known };
    effects.and(advance(host, request, owner)?);
    Ok(effects)
}

/// Adds a unit's shares of what is found to its test's.
fn settle<H: BlindHost>(
    host: &mut H,
    request: RequestId,
    owner: usize,
    found: &[u64],
) -> Result<Effects<H>, Error> {
    let server = host.server();
    let key = server.keys.get(&owner).cloned();
    let test = server.tests.get_mut(&request);
    let (Some(key), Some(test)) = (key, test) else { return Ok(Effects::default()) };
    let Some(unit) = test.units.get_mut(&owner) else { return Ok(Effects::default()) };
    let context = unit.context.clone();
    let (shape, each) = (&context.chunks, context.chunks.outcome_words());
    let own: Vec<u64> = match &unit.dealt {
        Some(dealt) => {
            let known = crate::message::Dealing::HEAD + context.secure.len() * shape.dealt_len();
            unpack(&dealt[known..], shape.outcome_bytes()).collect()
        }
        None => {
            let share = |&(_, coalition): &(usize, Coalition)| {
                let share = key.words(Place::of_model(context.round, coalition), Purpose::OwnOutcome, each);
                share.expose().clone()
            };
            context.known.iter().flat_map(share).collect()
        }
    };
    let (begin, words) = context.found;
    let secure = context.secure.iter().zip(found.chunks_exact(each.max(1)));
    for (&(number, _), shares) in secure.chain(context.known.iter().zip(own.chunks_exact(each.max(1)))) {
        let places = &mut test.found[number * words + begin..];
        places.iter_mut().zip(shares).for_each(|(sum, share)| *sum = shape.found(*sum, *share));
    }
    unit.state = UnitState::Counted;
    unit.dealt = None;
    let is_counted = test.is_counted();
    if is_counted { host.counted(request) } else { Ok(Effects::default()) }
}
