//! What everybody knows before a session, and what follows from that alone.

use std::collections::BTreeMap;

use secsv_federation::{Aggregation, Architecture, Coalition, FederationSpec, MAX_CLIENTS, RoundId};
use secsv_he::Preset;

use super::{HiddenSettings, divide, encoding, parameters};
use crate::{
    Error,
    decryptors::{Network, Protocol, max_owners},
    labels::LabelField,
    model::limit_ranges,
    precision::Ranges,
    program::Program,
    rules::Matmul,
};

/// Why aggregates have to be means.
const OTHER_AGGREGATION: &str = "aggregation = \"other\": the empty coalition's model does not follow from the local models, and no \
     secure protocol tests it yet. Value each round as a run directory of its own, whose initial.safetensors is the global model \
     that the round began with; or take nssv";
/// Why limits are for one protocol.
const OTHER_LIMITS: &str = "limits: rounds that come while training goes on, and formats that do not depend on them, are for blindsv; under the \
     others several sessions give whoever decrypts more to work with";
/// Rounds that are tested together, at most.
const MAX_ROUNDS: usize = 16;

/// What everybody knows before a session: the federation file and the settings of the run.
#[derive(Clone, Debug)]
pub struct Federation {
    /// The model.
    pub architecture: Architecture,
    /// The model as steps.
    pub program: Program,
    /// Clients, by position.
    pub clients: usize,
    /// Weights of each round by client; 0 for those who took no part.
    pub rounds: BTreeMap<RoundId, Vec<f64>>,
    /// How models are tested.
    pub settings: Settings,
    /// Public keys of the clients' envelopes, where they were agreed on before; otherwise clients publish them.
    envelope_keys: Option<Vec<[u8; 32]>>,
    /// What was agreed on before there were models: published in the place of what is measured.
    limits: Option<Ranges>,
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
    /// How numbers that nobody reads are held in their ranges.
    pub hidden: HiddenSettings,
    /// Whether right predictions are counted for each true class, where the protocol can.
    pub by_class: bool,
}

impl Settings {
    /// Whether right predictions are counted for each true class. Where samples are skipped they are not: it is learned which are
    /// right, and not of which class.
    pub fn counts_classes(&self) -> bool {
        self.by_class && !self.always_skips && self.protocol.rules().class_counts().is_some()
    }
}

impl Federation {
    /// Of a federation file and those who took part in each round.
    pub fn new(
        spec: &FederationSpec,
        architecture: &Architecture,
        participants: impl Fn(RoundId) -> Coalition,
        settings: Settings,
    ) -> Result<Self, Error> {
        let clients = spec.clients.len();
        if spec.comes_later() {
            return Err(Error::Unsupported {
                what: "a federation whose rounds come later, before one has come",
            });
        }
        if spec.aggregation != Aggregation::Mean {
            return Err(Error::Unsupported { what: OTHER_AGGREGATION });
        }
        let program = Self::check_model(settings.protocol, architecture, clients)?;
        if let Some(encryption) = settings.protocol.rules().encryption() {
            encryption.check_preset(settings.preset)?;
        }
        let rounds: BTreeMap<RoundId, Vec<f64>> = spec
            .round_ids()
            .map(|round| {
                let present = participants(round);
                let size = |(i, c): (usize, &secsv_federation::ClientSpec)| {
                    if present.contains(i) { c.weight_in(round) } else { 0.0 }
                };
                (round, spec.clients.iter().enumerate().map(size).collect())
            })
            .collect();
        let hash = blake3::hash(&encoding::encode(spec, architecture, &rounds, &settings));
        let mut digest = [0; 16];
        digest.copy_from_slice(&hash.as_bytes()[..16]);
        if spec.limits.is_some() && settings.protocol.rules().has_decryptors() {
            return Err(Error::Unsupported { what: OTHER_LIMITS });
        }
        let limits = spec.limits.as_ref().map(|limits| limit_ranges(&program, limits)).transpose()?;
        let architecture = architecture.clone();
        Ok(Self { architecture, program, clients, rounds, settings, envelope_keys: None, limits, digest })
    }

    /// Refuses a model that a protocol cannot test among so many clients, with the reason; otherwise the model as it tests it.
    pub fn check_model(
        protocol: Protocol,
        architecture: &Architecture,
        clients: usize,
    ) -> Result<Program, Error> {
        let rules = protocol.rules();
        let program = rules.program(architecture)?;
        if architecture.classes() > LabelField::MAX_CLASSES {
            return Err(Error::Unsupported {
                what: "more than 65536 classes, more than labels have room for; take nssv",
            });
        }
        if rules.has_decryptors() {
            max_owners(clients, network(&program)?)?;
        } else if !(2..=MAX_CLIENTS).contains(&clients) {
            return Err(Error::Unsupported {
                what: "blindsv takes from 2 to 128 clients, since with one totals are its own results; take nssv, which computes them as well",
            });
        }
        Ok(program)
    }

    /// The same among parties that have agreed on more beforehand: the public keys of all clients' envelopes, in order, and
    /// whatever else `agreement` is the digest of. Other keys are not accepted then, whoever publishes them, and parties
    /// of another agreement are not understood.
    pub fn with_identities(self, envelope_keys: Vec<[u8; 32]>, agreement: &[u8; 32]) -> Result<Self, Error> {
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

    /// The ranges that everybody publishes, whatever it has, where limits were agreed on.
    pub(crate) fn limits(&self) -> Option<&Ranges> {
        self.limits.as_ref()
    }

    /// Whether clients have the models after rounds and test them themselves. Where rounds are valued as they end, these come later than
    /// the values; a whole run with the same limits is tested in the same way.
    pub(crate) fn has_aggregates(&self) -> bool {
        self.limits.is_none()
    }

    /// Makes the tables that every session of this process computes by, which takes some milliseconds the first time.
    pub fn prepare(&self) -> Result<(), Error> {
        parameters(&self.settings).map(drop)
    }

    /// Whether clients publish how large hidden outputs get: nobody reads these.
    pub(crate) fn publishes_outputs(&self) -> bool {
        !self.settings.protocol.rules().has_decryptors()
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
        let steps = &self.program.steps;
        let can = protocol.rules().batching().tests_together;
        can && !always_skips && steps.len() == 1 && steps[0].receives.len() == 1
    }

    /// How many rounds may be tested together, if there is memory for them.
    pub(crate) fn most_rounds(&self) -> usize {
        let Settings { matmul, whole_rounds, .. } = self.settings;
        if self.tests_together() && whole_rounds && matmul == Matmul::Packed { MAX_ROUNDS } else { 1 }
    }

    /// Rounds in **round batches** of at most so many: one after the other, with the same participants. A round batch is known by its
    /// first round.
    pub(crate) fn round_batches(&self, most: usize) -> BTreeMap<RoundId, Vec<RoundId>> {
        let rounds: Vec<RoundId> = self.rounds.keys().copied().collect();
        let alike = rounds.chunk_by(|&a, &b| self.participants(a) == self.participants(b));
        let round_batches =
            alike.flat_map(|alike| divide(alike.len(), most).map(|range| alike[range].to_vec()));
        round_batches.map(|rounds| (rounds[0], rounds)).collect()
    }

    /// Who took part in a round with a weight.
    pub fn participants(&self, round: RoundId) -> Coalition {
        let sizes = self.rounds.get(&round).map_or(&[][..], |sizes| sizes);
        sizes.iter().enumerate().filter(|(_, weight)| **weight > 0.0).map(|(client, _)| client).collect()
    }
}

pub(crate) fn network(program: &Program) -> Result<Network, Error> {
    Ok(match program.gru {
        Some(gru) => Network::gru(gru.steps, program.chain())?,
        None => Network::feedforward(program.chain())?,
    })
}
