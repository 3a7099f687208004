//! Which sums of replies are outputs of a model that the client knows.

use nalgebra::DMatrix;
use secsv_federation::Coalition;

/// Factors that make of replies the outputs of a mixture of known models.
#[derive(Clone, Debug, PartialEq)]
pub struct Combination {
    /// One factor for each reply.
    pub factors: Vec<f64>,
    /// Of all participants' models together.
    pub grand: f64,
    /// Of the client's own.
    pub own: f64,
}

/// Below this a factor is zero: vectors hold zeros and ones of a few clients.
const ZERO: f64 = 1e-9;

/// All independent mixtures of the participants' models together and the client's own that the replies about
/// these coalitions add up to.
pub fn known(coalitions: &[Coalition], participants: Coalition, client: usize) -> Vec<Combination> {
    let own = Coalition::EMPTY.with(client).intersection(participants);
    let vectors: Vec<Coalition> = [participants, own].into_iter().chain(coalitions.iter().copied()).collect();
    let known =
        relations(&vectors).into_iter().filter(|relation| relation[..2].iter().any(|x| x.abs() > ZERO));
    let mut found: Vec<Combination> = Vec::new();
    for relation in known {
        // Independent in what is known: two mixtures at most.
        let (grand, own) = (-relation[0], -relation[1]);
        let is_new = found.iter().all(|other| (other.grand * own - other.own * grand).abs() > ZERO);
        if is_new && found.len() < 2 {
            found.push(Combination { factors: relation[2..].to_vec(), grand, own });
        }
    }
    found
}

/// Factors with which replies, and own outputs at the end, add up to those of one coalition's model.
pub fn of_coalition(coalitions: &[Coalition], client: Option<usize>, target: Coalition) -> Option<Vec<f64>> {
    let own = client.map(|client| Coalition::EMPTY.with(client));
    let vectors: Vec<Coalition> = coalitions.iter().copied().chain(own).chain([target]).collect();
    let relation =
        relations(&vectors).into_iter().find(|relation| relation[vectors.len() - 1].abs() > ZERO)?;
    let (target, factors) = relation.split_last()?;
    Some(factors.iter().map(|factor| -factor / target).collect())
}

/// A basis of the relations between indicator vectors: factors with which they add up to zero. The vectors
/// that come first depend on those behind them.
fn relations(vectors: &[Coalition]) -> Vec<Vec<f64>> {
    let clients = vectors.iter().fold(0, |most, v| most.max(128 - v.bits().leading_zeros() as usize));
    let mut rows =
        DMatrix::from_fn(clients, vectors.len(), |i, j| f64::from(u8::from(vectors[j].contains(i))));
    let mut pivots: Vec<usize> = Vec::new();
    // From behind, so that what comes first is free.
    for column in (0..vectors.len()).rev() {
        let place = pivots.len();
        let Some(pivot) = (place..clients).find(|&row| rows[(row, column)].abs() > ZERO) else { continue };
        rows.swap_rows(place, pivot);
        let scale = rows[(place, column)];
        rows.row_mut(place).scale_mut(1.0 / scale);
        for row in (0..clients).filter(|&row| row != place) {
            let factor = rows[(row, column)];
            for j in 0..vectors.len() {
                rows[(row, j)] -= factor * rows[(place, j)];
            }
        }
        pivots.push(column);
    }
    let free = (0..vectors.len()).filter(|column| !pivots.contains(column));
    let relation = |free: usize| {
        let mut factors = vec![0.0; vectors.len()];
        factors[free] = 1.0;
        pivots.iter().enumerate().for_each(|(row, &column)| factors[column] = -rows[(row, free)]);
        factors
    };
    free.map(relation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(members: &[usize]) -> Coalition {
        members.iter().copied().collect()
    }

    #[test]
    fn a_coalition_and_the_others_are_everybody() {
        let found = known(&[set(&[0, 1]), set(&[2]), set(&[2, 3])], Coalition::first(4), 1);
        assert_eq!(found.len(), 1);
        let scale = found[0].grand;
        assert!(found[0].own.abs() < 1e-12 && found[0].factors[1].abs() < 1e-12);
        assert!((found[0].factors[0] / scale - 1.0).abs() < 1e-12);
        assert_eq!(known(&[set(&[0, 1]), set(&[2])], Coalition::first(4), 1), []);
    }

    #[test]
    fn own_and_grand_are_told_apart() {
        let found = known(&[set(&[0, 1, 2]), set(&[0, 2]), set(&[3])], Coalition::first(4), 1);
        assert_eq!(found.len(), 2);
        let mixed = known(&[set(&[0, 2, 3])], Coalition::first(4), 1);
        assert_eq!(mixed.len(), 1);
        assert!((mixed[0].own + mixed[0].grand).abs() < 1e-12);
    }

    #[test]
    fn with_its_own_model_a_client_takes_others_apart() {
        let replies = [set(&[0, 1]), set(&[2]), set(&[2, 3])];
        let factors = of_coalition(&replies, Some(1), set(&[0])).unwrap();
        assert_eq!(factors.iter().map(|x| x.round() as i64).collect::<Vec<_>>(), [1, 0, 0, -1]);
        assert_eq!(of_coalition(&replies, None, set(&[0])), None);
    }
}
