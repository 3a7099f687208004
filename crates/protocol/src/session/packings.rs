//! Which packing each operator gets: the cheapest for the groups at hand.

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc};

use secsv_he::{
    Parameters, Preset, UnitCosts,
    linear::{Layout, Method},
    planner::{LayerTask, Scope, packed_layouts, predict},
};

use super::{Federation, MODEL_MEMORY, Matmul, network, sum_bits};
use crate::{Error, decryptors::OwnerGroups, message::Hello};

/// What it takes to hand over a ciphertext at full modulus, and a reply, beside making them: packing, tags, unpacking.
/// In units of a transform, like everything a packing is chosen by.
const CIPHERTEXT_TRANSPORT: f64 = 4.0;
const REPLY_TRANSPORT: f64 = 1.5;

/// The cheapest packing of every operator for the groups at hand, or the method that was asked for.
pub(super) fn methods(
    federation: &Federation,
    parameters: &Arc<Parameters>,
    hellos: &[Hello],
    costs: &UnitCosts,
) -> Result<Vec<Method>, Error> {
    let program = &federation.program;
    match federation.settings.matmul {
        Matmul::Reducing => return Ok(vec![Method::Reducing; program.operators.len()]),
        Matmul::Squaring => return Ok(vec![Method::Squaring; program.operators.len()]),
        Matmul::Packed => {}
    }
    let sizes: Vec<u64> = hellos.iter().map(|hello| hello.samples).collect();
    let network = network(program)?;
    let (clients, coalitions) = (federation.clients, 1usize << federation.clients.min(16));
    // Three clients divide the coalitions; where models are tested together, each sees all but one of as many independent
    // sums as there are clients, and some coalitions again on fewer samples.
    let sums = if federation.tests_together() { coalitions.min(3 * clients - 1) } else { coalitions };
    let transport = UnitCosts {
        rerandomise: costs.rerandomise + CIPHERTEXT_TRANSPORT * costs.encode,
        sanitise: costs.sanitise + REPLY_TRANSPORT * costs.encode,
        ..*costs
    };
    // Later layers: a model for every coalition, summed from those that were encrypted once.
    let share = clients as f64 / coalitions as f64;
    let summing = clients as f64 * costs.weigh;
    let later =
        UnitCosts { encrypt: costs.encrypt * share + summing, prepare: costs.prepare * share, ..transport };
    let mut partitions: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    let mut groups_for = |batch: usize| -> Result<Vec<u64>, Error> {
        if let Some(known) = partitions.get(&batch) {
            return Ok(known.clone());
        }
        let batch_size = NonZeroUsize::new(batch).unwrap_or(NonZeroUsize::MIN);
        let groups = OwnerGroups::new(&sizes, network, batch_size)?;
        let samples: Vec<u64> = groups.iter().map(|group| group.samples()).collect();
        partitions.insert(batch, samples.clone());
        Ok(samples)
    };
    let mut methods = Vec::new();
    let mut groups = Vec::new();
    for (index, operator) in program.operators.iter().enumerate() {
        let is_first = program.is_first(index);
        let (models, sums) = if is_first { (clients, sums) } else { (1, 1) };
        let weight_bits = sum_bits(federation);
        let task =
            LayerTask { shape: operator.shape, samples: 1, models, sums, weight_bits, memory: MODEL_MEMORY };
        let mut best: Option<(f64, Method)> = None;
        for layout in packed_layouts(parameters, task) {
            if is_first {
                groups = groups_for((layout.batch() / operator.positions).max(1))?;
            }
            let costs = if is_first { &transport } else { &later };
            // Weights are uploaded and summed once, whatever the number of groups.
            let once =
                layout.weight_ciphertexts() as f64 * models as f64 * (costs.encrypt + 2.0 * costs.prepare);
            let of_group = |size: &u64| {
                let samples = *size as usize * operator.positions;
                predict(&layout, LayerTask { samples, ..task }, Scope::TwoServers, costs).seconds - once
            };
            let seconds = once + groups.iter().map(of_group).sum::<f64>();
            if best.is_none_or(|(least, _)| seconds < least) {
                best = Some((seconds, layout.method()));
            }
        }
        let (_, method) = best.ok_or(Error::Unsupported { what: "a layer too large for any packing" })?;
        if is_first {
            let layout = Layout::new(parameters, operator.shape, method)?;
            groups = groups_for((layout.batch() / operator.positions).max(1))?;
        }
        methods.push(method);
    }
    Ok(methods)
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
