//! Progress on standard error: a bar on a terminal, a short line every few seconds elsewhere, JSON lines for programs, or nothing.

use std::{
    cell::RefCell,
    io::{IsTerminal, stderr},
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::output::{print, say};

/// How often a bar is drawn although nothing has happened: its clock shows that work goes on.
const TICK: Duration = Duration::from_millis(500);
/// How often a line is said.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// How often programs are told, at most.
const RECORD_INTERVAL: Duration = Duration::from_secs(1);
/// Characters beside a bar.
const MAX_MESSAGE: usize = 36;
/// As long as nobody knows how far it goes there is no bar, which would look full.
const WAITING: &str = "{spinner} {prefix} {msg} [{elapsed}]";
/// Afterwards.
const COUNTING: &str = "{prefix} {wide_bar} {pos}/{len} {msg} [{elapsed}{left}]";

/// Where words are long they have a line of their own.
const COUNTING_ABOVE_WORDS: &str = "{prefix} {wide_bar} {pos}/{len} [{elapsed}{left}]\n  {wide_msg}";

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// A bar that moves; on a terminal alone, lines elsewhere.
    Bar,
    /// A short line every few seconds.
    Lines,
    /// JSON lines, at most one a second.
    Json,
    /// Nothing.
    None,
}

static MODE: OnceLock<ProgressMode> = OnceLock::new();

/// Says how progress is shown from now on: where nothing is said, a bar on a terminal and lines elsewhere.
pub fn choose(mode: Option<ProgressMode>) {
    let usual = if stderr().is_terminal() { ProgressMode::Bar } else { ProgressMode::Lines };
    let mode = match mode.unwrap_or(usual) {
        ProgressMode::Bar => usual,
        other => other,
    };
    MODE.get_or_init(|| mode);
}

/// Whether progress is shown as it is for programs, or not at all.
pub fn mode() -> ProgressMode {
    *MODE.get_or_init(|| ProgressMode::None)
}

/// Progress on standard error.
pub struct ProgressReport {
    what: String,
    unit: &'static str,
    begun: Instant,
    pace: Arc<Mutex<Pace>>,
    shown: Shown,
    /// Set where other work is part of this.
    whole: Option<Arc<Whole>>,
}

thread_local! {
    /// The work that other work of this thread is part of: there is one bar and one estimate at a time.
    static WHOLE: RefCell<Option<Arc<Whole>>> = const { RefCell::new(None) };
}

/// Where parts say how far they are.
struct Whole {
    bar: Option<ProgressBar>,
    pace: Arc<Mutex<Pace>>,
    /// The part that is worked on.
    part: Mutex<String>,
}

impl Whole {
    /// The part, and how far it is if it says so.
    fn say(&self, how_far: &str) {
        let part = lock(&self.part).clone();
        let message = if how_far.is_empty() { part } else { format!("{part}: {how_far}") };
        if let Some(bar) = &self.bar {
            bar.set_message(message.clone());
        }
        lock(&self.pace).message = message;
    }
}

/// Where progress goes.
enum Shown {
    Bar(ProgressBar),
    Lines(Lines),
    /// When the last record was written, and how far it had come then.
    Records(Mutex<Option<(Instant, u64, u64)>>),
    /// Beside what it is part of.
    Within(Arc<Whole>),
    Nowhere,
}

/// What is counted, for programs.
#[derive(Serialize)]
struct ProgressRecord<'a> {
    event: &'static str,
    what: &'a str,
    unit: &'static str,
    done: u64,
    asked: u64,
    elapsed_s: f64,
    left_s: Option<f64>,
}

/// How fast steps follow each other, and how far they have come.
#[derive(Default)]
struct Pace {
    /// Steps and time when the first of them had been done: what came before it is no measure of the others.
    first: Option<(u64, Instant)>,
    position: u64,
    length: u64,
    message: String,
    /// The time left as somebody else reckons it, and when that was said.
    reckoned: Option<(Duration, Instant)>,
}

impl Pace {
    fn advance(&mut self, position: u64, length: u64, now: Instant) {
        (self.position, self.length) = (position, length.max(self.length));
        if position > 0 && self.first.is_none() {
            self.first = Some((position, now));
        }
    }

    /// The time left, as soon as there is a step to go by.
    fn left(&self, now: Instant) -> Option<Duration> {
        if let Some((left, since)) = self.reckoned {
            return Some(left.saturating_sub(now.saturating_duration_since(since)));
        }
        let (first, since) = self.first?;
        let done = self.position.checked_sub(first).filter(|done| *done > 0)?;
        let each = now.saturating_duration_since(since).as_secs_f64() / done as f64;
        Duration::try_from_secs_f64(each * self.length.saturating_sub(self.position) as f64).ok()
    }

    /// One line on how far it is.
    fn line(&self, what: &str, unit: &str, begun: Instant, now: Instant) -> String {
        let message = if self.message.is_empty() { String::new() } else { format!(", {}", self.message) };
        let elapsed = HumanDuration(now.saturating_duration_since(begun));
        if self.length == 0 {
            let doing = if self.message.is_empty() { "not begun" } else { &self.message };
            return format!("{what}: {doing}, {elapsed}");
        }
        if self.position >= self.length {
            return format!("{what}: all {} {unit} are through{message}, {elapsed}", self.length);
        }
        let left =
            self.left(now).map_or(String::new(), |left| format!(", about {} left", HumanDuration(left)));
        format!("{what}: {} of {} {unit}{message}, {elapsed}{left}", self.position, self.length)
    }
}

/// Says a line every few seconds until it is stopped.
struct Lines {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Lines {
    fn start(line: impl Fn() -> String + Send + 'static, interval: Duration) -> Self {
        let stop = Arc::<(Mutex<bool>, Condvar)>::default();
        let heard = stop.clone();
        let thread = std::thread::spawn(move || {
            let (is_over, changed) = &*heard;
            let mut over = lock(is_over);
            loop {
                let waited = changed.wait_timeout(over, interval).unwrap_or_else(PoisonError::into_inner);
                over = waited.0;
                if *over {
                    return;
                }
                if waited.1.timed_out() {
                    say(line());
                }
            }
        });
        Self { stop, thread: Mutex::new(Some(thread)) }
    }

    fn stop(&self) {
        *lock(&self.stop.0) = true;
        self.stop.1.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            // It only speaks.
            let _ = thread.join();
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProgressReport {
    /// Progress of `what` towards `steps` steps, called `unit`; 0 if nobody knows yet how many.
    pub fn new(what: impl Into<String>, unit: &'static str, steps: u64) -> Self {
        let (what, pace, begun) = (what.into(), Arc::<Mutex<Pace>>::default(), Instant::now());
        lock(&pace).length = steps;
        let whole = WHOLE.with_borrow(Clone::clone);
        let shown = match (mode(), whole) {
            (ProgressMode::None, _) => Shown::Nowhere,
            (_, Some(whole)) => Shown::Within(whole),
            (ProgressMode::Bar, _) => Shown::Bar(bar(ProgressDrawTarget::stderr(), &what, steps, &pace)),
            (ProgressMode::Lines, _) => {
                let (what, pace) = (what.clone(), pace.clone());
                let line = move || lock(&pace).line(&what, unit, begun, Instant::now());
                Shown::Lines(Lines::start(line, LINE_INTERVAL))
            }
            (ProgressMode::Json, _) => Shown::Records(Mutex::new(None)),
        };
        Self { what, unit, begun, pace, shown, whole: None }
    }

    /// Progress of work that other work is part of, until it is finished: what that says of itself stands beside it.
    pub fn whole(what: impl Into<String>, unit: &'static str, steps: u64) -> Self {
        Self::new(what, unit, steps).of_parts()
    }

    fn of_parts(self) -> Self {
        let bar = match &self.shown {
            Shown::Bar(bar) => Some(bar.clone()),
            _ => None,
        };
        if let Some(bar) = &bar {
            bar.set_style(styled(COUNTING_ABOVE_WORDS, &self.pace));
        }
        let whole = Arc::new(Whole { bar, pace: self.pace.clone(), part: Mutex::default() });
        // Programs are told of parts as they are.
        if !matches!(self.shown, Shown::Records(_)) {
            WHOLE.set(Some(whole.clone()));
        }
        Self { whole: Some(whole), ..self }
    }

    /// What is worked on now, and the time left as whoever knows the parts reckons it.
    pub fn part(&self, part: &str, left: Duration, record: &impl Serialize) {
        lock(&self.pace).reckoned = Some((left, Instant::now()));
        if let Some(whole) = &self.whole {
            part.clone_into(&mut lock(&whole.part));
            whole.say("");
        }
        if let Shown::Records(_) = &self.shown
            && let Ok(line) = serde_json::to_string(record)
        {
            say(line);
        }
    }

    /// Progress of a party, of which a log is kept: where no terminal shows a bar the log tells how far it is.
    pub fn of_party(unit: &'static str) -> Self {
        match mode() {
            ProgressMode::Lines => Self {
                what: "evaluation".to_owned(),
                unit,
                begun: Instant::now(),
                pace: Arc::default(),
                shown: Shown::Nowhere,
                whole: None,
            },
            _ => Self::new("evaluation", unit, 0),
        }
    }

    /// One step further.
    pub fn step(&self) {
        let (position, length) = {
            let pace = lock(&self.pace);
            (pace.position + 1, pace.length)
        };
        self.advance(position, length);
    }

    /// So far, and how far it goes as known by now.
    pub fn advance(&self, position: u64, length: u64) {
        let was_unknown = lock(&self.pace).length == 0;
        lock(&self.pace).advance(position, length, Instant::now());
        match &self.shown {
            Shown::Bar(bar) => {
                if was_unknown && length > 0 {
                    bar.set_style(styled(COUNTING, &self.pace));
                }
                if length > 0 {
                    bar.set_length(length);
                }
                bar.set_position(position);
            }
            Shown::Records(last) => self.record(last, false),
            Shown::Within(whole) if length > 0 => {
                whole.say(&format!("{}, {position} of {length} {}", self.what, self.unit));
            }
            Shown::Within(_) | Shown::Lines(_) | Shown::Nowhere => {}
        }
    }

    /// Tells programs how far it is, unless they have just been told.
    fn record(&self, last: &Mutex<Option<(Instant, u64, u64)>>, is_last: bool) {
        let (now, pace) = (Instant::now(), lock(&self.pace));
        let (done, asked) = (pace.position, pace.length);
        let mut last = lock(last);
        let is_due = match *last {
            None => true,
            Some((_, told, of)) if is_last => (told, of) != (done, asked),
            Some((told, ..)) => now.saturating_duration_since(told) >= RECORD_INTERVAL,
        };
        if !is_due {
            return;
        }
        *last = Some((now, done, asked));
        let record = ProgressRecord {
            event: "progress",
            what: &self.what,
            unit: self.unit,
            done,
            asked,
            elapsed_s: now.saturating_duration_since(self.begun).as_secs_f64(),
            left_s: pace.left(now).map(|left| left.as_secs_f64()),
        };
        if let Ok(line) = serde_json::to_string(&record) {
            say(line);
        }
    }

    /// Something worth a word beside the count, or a JSON line.
    pub fn note(&self, text: String, record: &impl Serialize) {
        match &self.shown {
            // Long words would leave nothing for the bar.
            Shown::Bar(bar) => bar.set_message(text.chars().take(MAX_MESSAGE).collect::<String>()),
            Shown::Lines(_) => lock(&self.pace).message = text,
            Shown::Records(_) => {
                if let Ok(line) = serde_json::to_string(record) {
                    say(line);
                }
            }
            Shown::Within(_) | Shown::Nowhere => {}
        }
    }

    /// Prints a line on the way without tearing the bar. Whoever does not take it is told of the end all the same.
    pub fn print(&self, line: &str) {
        let print = || drop(print(&format!("{line}\n")));
        match &self.shown {
            Shown::Bar(bar) => bar.suspend(print),
            Shown::Within(whole) => match &whole.bar {
                Some(bar) => bar.suspend(print),
                None => print(),
            },
            _ => print(),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        match &self.shown {
            Shown::Bar(bar) => bar.finish_and_clear(),
            Shown::Lines(lines) => lines.stop(),
            Shown::Records(last) => self.record(last, true),
            Shown::Within(whole) => whole.say(""),
            Shown::Nowhere => {}
        }
        if self.whole.is_some() {
            WHOLE.set(None);
        }
    }
}

/// Whether people read along.
pub fn is_told() -> bool {
    matches!(mode(), ProgressMode::Bar | ProgressMode::Lines)
}

fn bar(target: ProgressDrawTarget, what: &str, steps: u64, pace: &Arc<Mutex<Pace>>) -> ProgressBar {
    let bar = ProgressBar::with_draw_target((steps > 0).then_some(steps), target);
    bar.set_style(styled(if steps > 0 { COUNTING } else { WAITING }, pace));
    bar.set_prefix(what.to_owned());
    bar.enable_steady_tick(TICK);
    bar
}

fn styled(template: &str, pace: &Arc<Mutex<Pace>>) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let pace = pace.clone();
    style.with_key("left", move |_: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
        if let Some(left) = lock(&pace).left(Instant::now()) {
            let _ = write!(out, ", {} left", HumanDuration(left));
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// A terminal that remembers the last line that was drawn.
    #[derive(Clone, Debug, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl Screen {
        fn drawn(&self) -> String {
            self.0.lock().unwrap().clone()
        }
    }

    impl indicatif::TermLike for Screen {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, _: &str) -> io::Result<()> {
            Ok(())
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            if text.contains(['[', '/']) {
                *self.0.lock().unwrap() = text.to_owned();
            } else if !text.trim().is_empty() {
                self.0.lock().unwrap().push_str(text);
            }
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_bar_is_not_full_before_anything_is_known_and_its_clock_runs() {
        let screen = Screen::default();
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        let (pace, unit) = (Arc::<Mutex<Pace>>::default(), "coalitions");
        let shown = Shown::Bar(bar(target, "secsv", 0, &pace));
        let (what, begun) = ("secsv".to_owned(), Instant::now());
        let progress = ProgressReport { what, unit, begun, pace, shown, whole: None };
        std::thread::sleep(Duration::from_millis(1700));
        let waiting = screen.drawn();
        assert!(!waiting.contains('\u{2588}') && !waiting.contains("0/0"), "{waiting}");
        assert!(waiting.contains("secsv") && !waiting.contains("[0s"), "{waiting}");
        progress.advance(0, 96);
        std::thread::sleep(Duration::from_millis(700));
        let begun = screen.drawn();
        assert!(begun.contains("0/96") && !begun.contains('\u{2588}') && !begun.contains("left"), "{begun}");
        progress.advance(96, 96);
        std::thread::sleep(Duration::from_millis(700));
        assert!(screen.drawn().contains("96/96"), "{}", screen.drawn());
    }

    /// Work within work: one bar, one estimate, names in full.
    #[test]
    fn parts_say_how_far_they_are_beside_the_whole() {
        let screen = Screen::default();
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        let pace = Arc::<Mutex<Pace>>::default();
        let shown = Shown::Bar(bar(target, "reproduce", 10, &pace));
        let (what, begun) = ("reproduce".to_owned(), Instant::now());
        let report = ProgressReport { what, unit: "cells", begun, pace, shown, whole: None };
        let whole = report.of_parts();
        let cell = "breast-cancer-logistic-n5-T10-scale1-seed0-M1.0000-t10-secsv-exact";
        whole.advance(3, 10);
        whole.part(cell, Duration::from_secs(600), &());
        let within = WHOLE.with_borrow(Clone::clone).unwrap();
        let (what, begun, shown) = ("secsv".to_owned(), Instant::now(), Shown::Within(within));
        let part = ProgressReport { what, unit: "models", begun, pace: Arc::default(), shown, whole: None };
        part.advance(12, 64);
        std::thread::sleep(Duration::from_millis(700));
        let drawn = screen.drawn();
        assert!(
            drawn.contains("reproduce") && drawn.contains("3/10") && drawn.contains("10 minutes left"),
            "{drawn}"
        );
        assert!(drawn.contains(&cell[..60]), "{drawn}");
        let said = lock(&whole.pace).message.clone();
        assert_eq!(said, format!("{cell}: secsv, 12 of 64 models"));
        assert_eq!(drawn.matches("left").count(), 1, "one estimate: {drawn}");
        part.finish();
        whole.finish();
        assert!(WHOLE.with_borrow(Option::is_none));
    }

    /// What comes before the first step, such as encrypting everything, is no measure of those after it.
    #[test]
    fn the_time_left_follows_from_steps_alone() {
        let (begun, mut pace) = (Instant::now(), Pace::default());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(pace.line("secsv", "coalitions", begun, at(7)), "secsv: not begun, 7 seconds");
        pace.advance(0, 96, at(0));
        assert_eq!(pace.left(at(20)), None);
        pace.advance(1, 96, at(21));
        assert_eq!(pace.left(at(22)), None);
        pace.advance(6, 96, at(31));
        assert_eq!(pace.left(at(31)), Some(Duration::from_secs(180)));
        let line = pace.line("secsv", "coalitions", begun, at(31));
        assert_eq!(line, "secsv: 6 of 96 coalitions, 31 seconds, about 3 minutes left");
        pace.advance(96, 96, at(200));
        let line = pace.line("secsv", "coalitions", begun, at(207));
        assert_eq!(line, "secsv: all 96 coalitions are through, 3 minutes", "values are computed");
    }

    #[test]
    fn lines_come_every_few_seconds_and_end_at_once() {
        let said = Arc::<Mutex<u32>>::default();
        let count = said.clone();
        let line = move || {
            *count.lock().unwrap() += 1;
            String::new()
        };
        let lines = Lines::start(line, Duration::from_millis(100));
        std::thread::sleep(Duration::from_millis(450));
        let begun = Instant::now();
        lines.stop();
        assert!(begun.elapsed() < Duration::from_millis(90));
        assert!((2..=5).contains(&*said.lock().unwrap()), "{said:?}");
    }
}
