//! What a server reads: its shares, and at the principal what they add up to.

use std::collections::BTreeMap;

use secsv_algebra::{Ring, Ring64};
use secsv_federation::{Coalition, RoundId, SampleSet};

use super::{
    Announced, Entry, Message, Numbers, Opened, View, announced,
    labels::LabelShares,
    shares::{gated_factors, server_share, shared, triple},
};
use crate::{
    Error, PartyId,
    codec::{Reader, unpack_matrix},
    decryptors::Protocol,
    disclosure::Disclosure,
    error::CodecError,
    message::{Kind, Place},
    secret::{SharedModel, first_columns, stacked},
    session::Session,
};

/// Messages of a session, read by a server.
struct Reading<'a> {
    session: &'a Session,
    party: PartyId,
    protocol: Protocol,
    announced: Announced,
    /// What this server sent.
    sent: &'a [Message],
    /// Its openings, by their heads.
    openings: BTreeMap<&'a [u8], &'a [u8]>,
}

/// What a server saw. `sent` are its own announcements and openings.
pub(crate) fn server_view(
    session: Option<&Session>,
    protocol: Protocol,
    party: PartyId,
    received: &[Message],
    sent: &[Message],
) -> Result<View, Error> {
    let Some(session) = session else {
        return Ok(View::new(party, protocol, received, Vec::new(), Vec::new()));
    };
    let plans = announced(session, if party == PartyId::Principal { sent } else { received })?;
    let own = sent.iter().filter(|message| message.kind == Kind::Opening).map(Message::content);
    let openings = own.filter_map(|content| Some((opening_head(protocol, content)?, content))).collect();
    let reading = Reading { session, party, protocol, announced: plans, sent, openings };
    let mut labels = LabelShares::default();
    let mut arrays = Vec::new();
    for message in received.iter().enumerate() {
        arrays.extend(reading.read(message, &mut labels)?);
    }
    // The auxiliary too: the principal opens its seeds to it.
    arrays.extend(labels.differences(session, &reading.announced.contexts)?);
    let mut view = View::new(party, protocol, received, reading.announced.plans, arrays);
    if protocol != Protocol::Hesv {
        view.secrets.push("common seed of the servers");
    }
    Ok(view)
}

impl Reading<'_> {
    fn read(
        &self,
        (number, message): (usize, &Message),
        labels: &mut LabelShares,
    ) -> Result<Vec<Opened>, Error> {
        let (session, party, contexts) = (self.session, self.party, &self.announced.contexts);
        let malformed = |why| Error::Malformed { from: message.from, kind: message.kind, why };
        let (field, is_secret) = (session.field(), self.protocol == Protocol::SecretSv);
        let with_number = (number, message);
        match (message.kind, message.from) {
            (Kind::OwnResult, PartyId::Client(owner)) => {
                self.own_result(with_number, owner).map_err(malformed)
            }
            (Kind::Count, _) => self.count(with_number).map_err(malformed),
            (Kind::Common, _) => seed(with_number).map_err(malformed),
            (Kind::ServerKeys, _) if is_secret => seed(with_number).map_err(malformed),
            _ if self.protocol == Protocol::Hesv => Ok(Vec::new()),
            (Kind::Data, PartyId::Client(owner)) if is_secret => self.data(Ring64, with_number, owner),
            (Kind::Data, PartyId::Client(owner)) => self.data(field, with_number, owner),
            (Kind::Model, PartyId::Client(_)) if is_secret => self.model(with_number).map_err(malformed),
            (Kind::FirstLayer, PartyId::Client(owner)) if is_secret => {
                self.dealt(with_number, owner).map_err(malformed)
            }
            (Kind::Shared, _) if is_secret => shared(session, Ring64, party, contexts, with_number),
            (Kind::Shared, _) => shared(session, field, party, contexts, with_number),
            (Kind::Triple, _) if is_secret => triple(session, Ring64, party, contexts, with_number),
            (Kind::Triple, _) => triple(session, field, party, contexts, with_number),
            (Kind::Truth | Kind::Predicted | Kind::Verdict | Kind::Opened, _) => {
                labels.take(session, party, contexts, with_number)
            }
            (Kind::Opening, _) if is_secret => self.secret_factors(with_number),
            (Kind::Opening, _) => {
                let own = self.own_opening(message.content());
                gated_factors(session, field, contexts, with_number, (message.content(), own))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The opening that this server sent for the same place.
    fn own_opening(&self, content: &[u8]) -> Option<&[u8]> {
        self.openings.get(opening_head(self.protocol, content)?).copied()
    }

    fn data<R: Ring>(
        &self,
        ring: R,
        (number, message): (usize, &Message),
        owner: usize,
    ) -> Result<Vec<Opened>, Error> {
        let malformed = |why| Error::Malformed { from: message.from, kind: message.kind, why };
        let samples = self.session.hellos.get(owner).map_or(0, |hello| hello.samples as usize);
        let shape = (self.session.program().input_size, samples);
        let share = server_share(ring, self.party, shape, message.content()).map_err(malformed)?;
        let entry = Entry::new(message.kind, "share", Some(message.from), vec![number]);
        let bits = self.session.precision.operators[0].input.fractional_bits();
        let entry = Entry { scale: Some(f64::powi(0.5, bits as i32)), ..entry };
        Ok(vec![entry.of_owner(owner, (0..samples).collect()).matrix(share.expose(), 1)])
    }

    fn model(&self, (number, message): (usize, &Message)) -> Result<Vec<Opened>, CodecError> {
        let mut r = Reader::new(message.content());
        let round = RoundId(r.u32()?);
        let shape = (1, SharedModel::size(self.session.program()));
        let share = server_share(Ring64, self.party, shape, r.rest())?;
        let mut entry = Entry::new(message.kind, "share", Some(message.from), vec![number]);
        entry.about.round = Some(round);
        if let PartyId::Client(client) = message.from {
            entry.about.client = Some(client);
            entry.about.coalition = Some(Coalition::EMPTY.with(client));
        }
        Ok(vec![entry.matrix(share.expose(), 1)])
    }

    /// A share of masks times samples.
    fn dealt(&self, (number, message): (usize, &Message), owner: usize) -> Result<Vec<Opened>, CodecError> {
        let mut r = Reader::new(message.content());
        let round = RoundId(r.u32()?);
        let shape = (stacked(self.session, round), first_columns(self.session, owner));
        let share = unpack_matrix(Ring64, shape.0, shape.1, r.rest())?;
        let mut entry =
            Entry::new(message.kind, "share of a dealt product", Some(message.from), vec![number]);
        entry.about.round = Some(round);
        entry.about.operator = Some(0);
        let positions = self.session.program().operators[0].positions;
        entry.about.positions = Some((0, positions));
        let samples = self.session.hellos[owner].samples as usize;
        Ok(vec![entry.of_owner(owner, (0..samples).collect()).matrix(&share, positions)])
    }

    /// Masked factors under SecretSV: of models, or of a gated sum.
    fn secret_factors(&self, (number, message): (usize, &Message)) -> Result<Vec<Opened>, Error> {
        let malformed = |why| Error::Malformed { from: message.from, kind: message.kind, why };
        let mut r = Reader::new(message.content());
        let program = self.session.program();
        let mut entry = Entry::new(message.kind, "share", Some(message.from), vec![number]);
        let (shape, head) = match r.u8().map_err(malformed)? {
            0 => {
                let round = RoundId(r.u32().map_err(malformed)?);
                entry.about.round = Some(round);
                entry.about.owner = Some(r.u16().map_err(malformed)?);
                entry.about.operator = Some(0);
                ((stacked(self.session, round), program.operators[0].shape.d_in), 7)
            }
            1 => {
                let (place, _) = Place::decode(r.rest()).map_err(malformed)?;
                let Some(context) = self.announced.contexts.get(&place.unit) else { return Ok(Vec::new()) };
                let operator = program.operators.get(place.item);
                let shape = operator.ok_or(malformed(CodecError::Value { what: "operator" }))?.shape;
                entry = entry.of_model(context, 0, context.round);
                entry.about.operator = Some(place.item);
                ((shape.d_out, shape.d_in), 1 + Place::LENGTH)
            }
            _ => {
                let own = self.own_opening(message.content());
                let contents = (&message.content()[1..], own.map(|own| &own[1..]));
                let contexts = &self.announced.contexts;
                return gated_factors(self.session, Ring64, contexts, (number, message), contents);
            }
        };
        let rest = |content: &[u8]| {
            unpack_matrix(Ring64, shape.0, shape.1, content.get(head..).unwrap_or_default())
                .map_err(malformed)
        };
        let other = rest(message.content())?;
        let mut arrays = vec![entry.clone().matrix(&other, 1)];
        if let Some(own) = self.own_opening(message.content()) {
            let mut entry = entry.derived("masked-factors", "masked factors");
            entry.disclosure = Some(Disclosure::MaskedFactors);
            arrays.push(entry.matrix(&other.add(&rest(own)?)?, 1));
        }
        Ok(arrays)
    }

    /// What an owner says of the models that it was asked to test itself.
    fn own_result(
        &self,
        (number, message): (usize, &Message),
        owner: usize,
    ) -> Result<Vec<Opened>, CodecError> {
        let mut r = Reader::new(message.content());
        let test = r.u64()?;
        let mut arrays = Vec::new();
        for (round, coalition, samples) in self.base_test(test, owner)? {
            let mut entry = Entry::new(message.kind, "right or wrong", Some(message.from), vec![number]);
            entry.about.test = Some(test);
            entry.about.round = Some(round);
            entry.about.coalition = Some(coalition);
            entry = entry.of_owner(owner, samples.iter().collect());
            if self.protocol == Protocol::Hesv {
                let entry = Entry { what: "count", disclosure: Some(Disclosure::Counts), ..entry };
                arrays.push(entry.filled((1, 1), Numbers::Signed(vec![r.u64()? as i64])));
                continue;
            }
            let right = r.samples()?;
            entry.disclosure = Some(Disclosure::RightOrWrong);
            let bits: Vec<u8> = samples.iter().map(|sample| u8::from(right.contains(sample))).collect();
            arrays.push(entry.filled((1, bits.len()), Numbers::Bytes(bits)));
        }
        Ok(arrays)
    }

    /// What an owner was asked to test itself.
    fn base_test(&self, test: u64, owner: usize) -> Result<Vec<(RoundId, Coalition, SampleSet)>, CodecError> {
        let mut asked = Vec::new();
        let to = PartyId::Client(owner);
        for message in self.sent.iter().filter(|message| message.kind == Kind::OwnTest && message.to == to) {
            let mut r = Reader::new(message.content());
            if r.u64()? != test {
                continue;
            }
            let rounds = r.rounds()?;
            let mut tests = Vec::new();
            for _ in 0..r.count("coalitions", size_of::<u128>())? {
                tests.push((Coalition::from_bits(r.u128()?), r.samples()?));
            }
            for round in rounds {
                asked.extend(tests.iter().map(|(coalition, samples)| (round, *coalition, samples.clone())));
            }
            break;
        }
        Ok(asked)
    }

    /// How many predictions are right, as the counting client says.
    fn count(&self, (number, message): (usize, &Message)) -> Result<Vec<Opened>, CodecError> {
        let (place, rest) = Place::decode(message.content())?;
        let Some(context) = self.announced.contexts.get(&place.unit) else { return Ok(Vec::new()) };
        let count = Reader::new(rest).u64()? as i64;
        let mut entry = Entry::new(message.kind, "count", Some(message.from), vec![number]);
        entry.disclosure = Some(Disclosure::Counts);
        let mut entry = entry.of_model(context, 0, context.round);
        if let Some((owner, first, places)) = context.segments(self.session, 0).next() {
            entry = entry.of_owner(owner, places.iter().map(|place| place - first).collect());
        }
        Ok(vec![entry.filled((1, 1), Numbers::Signed(vec![count]))])
    }
}

/// The head of an opening: both servers' openings of the same factors have the same.
fn opening_head(protocol: Protocol, content: &[u8]) -> Option<&[u8]> {
    let length = match (protocol, content.first()?) {
        (Protocol::SecretSv, 0) => 1 + size_of::<u32>() + size_of::<u16>(),
        (Protocol::SecretSv, _) => 1 + Place::LENGTH,
        _ => Place::LENGTH,
    };
    content.get(..length)
}

/// A seed as it is.
fn seed((number, message): (usize, &Message)) -> Result<Vec<Opened>, CodecError> {
    let mut r = Reader::new(message.content());
    let seed = r.seed()?;
    let mut entry = Entry::new(message.kind, "seed", Some(message.from), vec![number]);
    if let PartyId::Client(client) = message.from {
        entry.about.client = Some(client);
    }
    Ok(vec![entry.filled((1, 32), Numbers::Bytes(seed.expose().to_vec()))])
}
