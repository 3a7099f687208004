//! What a protocol does at a client, beside what all protocols share.

use std::{collections::BTreeMap, ops::Deref, sync::Arc};

use secsv_algebra::{Matrix, Ring, Secret, Seed};
use secsv_federation::{RoundId, SampleSet};
use zeroize::Zeroize;

use super::{
    Identity, Testing,
    key_exchange::{ClientSecrets, KeyCheck},
    view::{ClientReading, StepParts},
};
use crate::{
    Error,
    activation::Activator,
    codec::{check_elements, unpack_matrix},
    error::CodecError,
    message::{Kind, Message as _, OutputShare, Recount, Server, UnitId},
    opening::Opening,
    program::{Program, Receive},
    role::{Effects, Incoming, Meter, Outgoing},
    session::Session,
    test_id::{RequestId, TestId},
    unit::UnitContext,
};

/// Where a part of what a step receives comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// Replies about a chunk, from the principal.
    Chunk(usize),
    /// A share of a server.
    Share(Server),
}

impl Source {
    /// Both servers' shares of an item.
    pub(crate) fn shares(item: usize) -> [PartId; 2] {
        [Server::Principal, Server::Auxiliary].map(|server| (item, Self::Share(server)))
    }
}

/// A part of what a step receives: the item, and where it comes from.
pub(crate) type PartId = (usize, Source);

/// The messages with the parts of a step that have come.
pub(crate) type ReceivedParts = BTreeMap<PartId, Vec<u8>>;

/// Matrices that are wiped.
pub(crate) struct Matrices<R: Ring>(pub Vec<Matrix<R>>);

impl<R: Ring> Zeroize for Matrices<R> {
    fn zeroize(&mut self) {
        self.0.iter_mut().for_each(Zeroize::zeroize);
    }
}

/// Rows and columns of an item that a step receives for `samples` of them.
pub(crate) fn output_shape(program: &Program, receive: &Receive, samples: usize) -> (usize, usize) {
    match *receive {
        Receive::Outputs { operator, count, .. } => {
            (program.operators[operator].shape.d_out, count * samples)
        }
        Receive::Bias { operator } => (program.operators[operator].shape.d_out, samples),
        Receive::Update { .. } => (program.hidden(), samples),
        Receive::Vector { operator } => (program.operators[operator].shape.d_out, 1),
        Receive::Sum { ref parts } => (program.sum_size(parts), samples),
    }
}

/// What a client needs to know of a protocol until it has the clients' secrets.
pub(crate) trait KeyHolder: Sized + Send + 'static {
    /// The agreement as the protocol needs it.
    type Session: Clone + Deref<Target = Session> + Send + Sync + 'static;
    /// What a client has servers tell it of the leader's public key before it shares anything.
    const KEY_CHECK: KeyCheck;

    /// Keys that the leader makes for the servers. `key` is the seed of the clients' key.
    fn leader_keys(session: &Self::Session, key: &Seed, own: &Seed) -> Vec<Outgoing>;

    /// Checks that bytes are a public key.
    fn check_key_bytes(session: &Self::Session, public: &[u8]) -> Result<(), CodecError>;

    /// Whether the public key that a server holds is the one of these secrets.
    fn check_public_key(session: &Self::Session, secrets: &ClientSecrets, public: &[u8])
    -> Result<(), Error>;
}

/// An engine: the keys of one protocol, and what a client does with them.
pub(crate) trait ClientEngine: KeyHolder {
    /// Where numbers are shared or encrypted.
    type Ring: Ring;

    /// An engine with the clients' secrets.
    fn new(session: Self::Session, secrets: &ClientSecrets) -> Self;

    /// The agreement.
    fn session(&self) -> &Self::Session;

    /// The same without what the protocol adds.
    fn shared(session: &Self::Session) -> &Arc<Session>;

    fn ring(&self) -> Self::Ring;

    /// The secret that labels are hidden with.
    fn label_secret(&self) -> &Seed;

    /// Gives the servers the samples, shared or encrypted (Algorithm 3, step 3).
    fn share_data(testing: &Testing<Self>) -> Effects<Testing<Self>>;

    /// Gives the servers what a round takes. A round that opens again gets the same bytes again.
    fn begin_round(testing: &Testing<Self>, round: RoundId) -> Result<Effects<Testing<Self>>, CodecError>;

    /// Gives the servers the true labels of a unit's samples that are this client's.
    fn share_labels(testing: &Testing<Self>, context: &Arc<UnitContext>) -> Effects<Testing<Self>>;

    /// A unit was announced.
    fn on_announced(&mut self, _identity: &Identity, _context: &Arc<UnitContext>) {}

    /// Takes a message that is no part of a step.
    fn on_message(_testing: &mut Testing<Self>, message: Incoming) -> Result<Effects<Testing<Self>>, Error> {
        Err(message.unexpected("testing"))
    }

    /// What an owner tells of models that it tested itself: which samples are right, and how many.
    fn own_result(request: RequestId, right: Vec<SampleSet>, counted: Recount) -> Vec<Outgoing>;

    /// Which parts a step is made of.
    fn expected_parts(&self, context: &UnitContext, step: usize) -> Vec<PartId>;

    /// Checks a part of what a step receives, which is expected.
    fn check_part(
        &self,
        context: &UnitContext,
        step: usize,
        part: PartId,
        content: &[u8],
    ) -> Result<(), CodecError>;

    /// Decrypts or puts together what a step receives.
    fn receive(
        &self,
        context: &UnitContext,
        step: usize,
        parts: &ReceivedParts,
        meter: &mut Meter<'_>,
    ) -> Result<Secret<Matrices<Self::Ring>>, Error>;

    /// Hands on what a step received: activates, and gives the servers what comes of it.
    fn hand_on(
        testing: &Testing<Self>,
        context: Arc<UnitContext>,
        step: usize,
        activator: Activator,
        parts: ReceivedParts,
    ) -> Effects<Testing<Self>>;

    /// Forgets a test that has ended.
    fn forget_test(&mut self, _test: TestId) {}

    /// Adds what a step received, and what became of it, to a client's view.
    fn view_step(
        &self,
        reading: &mut ClientReading<'_, Self>,
        context: &UnitContext,
        step: usize,
        parts: &StepParts,
        activator: &mut Activator,
    ) -> Result<(), Error> {
        reading.step(context, step, parts, activator)
    }

    /// Adds what only this protocol shows a client to its view.
    fn view(
        &self,
        _reading: &mut ClientReading<'_, Self>,
        _contexts: &BTreeMap<UnitId, UnitContext>,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// The secrets it has, by name.
    const SECRETS: &'static [&'static str];
}

/// Checks one server's share of an item that a step receives.
pub(crate) fn check_output_share<R: Ring>(
    ring: R,
    session: &Session,
    context: &UnitContext,
    (step, item): (usize, usize),
    content: &[u8],
) -> Result<(), CodecError> {
    let OutputShare { elements, .. } = OutputShare::decode(content, &())?;
    let receive = session.program().steps[step].receives.get(item);
    let receive = receive.ok_or(CodecError::Value { what: "item" })?;
    let (rows, columns) = output_shape(session.program(), receive, context.places().len());
    check_elements(ring, rows.checked_mul(columns), elements)
}

/// Adds up both servers' shares of an item that a step receives.
pub(crate) fn open_shares<R: Ring>(
    opening: Opening,
    ring: R,
    (rows, columns): (usize, usize),
    item: usize,
    parts: &ReceivedParts,
) -> Result<Matrix<R>, Error> {
    let open = |server: Server| {
        let malformed = |why| Error::Malformed { from: server.party(), kind: Kind::OutputShare, why };
        let bytes = part_of(parts, (item, Source::Share(server)))?;
        let OutputShare { elements, .. } = OutputShare::decode(bytes, &()).map_err(malformed)?;
        unpack_matrix(ring, rows, columns, elements).map_err(malformed)
    };
    opening.sum(&open(Server::Principal)?, &open(Server::Auxiliary)?)
}

/// A part of a step that has come.
pub(crate) fn part_of(parts: &ReceivedParts, part: PartId) -> Result<&[u8], Error> {
    parts.get(&part).map(Vec::as_slice).ok_or(Error::Local { what: "a part of a step" })
}
