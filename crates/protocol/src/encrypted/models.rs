//! Encrypted models of open rounds, as a server keeps them.

use std::{collections::BTreeMap, sync::Arc};

use secsv_federation::{Coalition, RoundId};
use secsv_he::{
    Ciphertext, WireError,
    linear::{EncryptedBias, EncryptedMatrix, Layout, PreparedMatrix},
};

use crate::{
    Error, PartyId, check,
    error::CodecError,
    message::{Kind, Model, Parts},
    role::{Digest, Incoming, Meter, Phase},
    session::{EncryptedSession, Session},
};

/// Encrypted weights of one operator, as a server multiplies them.
pub(crate) trait WeightMatrix: Sized + Send + Sync + 'static {
    fn decode(layout: &Layout, bytes: &[u8]) -> Result<Self, WireError>;
}

impl WeightMatrix for PreparedMatrix {
    fn decode(layout: &Layout, bytes: &[u8]) -> Result<Self, WireError> {
        Self::from_bytes(layout, bytes)
    }
}

impl WeightMatrix for EncryptedMatrix {
    fn decode(layout: &Layout, bytes: &[u8]) -> Result<Self, WireError> {
        Self::from_bytes(layout, bytes)
    }
}

/// A client's model of a round, or its models of a round batch, ready to multiply.
pub(crate) struct LocalModel<W> {
    pub weights: Vec<W>,
    /// Biases, at the principal alone.
    pub biases: Vec<Vec<Ciphertext>>,
    /// Of the message it came in.
    digest: Digest,
}

impl<W: WeightMatrix> LocalModel<W> {
    /// Decodes what a client sent: weights and biases, operator by operator.
    pub(crate) fn decode(
        session: &EncryptedSession,
        with_biases: bool,
        message: &Incoming,
        meter: &mut Meter<'_>,
    ) -> Result<Self, Error> {
        let malformed = |why| message.malformed(why);
        let wire = |why: WireError| malformed(why.into());
        let Model { layers: Parts(parts), .. } = message.read(&())?;
        let mut model = Self { weights: Vec::new(), biases: Vec::new(), digest: message.digest };
        meter.enter(Phase::Codec);
        for (layout, part) in session.encryption.layouts.iter().zip(parts.chunks_exact(2)) {
            model.weights.push(W::decode(layout, part[0]).map_err(wire)?);
            if with_biases {
                let bias = EncryptedBias::from_bytes(layout, part[1]).map_err(wire)?;
                model.biases.push(layout.expand_bias(&bias)?);
            }
        }
        Ok(model)
    }
}

/// All models of a round in the order of their clients.
pub(crate) type RoundModels<W> = Vec<(usize, Arc<LocalModel<W>>)>;

/// Models of open rounds, and digests of what came for the whole session.
pub(crate) struct Models<W> {
    /// Of keys and samples, by kind and by sender or chunk.
    session: BTreeMap<(Kind, usize), Digest>,
    rounds: BTreeMap<RoundId, BTreeMap<usize, Arc<LocalModel<W>>>>,
}

impl<W> Default for Models<W> {
    fn default() -> Self {
        Self { session: BTreeMap::new(), rounds: BTreeMap::new() }
    }
}

impl<W> Models<W> {
    /// Checks a model: a participant's, of a round batch, and whole.
    pub(crate) fn check(
        session: &EncryptedSession,
        owner: usize,
        message: &Incoming,
    ) -> Result<RoundId, Error> {
        let malformed = |why| message.malformed(why);
        let Model { round, layers } = message.read(&())?;
        let participants = session.federation.participants(round);
        if session.rounds_of(round).is_empty() || !participants.contains(owner) {
            return Err(malformed(CodecError::Value { what: "round" }));
        }
        check::model(session, &layers).map_err(malformed)?;
        Ok(round)
    }

    /// Notes the digest of something that came for the whole session: `number` is its sender or chunk.
    pub(crate) fn note(&mut self, kind: Kind, number: usize, digest: Digest) {
        self.session.insert((kind, number), digest);
    }

    pub(crate) fn insert(&mut self, round: RoundId, owner: usize, model: LocalModel<W>) {
        self.rounds.entry(round).or_default().insert(owner, Arc::new(model));
    }

    /// All models of a round, once everybody's has come.
    pub(crate) fn all(&self, session: &Session, round: RoundId) -> Option<RoundModels<W>> {
        let models = self.rounds.get(&round)?;
        let participants = session.federation.participants(round);
        participants.members().map(|i| models.get(&i).map(|model| (i, model.clone()))).collect()
    }

    /// A digest of everything that outputs of a round are computed from: keys, samples, models. Randomness that covers such
    /// outputs depends on it. The same at any time, because nothing is computed before all of it is there.
    pub(crate) fn digest(&self, round: RoundId) -> Digest {
        let mut hash = blake3::Hasher::new();
        for ((kind, number), digest) in &self.session {
            hash.update(&[*kind as u8]).update(&(*number as u64).to_le_bytes()).update(digest);
        }
        for (client, model) in self.rounds.get(&round).into_iter().flatten() {
            hash.update(&(*client as u64).to_le_bytes()).update(&model.digest);
        }
        *hash.finalize().as_bytes()
    }

    pub(crate) fn forget_round(&mut self, round: RoundId) {
        self.rounds.remove(&round);
    }

    /// Models of some rounds that have not come, in words.
    pub(crate) fn missing(&self, session: &Session, rounds: impl Iterator<Item = RoundId>) -> Vec<String> {
        let mut missing = Vec::new();
        for round in rounds {
            let models = self.rounds.get(&round);
            let has_come = |client: &usize| models.is_some_and(|models| models.contains_key(client));
            let absent = session.federation.participants(round).members().filter(|client| !has_come(client));
            let name = |client| format!("{} of round {round} from {}", Kind::Model, PartyId::Client(client));
            missing.extend(absent.map(name));
        }
        missing
    }
}

/// Some part of each member's model, each counted once: their sum is the coalition's (Algorithm 3, "aggregation under HE").
pub(crate) fn member_terms<'a, W, T>(
    session: &Session,
    (round, coalition): (RoundId, Coalition),
    models: &'a [(usize, Arc<LocalModel<W>>)],
    part: impl Fn(&'a LocalModel<W>) -> &'a T,
) -> Vec<(u32, &'a T)> {
    let members = session.members(round, coalition);
    let model = |i: usize| models.iter().find(|(client, _)| *client == i).map(|(_, model)| &**model);
    members.iter().filter_map(|&(i, _)| model(i).map(|model| (1, part(model)))).collect()
}
