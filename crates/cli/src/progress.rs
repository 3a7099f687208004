//! Progress on standard error: a bar on a terminal, JSON lines otherwise.

use std::{
    io::{IsTerminal, stderr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::output::{print, say};

/// How often a bar is drawn although nothing has happened: its clock shows that work goes on.
const TICK: Duration = Duration::from_millis(500);
/// As long as nobody knows how far it goes there is no bar, which would look full.
const WAITING: &str = "{spinner} {prefix} {msg} [{elapsed}]";
/// Afterwards.
const COUNTING: &str = "{prefix} {wide_bar} {pos}/{len} {msg} [{elapsed}{left}]";

/// Progress on standard error.
pub struct ProgressReport {
    bar: Option<ProgressBar>,
    pace: Arc<Mutex<Pace>>,
}

/// How fast steps follow each other.
#[derive(Default)]
struct Pace {
    /// Steps and time when the first of them had been done: what came before it is no measure of the others.
    first: Option<(u64, Instant)>,
}

impl Pace {
    fn advance(&mut self, position: u64, now: Instant) {
        if position > 0 && self.first.is_none() {
            self.first = Some((position, now));
        }
    }

    /// The time left, as soon as there is a step to go by.
    fn left(&self, position: u64, length: u64, now: Instant) -> Option<Duration> {
        let (first, since) = self.first?;
        let done = position.checked_sub(first).filter(|done| *done > 0)?;
        let each = now.saturating_duration_since(since).as_secs_f64() / done as f64;
        Duration::try_from_secs_f64(each * length.saturating_sub(position) as f64).ok()
    }
}

impl ProgressReport {
    /// Progress towards `steps` steps of what `label` says; 0 if nobody knows yet how many.
    pub fn new(label: &'static str, steps: u64) -> Self {
        let bar = stderr().is_terminal().then(ProgressDrawTarget::stderr);
        Self::on(bar, label, steps)
    }

    /// The same on a given terminal, if there is any.
    fn on(target: Option<ProgressDrawTarget>, label: &'static str, steps: u64) -> Self {
        let pace = Arc::<Mutex<Pace>>::default();
        let bar = target.map(|target| {
            let bar = ProgressBar::with_draw_target((steps > 0).then_some(steps), target);
            bar.set_style(style(steps, &pace));
            bar.set_prefix(label);
            bar.enable_steady_tick(TICK);
            bar
        });
        Self { bar, pace }
    }

    /// One step further.
    pub fn step(&self) {
        if let Some(bar) = &self.bar {
            self.advance(bar.position() + 1, bar.length().unwrap_or_default());
        }
    }

    /// So far, and how far it goes as known by now.
    pub fn advance(&self, position: u64, length: u64) {
        let Some(bar) = &self.bar else { return };
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).advance(position, Instant::now());
        if bar.length().is_none() && length > 0 {
            bar.set_style(style(length, &self.pace));
        }
        if length > 0 {
            bar.set_length(length);
        }
        bar.set_position(position);
    }

    /// Something worth a line: beside the bar, or as a JSON line.
    pub fn note(&self, text: String, record: &impl Serialize) {
        match (&self.bar, serde_json::to_string(record)) {
            (Some(bar), _) => bar.set_message(text),
            (None, Ok(line)) => say(line),
            (None, Err(_)) => say(text),
        }
    }

    /// Prints a line on the way without tearing the bar. Whoever does not take it is told of the end all the same.
    pub fn print(&self, line: &str) {
        let print = || drop(print(&format!("{line}\n")));
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(steps: u64, pace: &Arc<Mutex<Pace>>) -> ProgressStyle {
    let template = if steps > 0 { COUNTING } else { WAITING };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let pace = pace.clone();
    style.with_key("left", move |state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
        let pace = pace.lock().unwrap_or_else(PoisonError::into_inner);
        let left = pace.left(state.pos(), state.len().unwrap_or_default(), Instant::now());
        if let Some(left) = left {
            let _ = write!(out, ", {} left", indicatif::HumanDuration(left));
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
            if !text.trim().is_empty() {
                *self.0.lock().unwrap() = text.to_owned();
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
        let progress = ProgressReport::on(Some(target), "coalitions", 0);
        std::thread::sleep(Duration::from_millis(1700));
        let waiting = screen.drawn();
        assert!(!waiting.contains('\u{2588}') && !waiting.contains("0/0"), "{waiting}");
        assert!(waiting.contains("coalitions") && !waiting.contains("[0s"), "{waiting}");
        progress.advance(0, 96);
        std::thread::sleep(Duration::from_millis(700));
        let begun = screen.drawn();
        assert!(begun.contains("0/96") && !begun.contains('\u{2588}') && !begun.contains("left"), "{begun}");
        progress.advance(96, 96);
        std::thread::sleep(Duration::from_millis(700));
        assert!(screen.drawn().contains("96/96"), "{}", screen.drawn());
    }

    /// What comes before the first step, such as encrypting everything, is no measure of those after it.
    #[test]
    fn the_time_left_follows_from_steps_alone() {
        let (begun, mut pace) = (Instant::now(), Pace::default());
        let at = |seconds| begun + Duration::from_secs(seconds);
        pace.advance(0, at(0));
        assert_eq!(pace.left(0, 96, at(20)), None);
        pace.advance(1, at(21));
        assert_eq!(pace.left(1, 96, at(22)), None);
        pace.advance(6, at(31));
        assert_eq!(pace.left(6, 96, at(31)), Some(Duration::from_secs(180)));
    }
}
