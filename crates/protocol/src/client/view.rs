//! What a client saw (docs/VIEWS.md): read again from its messages, with the clients' key.

use std::collections::BTreeMap;

use secsv_algebra::{Matrix, Ring};
use secsv_he::SecretKey;

use super::{
    Client,
    received::{PartId, Source, expected_parts, receive, receive_together},
};
use crate::{
    Error, PartyId,
    activation::{Activator, Handed},
    codec::unpack_matrix,
    combinations::Outputs,
    disclosure::Disclosure,
    error::CodecError,
    hesv::open_slots,
    labels::{Labels, Wiped},
    message::{BlindedDifferences, Head, Kind, Message as _, OutputShare, Server, UnitId},
    program::{Receive, Then},
    role::{Meter, Phase, Probe},
    secret,
    server::UnitContext,
    session::Session,
    views::{
        Entry, Opened, SeenMessage, View, announced, by_owner, outputs_scale, scaled, time_step_of, zeros,
    },
};

/// Nobody asks what a view is busy with.
struct Unasked;

impl Probe for Unasked {
    fn enter(&mut self, _: Phase) {}
}

/// Of a step, which message each part came in.
type StepParts = BTreeMap<PartId, usize>;

/// The contents of those messages.
type Contents = super::received::ReceivedParts;

/// A client's messages while they are read.
struct ClientReading<'a> {
    session: &'a Session,
    key: Option<&'a SecretKey>,
    received: &'a [SeenMessage],
    arrays: Vec<Opened>,
}

impl Client {
    /// What it saw, from the messages it received.
    pub fn view(&self, received: &[SeenMessage]) -> Result<View, Error> {
        let Some(session) = self.session.as_deref() else {
            return Ok(View::new(self.id(), received, Vec::new(), Vec::new()));
        };
        let known = announced(session, received)?;
        let mut reading = ClientReading { session, key: self.key.as_deref(), received, arrays: Vec::new() };
        let parts = reading.parts()?;
        for (id, context) in &known.contexts {
            let mut activator = Activator::default();
            for (step, decryption) in session.program().steps.iter().enumerate() {
                let Some(parts) = parts.get(&(*id, step)) else { continue };
                let expected = expected_parts(session, context, step);
                let is_whole = expected.iter().all(|key| parts.contains_key(key));
                if is_whole && context.client(decryption.slot)? == self.position {
                    reading.step(context, step, parts, &mut activator)?;
                }
            }
        }
        reading.differences(&known.contexts)?;
        let mut view = View::new(self.id(), received, known.plans, reading.arrays);
        view.secrets.extend(self.key.as_ref().map(|_| "clients' key"));
        view.secrets.extend(self.label_secret.as_ref().map(|_| "clients' label secret"));
        Ok(view)
    }
}

impl ClientReading<'_> {
    /// Where the parts of each step came.
    fn parts(&self) -> Result<BTreeMap<(UnitId, usize), StepParts>, Error> {
        let mut parts: BTreeMap<_, StepParts> = BTreeMap::new();
        for (number, message) in self.received.iter().enumerate() {
            let SeenMessage { from, kind, .. } = *message;
            if !matches!(kind, Kind::Reply | Kind::OutputShare) {
                continue;
            }
            let malformed = |why| Error::Malformed { from, kind, why };
            let address = Head::step(kind, message.content()).ok_or(malformed(CodecError::Truncated))?;
            let share = Server::of(from).filter(|_| kind == Kind::OutputShare);
            let source = share.map_or(Source::Chunk(address.chunk), Source::Share);
            parts.entry((address.unit, address.step)).or_default().insert((address.item, source), number);
        }
        Ok(parts)
    }

    fn contents(&self, parts: &StepParts) -> Contents {
        let content = |number: usize| self.received[number].content().to_vec();
        parts.iter().map(|(&key, &number)| (key, content(number))).collect()
    }

    fn key(&self) -> Result<&SecretKey, Error> {
        self.key.ok_or(Error::Local { what: "the clients' key" })
    }

    /// Everything a step received, and what became of it.
    fn step(
        &mut self,
        context: &UnitContext,
        step: usize,
        parts: &StepParts,
        activator: &mut Activator,
    ) -> Result<(), Error> {
        let (mut probe, contents) = (Unasked, self.contents(parts));
        let meter = &mut Meter::new(&mut probe);
        let session = self.session;
        if session.federation.tests_together() {
            return self.together(context, parts, &contents, meter);
        }
        if session.encryption.is_none() {
            let part = |item, server| contents.get(&(item, Source::Share(server))).map(Vec::as_slice);
            let received = secret::receive(session, context, step, part, meter)?;
            self.received(context, step, parts, &contents, &received.expose().0)?;
            return self.handed(context, step, parts, &received.expose().0, activator);
        }
        let received = receive(session, context, step, self.key()?, &contents, meter)?;
        self.received(context, step, parts, &contents, &received.expose().0)?;
        self.handed(context, step, parts, &received.expose().0, activator)
    }

    /// What was sent where models are tested together, the outputs of every coalition that follow, and their classes.
    fn together(
        &mut self,
        context: &UnitContext,
        parts: &StepParts,
        contents: &Contents,
        meter: &mut Meter<'_>,
    ) -> Result<(), Error> {
        let session = self.session;
        let decrypted = receive_together(session, context, self.key()?, contents, meter)?;
        let combinations = context.combinations(session);
        let height = session.program().operators[0].shape.d_out;
        for (k, &round) in context.rounds.iter().enumerate() {
            let of_round = |matrix: &Matrix<_>| Outputs::of_rows(matrix, k * height..(k + 1) * height);
            let received: Vec<Outputs> = decrypted.expose().0.iter().map(of_round).collect();
            for (item, (&number, outputs)) in combinations.sent.iter().zip(&received).enumerate() {
                let messages = numbers_of(parts, |part| part.0 == item);
                let entry = self.entry(context, 0, &session.program().steps[0].receives[0], messages);
                let entry = of_model(session, entry, context, number, round);
                self.arrays.extend(by_owner(session, context, number, &outputs.matrix()?, &entry));
            }
            for number in 0..context.plan.coalitions.len() {
                let terms = combinations.terms[number].iter().map(|(item, _)| *item).collect::<Vec<_>>();
                let messages = numbers_of(parts, |part| terms.contains(&part.0));
                let entry = self.entry(context, 0, &session.program().steps[0].receives[0], messages);
                let entry = of_model(session, entry, context, number, round);
                let outputs = combinations.outputs(number, &context.selections, &received)?.matrix()?;
                let derived = entry.derived("outputs", "outputs");
                self.arrays.extend(by_owner(session, context, number, &outputs, &derived));
                let total = session.total_share(round, context.plan.coalitions[number]);
                let (program, precision) = (session.program(), &session.precision);
                let handed = Activator::default().step(program, precision, 0, total, &[outputs])?;
                if let Handed::Labels(classes) = handed {
                    self.classes(context, number, classes, &entry);
                }
            }
        }
        Ok(())
    }

    /// What an array of outputs says but for model and numbers.
    fn entry(&self, context: &UnitContext, step: usize, receive: &Receive, messages: Vec<usize>) -> Entry {
        let kind = messages.first().map_or(Kind::Reply, |&number| self.received[number].kind);
        let (what, disclosure) = match receive {
            Receive::Outputs { .. } => ("outputs", Disclosure::LayerOutputs),
            Receive::Bias { .. } => ("biases", Disclosure::LayerOutputs),
            Receive::Update { .. } => ("gated sum", Disclosure::HiddenStates),
        };
        let is_gates = matches!(self.session.program().steps[step].then, Then::Gates { .. });
        let from = if kind == Kind::Reply { Some(PartyId::Principal) } else { None };
        let mut entry = Entry::new(kind, what, from, messages).of_unit(context);
        entry.disclosure = Some(if is_gates { Disclosure::Gates } else { disclosure });
        entry.about.step = Some(step);
        entry.about.time_step = time_step_of(self.session.program(), step);
        match *receive {
            Receive::Outputs { operator, first, count, .. } => {
                entry.about.operator = Some(operator);
                entry.about.positions = Some((first, count));
            }
            Receive::Bias { operator } => entry.about.operator = Some(operator),
            Receive::Update { .. } => {}
        }
        entry
    }

    /// What a step received, item by item.
    fn received<R: Ring>(
        &mut self,
        context: &UnitContext,
        step: usize,
        parts: &StepParts,
        contents: &Contents,
        received: &[Matrix<R>],
    ) -> Result<(), Error> {
        let session = self.session;
        for (item, (receive, matrix)) in
            session.program().steps[step].receives.iter().zip(received).enumerate()
        {
            let entry = self.entry(context, step, receive, numbers_of(parts, |part| part.0 == item));
            let mut entry = of_model(session, entry, context, 0, context.round);
            entry.about.item = Some(item);
            if entry.kind == Kind::Reply {
                self.arrays.extend(by_owner(session, context, 0, matrix, &entry));
            } else {
                for (&(_, source), bytes) in contents.iter().filter(|(part, _)| part.0 == item) {
                    let Source::Share(server) = source else { continue };
                    let from = server.party();
                    let malformed = |why| Error::Malformed { from, kind: entry.kind, why };
                    let (rows, columns) = matrix.shape();
                    let OutputShare { elements, .. } = OutputShare::decode(bytes, &()).map_err(malformed)?;
                    let share = unpack_matrix(matrix.ring(), rows, columns, elements).map_err(malformed)?;
                    let messages = numbers_of(parts, |part| *part == (item, source));
                    let entry = Entry {
                        what: "share",
                        from: Some(from),
                        messages,
                        disclosure: None,
                        ..entry.clone()
                    };
                    self.arrays.extend(by_owner(session, context, 0, &share, &entry));
                }
            }
            let derived = entry.derived("outputs", entry.what);
            self.arrays.extend(by_owner(session, context, 0, matrix, &derived));
        }
        Ok(())
    }

    /// What the client made of what a step received.
    fn handed<R: Ring>(
        &mut self,
        context: &UnitContext,
        step: usize,
        parts: &StepParts,
        received: &[Matrix<R>],
        activator: &mut Activator,
    ) -> Result<(), Error> {
        let session = self.session;
        let decryption = &session.program().steps[step];
        let total = session.total_share(context.round, context.coalition());
        let handed = activator.step(session.program(), &session.precision, step, total, received)?;
        let Some(first) = decryption.receives.first() else { return Ok(()) };
        let mut entry = self.entry(context, step, first, numbers_of(parts, |_| true));
        entry = of_model(session, entry, context, 0, context.round);
        entry.about.positions = None;
        match handed {
            Handed::Labels(classes) => self.classes(context, 0, classes, &entry),
            Handed::Shared(matrix) => {
                let what = match decryption.then {
                    Then::Gates { .. } => "gates",
                    Then::FirstState | Then::State => "hidden state",
                    Then::Activate(_) | Then::Label(_) => "activations",
                };
                entry.about.operator = decryption.feeds;
                let mut entry = entry.derived("activations", what);
                if what == "hidden state" {
                    entry.disclosure = Some(Disclosure::HiddenStates);
                }
                self.arrays.extend(scaled(session, context, step, &matrix, &entry)?);
            }
        }
        Ok(())
    }

    /// Predicted classes, owner by owner.
    fn classes(&mut self, context: &UnitContext, number: usize, classes: Vec<u16>, entry: &Entry) {
        let classes = Labels::new(Wiped(classes));
        let mut rest = classes.expose().as_slice();
        let mut entry = entry.derived("classes", "classes");
        entry.scale = None;
        entry.disclosure = Some(Disclosure::Predictions);
        for (owner, first, places) in context.segments(self.session, number) {
            let (now, later) = rest.split_at(places.len().min(rest.len()));
            rest = later;
            let samples = places.iter().map(|place| place - first).collect();
            let of_owner = Labels::new(Wiped(now.to_vec()));
            let entry = entry.clone().of_owner(owner, samples);
            self.arrays.push(entry.labels(&of_owner, self.session.program().classes));
        }
    }

    /// Blinded differences that this client counted zeros among (HESV).
    fn differences(&mut self, contexts: &BTreeMap<UnitId, UnitContext>) -> Result<(), Error> {
        let session = self.session;
        for (number, message) in self.received.iter().enumerate() {
            if message.kind != Kind::BlindedDifferences {
                continue;
            }
            let malformed = |why| Error::Malformed { from: message.from, kind: message.kind, why };
            let BlindedDifferences { address, replies } =
                BlindedDifferences::decode(message.content(), &()).map_err(malformed)?;
            let Some(context) = contexts.get(&address.unit) else { continue };
            let (mut probe, count) = (Unasked, context.places().len());
            let meter = &mut Meter::new(&mut probe);
            let opened = open_slots(session, count, self.key()?, message.kind, &replies, meter)?;
            let matrix = Matrix::new(session.field(), 1, count, opened.expose().clone())?;
            let mut entry = Entry::new(message.kind, "blinded difference", Some(message.from), vec![number]);
            entry.disclosure = Some(Disclosure::SlotsRightOrWrong);
            let entry = entry.of_model(context, 0, context.round);
            let differences = by_owner(session, context, 0, &matrix, &entry);
            let right: Vec<Opened> = differences.iter().map(zeros).collect();
            self.arrays.extend(differences);
            self.arrays.extend(right);
        }
        Ok(())
    }
}

/// The numbers of some parts' messages.
fn numbers_of(parts: &StepParts, of: impl Fn(&PartId) -> bool) -> Vec<usize> {
    let mut numbers: Vec<usize> =
        parts.iter().filter(|(part, _)| of(part)).map(|(_, &number)| number).collect();
    numbers.sort_unstable();
    numbers
}

/// With the model, and the scale that its outputs have.
fn of_model(
    session: &Session,
    entry: Entry,
    context: &UnitContext,
    number: usize,
    round: secsv_federation::RoundId,
) -> Entry {
    let mut entry = entry.of_model(context, number, round);
    entry.scale = match entry.about.operator {
        Some(operator) => outputs_scale(session, operator, round, context.plan.coalitions[number]),
        None => Some(f64::powi(0.5, session.precision.update.fractional_bits() as i32)),
    };
    entry
}
