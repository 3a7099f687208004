//! Transcript equivalence of the linear layer, as in `equivalence_tests`: with other models, samples and labels a server reads the
//! same words, under streams that have one value each, and computes the same shares of scores. So all that it has of models and
//! samples says nothing about them. The shares of both servers still add up to the other world's scores.

use std::{cell::Cell, sync::Arc};

use secsv_algebra::{Prg, Ring64, Seed, Share};
use secsv_federation::{LayerSpec, ModelSpec, RoundId, Tensor, TestSet, Weights};
use secsv_he::Preset;

use super::{
    dealer::OwnerKeys,
    equivalence_tests::{choose_stream, forget_streams},
    keys::OwnerKey,
    layer::{
        LayerInput, ModelMasks, OwnerData, data_share, deal_product, masked_model, model_masks, sample_words,
        scores,
    },
    words::unpack,
};
use crate::{
    decryptors::Protocol,
    message::{ClientHello, Server},
    model::EncodedModel,
    precision::Ranges,
    session::{Agreed, BlindSession, Matmul, Session, Settings, tests::of_model},
};

const CLIENTS: usize = 3;
const ROUNDS: u32 = 2;
const INPUTS: usize = 3;
const CLASSES: usize = 3;
const SAMPLES: usize = 5;

/// A protection that is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// Masks of models are not named by the round, the client.
    MaskRound,
    MaskClient,
    /// Models have no mask of the other server's.
    NoMask,
    /// Streams of dealt products are not named by the round.
    ProductRound,
    /// Samples and labels have one stream.
    LabelsAsSamples,
    /// Products are dealt under the stream of the samples.
    ProductsAsSamples,
    /// All owners have one key.
    OneOwner,
}

thread_local! {
    static MUTATION: Cell<Mutation> = const { Cell::new(Mutation::None) };
}

/// Whose mask of which round it is, as a mutation has it.
pub(super) fn named_mask(round: RoundId, client: usize) -> (RoundId, usize) {
    match MUTATION.get() {
        Mutation::MaskRound => (RoundId(0), client),
        Mutation::MaskClient => (round, 0),
        _ => (round, client),
    }
}

/// The name of an owner's stream, as a mutation has it.
pub(super) fn named_stream(name: &str, index: u64) -> (&str, u64) {
    match (MUTATION.get(), name) {
        (Mutation::ProductRound, "products") => (name, 0),
        (Mutation::LabelsAsSamples, "labels") | (Mutation::ProductsAsSamples, "products") => ("samples", 0),
        _ => (name, index),
    }
}

/// A federation, its secrets, and what a world has in it.
struct World {
    session: BlindSession,
    masks: ModelMasks,
    keys: Vec<OwnerKeys>,
    models: Vec<Vec<Weights>>,
    samples: Vec<Share<Ring64>>,
    labels: Vec<Vec<usize>>,
}

fn session() -> BlindSession {
    let layers = vec![LayerSpec::Linear { weight: "w".into(), bias: Some("b".into()) }];
    let model = ModelSpec { input: vec![INPUTS], classes: CLASSES, layers };
    let settings = Settings {
        protocol: Protocol::BlindSv,
        preset: Preset::Standard,
        matmul: Matmul::Packed,
        always_skips: false,
        whole_rounds: true,
    };
    let shapes: [(&str, &[usize]); 2] = [("w", &[CLASSES, INPUTS]), ("b", &[CLASSES])];
    let federation = Arc::new(of_model(CLIENTS, ROUNDS, &model, &shapes, settings));
    let ranges = Ranges { norms: vec![5], inputs: vec![2] };
    let hello = ClientHello { samples: SAMPLES as u64, ranges, public_key: vec![1; 32], accepts_few: true };
    let session = Session::propose(&federation, federation.leader(), &vec![hello; CLIENTS], None).unwrap().0;
    let Agreed::BlindSv(session) = Arc::new(session).agreed() else { panic!("another protocol") };
    session
}

impl World {
    /// A world of random models, samples and labels. Keys are the same in all.
    fn new(number: u64) -> Self {
        let session = session();
        let draw = |name: &str, index: u64, count: usize| -> Vec<f32> {
            let mut words = vec![0; count];
            let seed = Seed::from_bytes([4; 32]).derive(name, index).derive("world", number);
            Prg::new(&seed).fill_words(&mut words);
            words.iter().map(|word| (*word as i64) as f32 / i64::MAX as f32).collect()
        };
        let model = |index: u64| {
            let mut weights = Weights::new();
            let tensor = |shape, values| Tensor::new(shape, values).unwrap();
            weights.insert("w", tensor(vec![CLASSES, INPUTS], draw("weight", index, CLASSES * INPUTS)));
            weights.insert("b", tensor(vec![CLASSES], draw("bias", index, CLASSES)));
            weights
        };
        let (rounds, clients) = (0..u64::from(ROUNDS), 0..CLIENTS as u64);
        let models = rounds.map(|round| clients.clone().map(|c| model(10 * round + c)).collect()).collect();
        let label = |word: f32| ((word + 1.0) * 50.0) as usize % CLASSES;
        let labels: Vec<Vec<usize>> =
            clients.clone().map(|c| draw("label", c, SAMPLES).into_iter().map(label).collect()).collect();
        let samples = clients.clone().zip(&labels).map(|(client, labels)| {
            let labels = labels.iter().map(|label| *label as i64).collect();
            let test_set = TestSet::new(vec![INPUTS], draw("sample", client, INPUTS * SAMPLES), labels);
            sample_words(&session, &test_set.unwrap()).unwrap()
        });
        let samples = samples.collect();
        let owner = |client: u64| if MUTATION.get() == Mutation::OneOwner { 0 } else { client };
        let key = |client, server| {
            OwnerKey::new(Seed::from_bytes([6; 32]).derive("owner", owner(client)).derive("server", server))
        };
        let keys = clients.map(|client| [0, 1].map(|server| key(client, server))).collect();
        let masks = model_masks(&Seed::from_bytes([5; 32]));
        Self { session, masks, keys, models, samples, labels }
    }

    fn models(&self) -> impl Iterator<Item = (RoundId, usize, &Weights)> {
        let rounds = (1..).map(RoundId).zip(&self.models);
        rounds.flat_map(|(round, models)| {
            models.iter().enumerate().map(move |(client, model)| (round, client, model))
        })
    }

    /// A model as words, without masks.
    fn plain(&self, round: RoundId, client: usize, weights: &Weights) -> Vec<u64> {
        let session = &self.session;
        let share = session.share(round, client);
        let model = EncodedModel::new(session.program(), &session.precision, Ring64, weights, share).unwrap();
        let operator = &model.operators[0];
        operator.weight.elements().iter().chain(&operator.bias).copied().collect()
    }

    /// What a server reads, in the order in which it is sent: models; at the auxiliary samples, labels and products too.
    fn read(&self, server: Server) -> Vec<Vec<u8>> {
        let masked =
            |(round, client, weights)| masked_model(&self.session, &self.masks, (round, client), weights);
        let mut read: Vec<Vec<u8>> = self.models().map(|model| masked(model).unwrap()).collect();
        if server == Server::Auxiliary {
            for owner in 0..CLIENTS {
                read.push(self.data(owner));
                read.extend((1..=ROUNDS).map(|round| self.product(RoundId(round), owner)));
            }
        }
        read
    }

    fn data(&self, owner: usize) -> Vec<u8> {
        data_share(&self.session, owner, &self.keys[owner][0], &self.samples[owner], &self.labels[owner])
    }

    fn product(&self, round: RoundId, owner: usize) -> Vec<u8> {
        let place = (round, owner);
        deal_product(&self.session, &self.keys[owner], &self.masks, place, &self.samples[owner]).unwrap()
    }

    /// A server's shares of all scores, by round and owner.
    fn shares(&self, server: Server) -> Vec<Vec<u64>> {
        let index = usize::from(server == Server::Auxiliary);
        let mut found = Vec::new();
        for round in (1..=ROUNDS).map(RoundId) {
            let models = self.models().filter(|(other, ..)| *other == round);
            let models: Vec<Arc<Vec<u8>>> = models
                .map(|(round, client, weights)| {
                    Arc::new(masked_model(&self.session, &self.masks, (round, client), weights).unwrap())
                })
                .collect();
            for owner in 0..CLIENTS {
                let (key, masks) = (&self.keys[owner][index], &self.masks[index]);
                let dealt = (server == Server::Auxiliary).then(|| self.product(round, owner));
                let data = match server {
                    Server::Principal => OwnerData::of_principal(&self.session, owner, key),
                    Server::Auxiliary => OwnerData::of_auxiliary(&self.session, owner, &self.data(owner)),
                };
                let input = LayerInput { server, masks, key, models: &models, dealt: dealt.as_deref() };
                let shares = scores(&self.session, (round, owner), &input, &data.unwrap()).unwrap();
                let mask = u64::MAX >> (u64::BITS - self.session.widths.word);
                found.push(shares.expose().iter().map(|share| share & mask).collect());
            }
        }
        found
    }

    /// Scores by plain integers, in the same order.
    fn scores(&self) -> Vec<Vec<u64>> {
        let mask = u64::MAX >> (u64::BITS - self.session.widths.word);
        let rows = self.session.program().operators[0].shape.d_out;
        let mut found = Vec::new();
        for round in (1..=ROUNDS).map(RoundId) {
            for samples in &self.samples {
                let mut of_owner = Vec::new();
                for (round, client, weights) in self.models().filter(|(other, ..)| *other == round) {
                    let model = self.plain(round, client, weights);
                    for row in 0..rows {
                        for sample in 0..SAMPLES {
                            let products = (0..INPUTS).map(|input| {
                                let feature = samples.expose().elements()[input * SAMPLES + sample];
                                model[row * INPUTS + input].wrapping_mul(feature)
                            });
                            let sum = products.fold(model[rows * INPUTS + row], u64::wrapping_add);
                            of_owner.push(sum & mask);
                        }
                    }
                }
                found.push(of_owner);
            }
        }
        found
    }
}

/// Differences of packed words.
fn differences(plain: &[u8], read: &[u8], bytes: usize) -> Vec<u64> {
    unpack(plain, bytes).zip(unpack(read, bytes)).map(|(plain, read)| plain.wrapping_sub(read)).collect()
}

/// Chooses the streams that a server does not know, such that it reads `recorded` in another world.
fn choose(world: &World, server: Server, recorded: &[Vec<u8>]) {
    let (session, bytes) = (&world.session, world.session.widths.bytes());
    let other = usize::from(server == Server::Principal);
    let mut recorded = recorded.iter();
    for (round, client, weights) in world.models() {
        let words = world.plain(round, client, weights).len();
        let (named_round, named_client) = named_mask(round, client);
        let seed =
            world.masks[other].derive("round", named_round.0.into()).derive("client", named_client as u64);
        choose_stream(&seed, vec![0; words]);
        let read = recorded.next().unwrap();
        if MUTATION.get() != Mutation::NoMask {
            let plain = masked_model(session, &world.masks, (round, client), weights).unwrap();
            choose_stream(&seed, differences(&plain, read, bytes));
        }
    }
    if server == Server::Principal {
        return;
    }
    for owner in 0..CLIENTS {
        let seed = |name: &str, index| {
            let (name, index) = named_stream(name, index);
            world.keys[owner][0].seed().derive(name, index)
        };
        let samples = INPUTS * SAMPLES;
        let data = recorded.next().unwrap();
        [seed("samples", 0), seed("labels", 0)].iter().for_each(|seed| choose_stream(seed, Vec::new()));
        let chosen = differences(&world.data(owner), data, bytes);
        choose_stream(&seed("samples", 0), chosen[..samples].to_vec());
        choose_stream(&seed("labels", 0), chosen[samples..].to_vec());
        for round in (1..=ROUNDS).map(RoundId) {
            let seed = seed("products", round.0.into());
            choose_stream(&seed, Vec::new());
            let chosen = differences(&world.product(round, owner), recorded.next().unwrap(), bytes);
            choose_stream(&seed, chosen);
        }
    }
}

/// Whether a server reads the same, and has the same shares of scores, in two worlds; and the shares of both servers add up to the
/// other world's scores.
fn is_equivalent(server: Server, mutation: Mutation) -> bool {
    MUTATION.set(mutation);
    forget_streams();
    let [first, second] = [1, 2].map(World::new);
    let other = usize::from(server == Server::Principal);
    if mutation == Mutation::NoMask {
        for (round, client, _) in first.models() {
            let seed = first.masks[other].derive("round", round.0.into()).derive("client", client as u64);
            choose_stream(&seed, Vec::new());
        }
    }
    let (read, shares) = (first.read(server), first.shares(server));
    choose(&second, server, &read);
    let is_same = second.read(server) == read && second.shares(server) == shares;
    let mask = u64::MAX >> (u64::BITS - second.session.widths.word);
    let [principal, auxiliary] = [Server::Principal, Server::Auxiliary].map(|server| second.shares(server));
    let sum = |(p, a): (Vec<u64>, Vec<u64>)| p.iter().zip(a).map(|(p, a)| p.wrapping_add(a) & mask).collect();
    let sums: Vec<Vec<u64>> = principal.into_iter().zip(auxiliary).map(sum).collect();
    let is_right = sums == second.scores();
    assert_ne!(first.scores(), second.scores());
    assert_ne!(first.labels, second.labels);
    forget_streams();
    MUTATION.set(Mutation::None);
    is_same && is_right
}

#[test]
fn a_server_reads_the_same_whatever_models_and_samples_are() {
    for server in [Server::Principal, Server::Auxiliary] {
        assert!(is_equivalent(server, Mutation::None), "{server:?}");
    }
}

#[test]
fn without_a_protection_of_the_layer_the_same_test_fails() {
    let at_both = [Mutation::MaskRound, Mutation::MaskClient, Mutation::NoMask];
    let at_auxiliary =
        [Mutation::ProductRound, Mutation::LabelsAsSamples, Mutation::ProductsAsSamples, Mutation::OneOwner];
    let servers = [Server::Principal, Server::Auxiliary];
    let at_both = servers.into_iter().flat_map(|server| at_both.map(|mutation| (server, mutation)));
    let all = at_both.chain(at_auxiliary.map(|mutation| (Server::Auxiliary, mutation)));
    for (server, mutation) in all {
        assert!(!is_equivalent(server, mutation), "{server:?}: {mutation:?}");
    }
}
