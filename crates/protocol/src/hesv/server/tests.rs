//! What clients may not say to the server.

use secsv_algebra::{Matrix, Prg, Seed};
use secsv_he::{Preset, SecretKey};

use super::*;
use crate::{
    Principal,
    hesv::encrypt_batches,
    message::{ClientHello, Count, Message as _, Parts, StepAddress, UnitPart},
    precision::Ranges,
    role::{Meter, Probe, Role as _},
    sealed::EnvelopeKeys,
    session::{Agreed, Matmul, tests::federation, typical_costs},
    test_id::TestId,
};

struct Nobody;

impl Probe for Nobody {
    fn enter(&mut self, _phase: Phase) {}
}

/// A principal with a session of four clients who bring two samples each, and a key of theirs.
fn principal() -> (Principal, EncryptedSession, SecretKey) {
    let federation = federation(crate::decryptors::Protocol::Hesv, Matmul::Squaring);
    let seed = Seed::from_bytes([3; 32]);
    let costs = Some(typical_costs(Preset::Standard));
    let mut principal = Principal::new(Arc::new(federation), costs, seed.clone());
    for client in 0..4 {
        let public_key = EnvelopeKeys::derive(&seed.derive("client", client)).public();
        let ranges = Ranges { norms: vec![1], inputs: vec![1], outputs: vec![1] };
        let hello =
            ClientHello { samples: 2, ranges, public_key, accepts_few: false, agreement: Default::default() }
                .encode();
        let from = PartyId::Client(client as usize);
        principal.handle(Incoming::new(from, Kind::ClientHello, hello)).unwrap();
    }
    let Agreed::Hesv(session) = principal.session().unwrap().agreed() else { panic!("another protocol") };
    let key = SecretKey::from_seed(session.parameters(), seed);
    (principal, session, key)
}

/// Takes a message and does the work that follows from it.
fn send(principal: &mut Principal, from: PartyId, kind: Kind, content: Vec<u8>) -> Result<(), Error> {
    let mut jobs = principal.handle(Incoming::new(from, kind, content))?.jobs;
    while let Some(job) = jobs.pop() {
        let next = job(&mut Meter::new(&mut Nobody))?;
        jobs.extend(next(principal)?.jobs);
    }
    Ok(())
}

fn chunk(chunk: usize, parts: &[Vec<u8>]) -> Vec<u8> {
    EncryptedData { chunk, batches: Parts::from(parts) }.encode()
}

#[test]
fn what_a_peer_may_not_say_is_an_error_that_names_it() {
    let (mut principal, session, key) = principal();
    let (leader, other) = (session.leader, (session.leader + 1) % 4);
    let (rng, parameters) = (&mut Prg::new(&Seed::from_bytes([4; 32])), key.parameters().clone());
    let mut unexpected = |from, kind, content: Vec<u8>| {
        let found = send(&mut principal, from, kind, content);
        let named = matches!(&found, Err(Error::Unexpected { from: f, .. }) if *f == from);
        assert!(named, "{kind}: {found:?}");
    };
    let address = StepAddress::new(UnitId { test: TestId::first(0u32), group: 0, part: UnitPart::WHOLE }, 0);
    for kind in [Kind::LayerHalf, Kind::CommonSeed, Kind::DifferenceShare, Kind::Count] {
        unexpected(PartyId::Auxiliary, kind, address.to_bytes());
    }
    unexpected(PartyId::Client(other), Kind::EvaluationKeys, Vec::new());
    unexpected(PartyId::Client(other), Kind::Triple, address.to_bytes());
    unexpected(PartyId::Client(other), Kind::Count, Count { address, right: 0 }.encode());
    for kind in [Kind::EncryptedActivations, Kind::EncryptedLabels, Kind::EncryptedPredictions] {
        unexpected(PartyId::Client(other), kind, address.to_bytes());
    }

    let mut malformed = |client: usize, kind, content: Vec<u8>| {
        let from = PartyId::Client(client);
        // Before any job: whoever is told so has nothing acknowledged.
        let found = principal.handle(Incoming::new(from, kind, content)).map(drop);
        let named = matches!(&found, Err(Error::Malformed { from: f, .. }) if *f == from);
        assert!(named, "{kind}: {found:?}");
    };
    let public = key.public_key(rng).to_bytes();
    malformed(leader, Kind::EvaluationKeys, public.clone());
    let twice = EvaluationKeys { public: &public, evaluation: &public }.encode();
    malformed(leader, Kind::EvaluationKeys, twice);
    let columns = Matrix::zero(session.field(), 3, 2);
    let mut nobody = Nobody;
    let mut meter = Meter::new(&mut nobody);
    let batches = encrypt_batches(&session, 0, &columns, &key, rng, &mut meter).unwrap();
    let own = session.groups[other].chunks.start;
    assert!(session.groups[other].owners.contains(other));
    malformed(leader, Kind::EncryptedData, chunk(own, &batches));
    malformed(other, Kind::EncryptedData, chunk(99, &batches));
    malformed(other, Kind::EncryptedData, chunk(own, &[]));
    malformed(other, Kind::EncryptedData, chunk(own, &[batches[0].clone(), batches[0].clone()]));
    malformed(other, Kind::EncryptedData, chunk(own, &[batches[0][1..].to_vec()]));
    malformed(other, Kind::EncryptedData, vec![1, 2]);
    let mut unreduced = batches[0].clone();
    unreduced[64..128].fill(0xff);
    malformed(other, Kind::EncryptedData, chunk(own, &[unreduced]));
    malformed(other, Kind::Model, chunk(1, &[]));
    malformed(other, Kind::OwnResultCounts, vec![0; 16]);
    malformed(other, Kind::Count, vec![0; 3]);

    // The honest ones are taken, once.
    let evaluation = key.evaluation_key(&rotation_steps(&session.encryption), rng).to_bytes(&parameters);
    let keys = EvaluationKeys { public: &public, evaluation: &evaluation }.encode();
    send(&mut principal, PartyId::Client(leader), Kind::EvaluationKeys, keys.clone()).unwrap();
    send(&mut principal, PartyId::Client(other), Kind::EncryptedData, chunk(own, &batches)).unwrap();
    assert!(send(&mut principal, PartyId::Client(leader), Kind::EvaluationKeys, keys).is_err());
    assert!(send(&mut principal, PartyId::Client(other), Kind::EncryptedData, chunk(own, &batches)).is_err());
    assert!(principal.awaiting().contains("encrypted data from"), "{}", principal.awaiting());
}
