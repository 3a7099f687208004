//! Sums of what parties will do.

use std::collections::BTreeMap;

use secsv_he::{Ciphertext, Operations, Packing, Reply};

use crate::{
    PartyId,
    message::{COMMITMENT, Kind, Message, Parts, StepAddress},
    session::{EncryptedSession, Session},
};

/// What takes time, of all parties together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// For each operator of the model.
    pub layers: Vec<LayerWork>,
    /// Symmetric encryptions.
    pub encryptions: u64,
    /// Transforms modulo p that slots take.
    pub slot_transforms: u64,
    /// Weight ciphertexts expanded and tiled for half products.
    pub prepared: u64,
    /// Seeded ciphertexts expanded beside those.
    pub expanded: u64,
    /// Outputs re-randomised.
    pub rerandomised: u64,
    /// Replies sanitised, and decrypted.
    pub replies: u64,
    /// Ciphertexts added to sums.
    pub weighed: u64,
    /// Bytes of ciphertexts packed.
    pub packed_bytes: u64,
    /// Bytes of ciphertexts unpacked.
    pub unpacked_bytes: u64,
    /// Elements shared, or as much work as sharing them.
    pub shared: u64,
    /// Labels shared.
    pub labels: u64,
    /// Multiplications of words in matrix products (SecretSV).
    pub word_products: u64,
    /// Elements added to sums (SecretSV).
    pub scaled: u64,
    /// Products of two ciphertexts slot by slot (HESV).
    pub slot_products: u64,
    /// Samples that decryptors take through all steps, once for each model.
    pub activated_samples: u64,
    /// Samples that are dealt for and tested under masks, once for each model (BlindSV).
    pub blind_samples: u64,
    /// Samples that owners test themselves, once for each model.
    pub clear_samples: u64,
    /// Bytes of all frames.
    pub frame_bytes: u64,
    /// Frames.
    pub frames: u64,
}

/// What takes time in one operator's products.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerWork {
    /// Batches encoded for half products.
    pub encoded: u64,
    /// Half products of a model and a batch.
    pub multiplied: u64,
    /// Models brought to the larger basis (HESV).
    pub extended_models: u64,
    /// Encrypted batches brought to the larger basis (HESV).
    pub extended_batches: u64,
    /// Full products of a model and a batch (HESV).
    pub full: u64,
}

/// The sums so far.
pub(super) struct Tally<'a> {
    pub session: &'a Session,
    pub operations: Operations,
    pub traffic: BTreeMap<(PartyId, PartyId, Kind), (u64, u64)>,
    pub work: Work,
    /// Whether servers have the samples encoded for the first layer.
    pub samples_encoded: bool,
    /// How often samples of a round are gathered, at most.
    pub gathered: usize,
}

impl<'a> Tally<'a> {
    pub fn new(session: &'a Session) -> Self {
        let layers = vec![LayerWork::default(); session.program().operators.len()];
        let work = Work { layers, ..Work::default() };
        Self {
            session,
            operations: Operations::default(),
            traffic: BTreeMap::new(),
            work,
            samples_encoded: false,
            gathered: 0,
        }
    }

    /// The other server, where there is one.
    pub fn auxiliary(&self) -> Option<PartyId> {
        self.session.federation.settings.protocol.rules().has_auxiliary().then_some(PartyId::Auxiliary)
    }

    /// A message with `content` bytes.
    pub fn send(&mut self, from: PartyId, to: PartyId, kind: Kind, content: usize) {
        let bytes = content as u64;
        let entry = self.traffic.entry((from, to, kind)).or_default();
        *entry = (entry.0 + bytes, entry.1 + 1);
        self.work.frame_bytes += bytes;
        self.work.frames += 1;
    }

    /// A frame with a message.
    pub fn message<'m, M: Message<'m>>(&mut self, from: PartyId, to: PartyId, message: &M) {
        self.send(from, to, M::KIND, message.encode().len());
    }

    /// What servers tell clients of the leader's public key: the principal all of it, the auxiliary its digest.
    pub fn tell_key(&mut self, length: usize) {
        let others = (0..self.session.federation.clients).filter(|&client| client != self.session.leader);
        for client in others.map(PartyId::Client) {
            self.send(PartyId::Principal, client, Kind::PublicKey, length);
            if let Some(auxiliary) = self.auxiliary() {
                self.send(auxiliary, client, Kind::PublicKeyDigest, blake3::OUT_LEN);
            }
        }
    }

    /// A frame about a unit.
    pub fn send_about_unit(&mut self, from: PartyId, to: PartyId, kind: Kind, content: usize) {
        self.send(from, to, kind, StepAddress::LENGTH + content);
    }

    /// Shares of elements from a client to both servers about a unit: a seed, and the rest packed.
    pub fn share(&mut self, client: usize, kind: Kind, elements: usize, packed: usize) {
        self.send_shares(client, kind, packed);
        self.work.shared += elements as u64;
    }

    /// The same of labels.
    pub fn share_labels(&mut self, client: usize, kind: Kind, count: usize, packed: usize) {
        self.send_shares(client, kind, COMMITMENT + packed);
        self.work.labels += count as u64;
    }

    fn send_shares(&mut self, client: usize, kind: Kind, packed: usize) {
        let from = PartyId::Client(client);
        self.send_about_unit(from, PartyId::Principal, kind, super::SEED);
        self.send_about_unit(from, PartyId::Auxiliary, kind, packed);
    }

    pub fn encrypt(&mut self, session: &EncryptedSession, packing: Packing, count: u64) {
        self.operations += session.parameters().encryption_operations(packing) * count;
        self.work.encryptions += count;
        self.in_slots(packing, count);
    }

    fn in_slots(&mut self, packing: Packing, count: u64) {
        self.work.slot_transforms += if packing == Packing::Slots { count } else { 0 };
    }

    /// So many bytes of ciphertexts packed once and unpacked by so many.
    pub fn carry(&mut self, bytes: usize, readers: u64) {
        self.work.packed_bytes += bytes as u64;
        self.work.unpacked_bytes += bytes as u64 * readers;
    }

    /// Outputs that the auxiliary re-randomises for the principal; the length of their list.
    pub fn rerandomise(&mut self, session: &EncryptedSession, count: u64) -> usize {
        let parameters = session.parameters();
        self.operations += parameters.rerandomisation_operations() * count;
        self.work.rerandomised += count;
        let length = Ciphertext::encoded_len(parameters);
        self.carry(length * count as usize, 1);
        Parts::length(std::iter::repeat_n(length, count as usize))
    }

    /// Replies that the principal sanitises and a client decrypts, by how many coefficients of their first parts they carry;
    /// the length of their list.
    pub fn reply(
        &mut self,
        session: &EncryptedSession,
        packing: Packing,
        carried: impl Iterator<Item = usize> + Clone,
    ) -> usize {
        let parameters = session.parameters();
        let count = carried.clone().count() as u64;
        self.operations += parameters.sanitising_operations(packing) * count;
        self.operations += parameters.decryption_operations(packing) * count;
        self.work.replies += count;
        self.in_slots(packing, 2 * count);
        let lengths = carried.map(|carried| Reply::encoded_len(parameters, carried));
        self.carry(lengths.clone().sum(), 1);
        Parts::length(lengths)
    }

    /// The same for vectors in slots.
    pub fn slot_reply(&mut self, session: &EncryptedSession, count: u64) -> usize {
        let degree = session.parameters().degree();
        self.reply(session, Packing::Slots, std::iter::repeat_n(degree, count as usize))
    }
}
