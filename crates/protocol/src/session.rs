//! Everything the parties of a session agree on, computed by each of them from the same published numbers.

mod encoding;
mod federation;
mod hidden;
mod packings;
mod settings;

pub use crate::rules::Matmul;
pub use federation::{Federation, Settings};
pub use hidden::{HiddenSettings, RangeRule};
pub use packings::typical_costs;
pub use settings::SettingsConflict;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    ops::{Deref, Range},
    sync::Arc,
};

use secsv_algebra::{Field, Ring, Ring64, Seed};
use secsv_federation::{Coalition, RoundId, SampleSet};
use secsv_he::{
    Flooding, Parameters, UnitCosts,
    linear::{LayerShape, Layout, MatrixMethod},
};

use crate::{
    Agreement, Error,
    blindsv::{
        hops::{HopRange, Hops, Scales, is_one_product},
        lanes::LANES,
        shape::{Chunks, Circuit, Outcome, Widths},
        sums::Sums,
    },
    decryptors::{Network, OwnerGroups, Planner, Protocol, knowing},
    disclosure::Disclosure,
    error::CodecError,
    labels::{self, LabelField, Labels, Packed},
    message::{ClientHello, MAX_TOGETHER, Message as _, ProposalShape, SessionProposal},
    precision::{Precision, Ranges, shares},
    program::Program,
};
pub(crate) use federation::network;
use packings::methods;

/// Samples of owners that may share a batch, by owner and then in the owner's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Whose.
    pub owners: Coalition,
    /// How many.
    pub size: usize,
    /// The samples of each owner.
    pub parts: Vec<OwnerPart>,
    /// Its chunks, among all.
    pub chunks: Range<usize>,
}

impl Group {
    /// The places of one owner's samples.
    pub fn places(&self, owner: usize) -> Range<usize> {
        self.parts.iter().find(|part| part.owner == owner).map_or(0..0, |part| part.places.clone())
    }
}

/// The samples of one owner in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerPart {
    /// Whose.
    pub owner: usize,
    /// Places in the group, in the owner's order.
    pub places: Range<usize>,
}

/// Samples whose first-layer outputs are computed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Of which group.
    pub group: usize,
    /// Places in the group.
    pub places: Range<usize>,
}

/// The agreement.
pub struct Session {
    /// What was known before.
    pub federation: Arc<Federation>,
    /// The client that makes the clients' common secrets.
    pub leader: usize,
    /// What each client published.
    pub hellos: Vec<ClientHello>,
    /// Fixed-point formats.
    pub precision: Precision,
    /// How numbers are hidden.
    scheme: Scheme,
    /// Groups of owners.
    pub owner_groups: OwnerGroups,
    /// Their samples.
    pub groups: Vec<Group>,
    /// First-layer chunks, group by group.
    pub chunks: Vec<Chunk>,
    /// Shares of each round's training data, by client.
    pub shares: BTreeMap<RoundId, Vec<f64>>,
    /// Rounds whose models are encrypted and tested together, by the first of them.
    pub round_batches: BTreeMap<RoundId, Vec<RoundId>>,
    /// Everything that its parties may read.
    pub(crate) disclosures: BTreeSet<Disclosure>,
    /// Samples of a chunk, at most.
    per_chunk: usize,
}

/// How a protocol hides numbers.
enum Scheme {
    /// Models are encrypted, samples shared between two servers.
    SecSv(Arc<Encryption>),
    /// Everything is shared between two servers.
    SecretSv,
    /// Everything is encrypted, for one server.
    Hesv(Arc<Encryption>),
    /// Everything is under masks between two servers.
    BlindSv(Arc<Circuit>),
}

impl Scheme {
    fn new(protocol: Protocol, encryption: Option<Encryption>, circuit: Circuit) -> Result<Self, Error> {
        match (protocol, encryption.map(Arc::new)) {
            (Protocol::BlindSv, _) => Ok(Self::BlindSv(Arc::new(circuit))),
            (Protocol::SecretSv, _) => Ok(Self::SecretSv),
            (Protocol::SecSv, Some(encryption)) => Ok(Self::SecSv(encryption)),
            (Protocol::Hesv, Some(encryption)) => Ok(Self::Hesv(encryption)),
            (_, None) => Err(Error::Local { what: "parameters of the encryption" }),
        }
    }

    fn encryption(&self) -> Option<&Arc<Encryption>> {
        match self {
            Self::SecSv(encryption) | Self::Hesv(encryption) => Some(encryption),
            Self::SecretSv | Self::BlindSv(_) => None,
        }
    }
}

/// The agreement as the engine of a protocol needs it.
pub(crate) enum Agreed {
    SecSv(EncryptedSession),
    SecretSv(Arc<Session>),
    Hesv(EncryptedSession),
    BlindSv(BlindSession),
}

/// An agreement under which numbers are masked.
#[derive(Clone)]
pub(crate) struct BlindSession {
    session: Arc<Session>,
    circuit: Arc<Circuit>,
}

impl BlindSession {
    /// The agreement without the circuit.
    pub(crate) fn shared(&self) -> &Arc<Session> {
        &self.session
    }

    /// The model's layers behind the first, and its words.
    pub(crate) fn hops(&self) -> &Hops {
        self.circuit.hops()
    }

    /// Widths of scores and counts.
    pub(crate) fn widths(&self) -> Widths {
        self.circuit.widths()
    }

    /// An owner's samples in chunks.
    pub(crate) fn chunks(&self, owner: usize) -> Chunks {
        Chunks::new(self.circuit.clone(), self.hellos[owner].samples as usize)
    }

    /// So many samples in chunks.
    pub(crate) fn chunks_of(&self, samples: usize) -> Chunks {
        Chunks::new(self.circuit.clone(), samples)
    }

    /// What is found of a test.
    pub(crate) fn outcome(&self) -> Outcome {
        self.session.blind_outcome()
    }

    /// Bytes of a word of what is found.
    pub(crate) fn outcome_bytes(&self) -> usize {
        self.circuit.outcome_bytes()
    }

    /// Bytes of a count of numbers out of range; none where nothing is checked.
    pub(crate) fn overflow_bytes(&self) -> usize {
        self.circuit.overflow_bytes()
    }

    /// Bytes of such counts of so many coalitions.
    pub(crate) fn overflows_len(&self, coalitions: usize) -> usize {
        coalitions * self.overflow_bytes()
    }

    /// A sum of shares of such a count.
    pub(crate) fn add_overflows(&self, own: u64, other: u64) -> u64 {
        self.circuit.overflows(own, other)
    }

    /// Words of what is found for a coalition, where owners' parts are added up.
    pub(crate) fn summed_words(&self) -> usize {
        self.circuit.outcome_words_of(0)
    }

    /// Where an operator's weights and biases stand in a model's mask, in words, and in a masked model, in bytes.
    pub(crate) fn model_part(&self, operator: usize) -> (Range<usize>, Range<usize>) {
        let size = |index: usize| {
            let shape = self.program().operators[index].shape;
            let words = shape.d_out * (shape.d_in + 1);
            (words, words * self.hops().bytes(index))
        };
        let (words, bytes) =
            (0..operator).map(size).fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        let (of_words, of_bytes) = size(operator);
        (words..words + of_words, bytes..bytes + of_bytes)
    }

    /// Bytes of a masked model.
    pub(crate) fn model_len(&self) -> usize {
        self.model_part(self.program().operators.len() - 1).1.end
    }

    /// A coalition's public numbers.
    pub(crate) fn scales(&self, round: RoundId, coalition: Coalition) -> Scales {
        self.hops().scales(self.members(round, coalition).iter().map(|(_, share)| share).sum())
    }

    /// Owners' parts of a test of some samples, or of all: the owner, the places of the tested samples among its own where it is not
    /// all, and these samples in chunks.
    pub(crate) fn parts<'a>(
        &'a self,
        samples: Option<&'a SampleSet>,
    ) -> impl Iterator<Item = (usize, Option<Vec<usize>>, Chunks)> + 'a {
        self.owners().map(move |owner| {
            let (first, count) = (self.offset(owner), self.hellos[owner].samples as usize);
            let tested = samples.map(|samples| (0..count).filter(|k| samples.contains(first + k)).collect());
            let count = tested.as_ref().map_or(count, Vec::len);
            (owner, tested, Chunks::new(self.circuit.clone(), count))
        })
    }

    /// Which samples of all are right, from planes of a test of some of them, owner by owner.
    pub(crate) fn right(&self, samples: Option<&SampleSet>, planes: &[u64]) -> SampleSet {
        let mut right = SampleSet::none(self.samples());
        let mut planes = planes;
        for (owner, tested, shape) in self.parts(samples) {
            let (own, rest) = planes.split_at(shape.outcome_len() / size_of::<u64>());
            planes = rest;
            let first = self.offset(owner);
            let place = |k: usize| tested.as_ref().map_or(k, |tested| tested[k]);
            let is_right = |k: &usize| own[k / LANES] >> (k % LANES) & 1 == 1;
            (0..shape.samples()).filter(is_right).for_each(|k| right.insert(first + place(k)));
        }
        right
    }

    /// Clients with samples.
    pub(crate) fn owners(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.federation.clients).filter(|&client| self.hellos[client].samples > 0)
    }

    /// Whether an owner knows a coalition's model of a round from training: it tests that itself.
    pub(crate) fn knows(&self, owner: usize, round: RoundId, coalition: Coalition) -> bool {
        let participants = self.federation.participants(round);
        if !self.federation.has_aggregates() {
            let is_own = coalition == Coalition::EMPTY.with(owner) && participants.contains(owner);
            return coalition.is_empty() || is_own;
        }
        !knowing(Coalition::EMPTY.with(owner), coalition, participants).is_empty()
    }
}

impl Deref for BlindSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

/// An agreement under which numbers are encrypted.
#[derive(Clone)]
pub(crate) struct EncryptedSession {
    session: Arc<Session>,
    pub encryption: Arc<Encryption>,
}

impl EncryptedSession {
    /// The field in which numbers are encrypted.
    pub(crate) fn field(&self) -> Field {
        self.encryption.parameters.field()
    }

    /// The agreement without the encryption.
    pub(crate) fn shared(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn layout(&self, operator: usize) -> &Layout {
        &self.encryption.layouts[operator]
    }

    pub(crate) fn parameters(&self) -> &Arc<Parameters> {
        &self.encryption.parameters
    }
}

impl Deref for EncryptedSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

/// How numbers are encrypted and multiplied.
pub struct Encryption {
    /// The scheme.
    pub parameters: Arc<Parameters>,
    /// The method of each operator.
    pub layouts: Vec<Layout>,
    /// How replies of each operator are flooded.
    pub floodings: Vec<Flooding>,
}

/// Bytes of the largest message between the servers about models that are tested together.
const MAX_OPENING: usize = 1 << 22;
/// Bytes of the message with the predictions of models that are tested together, for all rounds and samples.
const MAX_LABEL_BYTES: usize = 1 << 25;
/// Bytes that one model's weights may take at a server, ready to multiply.
const MODEL_MEMORY: usize = 96 << 20;
/// First-layer batches of one chunk: few enough to work on several chunks at once ...
const CHUNK_BATCHES: usize = 16;
/// ... and fewer where rounds are taken together, so that there are few round batches to work on.
const CHUNK_BATCHES_OF_MANY_ROUNDS: usize = 4;

impl Session {
    /// The agreement that a principal proposes, with the proposal: packings are chosen by what operations cost.
    pub fn propose(
        federation: &Arc<Federation>,
        leader: usize,
        hellos: &[ClientHello],
        costs: Option<&UnitCosts>,
    ) -> Result<(Self, Vec<u8>), Error> {
        let (rounds, methods) = match (parameters(&federation.settings)?, costs) {
            (Some(parameters), Some(costs)) => methods(federation, &parameters, hellos, costs)?,
            (Some(_), None) => return Err(Error::Unsupported { what: "encryption needs unit costs" }),
            (None, _) => (1, Vec::new()),
        };
        let session = Self::new(federation, leader, hellos.to_vec(), rounds, &methods)?;
        let proposal = SessionProposal { leader, hellos: hellos.to_vec(), rounds, methods }.encode();
        Ok((session, proposal))
    }

    /// The proposal that this follows from.
    pub(crate) fn proposal(&self) -> Vec<u8> {
        let layouts = self.encryption().into_iter().flat_map(|encryption| &encryption.layouts);
        let (leader, hellos) = (self.leader, self.hellos.clone());
        let (rounds, methods) = (longest(&self.round_batches), layouts.map(Layout::method).collect());
        SessionProposal { leader, hellos, rounds, methods }.encode()
    }

    /// What follows from a principal's proposal. The leader is drawn: whoever proposes must not choose who makes the clients' key.
    pub(crate) fn accept(
        federation: &Arc<Federation>,
        bytes: &[u8],
    ) -> Result<Result<Self, Error>, CodecError> {
        let session = Self::decode(federation, bytes)?;
        if session.as_ref().is_ok_and(|session| session.leader != federation.leader()) {
            return Err(CodecError::Value { what: "leader" });
        }
        Ok(session)
    }

    /// What follows from a proposal.
    pub fn decode(federation: &Arc<Federation>, bytes: &[u8]) -> Result<Result<Self, Error>, CodecError> {
        let shape = ProposalShape {
            clients: federation.clients,
            operators: federation.program.published(),
            is_encrypted: federation.settings.protocol.rules().encryption().is_some(),
        };
        let SessionProposal { leader, hellos, rounds, methods } = SessionProposal::decode(bytes, &shape)?;
        // Whoever relays the keys must not be able to put its own in their place.
        if (0..).zip(&hellos).any(|(client, hello)| !federation.is_envelope_key(client, &hello.public_key)) {
            return Err(CodecError::Value { what: "envelope key" });
        }
        if !(1..=federation.most_rounds()).contains(&rounds) {
            return Err(CodecError::Value { what: "rounds together" });
        }
        Ok(Self::new(federation, leader, hellos, rounds, &methods))
    }

    fn new(
        federation: &Arc<Federation>,
        leader: usize,
        hellos: Vec<ClientHello>,
        rounds: usize,
        methods: &[MatrixMethod],
    ) -> Result<Self, Error> {
        let program = &federation.program;
        let ranges = Ranges::union(hellos.iter().map(|hello| &hello.ranges))
            .ok_or(Error::Unsupported { what: "a session without clients" })?;
        check_agreement(federation, &hellos)?;
        let Formats { precision, hops } = formats(federation, &ranges)?;
        check_few(federation, &hellos, hops.counts_overflows())?;
        let round_batches = federation.round_batches(rounds);
        let encryption = Encryption::new(federation, longest(&round_batches), methods)?;
        let samples = hellos.iter().fold(0u64, |sum, hello| sum.saturating_add(hello.samples));
        let outcome = blind_outcome(&federation.settings);
        let circuit = circuit(program, hops, samples, outcome);
        let scheme = Scheme::new(federation.settings.protocol, encryption, circuit)?;
        let positions = program.operators[0].positions;
        let batch = scheme.encryption().map_or(4096, |e| e.layouts[0].batch());
        let samples_in_batch = NonZeroUsize::new((batch / positions).max(1)).unwrap_or(NonZeroUsize::MIN);
        let sizes: Vec<u64> = hellos.iter().map(|hello| hello.samples).collect();
        let mixes_owners = federation.settings.protocol.rules().batching().mixes_owners;
        let most = if mixes_owners { samples_in_batch } else { NonZeroUsize::MIN };
        let owner_groups = match federation.settings.protocol.rules().has_decryptors() {
            true => OwnerGroups::new(&sizes, network(program)?, most)?,
            false => OwnerGroups::of_single_owners(&sizes),
        };
        let batches = if longest(&round_batches) > 1 { CHUNK_BATCHES_OF_MANY_ROUNDS } else { CHUNK_BATCHES };
        let per_chunk = (batches * batch / positions).max(1);
        let (groups, chunks) = arrange(&owner_groups, &sizes, per_chunk);
        let shares = federation.rounds.iter().map(|(&round, sizes)| (round, shares(sizes))).collect();
        let Settings { protocol, always_skips, .. } = federation.settings;
        let skips = always_skips || protocol.rules().learns_each_prediction(false);
        let listed = protocol.disclosures(program, skips, federation.settings.counts_classes());
        let disclosures = listed.iter().map(|line| line.disclosure).collect();
        let federation = federation.clone();
        Ok(Self {
            federation,
            leader,
            hellos,
            precision,
            scheme,
            owner_groups,
            groups,
            chunks,
            shares,
            round_batches,
            disclosures,
            per_chunk,
        })
    }

    /// The rounds of a round batch; none if no round batch begins with this one.
    pub fn rounds_of(&self, round_batch: RoundId) -> &[RoundId] {
        self.round_batches.get(&round_batch).map_or(&[], |rounds| rounds)
    }

    /// The round batch that a round is in.
    pub fn round_batch_of(&self, round: RoundId) -> RoundId {
        self.round_batches.range(..=round).next_back().map_or(round, |(round_batch, _)| *round_batch)
    }

    /// How many models of a round are tested together, at most.
    pub fn most_together(&self) -> usize {
        if let Scheme::BlindSv(circuit) = &self.scheme {
            let samples = self.hellos.iter().map(|hello| hello.samples as usize).max().unwrap_or(0);
            let of_one = Chunks::new(circuit.clone(), samples).largest();
            return (MAX_OPENING / of_one.max(1)).clamp(1, MAX_TOGETHER);
        }
        let of_one = longest(&self.round_batches) * self.label_field().packed_len(self.samples());
        let most = if self.federation.tests_together() { MAX_TOGETHER } else { 1 };
        (MAX_LABEL_BYTES / of_one.max(1)).clamp(1, most)
    }

    /// What is computed under masks; none under other protocols.
    pub(crate) fn circuit(&self) -> Option<&Arc<Circuit>> {
        if let Scheme::BlindSv(circuit) = &self.scheme { Some(circuit) } else { None }
    }

    /// Ranges of hidden numbers, operator by operator but for the last; none where somebody reads them.
    pub fn ranges(&self) -> &[HopRange] {
        self.circuit().map_or(&[], |circuit| &circuit.hops().ranges)
    }

    /// How often functions by straight pieces gave the exact model's labels, over all owners; none where functions are exact.
    pub fn agreement(&self) -> Option<Agreement> {
        let all = self.hellos.iter().map(|hello| hello.agreement);
        self.federation.is_approximate().then(|| Agreement::sum(all))
    }

    /// What is found of a test under masks: which predictions are right is opened only where samples are skipped.
    pub(crate) fn blind_outcome(&self) -> Outcome {
        blind_outcome(&self.federation.settings)
    }

    /// So many samples in chunks.
    pub(crate) fn divide(&self, samples: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        divide(samples, self.per_chunk)
    }

    /// The model as steps.
    pub fn program(&self) -> &Program {
        &self.federation.program
    }

    /// The encryption; none where everything is shared.
    pub fn encryption(&self) -> Option<&Encryption> {
        self.scheme.encryption().map(|encryption| &**encryption)
    }

    /// The agreement as the engine of its protocol needs it.
    pub(crate) fn agreed(self: &Arc<Self>) -> Agreed {
        let encrypted = |encryption: &Arc<Encryption>| EncryptedSession {
            session: self.clone(),
            encryption: encryption.clone(),
        };
        match &self.scheme {
            Scheme::SecSv(encryption) => Agreed::SecSv(encrypted(encryption)),
            Scheme::SecretSv => Agreed::SecretSv(self.clone()),
            Scheme::Hesv(encryption) => Agreed::Hesv(encrypted(encryption)),
            Scheme::BlindSv(circuit) => {
                Agreed::BlindSv(BlindSession { session: self.clone(), circuit: circuit.clone() })
            }
        }
    }

    /// The field in which secrets are shared, where something is encrypted.
    pub fn field(&self) -> Field {
        self.encryption().map_or(Field::standard(), |e| e.parameters.field())
    }

    /// The field in which labels are compared under SecSV and SecretSV.
    pub(crate) fn label_field(&self) -> LabelField {
        LabelField::new(self.federation.architecture.classes())
    }

    /// Bits of an element of that field.
    pub fn label_bits(&self) -> u32 {
        self.label_field().bits()
    }

    /// What numbers are shared or encrypted modulo.
    pub fn modulus(&self) -> u128 {
        if let Scheme::BlindSv(circuit) = &self.scheme {
            return 1 << circuit.hops().words[0];
        }
        self.encryption().map_or(1 << u64::BITS, |e| e.parameters.field().modulus().into())
    }

    /// Bits of the field.
    pub fn plaintext_bits(&self) -> u32 {
        self.field().bits()
    }

    /// Members of a coalition with their shares of the round's training data.
    pub fn members(&self, round: RoundId, coalition: Coalition) -> Vec<(usize, f64)> {
        let shares = self.shares.get(&round).map_or(&[][..], |shares| shares);
        coalition.members().filter_map(|i| shares.get(i).filter(|w| **w > 0.0).map(|&w| (i, w))).collect()
    }

    /// A client's share of a round's training data.
    pub fn share(&self, round: RoundId, client: usize) -> f64 {
        self.shares.get(&round).and_then(|shares| shares.get(client)).copied().unwrap_or(0.0)
    }

    /// The sum of a coalition's shares.
    pub fn total_share(&self, round: RoundId, coalition: Coalition) -> f64 {
        self.members(round, coalition).iter().map(|(_, share)| share).sum()
    }

    /// Rows of all first-layer models of a round, one below the other.
    pub(crate) fn stacked_rows(&self, round: RoundId) -> usize {
        self.federation.participants(round).len() * self.program().operators[0].shape.d_out
    }

    /// Columns that a client's samples fill in the first layer.
    pub(crate) fn first_columns(&self, client: usize) -> usize {
        self.program().operators[0].positions * self.hellos[client].samples as usize
    }

    /// The network as the rules of decryption count it.
    pub fn network(&self) -> Result<Network, Error> {
        network(self.program())
    }

    /// Who decides who decrypts what.
    pub(crate) fn planner(&self) -> Result<Planner, Error> {
        let protocol = self.federation.settings.protocol;
        Ok(Planner::new(self.owner_groups.clone(), protocol, self.network()?)?)
    }

    /// Where a client's samples begin in the collective test set.
    pub fn offset(&self, client: usize) -> usize {
        self.hellos[..client].iter().map(|hello| hello.samples as usize).sum()
    }

    /// Samples of all clients.
    pub fn samples(&self) -> usize {
        self.offset(self.hellos.len())
    }

    /// Some of the samples of the collective test set, as places in a group.
    pub fn in_group(&self, group: usize, samples: &SampleSet) -> SampleSet {
        let group = &self.groups[group];
        let mut places = SampleSet::none(group.size);
        for part in &group.parts {
            let asked = (self.offset(part.owner)..).zip(part.places.clone());
            asked.filter(|(k, _)| samples.contains(*k)).for_each(|(_, place)| places.insert(place));
        }
        places
    }

    /// Some samples of a group without those of some owners.
    pub(crate) fn without_owners(&self, group: usize, samples: &SampleSet, owners: Coalition) -> SampleSet {
        let group = &self.groups[group];
        let mut hidden = SampleSet::none(group.size);
        owners.members().flat_map(|owner| group.places(owner)).for_each(|place| hidden.insert(place));
        samples.difference(&hidden)
    }

    /// Blinding factors of one model's labels, one for each of an owner's samples (PROTOCOL.md 2): known to clients alone.
    pub(crate) fn blinds(&self, secret: &Seed, round: RoundId, coalition: Coalition, owner: usize) -> Labels {
        let bits = coalition.bits();
        let seed = secret
            .derive("blind round", round.0.into())
            .derive("blind coalition", bits as u64)
            .derive("blind coalition", (bits >> 64) as u64)
            .derive("blind owner", owner as u64);
        self.label_field().factors(&seed, self.hellos[owner].samples as usize)
    }

    /// Masks of labels, packed, one for each of an owner's samples: known to clients alone. Predicted and true labels of a model
    /// have the same, so their difference has none, and servers that put their shares together find the difference alone.
    /// Without factors true labels are shared once for all models, so masks are the same for all models too.
    pub(crate) fn label_masks(&self, secret: &Seed, model: (RoundId, Coalition), owner: usize) -> Packed {
        let field = self.label_field();
        let mut seed = secret.derive("label mask of owner", owner as u64);
        if field.has_factors() {
            let (round, bits) = (model.0, model.1.bits());
            let words = [round.0.into(), bits as u64, (bits >> 64) as u64];
            seed = words.into_iter().fold(seed, |seed, word| seed.derive("label mask of model", word));
        }
        labels::expand(&seed, field.packed_len(self.hellos[owner].samples as usize))
    }
}

/// What is found of a test under masks.
fn blind_outcome(settings: &Settings) -> Outcome {
    match (settings.always_skips, settings.counts_classes()) {
        (true, _) => Outcome::Each,
        (false, true) => Outcome::Classes,
        (false, false) => Outcome::Total,
    }
}

/// Formats of a model's numbers, and what follows from them where they are shared modulo powers of two.
pub(crate) struct Formats {
    pub precision: Precision,
    pub hops: Hops,
}

/// Formats that the published ranges of all clients fit.
pub(crate) fn formats(federation: &Federation, ranges: &Ranges) -> Result<Formats, Error> {
    let (program, clients) = (&federation.program, federation.clients);
    if let Some(parameters) = parameters(&federation.settings)? {
        let field = parameters.field();
        let precision = Precision::new(program, ranges, field, clients)?;
        return Ok(Formats { precision, hops: Hops::of_layer(Ring::bits(field)) });
    }
    let widths = federation.settings.protocol.rules().word_widths();
    if widths.len() > 1 && !is_one_product(program)? {
        let (hops, precision) = Hops::new(program, ranges, federation.settings.hidden, clients)?;
        return Ok(Formats { precision, hops });
    }
    let is_enough =
        |precision: &Precision| precision.operators.iter().all(|format| format.product_bits() >= ENOUGH_BITS);
    let formats = |&bits: &u32| Some((Precision::modulo_power(program, ranges, bits, clients).ok()?, bits));
    let found = widths.iter().filter_map(formats).find(|(precision, _)| is_enough(precision));
    let (precision, word) = match found {
        Some(found) => found,
        None => (Precision::new(program, ranges, Ring64, clients)?, u64::BITS),
    };
    Ok(Formats { precision, hops: Hops::of_layer(word) })
}

/// Refuses so few samples or owners that what is told of all tells of single samples, or of one owner's, unless every owner has accepted
/// that. An owner counts no numbers out of range under a model that it knows: where they are counted, one owner more must be left.
fn check_few(federation: &Federation, hellos: &[ClientHello], counts_overflows: bool) -> Result<(), Error> {
    let Some(crate::rules::FewSamples { samples, owners, refusal }) =
        federation.settings.protocol.rules().few_samples()
    else {
        return Ok(());
    };
    let owners = owners + usize::from(counts_overflows);
    let mut of_owners = hellos.iter().filter(|hello| hello.samples > 0);
    let total = of_owners.clone().fold(0u64, |sum, hello| sum.saturating_add(hello.samples));
    let is_few = total < samples || of_owners.clone().count() < owners;
    match is_few && !of_owners.all(|hello| hello.accepts_few) {
        true => Err(Error::Unsupported { what: refusal }),
        false => Ok(()),
    }
}

/// A model as it is computed under masks, for so many samples of all owners.
pub(crate) fn circuit(program: &Program, hops: Hops, samples: u64, outcome: Outcome) -> Circuit {
    let widths = Widths::new(hops.score_word, samples);
    let rows = hops.scores.as_ref().map_or(program.outputs(), Sums::count);
    Circuit::new(hops, widths, (rows, program.classes), outcome)
}

/// Refuses a model whose functions by straight pieces give other labels than the exact ones too often.
fn check_agreement(federation: &Federation, hellos: &[ClientHello]) -> Result<(), Error> {
    let found = Agreement::sum(hellos.iter().map(|hello| hello.agreement)).per_ten_thousand();
    let expected = federation.settings.hidden.agreement;
    match federation.is_approximate() && found < expected {
        true => Err(Error::Agreement { found, expected }),
        false => Ok(()),
    }
}

/// Fractional bits of products that are enough: about as many as single-precision numbers have. Wider words are taken for fewer.
const ENOUGH_BITS: u32 = 24;

/// How many rounds the longest round batch has.
fn longest(round_batches: &BTreeMap<RoundId, Vec<RoundId>>) -> usize {
    round_batches.values().map(Vec::len).max().unwrap_or(1)
}

/// A coalition's outputs are sums of at most two to this many.
fn sum_bits(federation: &Federation) -> u32 {
    federation.clients.next_power_of_two().ilog2()
}

fn parameters(settings: &Settings) -> Result<Option<Arc<Parameters>>, Error> {
    let encryption = settings.protocol.rules().encryption();
    encryption.map(|encryption| encryption.parameters(settings.preset)).transpose()
}

impl Encryption {
    /// `rounds` are taken together: their rows stand one below the other.
    fn new(federation: &Federation, rounds: usize, methods: &[MatrixMethod]) -> Result<Option<Self>, Error> {
        let Settings { protocol, preset, .. } = federation.settings;
        let Some(rules) = protocol.rules().encryption() else { return Ok(None) };
        let parameters = rules.parameters(preset)?;
        let mut layouts = Vec::new();
        let mut floodings = Vec::new();
        for (operator, &method) in federation.program.operators.iter().zip(methods) {
            let layout = Layout::new(&parameters, of_rounds(operator.shape, rounds), method)?;
            // Nobody need prepare more than an honest principal would propose.
            if matches!(method, MatrixMethod::Packed(_)) && layout.prepared_bytes() > MODEL_MEMORY {
                return Err(Error::Unsupported { what: "a packing whose models take too much memory" });
            }
            let noise = rules.noise(&layout)?.weighted(sum_bits(federation));
            floodings.push(Flooding::new(&parameters, noise)?);
            layouts.push(layout);
        }
        Ok(Some(Self { parameters, layouts, floodings }))
    }
}

/// A layer's weights of several rounds, one below the other.
fn of_rounds(shape: LayerShape, rounds: usize) -> LayerShape {
    LayerShape { d_out: shape.d_out * rounds, ..shape }
}

/// Chunks of equal size, so that the last is not nearly empty.
fn divide(size: usize, per_chunk: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let count = size.div_ceil(per_chunk).max(1);
    let bound = move |k: usize| k * size / count;
    (0..count).map(move |k| bound(k)..bound(k + 1))
}

fn arrange(owner_groups: &OwnerGroups, sizes: &[u64], per_chunk: usize) -> (Vec<Group>, Vec<Chunk>) {
    let (mut groups, mut chunks) = (Vec::new(), Vec::new());
    for (index, group) in owner_groups.iter().enumerate() {
        let mut size = 0;
        let parts: Vec<_> = group
            .owners()
            .members()
            .map(|owner| {
                let first = size;
                size += sizes[owner] as usize;
                OwnerPart { owner, places: first..size }
            })
            .collect();
        let first = chunks.len();
        chunks.extend(divide(size, per_chunk).map(|places| Chunk { group: index, places }));
        groups.push(Group { owners: group.owners(), size, parts, chunks: first..chunks.len() });
    }
    (groups, chunks)
}

#[cfg(test)]
pub(crate) mod tests;
