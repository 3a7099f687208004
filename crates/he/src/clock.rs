//! Processor time of the calling thread: what measurements on a shared machine are made with.

use std::time::Duration;

/// Processor time that the calling thread has used.
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Which of several calls counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The fastest: what code can do, whatever else the machine does.
    Fastest,
    /// The median, of calls that find nothing in the processor's own caches: what it takes among other work.
    Typical,
}

impl Clock {
    /// Seconds of one call.
    pub fn time(self, mut work: impl FnMut()) -> f64 {
        const ENOUGH: Duration = Duration::from_millis(150);
        let mut others = vec![0u64; if self == Self::Typical { SWEPT / 8 } else { 0 }];
        let (mut taken, mut spent) = (Vec::new(), Duration::ZERO);
        while taken.len() < 3 || (spent < ENOUGH && taken.len() < 200) {
            others.iter_mut().for_each(|word| *word = std::hint::black_box(*word) + 1);
            let start = thread_time();
            work();
            taken.push(thread_time().saturating_sub(start));
            spent += taken[taken.len() - 1];
        }
        taken.sort_unstable();
        taken[if self == Self::Typical { taken.len() / 2 } else { 0 }].as_secs_f64()
    }
}

/// Bytes that push everything else out of a core's own caches.
const SWEPT: usize = 4 << 20;

/// Seconds of one call: the least of several.
pub fn fastest(work: impl FnMut()) -> f64 {
    Clock::Fastest.time(work)
}
