//! One party's `index.json`.

use std::collections::BTreeMap;

use secsv_federation::RoundId;
use secsv_protocol::{
    message::UnitPart,
    views::{About, Opened, Seen, SeenPlan},
};
use serde::Serialize;

use super::{PartyNames, PartyView};

#[derive(Serialize)]
pub(super) struct PartyIndex<'a> {
    party: &'a str,
    messages: Vec<MessageEntry>,
    arrays: Vec<ArrayEntry>,
    plans: Vec<PlanEntry>,
    known: Vec<KnownEntry<'a>>,
    secrets: &'a [&'static str],
}

#[derive(Serialize)]
struct MessageEntry {
    number: usize,
    from: String,
    kind: &'static str,
    bytes: usize,
    length: usize,
    blake3: String,
    about: ViewedHead,
    read: bool,
    holds: &'static str,
}

/// What the head of a message says.
#[derive(Serialize)]
struct ViewedHead {
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<RoundId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hop: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
}

#[derive(Serialize)]
struct ArrayEntry {
    file: String,
    array: String,
    what: &'static str,
    kind: &'static str,
    from: Option<String>,
    messages: Vec<usize>,
    disclosure: Option<String>,
    test: Option<u64>,
    group: Option<usize>,
    part: Option<usize>,
    hop: Option<usize>,
    item: Option<usize>,
    client: Option<String>,
    round: Option<RoundId>,
    coalition: Option<Vec<String>>,
    owner: Option<String>,
    samples: Vec<[usize; 2]>,
    operator: Option<usize>,
    first_position: Option<usize>,
    positions: Option<usize>,
    step: Option<usize>,
    shape: [usize; 2],
    scale: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
}

#[derive(Serialize)]
struct PlanEntry {
    test: u64,
    round: RoundId,
    rounds: Vec<RoundId>,
    group: usize,
    part: usize,
    coalitions: Vec<Vec<String>>,
    samples: BTreeMap<String, Vec<[usize; 2]>>,
    chain: Vec<String>,
    gru: Option<[String; 2]>,
    dealer: Option<String>,
    counter: Option<String>,
}

#[derive(Serialize)]
struct KnownEntry<'a> {
    array: &'a str,
    shape: &'a [usize],
}

impl<'a> PartyIndex<'a> {
    /// With the names that arrays have in their files.
    pub(super) fn new(of: &'a PartyView, arrays: &[String], names: &PartyNames) -> Self {
        let view = &of.view;
        Self {
            party: &of.name,
            messages: view.messages.iter().enumerate().map(|(i, seen)| message(i, seen, names)).collect(),
            arrays: view.arrays.iter().zip(arrays).map(|(opened, name)| array(opened, name, names)).collect(),
            plans: view.plans.iter().map(|of| plan(of, names)).collect(),
            known: of.known.iter().map(|k| KnownEntry { array: &k.name, shape: &k.shape }).collect(),
            secrets: &view.secrets,
        }
    }
}

fn message(number: usize, seen: &Seen, names: &PartyNames) -> MessageEntry {
    let About { test, group, part, step: hop, item, chunk, client, round, owner, .. } = seen.about;
    let part = part.map(UnitPart::to_wire);
    let client = client.map(|client| names.client(client));
    let owner = owner.map(|owner| names.client(owner));
    MessageEntry {
        number,
        from: names.party(seen.from),
        kind: seen.kind.name(),
        bytes: seen.bytes,
        length: seen.length,
        blake3: seen.digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        about: ViewedHead { round, test, group, part, hop, item, chunk, client, owner },
        read: seen.read,
        holds: seen.holds,
    }
}

fn array(opened: &Opened, name: &str, names: &PartyNames) -> ArrayEntry {
    let about = &opened.about;
    ArrayEntry {
        file: format!("{}.npz", opened.file),
        array: name.to_owned(),
        what: opened.what,
        kind: opened.kind.name(),
        from: opened.from.map(|from| names.party(from)),
        messages: opened.messages.clone(),
        disclosure: opened.disclosure.map(|disclosure| format!("{disclosure:?}")),
        test: about.test,
        group: about.group,
        part: about.part.map(UnitPart::to_wire),
        hop: about.step,
        item: about.item,
        client: about.client.map(|client| names.client(client)),
        round: about.round,
        coalition: about.coalition.map(|c| c.members().map(|i| names.client(i)).collect()),
        owner: about.owner.map(|owner| names.client(owner)),
        samples: ranges(&about.samples),
        operator: about.operator,
        first_position: about.positions.map(|(first, _)| first),
        positions: about.positions.map(|(_, count)| count),
        step: about.time_step,
        shape: [opened.shape.0, opened.shape.1],
        scale: opened.scale,
        offset: opened.offset,
    }
}

fn plan(plan: &SeenPlan, names: &PartyNames) -> PlanEntry {
    let unit = &plan.unit;
    let name = |client: usize| names.client(client);
    PlanEntry {
        test: plan.test,
        round: plan.round,
        rounds: plan.rounds.clone(),
        group: unit.group,
        part: unit.part.to_wire(),
        coalitions: unit.coalitions.iter().map(|c| c.members().map(name).collect()).collect(),
        samples: plan.samples.iter().map(|(owner, samples)| (name(*owner), ranges(samples))).collect(),
        chain: unit.chain.iter().map(|&client| name(client)).collect(),
        gru: unit.gru.map(|gru| [name(gru.resharer), name(gru.gates)]),
        dealer: unit.dealer.map(name),
        counter: unit.counter.map(name),
    }
}

/// Ascending numbers as half-open ranges.
fn ranges(numbers: &[usize]) -> Vec<[usize; 2]> {
    let mut ranges: Vec<[usize; 2]> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some(last) if last[1] == number => last[1] += 1,
            _ => ranges.push([number, number + 1]),
        }
    }
    ranges
}
