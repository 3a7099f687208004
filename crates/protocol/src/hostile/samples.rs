//! A fixed message of every kind, and faults that its reader must refuse.

use secsv_algebra::Seed;
use secsv_federation::{Coalition, RoundId, SampleSet};
use secsv_he::linear::{BlockShape, MatrixMethod};

use crate::{
    Agreement, CodecError,
    message::*,
    precision::Ranges,
    test_id::{RequestId, TestId},
};

/// A fixed message, its decoder, and faults.
pub struct Sample {
    /// The kind's name and, where there are several, which.
    pub name: String,
    /// The kind.
    pub kind: Kind,
    /// The encoding.
    pub honest: Vec<u8>,
    /// Decodes, and encodes again.
    pub decode: fn(&[u8]) -> Result<Vec<u8>, CodecError>,
    /// Faults that are refused, by name.
    pub bad: Vec<(&'static str, Vec<u8>)>,
}

/// A change to an honest encoding.
type Rejection = (&'static str, fn(&mut Vec<u8>));

/// Takes the last byte away.
fn cut(bytes: &mut Vec<u8>) {
    bytes.pop();
}

/// Content of one length.
const EXACT: &[Rejection] = &[("cut", cut), ("empty", Vec::clear), ("trailing", |bytes| bytes.push(0))];
/// Content that ends with bytes of any length: the session says how many.
const HEAD: &[Rejection] = &[("head cut", |bytes| bytes.truncate(3))];
/// Content that ends with a list.
const LIST: &[Rejection] =
    &[("cut", cut), ("trailing", |bytes| bytes.push(0)), ("head cut", |bytes| bytes.truncate(3))];
/// A group and a step that no writer writes.
const ADDRESS: &[Rejection] =
    &[("group", |bytes| bytes[8..10].fill(0xff)), ("chunk", |bytes| bytes[16..20].fill(0xff))];
/// Content of any length: what it is made of is checked by whoever decodes it.
const FREE: &[Rejection] = &[];

fn sample<'a, M: Message<'a>>(
    which: &str,
    message: &M,
    decode: fn(&[u8]) -> Result<Vec<u8>, CodecError>,
    faults: &[&[Rejection]],
) -> Sample {
    let honest = message.encode();
    let damaged = |fault: fn(&mut Vec<u8>)| {
        let mut bytes = honest.clone();
        fault(&mut bytes);
        bytes
    };
    let bad = faults.iter().flat_map(|faults| faults.iter()).map(|(name, fault)| (*name, damaged(*fault)));
    let bad = bad.collect();
    Sample { name: format!("{}{which}", M::KIND.name()), kind: M::KIND, honest, decode, bad }
}

/// A sample: which, the type, the reader's context, the faults, the value.
macro_rules! sample {
    ($which:literal, $type:ident, $context:expr, $faults:expr, $fields:tt) => {
        sample(
            $which,
            &message!($type, $fields),
            |bytes| $type::decode(bytes, &$context).map(|message| message.encode()),
            $faults,
        )
    };
}

macro_rules! message {
    ($type:ident, { $($field:ident: $value:expr),* $(,)? }) => {
        $type { $($field: $value),* }
    };
}

fn address() -> StepAddress {
    StepAddress {
        unit: UnitId { test: TestId::first(9u32), group: 1, part: UnitPart::Decryptor(2) },
        step: 2,
        item: 1,
        chunk: 3,
    }
}

fn seed(of: u8) -> Seed {
    Seed::from_bytes([of; 32])
}

fn parts() -> Parts<'static> {
    Parts(vec![&[1, 2, 3], &[], &[4]])
}

fn set() -> SampleSet {
    let mut samples = SampleSet::none(21);
    [0, 3, 20].into_iter().for_each(|sample| samples.insert(sample));
    samples
}

fn hello(samples: u64) -> ClientHello {
    let ranges = Ranges { norms: vec![3, 0], inputs: vec![-2, 64], outputs: vec![5, -16] };
    ClientHello {
        samples,
        ranges,
        public_key: vec![7; 32],
        accepts_few: false,
        agreement: Agreement { labels: 20, equal: 19 },
    }
}

fn plan() -> TestPlan {
    let unit = |group, gru, dealer: Option<usize>| UnitPlan {
        group,
        part: UnitPart::Decryptor(3),
        coalitions: vec![Coalition::from_bits(0b1011), Coalition::from_bits(0b11)],
        samples: set(),
        gathered: dealer.map(|_| set()),
        chain: vec![1, 2],
        gru,
        dealer,
        counter: None,
    };
    let units = vec![unit(0, None, None), unit(1, Some(GruDecryptors { resharer: 2, gates: 3 }), Some(1))];
    TestPlan { test: TestId::first(5u32), round: RoundId(2), units }
}

fn recount() -> Recount {
    let mut counted = Recount::default();
    counted.add((RoundId(1), Coalition::first(2)), Counted { tested: 5, right: 3 });
    counted.add((RoundId(2), Coalition::EMPTY), Counted { tested: 5, right: 0 });
    counted.disputed.extend([1, 4]);
    counted
}

const SHAPE: ProposalShape = ProposalShape { clients: 2, operators: 2, is_encrypted: true };

/// A fixed message of every kind; of shares one to each server.
pub fn samples() -> Vec<Sample> {
    [agreement(), keys(), uploads(), tests(), layers(), shares(), labels(), blind(), results()]
        .into_iter()
        .flatten()
        .collect()
}

fn agreement() -> Vec<Sample> {
    let methods =
        vec![MatrixMethod::Packed(BlockShape { rows: 1, columns: 3, samples: 2 }), MatrixMethod::Squaring];
    let proposal = SessionProposal { leader: 1, hellos: vec![hello(4), hello(0)], rounds: 3, methods };
    let many: &[Rejection] = &[
        ("samples", |bytes| bytes[..8].fill(0xff)),
        ("layers", |bytes| bytes[8] = 3),
        ("range", |bytes| bytes[10] = 65),
    ];
    vec![
        sample("", &hello(12), |bytes| ClientHello::decode(bytes, &2).map(|m| m.encode()), &[EXACT, many]),
        sample(
            "",
            &proposal,
            |bytes| SessionProposal::decode(bytes, &SHAPE).map(|m| m.encode()),
            &[
                EXACT,
                &[
                    ("leader", |bytes| bytes[0] = 2),
                    ("method", |bytes| bytes.iter_mut().rev().skip(12).take(1).for_each(|kind| *kind = 3)),
                ],
            ],
        ),
        sample!("", RoundStart, (), &[EXACT], { round: RoundId(7) }),
    ]
}

fn keys() -> Vec<Sample> {
    let number: &[Rejection] = &[("client", |bytes| bytes[..2].fill(0xff))];
    vec![
        sample!("", ServerKeys, (), &[FREE], { public: &[1; 20] }),
        sample!("", EvaluationKeys, (), &[EXACT], { public: &[1; 20], evaluation: &[2; 30] }),
        sample!("", SealedClientKeys, (), &[EXACT, number], { client: 3, envelope: &[6; 112] }),
        sample!("", ServerPublicKey, (), &[FREE], { public: &[1; 20] }),
        sample!("", PublicKeyDigest, (), &[EXACT], { digest: [5; 32] }),
        sample!("", MaskSeed, (), &[EXACT], { seed: seed(1) }),
        sample!("", CommonSeed, (), &[EXACT], { seed: seed(2) }),
        sample!("", ModelMaskSeed, (), &[EXACT], { seed: seed(4) }),
    ]
}

fn uploads() -> Vec<Sample> {
    let (principal, auxiliary) = (|| ShareBody::Seed(seed(3)), || ShareBody::Elements(&[8; 10]));
    vec![
        sample!(" to principal", DataShare, Server::Principal, &[EXACT], { share: principal() }),
        sample!(" to auxiliary", DataShare, Server::Auxiliary, &[FREE], { share: auxiliary() }),
        sample!("", EncryptedData, (), &[LIST, &[("chunk", |bytes| bytes[..4].fill(0xff))]], { chunk: 2, batches: parts() }),
        sample!("", Model, (), &[LIST, &[("parts", |bytes| bytes[4] = 9)]], { round: RoundId(2), layers: parts() }),
        sample!(" to principal", ModelShare, Server::Principal, &[EXACT], { round: RoundId(2), share: principal() }),
        sample!(" to auxiliary", ModelShare, Server::Auxiliary, &[HEAD], { round: RoundId(2), share: auxiliary() }),
        sample!("", DealtProduct, (), &[HEAD], { round: RoundId(2), elements: &[8; 10] }),
    ]
}

fn tests() -> Vec<Sample> {
    let models = || vec![(Coalition::first(2), set()), (Coalition::EMPTY, SampleSet::all(9))];
    let rounds: &[Rejection] = &[("rounds", |bytes| bytes[16] = 9)];
    let flags: &[Rejection] = &[
        ("units", |bytes| bytes[12..20].fill(0xff)),
        ("counting client", |bytes| {
            if let Some(last) = bytes.last_mut() {
                *last = 2;
            }
        }),
    ];
    vec![
        sample("", &plan(), |bytes| TestPlan::decode(bytes, &()).map(|m| m.encode()), &[EXACT, flags]),
        sample!("", OwnTest, (), &[EXACT, rounds], { request: RequestId::from(4), rounds: vec![RoundId(1), RoundId(2)], models: models() }),
        sample!("", TestFinished, (), &[EXACT], { test: TestId::first(4u32) }),
        sample!("", RoundFinished, (), &[EXACT], { round: RoundId(4) }),
    ]
}

fn layers() -> Vec<Sample> {
    let batch: &[Rejection] = &[("first-layer batch", |bytes| bytes[4] = 2)];
    let gathered = FirstLayerBatchId::Gathered([4; 32]);
    vec![
        sample!(" of all samples", FirstLayerHalf, (), &[LIST, batch], { round: RoundId(1), batch: FirstLayerBatchId::All, chunk: 3, ciphertexts: parts() }),
        sample!(" of gathered samples", FirstLayerHalf, (), &[LIST], { round: RoundId(1), batch: gathered, chunk: 3, ciphertexts: parts() }),
        sample!("", LayerHalf, (), &[LIST, ADDRESS], { address: address(), ciphertexts: parts() }),
        sample!("", OutputReply, (), &[LIST, ADDRESS], { address: address(), replies: parts() }),
        sample!("", EncryptedActivations, (), &[LIST, ADDRESS], { address: address(), parts: parts() }),
        sample!("", MaskedFactors, (), &[HEAD, ADDRESS], { address: address(), elements: &[8; 10] }),
        sample!("", MaskedLayer, (), &[HEAD, ADDRESS], { address: address(), elements: &[8; 10] }),
        sample!("", OutputShare, (), &[HEAD, ADDRESS], { address: address(), elements: &[8; 10] }),
        sample!("", MaskedFirstLayer, (), &[HEAD, &[("owner", |bytes| bytes[4..6].fill(0xff))]], { round: RoundId(1), owner: 2, elements: &[8; 10] }),
    ]
}

fn shares() -> Vec<Sample> {
    let (principal, auxiliary) = (ShareBody::Seed(seed(3)), ShareBody::Elements(&[8; 10]));
    vec![
        sample!(" to principal", ActivationShare, Server::Principal, &[EXACT, ADDRESS], { address: address(), share: principal }),
        sample!(" to auxiliary", ActivationShare, Server::Auxiliary, &[HEAD, ADDRESS], { address: address(), share: auxiliary }),
        sample!(" to principal", TripleShare, Server::Principal, &[EXACT, ADDRESS], { address: address(), seed: seed(5), product: None }),
        sample!(" to auxiliary", TripleShare, Server::Auxiliary, &[HEAD, ADDRESS], { address: address(), seed: seed(5), product: Some(&[8; 10]) }),
    ]
}

fn labels() -> Vec<Sample> {
    let principal = || LabelBody::Seed(seed(3));
    let auxiliary = || LabelBody::Committed { commitment: [9; 32], labels: &[0b1010] };
    let commitment: &[Rejection] = &[("commitment", |bytes| bytes.truncate(51))];
    let seeds: &[Rejection] = &[("cut", cut), ("trailing", |bytes| bytes.push(0))];
    vec![
        sample!(" to principal", LabelShare, Server::Principal, &[EXACT, ADDRESS], { address: address(), share: principal() }),
        sample!(" to auxiliary", LabelShare, Server::Auxiliary, &[HEAD, ADDRESS, commitment], { address: address(), share: auxiliary() }),
        sample!(" to principal", PredictionShare, Server::Principal, &[EXACT, ADDRESS], { address: address(), share: principal() }),
        sample!(" to auxiliary", PredictionShare, Server::Auxiliary, &[HEAD, ADDRESS, commitment], { address: address(), share: auxiliary() }),
        sample!("", EncryptedLabels, (), &[HEAD, ADDRESS], { address: address(), slots: &[8; 10] }),
        sample!("", EncryptedPredictions, (), &[HEAD, ADDRESS], { address: address(), slots: &[8; 10] }),
        sample!("", DifferenceShare, (), &[HEAD, ADDRESS], { address: address(), labels: &[0b1010] }),
        sample!("", OpenedSeeds, (), &[HEAD, ADDRESS, seeds], { address: address(), seeds: vec![seed(1), seed(2)] }),
        sample!("", BlindedDifferences, (), &[LIST, ADDRESS], { address: address(), replies: parts() }),
    ]
}

fn blind() -> Vec<Sample> {
    let request = || RequestId::from(4);
    let coalitions = || vec![Coalition::first(2), Coalition::EMPTY];
    let many: &[Rejection] = &[("coalitions", |bytes| bytes[12..20].fill(0xff))];
    let number: &[Rejection] = &[("test", |bytes| bytes[..8].fill(0xff))];
    let owner: &[Rejection] = &[("owner", |bytes| bytes[8..10].fill(0xff))];
    vec![
        sample!("", MaskedModel, (), &[HEAD], { round: RoundId(2), elements: &[8; 10] }),
        sample!("", BlindTest, (), &[EXACT, many, number], { request: request(), round: RoundId(2), coalitions: coalitions(), samples: None }),
        sample!("-of-some-samples", BlindTest, (), &[EXACT, number], { request: request(), round: RoundId(2), coalitions: coalitions(), samples: Some(set()) }),
        sample!("", Dealing, (), &[HEAD, number], { request: request(), dealt: &[8; 10] }),
        sample!("", MaskedOpening, (), &[HEAD, number, owner], { request: request(), owner: 2, stage: 1, masked: &[8; 10] }),
        sample!("", OutcomeShare, (), &[HEAD, number], { request: request(), found: &[8; 10] }),
    ]
}

fn results() -> Vec<Sample> {
    let counts: &[Rejection] = &[("more right than tested", |bytes| bytes[44] = 9)];
    let padding: &[Rejection] = &[("samples", |bytes| bytes[18] = 0xff)];
    vec![
        sample!("", OwnResult, 2, &[EXACT, padding], { request: RequestId::from(4), right: vec![set(), SampleSet::all(21)] }),
        sample!("", OwnResultCounts, 2, &[EXACT], { request: RequestId::from(4), right: vec![3, 0] }),
        sample!("", OwnCount, (), &[EXACT, counts], { request: RequestId::from(4), counted: recount() }),
        sample!("", Count, (), &[EXACT, ADDRESS], { address: address(), right: 5 }),
        sample!("", PublishedResult, (), &[FREE], { values: b"values" }),
    ]
}
