//! BlindSV: what parties will send and compute, from the session alone.

use std::{collections::BTreeSet, sync::Arc};

use secsv_federation::RoundId;

use super::{Prediction, SEED, agreement, finished, tally::Tally};
use crate::{
    Error, PartyId, TestRequest,
    blindsv::{
        layer::{OwnerData, product_words},
        principal::{announcement, max_rounds, max_tests, round_memory, test_memory},
    },
    message::{
        Dealing, DealtProduct, Kind, MaskedModel, MaskedOpening, OutcomeShare, RoundFinished, RoundStart,
        TestFinished,
    },
    session::{BlindSession, Session},
    test_id::{RequestId, TestId},
};

const SERVERS: [PartyId; 2] = [PartyId::Principal, PartyId::Auxiliary];
/// A process before it holds anything, and what is on its way.
const BASE: usize = 64 << 20;

/// What these tests will cost.
pub(super) fn predict(
    shared: &Arc<Session>,
    session: &BlindSession,
    tests: &[TestRequest],
) -> Result<Prediction, Error> {
    let mut tally = Tally::new(shared);
    agreement(&mut tally);
    prepare(&mut tally, session);
    let mut rounds = BTreeSet::new();
    for (number, request) in (0u32..).zip(tests) {
        if rounds.insert(request.round) {
            round(&mut tally, session, request.round);
        }
        test(&mut tally, session, number.into(), request);
        finished(&mut tally, &TestFinished { test: TestId::first(number) });
    }
    rounds.iter().for_each(|&round| finished(&mut tally, &RoundFinished { round }));
    let Tally { operations, traffic, work, .. } = tally;
    let samples = session.program().input_size * session.samples();
    let rounds = max_rounds(session).min(session.federation.rounds.len()) * round_memory(session);
    let tests = max_tests(session).min(tests.len()) * test_memory(session);
    // As read, as numbers, as words, and a share at each server; both servers' rounds and tests.
    let memory = (BASE + samples * (4 + 8 + 8 + 8 + 8) + 2 * (rounds + tests)) as u64;
    Ok(Prediction { operations, traffic, work, memory, planner: None })
}

/// Seeds of masks, and shares of samples.
fn prepare(tally: &mut Tally<'_>, session: &BlindSession) {
    let leader = PartyId::Client(session.leader);
    SERVERS.into_iter().for_each(|server| tally.send(leader, server, Kind::ModelMaskSeed, SEED));
    for owner in session.owners() {
        let client = PartyId::Client(owner);
        SERVERS.into_iter().for_each(|server| tally.send(client, server, Kind::MaskSeed, SEED));
        let length = OwnerData::len(session, owner);
        tally.send(client, PartyId::Auxiliary, Kind::DataShare, length);
        tally.work.shared += (length / session.widths().bytes()) as u64;
    }
}

/// Models of a round, and their scores on every owner's samples.
fn round(tally: &mut Tally<'_>, session: &BlindSession, round: RoundId) {
    let participants = session.federation.participants(round);
    let concerned = session.owners().fold(participants, |all, owner| all.with(owner));
    for client in concerned.members() {
        tally.message(PartyId::Principal, PartyId::Client(client), &RoundStart { round });
    }
    let words = session.program().model_size();
    for client in participants.members() {
        for server in SERVERS {
            let length = MaskedModel::HEAD + session.model_len();
            tally.send(PartyId::Client(client), server, Kind::MaskedModel, length);
        }
        tally.work.shared += words as u64;
    }
    let d_in = session.program().operators[0].shape.d_in;
    for owner in session.owners() {
        let products = product_words(session, round, owner);
        let length = DealtProduct::HEAD + products * session.hops().bytes(0);
        tally.send(PartyId::Client(owner), PartyId::Auxiliary, Kind::DealtProduct, length);
        tally.work.shared += products as u64;
        // Once by the owner, once by each server.
        tally.work.word_products += 3 * (products * d_in) as u64;
    }
}

/// A test on every owner's samples.
fn test(tally: &mut Tally<'_>, session: &BlindSession, id: RequestId, request: &TestRequest) {
    let announced = announcement(id, request);
    let owners: Vec<usize> = session.owners().collect();
    for to in owners.iter().map(|&owner| PartyId::Client(owner)).chain([PartyId::Auxiliary]) {
        tally.message(PartyId::Principal, to, &announced);
    }
    // One total for all owners, even if there is none.
    let is_sum = session.outcome().is_sum();
    let mut found = if is_sum { session.summed_words() * session.outcome_bytes() } else { 0 };
    for (owner, _, chunks) in session.parts(announced.samples.as_ref()) {
        if !is_sum {
            found += chunks.outcome_len();
        }
        let is_secure = |coalition: &&_| !session.knows(owner, request.round, **coalition);
        let secure = request.coalitions.iter().filter(is_secure).count();
        let known = request.coalitions.len() - secure;
        let dealt = Dealing::HEAD + secure * chunks.dealt_len() + known * chunks.outcome_len();
        tally.send(PartyId::Client(owner), PartyId::Auxiliary, Kind::Dealing, dealt);
        for stage in (0..chunks.stages()).filter(|_| secure > 0) {
            let length = MaskedOpening::HEAD + secure * chunks.opened_len(stage);
            tally.send(PartyId::Principal, PartyId::Auxiliary, Kind::MaskedOpening, length);
            tally.send(PartyId::Auxiliary, PartyId::Principal, Kind::MaskedOpening, length);
        }
        let samples = chunks.samples() as u64;
        tally.work.clear_samples += known as u64 * samples;
        tally.work.blind_samples += secure as u64 * samples;
    }
    let found = OutcomeShare::HEAD + request.coalitions.len() * (found + session.overflow_bytes());
    tally.send(PartyId::Auxiliary, PartyId::Principal, Kind::OutcomeShare, found);
}
