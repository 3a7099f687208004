//! One coalition on one owner's samples with all three parties in one place: to be timed, and to be tested.

use secsv_algebra::Seed;
use secsv_federation::{Coalition, RoundId};

use super::{
    dealer::{OwnerKeys, deal},
    evaluator::{Evaluator, Opened},
    keys::OwnerKey,
    shape::{Shape, Widths},
};
use crate::message::Server;

/// Both servers' shares of something: the principal's, the auxiliary's.
type Shares = [Vec<u64>; 2];

/// What is found of predictions, from shares of scores and of labels, as both servers find it from what the owner deals.
pub(super) fn find_right(
    shape: &Shape,
    keys: &OwnerKeys,
    place: (RoundId, Coalition),
    (scores, factors): (&Shares, &Shares),
    labels: &[usize],
) -> Vec<u64> {
    let mut dealt = Vec::with_capacity(shape.dealt_len());
    deal(shape, keys, place, labels, &mut dealt);
    let evaluator = |server| {
        let (key, dealt) = match server {
            Server::Principal => (&keys[0], None),
            Server::Auxiliary => (&keys[1], Some(&dealt[..])),
        };
        Evaluator { shape, server, key, place, dealt }
    };
    let servers = [Server::Principal, Server::Auxiliary].map(evaluator);
    let mut messages = [0, 1].map(|server| {
        let mut out = Vec::with_capacity(shape.opened_len(0));
        servers[server].scores(&scores[server], &mut out);
        out
    });
    let (mut opened, mut compared) = (Vec::new(), Vec::new());
    for stage in 0..shape.stages() {
        // Both servers open it.
        opened = servers[1].open(stage, &messages[0], &messages[1]);
        opened.clone_from(&servers[0].open(stage, &messages[0], &messages[1]));
        if stage == usize::from(!shape.is_single()) {
            compared = servers[1].compared(&opened);
            compared.clone_from(&servers[0].compared(&opened));
        }
        messages = [0, 1].map(|server| {
            let mut out = Vec::with_capacity(shape.opened_len(stage + 1));
            let state = Opened { opened: &opened, compared: &compared };
            servers[server].message(stage + 1, state, Some(&factors[server]), &mut out);
            out
        });
    }
    let [principal, auxiliary] = [0, 1].map(|server| servers[server].outcome(&opened));
    principal.iter().zip(&auxiliary).map(|(own, other)| shape.found(*own, *other)).collect()
}

/// A test of so many samples, all of whose scores are zero.
pub(crate) fn rehearse(widths: Widths, (rows, classes): (usize, usize), samples: usize) -> Vec<u64> {
    let shape = Shape::new(widths, rows, classes, samples);
    let seed = Seed::from_bytes([5; 32]);
    let keys = [0, 1].map(|server| OwnerKey::new(seed.derive("key", server)));
    let shares = || [0, 1].map(|_| vec![0; rows * samples]);
    find_right(&shape, &keys, (RoundId(1), Coalition::EMPTY), (&shares(), &shares()), &vec![0; samples])
}
