//! Processor time of the calling thread: what measurements on a shared machine are made with.

use std::time::Duration;

/// Processor time that the calling thread has used.
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Seconds of one call: the least of several, each long enough to be measured.
pub fn fastest(mut work: impl FnMut()) -> f64 {
    const ENOUGH: Duration = Duration::from_millis(150);
    let (mut best, mut spent, mut runs) = (Duration::MAX, Duration::ZERO, 0);
    while runs < 3 || (spent < ENOUGH && runs < 200) {
        let start = thread_time();
        work();
        let taken = thread_time().saturating_sub(start);
        best = best.min(taken);
        spent += taken;
        runs += 1;
    }
    best.as_secs_f64()
}
