//! Work on threads of its own, with the interpreter released and signals heard.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use pyo3::{exceptions::PyRuntimeError, prelude::*};

use crate::errors::raised;

/// How often signals and progress are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How long work that was told to stop is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Progress: round, coalitions tested, coalitions asked for.
pub type Told = (u32, usize, usize);

/// The latest progress of work.
#[derive(Clone, Default)]
pub struct Progress(Arc<Mutex<Option<Told>>>);

impl Progress {
    /// Says how far it is.
    pub fn tell(&self, told: Told) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
    }

    /// What was said last and has not been heard.
    fn hear(&self) -> Option<Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The process that began to compute: threads do not survive a fork.
static PROCESS: OnceLock<u32> = OnceLock::new();

/// Runs `work` on a thread of its own. The caller's thread tells `observe` of progress and looks for signals meanwhile; an exception
/// there stops the work.
pub fn in_background<T: Send + 'static>(
    py: Python<'_>,
    observe: impl Fn(Python<'_>, Told) -> PyResult<()>,
    work: impl FnOnce(&Progress, &AtomicBool) -> anyhow::Result<T> + Send + 'static,
) -> PyResult<T> {
    if *PROCESS.get_or_init(process::id) != process::id() {
        return Err(PyRuntimeError::new_err(
            "expected a process of its own or one that was forked before secsv computed anything, found one forked afterwards: \
             its threads are gone (multiprocessing: use the start method \"spawn\" or \"forkserver\")",
        ));
    }
    let (progress, stop) = (Progress::default(), Arc::new(AtomicBool::new(false)));
    let (told, stopped) = (progress.clone(), stop.clone());
    let (sender, receiver) = channel();
    let begun = thread::Builder::new().name("secsv".to_owned()).spawn(move || {
        let done = catch_unwind(AssertUnwindSafe(|| with_threads(|| work(&told, &stopped))));
        // Nobody waits any more if it took too long to stop.
        let _ = sender.send(done);
    });
    begun.map_err(|error| raised(py, &error.into()))?;
    let receiver = Mutex::new(receiver);
    loop {
        let waited = py.detach(|| wait(&receiver, TICK));
        let heard = match progress.hear() {
            Some(told) => observe(py, told),
            None => Ok(()),
        };
        if let Err(raised) = heard.and_then(|()| py.check_signals()) {
            stop.store(true, Ordering::Relaxed);
            py.detach(|| wait_for_end(&receiver));
            return Err(raised);
        }
        match waited {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Ok(done)) => return done.map_err(|error| raised(py, &error)),
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err(
                    "secsv: a defect of this program; the message is on standard error",
                ));
            }
        }
    }
}

type Done<T> = thread::Result<anyhow::Result<T>>;

fn wait<T>(receiver: &Mutex<Receiver<Done<T>>>, time: Duration) -> Result<Done<T>, RecvTimeoutError> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(time)
}

fn wait_for_end<T>(receiver: &Mutex<Receiver<Done<T>>>) {
    let begun = Instant::now();
    let _ = wait(receiver, PATIENCE.saturating_sub(begun.elapsed()));
}

/// Runs work on threads that end with it: none are left in a process that forks later.
fn with_threads<T: Send>(work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    let pool = rayon::ThreadPoolBuilder::new().thread_name(|place| format!("secsv-{place}")).build()?;
    pool.install(work)
}
