//! Processes: `principal`, `auxiliary` and `client`, from a kit to the values.

mod client;
mod ended;
mod evaluator;
mod follow;
mod principal;
mod progress;
mod server;
mod values;

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use secsv_evaluation::executor::HostedRole;
use secsv_protocol::PartyId;
use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind},
};

pub(crate) use client::own_input;
pub use client::{ClientOptions, bound_files, run_client, run_client_observed};
pub use follow::{
    ClientFollow, FollowOptions, LiveEvent, PrincipalFollow, follow_auxiliary, follow_client,
    follow_principal,
};
pub use principal::{PrincipalOptions, run_principal};
pub use progress::TestProgress;
pub use server::run_auxiliary;
pub use values::{PublishedValues, RunFacts};

use self::{follow::Followed, progress::Heartbeat};
use crate::{
    Error,
    kit::{Kit, SOON, date},
    party::Party,
    status::{self, ProcessPhase, StatusPages, StatusSource},
    transport::{self, Identity, Listening},
};

/// How long a party that has the values waits to be told that all is done.
const GOODBYE: Duration = Duration::from_secs(30);
/// How often a party that waits looks up.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// What every process is told.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Where it keeps what it must not forget.
    pub state: PathBuf,
    /// Where a server listens, if not at the address in the federation file.
    pub listen: Option<String>,
    /// Where the status pages are, if anywhere.
    pub status: Option<SocketAddr>,
}

/// The network of a process.
struct PartyNetwork {
    runtime: Runtime,
    stop: Arc<AtomicBool>,
    /// Takes connections as long as it is there.
    _listening: Option<Listening>,
    _pages: Option<StatusPages>,
    /// Whether the process goes on when this session has ended.
    is_followed: bool,
    begun: Instant,
    /// How long the principal may be away, where that is bounded.
    patience: Option<Duration>,
}

impl PartyNetwork {
    /// Listens and dials.
    fn start<R: HostedRole>(
        party: &Arc<Party<R>>,
        kit: &Arc<Kit>,
        options: &NodeOptions,
        dialled: &[PartyId],
        followed: Option<&Followed>,
    ) -> Result<Self, Error> {
        let identity = Arc::new(Identity::new(kit.clone())?);
        let failed = |source| Error::System { what: "the network's threads", source };
        warn_of_certificate(kit);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("network")
            .enable_all()
            .build()
            .map_err(failed)?;
        let stop = followed.map_or_else(Arc::default, |followed| followed.live.stop());
        let listening = listen_address(kit, options.listen.as_deref())
            .map(|address| runtime.block_on(transport::listen(party.clone(), identity.clone(), &address)))
            .transpose()?;
        for &server in dialled {
            runtime.spawn(transport::dial(party.clone(), identity.clone(), server));
        }
        let pages = match followed {
            Some(followed) => {
                followed.live.show(party.board());
                None
            }
            None => {
                hear_signals(&runtime, &stop);
                serve_pages(&runtime, options.status, party.board().clone())?
            }
        };
        // Otherwise the principal says which round is on.
        let is_last = kit.round().is_some_and(|round| round.last);
        let patience = followed.filter(|_| is_last).map(|followed| followed.late);
        let (is_followed, begun) = (followed.is_some(), Instant::now());
        Ok(Self { runtime, stop, _listening: listening, _pages: pages, is_followed, begun, patience })
    }

    /// Gives up a principal that stays away from the last round.
    fn check_principal<R: HostedRole>(&self, party: &Party<R>) -> Result<(), Error> {
        let principal = party.peers().get(&PartyId::Principal);
        let (Some(patience), Some(principal)) = (self.patience, principal) else { return Ok(()) };
        let link = principal.link_state();
        match link.connected.is_none() && link.last_seen.unwrap_or(self.begun).elapsed() > patience {
            true => Err(Error::Late { awaited: principal.name.clone(), seconds: patience.as_secs() }),
            false => Ok(()),
        }
    }

    fn check(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Closes connections.
    fn end(self) {
        self.runtime.shutdown_timeout(Duration::from_millis(500));
    }
}

/// From here on a signal is heard, however long it takes until the network's thread looks.
fn hear_signals(runtime: &Runtime, stop: &Arc<AtomicBool>) {
    let signals = {
        let _inside = runtime.enter();
        [SignalKind::terminate(), SignalKind::interrupt()].map(tokio::signal::unix::signal)
    };
    runtime.spawn(stop_on_signal(signals, stop.clone()));
}

/// The status pages, if they are wanted.
fn serve_pages<S: StatusSource>(
    runtime: &Runtime,
    address: Option<SocketAddr>,
    source: Arc<S>,
) -> Result<Option<StatusPages>, Error> {
    let failed = |source| Error::System { what: "the status pages", source };
    let Some(address) = address else { return Ok(None) };
    let pages = runtime.block_on(status::serve(address, source)).map_err(failed)?;
    tracing::info!(address = %pages.address, "status pages");
    Ok(Some(pages))
}

/// A certificate that ends soon is worth a word at every start.
fn warn_of_certificate(kit: &Kit) {
    let left = kit.validity.until.duration_since(SystemTime::now()).unwrap_or_default();
    if left < SOON {
        let until = date(kit.validity.until);
        tracing::warn!(until, "the certificate ends soon: have it renewed (secsv renew)");
    }
}

async fn stop_on_signal(signals: [std::io::Result<Signal>; 2], stop: Arc<AtomicBool>) {
    let [Ok(mut terminate), Ok(mut interrupt)] = signals else { return };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("told to stop");
    stop.store(true, Ordering::Relaxed);
}

/// Where a server listens: where it was told to, or at the address in the federation file.
pub(crate) fn listen_address(kit: &Kit, told: Option<&str>) -> Option<String> {
    told.map(str::to_owned).or_else(|| kit.address(kit.own).map(ToString::to_string))
}

/// Refuses a kit whose rounds are still to come.
fn check_rounds(kit: &Kit) -> Result<(), Error> {
    match kit.federation.federation.comes_later() {
        true => Err(Error::data("kit", "one with rounds, or --follow", "one whose rounds come later")),
        false => Ok(()),
    }
}

/// Waits for the values, and then until nobody needs this party any more.
fn await_values<R: HostedRole>(
    party: &Party<R>,
    network: &PartyNetwork,
    heartbeat: &mut Heartbeat<'_>,
    values: impl Fn(&R) -> Option<Vec<u8>>,
) -> Result<Vec<u8>, Error> {
    party.board().phase(ProcessPhase::Running);
    let values = loop {
        network.check()?;
        network.check_principal(party)?;
        heartbeat.beat(party);
        if let Some(values) = party.wait_for(POLL_INTERVAL, &values)? {
            break values;
        }
    };
    // A short run is over before anybody has looked.
    heartbeat.beat(party);
    party.set_over();
    let most = GOODBYE.as_secs();
    tracing::info!("the values have come; waiting at most {most} s for the principal's farewell");
    let since = Instant::now();
    // Whoever is told to stop now has the values all the same.
    while !party.has_goodbye() && since.elapsed() < GOODBYE && network.check().is_ok() {
        // The principal may be in another round already.
        if party.wait_for(Duration::from_millis(20), |_| None::<()>).is_err() {
            break;
        }
    }
    Ok(values)
}

/// Ends a party that has done its part, or was stopped.
fn finish<R: HostedRole, T>(
    party: &Party<R>,
    network: PartyNetwork,
    outcome: Result<T, Error>,
) -> Result<T, Error> {
    party.board().phase(match outcome {
        Ok(_) | Err(Error::Stopped) => ProcessPhase::Finished,
        Err(_) => ProcessPhase::Failed,
    });
    if outcome.is_ok() {
        party.audit().end()?;
    }
    if network.is_followed || matches!(outcome, Ok(_) | Err(Error::Stopped)) {
        party.stop();
        party.audit().sync()?;
    }
    network.end();
    outcome
}
