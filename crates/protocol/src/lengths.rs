//! How long messages may be, and how much of one sender's a server holds: all of it follows from the session.

use std::{iter::repeat_n, sync::Arc};

use secsv_algebra::Ring64;
use secsv_he::{
    Ciphertext, EncryptedSlots, EvaluationKey, PublicKey, Reply,
    linear::{EncryptedBatch, EncryptedBias, EncryptedMatrix},
};

use crate::{
    MAX_EARLY_BYTES, PartyId,
    blindsv::{
        principal::{max_ahead_bytes, max_tests as blind_tests},
        shape::{Chunks, Circuit},
    },
    codec::packed_len,
    hesv::rotation_steps,
    message::{
        COMMITMENT, ClientHello, Count, Dealing, DealtProduct, EncryptedData, EvaluationKeys,
        FirstLayerBatchId, FirstLayerHalf, Kind, MaskedFirstLayer, MaskedModel, MaskedOpening, Model,
        ModelShare, OpenedSeeds, OutcomeShare, Parts, SealedClientKeys, StepAddress,
    },
    round_memory::open_rounds,
    scheduler::max_tests,
    session::{Agreed, Encryption, Federation, Session},
    unit::slots_of,
};

/// A seed on its way.
const SEED: usize = 32;
/// Bytes of a message that nobody may send: the role says why.
const REFUSED: usize = 4 << 10;
/// Bytes of messages in which the principal tells everybody what to do, or what was found.
const TOLD: usize = 64 << 20;

impl Federation {
    /// The most bytes of a message before the session is known; none if that cannot be said before.
    pub fn max_len(&self, from: PartyId, kind: Kind) -> Option<u64> {
        let introduction = 8 + 2 + 12 * self.program.published() + 8 + 32 + 1 + 16;
        let proposal = 2 + self.clients * introduction + 2 + 13 * self.program.operators.len();
        match (from, kind) {
            (_, Kind::ClientHello) => Some(introduction as u64),
            (PartyId::Principal, Kind::Session) => Some(proposal as u64),
            (PartyId::Principal, Kind::Values) => Some(TOLD as u64),
            _ => None,
        }
    }
}

impl Session {
    /// The most bytes of a message under the session: what its place takes exactly is checked when it is known.
    pub fn max_len(&self, from: PartyId, to: PartyId, kind: Kind) -> u64 {
        if let Some(known) = self.federation.max_len(from, kind) {
            return known;
        }
        if !kind.is_of(self.federation.settings.protocol) {
            return REFUSED as u64;
        }
        let length = match (self.circuit(), from) {
            (Some(circuit), PartyId::Client(client)) => self.blind_client_len(circuit, client, to, kind),
            (Some(circuit), _) => self.blind_server_len(circuit, kind),
            (None, PartyId::Client(client)) => self.client_len(client, to, kind),
            (None, _) => self.server_len(kind),
        };
        length.unwrap_or(REFUSED) as u64
    }

    /// Bytes on disk, and in memory, that one client can make a server hold, whatever it sends: what its part in the session
    /// takes, and what is kept of messages that came early. Nothing else is acknowledged.
    pub fn most_held(self: &Arc<Self>, client: usize, server: PartyId) -> (u64, u64) {
        let length = |kind| self.max_len(PartyId::Client(client), server, kind);
        // The auxiliary is not told which rounds are open.
        let round_batches = self.round_batches.len();
        let rounds =
            if server == PartyId::Principal { open_rounds(self).min(round_batches) } else { round_batches };
        let steps = self.program().steps.len() as u64;
        let of_protocol = |kinds: &[Kind]| {
            let kinds = kinds.iter().filter(|kind| kind.is_of(self.federation.settings.protocol));
            kinds.map(|&kind| length(kind)).sum::<u64>()
        };
        if let Some(circuit) = self.circuit() {
            return self.blind_held(circuit, client, server);
        }
        let of_test = steps * of_protocol(&[Kind::ActivationShare, Kind::EncryptedActivations, Kind::Triple])
            + of_protocol(&[Kind::LabelShare, Kind::EncryptedLabels])
            + of_protocol(&[Kind::PredictionShare, Kind::EncryptedPredictions]);
        let own = of_protocol(&[Kind::OwnResult, Kind::OwnResultCounts, Kind::OwnCount]);
        let tests = (max_tests(self) * self.groups.len()) as u64 * (of_test + own);
        let session = of_protocol(&[Kind::ServerKeys, Kind::EvaluationKeys, Kind::MaskSeed])
            + of_protocol(&[Kind::DataShare])
            + self.chunks.len() as u64 * of_protocol(&[Kind::EncryptedData])
            + self.hellos.len() as u64 * length(Kind::SealedClientKeys);
        let rounds = rounds as u64 * of_protocol(&[Kind::Model, Kind::ModelShare, Kind::DealtProduct]);
        let disk = session + rounds + tests + 2 * MAX_EARLY_BYTES as u64;
        // Residues of 54 bits become words, seeds become the second half of a ciphertext, and one message is on its way.
        let largest = Kind::ALL.into_iter().map(length).max().unwrap_or(0);
        let expanded = 8 * self.expanded(client) as u64;
        (disk, 3 * (session + rounds + tests) + expanded + 2 * MAX_EARLY_BYTES as u64 + 2 * largest)
    }

    /// BlindSV: what a client sends is exact but for the number of coalitions in a test.
    fn blind_client_len(
        &self,
        circuit: &Arc<Circuit>,
        client: usize,
        to: PartyId,
        kind: Kind,
    ) -> Option<usize> {
        let samples = self.hellos.get(client)?.samples as usize;
        let (chunks, operators) = (Chunks::new(circuit.clone(), samples), &self.program().operators);
        let (bytes, of_scores) = (circuit.hops().bytes(0), circuit.widths().bytes());
        let is_principal = to == PartyId::Principal;
        let rounds = self.federation.rounds.keys();
        let rows = rounds.map(|round| self.stacked_rows(*round)).max().unwrap_or(0);
        let labels = if circuit.is_single() { 0 } else { circuit.scores() };
        let words = |operator: usize| operators[operator].shape.d_out * (operators[operator].shape.d_in + 1);
        Some(match kind {
            Kind::MaskSeed | Kind::ModelMaskSeed => SEED,
            Kind::SealedClientKeys if is_principal => SealedClientKeys::LENGTH,
            Kind::MaskedModel => {
                let of_model = (0..operators.len()).map(|k| words(k) * circuit.hops().bytes(k));
                MaskedModel::HEAD + of_model.sum::<usize>()
            }
            Kind::DataShare if !is_principal => {
                samples * (bytes * self.program().input_size + of_scores * labels)
            }
            Kind::DealtProduct if !is_principal => {
                DealtProduct::HEAD + bytes * rows * operators[0].positions * samples
            }
            Kind::Dealing if !is_principal => {
                Dealing::HEAD + self.coalitions_together() * chunks.dealt_len().max(chunks.outcome_len())
            }
            _ => return None,
        })
    }

    /// BlindSV: what servers send.
    fn blind_server_len(&self, circuit: &Arc<Circuit>, kind: Kind) -> Option<usize> {
        let samples = self.hellos.iter().map(|hello| hello.samples as usize).max().unwrap_or(0);
        let opened = Chunks::new(circuit.clone(), samples).largest_opened();
        Some(match kind {
            Kind::TestFinished => 8,
            Kind::RoundFinished | Kind::RoundStart => 4,
            Kind::SealedClientKeys => SealedClientKeys::LENGTH,
            Kind::BlindTest => 8 + 4 + 8 + 16 * self.coalitions_together() + 1 + self.skip_len(),
            Kind::MaskedOpening => MaskedOpening::HEAD + self.coalitions_together() * opened,
            Kind::OutcomeShare => {
                let of_owner =
                    |hello: &ClientHello| Chunks::new(circuit.clone(), hello.samples as usize).outcome_len();
                let of_owners = self.hellos.iter().map(of_owner);
                let is_sum = self.blind_outcome().is_sum();
                let found = if is_sum { of_owners.max() } else { Some(of_owners.sum()) };
                OutcomeShare::HEAD
                    + self.coalitions_together() * (found.unwrap_or(0) + circuit.overflow_bytes())
            }
            _ => return None,
        })
    }

    /// Bytes that say which samples are tested, at most.
    fn skip_len(&self) -> usize {
        if self.blind_outcome().is_sum() { 0 } else { 8 + self.samples().div_ceil(8) }
    }

    /// Coalitions of one test, at most.
    fn coalitions_together(&self) -> usize {
        let coalitions = 1usize.checked_shl(self.federation.clients as u32).unwrap_or(usize::MAX);
        self.most_together().min(coalitions)
    }

    /// BlindSV: what one client can make a server hold.
    fn blind_held(self: &Arc<Self>, circuit: &Arc<Circuit>, client: usize, server: PartyId) -> (u64, u64) {
        let length = |kind| self.blind_client_len(circuit, client, server, kind).unwrap_or(0) as u64;
        let Agreed::BlindSv(session) = self.agreed() else { return (0, 0) };
        let session_kinds = [Kind::MaskSeed, Kind::ModelMaskSeed, Kind::DataShare];
        let of_session = session_kinds.into_iter().map(length).sum::<u64>()
            + self.hellos.len() as u64 * length(Kind::SealedClientKeys);
        // The auxiliary is not told which rounds are open.
        let rounds = self.federation.rounds.len() as u64;
        let of_rounds = rounds * (length(Kind::MaskedModel) + length(Kind::DealtProduct));
        let tests = blind_tests(&session) as u64 * length(Kind::Dealing);
        let ahead = if server == PartyId::Auxiliary { max_ahead_bytes(&session, client) } else { 0 };
        let disk = of_session + of_rounds + tests + ahead + 2 * MAX_EARLY_BYTES as u64;
        let samples = self.hellos.get(client).map_or(0, |hello| hello.samples);
        let expanded = 8 * samples * (self.program().input_size + self.program().classes) as u64;
        let largest = Kind::ALL.into_iter().map(length).max().unwrap_or(0);
        (disk, 3 * (of_session + of_rounds + tests) + expanded + 2 * MAX_EARLY_BYTES as u64 + 2 * largest)
    }

    /// Elements that the principal's seeds of a client stand for.
    fn expanded(&self, client: usize) -> usize {
        let samples = self.hellos.get(client).map_or(0, |hello| hello.samples as usize);
        let shared: usize =
            (0..self.program().steps.len()).map(|step| self.program().shared_size(step)).sum();
        let group = self.largest_group();
        let models = self.round_batches.len() * self.program().model_size();
        self.program().input_size * samples + models + max_tests(self) * self.groups.len() * shared * group
    }

    fn largest_group(&self) -> usize {
        self.groups.iter().map(|group| group.size).max().unwrap_or(0)
    }

    /// Labels of a unit, at most: of all rounds of a round batch and coalitions that are tested together.
    fn label_bytes(&self) -> usize {
        let rounds = self.round_batches.values().map(Vec::len).max().unwrap_or(1);
        let coalitions = 1usize.checked_shl(self.federation.clients as u32).unwrap_or(usize::MAX);
        let segments = self.label_field().packed_len(self.largest_group()) + self.federation.clients;
        rounds * self.most_together().min(coalitions) * segments
    }

    fn client_len(&self, client: usize, to: PartyId, kind: Kind) -> Option<usize> {
        let is_principal = to == PartyId::Principal;
        let samples = self.hellos.get(client)?.samples as usize;
        let group = self.largest_group();
        let hidden = self.program().hidden();
        let shared = (0..self.program().steps.len()).map(|step| self.shared_len(step, group)).max()?;
        let rounds = self.round_batches.values().map(Vec::len).max().unwrap_or(1);
        Some(match kind {
            Kind::ServerKeys => PublicKey::encoded_len(&self.encryption()?.parameters),
            Kind::EvaluationKeys => {
                let Encryption { parameters, .. } = self.encryption()?;
                let rotations = rotation_steps(self.encryption()?).len();
                let evaluation = EvaluationKey::encoded_len(parameters, rotations);
                EvaluationKeys::length(PublicKey::encoded_len(parameters), evaluation)
            }
            Kind::MaskSeed => SEED,
            Kind::SealedClientKeys if is_principal => SealedClientKeys::LENGTH,
            // The initial model, the aggregate, its own, and the aggregate less its own.
            Kind::OwnResult if is_principal => 8 + 4 * rounds * (8 + samples.div_ceil(8)),
            Kind::OwnResultCounts if is_principal => 8 + 4 * rounds * 8,
            Kind::Count if is_principal => Count::LENGTH,
            Kind::EncryptedData => {
                let longest = self.chunks.iter().map(|chunk| chunk.places.len()).max().unwrap_or(0);
                EncryptedData::HEAD + 8 + self.batches_len(0, longest)?
            }
            Kind::Model => self.model_len()?,
            Kind::ModelShare if is_principal => ModelShare::HEAD + SEED,
            Kind::ModelShare => ModelShare::HEAD + 8 * self.program().model_size(),
            Kind::EncryptedActivations => {
                let steps = 0..self.program().steps.len();
                StepAddress::LENGTH + steps.filter_map(|step| self.upload_len(step, group)).max()?
            }
            Kind::EncryptedLabels | Kind::EncryptedPredictions => {
                StepAddress::LENGTH + EncryptedSlots::encoded_len(&self.encryption()?.parameters, group)
            }
            Kind::DataShare if is_principal => SEED,
            Kind::ActivationShare | Kind::LabelShare | Kind::PredictionShare | Kind::Triple
                if is_principal =>
            {
                StepAddress::LENGTH + SEED
            }
            Kind::DataShare => self.packed(self.program().input_size * samples),
            Kind::DealtProduct => {
                let rounds = self.federation.rounds.keys();
                let most = rounds.map(|round| self.stacked_rows(*round)).max().unwrap_or(0);
                DealtProduct::HEAD + 8 * most * self.first_columns(client)
            }
            Kind::ActivationShare => StepAddress::LENGTH + shared,
            Kind::LabelShare | Kind::PredictionShare => StepAddress::LENGTH + COMMITMENT + self.label_bytes(),
            Kind::OwnCount => 8 + 8 + 4 * rounds * (4 + 16 + 8 + 8) + 8,
            Kind::Triple => StepAddress::LENGTH + SEED + self.packed(hidden * group),
            _ => return None,
        })
    }

    /// What servers send each other and clients: no more than all outputs of a unit or a chunk.
    fn server_len(&self, kind: Kind) -> Option<usize> {
        let group = self.largest_group();
        let operators = &self.program().operators;
        let sums = self.program().sum_sizes().map(|size| size * group);
        let outputs = operators.iter().map(|operator| operator.output_size() * group);
        let outputs = outputs.chain(sums).max().unwrap_or(0);
        let parameters = self.encryption().map(|encryption| &encryption.parameters);
        let ciphertexts = |operator: usize, samples: usize| {
            let layout = &self.encryption()?.layouts[operator];
            Some(layout.batches(operators[operator].positions * samples) * layout.rows())
        };
        let weights = operators.iter().map(|operator| operator.shape.d_out * operator.shape.d_in);
        let weights = weights.max().unwrap_or(0);
        let later = (0..operators.len()).filter_map(|operator| ciphertexts(operator, group)).max();
        Some(match kind {
            Kind::CommonSeed => SEED,
            Kind::TestFinished => 8,
            Kind::RoundFinished | Kind::RoundStart => 4,
            Kind::SealedClientKeys => SealedClientKeys::LENGTH,
            Kind::PublicKey => PublicKey::encoded_len(parameters?),
            Kind::PublicKeyDigest => blake3::OUT_LEN,
            Kind::OpenedSeeds => OpenedSeeds::length(1 + self.federation.clients),
            Kind::Test | Kind::OwnTest => TOLD,
            Kind::FirstLayerHalf => {
                let models = self.federation.clients;
                let chunks = self.chunks.iter().filter_map(|chunk| ciphertexts(0, chunk.places.len()));
                let count = models * chunks.max().unwrap_or(0);
                let head = FirstLayerHalf::head(FirstLayerBatchId::Gathered([0; 32]));
                head + Parts::length(repeat_n(Ciphertext::encoded_len(parameters?), count))
            }
            Kind::LayerHalf => {
                StepAddress::LENGTH + Parts::length(repeat_n(Ciphertext::encoded_len(parameters?), later?))
            }
            Kind::Reply | Kind::BlindedDifferences => {
                let reply = Reply::encoded_len(parameters?, parameters?.degree());
                let slots = (outputs.max(group)).div_ceil(parameters?.degree());
                StepAddress::LENGTH + Parts::length(repeat_n(reply, later?.max(slots)))
            }
            Kind::DifferenceShare => StepAddress::LENGTH + self.label_bytes(),
            Kind::MaskedFirstLayer => MaskedFirstLayer::HEAD + 8 * self.federation.clients * weights,
            Kind::MaskedLayer => StepAddress::LENGTH + 8 * weights,
            Kind::MaskedFactors => {
                let hidden = self.program().hidden();
                StepAddress::LENGTH + 8 * 2 * hidden * group
            }
            Kind::OutputShare => StepAddress::LENGTH + 8 * outputs,
            _ => return None,
        })
    }

    fn packed(&self, elements: usize) -> usize {
        if self.encryption().is_some() {
            packed_len(self.field(), elements)
        } else {
            packed_len(Ring64, elements)
        }
    }

    fn model_len(&self) -> Option<usize> {
        let lengths = |layout| [EncryptedMatrix::encoded_len(layout), EncryptedBias::encoded_len(layout)];
        Some(Model::length(self.encryption()?.layouts.iter().flat_map(lengths)))
    }

    fn batches_len(&self, operator: usize, samples: usize) -> Option<usize> {
        let layout = &self.encryption()?.layouts[operator];
        let columns = self.program().operators[operator].positions * samples;
        Some(layout.batches(columns) * (8 + EncryptedBatch::encoded_len(layout)))
    }

    /// What a client shares again at a step, for `samples` of them, with what it deals for the product that follows.
    fn shared_len(&self, step: usize, samples: usize) -> usize {
        let program = self.program();
        let elements = self.packed(program.shared_size(step) * samples);
        let fed = if self.encryption().is_none() { program.fed(step) } else { Vec::new() };
        let dealt = fed.into_iter().map(|(operator, _)| program.operators[operator].output_size());
        elements + 8 * samples * dealt.sum::<usize>()
    }

    /// What a client encrypts again at a step, for `samples` of them.
    fn upload_len(&self, step: usize, samples: usize) -> Option<usize> {
        let (vectors, elements) = slots_of(self, step, samples);
        let slots = 8 + EncryptedSlots::encoded_len(&self.encryption()?.parameters, elements);
        let batches =
            self.program().steps[step].feeds().and_then(|operator| self.batches_len(operator, samples));
        Some(8 + batches.unwrap_or(0) + vectors * slots)
    }
}
