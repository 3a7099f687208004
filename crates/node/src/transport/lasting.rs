//! Refusals that dialling again does not mend: they end the process with their reason, instead of filling logs for ever.
//!
//! What this party alone has wrong ends it soon. What either side may have wrong, or somebody on the way, may be mended
//! elsewhere while this party dials on: it ends after ten minutes of nothing else.

use std::time::{Duration, Instant};

use super::StreamError;

/// Refusals in a row until a reason that lies with this party is believed.
const BELIEVED: u32 = 3;
/// How long a reason that may lie elsewhere must last.
const PATIENCE: Duration = Duration::from_secs(600);

/// A peer's name goes before it.
pub(super) const OTHER_DIRECTORY: &str =
    "takes part with another state directory: a second process, or a directory that was lost";
pub(super) const LOST_HERE: &str = "this state directory is not the one that the run began with";
pub(crate) const OTHER_FILES: &str = "the federation files differ: the kits are of two sets";
pub(super) const VERSIONS: &str = "version: expected";
/// As rustls words it.
const CERTIFICATE: &str = "invalid peer certificate";

/// With whom a lasting reason lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Ours,
    Anybodys,
}

/// The fault behind an error, if it is one that lasts.
fn fault(error: &StreamError) -> Option<Fault> {
    match error {
        StreamError::ByPeer(reason) if reason.contains(OTHER_DIRECTORY) => Some(Fault::Ours),
        StreamError::Refused(reason) if reason.starts_with(LOST_HERE) => Some(Fault::Ours),
        StreamError::ByPeer(reason) | StreamError::Refused(reason)
            if reason.contains(OTHER_FILES) || reason.contains(VERSIONS) =>
        {
            Some(Fault::Anybodys)
        }
        StreamError::Lost(error) if error.to_string().contains(CERTIFICATE) => Some(Fault::Anybodys),
        _ => None,
    }
}

/// What has been refused in a row.
#[derive(Default)]
pub(super) struct Refusals {
    ours: u32,
    since: Option<Instant>,
}

impl Refusals {
    /// Takes the end of a stream; the reason, once nothing else is to be expected.
    pub(super) fn take(&mut self, ended: Result<&(), &StreamError>, now: Instant) -> Option<String> {
        let Some((error, fault)) = ended.err().and_then(|error| Some((error, fault(error)?))) else {
            // Nobody there, or a stream that was cut: nothing is known of the reason, and nothing speaks against it.
            if ended.is_ok()
                || matches!(
                    ended,
                    Err(StreamError::Silent | StreamError::OtherRound(_) | StreamError::RoundDiffers(_))
                )
            {
                *self = Self::default();
            }
            return None;
        };
        let since = *self.since.get_or_insert(now);
        if fault == Fault::Ours {
            self.ours += 1;
        }
        let is_over = self.ours >= BELIEVED || now.saturating_duration_since(since) >= PATIENCE;
        is_over.then(|| format!("{error}{}", advice(error)))
    }
}

/// What to do about it.
fn advice(error: &StreamError) -> &'static str {
    match error {
        StreamError::Lost(_) => {
            ". See that both sides have kits of the same provisioning, and that nothing between them opens TLS"
        }
        StreamError::ByPeer(reason) | StreamError::Refused(reason) if reason.contains(VERSIONS) => {
            ". All parties of a run need builds of one version"
        }
        StreamError::ByPeer(reason) | StreamError::Refused(reason) if reason.contains(OTHER_FILES) => {
            ". Take the kit that was provisioned last"
        }
        _ => {
            ". Start with the state directory that the run began with; if it is lost, provision anew (docs/RUNBOOK.md)"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn by_peer(reason: &str) -> StreamError {
        StreamError::ByPeer(format!("north {reason}"))
    }

    #[test]
    fn what_lies_here_is_believed_soon_and_what_may_lie_elsewhere_late() {
        let (begun, mut refusals) = (Instant::now(), Refusals::default());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(refusals.take(Err(&by_peer(OTHER_DIRECTORY)), at(0)), None);
        assert_eq!(refusals.take(Err(&by_peer(OTHER_DIRECTORY)), at(1)), None);
        let told = refusals.take(Err(&by_peer(OTHER_DIRECTORY)), at(2)).unwrap();
        assert!(told.contains("another state directory") && told.contains("docs/RUNBOOK.md"), "{told}");

        for error in [
            StreamError::Refused(OTHER_FILES.to_owned()),
            StreamError::ByPeer(format!("{VERSIONS} 3, found 2")),
            StreamError::Lost(io::Error::other(format!("{CERTIFICATE}: BadSignature"))),
        ] {
            let mut refusals = Refusals::default();
            assert_eq!(refusals.take(Err(&error), at(0)), None);
            assert_eq!(refusals.take(Err(&error), at(599)), None);
            assert!(refusals.take(Err(&error), at(600)).is_some(), "{error}");
        }
    }

    #[test]
    fn servers_that_are_away_are_dialled_for_ever() {
        let (begun, mut refusals) = (Instant::now(), Refusals::default());
        let refused = StreamError::Lost(io::ErrorKind::ConnectionRefused.into());
        for hour in 0..100 {
            assert_eq!(refusals.take(Err(&refused), begun + Duration::from_secs(3600 * hour)), None);
        }
        let files = StreamError::Refused(OTHER_FILES.to_owned());
        assert_eq!(refusals.take(Err(&files), begun), None);
        assert_eq!(refusals.take(Ok(&()), begun), None, "mended meanwhile");
        assert_eq!(refusals.take(Err(&files), begun + Duration::from_secs(700)), None);
    }
}
