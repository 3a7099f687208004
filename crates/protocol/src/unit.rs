//! A unit of a test: rounds, coalitions, samples, decryptors, the order of its labels, and who may send what about it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use secsv_federation::{Coalition, RoundId};

use crate::{
    Error, PartyId,
    combinations::{Combinations, Selection},
    decryptors::knowing,
    error::CodecError,
    first_layer_batch::FirstLayerBatch,
    labels::{self, Packed},
    message::{Head, Kind, Message as _, StepAddress, TestPlan, UnitId, UnitPlan},
    program::{DecryptorSlot, Input, Receive, Then},
    role::{Digest, Incoming},
    session::{EncryptedSession, OwnerPart, Session},
};

/// A test's facts beside its unit's.
pub(crate) struct UnitContext {
    pub id: UnitId,
    /// The round, or the first of its round batch.
    pub round: RoundId,
    /// All rounds of the round batch: what is said of a coalition below is said of its models of all of them.
    pub rounds: Vec<RoundId>,
    pub plan: UnitPlan,
    /// Of everything the principal announced of it: randomness for the unit depends on it.
    pub digest: Digest,
    /// For each of the plan's coalitions, the samples that its models are tested on.
    pub selections: Vec<Arc<Selection>>,
    /// Where its first-layer outputs come from.
    pub layer_batch: Arc<FirstLayerBatch>,
    /// The decryptor of each step.
    decryptors: Vec<usize>,
    combinations: OnceLock<Combinations>,
}

impl UnitContext {
    /// The units of a test, as an honest principal plans it or [`check_plan`] let it pass.
    pub(crate) fn of(session: &Session, plan: &TestPlan) -> Result<Vec<Self>, Error> {
        let digest = |unit: &UnitPlan| {
            let alone = TestPlan { test: plan.test, round: plan.round, units: vec![unit.clone()] };
            *blake3::hash(&alone.encode()).as_bytes()
        };
        let steps = &session.program().steps;
        let unit = |unit: &UnitPlan| {
            let decryptors = steps.iter().map(|step| decryptor(unit, step.slot)).collect::<Option<_>>();
            let decryptors = decryptors.ok_or(Error::Local { what: "a decryptor for every step" })?;
            Ok(Self {
                id: UnitId { test: plan.test, group: unit.group, part: unit.part },
                round: plan.round,
                rounds: session.rounds_of(plan.round).to_vec(),
                digest: digest(unit),
                plan: unit.clone(),
                selections: selections(session, plan.round, unit),
                layer_batch: Arc::new(FirstLayerBatch::of(session, unit)),
                decryptors,
                combinations: OnceLock::new(),
            })
        };
        plan.units.iter().map(unit).collect()
    }

    /// The coalition, where models are not tested together.
    pub(crate) fn coalition(&self) -> Coalition {
        self.plan.coalitions.first().copied().unwrap_or(Coalition::EMPTY)
    }

    /// The round and the coalition, where models are not tested together.
    pub(crate) fn model(&self) -> (RoundId, Coalition) {
        (self.round, self.coalition())
    }

    /// How many clients are in a coalition of the unit.
    pub(crate) fn members(&self, session: &Session, number: usize) -> usize {
        self.plan.coalitions.get(number).map_or(0, |&coalition| session.members(self.round, coalition).len())
    }

    /// The places of the samples, where models are not tested together.
    pub(crate) fn places(&self) -> &[usize] {
        self.selections.first().map_or(&[], |selection| &selection.places)
    }

    /// Labels that are compared: one for each round and each sample of each coalition.
    pub(crate) fn labels(&self) -> usize {
        self.rounds.len() * self.selections.iter().map(|selection| selection.places.len()).sum::<usize>()
    }

    /// Which coalitions' outputs are sent, and how all others follow.
    pub(crate) fn combinations(&self, session: &EncryptedSession) -> &Combinations {
        self.combinations.get_or_init(|| {
            let members =
                |&coalition| session.members(self.round, coalition).iter().map(|(i, _)| *i).collect();
            let members: Vec<_> = self.plan.coalitions.iter().map(members).collect();
            Combinations::new(session.field(), &members, &self.selections)
        })
    }

    /// Owners with samples in the unit.
    pub(crate) fn owners<'a>(&'a self, session: &'a Session) -> impl Iterator<Item = usize> + 'a {
        let parts = session.groups[self.plan.group].parts.iter();
        let is_tested = |part: &&OwnerPart| part.places.clone().any(|p| self.plan.samples.contains(p));
        parts.filter(is_tested).map(|part| part.owner)
    }

    /// The segments of one coalition's labels in a round.
    pub(crate) fn segments<'a>(
        &'a self,
        session: &'a Session,
        number: usize,
    ) -> impl Iterator<Item = Segment<'a>> {
        let parts = session.groups[self.plan.group].parts.iter();
        let of = move |part: &OwnerPart| {
            let places = self.selections[number].within(&part.places);
            Segment { owner: part.owner, first: part.places.start, places }
        };
        parts.map(of).filter(|segment| !segment.places.is_empty())
    }

    /// Where the segments of each owner's samples begin among all labels of a round, for each coalition; 0 where it has none.
    pub(crate) fn begins(&self, session: &Session) -> BTreeMap<usize, Vec<usize>> {
        let field = session.label_field();
        let mut begins: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut begin = 0;
        for number in 0..self.selections.len() {
            for Segment { owner, places, .. } in self.segments(session, number) {
                let of_owner = begins.entry(owner).or_insert_with(|| vec![0; self.selections.len()]);
                of_owner[number] = begin;
                begin += field.packed_len(places.len());
            }
        }
        begins
    }

    /// Bytes of all labels that are compared.
    pub(crate) fn label_bytes(&self, session: &Session) -> usize {
        let field = session.label_field();
        let segments = (0..self.selections.len()).flat_map(|number| self.segments(session, number));
        self.rounds.len() * segments.map(|segment| field.packed_len(segment.places.len())).sum::<usize>()
    }

    /// The rounds and coalitions that an owner shares true labels for: without factors they are the same for all.
    pub(crate) fn shared_truths(
        &self,
        session: &Session,
        owner: usize,
    ) -> impl Iterator<Item = (RoundId, usize)> {
        let places = session.groups[self.plan.group].places(owner);
        let most = if session.label_field().has_factors() { usize::MAX } else { 1 };
        let models =
            self.rounds.iter().flat_map(|&round| (0..self.selections.len()).map(move |n| (round, n)));
        models.filter(move |&(_, number)| !self.selections[number].within(&places).is_empty()).take(most)
    }

    /// Bytes of the true labels that an owner shares.
    pub(crate) fn truth_bytes(&self, session: &Session, owner: usize) -> usize {
        let (field, places) = (session.label_field(), session.groups[self.plan.group].places(owner));
        let bytes = |(_, number): (_, usize)| field.packed_len(self.selections[number].within(&places).len());
        self.shared_truths(session, owner).map(bytes).sum()
    }

    /// The owners' labels in the order of the predictions: round by round, coalition by coalition, segment by segment.
    pub(crate) fn arranged(
        &self,
        session: &Session,
        truths: &BTreeMap<usize, Packed>,
    ) -> Result<Packed, Error> {
        let field = session.label_field();
        let mut rest: BTreeMap<usize, &[u8]> =
            truths.iter().map(|(&owner, labels)| (owner, labels.expose().as_slice())).collect();
        let mut all = labels::empty(self.label_bytes(session));
        let models = self.rounds.iter().flat_map(|_| 0..self.selections.len());
        for number in models {
            for Segment { owner, places, .. } in self.segments(session, number) {
                let length = field.packed_len(places.len());
                let missing = Error::Local { what: "labels of every owner" };
                let labels = rest.get_mut(&owner).ok_or(missing.clone())?;
                // An owner's samples are all tested or, where it knows the model, none: its segments are as long as each other.
                let (now, later) = labels.split_at_checked(length).ok_or(missing)?;
                all.expose_mut().extend_from_slice(now);
                if field.has_factors() {
                    *labels = later;
                }
            }
        }
        Ok(all)
    }

    /// The decryptor of a step.
    pub(crate) fn decryptor(&self, step: usize) -> usize {
        self.decryptors[step]
    }

    /// Whether a client is the decryptor of some step.
    pub(crate) fn decrypts(&self, client: usize) -> bool {
        self.decryptors.contains(&client)
    }

    /// Everybody with a part in it beside owners.
    pub(crate) fn assigned(&self) -> impl Iterator<Item = usize> + '_ {
        self.plan.assigned()
    }
}

/// One owner's samples among those that a coalition is tested on. Their labels are packed by themselves.
#[derive(Clone, Copy)]
pub(crate) struct Segment<'a> {
    pub owner: usize,
    /// Where the owner's samples begin in the group.
    pub first: usize,
    /// The places in the group, ascending.
    pub places: &'a [usize],
}

impl<'a> Segment<'a> {
    /// Which of the owner's samples.
    pub(crate) fn samples(self) -> impl Iterator<Item = usize> + 'a {
        self.places.iter().map(move |place| place - self.first)
    }
}

/// The samples of each coalition of a unit: an owner tests models it knows itself.
fn selections(session: &Session, round: RoundId, unit: &UnitPlan) -> Vec<Arc<Selection>> {
    let Some(group) = session.groups.get(unit.group) else { return Vec::new() };
    let participants = session.federation.participants(round);
    let mut known: BTreeMap<Coalition, Arc<Selection>> = BTreeMap::new();
    let of = |coalition: &Coalition| {
        let knowing = knowing(group.owners, *coalition, participants);
        let selection = known.entry(knowing).or_insert_with(|| {
            let samples = session.without_owners(unit.group, &unit.samples, knowing);
            let places = samples.iter().collect();
            Arc::new(Selection { samples, places })
        });
        selection.clone()
    };
    unit.coalitions.iter().map(of).collect()
}

/// The client at a slot of a unit.
fn decryptor(unit: &UnitPlan, slot: DecryptorSlot) -> Option<usize> {
    match slot {
        DecryptorSlot::Layer(place) => unit.chain.get(place).copied(),
        DecryptorSlot::Resharer => unit.gru.map(|gru| gru.resharer),
        DecryptorSlot::Gates => unit.gru.map(|gru| gru.gates),
    }
}

/// Checks that an announced test fits the session.
pub(crate) fn check_plan(session: &Session, plan: &TestPlan) -> Result<(), CodecError> {
    let bad = |what| Err(CodecError::Value { what });
    let program = session.program();
    if session.rounds_of(plan.round).is_empty() {
        return bad("round");
    }
    let participants = session.federation.participants(plan.round);
    let most = session.most_together();
    let (mut parts, mut tested) = (BTreeSet::new(), BTreeSet::new());
    for unit in &plan.units {
        let Some(group) = session.groups.get(unit.group) else { return bad("group") };
        if !parts.insert((unit.group, unit.part)) || !(1..=most).contains(&unit.coalitions.len()) {
            return bad("units");
        }
        let is_new = |&coalition: &Coalition| tested.insert((unit.group, coalition));
        let is_known = |coalition: &Coalition| !coalition.is_empty() && coalition.is_subset_of(participants);
        if !unit.coalitions.iter().all(is_known) || !unit.coalitions.iter().all(is_new) {
            return bad("coalitions");
        }
        if unit.samples.total() != group.size || unit.samples.is_empty() {
            return bad("samples");
        }
        let gathered = unit.gathered.as_ref();
        if gathered.is_some_and(|g| g.total() != group.size || !unit.samples.difference(g).is_empty()) {
            return bad("gathered samples");
        }
        if unit.chain.len() != program.chain() || unit.gru.is_some() != program.gru.is_some() {
            return bad("decryptors");
        }
        if unit.assigned().any(|client| client >= session.federation.clients) {
            return bad("decryptors");
        }
    }
    Ok(())
}

/// A product of an operator with what a client shared at a step.
#[derive(Clone, Copy)]
pub(crate) struct Product {
    /// Where it is received.
    pub step: usize,
    /// Which of the things received there.
    pub item: usize,
    pub operator: usize,
    /// Where its input was shared.
    pub from: usize,
}

impl Product {
    /// Where messages about it belong.
    pub(crate) fn address(self, unit: UnitId) -> StepAddress {
        StepAddress { item: self.item, ..StepAddress::new(unit, self.step) }
    }
}

/// Products of a program with what clients shared.
pub(crate) fn products_of(session: &Session) -> impl Iterator<Item = Product> + '_ {
    received(session).filter_map(|(step, item, receive)| match *receive {
        Receive::Outputs { operator, input: Input::Step(from), .. } => {
            Some(Product { step, item, operator, from })
        }
        _ => None,
    })
}

/// A gated sum.
#[derive(Clone, Copy)]
pub(crate) struct Update {
    /// Where it is received.
    pub step: usize,
    /// Which of the things received there.
    pub item: usize,
    /// Where the gates were shared.
    pub gates: usize,
    /// Where the state was shared.
    pub state: usize,
}

impl Update {
    /// Where messages about it belong.
    pub(crate) fn address(self, unit: UnitId) -> StepAddress {
        StepAddress { item: self.item, ..StepAddress::new(unit, self.step) }
    }
}

/// Gated sums of a program.
pub(crate) fn updates_of(session: &Session) -> impl Iterator<Item = Update> + '_ {
    received(session).filter_map(|(step, item, receive)| match *receive {
        Receive::Update { gates, state } => Some(Update { step, item, gates, state }),
        _ => None,
    })
}

/// Everything that is received under a program, by step and number there.
fn received(session: &Session) -> impl Iterator<Item = (usize, usize, &Receive)> + '_ {
    session.program().steps.iter().enumerate().flat_map(|(step, decryption)| {
        decryption.receives.iter().enumerate().map(move |(item, receive)| (step, item, receive))
    })
}

/// Whether an address is the one of something that servers send each other about a unit: every place has one.
pub(crate) fn is_server_address(
    session: &Session,
    context: &UnitContext,
    kind: Kind,
    address: StepAddress,
) -> bool {
    let is_at = |step, item| address == StepAddress { item, ..StepAddress::new(context.id, step) };
    match kind {
        Kind::LayerHalf => products_of(session).any(|product| product.address(context.id) == address),
        Kind::MaskedFactors => updates_of(session).any(|update| update.address(context.id) == address),
        Kind::MaskedLayer => products_of(session).any(|product| is_at(0, product.operator)),
        Kind::DifferenceShare | Kind::OpenedSeeds => is_at(0, 0),
        _ => false,
    }
}

/// The address of something that servers send each other about a unit under way: `context` finds the unit.
pub(crate) fn server_address(
    session: &Session,
    message: &Incoming,
    context: impl Fn(UnitId) -> Option<Arc<UnitContext>>,
) -> Result<(StepAddress, Arc<UnitContext>), Error> {
    let address = Head::step(message.kind, &message.content);
    let address = address.ok_or_else(|| message.malformed(CodecError::Truncated))?;
    let context = context(address.unit).ok_or_else(|| message.unexpected("no such test"))?;
    if !is_server_address(session, &context, message.kind, address) {
        return Err(message.malformed(CodecError::Value { what: "step, item or chunk" }));
    }
    Ok((address, context))
}

/// The first step but the last that nothing was shared at, in words.
pub(crate) fn missing_input(
    session: &Session,
    context: &UnitContext,
    has_come: impl Fn(usize) -> bool,
) -> Option<String> {
    let (test, group) = (context.id.test, context.id.group);
    let step = (0..session.program().steps.len() - 1).find(|&step| !has_come(step))?;
    let client = PartyId::Client(context.decryptor(step));
    Some(format!("{} of test {test} group {group} step {step} from {client}", Kind::ActivationShare))
}

/// Whether a client is the one to send this, the one at the step's slot, an owner, the dealer, and whether there is such an address: of
/// each step a client fills one.
pub(crate) fn may_send(
    session: &Session,
    context: &UnitContext,
    client: usize,
    kind: Kind,
    address: StepAddress,
) -> bool {
    let (step, last) = (address.step, session.program().steps.len() - 1);
    let slot = |step: usize| context.decryptors.get(step).copied();
    address == StepAddress::new(context.id, step)
        && match kind {
            Kind::ActivationShare | Kind::EncryptedActivations => slot(step) == Some(client) && step < last,
            Kind::PredictionShare | Kind::EncryptedPredictions => slot(step) == Some(client) && step == last,
            Kind::LabelShare | Kind::EncryptedLabels => {
                step == 0 && context.owners(session).any(|owner| owner == client)
            }
            Kind::Triple => {
                context.plan.dealer == Some(client) && updates_of(session).any(|sum| sum.step == step)
            }
            Kind::Count => step == 0 && context.plan.counter == Some(client),
            _ => false,
        }
}

/// How many vectors in slots a step's upload has, and the elements of each.
pub(crate) fn slots_of(session: &Session, step: usize, samples: usize) -> (usize, usize) {
    let elements = session.program().hidden() * samples;
    match session.program().steps[step].then {
        Then::Gates { .. } => (2, elements),
        _ => (usize::from(updates_of(session).any(|sum| sum.state == step)), elements),
    }
}
