//! Every decoder of the wire as bytes to bytes, for the fuzz targets: what is accepted is encoded again.

use std::sync::Arc;

use secsv_algebra::{Field, Prg, Ring64, Seed};
use secsv_federation::{Coalition, RoundId, SampleSet};

use crate::{
    CodecError, Error, PartyId,
    codec::{Reader, Writer, pack, unpack},
    message::{Hello, Place, TestPlan, UnitId, UnitPlan, join, split},
    sealed::EnvelopeKeys,
    session::{Federation, Session},
};

type Outcome = Result<Vec<u8>, CodecError>;

/// What a client publishes, of two operators.
pub fn hello(bytes: &[u8]) -> Outcome {
    Hello::decode(bytes, 2).map(|hello| hello.encode())
}

/// An honest plan.
pub fn honest_plan() -> Vec<u8> {
    let mut samples = SampleSet::none(21);
    [0, 3, 20].into_iter().for_each(|sample| samples.insert(sample));
    let unit = |group, gru, dealer: Option<usize>| UnitPlan {
        group,
        part: 3,
        coalitions: vec![Coalition::from_bits(0b1011), Coalition::from_bits(0b11)],
        samples: samples.clone(),
        gathered: dealer.map(|_| samples.clone()),
        chain: vec![1, 2],
        gru,
        dealer,
        counter: None,
    };
    let units = vec![unit(0, None, None), unit(1, Some((2, 3)), Some(1))];
    TestPlan { test: 5, round: RoundId(2), units }.encode()
}

/// A test's plan.
pub fn plan(bytes: &[u8]) -> Outcome {
    TestPlan::decode(bytes).map(|plan| plan.encode())
}

/// The head of messages about a unit.
pub fn place(bytes: &[u8]) -> Outcome {
    Place::decode(bytes).map(|(place, rest)| place.encode(rest))
}

/// An honest head with content.
pub fn honest_place() -> Vec<u8> {
    Place { unit: UnitId { test: 9, group: 1, part: 2 }, step: 2, item: 1, chunk: 3 }.encode(&[5; 20])
}

/// A set of samples.
pub fn samples(bytes: &[u8]) -> Outcome {
    let mut reader = Reader::new(bytes);
    let samples = reader.samples()?;
    reader.end()?;
    let mut writer = Writer::default();
    writer.samples(&samples);
    Ok(writer.finish())
}

/// Byte strings one after the other.
pub fn parts(bytes: &[u8]) -> Outcome {
    split(bytes).map(|parts| join(&parts.into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>()))
}

/// Nine elements of a field.
pub fn field_elements(bytes: &[u8]) -> Outcome {
    unpack(Field::standard(), 9, bytes).map(|elements| pack(Field::standard(), &elements))
}

/// Nine words.
pub fn words(bytes: &[u8]) -> Outcome {
    unpack(Ring64, 9, bytes).map(|elements| pack(Ring64, &elements))
}

/// A session: the proposal is kept, what follows from it may be refused.
pub fn session(federation: &Arc<Federation>, bytes: &[u8]) -> Outcome {
    Session::decode(federation, bytes).map(|_| bytes.to_vec())
}

fn envelope_keys() -> [EnvelopeKeys; 2] {
    [1, 2].map(|seed| EnvelopeKeys::derive(&Seed::from_bytes([seed; 32])))
}

/// An honest envelope.
pub fn honest_envelope() -> Result<Vec<u8>, Error> {
    let [leader, client] = envelope_keys();
    let mut rng = Prg::new(&Seed::from_bytes([3; 32]));
    let (from, to) = (PartyId::Client(0), PartyId::Client(1));
    leader.seal(from, to, &client.public(), b"session", &[9; 64], &mut rng)
}

/// Opens a sealed envelope.
pub fn envelope(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let [leader, client] = envelope_keys();
    let (from, to) = (PartyId::Client(0), PartyId::Client(1));
    client.open(from, to, &leader.public(), b"session", bytes).map(|_| bytes.to_vec())
}
