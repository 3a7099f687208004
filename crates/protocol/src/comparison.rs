//! Predicted and true labels of a unit, compared by two servers that each have a share of both (Algorithm 4, steps 12 to 14). The
//! principal learns which predictions are right. Clients commit to the seeds that its shares follow from; it opens them to the
//! auxiliary, which counts for itself, so one server alone cannot choose the utilities.

use std::{collections::BTreeMap, sync::Arc};

use secsv_algebra::Seed;
use secsv_federation::SampleSet;

use crate::{
    Error, PartyId,
    disclosure::Disclosure,
    labels::{self, Packed},
    message::{
        COMMITMENT, Counted, DifferenceShare, Kind, LabelBody, LabelShare, Message as _, OpenedSeeds,
        PredictionShare, Recount, Server, StepAddress,
    },
    role::{Incoming, Meter, Outgoing, Phase},
    session::Session,
    unit::{Segment, UnitContext},
};

/// A client's commitment, for the auxiliary, to the seed that it gives to the principal. A seed is uniform, so its digest says
/// nothing of it.
pub(crate) fn commitment(from: PartyId, kind: Kind, address: StepAddress, seed: &Seed) -> [u8; COMMITMENT] {
    let mut hash = blake3::Hasher::new_derive_key("secsv commitment to the seed of a share of labels");
    hash.update(&from.to_wire().to_le_bytes()).update(&[kind as u8]);
    hash.update(&address.to_bytes()).update(seed.expose());
    *hash.finalize().as_bytes()
}

/// Whose labels: the last decryptor's predictions, or an owner's.
pub(crate) type Labelled = (Kind, usize);

/// Whose labels a unit compares, in the order in which their seeds are opened.
pub(crate) fn labelled(session: &Session, context: &UnitContext) -> Vec<Labelled> {
    let last = context.decryptor(session.program().steps.len() - 1);
    let owners = context.owners(session).map(|owner| (Kind::LabelShare, owner));
    owners.chain([(Kind::PredictionShare, last)]).collect()
}

/// The address of a share of labels.
fn address_of(session: &Session, context: &UnitContext, kind: Kind) -> StepAddress {
    let step = if kind == Kind::PredictionShare { session.program().steps.len() - 1 } else { 0 };
    StepAddress::new(context.id, step)
}

/// Shares of labels that have not come, in words.
fn missing_shares(
    session: &Session,
    context: &UnitContext,
    has_come: impl Fn(&Labelled) -> bool,
) -> Vec<String> {
    let (test, group) = (context.id.test, context.id.group);
    let absent = labelled(session, context).into_iter().filter(|labelled| !has_come(labelled));
    let name =
        |(kind, client)| format!("{kind} of test {test} group {group} from {}", PartyId::Client(client));
    absent.map(name).collect()
}

/// The body of a share of true or predicted labels.
fn label_body(message: &Incoming, server: Server) -> Result<LabelBody<'_>, Error> {
    Ok(if message.kind == Kind::PredictionShare {
        message.read::<PredictionShare<'_>>(&server)?.share
    } else {
        message.read::<LabelShare<'_>>(&server)?.share
    })
}

/// A unit's labels at the principal, by what they wait for.
pub(crate) enum PrincipalLabels {
    /// Clients' seeds, or the auxiliary's share of the differences.
    Shares { seeds: BTreeMap<Labelled, Seed>, differences: Option<Vec<u8>> },
    /// Nothing: they are compared.
    Comparing,
}

impl Default for PrincipalLabels {
    fn default() -> Self {
        Self::Shares { seeds: BTreeMap::new(), differences: None }
    }
}

impl PrincipalLabels {
    /// Takes the seed of a client's share.
    pub(crate) fn take_share(&mut self, client: usize, message: &Incoming) -> Result<(), Error> {
        let LabelBody::Seed(seed) = label_body(message, Server::Principal)? else {
            return Err(message.unexpected("a seed"));
        };
        if let Self::Shares { seeds, .. } = self {
            seeds.insert((message.kind, client), seed);
        }
        Ok(())
    }

    /// Takes the auxiliary's share of the differences.
    pub(crate) fn take_differences(
        &mut self,
        session: &Session,
        context: &UnitContext,
        message: &Incoming,
    ) -> Result<(), Error> {
        let DifferenceShare { labels, .. } = message.read(&())?;
        labels::check_len(context.label_bytes(session), labels).map_err(|why| message.malformed(why))?;
        if let Self::Shares { differences, .. } = self {
            *differences = Some(labels.to_vec());
        }
        Ok(())
    }

    /// All shares, once they have come.
    pub(crate) fn take_whole(&mut self, session: &Session, context: &UnitContext) -> Option<WholeLabels> {
        let Self::Shares { seeds, differences } = self else { return None };
        let seeds =
            labelled(session, context).iter().map(|of| seeds.get(of).cloned()).collect::<Option<_>>()?;
        let whole = WholeLabels { seeds, differences: differences.take()? };
        *self = Self::Comparing;
        Some(whole)
    }

    /// Whether both servers' shares have come.
    pub(crate) fn is_comparing(&self) -> bool {
        matches!(self, Self::Comparing)
    }

    /// What has not come, in words.
    pub(crate) fn missing(&self, session: &Session, context: &UnitContext) -> Vec<String> {
        let Self::Shares { seeds, differences } = self else { return Vec::new() };
        let mut missing = missing_shares(session, context, |labelled| seeds.contains_key(labelled));
        if missing.is_empty() && differences.is_none() {
            let (test, group) = (context.id.test, context.id.group);
            missing.push(format!("{} of test {test} group {group} from auxiliary", Kind::DifferenceShare));
        }
        missing
    }
}

/// Both servers' shares of a unit's labels, at the principal.
pub(crate) struct WholeLabels {
    /// In the order of [`labelled`].
    seeds: Vec<Seed>,
    differences: Vec<u8>,
}

impl WholeLabels {
    /// The seeds, as they are opened to the auxiliary.
    pub(crate) fn opened(&self, context: &UnitContext) -> Outgoing {
        let opened = OpenedSeeds { address: StepAddress::new(context.id, 0), seeds: self.seeds.clone() };
        Outgoing::of(PartyId::Auxiliary, &opened)
    }

    /// For each round and coalition of a unit, the samples whose labels do not differ.
    pub(crate) fn right(
        &self,
        session: &Session,
        context: &UnitContext,
        meter: &mut Meter<'_>,
    ) -> Result<Vec<SampleSet>, Error> {
        meter.enter(Phase::Share);
        let differences = differences(session, context, &self.seeds, &self.differences)?;
        Ok(right(session, context, differences.expose()))
    }
}

/// Differences of predicted and true labels: the principal's shares follow from seeds, `other` is the auxiliary's.
fn differences(
    session: &Session,
    context: &UnitContext,
    seeds: &[Seed],
    other: &[u8],
) -> Result<Packed, Error> {
    let (mut truths, mut predicted) = (BTreeMap::new(), labels::empty(0));
    for ((kind, client), seed) in labelled(session, context).into_iter().zip(seeds) {
        if kind == Kind::LabelShare {
            truths.insert(client, labels::expand(seed, context.truth_bytes(session, client)));
        } else {
            predicted = labels::expand(seed, context.label_bytes(session));
        }
    }
    let mut differences = context.arranged(session, &truths)?;
    labels::subtract(&mut differences, predicted.expose());
    Ok(session.opening(Disclosure::RightOrWrong)?.differences(differences, other))
}

/// For each round and coalition of a unit, the samples whose labels do not differ.
fn right(session: &Session, context: &UnitContext, differences: &[u8]) -> Vec<SampleSet> {
    let field = session.label_field();
    let mut rest = differences;
    let of_coalition = |number: usize| {
        let mut right = SampleSet::none(session.samples());
        for Segment { owner, first, places } in context.segments(session, number) {
            let (segment, later) = rest.split_at(field.packed_len(places.len()));
            rest = later;
            let (offset, is_right) = (session.offset(owner), field.zeros(segment, places.len()));
            if places.last().is_some_and(|last| last - places[0] == places.len() - 1) {
                right.insert_bits(offset + places[0] - first, is_right);
            } else {
                for (places, is_right) in places.chunks(64).zip(is_right) {
                    let found = places.iter().enumerate().filter(|(k, _)| is_right >> k & 1 == 1);
                    found.for_each(|(_, place)| right.insert(offset + place - first));
                }
            }
        }
        right
    };
    let models = context.rounds.iter().flat_map(|_| 0..context.plan.coalitions.len());
    models.map(of_coalition).collect()
}

/// Commitments to the seeds of the principal's shares.
type Commitments = BTreeMap<Labelled, [u8; COMMITMENT]>;

/// A unit's labels at the auxiliary, by what they wait for.
pub(crate) enum AuxiliaryLabels {
    /// Clients' shares.
    Shares { labels: BTreeMap<Labelled, Packed>, commitments: Commitments },
    /// The differences, which are computed.
    Differences(Commitments),
    /// The principal's seeds. The differences are as they were sent.
    Seeds { commitments: Commitments, differences: Arc<Vec<u8>> },
    /// The end of the test.
    Counted(Recount),
}

impl Default for AuxiliaryLabels {
    fn default() -> Self {
        Self::Shares { labels: BTreeMap::new(), commitments: Commitments::new() }
    }
}

impl AuxiliaryLabels {
    /// Takes a client's share, with the commitment to the principal's.
    pub(crate) fn take_share(
        &mut self,
        session: &Session,
        context: &UnitContext,
        client: usize,
        message: &Incoming,
    ) -> Result<(), Error> {
        let LabelBody::Committed { commitment, labels: share } = label_body(message, Server::Auxiliary)?
        else {
            return Err(message.unexpected("a share of labels"));
        };
        let expected = match message.kind {
            Kind::PredictionShare => context.label_bytes(session),
            _ => context.truth_bytes(session, client),
        };
        let share = labels::received(expected, share).map_err(|why| message.malformed(why))?;
        if let Self::Shares { labels, commitments } = self {
            labels.insert((message.kind, client), share);
            commitments.insert((message.kind, client), commitment);
        }
        Ok(())
    }

    /// The shares of predictions and of each owner's labels, once all have come.
    pub(crate) fn take_whole(
        &mut self,
        session: &Session,
        context: &UnitContext,
    ) -> Option<(Packed, BTreeMap<usize, Packed>)> {
        let Self::Shares { labels, commitments } = self else { return None };
        if !labelled(session, context).iter().all(|labelled| labels.contains_key(labelled)) {
            return None;
        }
        let (mut predicted, mut truths) = (labels::empty(0), BTreeMap::new());
        for ((kind, client), share) in std::mem::take(labels) {
            if kind == Kind::PredictionShare {
                predicted = share;
            } else {
                truths.insert(client, share);
            }
        }
        *self = Self::Differences(std::mem::take(commitments));
        Some((predicted, truths))
    }

    /// Keeps the share of the differences as it was sent, until the principal opens its own.
    pub(crate) fn sent(&mut self, differences: Arc<Vec<u8>>) {
        if let Self::Differences(commitments) = self {
            *self = Self::Seeds { commitments: std::mem::take(commitments), differences };
        }
    }

    /// Counts right predictions, once the principal has opened the seeds of its shares.
    pub(crate) fn count(
        &mut self,
        session: &Session,
        context: &UnitContext,
        message: &Incoming,
    ) -> Result<(), Error> {
        let OpenedSeeds { seeds, .. } = message.read(&())?;
        let (commitments, own) = match self {
            Self::Seeds { commitments, differences } => (commitments, differences),
            Self::Counted(_) => return Ok(()),
            Self::Shares { .. } | Self::Differences(_) => {
                return Err(message.unexpected("labels are on their way"));
            }
        };
        let malformed = |why| message.malformed(why);
        let labelled = labelled(session, context);
        if labelled.len() != seeds.len() {
            return Err(malformed(crate::CodecError::Value { what: "number of seeds" }));
        }
        let mut found = Recount::default();
        for ((kind, client), seed) in labelled.into_iter().zip(&seeds) {
            let address = address_of(session, context, kind);
            let expected = commitment(PartyId::Client(client), kind, address, seed);
            if commitments.get(&(kind, client)) != Some(&expected) {
                found.disputed.insert(client);
            }
        }
        if found.disputed.is_empty() {
            let DifferenceShare { labels: own, .. } = DifferenceShare::decode(own, &()).map_err(malformed)?;
            let differences = differences(session, context, &seeds, own)?;
            found = count_zeros(session, context, differences.expose());
        }
        *self = Self::Counted(found);
        Ok(())
    }

    /// What was counted.
    pub(crate) fn counted(&self) -> Option<&Recount> {
        if let Self::Counted(found) = self { Some(found) } else { None }
    }

    /// What has not come, in words.
    pub(crate) fn missing(&self, session: &Session, context: &UnitContext) -> Vec<String> {
        let Self::Shares { labels, .. } = self else { return Vec::new() };
        missing_shares(session, context, |labelled| labels.contains_key(labelled))
    }
}

/// The auxiliary's share of differences of labels, for the principal (Algorithm 4, step 12).
pub(crate) fn difference_share(
    session: &Session,
    context: &UnitContext,
    (predicted, truths): (Packed, BTreeMap<usize, Packed>),
) -> Result<Outgoing, Error> {
    let mut differences = context.arranged(session, &truths)?;
    labels::subtract(&mut differences, predicted.expose());
    let share = DifferenceShare { address: StepAddress::new(context.id, 0), labels: differences.expose() };
    Ok(Outgoing::of(PartyId::Principal, &share))
}

/// Counts labels that do not differ, round by round, coalition by coalition.
fn count_zeros(session: &Session, context: &UnitContext, differences: &[u8]) -> Recount {
    let (field, mut rest) = (session.label_field(), differences);
    let mut recount = Recount::default();
    for &round in &context.rounds {
        for (number, &coalition) in context.plan.coalitions.iter().enumerate() {
            let mut found = Counted::default();
            for Segment { places, .. } in context.segments(session, number) {
                let (segment, later) = rest.split_at(field.packed_len(places.len()));
                rest = later;
                found.tested += places.len();
                let zeros = field.zeros(segment, places.len()).map(|zeros| zeros.count_ones() as usize);
                found.right += zeros.sum::<usize>();
            }
            recount.add((round, coalition), found);
        }
    }
    recount
}
