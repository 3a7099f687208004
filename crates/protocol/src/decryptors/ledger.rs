//! What was sent to whom, and what it amounts to.

use std::collections::BTreeMap;

use secsv_federation::{Coalition, RoundId};

use super::PlanError;
use super::span::{Span, indicator};

/// The columns of a sample that a layer-1 reply is about. The rules hold for each column on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The first step of a sequence; a sample that is no sequence is all first step.
    FirstStep,
    /// The further steps of a sequence.
    LaterSteps,
}

/// A layer-1 reply: one coalition's outputs for the samples of one owner group, decrypted by one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The round of the models.
    pub round: RoundId,
    /// Everyone whose model the round has.
    pub participants: Coalition,
    /// The owner group, by position.
    pub group: usize,
    /// The columns.
    pub part: Part,
    /// Who decrypts.
    pub client: usize,
    /// Whose model.
    pub coalition: Coalition,
}

/// What a client can put together from its replies and the models it knows: the outputs of a model it has for
/// samples that are not its own. Every round gives one linear equation per output, in the sample's features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The client.
    pub client: usize,
    /// The owner group whose samples they are.
    pub group: usize,
    /// The columns.
    pub part: Part,
    /// In how many rounds.
    pub rounds: usize,
}

impl Exposure {
    /// Linear equations in each column of a sample, with `outputs` first-layer outputs.
    pub fn equations(&self, outputs: usize) -> usize {
        self.rounds * outputs
    }
}

/// Every layer-1 reply that was planned, so sent or about to be. Never shorter than what was sent.
///
/// Scaling each coordinate by a client's (non-zero) weight turns the weight vector of a coalition into its
/// indicator and keeps all spans, so the ledger computes with indicators and needs no weights.
#[derive(Clone, Debug)]
pub struct Ledger {
    clients: usize,
    replies: u64,
    /// For how many rounds replies of a round count; for one where nothing is said.
    rounds: BTreeMap<RoundId, usize>,
    pages: BTreeMap<(RoundId, usize, Part, usize), Page>,
}

/// What one client got of one round, group and part.
#[derive(Clone, Debug, Default)]
struct Page {
    participants: Coalition,
    span: Span,
    /// The coalitions that made the span larger.
    coalitions: Vec<Coalition>,
    exposed: bool,
}

impl Ledger {
    /// Of a federation with so many clients.
    pub fn new(clients: usize) -> Self {
        Self { clients, replies: 0, rounds: BTreeMap::new(), pages: BTreeMap::new() }
    }

    /// Has replies of a round count for so many rounds: what is sent of one is sent of all of them.
    pub(super) fn count_for(&mut self, round: RoundId, rounds: usize) {
        self.rounds.insert(round, rounds);
    }

    /// How many replies it holds.
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// Records a reply, unless with it the client could compute the first-layer outputs of its own model.
    pub fn record(&mut self, reply: Reply) -> Result<(), PlanError> {
        if let Some(page) = self.enlarged(reply) {
            if page.span.contains(indicator(Coalition::EMPTY.with(reply.client), self.clients)) {
                let Reply { round, group, client, .. } = reply;
                return Err(PlanError::Span { round, group, client });
            }
            self.pages.insert(key(reply), page);
        }
        self.replies += 1;
        Ok(())
    }

    /// Whether the reply would let the client put together the outputs of a model it knows, where it cannot yet.
    pub(super) fn would_expose(&self, reply: Reply) -> bool {
        let exposed = self.pages.get(&key(reply)).is_some_and(|page| page.exposed);
        !exposed && self.enlarged(reply).is_some_and(|page| page.exposed)
    }

    /// Whether the reply would tell the client something that does not follow from those it has.
    pub(super) fn adds(&self, reply: Reply) -> bool {
        let page = self.pages.get(&key(reply));
        page.is_none_or(|page| !page.span.contains(indicator(reply.coalition, self.clients)))
    }

    /// Verifies every page again from the coalitions alone.
    pub fn check(&self) -> Result<(), PlanError> {
        for (&(round, group, _, client), page) in &self.pages {
            let mut span = Span::default();
            for &coalition in &page.coalitions {
                span.add(indicator(coalition, self.clients));
            }
            if span.rank() != page.span.rank()
                || span.contains(indicator(Coalition::EMPTY.with(client), self.clients))
            {
                return Err(PlanError::Span { round, group, client });
            }
        }
        Ok(())
    }

    /// Who can put together outputs of known models, on whose samples, in how many rounds.
    pub fn exposures(&self) -> Vec<Exposure> {
        let mut rounds: BTreeMap<_, usize> = BTreeMap::new();
        for (&(round, group, part, client), page) in &self.pages {
            if page.exposed {
                *rounds.entry((client, group, part)).or_default() +=
                    self.rounds.get(&round).copied().unwrap_or(1);
            }
        }
        let named = |((client, group, part), rounds)| Exposure { client, group, part, rounds };
        rounds.into_iter().map(named).collect()
    }

    /// The page as it would be with this reply on it, unless the reply adds nothing to the span.
    fn enlarged(&self, reply: Reply) -> Option<Page> {
        let added = indicator(reply.coalition, self.clients);
        let page = self.pages.get(&key(reply));
        if page.is_some_and(|page| page.span.contains(added.clone())) {
            return None;
        }
        let mut page = page.cloned().unwrap_or_default();
        page.span.add(added);
        page.coalitions.push(reply.coalition);
        page.participants = page.participants.union(reply.participants);
        page.exposed = self.meets_known(&page, reply.client);
        Some(page)
    }

    /// Whether the span holds a mixture of the client's own model and the grand one. Its own alone is excluded,
    /// so at most one such mixture exists. Nobody ever gets an absent client's coordinate: there it is the
    /// grand model alone.
    fn meets_known(&self, page: &Page, client: usize) -> bool {
        let mut beside = page.span.clone();
        let own = beside.add(indicator(Coalition::EMPTY.with(client), self.clients));
        !own || beside.contains(indicator(page.participants, self.clients))
    }
}

fn key(reply: Reply) -> (RoundId, usize, Part, usize) {
    (reply.round, reply.group, reply.part, reply.client)
}
