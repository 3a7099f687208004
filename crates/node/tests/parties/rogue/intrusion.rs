//! Messages that nobody waits for: of every kind, to each server, before the session, among tests, and after everything has ended. Most
//! are not a client's to send at all. Those are what servers say to each other or to clients, sent back to them.

use std::{collections::BTreeMap, time::Duration};

use secsv_evaluation::packet::Packet;
use secsv_node::kit::Kit;
use secsv_protocol::{PartyId, decryptors::Protocol, message::Kind};
use tokio::time::timeout;

use super::{Line, PATIENCE, Rogue};
use crate::attacker::message;

/// How long a message that nobody looks at yet is left with its receiver.
const GLANCE: Duration = Duration::from_millis(5);

/// What is heard when a stream ends for another reason than the message.
const LOST: [&str; 3] =
    ["lost: ", "the stream ended without a word", "another stream of this party took over"];

/// What the run has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    BeforeSession,
    Testing,
    /// Every test and every round has ended, and the values are there.
    AfterValues,
}

/// What became of messages.
#[derive(Debug, Default)]
pub struct Tally {
    pub refused: Vec<String>,
    /// About something that is over or not known yet: taken, without effect.
    pub taken: usize,
    /// Not looked at before the session, which tells how long they may be.
    pub waited: usize,
    /// To a server that has said farewell.
    pub gone: usize,
}

enum Answer {
    Refused(String),
    Taken,
    Waits,
    Gone,
    /// The stream is lost without a word about the message: an earlier one, which it had left, was noticed later than this one and ended
    /// it, or the connection was closed before the reason was heard.
    Lost,
}

/// What is sent: the kind as it was sent or heard before, or as it might be.
struct Forgery<'a> {
    state: State,
    own: &'a BTreeMap<Kind, Vec<u8>>,
    heard: &'a BTreeMap<Kind, Vec<u8>>,
}

impl Forgery<'_> {
    /// About the first round, the first test, or a unit that it knows of.
    fn plausible(&self, kind: Kind) -> Vec<u8> {
        let units = [
            Kind::LabelShare,
            Kind::PredictionShare,
            Kind::ActivationShare,
            Kind::EncryptedLabels,
            Kind::EncryptedPredictions,
            Kind::EncryptedActivations,
        ];
        let unit = units.iter().find_map(|kind| self.own.get(kind)).and_then(|content| content.get(..20));
        let head = match kind {
            Kind::TestFinished => return vec![0; 8],
            Kind::RoundStart | Kind::RoundFinished => return vec![1, 0, 0, 0],
            Kind::FirstLayerHalf | Kind::DealtProduct | Kind::MaskedFirstLayer => &[1, 0, 0, 0],
            _ => unit.unwrap_or(&[]),
        };
        [head, &[0; 41]].concat()
    }

    fn content(&self, kind: Kind, time: usize) -> Vec<u8> {
        // What is its own to send, and was not sent yet, must not be what it should be.
        let noise = || (0..[7, 33, 61][time % 3]).map(|i| (i * 89 + time * 57 + 201) as u8).collect();
        let known = self.own.get(&kind).or_else(|| self.heard.get(&kind)).cloned();
        let is_of_test = self.state != State::AfterValues && IN_TESTS.contains(&kind);
        let mut bytes = if is_of_test { noise() } else { known.unwrap_or_else(|| self.plausible(kind)) };
        match time % 5 {
            0 => {}
            1 => bytes.truncate(time.wrapping_mul(0x9e37_79b9) % bytes.len().max(1)),
            2 => bytes.extend(vec![0; time]),
            3 => bytes = noise(),
            _ => bytes.clear(),
        }
        bytes
    }
}

/// Kinds that clients send about rounds and tests.
const IN_TESTS: [Kind; 16] = [
    Kind::Model,
    Kind::ModelShare,
    Kind::DataShare,
    Kind::EncryptedData,
    Kind::OwnResult,
    Kind::OwnResultCounts,
    Kind::OwnCount,
    Kind::ActivationShare,
    Kind::EncryptedActivations,
    Kind::LabelShare,
    Kind::EncryptedLabels,
    Kind::PredictionShare,
    Kind::EncryptedPredictions,
    Kind::Triple,
    Kind::Count,
    Kind::DealtProduct,
];

impl Line {
    /// Sends something, and hears what becomes of it.
    async fn provoke(&mut self, kit: &Kit, kind: Kind, bytes: Vec<u8>, is_read: bool) -> Answer {
        let begun = std::time::Instant::now();
        while !self.connect(kit).await {
            if !self.sent.is_empty() && begun.elapsed() > Duration::from_secs(2) {
                return Answer::Gone;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let Some(mut stream) = self.stream.take() else { return Answer::Gone };
        let number = self.sent.len() as u64;
        for body in message(number, kind, &bytes) {
            stream.say(body).await;
        }
        let answer = async {
            loop {
                match stream.hear().await {
                    Err(reason) if LOST.iter().any(|lost| reason.contains(lost)) => break Answer::Lost,
                    Err(reason) => break Answer::Refused(reason),
                    Ok((Packet::Acknowledged(taken), _)) if taken > number => break Answer::Taken,
                    // What it is sent meanwhile comes again on the next stream.
                    Ok(_) => {}
                }
            }
        };
        let answer = timeout(if is_read { PATIENCE } else { GLANCE }, answer).await;
        match answer {
            Ok(Answer::Lost) | Err(_) if answer.is_ok() || !is_read => {
                self.doubtful = Some((kind, bytes));
                answer.unwrap_or(Answer::Waits)
            }
            Ok(Answer::Taken) => {
                self.sent.push((kind, bytes));
                Answer::Taken
            }
            Ok(answer) => answer,
            Err(_) => panic!("{kind} to {}: neither taken nor refused", self.server),
        }
    }

    /// Sends every kind so many times.
    async fn intrude(
        &mut self,
        kit: &Kit,
        (state, protocol): (State, Protocol),
        heard: &BTreeMap<Kind, Vec<u8>>,
        times: usize,
    ) -> BTreeMap<(State, PartyId, Kind), Tally> {
        let own = self.honest.iter().map(|(kind, (_, content))| (*kind, content.clone())).collect();
        let forgery = Forgery { state, own: &own, heard };
        let mut tallies = BTreeMap::new();
        for time in 0..times {
            for kind in Kind::ALL {
                let is_auxiliary = self.server == PartyId::Auxiliary;
                let has_session =
                    state != State::BeforeSession && !(is_auxiliary && protocol == Protocol::Hesv);
                let is_read = !is_auxiliary || has_session || kind == Kind::ClientHello;
                // So that each kind is sent in other ways than the one before.
                let bytes = forgery.content(kind, time + kind as usize);
                let tally: &mut Tally = tallies.entry((state, self.server, kind)).or_default();
                let mut answer = Answer::Lost;
                while matches!(answer, Answer::Lost) {
                    answer = self.provoke(kit, kind, bytes.clone(), is_read).await;
                }
                match answer {
                    Answer::Lost => {}
                    Answer::Refused(reason) => tally.refused.push(reason),
                    Answer::Taken => tally.taken += 1,
                    Answer::Waits => tally.waited += 1,
                    Answer::Gone => tally.gone += 1,
                }
                if tally.gone > 0 {
                    self.is_over = true;
                    return tallies;
                }
            }
        }
        tallies
    }
}

impl Rogue<'_> {
    /// Sends every kind to both servers, once in each state; whether it did.
    pub(super) async fn intrude(&mut self, state: State) -> bool {
        let is_known = self.intruded.keys().any(|(known, ..)| *known == state);
        let [principal, auxiliary] = &mut self.lines[..] else { return false };
        if is_known || self.intrusions == 0 {
            return false;
        }
        let (kit, what, times) = (&self.kit, (state, self.protocol), self.intrusions);
        let (first, second) = tokio::join!(
            principal.intrude(kit, what, &self.heard, times),
            auxiliary.intrude(kit, what, &self.heard, times)
        );
        self.intruded.extend(first);
        self.intruded.extend(second);
        true
    }
}
