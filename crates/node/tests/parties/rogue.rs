//! A client with a valid kit that plays its part honestly in the end, and sends something else before each of its messages, and messages
//! that nobody waits for.

mod intrusion;

pub use intrusion::{State, Tally};

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use bytes::Bytes;
use secsv_evaluation::packet::Packet;
use secsv_federation::ClientId;
use secsv_node::kit::{Address, Kit};
use secsv_protocol::{
    Client, ClientInput, PartyId,
    decryptors::Protocol,
    message::Kind,
    role::{Effects, Incoming, Meter, Phase, Probe, Role as _},
};
use tokio::time::timeout;

use crate::{
    attacker::{Attack, bare, greeting, honest_tls, message},
    federation::{CLIENTS, Fixture},
    ideal::client_seed,
};

/// How long a refusal is waited for: a server that has not heard of the session does not look at a message.
const PATIENCE: Duration = Duration::from_secs(120);

struct Nobody;

impl Probe for Nobody {
    fn enter(&mut self, _: Phase) {}
}

/// What the client says before a message: to whom, which kind, the honest content, how many of the kind it has sent there, and how often it
/// has said something else before this one.
pub type Mischief<'a> = &'a dyn Fn(PartyId, Kind, &[u8], usize, usize) -> Option<(Kind, Vec<u8>)>;

/// One of its links.
struct Line {
    server: PartyId,
    address: Address,
    stream: Option<Attack>,
    /// Messages it has had from the server.
    received: u64,
    /// A message on its way: number, kind, length, content.
    current: Option<(Kind, u64, Vec<u8>)>,
    /// Everything it has said and the server has taken.
    sent: Vec<(Kind, Vec<u8>)>,
    /// What it said last and heard nothing of: the server may have taken it.
    doubtful: Option<(Kind, Vec<u8>)>,
    /// What was its to say, by kind: how often, and the last.
    honest: BTreeMap<Kind, (usize, Vec<u8>)>,
    is_over: bool,
}

impl Line {
    /// Dials unless it is connected, and says again what was not heard; whether it was let in.
    async fn connect(&mut self, kit: &Kit) -> bool {
        if self.stream.is_some() {
            return true;
        }
        let Ok(mut stream) = Attack::dial(&self.address, honest_tls(kit)).await else { return false };
        let mut own = greeting(kit, [9; 16]);
        own.due = self.received;
        stream.say(bare(Packet::Handshake(own))).await;
        let Ok((Packet::Handshake(other), _)) = stream.hear().await else { return false };
        self.current = None;
        let doubtful = self.doubtful.take().filter(|_| other.due as usize > self.sent.len());
        self.sent.extend(doubtful);
        for (number, (kind, content)) in self.sent.iter().enumerate().skip(other.due as usize) {
            for body in message(number as u64, *kind, content) {
                stream.say(body).await;
            }
        }
        self.stream = Some(stream);
        true
    }
}

/// The client.
pub struct Rogue<'a> {
    kit: Kit,
    protocol: Protocol,
    client: Client,
    lines: Vec<Line>,
    mischief: Mischief<'a>,
    /// Messages of the largest size that it sends about tests that nobody has announced, once the session is known.
    pub flood: usize,
    /// Of these, how many were taken and how many refused, by server.
    pub flooded: BTreeMap<PartyId, (usize, usize)>,
    /// Refusals it has heard, by receiver and kind.
    pub refused: BTreeMap<(PartyId, Kind), Vec<String>>,
    /// How often it sends each kind in each state, whether it is its to send or not.
    pub intrusions: usize,
    /// What became of these.
    pub intruded: BTreeMap<(State, PartyId, Kind), Tally>,
    /// What it has heard last, by kind.
    heard: BTreeMap<Kind, Vec<u8>>,
}

fn input(fixture: &Fixture, id: &str) -> ClientInput {
    let (run, id) = (fixture.run(), ClientId::new(id).unwrap());
    let rounds: Vec<_> = run.spec().round_ids().collect();
    ClientInput {
        accepts_few: true,
        test_set: run.test_set(&id).unwrap(),
        local: rounds.iter().map(|&round| (round, run.local_model(&id, round).unwrap())).collect(),
        global: rounds.iter().map(|&round| (round, run.global_model(round).unwrap())).collect(),
        initial: run.initial_model().unwrap(),
    }
}

impl<'a> Rogue<'a> {
    pub fn new(fixture: &Fixture, id: &str, mischief: Mischief<'a>) -> Self {
        let mut kit = fixture.kit(id);
        let position = CLIENTS.iter().position(|client| *client == id).unwrap();
        let keys = kit.envelope_keys.take().unwrap();
        let federation = std::sync::Arc::new(kit.session().unwrap());
        let seed = client_seed(position);
        let client = Client::with_envelope_keys(federation.clone(), position, input(fixture, id), seed, keys);
        let line = |server| Line {
            server,
            address: kit.address(server).unwrap().clone(),
            stream: None,
            received: 0,
            current: None,
            sent: Vec::new(),
            doubtful: None,
            honest: BTreeMap::new(),
            is_over: false,
        };
        let lines = [PartyId::Principal, PartyId::Auxiliary].map(line).into();
        Self {
            kit,
            protocol: federation.settings.protocol,
            client,
            lines,
            mischief,
            flood: 0,
            flooded: BTreeMap::new(),
            refused: BTreeMap::new(),
            intrusions: 0,
            intruded: BTreeMap::new(),
            heard: BTreeMap::new(),
        }
    }

    /// Kinds that it has said to a server because they were its to say.
    pub fn said(&self, server: PartyId) -> BTreeSet<Kind> {
        let lines = self.lines.iter().filter(|line| line.server == server);
        lines.flat_map(|line| line.honest.keys()).copied().collect()
    }

    /// Takes part until the values have come and the servers have said farewell.
    pub async fn take_part(&mut self) {
        self.intrude(State::BeforeSession).await;
        let first = self.client.start();
        self.follow(first).await;
        while self.lines.iter().any(|line| !line.is_over) {
            if self.flood > 0 && self.client.session().is_some() {
                let count = std::mem::take(&mut self.flood);
                // The principal refuses each, which takes a while.
                self.send_flood(0, if count < 1000 { count / 10 } else { count }).await;
                self.send_flood(1, count).await;
            }
            for line in 0..self.lines.len() {
                while let Some((packet, data)) = self.hear(line).await {
                    self.take(line, &packet, &data).await;
                }
            }
        }
        assert!(self.client.values().is_some());
    }

    /// The next packet, if there is one soon.
    async fn hear(&mut self, line: usize) -> Option<(Packet, Bytes)> {
        if self.lines[line].is_over {
            return None;
        }
        if !self.lines[line].connect(&self.kit).await {
            // Whoever has told the values may be gone.
            self.lines[line].is_over = self.client.values().is_some();
            tokio::time::sleep(Duration::from_millis(20)).await;
            return None;
        }
        let stream = self.lines[line].stream.as_mut().unwrap();
        match timeout(Duration::from_millis(20), stream.hear()).await {
            Err(_) => None,
            Ok(Ok(packet)) => Some(packet),
            Ok(Err(_)) => {
                self.lines[line].stream = None;
                self.lines[line].is_over = self.client.values().is_some();
                None
            }
        }
    }

    /// Dials until it is let in, and says again what was not heard.
    async fn connect(&mut self, line: usize) {
        while !self.lines[line].connect(&self.kit).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn take(&mut self, line: usize, packet: &Packet, data: &[u8]) {
        let state = &mut self.lines[line];
        match packet {
            Packet::Head(head) => {
                let kind = Kind::from_wire(head.kind).unwrap();
                assert_eq!((head.number, head.offset), (state.received, 0));
                state.current = Some((kind, head.length, data.to_vec()));
            }
            Packet::Chunk => state.current.as_mut().unwrap().2.extend_from_slice(data),
            Packet::Goodbye => state.is_over = true,
            _ => {}
        }
        let is_whole = |(_, length, content): &mut (Kind, u64, Vec<u8>)| content.len() as u64 == *length;
        let Some((kind, _, content)) = state.current.take_if(is_whole) else { return };
        // Nobody has parted as long as it does not say that it has the values; they come again.
        if kind == Kind::Values && self.intrude(State::AfterValues).await {
            return;
        }
        let state = &mut self.lines[line];
        state.received += 1;
        let (from, number) = (state.server, state.received);
        if let Some(stream) = &mut state.stream {
            stream.say(bare(Packet::Acknowledged(number))).await;
        }
        self.heard.insert(kind, content.clone());
        let effects = self.client.handle(Incoming::new(from, kind, content)).unwrap();
        self.follow(effects).await;
        if kind == Kind::Test {
            self.intrude(State::Testing).await;
        }
    }

    /// Sends messages as long as any that the server takes, each for a place of its own.
    async fn send_flood(&mut self, line: usize, count: usize) {
        let (server, own) = (self.lines[line].server, self.kit.own);
        let length = self.client.session().unwrap().max_len(own, server, Kind::ActivationShare) as usize;
        for test in 0..count as u64 {
            let mut content = vec![0; length];
            content[..8].copy_from_slice(&(1_000_000 + test).to_le_bytes());
            self.connect(line).await;
            let number = self.lines[line].sent.len() as u64;
            for body in message(number, Kind::ActivationShare, &content) {
                self.lines[line].stream.as_mut().unwrap().say(body).await;
            }
            let counts = self.flooded.entry(server).or_default();
            let is_taken = loop {
                match self.lines[line].stream.as_mut().unwrap().hear().await {
                    Err(_) => break false,
                    Ok((Packet::Acknowledged(taken), _)) if taken > number => break true,
                    // What it is sent meanwhile comes again on the next stream.
                    Ok(_) => {}
                }
            };
            if is_taken {
                counts.0 += 1;
                self.lines[line].sent.push((Kind::ActivationShare, content));
            } else {
                counts.1 += 1;
                self.lines[line].stream = None;
            }
        }
        // So that everything comes again that was not looked at.
        self.lines[line].stream = None;
    }

    /// Does what the role wants done.
    async fn follow(&mut self, effects: Effects<Client>) {
        let mut open = VecDeque::from([effects]);
        while let Some(Effects { outbox, jobs }) = open.pop_front() {
            for message in outbox {
                self.say(message.to, message.kind, &message.content).await;
            }
            for job in jobs {
                let next = job(&mut Meter::new(&mut Nobody)).unwrap();
                open.push_back(next(&mut self.client).unwrap());
            }
        }
    }

    /// Says something else as often as it likes, hears that it is refused, and says what it should.
    async fn say(&mut self, to: PartyId, kind: Kind, content: &[u8]) {
        let line = self.lines.iter().position(|line| line.server == to).unwrap();
        let number = self.lines[line].sent.len() as u64;
        let said = self.lines[line].honest.get(&kind).map_or(0, |(count, _)| *count);
        // What it refers to has been announced to everybody by then.
        let is_early = to == PartyId::Auxiliary && (self.mischief)(to, kind, content, said, 0).is_some();
        tokio::time::sleep(Duration::from_millis(if is_early { 300 } else { 0 })).await;
        let mut time = 0;
        while let Some((said, bytes)) = (self.mischief)(to, kind, content, said, time) {
            self.connect(line).await;
            let mut stream = self.lines[line].stream.take().unwrap();
            for body in message(number, said, &bytes) {
                stream.say(body).await;
            }
            let refusal = timeout(PATIENCE, stream.refusal()).await;
            let reason =
                refusal.unwrap_or_else(|_| panic!("{said} to {to}, for {kind}, time {time}: not refused"));
            // Where the stream is lost, because an earlier one was noticed later or before the reason was heard, it is said again.
            if !reason.starts_with("Aborted") && !reason.starts_with("Unknown") {
                self.refused.entry((to, kind)).or_default().push(reason);
                time += 1;
            }
        }
        self.connect(line).await;
        let state = &mut self.lines[line];
        state.honest.insert(kind, (said + 1, content.to_vec()));
        state.sent.push((kind, content.to_vec()));
        for body in message(number, kind, content) {
            state.stream.as_mut().unwrap().say(body).await;
        }
    }
}
