//! Everything the parties of a session agree on, computed by each of them from the same published numbers.

mod packings;

pub use packings::typical_costs;

use std::{collections::BTreeMap, num::NonZeroUsize, ops::Range, sync::Arc};

use secsv_algebra::{Field, Ring64, Seed};
use secsv_federation::{Architecture, Coalition, FederationSpec, RoundId, SampleSet};
use secsv_he::{
    Flooding, Parameters, Preset, UnitCosts,
    linear::{Knobs, LayerShape, Layout, Method},
};

use crate::{
    Error,
    codec::{Reader, Writer},
    decryptors::{Network, OwnerGroups, Planner, Protocol, max_owners},
    error::CodecError,
    labels::{LabelField, Labels},
    message::Hello,
    precision::{Precision, Ranges, shares},
    program::Program,
};
use packings::methods;

/// What everybody knows before a session: the federation file and the settings of the run.
#[derive(Clone, Debug)]
pub struct Federation {
    /// The model.
    pub architecture: Architecture,
    /// The model as hops.
    pub program: Program,
    /// Clients, by position.
    pub clients: usize,
    /// Training sizes of each round by client; 0 for those who took no part.
    pub rounds: BTreeMap<RoundId, Vec<u64>>,
    /// How models are tested.
    pub settings: Settings,
    /// Public keys of the clients' envelopes, where they were agreed on before; otherwise clients publish them.
    envelope_keys: Option<Vec<[u8; 32]>>,
    digest: [u8; 16],
}

/// How models are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The protocol.
    pub protocol: Protocol,
    /// Parameters of the encryption.
    pub preset: Preset,
    /// The matrix method.
    pub matmul: Matmul,
    /// Whether samples are skipped even where it spares little: models are not tested together then.
    pub always_skips: bool,
    /// Whether every coalition of every round is asked for, all at once: rounds may be tested together then.
    pub whole_rounds: bool,
}

/// How encrypted matrices are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matmul {
    /// Coefficient packing.
    Packed,
    /// The paper's Matrix Reducing.
    Reducing,
    /// The paper's Matrix Squaring.
    Squaring,
}

impl Federation {
    /// Of a federation file and those who took part in each round.
    pub fn new(
        spec: &FederationSpec,
        architecture: &Architecture,
        participants: impl Fn(RoundId) -> Coalition,
        settings: Settings,
    ) -> Result<Self, Error> {
        let program = Program::new(architecture)?;
        if architecture.classes() > LabelField::MOST_CLASSES {
            return Err(Error::Unsupported { what: "more than 65536 classes" });
        }
        if settings.protocol == Protocol::Hesv && settings.preset == Preset::Compact {
            return Err(Error::Unsupported {
                what: "hesv needs the preset standard: compact has no room for products of two ciphertexts",
            });
        }
        let clients = spec.clients.len();
        let rounds: BTreeMap<RoundId, Vec<u64>> = spec
            .round_ids()
            .map(|round| {
                let present = participants(round);
                let size = |(i, c): (usize, &secsv_federation::ClientSpec)| {
                    if present.contains(i) { c.train_size_in(round) } else { 0 }
                };
                (round, spec.clients.iter().enumerate().map(size).collect())
            })
            .collect();
        max_owners(clients, network(&program)?)?;
        let mut hash = blake3::Hasher::new();
        hash.update(b"secsv session, format 4");
        hash.update(format!("{spec:?} {program:?} {rounds:?} {settings:?}").as_bytes());
        let mut digest = [0; 16];
        digest.copy_from_slice(&hash.finalize().as_bytes()[..16]);
        let architecture = architecture.clone();
        Ok(Self { architecture, program, clients, rounds, settings, envelope_keys: None, digest })
    }

    /// The same among parties that have agreed on more beforehand: the public keys of all clients' envelopes, in order, and
    /// whatever else `agreement` is the digest of. Other keys are not accepted then, whoever publishes them, and parties
    /// of another agreement are not understood.
    pub fn among(self, envelope_keys: Vec<[u8; 32]>, agreement: &[u8; 32]) -> Result<Self, Error> {
        if envelope_keys.len() != self.clients {
            return Err(Error::Unsupported { what: "a federation needs one envelope key for each client" });
        }
        let mut hash = blake3::Hasher::new();
        hash.update(b"secsv session among known parties, format 1");
        hash.update(&self.digest).update(agreement);
        envelope_keys.iter().for_each(|key| {
            hash.update(key);
        });
        let mut digest = [0; 16];
        digest.copy_from_slice(&hash.finalize().as_bytes()[..16]);
        Ok(Self { envelope_keys: Some(envelope_keys), digest, ..self })
    }

    /// Whether a client may have published this key.
    pub(crate) fn is_envelope_key(&self, client: usize, key: &[u8]) -> bool {
        self.envelope_keys.as_ref().is_none_or(|keys| keys.get(client).is_some_and(|agreed| agreed == key))
    }

    /// Makes the tables that every session of this process computes by, which takes some milliseconds the first time.
    pub fn prepare(&self) -> Result<(), Error> {
        parameters(&self.settings).map(drop)
    }

    /// A fingerprint of it all: parties with another one are not understood.
    pub fn digest(&self) -> [u8; 16] {
        self.digest
    }

    /// The leader (Algorithm 3, step 1): drawn by the fingerprint, so that everybody can check the draw and a plan made
    /// beforehand names the same one.
    pub fn leader(&self) -> usize {
        let word = u64::from_le_bytes(self.digest[..8].try_into().unwrap_or_default());
        (word % self.clients.max(1) as u64) as usize
    }

    /// Whether several models of a round are tested together. Where a model has one layer, outputs of one coalition follow
    /// from those of others, so a decryptor is sent few of them. With SampleSkip each test awaits others' results.
    pub fn tests_together(&self) -> bool {
        let Settings { protocol, always_skips, .. } = self.settings;
        let hops = &self.program.hops;
        protocol == Protocol::SecSv && !always_skips && hops.len() == 1 && hops[0].receives.len() == 1
    }

    /// How many rounds may be tested together (SECURITY.md, what remains): so few that whoever decrypts their outputs gets no
    /// more equations from them than a quarter of a sample's unknowns, and that nobody has enough of them in the end who would
    /// not otherwise.
    pub(crate) fn most_rounds(&self) -> usize {
        let Settings { matmul, whole_rounds, .. } = self.settings;
        if !self.tests_together() || !whole_rounds || matmul != Matmul::Packed {
            return 1;
        }
        let shape = self.program.operators[0].shape;
        let most = (shape.d_in / (4 * shape.d_out)).clamp(1, MOST_ROUNDS);
        (2..=most).rev().find(|&rounds| self.leaves_unknowns(rounds)).unwrap_or(1)
    }

    /// Whether nobody can solve for a sample where so many rounds have the same decryptors who could not if each had its own.
    /// Among m outsiders the three of the cycle turn by one from stretch to stretch, and so does the one who takes their place
    /// where somebody is absent.
    fn leaves_unknowns(&self, rounds: usize) -> bool {
        let (all, stretches) = (self.rounds.len(), self.stretches(rounds).len());
        let shape = self.program.operators[0].shape;
        let solves = |exposed: usize| exposed * shape.d_out >= shape.d_in;
        let is_absent = self.rounds.keys().any(|&round| self.participants(round).len() < self.clients);
        [3, 1].into_iter().take(1 + usize::from(is_absent)).all(|core| {
            (core..self.clients).all(|outsiders| {
                let turns = |of: usize| core * (of / outsiders) + core.min(of % outsiders);
                solves(turns(all)) || !solves(all.min(rounds * turns(stretches)))
            })
        })
    }

    /// Rounds in **stretches** of at most so many: one after the other, with the same participants. A stretch is known by its
    /// first round.
    pub(crate) fn stretches(&self, most: usize) -> BTreeMap<RoundId, Vec<RoundId>> {
        let rounds: Vec<RoundId> = self.rounds.keys().copied().collect();
        let alike = rounds.chunk_by(|&a, &b| self.participants(a) == self.participants(b));
        let stretches = alike.flat_map(|alike| cut(alike.len(), most).map(|range| alike[range].to_vec()));
        stretches.map(|rounds| (rounds[0], rounds)).collect()
    }

    /// Who took part in a round with a weight.
    pub fn participants(&self, round: RoundId) -> Coalition {
        let sizes = self.rounds.get(&round).map_or(&[][..], |sizes| sizes);
        sizes.iter().enumerate().filter(|(_, size)| **size > 0).map(|(client, _)| client).collect()
    }
}

fn network(program: &Program) -> Result<Network, Error> {
    Ok(match program.gru {
        Some(gru) => Network::gru(gru.steps, program.chain())?,
        None => Network::feedforward(program.chain())?,
    })
}

/// Samples of owners that may share a batch, by owner and then in the owner's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Whose.
    pub owners: Coalition,
    /// How many.
    pub size: usize,
    /// Where each owner's samples begin: owner, first place in the group, how many.
    pub parts: Vec<(usize, usize, usize)>,
    /// Its chunks, among all.
    pub chunks: Range<usize>,
}

impl Group {
    /// The places of one owner's samples.
    pub fn places(&self, owner: usize) -> Range<usize> {
        let part = self.parts.iter().find(|(client, ..)| *client == owner);
        part.map_or(0..0, |&(_, first, count)| first..first + count)
    }
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
    pub hellos: Vec<Hello>,
    /// Fixed-point formats.
    pub precision: Precision,
    /// Parameters of the encryption; none in SecretSV.
    pub encryption: Option<Encryption>,
    /// Groups of owners.
    pub owner_groups: OwnerGroups,
    /// Their samples.
    pub groups: Vec<Group>,
    /// First-layer chunks, group by group.
    pub chunks: Vec<Chunk>,
    /// Shares of each round's training data, by client.
    pub shares: BTreeMap<RoundId, Vec<f64>>,
    /// Rounds whose models are encrypted and tested together, by the first of them.
    pub stretches: BTreeMap<RoundId, Vec<RoundId>>,
    /// Samples of a chunk, at most.
    per_chunk: usize,
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

/// Models of a round that are tested together, at most: their predictions travel in one message ...
pub(crate) const MOST_TOGETHER: usize = 1024;
/// ... of no more bytes than this, for all rounds and samples.
const MOST_LABEL_BYTES: usize = 1 << 25;
/// Rounds that are tested together, at most.
const MOST_ROUNDS: usize = 16;
/// Bytes that one model's weights may take at a server, ready to multiply.
const MODEL_MEMORY: usize = 96 << 20;
/// First-layer batches of one chunk: few enough to work on several chunks at once ...
const CHUNK_BATCHES: usize = 16;
/// ... and fewer where rounds are taken together, so that there are few stretches to work on.
const CHUNK_BATCHES_OF_STRETCH: usize = 4;

impl Session {
    /// What the principal proposes: packings chosen by what operations cost.
    pub fn propose(
        federation: &Arc<Federation>,
        leader: usize,
        hellos: &[Hello],
        costs: Option<&UnitCosts>,
    ) -> Result<Vec<u8>, Error> {
        let (rounds, methods) = match (parameters(&federation.settings)?, costs) {
            (Some(parameters), Some(costs)) => methods(federation, &parameters, hellos, costs)?,
            (Some(_), None) => return Err(Error::Local { what: "unit costs" }),
            (None, _) => (1, Vec::new()),
        };
        Ok(encode(leader, hellos, rounds, methods))
    }

    /// The proposal that this follows from.
    pub(crate) fn proposal(&self) -> Vec<u8> {
        let layouts = self.encryption.iter().flat_map(|encryption| &encryption.layouts);
        encode(self.leader, &self.hellos, longest(&self.stretches), layouts.map(Layout::method))
    }

    /// What follows from a proposal.
    pub fn decode(federation: &Arc<Federation>, bytes: &[u8]) -> Result<Result<Self, Error>, CodecError> {
        let mut r = Reader::new(bytes);
        let leader = r.u16()?;
        if leader >= federation.clients {
            return Err(CodecError::Value { what: "leader" });
        }
        let operators = federation.program.operators.len();
        let hellos: Vec<Hello> =
            (0..federation.clients).map(|_| Hello::read(&mut r, operators)).collect::<Result<_, _>>()?;
        // Whoever relays the keys must not be able to put its own in their place.
        if (0..).zip(&hellos).any(|(client, hello)| !federation.is_envelope_key(client, &hello.public_key)) {
            return Err(CodecError::Value { what: "envelope key" });
        }
        let rounds = r.u16()?;
        if !(1..=federation.most_rounds()).contains(&rounds) {
            return Err(CodecError::Value { what: "rounds together" });
        }
        let mut methods = Vec::new();
        if federation.settings.protocol != Protocol::SecretSv {
            for _ in 0..operators {
                let kind = r.u8()?;
                let mut knob = || r.u32().map(|x| x as usize);
                let knobs = Knobs { r: knob()?, w: knob()?, s: knob()? };
                methods.push(match kind {
                    0 => Method::Squaring,
                    1 => Method::Reducing,
                    2 => Method::Packed(knobs),
                    _ => return Err(CodecError::Value { what: "method" }),
                });
            }
        }
        r.end()?;
        Ok(Self::new(federation, leader, hellos, rounds, &methods))
    }

    fn new(
        federation: &Arc<Federation>,
        leader: usize,
        hellos: Vec<Hello>,
        rounds: usize,
        methods: &[Method],
    ) -> Result<Self, Error> {
        let program = &federation.program;
        let ranges = Ranges::union(hellos.iter().map(|hello| &hello.ranges))
            .ok_or(Error::Local { what: "a session without clients" })?;
        let precision = match parameters(&federation.settings)? {
            Some(parameters) => Precision::new(program, &ranges, parameters.field(), federation.clients)?,
            None => Precision::new(program, &ranges, Ring64, federation.clients)?,
        };
        let stretches = federation.stretches(rounds);
        let encryption = Encryption::new(federation, longest(&stretches), methods)?;
        let positions = program.operators[0].positions;
        let batch = encryption.as_ref().map_or(4096, |e| e.layouts[0].batch());
        let samples_in_batch = NonZeroUsize::new((batch / positions).max(1)).unwrap_or(NonZeroUsize::MIN);
        let sizes: Vec<u64> = hellos.iter().map(|hello| hello.samples).collect();
        let owner_groups = match federation.settings.protocol {
            // Clients encrypt their own samples: no batch has two owners.
            Protocol::Hesv => OwnerGroups::new(&sizes, network(program)?, NonZeroUsize::MIN)?,
            _ => OwnerGroups::new(&sizes, network(program)?, samples_in_batch)?,
        };
        let batches = if longest(&stretches) > 1 { CHUNK_BATCHES_OF_STRETCH } else { CHUNK_BATCHES };
        let per_chunk = (batches * batch / positions).max(1);
        let (groups, chunks) = arrange(&owner_groups, &sizes, per_chunk);
        let shares = federation.rounds.iter().map(|(&round, sizes)| (round, shares(sizes))).collect();
        let federation = federation.clone();
        Ok(Self {
            federation,
            leader,
            hellos,
            precision,
            encryption,
            owner_groups,
            groups,
            chunks,
            shares,
            stretches,
            per_chunk,
        })
    }

    /// The rounds of a stretch; none if no stretch begins with this one.
    pub fn rounds_of(&self, stretch: RoundId) -> &[RoundId] {
        self.stretches.get(&stretch).map_or(&[], |rounds| rounds)
    }

    /// The stretch that a round is in.
    pub fn stretch_of(&self, round: RoundId) -> RoundId {
        self.stretches.range(..=round).next_back().map_or(round, |(stretch, _)| *stretch)
    }

    /// How many models of a round are tested together, at most.
    pub fn most_together(&self) -> usize {
        let of_one = longest(&self.stretches) * self.label_field().packed_len(self.samples());
        let most = if self.federation.tests_together() { MOST_TOGETHER } else { 1 };
        (MOST_LABEL_BYTES / of_one.max(1)).clamp(1, most)
    }

    /// So many samples in chunks.
    pub(crate) fn cut(&self, samples: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        cut(samples, self.per_chunk)
    }

    /// The model as hops.
    pub fn program(&self) -> &Program {
        &self.federation.program
    }

    /// The encryption, where there is one.
    pub fn encryption(&self) -> Result<&Encryption, Error> {
        self.encryption.as_ref().ok_or(Error::Local { what: "a session without encryption" })
    }

    /// The field in which secrets are shared, where something is encrypted.
    pub fn field(&self) -> Field {
        self.encryption.as_ref().map_or(Field::standard(), |e| e.parameters.field())
    }

    /// The field in which labels are compared under SecSV and SecretSV.
    pub(crate) fn label_field(&self) -> LabelField {
        LabelField::new(self.federation.architecture.classes())
    }

    /// Bits of the field.
    pub fn plaintext_bits(&self) -> u32 {
        use secsv_algebra::Ring;
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

    /// The network as the rules of decryption count it.
    pub fn network(&self) -> Result<Network, Error> {
        network(self.program())
    }

    /// Who decides who decrypts what.
    pub(crate) fn planner(&self) -> Result<Planner, Error> {
        let planner =
            Planner::new(self.owner_groups.clone(), self.federation.settings.protocol, self.network()?)?;
        let rounds = self.stretches.iter().map(|(&stretch, rounds)| (stretch, rounds.len()));
        Ok(planner.adding_up(self.federation.tests_together()).in_stretches(rounds))
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
        for &(owner, first, count) in &group.parts {
            let offset = self.offset(owner);
            (0..count).filter(|k| samples.contains(offset + k)).for_each(|k| places.insert(first + k));
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
}

/// How many rounds the longest stretch has.
fn longest(stretches: &BTreeMap<RoundId, Vec<RoundId>>) -> usize {
    stretches.values().map(Vec::len).max().unwrap_or(1)
}

fn encode(
    leader: usize,
    hellos: &[Hello],
    rounds: usize,
    methods: impl IntoIterator<Item = Method>,
) -> Vec<u8> {
    let mut w = Writer::default();
    w.u16(leader);
    hellos.iter().for_each(|hello| {
        w.raw(&hello.encode());
    });
    w.u16(rounds);
    for method in methods {
        let (kind, knobs) = match method {
            Method::Squaring => (0, Knobs { r: 0, w: 0, s: 0 }),
            Method::Reducing => (1, Knobs { r: 0, w: 0, s: 0 }),
            Method::Packed(knobs) => (2, knobs),
        };
        w.u8(kind).u32(knobs.r as u32).u32(knobs.w as u32).u32(knobs.s as u32);
    }
    w.finish()
}

/// A coalition's outputs are sums of at most two to this many.
fn sum_bits(federation: &Federation) -> u32 {
    federation.clients.next_power_of_two().ilog2()
}

fn parameters(settings: &Settings) -> Result<Option<Arc<Parameters>>, Error> {
    Ok(match settings.protocol {
        Protocol::SecretSv => None,
        Protocol::Hesv => Some(Parameters::for_full_products(settings.preset)?),
        _ => Some(Parameters::preset(settings.preset)?),
    })
}

impl Encryption {
    /// `rounds` are taken together: their rows stand one below the other.
    fn new(federation: &Federation, rounds: usize, methods: &[Method]) -> Result<Option<Self>, Error> {
        let Some(parameters) = parameters(&federation.settings)? else { return Ok(None) };
        let mut layouts = Vec::new();
        let mut floodings = Vec::new();
        for (operator, &method) in federation.program.operators.iter().zip(methods) {
            let layout = Layout::new(&parameters, of_rounds(operator.shape, rounds), method)?;
            // Nobody need prepare more than an honest principal would propose.
            if matches!(method, Method::Packed(_)) && layout.prepared_bytes() > MODEL_MEMORY {
                return Err(Error::Unsupported { what: "a packing whose models take too much memory" });
            }
            let noise = match federation.settings.protocol {
                Protocol::Hesv => {
                    layout.check_full().map_err(|_| Error::Unsupported {
                        what: "a layer has more inputs than products of two ciphertexts can be summed under hesv",
                    })?;
                    layout.full_noise()
                }
                _ => layout.half_noise().of_two_servers(),
            };
            floodings.push(Flooding::new(&parameters, noise.weighted(sum_bits(federation)))?);
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
fn cut(size: usize, per_chunk: usize) -> impl Iterator<Item = Range<usize>> + use<> {
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
                let part = (owner, size, sizes[owner] as usize);
                size += sizes[owner] as usize;
                part
            })
            .collect();
        let first = chunks.len();
        chunks.extend(cut(size, per_chunk).map(|places| Chunk { group: index, places }));
        groups.push(Group { owners: group.owners(), size, parts, chunks: first..chunks.len() });
    }
    (groups, chunks)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use secsv_federation::{ClientId, ClientSpec, LayerSpec, ModelSpec};

    use super::*;

    /// Four clients, one round, one layer of three inputs and two classes.
    pub(crate) fn federation(protocol: Protocol, matmul: Matmul) -> Federation {
        let preset = Preset::Standard;
        let settings = Settings { protocol, preset, matmul, always_skips: false, whole_rounds: false };
        one_layer(4, 1, 3, settings)
    }

    /// So many clients, all of which took part in so many rounds, and one layer of so many inputs and two classes.
    fn one_layer(clients: usize, rounds: u32, inputs: usize, settings: Settings) -> Federation {
        let layers = vec![LayerSpec::Linear { weight: "a".into(), bias: None }];
        let model = ModelSpec { input: vec![inputs], classes: 2, layers };
        let client = |i: usize| {
            let id = ClientId::new(format!("c{i}")).unwrap();
            ClientSpec { id, train_size: 10, rounds: vec![] }
        };
        let everybody = Coalition::first(clients);
        let clients = (0..clients).map(client).collect();
        let spec = FederationSpec { name: "test".into(), rounds, model: model.clone(), clients };
        let shapes = BTreeMap::from([("a".to_owned(), vec![2, inputs])]);
        let architecture = Architecture::new(&model, &shapes, Path::new("a"), Path::new("a")).unwrap();
        Federation::new(&spec, &architecture, |_| everybody, settings).unwrap()
    }

    #[test]
    fn few_rounds_are_tested_together_where_their_equations_count() {
        let settings = Settings {
            protocol: Protocol::SecSv,
            preset: Preset::Standard,
            matmul: Matmul::Packed,
            always_skips: false,
            whole_rounds: true,
        };
        let most = |clients, rounds, inputs| one_layer(clients, rounds, inputs, settings).most_rounds();
        // A quarter of the inputs, and sixteen.
        assert_eq!([3, 8, 30, 48, 300].map(|inputs| most(5, 10, inputs)), [1, 2, 7, 12, 16]);
        // With nine outsiders a client is one of the three in 42 of 120 rounds, and has as many of 48 equations: twelve rounds
        // at a time would be 48.
        assert!(most(10, 120, 48) < 12);
        // With four clients the same three decrypt always, whatever is tested together.
        assert_eq!(most(4, 120, 48), 12);
        let one_by_one = Settings { whole_rounds: false, ..settings };
        assert_eq!(one_layer(5, 10, 48, one_by_one).most_rounds(), 1);
        let lengths = |most| one_layer(5, 10, 48, settings).stretches(most).into_values().map(|s| s.len());
        assert_eq!(lengths(12).collect::<Vec<_>>(), [10]);
        assert_eq!(lengths(4).collect::<Vec<_>>(), [3, 3, 4]);
    }

    /// A principal that would have more rounds tested together than the rules allow is not followed.
    #[test]
    fn a_proposal_of_too_many_rounds_is_refused() {
        let federation = Arc::new(federation(Protocol::SecSv, Matmul::Packed));
        let hello =
            Hello { samples: 2, ranges: Ranges { norms: vec![1], inputs: vec![1] }, public_key: vec![0; 32] };
        let methods = [Method::Packed(Knobs { r: 1, w: 3, s: 2 })];
        let decode = |rounds| {
            Session::decode(&federation, &encode(0, &vec![hello.clone(); 4], rounds, methods))
                .map(|s| s.is_ok())
        };
        assert_eq!(decode(1), Ok(true));
        for rounds in [0, 2, 60000] {
            assert_eq!(decode(rounds), Err(CodecError::Value { what: "rounds together" }));
        }
    }

    /// The principal relays the leader's envelopes: with a key of its own in a client's place it could open them.
    #[test]
    fn a_principal_cannot_put_a_key_of_its_own_in_a_clients_place() {
        let keys: Vec<[u8; 32]> = (0..4).map(|client| [client; 32]).collect();
        let federation =
            Arc::new(federation(Protocol::SecretSv, Matmul::Packed).among(keys.clone(), &[9; 32]).unwrap());
        let mut hellos: Vec<Hello> = keys
            .iter()
            .map(|key| Hello {
                samples: 2,
                ranges: Ranges { norms: vec![1], inputs: vec![1] },
                public_key: key.to_vec(),
            })
            .collect();
        let decode = |hellos: &[Hello]| {
            let proposal = Session::propose(&federation, federation.leader(), hellos, None).unwrap();
            Session::decode(&federation, &proposal).map(|session| session.is_ok())
        };
        assert_eq!(decode(&hellos), Ok(true));
        hellos[2].public_key = vec![200; 32];
        assert_eq!(decode(&hellos), Err(CodecError::Value { what: "envelope key" }));
    }
}
