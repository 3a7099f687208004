//! Every decoder of the wire as bytes to bytes, for the fuzz targets: what is accepted is encoded again.

mod samples;

pub use samples::{Sample, samples};

use std::sync::Arc;

use secsv_algebra::{Field, Prg, Ring64, Seed};

use crate::{
    CodecError, Error, PartyId,
    codec::{Reader, Writer, pack, unpack},
    sealed::EnvelopeKeys,
    session::{Federation, Session},
};

type Outcome = Result<Vec<u8>, CodecError>;

/// A set of samples.
pub fn sample_set(bytes: &[u8]) -> Outcome {
    let mut reader = Reader::new(bytes);
    let samples = reader.samples()?;
    reader.end()?;
    let mut writer = Writer::default();
    writer.samples(&samples);
    Ok(writer.finish())
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
