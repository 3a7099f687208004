//! What a unit is about: rounds, coalitions, samples, decryptors, and the order of its labels.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use secsv_federation::{Coalition, RoundId};

use crate::{
    Error,
    combinations::{Combinations, Selection},
    decryptors::knowing,
    first_layer_batch::FirstLayerBatch,
    labels::{self, Packed},
    message::{Message as _, TestPlan, UnitId, UnitPlan},
    program::DecryptorSlot,
    role::Digest,
    session::Session,
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
    combinations: OnceLock<Combinations>,
}

impl UnitContext {
    /// The units of a test.
    pub(crate) fn of(session: &Session, plan: &TestPlan) -> Vec<Self> {
        let digest = |unit: &UnitPlan| {
            let alone = TestPlan { test: plan.test, round: plan.round, units: vec![unit.clone()] };
            *blake3::hash(&alone.encode()).as_bytes()
        };
        let unit = |unit: &UnitPlan| Self {
            id: UnitId { test: plan.test, group: unit.group, part: unit.part },
            round: plan.round,
            rounds: session.rounds_of(plan.round).to_vec(),
            digest: digest(unit),
            plan: unit.clone(),
            selections: selections(session, plan.round, unit),
            layer_batch: Arc::new(FirstLayerBatch::of(session, unit)),
            combinations: OnceLock::new(),
        };
        plan.units.iter().map(unit).collect()
    }

    /// The coalition, where models are not tested together.
    pub(crate) fn coalition(&self) -> Coalition {
        self.plan.coalitions.first().copied().unwrap_or(Coalition::EMPTY)
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
    pub(crate) fn combinations(&self, session: &Session) -> &Combinations {
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
        parts
            .filter(|(_, first, count)| {
                (*first..first + count).any(|place| self.plan.samples.contains(place))
            })
            .map(|(owner, ..)| *owner)
    }

    /// The segments of one coalition's labels in a round: whose samples, where they begin, and which.
    pub(crate) fn segments<'a>(
        &'a self,
        session: &'a Session,
        number: usize,
    ) -> impl Iterator<Item = (usize, usize, &'a [usize])> {
        let parts = session.groups[self.plan.group].parts.iter();
        let of = move |&(owner, first, count): &_| {
            (owner, first, self.selections[number].within(&(first..first + count)))
        };
        parts.map(of).filter(|(.., places)| !places.is_empty())
    }

    /// Where the segments of each owner's samples begin among all labels of a round, for each coalition; 0 where it has none.
    pub(crate) fn begins(&self, session: &Session) -> BTreeMap<usize, Vec<usize>> {
        let field = session.label_field();
        let mut begins: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut begin = 0;
        for number in 0..self.selections.len() {
            for (owner, _, places) in self.segments(session, number) {
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
        let bytes =
            |number| self.segments(session, number).map(|(.., places)| field.packed_len(places.len()));
        self.rounds.len() * (0..self.selections.len()).flat_map(bytes).sum::<usize>()
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
    pub(crate) fn arranged(&self, session: &Session, truths: &BTreeMap<usize, Packed>) -> Option<Packed> {
        let field = session.label_field();
        let mut rest: BTreeMap<usize, &[u8]> = BTreeMap::new();
        for owner in self.owners(session) {
            rest.insert(owner, truths.get(&owner)?.expose().as_slice());
        }
        let mut all = labels::empty(self.label_bytes(session));
        let models = self.rounds.iter().flat_map(|_| 0..self.selections.len());
        for number in models {
            for (owner, _, places) in self.segments(session, number) {
                let labels = rest.get_mut(&owner)?;
                // An owner's samples are all tested or, where it knows the model, none: its segments are as long as each other.
                let (now, later) = labels.split_at_checked(field.packed_len(places.len()))?;
                all.expose_mut().extend_from_slice(now);
                if field.has_factors() {
                    *labels = later;
                }
            }
        }
        Some(all)
    }

    /// The client at a slot.
    pub(crate) fn client(&self, slot: DecryptorSlot) -> Result<usize, Error> {
        let found = match slot {
            DecryptorSlot::Layer(place) => self.plan.chain.get(place).copied(),
            DecryptorSlot::Resharer => self.plan.gru.map(|gru| gru.0),
            DecryptorSlot::Gates => self.plan.gru.map(|gru| gru.1),
        };
        found.ok_or(Error::Local { what: "a slot nobody has" })
    }

    /// Everybody with a slot.
    pub(crate) fn decryptors(&self) -> impl Iterator<Item = usize> + '_ {
        let gru = self.plan.gru.into_iter().flat_map(|(a, b)| [a, b]);
        self.plan.chain.iter().copied().chain(gru).chain(self.plan.dealer).chain(self.plan.counter)
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
