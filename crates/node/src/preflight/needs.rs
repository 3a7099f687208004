//! Whether memory and disk will do for a run of this shape. Nobody knows before what others bring: it is thought to be like one's own.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use secsv_evaluation::{Error as EvaluationError, Plan};
use secsv_federation::{Tensor, TestSet, Weights, skip::SkipMode};
use secsv_protocol::{ClientInput, cost::Prediction};

use super::{Check, state::free};
use crate::{Error, kit::Kit};

/// A number for every weight and feature where nobody knows better.
const TYPICAL: f32 = 0.05;
const MIB: f64 = (1u64 << 20) as f64;

/// What the run is planned to take of this party, beside what there is; nothing where the number of test cases is not known.
pub(super) fn check(
    kit: &Kit,
    state: Option<&Path>,
    own: Option<ClientInput>,
    samples: Option<usize>,
) -> Vec<Check> {
    let clients = kit.federation.federation.clients.len();
    let own = own.filter(|own| !own.test_set.is_empty());
    let Some(samples) = samples.or_else(|| Some(own.as_ref()?.test_set.len() * clients)) else {
        let known = "known with --samples N, the test cases of all silos together";
        return vec![Check::ok("memory", format!("{}, how much it takes is {known}", available()))];
    };
    let planned = match predicted(kit, own, samples) {
        Ok(planned) => planned,
        Err(error) => {
            let advice = "the run would be refused for this reason if all silos were like that";
            return vec![Check::warning("memory", format!("not planned: {error}"), advice)];
        }
    };
    let of_links = planned.traffic.iter().filter(|((from, to, _), _)| kit.own == *from || kit.own == *to);
    let kept: u64 = of_links.map(|(_, (bytes, _))| bytes).sum();
    let about = format!("for {samples} test cases in all");
    let mut checks = vec![memory(planned.memory, &about)];
    checks.extend(state.and_then(free).map(|free| disk(kept, free, &about)));
    checks
}

fn memory(needed: u64, about: &str) -> Check {
    let found = format!("{}, at most {} needed {about}", available(), size(needed));
    match available_bytes() {
        Some(free) if free < needed => {
            Check::warning("memory", found, "take a larger machine, or fewer test cases (docs/OPERATORS.md)")
        }
        _ => Check::ok("memory", found),
    }
}

fn disk(kept: u64, free: u64, about: &str) -> Check {
    let found = format!("{} free, at most {} kept at a time {about}", size(free), size(kept));
    if free < kept {
        return Check::warning("disk for this run", found, "free more, or see that others keep up");
    }
    Check::ok("disk for this run", found)
}

fn size(bytes: u64) -> String {
    match bytes {
        0..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / MIB),
        _ => format!("{:.2} GiB", bytes as f64 / (1024.0 * MIB)),
    }
}

fn available() -> String {
    available_bytes()
        .map_or("free memory is not told here".to_owned(), |bytes| format!("{} free", size(bytes)))
}

/// Memory that the system would give, within the limit of a container.
fn available_bytes() -> Option<u64> {
    let told = fs::read_to_string("/proc/meminfo").ok()?;
    let line = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let of_system = line.split_whitespace().next()?.parse::<u64>().ok()? * 1024;
    let number = |file: &str| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let limit = number("/sys/fs/cgroup/memory.max")
        .map(|limit| limit.saturating_sub(number("/sys/fs/cgroup/memory.current").unwrap_or(0)));
    Some(limit.map_or(of_system, |limit| limit.min(of_system)))
}

/// The cost of a run in which every silo brings as much.
fn predicted(kit: &Kit, own: Option<ClientInput>, samples: usize) -> Result<Prediction, Error> {
    let clients = kit.federation.federation.clients.len();
    let like = own.map_or_else(|| typical(kit), Ok)?;
    let inputs = (0..clients).map(|client| {
        let share = samples / clients + usize::from(client < samples % clients);
        let participates = |round: &_| kit.federation.participants(*round).contains(client);
        let rounds = kit.federation.federation.round_ids();
        let model = |round| (round, like.local.values().next().unwrap_or(&like.initial).clone());
        Ok(ClientInput {
            test_set: repeated(&like.test_set, share)?,
            local: rounds.filter(participates).map(model).collect(),
            global: like.global.clone(),
            initial: like.initial.clone(),
            accepts_few: true,
        })
    });
    let inputs = inputs.collect::<Result<Vec<_>, Error>>()?;
    let evaluation = kit.evaluation()?;
    let by = (evaluation.method, &evaluation.estimator);
    let plan = Plan::of_inputs(Arc::new(kit.session()?), inputs, evaluation.skip != SkipMode::Off, by);
    Ok(plan.map_err(|error: EvaluationError| Error::from(error))?.at_most)
}

/// So many samples, beginning again where there are fewer.
fn repeated(samples: &TestSet, count: usize) -> Result<TestSet, Error> {
    let (width, held) = (samples.input().iter().product::<usize>(), samples.len().max(1));
    let rows = (0..count).map(|row| row % held);
    let features = rows.clone().flat_map(|row| &samples.features()[row * width..(row + 1) * width]).copied();
    let labels = rows.map(|row| samples.labels()[row]);
    TestSet::new(samples.input().to_vec(), features.collect(), labels.collect())
        .map_err(|_| Error::data("data", "test cases that can be repeated", "others"))
}

/// What a silo may bring, where there is nothing to go by.
fn typical(kit: &Kit) -> Result<ClientInput, Error> {
    let unfit = |_| Error::data("kit", "tensors and inputs of some size", "others");
    let spec = &kit.federation.federation;
    let tensor = |(name, shape): (&String, &Vec<usize>)| {
        let numbers = vec![TYPICAL; shape.iter().product()];
        Ok((name.clone(), Tensor::new(shape.clone(), numbers).map_err(unfit)?))
    };
    let initial = kit.federation.tensors.iter().map(tensor).collect::<Result<Weights, Error>>()?;
    let input = spec.model.input.clone();
    let features = vec![TYPICAL; input.iter().product()];
    let global = spec.round_ids().map(|round| (round, initial.clone())).collect();
    let test_set = TestSet::new(input, features, vec![0]).map_err(unfit)?;
    Ok(ClientInput { test_set, local: BTreeMap::new(), global, initial, accepts_few: true })
}
