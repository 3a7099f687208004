//! What a server reads: its shares, and at the principal what they add up to.

use std::collections::BTreeMap;

use secsv_algebra::{Ring, Ring64};
use secsv_federation::{Coalition, RoundId, SampleSet};

use super::{
    Announced, Entry, Numbers, Opened, SeenMessage, View, announced,
    labels::LabelShares,
    shares::{gated_factors, server_share, shared, triple},
};
use crate::{
    Error, PartyId,
    codec::unpack_matrix,
    decryptors::Protocol,
    disclosure::Disclosure,
    error::CodecError,
    message::{
        CommonSeed, Count, DataShare, DealtProduct, Head, Kind, MaskSeed, MaskedFirstLayer, MaskedLayer,
        Message as _, ModelShare, OwnResult, OwnResultCounts, OwnTest, Server,
    },
    session::Session,
    test_id::RequestId,
};

/// Messages of a session, read by a server.
struct ServerReading<'a> {
    session: &'a Session,
    server: Server,
    announced: Announced,
    /// What this server sent.
    sent: &'a [SeenMessage],
    /// Its masked factors, by kind and head.
    masked: BTreeMap<(Kind, &'a [u8]), &'a [u8]>,
}

/// What a server saw. `sent` are its own announcements and openings.
pub(crate) fn server_view(
    session: Option<&Session>,
    protocol: Protocol,
    party: PartyId,
    received: &[SeenMessage],
    sent: &[SeenMessage],
) -> Result<View, Error> {
    let (Some(session), Some(server)) = (session, Server::of(party)) else {
        return Ok(View::new(party, received, Vec::new(), Vec::new()));
    };
    let plans = announced(session, if party == PartyId::Principal { sent } else { received })?;
    let own = sent.iter().filter(|message| is_masked(message.kind));
    let masked =
        own.filter_map(|own| Some(((own.kind, slot(own.kind, own.content())?), own.content()))).collect();
    let reading = ServerReading { session, server, announced: plans, sent, masked };
    let mut labels = LabelShares::default();
    let mut arrays = Vec::new();
    for message in received.iter().enumerate() {
        arrays.extend(match protocol.rules().encryption() {
            Some(_) => reading.read(session.field(), message, &mut labels)?,
            None => reading.read(Ring64, message, &mut labels)?,
        });
    }
    // The auxiliary too: the principal opens its seeds to it.
    arrays.extend(labels.differences(session, &reading.announced.contexts)?);
    let mut view = View::new(party, received, reading.announced.plans, arrays);
    if Kind::CommonSeed.is_of(protocol) {
        view.secrets.push("common seed of the servers");
    }
    Ok(view)
}

impl ServerReading<'_> {
    fn read<R: Ring>(
        &self,
        ring: R,
        (number, message): (usize, &SeenMessage),
        labels: &mut LabelShares,
    ) -> Result<Vec<Opened>, Error> {
        let (session, server, contexts) = (self.session, self.server, &self.announced.contexts);
        let malformed = |why| Error::Malformed { from: message.from, kind: message.kind, why };
        let with_number = (number, message);
        match (message.kind, message.from) {
            (Kind::OwnResult | Kind::OwnResultCounts, PartyId::Client(owner)) => {
                self.own_result(with_number, owner).map_err(malformed)
            }
            (Kind::Count, _) => self.count(with_number).map_err(malformed),
            (Kind::CommonSeed | Kind::MaskSeed, _) => seed(with_number).map_err(malformed),
            (Kind::DataShare, PartyId::Client(owner)) => self.data(ring, with_number, owner),
            (Kind::ModelShare, PartyId::Client(_)) => self.model(with_number).map_err(malformed),
            (Kind::DealtProduct, PartyId::Client(owner)) => self.dealt(with_number, owner).map_err(malformed),
            (Kind::ActivationShare, _) => shared(session, ring, server, contexts, with_number),
            (Kind::Triple, _) => triple(session, ring, server, contexts, with_number),
            (Kind::LabelShare | Kind::PredictionShare | Kind::DifferenceShare | Kind::OpenedSeeds, _) => {
                labels.take(session, server, contexts, with_number)
            }
            (Kind::MaskedFirstLayer, _) => self.masked_first_layer(with_number),
            (Kind::MaskedLayer, _) => self.masked_layer(with_number),
            (Kind::MaskedFactors, _) => {
                gated_factors(session, ring, contexts, with_number, self.own(message))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The masked factors that this server sent beside the other's.
    fn own(&self, message: &SeenMessage) -> Option<&[u8]> {
        self.masked.get(&(message.kind, slot(message.kind, message.content())?)).copied()
    }

    fn data<R: Ring>(
        &self,
        ring: R,
        (number, message): (usize, &SeenMessage),
        owner: usize,
    ) -> Result<Vec<Opened>, Error> {
        let malformed = |why| Error::Malformed { from: message.from, kind: message.kind, why };
        let samples = self.session.hellos.get(owner).map_or(0, |hello| hello.samples as usize);
        let shape = (self.session.program().input_size, samples);
        let data = DataShare::decode(message.content(), &self.server).map_err(malformed)?;
        let share = server_share(ring, shape, data.share).map_err(malformed)?;
        let entry = Entry::new(message.kind, "share", Some(message.from), vec![number]);
        let bits = self.session.precision.operators[0].input.fractional_bits();
        let entry = Entry { scale: Some(f64::powi(0.5, bits as i32)), ..entry };
        Ok(vec![entry.of_owner(owner, (0..samples).collect()).matrix(share.expose(), 1)])
    }

    fn model(&self, (number, message): (usize, &SeenMessage)) -> Result<Vec<Opened>, CodecError> {
        let ModelShare { round, share } = ModelShare::decode(message.content(), &self.server)?;
        let shape = (1, self.session.program().model_size());
        let share = server_share(Ring64, shape, share)?;
        let mut entry = Entry::new(message.kind, "share", Some(message.from), vec![number]);
        entry.about.round = Some(round);
        if let PartyId::Client(client) = message.from {
            entry.about.client = Some(client);
            entry.about.coalition = Some(Coalition::EMPTY.with(client));
        }
        Ok(vec![entry.matrix(share.expose(), 1)])
    }

    /// A share of masks times samples.
    fn dealt(
        &self,
        (number, message): (usize, &SeenMessage),
        owner: usize,
    ) -> Result<Vec<Opened>, CodecError> {
        let DealtProduct { round, elements } = DealtProduct::decode(message.content(), &())?;
        let shape = (self.session.stacked_rows(round), self.session.first_columns(owner));
        let share = unpack_matrix(Ring64, shape.0, shape.1, elements)?;
        let mut entry =
            Entry::new(message.kind, "share of a dealt product", Some(message.from), vec![number]);
        entry.about.round = Some(round);
        entry.about.operator = Some(0);
        let positions = self.session.program().operators[0].positions;
        entry.about.positions = Some((0, positions));
        let samples = self.session.hellos[owner].samples as usize;
        Ok(vec![entry.of_owner(owner, (0..samples).collect()).matrix(&share, positions)])
    }

    /// A round's first layers, masked for one owner's samples.
    fn masked_first_layer(&self, (number, message): (usize, &SeenMessage)) -> Result<Vec<Opened>, Error> {
        let malformed = |why| Error::Malformed { from: message.from, kind: message.kind, why };
        let read = |content| MaskedFirstLayer::decode(content, &()).map_err(malformed);
        let MaskedFirstLayer { round, owner, elements } = read(message.content())?;
        let own = self.own(message).map(read).transpose()?.map(|own| own.elements);
        let mut entry = Entry::new(message.kind, "share", Some(message.from), vec![number]);
        entry.about.round = Some(round);
        entry.about.owner = Some(owner);
        entry.about.operator = Some(0);
        let shape = (self.session.stacked_rows(round), self.session.program().operators[0].shape.d_in);
        masked_weights(shape, (elements, own), entry, message)
    }

    /// A coalition's later layer, masked for a unit.
    fn masked_layer(&self, (number, message): (usize, &SeenMessage)) -> Result<Vec<Opened>, Error> {
        let malformed = |why| Error::Malformed { from: message.from, kind: message.kind, why };
        let read = |content| MaskedLayer::decode(content, &()).map_err(malformed);
        let MaskedLayer { address, elements } = read(message.content())?;
        let own = self.own(message).map(read).transpose()?.map(|own| own.elements);
        let Some(context) = self.announced.contexts.get(&address.unit) else { return Ok(Vec::new()) };
        let operator = self.session.program().operators.get(address.item);
        let shape = operator.ok_or(malformed(CodecError::Value { what: "operator" }))?.shape;
        let entry = Entry::new(message.kind, "share", Some(message.from), vec![number]);
        let mut entry = entry.of_model(context, 0, context.round);
        entry.about.operator = Some(address.item);
        masked_weights((shape.d_out, shape.d_in), (elements, own), entry, message)
    }

    /// What an owner says of the models that it was asked to test itself.
    fn own_result(
        &self,
        (number, message): (usize, &SeenMessage),
        owner: usize,
    ) -> Result<Vec<Opened>, CodecError> {
        let Head::Request(request) = Head::of(message.kind, message.content())?.0 else {
            return Ok(Vec::new());
        };
        let asked = self.own_test(request, owner)?;
        let (counts, rights) = if message.kind == Kind::OwnResultCounts {
            (OwnResultCounts::decode(message.content(), &asked.len())?.right, Vec::new())
        } else {
            (Vec::new(), OwnResult::decode(message.content(), &asked.len())?.right)
        };
        let mut arrays = Vec::new();
        for (model, (round, coalition, samples)) in asked.into_iter().enumerate() {
            let mut entry = Entry::new(message.kind, "right or wrong", Some(message.from), vec![number]);
            entry.about.test = Some(request.to_wire());
            entry.about.round = Some(round);
            entry.about.coalition = Some(coalition);
            entry = entry.of_owner(owner, samples.iter().collect());
            if let Some(&count) = counts.get(model) {
                let entry = Entry { what: "count", disclosure: Some(Disclosure::Counts), ..entry };
                arrays.push(entry.filled((1, 1), Numbers::Signed(vec![count as i64])));
            } else if let Some(right) = rights.get(model) {
                entry.disclosure = Some(Disclosure::RightOrWrong);
                let bits: Vec<u8> = samples.iter().map(|sample| u8::from(right.contains(sample))).collect();
                arrays.push(entry.filled((1, bits.len()), Numbers::Bytes(bits)));
            }
        }
        Ok(arrays)
    }

    /// What an owner was asked to test itself.
    fn own_test(
        &self,
        request: RequestId,
        owner: usize,
    ) -> Result<Vec<(RoundId, Coalition, SampleSet)>, CodecError> {
        let mut asked = Vec::new();
        let to = PartyId::Client(owner);
        for message in self.sent.iter().filter(|message| message.kind == Kind::OwnTest && message.to == to) {
            let sent = OwnTest::decode(message.content(), &())?;
            if sent.request != request {
                continue;
            }
            for round in sent.rounds {
                let models = sent.models.iter();
                asked.extend(models.map(|(coalition, samples)| (round, *coalition, samples.clone())));
            }
            break;
        }
        Ok(asked)
    }

    /// How many predictions are right, as the counting client says.
    fn count(&self, (number, message): (usize, &SeenMessage)) -> Result<Vec<Opened>, CodecError> {
        let Count { address, right } = Count::decode(message.content(), &())?;
        let Some(context) = self.announced.contexts.get(&address.unit) else { return Ok(Vec::new()) };
        let mut entry = Entry::new(message.kind, "count", Some(message.from), vec![number]);
        entry.disclosure = Some(Disclosure::Counts);
        let mut entry = entry.of_model(context, 0, context.round);
        if let Some(segment) = context.segments(self.session, 0).next() {
            entry = entry.of_owner(segment.owner, segment.samples().collect());
        }
        Ok(vec![entry.filled((1, 1), Numbers::Signed(vec![right as i64]))])
    }
}

/// Whether servers send each other such messages to open something masked.
fn is_masked(kind: Kind) -> bool {
    matches!(kind, Kind::MaskedFactors | Kind::MaskedFirstLayer | Kind::MaskedLayer)
}

/// The head of masked factors: both servers' shares of the same have the same.
fn slot(kind: Kind, content: &[u8]) -> Option<&[u8]> {
    Head::of(kind, content).ok().map(|(_, bytes)| bytes)
}

/// The other server's share of masked weights, and the sum with the own.
fn masked_weights(
    (rows, columns): (usize, usize),
    (other, own): (&[u8], Option<&[u8]>),
    entry: Entry,
    message: &SeenMessage,
) -> Result<Vec<Opened>, Error> {
    let malformed = |why| Error::Malformed { from: message.from, kind: message.kind, why };
    let share = |elements| unpack_matrix(Ring64, rows, columns, elements).map_err(malformed);
    let other = share(other)?;
    let mut arrays = vec![entry.clone().matrix(&other, 1)];
    if let Some(own) = own {
        let mut entry = entry.derived("masked-factors", "masked factors");
        entry.disclosure = Some(Disclosure::MaskedFactors);
        arrays.push(entry.matrix(&other.add(&share(own)?)?, 1));
    }
    Ok(arrays)
}

/// A seed as it is.
fn seed((number, message): (usize, &SeenMessage)) -> Result<Vec<Opened>, CodecError> {
    let seed = match message.kind {
        Kind::CommonSeed => CommonSeed::decode(message.content(), &())?.seed,
        _ => MaskSeed::decode(message.content(), &())?.seed,
    };
    let mut entry = Entry::new(message.kind, "seed", Some(message.from), vec![number]);
    if let PartyId::Client(client) = message.from {
        entry.about.client = Some(client);
    }
    Ok(vec![entry.filled((1, 32), Numbers::Bytes(seed.expose().to_vec()))])
}
