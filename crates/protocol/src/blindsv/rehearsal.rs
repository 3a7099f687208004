//! One coalition on some samples of one owner with all three parties in one place: to be timed, and to be tested.

use std::sync::Arc;

use secsv_algebra::Seed;

use super::{
    dealer::{Dealer, OwnerKeys},
    evaluator::{Evaluator, Held, Memory, Opened},
    hops::Scales,
    keys::{OwnerKey, Place},
    later::{Later, LaterMasks},
    layer::model_masks,
    shape::Shape,
};
use crate::{Error, message::Server, session::BlindSession};

/// Both servers' shares of something: the principal's, the auxiliary's.
pub(super) type Shares = [Vec<u64>; 2];

/// A coalition's model behind the first operator.
#[derive(Default)]
pub(super) struct LaterParts<'a> {
    /// Both servers' parts of every operator.
    pub servers: [Vec<Later<'a>>; 2],
    /// The owner's masks of them.
    pub owner: Vec<LaterMasks<'a>>,
}

/// A unit's parties.
pub(super) struct Unit<'a> {
    pub shape: &'a Shape,
    pub keys: &'a OwnerKeys,
    pub place: Place,
    pub scales: &'a Scales,
    pub later: &'a LaterParts<'a>,
}

/// What was dealt, every message of both servers, and their shares of what is found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Transcript {
    pub dealt: Vec<u8>,
    pub messages: Vec<[Vec<u8>; 2]>,
    pub found: Shares,
    /// Their shares of how many numbers are out of range.
    pub overflows: [u64; 2],
}

impl Unit<'_> {
    /// Runs it on both servers' shares of the first operator's outputs, of the labels and of the samples.
    pub(super) fn run(
        &self,
        (outputs, factors, samples): (&Shares, &Shares, &Shares),
        labels: &[usize],
    ) -> Result<Transcript, Error> {
        let Self { shape, keys, place, scales, later } = *self;
        let mut dealt = Vec::with_capacity(shape.dealt_len());
        Dealer { shape, keys, place, scales, later: &later.owner, labels }.deal(&mut dealt)?;
        let evaluator = |server| {
            let (key, dealt) = match server {
                Server::Principal => (&keys[0], None),
                Server::Auxiliary => (&keys[1], Some(&dealt[..])),
            };
            Evaluator { shape, server, key, place, scales, dealt }
        };
        let servers = [Server::Principal, Server::Auxiliary].map(evaluator);
        let mut messages: Vec<[Vec<u8>; 2]> = Vec::with_capacity(shape.stages());
        messages.push([0, 1].map(|server| {
            let mut out = Vec::with_capacity(shape.opened_len(0));
            servers[server].begin(&outputs[server], &mut out);
            out
        }));
        let (mut found, mut known) = ([Vec::new(), Vec::new()], [Memory::default(), Memory::default()]);
        let mut overflows = [0; 2];
        for stage in 0..shape.stages() {
            let mut next = [Vec::new(), Vec::new()];
            for (server, evaluator) in servers.iter().enumerate() {
                // Both servers open it.
                let opened = evaluator.open(stage, &messages[stage][0], &messages[stage][1]);
                if let Some(count) = evaluator.overflows(stage, &opened) {
                    overflows[server] = shape.overflows(overflows[server], count);
                }
                if stage + 1 == shape.stages() {
                    found[server] = evaluator.outcome(&opened);
                    continue;
                }
                if let Some(of_stage) = evaluator.known(stage, &opened, &known[server]) {
                    known[server] = of_stage;
                }
                let held = Held {
                    labels: &factors[server],
                    samples: &samples[server],
                    later: &later.servers[server],
                };
                next[server].reserve(shape.opened_len(stage + 1));
                let state = Opened { opened: &opened, known: &known[server] };
                evaluator.message(stage + 1, state, held, &mut next[server])?;
            }
            messages.push(next);
        }
        messages.truncate(shape.stages());
        Ok(Transcript { dealt, messages, found, overflows })
    }

    /// What is found.
    pub(super) fn find(
        &self,
        shares: (&Shares, &Shares, &Shares),
        labels: &[usize],
    ) -> Result<Vec<u64>, Error> {
        let [principal, auxiliary] = self.run(shares, labels)?.found;
        Ok(principal.iter().zip(&auxiliary).map(|(own, other)| self.shape.found(*own, *other)).collect())
    }
}

/// A test of so many samples of all clients' models in the session's first round, all of whose numbers are zero. Says how many
/// words it found.
pub(crate) fn rehearse(session: &BlindSession, samples: usize) -> Result<usize, Error> {
    let Some((&round, _)) = session.federation.rounds.first_key_value() else { return Ok(0) };
    let coalition = session.federation.participants(round);
    let seed = Seed::from_bytes([5; 32]);
    let masks = model_masks(&seed);
    let keys = [0, 1].map(|server| OwnerKey::new(seed.derive("key", server)));
    let model = Arc::new(vec![0; session.model_len()]);
    let models: Vec<Arc<Vec<u8>>> = coalition.members().map(|_| model.clone()).collect();
    let operators = 1..session.program().operators.len();
    let part = |server: Server| {
        let masks = &masks[usize::from(server == Server::Auxiliary)];
        let later = |operator| Later::new(session, (server, masks), (round, coalition), operator, &models);
        operators.clone().map(later).collect::<Result<Vec<_>, Error>>()
    };
    let owner =
        operators.clone().map(|operator| LaterMasks::new(session, &masks, (round, coalition), operator));
    let later = LaterParts {
        servers: [part(Server::Principal)?, part(Server::Auxiliary)?],
        owner: owner.collect::<Result<_, Error>>()?,
    };
    let scales = session.scales(round, coalition);
    let outputs = session.program().operators[0].output_size();
    let mut found = 0;
    for (first, shape) in session.chunks_of(samples).iter() {
        let place = Place { round, coalition, first };
        let unit = Unit { shape: &shape, keys: &keys, place, scales: &scales, later: &later };
        let zeros = |rows: usize| [0, 1].map(|_| vec![0; rows * shape.samples()]);
        let shares = (zeros(outputs), zeros(shape.scores()), zeros(session.program().input_size));
        found += unit.find((&shares.0, &shares.1, &shares.2), &vec![0; shape.samples()])?.len();
    }
    Ok(found)
}
