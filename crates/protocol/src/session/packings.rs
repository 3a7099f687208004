//! How many rounds are taken together, and which packing each operator gets: the cheapest for the groups at hand.

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc};

use secsv_he::{
    Parameters, Preset, UnitCosts,
    linear::{Layout, MatrixMethod},
    planner::{LayerTask, PlannedWork, packed_layouts, predict},
};

use super::{Federation, MAX_LABEL_BYTES, MODEL_MEMORY, Matmul, longest, network, of_rounds, sum_bits};
use crate::{
    Error,
    decryptors::{Network, OwnerGroups, max_owners},
    labels::LabelField,
    message::{ClientHello, MAX_TOGETHER},
};

/// What it takes to hand over a ciphertext at full modulus, and a reply, beside making them: packing, tags, unpacking.
/// In units of a transform, like everything a packing is chosen by.
const CIPHERTEXT_TRANSPORT: f64 = 8.0;
const REPLY_TRANSPORT: f64 = 3.0;
/// The same of a ciphertext of weights, of which one half travels, to both servers.
const UPLOAD_TRANSPORT: f64 = 15.0;
/// Owners whose best partition is looked for while a packing is chosen, at most.
const FEW_OWNERS: usize = 6;
/// What outputs of rounds that are taken together may take.
const ROUND_BATCH_MEMORY: usize = 1 << 30;

/// How many rounds are taken together and the packing of every operator: the cheapest for the groups at hand, or the method
/// that was asked for.
pub(super) fn methods(
    federation: &Federation,
    parameters: &Arc<Parameters>,
    hellos: &[ClientHello],
    costs: &UnitCosts,
) -> Result<(usize, Vec<MatrixMethod>), Error> {
    let program = &federation.program;
    match federation.settings.matmul {
        Matmul::Reducing => return Ok((1, vec![MatrixMethod::Reducing; program.operators.len()])),
        Matmul::Squaring => return Ok((1, vec![MatrixMethod::Squaring; program.operators.len()])),
        Matmul::Packed => {}
    }
    let mut search = PackingSearch::new(federation, parameters, hellos, costs)?;
    let mut best: Option<(f64, usize, Vec<MatrixMethod>)> = None;
    // As many as may be, half as many, and so on.
    let most = longest(&federation.round_batches(federation.most_rounds()));
    for rounds in std::iter::successors(Some(most), |&rounds| (rounds > 1).then_some(rounds / 2)) {
        let rounds = longest(&federation.round_batches(rounds));
        if rounds > 1 && !search.has_room_for_labels(rounds) {
            continue;
        }
        let Some((seconds, methods)) = search.cheapest(rounds)? else { continue };
        let seconds = federation.round_batches(rounds).len() as f64 * seconds;
        if best.as_ref().is_none_or(|(least, ..)| seconds < *least) {
            best = Some((seconds, rounds, methods));
        }
    }
    let (_, rounds, methods) =
        best.ok_or(Error::Unsupported { what: "a layer too large for any packing" })?;
    Ok((rounds, methods))
}

/// What packings are chosen by.
struct PackingSearch<'a> {
    federation: &'a Federation,
    parameters: &'a Arc<Parameters>,
    sizes: Vec<u64>,
    network: Network,
    /// Replies for each output of a model's first layer, about.
    sums: usize,
    /// What operations cost for first layers, and for later ones.
    first: UnitCosts,
    later: UnitCosts,
    /// Samples of the groups of few owners, by how many fit a batch.
    partitions: BTreeMap<usize, Vec<u64>>,
}

impl<'a> PackingSearch<'a> {
    fn new(
        federation: &'a Federation,
        parameters: &'a Arc<Parameters>,
        hellos: &[ClientHello],
        costs: &UnitCosts,
    ) -> Result<Self, Error> {
        let (clients, coalitions) = (federation.clients, 1usize << federation.clients.min(16));
        // Three clients divide the coalitions; where models are tested together, each sees all but one of as many independent
        // sums as there are clients, and some coalitions again on fewer samples.
        let sums = if federation.tests_together() { coalitions.min(3 * clients - 1) } else { coalitions };
        let first = UnitCosts {
            encrypt: costs.encrypt + UPLOAD_TRANSPORT * costs.encode,
            rerandomise: costs.rerandomise + CIPHERTEXT_TRANSPORT * costs.encode,
            sanitise: costs.sanitise + REPLY_TRANSPORT * costs.encode,
            ..*costs
        };
        // Later layers: a model for every coalition, summed from those that were encrypted once.
        let share = clients as f64 / coalitions as f64;
        let later = UnitCosts {
            encrypt: costs.encrypt * share + clients as f64 * costs.weigh,
            prepare: costs.prepare * share,
            ..first
        };
        let sizes = hellos.iter().map(|hello| hello.samples).collect();
        let network = network(&federation.program)?;
        let partitions = BTreeMap::new();
        Ok(Self { federation, parameters, sizes, network, sums, first, later, partitions })
    }

    /// Whether predictions of all coalitions fit one message: otherwise replies would be sent more than once.
    fn has_room_for_labels(&self, rounds: usize) -> bool {
        let coalitions = MAX_TOGETHER.min(1 << self.federation.clients.min(16));
        let samples = self.sizes.iter().sum::<u64>() as usize;
        let field = LabelField::new(self.federation.architecture.classes());
        rounds * coalitions * field.packed_len(samples) <= MAX_LABEL_BYTES
    }

    /// Samples of the groups, if so many fit a batch. Of many owners only about: the best partition takes 3^n steps, and there are
    /// dozens of packings to look at.
    fn groups(&mut self, batch: usize) -> Result<Vec<u64>, Error> {
        let owners: Vec<u64> = self.sizes.iter().copied().filter(|&size| size > 0).collect();
        if owners.len() > FEW_OWNERS {
            let most = max_owners(self.sizes.len(), self.network)?;
            return Ok(owners.chunks(most).map(|group| group.iter().sum()).collect());
        }
        if let Some(known) = self.partitions.get(&batch) {
            return Ok(known.clone());
        }
        let batch_size = NonZeroUsize::new(batch).unwrap_or(NonZeroUsize::MIN);
        let groups = OwnerGroups::new(&self.sizes, self.network, batch_size)?;
        let samples: Vec<u64> = groups.iter().map(|group| group.samples()).collect();
        self.partitions.insert(batch, samples.clone());
        Ok(samples)
    }

    /// The cheapest packing of every operator for so many rounds at a time, and the seconds these take; none if nothing fits.
    fn cheapest(&mut self, rounds: usize) -> Result<Option<(f64, Vec<MatrixMethod>)>, Error> {
        let program = &self.federation.program;
        let (mut total, mut methods, mut groups) = (0.0, Vec::new(), Vec::new());
        for (index, operator) in program.operators.iter().enumerate() {
            let is_first = program.is_first(index);
            let (models, sums) = if is_first { (self.federation.clients, self.sums) } else { (1, 1) };
            let (shape, weight_bits) = (of_rounds(operator.shape, rounds), sum_bits(self.federation));
            let task = LayerTask { shape, samples: 1, models, sums, weight_bits, memory: MODEL_MEMORY };
            let mut best: Option<(f64, MatrixMethod)> = None;
            for layout in packed_layouts(self.parameters, task) {
                if is_first {
                    groups = self.groups((layout.batch() / operator.positions).max(1))?;
                }
                if rounds > 1
                    && outputs_memory(&layout, models, operator.positions, &groups) > ROUND_BATCH_MEMORY
                {
                    continue;
                }
                let costs = if is_first { &self.first } else { &self.later };
                // Weights are uploaded and summed once, whatever the number of groups.
                let once = layout.weight_ciphertexts() as f64
                    * models as f64
                    * (costs.encrypt + 2.0 * costs.prepare);
                let of_group = |size: &u64| {
                    let samples = *size as usize * operator.positions;
                    predict(&layout, LayerTask { samples, ..task }, PlannedWork::TwoServers, costs).seconds
                        - once
                };
                let seconds = once + groups.iter().map(of_group).sum::<f64>();
                if best.is_none_or(|(least, _)| seconds < least) {
                    best = Some((seconds, layout.method()));
                }
            }
            let Some((seconds, method)) = best else { return Ok(None) };
            if is_first {
                let layout = Layout::new(self.parameters, shape, method)?;
                groups = self.groups((layout.batch() / operator.positions).max(1))?;
            }
            total += seconds;
            methods.push(method);
        }
        Ok(Some((total, methods)))
    }
}

/// Bytes of all models' first-layer outputs, at the principal and on their way to it.
fn outputs_memory(layout: &Layout, models: usize, positions: usize, groups: &[u64]) -> usize {
    let batches: usize = groups.iter().map(|&size| layout.batches(size as usize * positions)).sum();
    let parameters = layout.parameters();
    4 * 8 * models * batches * layout.rows() * parameters.limbs().len() * parameters.degree()
}

/// What operations cost on a machine of today, in seconds: packings are chosen by ratios, which hardly differ between
/// machines, so nothing need be measured before a session.
pub fn typical_costs(preset: Preset) -> UnitCosts {
    // Degree 4096 with two limbs instead of 8192 with three: a third of the words.
    let scale = if preset == Preset::Compact { 0.32 } else { 1.0 };
    UnitCosts {
        encrypt: 700e-6 * scale,
        prepare: 300e-6 * scale,
        encode: 110e-6 * scale,
        slots: 55e-6 * scale,
        product: 14e-6 * scale,
        streamed_product: 30e-6 * scale,
        output: 70e-6 * scale,
        rotate: 1600e-6 * scale,
        rerandomise: 650e-6 * scale,
        sanitise: 1200e-6 * scale,
        decrypt: 110e-6 * scale,
        weigh: 20e-6 * scale,
    }
}
