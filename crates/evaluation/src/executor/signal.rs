//! How threads that wait hear of work, and others of changes.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Tells threads of work and others of changes. Executors that share threads share one.
#[derive(Default)]
pub struct Signal {
    state: Mutex<SignalState>,
    /// There is work.
    work: Condvar,
    /// Something has changed, for those who watch.
    changed: Condvar,
    /// Nothing is left to do, or somebody has called, for whoever has all of it done.
    called: Condvar,
}

#[derive(Default)]
struct SignalState {
    /// Changes so far.
    epoch: u64,
    /// Tasks that wait or are under way.
    pending: usize,
    /// Threads without work.
    idle: usize,
    /// Those who wait for a change.
    watchers: usize,
    /// Calls so far.
    calls: u64,
}

impl Signal {
    fn lock(&self) -> MutexGuard<'_, SignalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `count` tasks are about to be added. They count before a thread can see them: one that ends before it counts would leave
    /// nothing pending while others wait.
    pub(super) fn expect(&self, count: usize) {
        self.lock().pending += count;
    }

    /// Tasks that were expected are there: wakes `wake` threads, if as many are without work.
    pub(super) fn added(&self, wake: usize) {
        self.change(self.lock(), wake);
    }

    /// A task has ended; those that follow from it are there.
    pub(super) fn finished(&self, wake: usize) {
        let mut state = self.lock();
        state.pending = state.pending.saturating_sub(1);
        if state.pending == 0 {
            state.calls += 1;
            self.called.notify_all();
        }
        self.change(state, wake);
    }

    fn change(&self, mut state: MutexGuard<'_, SignalState>, wake: usize) {
        state.epoch += 1;
        let (wake, has_watchers) = (wake.min(state.idle), state.watchers > 0);
        drop(state);
        (0..wake).for_each(|_| self.work.notify_one());
        if has_watchers {
            self.changed.notify_all();
        }
    }

    /// Wakes everybody.
    pub fn wake_all(&self) {
        let mut state = self.lock();
        (state.epoch, state.calls) = (state.epoch + 1, state.calls + 1);
        drop(state);
        self.work.notify_all();
        self.changed.notify_all();
        self.called.notify_all();
    }

    /// Calls whoever has the work done.
    pub fn call(&self) {
        self.lock().calls += 1;
        self.called.notify_all();
    }

    /// Calls so far, and whether no task waits or is under way.
    pub fn calls(&self) -> (u64, bool) {
        let state = self.lock();
        (state.calls, state.pending == 0)
    }

    /// Waits for another call.
    pub fn wait_for_call(&self, calls: u64) {
        let mut state = self.lock();
        while state.calls == calls {
            state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Changes so far: whoever finds nothing to do afterwards waits for another one.
    pub fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// Waits for work, unless something has changed since.
    pub fn wait_for_work(&self, epoch: u64) {
        let mut state = self.lock();
        if state.epoch == epoch {
            state.idle += 1;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// The same as [`epoch`](Self::epoch), for whoever looks: changes are told until it has seen enough.
    pub fn watch(&self) -> u64 {
        let mut state = self.lock();
        state.watchers += 1;
        state.epoch
    }

    /// Ends [`watch`](Self::watch).
    pub fn unwatch(&self) {
        self.lock().watchers -= 1;
    }

    /// Waits for a change since [`watch`](Self::watch), which it ends.
    pub fn wait_for_change(&self, epoch: u64, time: Duration) {
        let mut state = self.lock();
        if state.epoch == epoch {
            let woken = self.changed.wait_timeout(state, time);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.watchers -= 1;
    }
}
