//! What a client saw (docs/VIEWS.md): read again from its messages, with the clients' key.

use std::collections::BTreeMap;

use secsv_algebra::{Matrix, Ring};
use secsv_federation::RoundId;

use super::{ClientEngine, PartId, ReceivedParts, Source, Testing};
use crate::{
    Error, PartyId,
    activation::{Activator, Handed},
    codec::unpack_matrix,
    disclosure::Disclosure,
    error::CodecError,
    labels::{Labels, Wiped},
    message::{BlindedDifferences, Head, Kind, Message as _, OutputShare, Parts, Server, UnitId},
    program::{Receive, Then},
    role::{Meter, Phase, Probe},
    session::Session,
    unit::UnitContext,
    views::{
        Entry, Opened, SeenMessage, View, announced, by_owner, outputs_scale, scaled, time_step_of, zeros,
    },
};

/// Nobody asks what a view is busy with.
pub(crate) struct Unasked;

impl Probe for Unasked {
    fn enter(&mut self, _: Phase) {}
}

/// Of a step, which message each part came in.
pub(crate) type StepParts = BTreeMap<PartId, usize>;

/// A client's messages while they are read.
pub(crate) struct ClientReading<'a, E> {
    engine: &'a E,
    received: &'a [SeenMessage],
    pub arrays: Vec<Opened>,
}

impl<E: ClientEngine> Testing<E> {
    /// What the client saw, from the messages it received.
    pub(crate) fn view(&self, received: &[SeenMessage]) -> Result<View, Error> {
        let session: &Session = self.session();
        let known = announced(session, received)?;
        let mut reading = ClientReading { engine: &self.engine, received, arrays: Vec::new() };
        let parts = reading.parts()?;
        for (id, context) in &known.contexts {
            let mut activator = Activator::default();
            for step in 0..session.program().steps.len() {
                let Some(parts) = parts.get(&(*id, step)) else { continue };
                let expected = self.engine.expected_parts(context, step);
                let is_whole = expected.iter().all(|key| parts.contains_key(key));
                if is_whole && context.decryptor(step) == self.identity.position {
                    self.engine.view_step(&mut reading, context, step, parts, &mut activator)?;
                }
            }
        }
        self.engine.view(&mut reading, &known.contexts)?;
        let mut view = View::new(self.identity.party(), received, known.plans, reading.arrays);
        view.secrets.extend(E::SECRETS);
        Ok(view)
    }
}

impl<E: ClientEngine> ClientReading<'_, E> {
    fn session(&self) -> &Session {
        self.engine.session()
    }

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

    pub(crate) fn contents(&self, parts: &StepParts) -> ReceivedParts {
        let content = |number: usize| self.received[number].content().to_vec();
        parts.iter().map(|(&key, &number)| (key, content(number))).collect()
    }

    /// Everything a step received, and what became of it.
    pub(crate) fn step(
        &mut self,
        context: &UnitContext,
        step: usize,
        parts: &StepParts,
        activator: &mut Activator,
    ) -> Result<(), Error> {
        let (mut probe, contents, engine) = (Unasked, self.contents(parts), self.engine);
        let meter = &mut Meter::new(&mut probe);
        let received = engine.receive(context, step, &contents, meter)?;
        self.received(context, step, parts, &contents, &received.expose().0)?;
        self.handed(context, step, parts, &received.expose().0, activator)
    }

    /// What an array of outputs says but for model and numbers.
    pub(crate) fn entry(
        &self,
        context: &UnitContext,
        step: usize,
        receive: &Receive,
        messages: Vec<usize>,
    ) -> Entry {
        let kind = messages.first().map_or(Kind::Reply, |&number| self.received[number].kind);
        let what = match receive {
            Receive::Outputs { .. } => "outputs",
            Receive::Bias { .. } => "biases",
            Receive::Update { .. } => "gated sum",
            Receive::Vector { .. } => "batch norm",
            Receive::Sum { .. } => "sum",
        };
        let from = if kind == Kind::Reply { Some(PartyId::Principal) } else { None };
        let mut entry = Entry::new(kind, what, from, messages).of_unit(context);
        entry.disclosure = Some(Disclosure::of_receive(&self.session().program().steps[step], receive));
        entry.about.step = Some(step);
        entry.about.time_step = time_step_of(self.session().program(), step);
        match *receive {
            Receive::Outputs { operator, first, count, .. } => {
                entry.about.operator = Some(operator);
                entry.about.positions = Some((first, count));
            }
            Receive::Bias { operator } | Receive::Vector { operator } => {
                entry.about.operator = Some(operator)
            }
            Receive::Update { .. } | Receive::Sum { .. } => {}
        }
        entry
    }

    /// What a step received, item by item.
    fn received<R: Ring>(
        &mut self,
        context: &UnitContext,
        step: usize,
        parts: &StepParts,
        contents: &ReceivedParts,
        received: &[Matrix<R>],
    ) -> Result<(), Error> {
        let session: &Session = self.engine.session();
        for (item, (receive, matrix)) in
            session.program().steps[step].receives.iter().zip(received).enumerate()
        {
            let entry = self.entry(context, step, receive, numbers_of(parts, |part| part.0 == item));
            let mut entry = of_model(session, entry, context, 0, context.round);
            entry.about.item = Some(item);
            if let Receive::Sum { .. } = receive {
                entry.scale = Some(f64::powi(0.5, session.precision.sum().fractional_bits() as i32));
            }
            let arrays = |matrix: &Matrix<R>, entry: &Entry| match receive {
                Receive::Vector { .. } => vec![entry.clone().matrix(matrix, 1)],
                _ => by_owner(session, context, 0, matrix, entry),
            };
            if entry.kind == Kind::Reply {
                self.arrays.extend(arrays(matrix, &entry));
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
                    self.arrays.extend(arrays(&share, &entry));
                }
            }
            let derived = entry.derived("outputs", entry.what);
            self.arrays.extend(arrays(matrix, &derived));
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
        let session: &Session = self.engine.session();
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
                    Then::FirstState { .. } | Then::State { .. } => "hidden state",
                    Then::Activate { .. } | Then::Label(_) | Then::Parts(_) => "activations",
                };
                entry.about.operator = decryption.feeds();
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
    pub(crate) fn classes(&mut self, context: &UnitContext, number: usize, classes: Vec<u16>, entry: &Entry) {
        let classes = Labels::new(Wiped(classes));
        let mut rest = classes.expose().as_slice();
        let mut entry = entry.derived("classes", "classes");
        entry.scale = None;
        entry.disclosure = Some(Disclosure::Predictions);
        for segment in context.segments(self.engine.session(), number) {
            let (now, later) = rest.split_at(segment.places.len().min(rest.len()));
            rest = later;
            let of_owner = Labels::new(Wiped(now.to_vec()));
            let entry = entry.clone().of_owner(segment.owner, segment.samples().collect());
            self.arrays.push(entry.labels(&of_owner, self.session().program().classes));
        }
    }

    /// Blinded differences that this client counted zeros among. `open` decrypts replies with a number of them.
    pub(crate) fn differences<R: Ring>(
        &mut self,
        contexts: &BTreeMap<UnitId, UnitContext>,
        open: impl Fn(&Parts<'_>, usize, &mut Meter<'_>) -> Result<Matrix<R>, Error>,
    ) -> Result<(), Error> {
        let session = self.engine.session();
        for (number, message) in self.received.iter().enumerate() {
            if message.kind != Kind::BlindedDifferences {
                continue;
            }
            let malformed = |why| Error::Malformed { from: message.from, kind: message.kind, why };
            let BlindedDifferences { address, replies } =
                BlindedDifferences::decode(message.content(), &()).map_err(malformed)?;
            let Some(context) = contexts.get(&address.unit) else { continue };
            let mut probe = Unasked;
            let matrix = open(&replies, context.places().len(), &mut Meter::new(&mut probe))?;
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
pub(crate) fn numbers_of(parts: &StepParts, of: impl Fn(&PartId) -> bool) -> Vec<usize> {
    let mut numbers: Vec<usize> =
        parts.iter().filter(|(part, _)| of(part)).map(|(_, &number)| number).collect();
    numbers.sort_unstable();
    numbers
}

/// With the model, and the scale that its outputs have.
pub(crate) fn of_model(
    session: &Session,
    entry: Entry,
    context: &UnitContext,
    number: usize,
    round: RoundId,
) -> Entry {
    let mut entry = entry.of_model(context, number, round);
    entry.scale = match entry.about.operator {
        Some(operator) => outputs_scale(session, operator, round, context.plan.coalitions[number]),
        None => Some(f64::powi(0.5, session.precision.update.fractional_bits() as i32)),
    };
    entry
}
