//! One seed drives everything: each use of randomness has its own stream, so no use shifts another.

use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;

/// The purpose of a stream of random numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Which rows of a single table are the test set.
    HoldOut,
    /// Which samples remain when a part of a data set is asked for.
    Limit,
    /// The Dirichlet draw and the order in which samples are dealt.
    Split,
    /// The model before round 1.
    InitialModel,
    /// Who takes part in a round.
    Selection {
        /// Counted from 1.
        round: u32,
    },
    /// Which labels of a client are flipped.
    FlippedLabels {
        /// Position in the client list.
        client: usize,
    },
    /// One client's draws in one round: sample order, or a free rider's noise.
    Local {
        /// Counted from 1.
        round: u32,
        /// Position in the client list.
        client: usize,
    },
}

/// The generator for one purpose under one seed.
pub(crate) fn generator(seed: u64, purpose: Purpose) -> ChaCha20Rng {
    let (kind, round, client) = match purpose {
        Purpose::HoldOut => (1, 0, 0),
        Purpose::Limit => (2, 0, 0),
        Purpose::Split => (3, 0, 0),
        Purpose::InitialModel => (4, 0, 0),
        Purpose::Selection { round } => (5, round, 0),
        Purpose::FlippedLabels { client } => (6, 0, client),
        Purpose::Local { round, client } => (7, round, client),
    };
    let mut generator = ChaCha20Rng::seed_from_u64(seed);
    // 8 bits of purpose, 32 of round, 16 of client: clients are at most MAX_CLIENTS = 128.
    generator.set_stream(kind << 56 | u64::from(round) << 16 | (client as u64 & 0xffff));
    generator
}

#[cfg(test)]
mod tests {
    use rand::RngCore;

    use super::*;

    #[test]
    fn purposes_do_not_share_numbers() {
        let purposes = [
            Purpose::HoldOut,
            Purpose::Split,
            Purpose::Selection { round: 1 },
            Purpose::Selection { round: 2 },
            Purpose::Local { round: 1, client: 0 },
            Purpose::Local { round: 1, client: 1 },
        ];
        let mut first: Vec<u64> = purposes.iter().map(|&p| generator(7, p).next_u64()).collect();
        first.push(generator(8, Purpose::HoldOut).next_u64());
        let distinct: std::collections::BTreeSet<_> = first.iter().collect();
        assert_eq!(distinct.len(), first.len());
        assert_eq!(generator(7, Purpose::Split).next_u64(), first[1]);
    }
}
