//! Parties that do not keep to the protocol, among others that do: a leader whose public key hides nothing, a principal that opens false
//! seeds. Roles run one message after the other; what a party sends may be changed on its way, as if it had sent that.

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, VecDeque},
        path::Path,
        sync::Arc,
    };

    use secsv_federation::{
        Architecture, ClientId, ClientSpec, Coalition, FederationSpec, LayerSpec, ModelSpec, RoundId,
        SampleSet, Tensor, TestSet, WeightedMean, Weights,
    };
    use secsv_protocol::{
        Auxiliary, Client, ClientInput, Counted, EnvelopeKeys, Error, KeyDefect, PartyId, Preset, Principal,
        Seed, TestRequest, TestResult,
        decryptors::Protocol,
        message::Kind,
        role::{Effects, Incoming, Meter, Outgoing, Phase, Probe, Role},
        session::{Federation, Matmul, Settings, typical_costs},
    };

    const CLIENTS: usize = 4;
    const FEATURES: usize = 3;
    const SAMPLES: usize = 5;

    fn number(place: usize) -> f32 {
        let word = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (word >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn federation(protocol: Protocol) -> Arc<Federation> {
        federation_of(protocol, 1)
    }

    /// Names of the layers' weights.
    const LAYERS: [&str; 2] = ["a", "b"];

    /// So many numbers go into a layer.
    fn width(layer: usize) -> usize {
        if layer == 0 { FEATURES } else { 2 }
    }

    /// A federation whose model has so many layers.
    fn federation_of(protocol: Protocol, depth: usize) -> Arc<Federation> {
        let linear = |name: &&str| LayerSpec::Linear { weight: (*name).into(), bias: None };
        let mut layers: Vec<_> = LAYERS[..depth].iter().map(linear).collect();
        if depth > 1 {
            layers.insert(1, LayerSpec::Relu {});
        }
        let model = ModelSpec::new(vec![FEATURES], 2, layers);
        let client = |i: usize| {
            let id = ClientId::new(format!("c{i}")).unwrap();
            ClientSpec::new(id, 10.0)
        };
        let clients = (0..CLIENTS).map(client).collect();
        let spec = FederationSpec::new("test".into(), 1, model.clone(), clients);
        let shapes = (0..depth).map(|i| (LAYERS[i].to_owned(), vec![2, width(i)])).collect();
        let architecture = Architecture::new(&model, &shapes, Path::new("a"), Path::new("a")).unwrap();
        let (preset, matmul) = match protocol {
            Protocol::Hesv => (Preset::Standard, Matmul::Squaring),
            _ => (Preset::Compact, Matmul::Packed),
        };
        let settings = Settings {
            protocol,
            preset,
            matmul,
            always_skips: false,
            whole_rounds: false,
            hidden: Default::default(),
            by_class: false,
        };
        Arc::new(Federation::new(&spec, &architecture, |_| Coalition::first(CLIENTS), settings).unwrap())
    }

    fn weights(seed: usize, depth: usize) -> Weights {
        let layer = |layer: usize| {
            let values = (0..2 * width(layer)).map(|i| number(seed * 100 + layer * 50 + i)).collect();
            (LAYERS[layer].to_owned(), Tensor::new(vec![2, width(layer)], values).unwrap())
        };
        Weights::from_iter((0..depth).map(layer))
    }

    fn input(position: usize, depth: usize) -> ClientInput {
        let weights = |seed| weights(seed, depth);
        let mut mean = WeightedMean::new();
        (0..CLIENTS).for_each(|i| mean.add(&weights(i), 10.0));
        let features = (0..FEATURES * SAMPLES).map(|k| number(7000 + position * 500 + k)).collect();
        let labels = (0..SAMPLES).map(|k| i64::from(number(position * 77 + k) > 0.0)).collect();
        ClientInput {
            accepts_few: true,
            test_set: TestSet::new(vec![FEATURES], features, labels).unwrap(),
            local: BTreeMap::from([(RoundId(1), weights(position))]),
            global: BTreeMap::from([(RoundId(1), mean.finish_single().unwrap())]),
            initial: weights(99),
        }
    }

    struct Blind;

    impl Probe for Blind {
        fn enter(&mut self, _: Phase) {}
    }

    /// Does everything that follows, at once.
    fn settle<R: Role>(role: &mut R, effects: Effects<R>) -> Result<Vec<Outgoing>, Error> {
        let Effects { mut outbox, jobs } = effects;
        for job in jobs {
            let next = job(&mut Meter::new(&mut Blind))?;
            let effects = next(role)?;
            outbox.extend(settle(role, effects)?);
        }
        Ok(outbox)
    }

    /// What a sender's message becomes.
    type Tamper<'a> = Box<dyn FnMut(PartyId, &mut Outgoing) + 'a>;

    struct Room<'a> {
        principal: Principal,
        auxiliary: Auxiliary,
        clients: Vec<Client>,
        mail: VecDeque<(PartyId, Outgoing)>,
        tamper: Tamper<'a>,
        sent: Vec<(PartyId, Kind)>,
        failed: BTreeMap<PartyId, Error>,
    }

    fn seed(of: u8) -> Seed {
        Seed::from_bytes([of; 32])
    }

    fn client(federation: &Arc<Federation>, position: usize, randomness: u8) -> Client {
        let keys = EnvelopeKeys::derive(&seed(100 + position as u8));
        let input = input(position, federation.program.operators.len());
        Client::with_envelope_keys(federation.clone(), position, input, seed(randomness), keys)
    }

    impl<'a> Room<'a> {
        fn new(federation: &Arc<Federation>, tamper: Tamper<'a>) -> Self {
            let costs = Some(typical_costs(federation.settings.preset));
            let mut room = Self {
                principal: Principal::new(federation.clone(), costs, seed(1)),
                auxiliary: Auxiliary::new(federation.clone(), seed(2)),
                clients: (0..CLIENTS).map(|i| client(federation, i, 10 + i as u8)).collect(),
                mail: VecDeque::new(),
                tamper,
                sent: Vec::new(),
                failed: BTreeMap::new(),
            };
            for i in 0..CLIENTS {
                let effects = room.clients[i].start();
                let outbox = settle(&mut room.clients[i], effects);
                room.post(PartyId::Client(i), outbox);
            }
            room
        }

        fn post(&mut self, from: PartyId, outbox: Result<Vec<Outgoing>, Error>) {
            match outbox {
                Ok(outbox) => {
                    for mut message in outbox {
                        (self.tamper)(from, &mut message);
                        self.sent.push((from, message.kind));
                        self.mail.push_back((from, message));
                    }
                }
                Err(error) => drop(self.failed.insert(from, error)),
            }
        }

        /// Until nothing moves.
        fn run(&mut self) {
            while !self.mail.is_empty() {
                self.deliver_first();
            }
        }

        /// Delivers the first message. A party that has failed is gone.
        fn deliver_first(&mut self) {
            if let Some((from, Outgoing { to, kind, content })) = self.mail.pop_front() {
                if self.failed.contains_key(&to) {
                    return;
                }
                let content = content.to_vec();
                fn take<R: Role>(
                    role: &mut R,
                    from: PartyId,
                    kind: Kind,
                    content: Vec<u8>,
                ) -> Result<Vec<Outgoing>, Error> {
                    let effects = role.handle(Incoming::new(from, kind, content))?;
                    settle(role, effects)
                }
                let outbox = match to {
                    PartyId::Principal => take(&mut self.principal, from, kind, content),
                    PartyId::Auxiliary => take(&mut self.auxiliary, from, kind, content),
                    PartyId::Client(i) => take(&mut self.clients[i], from, kind, content),
                };
                self.post(to, outbox);
            }
        }

        fn ask(&mut self, coalition: Coalition) {
            let samples = SampleSet::all(CLIENTS * SAMPLES);
            let request = TestRequest::new(RoundId(1), coalition, samples);
            let (_, effects) = self.principal.request(request).unwrap();
            let outbox = settle(&mut self.principal, effects);
            self.post(PartyId::Principal, outbox);
        }

        /// Whether a client has sent anything of its models, samples or labels.
        fn has_shared(&self, client: usize) -> bool {
            let tells =
                |kind: &Kind| !matches!(kind, Kind::ClientHello | Kind::ServerKeys | Kind::SealedClientKeys);
            self.sent.iter().any(|(from, kind)| *from == PartyId::Client(client) && tells(kind))
        }
    }

    /// The first part of a public key, which stands at its end: everything behind its head and the seed of the second part.
    fn first_part(content: &mut [u8]) -> &mut [u8] {
        // Whole bytes for any number of limbs of 54 or 55 bits.
        let (head, degree) = (content.len() % 512, content.len());
        assert!(head < degree);
        &mut content[head..]
    }

    fn changed(message: &mut Outgoing, change: impl FnOnce(&mut [u8])) {
        let mut content = message.content.to_vec();
        change(&mut content);
        message.content = Arc::new(content);
    }

    fn expect_refusal(room: &Room<'_>, leader: usize, why: KeyDefect) {
        let leader_id = PartyId::Client(leader);
        for i in (0..CLIENTS).filter(|&i| i != leader) {
            assert_eq!(room.failed.get(&PartyId::Client(i)), Some(&Error::BadKey { leader: leader_id, why }));
            assert!(!room.has_shared(i), "client {i} has shared something");
        }
        let words = room.failed.values().next().unwrap().to_string();
        assert!(words.contains(&leader_id.to_string()) && words.contains("nothing was shared"), "{words}");
    }

    #[test]
    fn nobody_shares_anything_under_a_public_key_that_hides_nothing() {
        let federation = federation(Protocol::SecSv);
        let leader = federation.leader();
        let is_key = move |from, message: &Outgoing| {
            from == PartyId::Client(leader) && message.kind == Kind::ServerKeys
        };
        // A first part of zero: what servers add their masks to would leave them as it is.
        let mut room = Room::new(
            &federation,
            Box::new(|from, message| {
                if is_key(from, message) {
                    changed(message, |content| first_part(content).fill(0));
                }
            }),
        );
        room.ask(Coalition::first(2));
        room.run();
        expect_refusal(&room, leader, KeyDefect::Another);
        // A random one.
        let mut room = Room::new(
            &federation,
            Box::new(|from, message| {
                if is_key(from, message) {
                    changed(message, |content| {
                        let random = blake3::Hasher::new().finalize_xof();
                        let mut random = random;
                        random.fill(first_part(content));
                    });
                }
            }),
        );
        room.ask(Coalition::first(2));
        room.run();
        expect_refusal(&room, leader, KeyDefect::Another);
        // An honest one for the principal, another one for the auxiliary.
        let mut room = Room::new(
            &federation,
            Box::new(|from, message| {
                if is_key(from, message) && message.to == PartyId::Auxiliary {
                    changed(message, |content| first_part(content).fill(0));
                }
            }),
        );
        room.ask(Coalition::first(2));
        room.run();
        expect_refusal(&room, leader, KeyDefect::Different);
    }

    /// The leader gives one client another key than the others: that one shares nothing. The others' key is good.
    #[test]
    fn whoever_got_another_key_shares_nothing() {
        for protocol in [Protocol::SecSv, Protocol::Hesv] {
            let federation = federation(protocol);
            let leader = federation.leader();
            let deceived = (leader + 1) % CLIENTS;
            // The same leader with other randomness: it seals another key.
            let mut other = client(&federation, leader, 200);
            let effects = other.start();
            settle(&mut other, effects).unwrap();
            let mut envelope = None;
            let mut room = Room::new(
                &federation,
                Box::new(|from, message| {
                    if from == PartyId::Principal
                        && message.kind == Kind::Session
                        && message.to == PartyId::Client(leader)
                    {
                        let effects = other
                            .handle(Incoming::new(from, Kind::Session, message.content.to_vec()))
                            .unwrap();
                        let outbox = settle(&mut other, effects).unwrap();
                        let to = (deceived as u16).to_le_bytes();
                        envelope = outbox
                            .into_iter()
                            .find(|m| m.kind == Kind::SealedClientKeys && m.content.starts_with(&to))
                            .map(|m| m.content);
                    }
                    let is_envelope =
                        message.kind == Kind::SealedClientKeys && from == PartyId::Client(leader);
                    if is_envelope && message.content.starts_with(&(deceived as u16).to_le_bytes()) {
                        message.content = envelope.clone().unwrap();
                    }
                }),
            );
            room.ask(Coalition::first(2));
            room.run();
            let why = KeyDefect::Another;
            let refused = Error::BadKey { leader: PartyId::Client(leader), why };
            assert_eq!(room.failed.get(&PartyId::Client(deceived)), Some(&refused), "{protocol:?}");
            assert!(!room.has_shared(deceived));
            assert_eq!(room.failed.len(), 1);
        }
    }

    fn run_test(protocol: Protocol, tamper: Tamper<'_>) -> (Vec<TestResult>, secsv_protocol::Recount) {
        let federation = federation(protocol);
        let mut room = Room::new(&federation, tamper);
        room.ask(Coalition::first(2));
        room.run();
        assert!(room.failed.is_empty(), "{:?}", room.failed);
        let results = room.principal.take_results();
        let [(_, found)] = &results[..] else { panic!("one test") };
        (found.clone(), room.auxiliary.recount())
    }

    /// What the auxiliary counts is what the principal found; if the principal opens another seed, it is not counted and the client
    /// whose seed it should be is named.
    #[test]
    fn the_auxiliary_counts_for_itself_and_false_seeds_are_disputed() {
        for protocol in [Protocol::SecSv, Protocol::SecretSv] {
            let (found, recount) = run_test(protocol, Box::new(|_, _| {}));
            let right = found[0].correct;
            assert!((1..CLIENTS * SAMPLES).contains(&right), "{right}");
            let counted = recount.counts[&(RoundId(1), Coalition::first(2))];
            assert_eq!(counted, Counted { tested: CLIENTS * SAMPLES, right });
            assert!(recount.disputed.is_empty());
            let mut opened = 0;
            let (again, recount) = run_test(
                protocol,
                Box::new(|_, message| {
                    if message.kind == Kind::OpenedSeeds {
                        opened += 1;
                        changed(message, |content| *content.last_mut().unwrap() ^= 1);
                    }
                }),
            );
            assert_eq!(again, found);
            assert!(opened > 0 && !recount.disputed.is_empty());
            let counted = recount.counts.get(&(RoundId(1), Coalition::first(2)));
            assert!(counted.is_none_or(|counted| counted.tested < CLIENTS * SAMPLES));
        }
    }

    /// The principal begins when it has everybody's seed. A client that kept the auxiliary's to itself is refused there when it shares
    /// something, and the auxiliary goes on.
    #[test]
    fn whoever_kept_its_seed_from_the_auxiliary_harms_itself_alone() {
        let federation = federation_of(Protocol::SecretSv, 2);
        let mut shared = 0;
        for silent in 0..CLIENTS {
            let id = PartyId::Client(silent);
            let mut room = Room::new(
                &federation,
                Box::new(move |from, message| {
                    let is_seed = from == id && message.kind == Kind::MaskSeed;
                    if is_seed && message.to == PartyId::Auxiliary {
                        // It has one of this client already, and takes no other.
                        message.to = PartyId::Principal;
                    }
                }),
            );
            room.ask(Coalition::first(2));
            room.run();
            if let Some(error) = room.failed.remove(&PartyId::Auxiliary) {
                let (from, kind, _) = error.or_blamed().unwrap();
                assert_eq!((from, kind), (id, Kind::ActivationShare));
                shared += 1;
            }
            assert!(room.failed.is_empty(), "{:?}", room.failed);
        }
        assert!(shared > 0, "nobody has shared anything with the auxiliary");
    }

    /// A client that has its envelope refuses another, and with it everything that the principal says after it.
    #[test]
    fn an_envelope_is_sent_on_once_and_not_to_its_sender() {
        let federation = federation(Protocol::SecSv);
        let leader = PartyId::Client(federation.leader());
        let (note, noted) = std::sync::mpsc::channel();
        let mut room = Room::new(
            &federation,
            Box::new(move |from, message| {
                if from == leader && message.kind == Kind::SealedClientKeys {
                    note.send(message.content.to_vec()).unwrap();
                }
            }),
        );
        room.run();
        let envelopes: Vec<Vec<u8>> = noted.try_iter().collect();
        assert!(room.failed.is_empty() && envelopes.len() == CLIENTS - 1);
        let mut to_itself = envelopes[0].clone();
        to_itself[..2].copy_from_slice(&(federation.leader() as u16).to_le_bytes());
        for content in envelopes.into_iter().chain([to_itself]) {
            let again =
                room.principal.handle(Incoming::new(leader, Kind::SealedClientKeys, content)).map(drop);
            let (from, kind, _) = again.unwrap_err().or_blamed().unwrap();
            assert_eq!((from, kind), (leader, Kind::SealedClientKeys));
        }
    }

    /// Numbers that leave no format are the client's fault who says them, and the principal goes on.
    #[test]
    fn a_client_with_absurd_ranges_is_refused_and_the_run_goes_on() {
        for protocol in [Protocol::SecSv, Protocol::SecretSv, Protocol::Hesv] {
            let federation = federation(protocol);
            let (note, noted) = std::sync::mpsc::channel();
            let mut room = Room::new(
                &federation,
                Box::new(move |from, message| {
                    if from == PartyId::Client(2) && message.kind == Kind::ClientHello {
                        note.send(message.content.to_vec()).unwrap();
                    }
                }),
            );
            let mut principal = Principal::new(federation.clone(), None, Seed::from_bytes([1; 32]));
            room.run();
            let mut hello = noted.try_iter().next().unwrap();
            // Samples, the number of layers, and the first exponents: of norms and of inputs.
            hello[10..14].copy_from_slice(&64i32.to_le_bytes());
            hello[14..18].copy_from_slice(&64i32.to_le_bytes());
            let from = PartyId::Client(2);
            let refused = principal.handle(Incoming::new(from, Kind::ClientHello, hello)).map(drop);
            let refused = refused.unwrap_err();
            assert!(matches!(refused, Error::Ranges { .. }), "{refused}");
            assert_eq!(refused.or_blamed().unwrap().0, from);
            assert!(room.failed.is_empty());
        }
    }

    /// Hands a party something beside its mail. What it says to that.
    fn slip(room: &mut Room<'_>, to: PartyId, message: Incoming) -> Result<(), Error> {
        match to {
            PartyId::Principal => room.principal.handle(message).map(drop),
            PartyId::Auxiliary => room.auxiliary.handle(message).map(drop),
            PartyId::Client(i) => room.clients[i].handle(message).map(drop),
        }
    }

    /// Delivers all mail; `before` sees each message first.
    fn run_with(room: &mut Room<'_>, mut before: impl FnMut(&mut Room<'_>, PartyId, &Outgoing)) {
        while let Some((from, message)) = room.mail.front().cloned() {
            before(room, from, &message);
            room.deliver_first();
        }
    }

    /// What servers send each other about a unit has one address each: the same content for another chunk is refused at once, so no
    /// place is filled twice.
    #[test]
    fn a_place_of_a_unit_has_one_address() {
        // Test, group, part, step, item: the chunk stands behind them.
        const CHUNK: usize = 16;
        for (protocol, expected) in [
            (Protocol::SecSv, [Kind::LayerHalf, Kind::DifferenceShare, Kind::OpenedSeeds]),
            (Protocol::SecretSv, [Kind::MaskedLayer, Kind::DifferenceShare, Kind::OpenedSeeds]),
        ] {
            let federation = federation_of(protocol, 2);
            let mut room = Room::new(&federation, Box::new(|_, _| {}));
            room.ask(Coalition::first(2));
            let mut refused = Vec::new();
            run_with(&mut room, |room, from, message| {
                if expected.contains(&message.kind) {
                    let mut content = message.content.to_vec();
                    content[CHUNK] = 1;
                    let found = slip(room, message.to, Incoming::new(from, message.kind, content));
                    assert!(matches!(found, Err(Error::Malformed { .. })), "{}: {found:?}", message.kind);
                    refused.push(message.kind);
                }
            });
            assert!(expected.iter().all(|kind| refused.contains(kind)), "{refused:?}");
            assert!(room.failed.is_empty(), "{:?}", room.failed);
            assert_eq!(room.principal.take_results().len(), 1);
        }
    }

    /// A principal whose first proposal is refused has cost nobody what had come before: the right one begins the session.
    #[test]
    fn a_refused_proposal_loses_nothing_that_came_before() {
        let federation = federation(Protocol::SecSv);
        let mut room = Room::new(&federation, Box::new(|_, _| {}));
        room.ask(Coalition::first(2));
        run_with(&mut room, |room, from, message| {
            if message.kind == Kind::Session {
                let mut content = message.content.to_vec();
                content[0] ^= 1;
                let found = slip(room, message.to, Incoming::new(from, Kind::Session, content));
                assert!(matches!(found, Err(Error::Malformed { .. })), "another leader: {found:?}");
            }
            // Nobody takes values before there is a session.
            if let (Kind::Session, PartyId::Client(_)) = (message.kind, message.to) {
                let found = slip(room, message.to, Incoming::new(from, Kind::Values, vec![1]));
                assert!(matches!(found, Err(Error::Unexpected { .. })), "{found:?}");
            }
        });
        assert!(room.failed.is_empty(), "{:?}", room.failed);
        assert_eq!(room.principal.take_results().len(), 1);
    }

    /// Bytes that are no public key are refused when they come, as the principal's fault, and nobody else's.
    #[test]
    fn bytes_that_are_no_public_key_are_refused_when_they_come() {
        for protocol in [Protocol::SecSv, Protocol::Hesv] {
            let federation = federation(protocol);
            let mut room = Room::new(&federation, Box::new(|_, _| {}));
            room.ask(Coalition::first(2));
            run_with(&mut room, |room, from, message| {
                if message.kind == Kind::PublicKey {
                    let content = vec![0xff; message.content.len()];
                    let found = slip(room, message.to, Incoming::new(from, Kind::PublicKey, content));
                    assert!(matches!(found, Err(Error::Malformed { .. })), "{found:?}");
                }
            });
            assert!(room.failed.is_empty(), "{:?}", room.failed);
            assert_eq!(room.principal.take_results().len(), 1);
        }
    }
}
