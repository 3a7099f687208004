//! The table "Running time and error in detail".

use secsv_protocol::{decryptors::Protocol, session::Matmul};

use super::{
    measurement::{Measured, Measurement},
    paper,
    study::{Section, Study, StudyScope, mean},
    table::{Cell, ResultTable, figure},
    tasks::PaperTask,
};
use crate::protocol_name::ProtocolName;

/// The paper's channel, as its authors count it: 1 Gbit/s of 2^30 bits, no latency.
const BYTES_PER_SECOND: f64 = 134_217_728.0;
/// The paper's T.
const PAPER_ROUNDS: f64 = 10.0;

/// In the clear, the reference of every error.
pub fn clear(scope: &StudyScope, task: PaperTask, repetition: u32) -> Measurement {
    Measurement::new(scope.federation(task, repetition), ProtocolName::Nssv)
}

/// A secure protocol. HESV tests CNN and GRU on a tenth, and as many rounds as fit the limit: all of it takes
/// hours. So does BlindSV the GRU: all of it takes many gigabytes.
pub fn secure(
    scope: &StudyScope,
    task: PaperTask,
    repetition: u32,
    protocol: ProtocolName,
    skip: bool,
) -> Measurement {
    let whole = Measurement::new(scope.federation(task, repetition), protocol);
    if Measurement::is_in_part(task, protocol) {
        Measurement { skip, share: scope.studied(task), limit: Some(scope.limit), ..whole }
    } else {
        Measurement { skip, ..whole }
    }
}

/// The rows of a task in the order of the paper's table, and BlindSV, which is not the paper's: protocol, its title, whether samples
/// are skipped.
const ROWS: [(Protocol, &str, bool); 5] = [
    (Protocol::Hesv, "HESV", false),
    (Protocol::SecSv, "SecSV", false),
    (Protocol::SecretSv, "SecretSV", false),
    (Protocol::SecSv, "SecSV + SampleSkip", true),
    (Protocol::BlindSv, "BlindSV", false),
];

/// Measurements of the table.
pub fn measurements(scope: &StudyScope) -> Vec<Measurement> {
    let mut all = Vec::new();
    for &task in &scope.tasks {
        for repetition in 0..scope.runs {
            all.push(clear(scope, task, repetition));
            let secure =
                |(protocol, _, skip)| secure(scope, task, repetition, ProtocolName::Secure(protocol), skip);
            all.extend(ROWS.map(secure));
        }
    }
    all
}

/// The table from what was measured.
pub fn section(study: &Study) -> Section {
    let mut section =
        Section::new("table-eval", "Running time and error (table \"Running time and error in detail\")");
    section.about = vec![
        "Each cell: **ours** / the paper's (how many times less ours is, per test sample and round).".to_owned(),
        "Total is the wall clock of the whole run with every party on this machine; arithmetic, encryption, decryption, shares and other are processor seconds of all parties together, so they may exceed it. The paper's figures are processor seconds on one 3.0 GHz core, and its total leaves the second server out.".to_owned(),
        format!("Communication is bytes / {BYTES_PER_SECOND} B/s, as the authors compute it; parties here share a process, so it is not part of the total. Arithmetic is linear layers; other is flooding and re-randomising replies, activations, packing of messages and tests that owners do themselves, which the paper's columns do not have."),
        "HESV multiplies by whichever of the paper's two matrix methods is planned to be faster; the row names it. CNN and GRU take it hours, so it tests them on a tenth of the samples, and as many rounds as fit the limit. Batches of a tenth are less full: its total for all M and T, extrapolated by samples and rounds, and speedups with respect to it are upper bounds there. Error is the Euclidean distance of the FSVs from NSSV's on the same samples and rounds; FSVs add up over rounds, so one of fewer rounds is not compared with the paper's. Against the authors' code: their counted total on 2 virtual EPYC cores over our wall clock, per test sample and round. Memory is the process's peak, all parties together.".to_owned(),
        "BlindSV is not the paper's: it has no figures of the paper beside it, and against the authors' code it is compared with their SecSV. Its gates are counted as shares. Functions of its recurrent units are approximate, and it tests them on a tenth of the samples.".to_owned(),
    ];
    let mut table = ResultTable::new("table-eval", &COLUMNS);
    for &task in &study.scope.tasks {
        let reference = study.repeated(|repetition| clear(&study.scope, task, repetition));
        let hesv =
            study.repeated(|repetition| secure(&study.scope, task, repetition, ProtocolName::HESV, false));
        for (protocol, title, skip) in ROWS {
            let name = ProtocolName::Secure(protocol);
            let found = study.repeated(|repetition| secure(&study.scope, task, repetition, name, skip));
            let row = match (&found, &reference) {
                (Ok(found), Ok(reference)) => {
                    let row = MeasuredRow {
                        study,
                        task,
                        protocol,
                        title,
                        skip,
                        found,
                        reference,
                        hesv: hesv.as_deref().ok(),
                    };
                    row.remark(&mut section.lines);
                    row.cells()
                }
                (Err(reason), _) | (_, Err(reason)) => {
                    vec![Cell::text(task.title()), Cell::text(title), Cell::gap(reason.clone())]
                }
            };
            table.push(row);
        }
        if let Ok(reference) = &reference {
            table.push(nssv(task, reference));
        }
    }
    section.tables.push(table);
    section.note_differences(&study.scope.tasks);
    section
}

const COLUMNS: [&str; 16] = [
    "Data set (model)",
    "Protocol",
    "M",
    "Total, wall s",
    "Arithmetic, CPU s",
    "Enc., CPU s",
    "Dec., CPU s",
    "Comm. s",
    "Shares, CPU s",
    "Other, CPU s",
    "Total for all M and T, extrapolated, s",
    "Speedup w.r.t. HESV",
    "Slowdown w.r.t. NSSV",
    "Error",
    "Against the authors' code",
    "Memory GiB",
];

fn nssv(task: PaperTask, found: &[Measured]) -> Vec<Cell> {
    let seconds = mean(found, |m| m.result.timing.wall_s);
    let mut row = vec![
        Cell::text(task.title()),
        Cell::text("NSSV, in the clear"),
        Cell::count(mean(found, Measured::samples)),
        Cell::Number(seconds),
    ];
    row.resize(COLUMNS.len() - 2, Cell::text(""));
    row.push(paper::authors_nssv(task).map_or(Cell::text(""), |theirs| {
        Cell::text(format!("{}x ({theirs:.0} s)", figure(theirs * per_unit(task, found) / seconds)))
    }));
    row
}

/// The share of the paper's work (samples times rounds) that was done.
fn per_unit(task: PaperTask, found: &[Measured]) -> f64 {
    let rounds = mean(found, Measured::rounds);
    paper::samples(task)
        .map_or(1.0, |samples| mean(found, Measured::samples) * rounds / (samples * PAPER_ROUNDS))
}

struct MeasuredRow<'a> {
    study: &'a Study,
    task: PaperTask,
    protocol: Protocol,
    title: &'static str,
    skip: bool,
    found: &'a [Measured],
    reference: &'a [Measured],
    hesv: Option<&'a [Measured]>,
}

impl MeasuredRow<'_> {
    fn seconds(&self) -> f64 {
        mean(self.found, |m| m.result.timing.wall_s)
    }

    /// Skipping is not in the paper's table.
    fn paper(&self) -> Option<paper::EvalRow> {
        paper::eval(self.task, self.protocol).filter(|_| !self.skip)
    }

    fn error(&self) -> f64 {
        self.error_of(self.found)
    }

    fn error_of(&self, found: &[Measured]) -> f64 {
        let pairs: Vec<_> = found.iter().zip(self.reference).collect();
        mean(&pairs, |(found, exact)| found.distance(exact))
    }

    /// The share of the work, samples times rounds, that was done.
    fn used(&self) -> f64 {
        let work = |m: &Measured| m.samples() * m.rounds();
        mean(self.found, work) / mean(self.reference, work)
    }

    fn is_cut(&self) -> bool {
        self.used() < 1.0
    }

    fn authors(&self) -> Option<f64> {
        let theirs = paper::authors_total(self.task, self.protocol, self.skip)?;
        Some(theirs * per_unit(self.task, self.found) / self.seconds())
    }

    fn cells(&self) -> Vec<Cell> {
        let unit = per_unit(self.task, self.found);
        let compared = |ours: f64, paper: Option<f64>| {
            let ratio = paper.filter(|paper| *paper > 0.0 && ours > 0.0).map(|paper| paper * unit / ours);
            Cell::Compared { ours, paper, ratio }
        };
        let timed = |figure: fn(&secsv_evaluation::Timing) -> f64, paper: fn(&paper::EvalRow) -> f64| {
            compared(mean(self.found, |m| figure(&m.result.timing)), self.paper().as_ref().map(paper))
        };
        let sent = mean(self.found, |m| m.bytes() / BYTES_PER_SECOND);
        let samples = mean(self.found, Measured::samples);
        let used = self.used();
        let size = if self.is_cut() {
            let rounds = mean(self.found, Measured::rounds);
            Cell::text(format!("{samples:.0}, T = {rounds:.0}: {:.1} % of the work", 100.0 * used))
        } else {
            Cell::count(samples)
        };
        let method = match self.found.first().and_then(|m| m.matmul) {
            Some(Matmul::Squaring) => ", Matrix Squaring",
            Some(Matmul::Reducing) => ", Matrix Reducing",
            Some(Matmul::Packed) | None => "",
        };
        vec![
            Cell::text(self.task.title()),
            Cell::text(format!("{}{method}", self.title)),
            size,
            timed(|t| t.wall_s, |p| p.total),
            timed(|t| t.linear_s, |p| p.arithmetic),
            timed(|t| t.encrypt_s, |p| p.encryption),
            timed(|t| t.decrypt_s, |p| p.decryption),
            compared(sent, self.paper().map(|p| p.communication)),
            timed(|t| t.share_s, |p| p.shares),
            Cell::Number(mean(self.found, |m| {
                let t = &m.result.timing;
                t.sanitise_s + t.activate_s + t.codec_s + t.clear_s
            })),
            if self.is_cut() { Cell::Number(self.seconds() / used) } else { Cell::text("") },
            self.speedup(),
            self.slowdown(),
            self.error_cell(),
            self.authors().map_or(Cell::text(""), |ratio| Cell::text(format!("{}x", figure(ratio)))),
            self.memory().map_or(Cell::text(""), Cell::Number),
        ]
    }

    fn speedup(&self) -> Cell {
        let Some(hesv) = self.hesv else { return Cell::gap("HESV is missing") };
        let ours = mean(hesv, Measured::seconds_per_sample) / mean(self.found, Measured::seconds_per_sample);
        Cell::beside(ours, self.paper().map(|p| p.speedup_over_hesv))
    }

    fn slowdown(&self) -> Cell {
        let ours = mean(self.found, Measured::seconds_per_sample)
            / mean(self.reference, Measured::seconds_per_sample);
        Cell::beside(ours, self.paper().map(|p| p.slowdown_over_nssv))
    }

    fn error_cell(&self) -> Cell {
        Cell::less_is_better(self.error(), self.paper().filter(|_| !self.is_cut()).map(|p| p.error))
    }

    /// HESV's error if it tested everything: it predicts what SecSV predicts.
    fn error_of_all(&self) -> Option<f64> {
        let Self { study, task, protocol, .. } = *self;
        let of = |repetition| secure(&study.scope, task, repetition, ProtocolName::SECSV, false);
        ProtocolName::Secure(protocol)
            .lacks_packing()
            .then(|| study.repeated(of).ok())
            .flatten()
            .map(|found| self.error_of(&found))
    }

    fn memory(&self) -> Option<f64> {
        self.found.iter().filter_map(Measured::memory_gib).max_by(f64::total_cmp)
    }

    /// Where ours is worse, in words.
    fn remark(&self, lines: &mut Vec<String>) {
        let name = format!("{} {}", self.task.title(), self.title);
        let unit = per_unit(self.task, self.found);
        if let Some(paper) = self.paper() {
            let timing =
                |figure: fn(&secsv_evaluation::Timing) -> f64| mean(self.found, |m| figure(&m.result.timing));
            for (what, ours, theirs) in [
                ("total", self.seconds(), paper.total),
                ("arithmetic", timing(|t| t.linear_s), paper.arithmetic),
                ("encryption", timing(|t| t.encrypt_s), paper.encryption),
                ("decryption", timing(|t| t.decrypt_s), paper.decryption),
                ("shares", timing(|t| t.share_s), paper.shares),
                ("communication", mean(self.found, |m| m.bytes() / BYTES_PER_SECOND), paper.communication),
            ] {
                if ours > theirs * unit && ours > 0.0 {
                    lines.push(format!(
                        "Worse: {name}, {what}: {} s against {} s.",
                        figure(ours),
                        figure(theirs * unit)
                    ));
                }
            }
            if self.error() > paper.error && !self.is_cut() {
                lines.push(format!(
                    "Worse: {name}, error: {} against {}.",
                    figure(self.error()),
                    figure(paper.error)
                ));
            }
        }
        if self.is_cut() {
            lines.push(format!(
                "{name} ran on {:.0} samples and {:.0} of {} rounds; all rounds of its part of the samples were planned to take {} s.",
                mean(self.found, Measured::samples),
                mean(self.found, Measured::rounds),
                self.study.scope.rounds,
                figure(mean(self.found, |m| m.planned_s.unwrap_or_default())),
            ));
            lines.extend(self.error_of_all().map(|error| {
                format!("{name}, error on all samples and rounds: {}. That is SecSV's: both compute the same fixed-point numbers, bit for bit, where they test the same rounds.", figure(error))
            }));
        }
    }
}
