//! What everybody knows, as `index.json` has it.

use std::collections::BTreeMap;

use secsv_federation::{Coalition, FederationSpec, ModelSpec, RoundId};
use secsv_protocol::{
    PartyId, Program,
    message::Kind,
    program::{DecryptorSlot, Input, Receive, SharedPart, Then},
    session::Session,
    views::{SeenStage, SeenSum, SeenTerm},
};
use serde::Serialize;

use super::PartyNames;

/// The format that is written.
const FORMAT: u32 = 1;

/// What everybody knows: protocol, rounds, model, number formats.
#[derive(Clone, Debug, Serialize)]
pub struct Index {
    /// Of this format.
    pub format: u32,
    /// The protocol.
    pub protocol: &'static str,
    /// The federation's name.
    pub federation: String,
    /// Clients, in order.
    pub clients: Vec<String>,
    /// Where each party's files are.
    pub parties: Vec<PartyEntry>,
    /// Samples by client.
    pub test_sizes: BTreeMap<String, u64>,
    /// The rounds.
    pub rounds: Vec<RoundEntry>,
    /// What shares of the training data are multiplied by.
    pub share_factor: f64,
    /// Rounds whose models are encrypted and tested together.
    pub stretches: Vec<Vec<RoundId>>,
    /// Owners whose samples share batches.
    pub groups: Vec<Vec<String>>,
    /// Who made the clients' common secrets.
    pub leader: String,
    /// The architecture.
    pub model: ModelSpec,
    /// What numbers are shared or encrypted modulo, in decimal digits.
    pub modulus: String,
    /// Bits of the field that shared labels are compared in; none where none are shared.
    pub label_bits: Option<u32>,
    /// Linear maps.
    pub operators: Vec<OperatorEntry>,
    /// Visits to decryptors.
    pub hops: Vec<HopEntry>,
    /// The recurrent unit.
    pub gru: Option<GruEntry>,
    /// What is added up under masks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sums: Vec<SumEntry>,
    /// What is opened under masks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageEntry>,
}

/// What is opened at a stage.
#[derive(Clone, Debug, Serialize)]
pub struct StageEntry {
    /// Its number.
    pub stage: usize,
    /// What an array of it holds.
    pub what: &'static str,
    /// The sum that it is, or is made of.
    pub sum: usize,
    /// Numbers of one sample.
    pub numbers: Option<usize>,
    /// Numbers are modulo two to this power.
    pub bits: Option<u32>,
}

/// A sum.
#[derive(Clone, Debug, Serialize)]
pub struct SumEntry {
    /// Its number.
    pub sum: usize,
    /// What is added up.
    pub terms: Vec<TermEntry>,
    /// Whether it is the same for all samples.
    pub of_model: bool,
}

/// A term of a sum.
#[derive(Clone, Debug, Serialize)]
pub struct TermEntry {
    /// What it is.
    pub what: &'static str,
    /// The operator.
    pub operator: Option<usize>,
    /// The values that it takes.
    pub values: Vec<usize>,
}

/// A party's directory.
#[derive(Clone, Debug, Serialize)]
pub struct PartyEntry {
    /// Its name in `from`.
    pub party: String,
    /// The client's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Its directory.
    pub directory: String,
}

/// One round.
#[derive(Clone, Debug, Serialize)]
pub struct RoundEntry {
    /// Its number.
    pub round: RoundId,
    /// Who took part.
    pub participants: Vec<String>,
    /// Their training samples.
    pub train_sizes: BTreeMap<String, f64>,
    /// What each multiplied its model by.
    pub shares: BTreeMap<String, f64>,
}

/// A linear map, and the formats of its numbers.
#[derive(Clone, Debug, Serialize)]
pub struct OperatorEntry {
    /// Its number.
    pub operator: usize,
    /// Tensor of the weights.
    pub weight: String,
    /// Tensor of the biases.
    pub bias: Option<String>,
    /// Outputs at one position.
    pub rows: usize,
    /// Inputs at one position.
    pub columns: usize,
    /// Positions of a sample.
    pub positions: usize,
    /// Whether rows are what the tensors' are above their last.
    pub above_last_class: bool,
    /// Fractional bits of the weights.
    pub weight_bits: u32,
    /// Fractional bits of the inputs.
    pub input_bits: u32,
    /// Fractional bits of outputs and biases.
    pub output_bits: u32,
    /// Its words are modulo two to this power, where each operator has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub word_bits: Option<u32>,
}

/// A visit to a decryptor.
#[derive(Clone, Debug, Serialize)]
pub struct HopEntry {
    /// Its number.
    pub hop: usize,
    /// Whose turn it is.
    pub seat: String,
    /// What it receives.
    pub receives: Vec<ReceiveEntry>,
    /// What it makes of it.
    pub then: &'static str,
    /// The operator that takes what is shared again.
    pub feeds: Option<usize>,
    /// What is shared again where it is for several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartEntry>,
}

/// What is shared for one layer.
#[derive(Clone, Debug, Serialize)]
pub struct PartEntry {
    /// Its number.
    pub item: usize,
    /// Numbers of one sample.
    pub numbers: usize,
    /// The operator that takes it; none: sums do.
    pub operator: Option<usize>,
}

/// One thing received at a hop.
#[derive(Clone, Debug, Serialize)]
pub struct ReceiveEntry {
    /// Its number.
    pub item: usize,
    /// What it is.
    pub what: &'static str,
    /// The operator.
    pub operator: Option<usize>,
    /// What the operator is applied to.
    pub input: Option<String>,
    /// The first position.
    pub first_position: Option<usize>,
    /// How many.
    pub positions: Option<usize>,
    /// Of a sum, hops and items of what was shared there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<Vec<(usize, usize)>>,
}

/// The recurrent unit.
#[derive(Clone, Debug, Serialize)]
pub struct GruEntry {
    /// Steps of a sample.
    pub steps: usize,
    /// Size of the hidden state.
    pub hidden: usize,
    /// The operator of the hidden gates.
    pub hidden_operator: usize,
    /// Fractional bits of z.
    pub gate_bits: u32,
    /// Fractional bits of u and of gated sums.
    pub update_bits: u32,
}

impl Index {
    pub(super) fn new(spec: &FederationSpec, session: &Session, names: &PartyNames) -> Self {
        let federation = &session.federation;
        let all = |coalition: Coalition| coalition.members().map(|i| names.client(i)).collect::<Vec<_>>();
        let protocol = federation.settings.protocol;
        let test_sizes = (0..).zip(&session.hellos).map(|(i, hello)| (names.client(i), hello.samples));
        Self {
            format: FORMAT,
            protocol: protocol.name(),
            federation: spec.name.clone(),
            clients: (0..federation.clients).map(|i| names.client(i)).collect(),
            parties: parties(federation.clients, names),
            test_sizes: test_sizes.collect(),
            rounds: federation.rounds.keys().map(|&round| round_entry(session, round, names)).collect(),
            share_factor: secsv_protocol::precision::shares(&[1.0]).iter().sum(),
            stretches: session.round_batches.values().cloned().collect(),
            groups: session.groups.iter().map(|group| all(group.owners)).collect(),
            leader: names.client(session.leader),
            model: spec.model.clone(),
            modulus: session.modulus().to_string(),
            label_bits: Kind::LabelShare.is_of(protocol).then(|| session.label_bits()),
            operators: operators(session),
            hops: hops(session.program()),
            gru: session.program().gru.map(|gru| GruEntry {
                steps: gru.steps,
                hidden: gru.hidden,
                hidden_operator: gru.hidden_operator,
                gate_bits: session.precision.gate.fractional_bits(),
                update_bits: session.precision.update.fractional_bits(),
            }),
            sums: session.seen_sums().into_iter().map(sum_entry).collect(),
            stages: session.seen_stages().into_iter().map(stage_entry).collect(),
        }
    }
}

fn sum_entry(sum: SeenSum) -> SumEntry {
    let term = |term: SeenTerm| {
        let SeenTerm { what, operator, values } = term;
        TermEntry { what, operator, values }
    };
    SumEntry { sum: sum.sum, terms: sum.terms.into_iter().map(term).collect(), of_model: sum.of_model }
}

fn stage_entry(stage: SeenStage) -> StageEntry {
    let SeenStage { stage, what, sum, numbers, bits } = stage;
    StageEntry { stage, what, sum, numbers, bits }
}

fn parties(clients: usize, names: &PartyNames) -> Vec<PartyEntry> {
    let all = [PartyId::Principal, PartyId::Auxiliary].into_iter().chain((0..clients).map(PartyId::Client));
    let entry = |party: PartyId| PartyEntry {
        party: names.party(party),
        client: match party {
            PartyId::Client(position) => Some(names.client(position)),
            _ => None,
        },
        directory: names.directory(party),
    };
    all.map(entry).collect()
}

fn round_entry(session: &Session, round: RoundId, names: &PartyNames) -> RoundEntry {
    let sizes = session.federation.rounds.get(&round).map_or(&[][..], |sizes| sizes);
    let present = || session.federation.participants(round).members();
    RoundEntry {
        round,
        participants: present().map(|i| names.client(i)).collect(),
        train_sizes: present().map(|i| (names.client(i), sizes.get(i).copied().unwrap_or(0.0))).collect(),
        shares: present().map(|i| (names.client(i), session.share(round, i))).collect(),
    }
}

fn operators(session: &Session) -> Vec<OperatorEntry> {
    let program = session.program();
    let formats = program.operators.iter().zip(&session.precision.operators).enumerate();
    let entry = |(operator, (map, format)): (usize, (&secsv_protocol::program::Operator, &_))| {
        let format: &secsv_protocol::precision::OperatorFormat = format;
        OperatorEntry {
            operator,
            weight: map.weight.clone(),
            bias: map.bias.clone(),
            rows: map.shape.d_out,
            columns: map.shape.d_in,
            positions: map.positions,
            above_last_class: map.is_compared(),
            weight_bits: format.weight.fractional_bits(),
            input_bits: format.input.fractional_bits(),
            output_bits: format.product_bits(),
            word_bits: session.word_bits(operator),
        }
    };
    formats.map(entry).collect()
}

fn hops(program: &Program) -> Vec<HopEntry> {
    let entry = |(hop, step): (usize, &secsv_protocol::program::DecryptionStep)| HopEntry {
        hop,
        seat: match step.slot {
            DecryptorSlot::Layer(place) => format!("layer {place}"),
            DecryptorSlot::Resharer => "re-sharer".to_owned(),
            DecryptorSlot::Gates => "gates".to_owned(),
        },
        receives: step.receives.iter().enumerate().map(receive).collect(),
        then: match step.then {
            Then::Activate { .. } => "activations",
            Then::FirstState { .. } | Then::State { .. } => "hidden state",
            Then::Gates { .. } => "gates",
            Then::Label(_) => "classes",
            Then::Parts(_) => "parts",
        },
        feeds: step.feeds(),
        parts: step.parts().iter().enumerate().map(part).collect(),
    };
    program.steps.iter().enumerate().map(entry).collect()
}

fn part((item, part): (usize, &SharedPart)) -> PartEntry {
    PartEntry { item, numbers: part.size, operator: part.operator }
}

fn receive((item, receive): (usize, &Receive)) -> ReceiveEntry {
    let (what, operator, input) = ("", None, None);
    let none = ReceiveEntry { item, what, operator, input, first_position: None, positions: None, sum: None };
    match *receive {
        Receive::Outputs { operator, input, first, count } => ReceiveEntry {
            what: "outputs",
            operator: Some(operator),
            input: Some(match input {
                Input::Data => "samples".to_owned(),
                Input::Step(hop) => format!("hop {hop}"),
            }),
            first_position: Some(first),
            positions: Some(count),
            ..none
        },
        Receive::Bias { operator } => ReceiveEntry { what: "biases", operator: Some(operator), ..none },
        Receive::Update { .. } => ReceiveEntry { what: "gated sum", ..none },
        Receive::Vector { operator } => ReceiveEntry { what: "batch norm", operator: Some(operator), ..none },
        Receive::Sum { ref parts } => ReceiveEntry { what: "sum", sum: Some(parts.clone()), ..none },
    }
}
