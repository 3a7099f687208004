//! Streams of masks, and the places that they are for. A place is used once: (round, coalition, owner, samples, purpose,
//! stage).

use std::ops::Range;

use secsv_algebra::{Secret, Seed, Stream};
use secsv_federation::{Coalition, RoundId};

/// What an owner and one server share: the server's masks of openings, and at the principal its share of everything that the owner
/// deals.
#[derive(Clone)]
pub(crate) struct OwnerKey(Seed);

/// What a test's streams are for: a coalition's model of a round on some of the owner's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub round: RoundId,
    pub coalition: Coalition,
    /// Where the samples begin among those that are tested.
    pub first: usize,
}

impl Place {
    /// The place of all of the owner's samples.
    pub(crate) fn of_model(round: RoundId, coalition: Coalition) -> Self {
        Self { round, coalition, first: 0 }
    }
}

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Masks of what the servers open at a stage.
    Opening(usize),
    /// The principal's share of dealt planes.
    DealtPlanes,
    /// The principal's share of an array of dealt numbers.
    DealtNumbers(usize),
    /// The principal's share of the masks of right or wrong.
    DealtOutcomes,
    /// The principal's share of what the owner found itself.
    OwnOutcome,
}

impl Purpose {
    fn name(self) -> (&'static str, u64) {
        match self {
            Self::Opening(stage) => ("opening", stage as u64),
            Self::DealtPlanes => ("dealt planes", 0),
            Self::DealtNumbers(array) => ("dealt numbers", array as u64),
            Self::DealtOutcomes => ("dealt outcomes", 0),
            Self::OwnOutcome => ("own outcome", 0),
        }
    }
}

impl OwnerKey {
    pub(crate) fn new(seed: Seed) -> Self {
        Self(seed)
    }

    pub(crate) fn seed(&self) -> &Seed {
        &self.0
    }

    /// The first words of the stream of a place.
    pub(crate) fn words(&self, place: Place, purpose: Purpose, count: usize) -> Secret<Vec<u64>> {
        self.words_in(place, purpose, 0..count)
    }

    /// Some words of the stream of a place.
    pub(crate) fn words_in(&self, place: Place, purpose: Purpose, range: Range<usize>) -> Secret<Vec<u64>> {
        #[cfg(test)]
        let (place, purpose) = super::equivalence_tests::named(place, purpose);
        let (name, stage) = purpose.name();
        draw_range(&self.place(place).derive(name, stage), range)
    }

    /// The seed of all streams of a model.
    fn place(&self, Place { round, coalition, first }: Place) -> Seed {
        let bits = coalition.bits();
        let seed = self.0.derive("round", round.0.into());
        let seed = seed.derive("coalition", bits as u64).derive("coalition", (bits >> 64) as u64);
        seed.derive("first sample", first as u64)
    }

    /// The seed of one stream.
    #[cfg(test)]
    pub(super) fn stream(&self, place: Place, purpose: Purpose) -> Seed {
        let (place, purpose) = super::equivalence_tests::named(place, purpose);
        let (name, stage) = purpose.name();
        self.place(place).derive(name, stage)
    }

    /// The principal's share of the owner's samples, of its labels, or of a round's masks times samples.
    pub(crate) fn of_owner(&self, name: &str, index: u64, count: usize) -> Secret<Vec<u64>> {
        #[cfg(test)]
        let (name, index) = super::run_equivalence_tests::named_stream(name, index);
        draw(&self.0.derive(name, index), count)
    }
}

/// The first words of a seed's stream.
pub(crate) fn draw(seed: &Seed, count: usize) -> Secret<Vec<u64>> {
    draw_range(seed, 0..count)
}

/// Some words of a seed's stream.
pub(crate) fn draw_range(seed: &Seed, range: Range<usize>) -> Secret<Vec<u64>> {
    #[cfg(test)]
    if let Some(mut chosen) = super::equivalence_tests::chosen(seed, range.end) {
        return Secret::new(chosen.split_off(range.start));
    }
    let mut words = Secret::new(vec![0; range.len()]);
    Stream::new(seed).fill_words(range.start as u64, words.expose_mut());
    words
}
