//! How far a run is, as parties can tell that ask for no tests themselves.

use std::time::{Duration, Instant};

use secsv_evaluation::{executor::HostedRole, planned_requests};

use crate::party::Party;

/// How often a party that waits says what for.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(60);

/// Tests that are through, as far as a party has heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestProgress {
    /// So many are.
    pub finished: usize,
    /// Of so many, where that is known before.
    pub planned: Option<usize>,
}

/// Says from time to time how far it is and what a party waits for, so that its operator sees that work goes on.
pub(super) struct Heartbeat<'a> {
    said: Instant,
    /// What was told last, once there is a session.
    told: Option<TestProgress>,
    observe: &'a mut dyn FnMut(TestProgress),
}

impl<'a> Heartbeat<'a> {
    /// `observe` is told of every step.
    pub fn new(observe: &'a mut dyn FnMut(TestProgress)) -> Self {
        Self { said: Instant::now(), told: None, observe }
    }

    /// Looks at the party, and says what there is to say.
    pub fn beat<R: HostedRole>(&mut self, party: &Party<R>) {
        self.look(party);
        if self.said.elapsed() < HEARTBEAT_INTERVAL {
            return;
        }
        self.said = Instant::now();
        let awaiting = party.named(&party.look(R::awaiting));
        let (mut sent, mut received) = (0, 0);
        let mut away = Vec::new();
        for peer in party.board().status().peers {
            (sent, received) = (sent + peer.sent_frames, received + peer.received_frames);
            if peer.connected_since.is_none() {
                away.push(peer.name);
            }
        }
        let away = away.join(", ");
        let TestProgress { finished, planned } = self.told.unwrap_or_default();
        tracing::info!(awaiting, finished, planned, sent, received, away, "at work");
    }

    fn look<R: HostedRole>(&mut self, party: &Party<R>) {
        let planned = match self.told {
            Some(told) => told.planned,
            None => {
                let Some(session) = party.look(|role| role.session().cloned()) else { return };
                party.evaluation().and_then(|settings| planned_requests(&session, &settings))
            }
        };
        let now = TestProgress { finished: party.tests_finished(), planned };
        if self.told != Some(now) {
            self.told = Some(now);
            party.board().tests(now);
            tracing::info!(finished = now.finished, planned = now.planned, "tests are through");
            (self.observe)(now);
        }
    }
}
