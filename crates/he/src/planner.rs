//! Plans one layer: which method, which packing, how many operations, how long.

use std::sync::Arc;

use crate::{
    Flooding, HeError, Operations, Packing, Parameters, UnitCosts,
    linear::{BlockShape, LayerShape, Layout, MatrixMethod},
};

/// Weights beyond this many bytes are taken to come from memory for every batch.
const CACHE: usize = 10 << 20;

/// The work of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerTask {
    /// Outputs and inputs.
    pub shape: LayerShape,
    /// Samples each model meets.
    pub samples: usize,
    /// Encrypted models that share the data.
    pub models: usize,
    /// Model outputs, or weighted sums of them, that are sent to a decryptor: as many as models, or for a
    /// first layer as many as coalitions.
    pub sums: usize,
    /// Coalition weights add up to at most two to this power.
    pub weight_bits: u32,
    /// Bytes that one model's weights may take when ready to multiply.
    pub memory: usize,
}

/// The steps that are counted and timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlannedWork {
    /// Encoding, products and rotations of one server, as `bench linear` measures them.
    Products,
    /// Everything: models encrypted and prepared at two servers, both halves of the data encoded and
    /// multiplied, the auxiliary's outputs re-randomised, replies sanitised and decrypted.
    TwoServers,
}

/// A plan and what it predicts.
#[derive(Clone, Debug)]
pub struct LayerPlan {
    /// Method and packing, checked.
    pub layout: Layout,
    /// Operations, exactly.
    pub operations: Operations,
    /// Processor seconds.
    pub seconds: f64,
    /// Bytes of one model's weights, ready to multiply.
    pub memory: usize,
}

/// The cheapest packing for the task.
pub fn plan_packed(
    parameters: &Arc<Parameters>,
    task: LayerTask,
    scope: PlannedWork,
    costs: &UnitCosts,
) -> Result<LayerPlan, HeError> {
    let methods = packings(task.shape, parameters.degree()).into_iter().map(MatrixMethod::Packed).collect();
    best(parameters, task, scope, costs, methods)
}

/// Every packing of a layer whose weights fit the task's memory and whose replies keep their distance.
pub fn packed_layouts(parameters: &Arc<Parameters>, task: LayerTask) -> Vec<Layout> {
    packings(task.shape, parameters.degree())
        .into_iter()
        .filter_map(|block| Layout::new(parameters, task.shape, MatrixMethod::Packed(block)).ok())
        .filter(|layout| layout.prepared_bytes() <= task.memory && keeps_its_distance(layout, task))
        .collect()
}

fn best(
    parameters: &Arc<Parameters>,
    task: LayerTask,
    scope: PlannedWork,
    costs: &UnitCosts,
    methods: Vec<MatrixMethod>,
) -> Result<LayerPlan, HeError> {
    let plans = methods
        .into_iter()
        .filter_map(|method| Layout::new(parameters, task.shape, method).ok())
        .map(|layout| predict(&layout, task, scope, costs))
        .filter(|plan| plan.memory <= task.memory)
        .filter(|plan| scope == PlannedWork::Products || keeps_its_distance(&plan.layout, task));
    plans.min_by(|a, b| a.seconds.total_cmp(&b.seconds)).ok_or(HeError::count(
        "bytes for one model's weights",
        2 * 8 * parameters.limbs().len() * parameters.degree(),
        task.memory,
    ))
}

/// Whether replies can be flooded as far as the parameters promise.
fn keeps_its_distance(layout: &Layout, task: LayerTask) -> bool {
    let noise = layout.half_noise().of_two_servers().weighted(task.weight_bits);
    Flooding::new(layout.parameters(), noise).is_ok()
}

/// Operations and seconds of a layout for a task.
pub fn predict(layout: &Layout, task: LayerTask, scope: PlannedWork, costs: &UnitCosts) -> LayerPlan {
    let limbs = layout.parameters().limbs().len() as u64;
    let slots = u64::from(layout.packing() == Packing::Slots);
    let slot_cost = slots as f64 * costs.slots;
    let batches = layout.batches(task.samples) as u64;
    let (models, weights) = (task.models as u64, layout.weight_ciphertexts() as u64);
    let plaintexts = layout.inner() as u64 * batches;
    let products = weights * batches * models;
    let rotations = layout.rotations() as u64 * batches * models;
    let outputs = layout.rows() as u64 * batches * models;

    let one_server = Operations {
        ct_pt_mul: products,
        rotate: rotations,
        ntt: plaintexts * (limbs + slots) + rotations * (limbs + limbs * limbs),
        ..Operations::default()
    };
    let weights_in_cache = layout.prepared_bytes() * task.models <= CACHE;
    let product_cost = if weights_in_cache { costs.product } else { costs.streamed_product };
    let one_server_seconds = plaintexts as f64 * (costs.encode + slot_cost)
        + products as f64 * product_cost
        + outputs as f64 * costs.output
        + rotations as f64 * costs.rotate;
    let memory = layout.prepared_bytes();
    if scope == PlannedWork::Products {
        return LayerPlan {
            layout: layout.clone(),
            operations: one_server,
            seconds: one_server_seconds,
            memory,
        };
    }
    let (encrypted, replies) = (weights * models, layout.rows() as u64 * batches * task.sums as u64);
    let around = Operations {
        encrypt: encrypted + outputs + replies,
        decrypt: replies,
        ntt: encrypted * (limbs + slots) + outputs * 3 * limbs + replies * (3 * limbs + slots + 2 + slots),
        ..Operations::default()
    };
    let seconds = 2.0 * one_server_seconds
        + encrypted as f64 * (costs.encrypt + slot_cost + 2.0 * costs.prepare)
        + outputs as f64 * costs.rerandomise
        + replies as f64 * (costs.sanitise + costs.decrypt + 2.0 * slot_cost)
        + if task.sums > task.models { (replies * models.div_ceil(2)) as f64 * costs.weigh } else { 0.0 };
    LayerPlan { layout: layout.clone(), operations: one_server * 2 + around, seconds, memory }
}

/// Every sensible cut of A into equal blocks, with the samples that fill the degree.
fn packings(shape: LayerShape, degree: usize) -> Vec<BlockShape> {
    let cuts = |d: usize| {
        let mut sizes: Vec<usize> = (1..=d).map(|parts| d.div_ceil(parts)).collect();
        sizes.dedup();
        sizes
    };
    let mut packings = Vec::new();
    for r in cuts(shape.d_out) {
        for w in cuts(shape.d_in) {
            if r * w <= degree {
                packings.push(BlockShape { rows: r, columns: w, samples: degree / (r * w) });
            }
        }
    }
    packings
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secsv_algebra::{Field, Matrix, Prg, Seed};

    use super::*;
    use crate::{
        Ciphertext, Preset, SecretKey,
        linear::{EncodedBatch, PreparedMatrix, multiply},
    };

    const FLAT: UnitCosts = UnitCosts {
        encrypt: 1.0,
        prepare: 1.0,
        encode: 1.0,
        slots: 1.0,
        product: 0.1,
        streamed_product: 0.2,
        output: 0.1,
        rotate: 3.0,
        rerandomise: 1.0,
        sanitise: 1.0,
        decrypt: 1.0,
        weigh: 0.1,
    };

    /// Runs what the plan describes and counts.
    fn run(layout: &Layout, task: LayerTask) -> Operations {
        let parameters = layout.parameters();
        let (mut rng, mut ops) = (Prg::new(&Seed::from_bytes([8; 32])), Operations::default());
        let key = SecretKey::generate(parameters, &mut rng);
        let (public, evaluation) =
            (key.public_key(&mut rng), key.evaluation_key(&layout.rotation_steps(), &mut rng));
        let models: Vec<PreparedMatrix> = (0..task.models)
            .map(|_| {
                let a: Matrix<Field> =
                    Matrix::uniform(parameters.field(), task.shape.d_out, task.shape.d_in, &mut rng);
                layout.prepare(&layout.encrypt(&key, &a, &mut rng, &mut ops).unwrap()).unwrap()
            })
            .collect();
        let models: Vec<&PreparedMatrix> = models.iter().collect();
        let mut halves = Vec::new();
        for _server in 0..2 {
            let b = Matrix::uniform(parameters.field(), task.shape.d_in, task.samples, &mut rng);
            let batches = layout.encode(&b, &mut ops).unwrap();
            let batches: Vec<&EncodedBatch> = batches.iter().collect();
            halves.push(multiply(layout, &models, &batches, Some(&evaluation), &mut ops).unwrap());
        }
        let noise = layout.half_noise().of_two_servers().weighted(task.weight_bits);
        let flooding = Flooding::without_claim(parameters, noise).unwrap();
        let batches = layout.batches(task.samples);
        for (i, (principal, auxiliary)) in halves[0].iter().zip(&mut halves[1].clone()).enumerate() {
            for (row, (own, other)) in principal.iter().zip(auxiliary).enumerate() {
                public.rerandomise(other, &mut rng, &mut ops).unwrap();
                other.add_assign(parameters.limbs(), own).unwrap();
                // Every sum costs the same, so all of them are taken of the first model.
                for _ in 0..if i < batches { task.sums } else { 0 } {
                    let planned = layout.planned(row, |column| column < task.samples).unwrap();
                    let product = Ciphertext::weighted_sum(parameters.limbs(), &[(1, &*other)]).unwrap();
                    let reply =
                        public.sanitise(&product, layout.packing(), &planned, &flooding, &mut rng, &mut ops);
                    key.decrypt_reply(layout.packing(), &planned, &reply.unwrap(), &mut ops).unwrap();
                }
            }
        }
        ops
    }

    /// The cheapest of all methods and packings.
    fn plan_any(
        parameters: &Arc<Parameters>,
        task: LayerTask,
        scope: PlannedWork,
    ) -> Result<LayerPlan, HeError> {
        let mut methods = vec![MatrixMethod::Squaring, MatrixMethod::Reducing];
        methods.extend(packings(task.shape, parameters.degree()).into_iter().map(MatrixMethod::Packed));
        best(parameters, task, scope, &FLAT, methods)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn predicted_counts_are_the_counted_ones(
            which in 0..3, d_out in 1usize..9, d_in in 1usize..20, samples in 1usize..60, models in 1usize..3, sums in 1usize..4,
        ) {
            let parameters = Parameters::preset(Preset::Standard).unwrap();
            let task = LayerTask { shape: LayerShape { d_out, d_in }, samples, models, sums, weight_bits: 8, memory: usize::MAX };
            let layout = match which {
                0 => Layout::new(&parameters, task.shape, MatrixMethod::Squaring).unwrap(),
                1 => Layout::new(&parameters, task.shape, MatrixMethod::Reducing).unwrap(),
                _ => plan_any(&parameters, task, PlannedWork::TwoServers).unwrap().layout,
            };
            let predicted = predict(&layout, task, PlannedWork::TwoServers, &FLAT).operations;
            prop_assert_eq!(predicted, run(&layout, task));
        }
    }

    #[test]
    fn memory_bounds_the_choice() {
        let parameters = Parameters::preset(Preset::Standard).unwrap();
        let shape = LayerShape { d_out: 64, d_in: 256 };
        let task =
            LayerTask { shape, samples: 10_000, models: 31, sums: 31, weight_bits: 8, memory: 300 << 20 };
        let bounded = plan_packed(&parameters, task, PlannedWork::Products, &FLAT).unwrap();
        assert!(bounded.memory <= 300 << 20);
        let free =
            plan_packed(&parameters, LayerTask { memory: usize::MAX, ..task }, PlannedWork::Products, &FLAT)
                .unwrap();
        assert!(free.seconds <= bounded.seconds && free.memory > bounded.memory);
        let tiny = LayerTask { memory: 1000, ..task };
        assert!(plan_any(&parameters, tiny, PlannedWork::Products).is_err());
    }
}
