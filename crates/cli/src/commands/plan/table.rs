//! The plan for people.

use std::fmt::Write as _;

use secsv_evaluation::{PlanResult, PlannedCost};

use crate::{
    commands::protocols::agreement,
    output::is_verbose,
    value_table::{ranges, statistical_distance},
};

/// Everything that is known beforehand.
pub fn text(plan: &PlanResult) -> String {
    let mut text = String::new();
    let exactness = match (plan.truncates, plan.skip) {
        (true, _) => "at most, models may be left out",
        (false, true) => "at most, samples may be skipped",
        (false, false) => "exact",
    };
    let most = if plan.truncates { "at most " } else { "" };
    let _ = writeln!(
        text,
        "{}, {}: {} clients, {most}{} models to test on {} test cases",
        plan.protocol,
        plan.estimator,
        plan.clients.len(),
        plan.tests,
        plan.samples
    );
    let _ = writeln!(text, "what it takes (messages and bytes are {exactness}; times are of this machine)");
    costs(&mut text, plan);
    if let Some(approximate) = &plan.security.approximate {
        let _ = writeln!(text, "{}", agreement(approximate));
    }
    if is_verbose() || plan.security.ranges.iter().any(|range| range.bits < range.proven_bits) {
        text.push_str(&ranges(&plan.security));
    }
    if is_verbose() {
        held(&mut text, plan);
        links(&mut text, &plan.cost);
        security(&mut text, plan);
    }
    let _ = write!(text, "{}", plan.security.exposure);
    if !is_verbose() {
        text.push_str("(--verbose: operations, links, kinds of messages, who learns what)\n");
    }
    text
}

fn costs(text: &mut String, plan: &PlanResult) {
    let least = plan.at_least.as_ref();
    let mut line = |name: &str, of: &dyn Fn(&PlannedCost) -> String| {
        let from = least.map_or(String::new(), |least| format!("{} to ", of(least)));
        let _ = writeln!(text, "  {name:26}  {from}{}", of(&plan.cost));
    };
    if plan.parameters.is_some() && is_verbose() {
        line("ciphertext times plaintext", &|cost| cost.operations.ct_pt_mul.to_string());
        line("ciphertext times ciphertext", &|cost| cost.operations.ct_ct_mul.to_string());
        line("rotations", &|cost| cost.operations.rotate.to_string());
        line("transforms", &|cost| cost.operations.ntt.to_string());
        line("encryptions", &|cost| cost.operations.encrypt.to_string());
        line("decryptions", &|cost| cost.operations.decrypt.to_string());
    }
    line("messages", &|cost| cost.messages.iter().map(|kind| kind.messages).sum::<u64>().to_string());
    line("bytes", &|cost| size(cost.messages.iter().map(|kind| kind.bytes).sum()));
    line("processor time, about", &|cost| duration(cost.cpu_s));
    line("elapsed here, about", &|cost| duration(cost.wall_s));
    let _ = writeln!(text, "  {:26}  {}", "memory, about", size(plan.memory_bytes));
}

fn held(text: &mut String, plan: &PlanResult) {
    for held in &plan.most_held {
        let (disk, memory) = (size(held.disk_bytes), size(held.memory_bytes));
        let _ = writeln!(
            text,
            "whatever one client sends, the {} holds at most {disk} of it on disk and {memory} in memory",
            held.server
        );
    }
}

fn links(text: &mut String, cost: &PlannedCost) {
    let width = cost.traffic.iter().map(|link| link.from.len().max(link.to.len())).max().unwrap_or(0);
    let _ = writeln!(text, "links");
    for link in &cost.traffic {
        let _ = writeln!(text, "  {:width$}  to  {:width$}  {:>12}", link.from, link.to, size(link.bytes));
    }
    let _ = writeln!(text, "messages");
    for kind in &cost.messages {
        let _ = writeln!(text, "  {:20}  {:>8}  {:>12}", kind.kind, kind.messages, size(kind.bytes));
    }
}

fn security(text: &mut String, plan: &PlanResult) {
    let security = &plan.security;
    if let Some(parameters) = &plan.parameters {
        let _ = writeln!(
            text,
            "encryption: {}, degree {}, modulus {} bits, plaintexts {} bits, {} bits of security",
            parameters.preset,
            parameters.degree,
            parameters.modulus_bits,
            parameters.plaintext_bits,
            parameters.security_bits
        );
    }
    text.push_str(&statistical_distance(security));
    let _ = writeln!(text, "trust: {}", security.trust);
    let _ = writeln!(text, "who learns what");
    for line in &security.disclosures {
        let _ = writeln!(text, "  {}: {}", line.who, line.what);
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..0x400 => format!("{bytes} B"),
        0x400..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64),
        _ => format!("{:.2} GiB", bytes as f64 / (1 << 30) as f64),
    }
}

fn duration(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{seconds:.3} s")
    } else if seconds < 120.0 {
        format!("{seconds:.1} s")
    } else if seconds < 7200.0 {
        format!("{:.1} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}
