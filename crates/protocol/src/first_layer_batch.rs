//! Samples whose first-layer outputs are computed together, chunk by chunk: all of a group's, or those of them that
//! larger coalitions still need. The latter are **gathered** when SampleSkip leaves few: in fewer batches they take
//! fewer replies, which every coalition pays for, while the products are made once for all.

use std::ops::Range;

use secsv_algebra::Seed;
use secsv_federation::{RoundId, SampleSet};
use secsv_he::linear::Layout;

use crate::{
    codec::Writer,
    message::{FirstLayerBatchId, UnitPlan},
    session::{EncryptedSession, Session, typical_costs},
};

/// One group's part of a first-layer batch.
pub(crate) struct FirstLayerBatch {
    pub id: FirstLayerBatchId,
    pub group: usize,
    /// The number of its first chunk.
    first: usize,
    /// Positions of each chunk.
    chunks: Vec<Range<usize>>,
    /// The place at each position, ascending, if they differ.
    places: Option<Vec<usize>>,
}

impl FirstLayerBatch {
    /// The pass that serves a unit.
    pub(crate) fn of(session: &Session, unit: &UnitPlan) -> Self {
        match &unit.gathered {
            None => Self::everything(session, unit.group),
            Some(gathered) => Self::gathered(session, unit.group, gathered),
        }
    }

    /// All samples of a group.
    pub(crate) fn everything(session: &Session, group: usize) -> Self {
        let numbers = session.groups[group].chunks.clone();
        let chunks = session.chunks[numbers.clone()].iter().map(|chunk| chunk.places.clone()).collect();
        Self { id: FirstLayerBatchId::All, group, first: numbers.start, chunks, places: None }
    }

    fn gathered(session: &Session, group: usize, samples: &SampleSet) -> Self {
        let places: Vec<usize> = samples.iter().collect();
        let mut w = Writer::default();
        w.u64(group as u64).samples(samples);
        let digest = blake3::derive_key("secsv: gathered samples", &w.finish());
        let id = FirstLayerBatchId::Gathered(digest);
        let chunks = session.divide(places.len()).collect();
        Self { id, group, first: 0, chunks, places: Some(places) }
    }

    /// Randomness for one chunk of it in a round.
    pub(crate) fn seed(&self, own: &Seed, round: RoundId, chunk: usize) -> Seed {
        self.id.seed(&own.derive("first layer", round.0.into())).derive("chunk", chunk as u64)
    }

    /// The numbers of its chunks.
    pub(crate) fn numbers(&self) -> Range<usize> {
        self.first..self.first + self.chunks.len()
    }

    /// How many samples a chunk has.
    pub(crate) fn length(&self, chunk: usize) -> usize {
        self.positions(chunk).len()
    }

    /// The places of a chunk's samples, in order.
    pub(crate) fn places(&self, chunk: usize) -> impl Iterator<Item = usize> + '_ {
        self.positions(chunk).map(|position| self.place(position))
    }

    fn positions(&self, chunk: usize) -> Range<usize> {
        chunk.checked_sub(self.first).and_then(|k| self.chunks.get(k).cloned()).unwrap_or_default()
    }

    fn place(&self, position: usize) -> usize {
        self.places.as_ref().map_or(position, |places| places[position])
    }

    /// Chunks with at least one of these samples.
    pub(crate) fn wanted_chunks<'a>(&'a self, samples: &'a SampleSet) -> impl Iterator<Item = usize> + 'a {
        self.numbers().filter(|&chunk| self.places(chunk).any(|place| samples.contains(place)))
    }

    /// Whether a column of a chunk (columns position by position of the layer) is of one of these samples and of `count`
    /// positions of the layer from `first`.
    pub(crate) fn wants<'a>(
        &'a self,
        samples: &'a SampleSet,
        chunk: usize,
        (first, count): (usize, usize),
    ) -> impl Fn(usize) -> bool + 'a {
        let positions = self.positions(chunk);
        move |column| {
            let (layer_position, k) = (column / positions.len(), column % positions.len());
            (first..first + count).contains(&layer_position)
                && samples.contains(self.place(positions.start + k))
        }
    }

    /// Batches of the first layer that its chunks take.
    fn batches(&self, layout: &Layout, layer_positions: usize) -> usize {
        self.chunks.iter().map(|chunk| layout.batches(layer_positions * chunk.len())).sum()
    }
}

/// What a product costs whose weights are read for one batch, beside one of several batches: measured.
const ALONE: f64 = 3.0;

/// Whether some of a group's samples could take fewer batches than all of them.
pub(crate) fn may_gather(session: &EncryptedSession, group: usize) -> bool {
    let layer_positions = session.program().operators[0].positions;
    FirstLayerBatch::everything(session, group).batches(session.layout(0), layer_positions) > 1
}

/// The samples to gather for a unit of a round with so many participants that needs some of these: none if fewer batches
/// would cost more products than they spare replies.
pub(crate) fn to_gather(
    session: &EncryptedSession,
    group: usize,
    candidate_samples: &SampleSet,
    participants: usize,
) -> Option<SampleSet> {
    let layout = session.layout(0);
    let layer_positions = session.program().operators[0].positions;
    let samples = session.in_group(group, candidate_samples);
    if samples.is_empty() || samples.is_all() {
        return None;
    }
    let gathered = FirstLayerBatch::gathered(session, group, &samples).batches(layout, layer_positions);
    let ungathered = FirstLayerBatch::everything(session, group).batches(layout, layer_positions);
    let costs = typical_costs(session.federation.settings.preset);
    let (rows, weights) = (layout.rows() as f64, layout.weight_ciphertexts() as f64);
    let reply = rows * (costs.sanitise + costs.decrypt);
    let encoding = 2.0 * weights / rows * costs.encode;
    // Few batches share what is read of a model from memory.
    let output = 2.0 * weights * ALONE * costs.streamed_product + rows * costs.rerandomise;
    let models = participants as f64;
    let coalitions = models.exp2() - models - 2.0;
    let spared = ungathered.saturating_sub(gathered) as f64 * coalitions * reply;
    (spared > gathered as f64 * (encoding + models * output)).then_some(samples)
}
