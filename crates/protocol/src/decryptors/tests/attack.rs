//! The attack the paper's rules leave open, carried out; and failing against ours.

use super::*;

/// Any prime above the numbers below does: they are recovered exactly.
const FIELD: i128 = (1 << 61) - 1;
const FEATURES: usize = 3;
const OUTPUTS: usize = 2;
const ROUNDS: usize = 3;

/// First-layer outputs for one sample: a coalition's weights and what its decryptor sees.
type Received = Vec<(Vec<i128>, Vec<i128>)>;

/// The unique solution of a linear system, if it has one and only one.
fn solve(rows: &[Vec<i128>], right: &[i128], unique: bool) -> Option<Vec<i128>> {
    let columns = rows.first()?.len();
    let mut rows: Vec<Vec<i128>> =
        rows.iter().zip(right).map(|(row, &b)| [row.clone(), vec![b]].concat()).collect();
    let mut pivots = Vec::new();
    for column in 0..columns {
        let found = (pivots.len()..rows.len()).find(|&row| rows[row][column].rem_euclid(FIELD) != 0);
        let Some(found) = found else { continue };
        rows.swap(pivots.len(), found);
        let inverse = power(rows[pivots.len()][column].rem_euclid(FIELD), FIELD - 2);
        let pivot: Vec<_> =
            rows[pivots.len()].iter().map(|v| v.rem_euclid(FIELD) * inverse % FIELD).collect();
        for row in &mut rows {
            let factor = row[column].rem_euclid(FIELD);
            for (value, &other) in row.iter_mut().zip(&pivot) {
                *value = (*value - factor * other).rem_euclid(FIELD);
            }
        }
        rows[pivots.len()] = pivot;
        pivots.push(column);
    }
    let consistent = rows[pivots.len()..].iter().all(|row| row[columns] == 0);
    if !consistent || unique && pivots.len() < columns {
        return None;
    }
    let mut solution = vec![0; columns];
    for (row, &column) in rows.iter().zip(&pivots) {
        let value = row[columns];
        solution[column] = if value > FIELD / 2 { value - FIELD } else { value };
    }
    Some(solution)
}

fn power(base: i128, exponent: i128) -> i128 {
    let square = |half: i128| half * half % FIELD;
    match exponent {
        0 => 1,
        odd if odd % 2 == 1 => power(base, odd - 1) * base % FIELD,
        even => square(power(base, even / 2)),
    }
}

/// A federation in the clear: `models[round][client]` is a matrix, row by row.
struct Clear {
    sizes: Vec<i128>,
    models: Vec<Vec<Vec<Vec<i128>>>>,
    sample: Vec<i128>,
}

impl Clear {
    fn new(n: usize, seed: i128) -> Self {
        let mut state = seed;
        let mut draw = || {
            state = (state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) & i128::from(u64::MAX);
            (state >> 33) % 101 - 50
        };
        let mut matrix =
            || (0..OUTPUTS).map(|_| (0..FEATURES).map(|_| draw()).collect()).collect::<Vec<Vec<_>>>();
        let models = (0..ROUNDS).map(|_| (0..n).map(|_| matrix()).collect()).collect();
        Self {
            sizes: (0..n as i128).map(|client| 10 + 7 * client).collect(),
            models,
            sample: vec![17, -42, 5],
        }
    }

    fn outputs(&self, round: usize, weights: &[i128]) -> Vec<i128> {
        let output = |row: usize| {
            let products = weights.iter().zip(&self.models[round]).map(|(weight, model)| {
                weight * model[row].iter().zip(&self.sample).map(|(w, x)| w * x).sum::<i128>()
            });
            products.sum()
        };
        (0..OUTPUTS).map(output).collect()
    }

    fn reply(&self, round: usize, coalition: Coalition) -> (Vec<i128>, Vec<i128>) {
        let weights = weights(coalition, &self.sizes);
        let outputs = self.outputs(round, &weights);
        (weights, outputs)
    }

    /// The sample, from what a client received and models it knows: its own and, if it is to use it, the sum of all.
    fn steal(&self, client: usize, received: &[Received], grand: bool) -> Option<Vec<i128>> {
        let own: Vec<_> = (0..self.sizes.len()).map(|i| i128::from(i == client)).collect();
        let target = if grand { &self.sizes } else { &own };
        let (mut rows, mut right) = (Vec::new(), Vec::new());
        for (round, received) in received.iter().enumerate() {
            // With the grand model its own may be added in any multiple: it knows both.
            let free = own.iter().map(|v| v * i128::from(grand)).collect();
            let vectors: Vec<_> = received.iter().map(|(weights, _)| weights.clone()).chain([free]).collect();
            let Some(factors) = combination(&vectors, target) else { continue };
            let known: Vec<_> =
                target.iter().zip(&own).map(|(t, o)| t - o * factors[received.len()]).collect();
            for output in 0..OUTPUTS {
                let feature = |i: usize| -> i128 {
                    known.iter().zip(&self.models[round]).map(|(k, model)| k * model[output][i] % FIELD).sum()
                };
                rows.push((0..FEATURES).map(feature).collect());
                right.push(factors.iter().zip(received).map(|(f, (_, y))| f * y[output] % FIELD).sum());
            }
        }
        solve(&rows, &right, true)
    }
}

/// Factors with which the vectors add up to the target.
fn combination(vectors: &[Vec<i128>], target: &[i128]) -> Option<Vec<i128>> {
    let rows: Vec<Vec<i128>> =
        (0..target.len()).map(|i| vectors.iter().map(|vector| vector[i]).collect()).collect();
    solve(&rows, target, false)
}

/// Everything each client receives of the batch of the last client.
fn received(clear: &Clear, decryptor: impl Fn(usize, Coalition) -> Option<usize>) -> Vec<Vec<Received>> {
    let n = clear.sizes.len();
    let mut all = vec![vec![Received::new(); ROUNDS]; n];
    for (round, coalition) in
        (0..ROUNDS).flat_map(|round| Coalition::first(n).subsets().map(move |s| (round, s)))
    {
        if let Some(client) = decryptor(round, coalition) {
            all[client][round].push(clear.reply(round, coalition));
        }
    }
    all
}

#[test]
fn the_papers_rule_gives_the_samples_away() {
    let clear = Clear::new(4, 1);
    // The first client who owns neither the batch nor the model.
    let papers = |_, coalition: Coalition| {
        let may = |client: &usize| coalition != Coalition::EMPTY.with(*client);
        if coalition.is_empty() { None } else { (0..3).find(may) }
    };
    let received = received(&clear, papers);
    assert_eq!(clear.steal(0, &received[0], false), Some(clear.sample.clone()));
}

#[test]
fn two_replies_per_round_are_enough() {
    let clear = Clear::new(5, 2);
    let of = |round, members: &[usize]| clear.reply(round, members.iter().copied().collect());
    let two = |round| vec![of(round, &[0, 2, 3]), of(round, &[2, 3])];
    let received: Vec<_> = (0..2).map(two).collect();
    assert_eq!(clear.steal(0, &received, false), Some(clear.sample.clone()));
    // One round has fewer outputs than the sample has features.
    assert_eq!(clear.steal(0, &received[..1], false), None);
}

/// What each client receives by our assignment.
fn ours(clear: &Clear) -> Vec<Vec<Received>> {
    let n = clear.sizes.len();
    let network = Network::feedforward(1).unwrap();
    let participants = Coalition::first(n);
    let sizes = (0..n).map(|client| u64::from(client == n - 1)).collect();
    let case = Case { sizes, protocol: Protocol::SecSv, network, participants, round: RoundId(1) };
    let planner = std::cell::RefCell::new(case.planner());
    let decryptor = |round: usize, coalition| {
        let unit = Unit { round: RoundId(round as u32 + 1), participants, group: 0, coalition };
        match planner.borrow_mut().assign(unit, Coalition::EMPTY) {
            Ok(roles) => Some(roles.decryptors()[0]),
            Err(PlanError::NothingToTest { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    };
    received(clear, decryptor)
}

#[test]
fn our_assignment_gives_no_client_its_own_models_outputs() {
    for n in 4..=7 {
        let clear = Clear::new(n, 3);
        let received = ours(&clear);
        assert_eq!(received.iter().flatten().flatten().count(), ROUNDS * ((1 << n) - 4));
        for (client, received) in received.iter().enumerate() {
            let own: Vec<_> = (0..n).map(|i| i128::from(i == client)).collect();
            for round in received {
                let vectors: Vec<_> = round.iter().map(|(weights, _)| weights.clone()).collect();
                assert_eq!(combination(&vectors, &own), None, "client {client}");
            }
            assert_eq!(clear.steal(client, received, false), None);
        }
    }
}

/// What the span rule does not prevent: with the global model, which everybody has, whoever decrypts rebuilds the sample.
#[test]
fn whoever_decrypts_rebuilds_the_sample() {
    for n in 4..=7 {
        let clear = Clear::new(n, 4);
        let received = ours(&clear);
        let reads = |client: &usize| received[*client].iter().any(|round| !round.is_empty());
        let readers: Vec<_> = (0..n).filter(reads).collect();
        assert_eq!(readers.len(), 3, "{n} clients");
        for client in readers {
            assert_eq!(clear.steal(client, &received[client], true), Some(clear.sample.clone()));
        }
    }
}
