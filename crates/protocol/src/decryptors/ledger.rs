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
pub struct PlannedReply {
    /// The round of the models.
    pub round: RoundId,
    /// The owner group, by position.
    pub group: usize,
    /// The columns.
    pub part: Part,
    /// Who decrypts.
    pub client: usize,
    /// Whose model.
    pub coalition: Coalition,
}

/// Every layer-1 reply that was planned, so sent or about to be. Never shorter than what was sent.
///
/// Scaling each coordinate by a client's (non-zero) weight turns the weight vector of a coalition into its
/// indicator and keeps all spans, so the ledger computes with indicators and needs no weights.
#[derive(Clone, Debug)]
pub struct Ledger {
    clients: usize,
    replies: u64,
    pages: BTreeMap<(RoundId, usize, Part, usize), Page>,
}

/// What one client got of one round, group and part.
#[derive(Clone, Debug, Default)]
struct Page {
    span: Span,
    /// The coalitions that made the span larger.
    coalitions: Vec<Coalition>,
}

impl Ledger {
    /// Of a federation with so many clients.
    pub fn new(clients: usize) -> Self {
        Self { clients, replies: 0, pages: BTreeMap::new() }
    }

    /// How many replies it holds.
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// Records a reply, unless with it the client could compute the first-layer outputs of its own model.
    pub fn record(&mut self, reply: PlannedReply) -> Result<(), PlanError> {
        if let Some(page) = self.enlarged(reply) {
            if page.span.contains(indicator(Coalition::EMPTY.with(reply.client), self.clients)) {
                let PlannedReply { round, group, client, .. } = reply;
                return Err(PlanError::Span { round, group, client });
            }
            self.pages.insert(key(reply), page);
        }
        self.replies += 1;
        Ok(())
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

    /// The page as it would be with this reply on it, unless the reply adds nothing to the span.
    fn enlarged(&self, reply: PlannedReply) -> Option<Page> {
        let added = indicator(reply.coalition, self.clients);
        let page = self.pages.get(&key(reply));
        if page.is_some_and(|page| page.span.contains(added.clone())) {
            return None;
        }
        let mut page = page.cloned().unwrap_or_default();
        page.span.add(added);
        page.coalitions.push(reply.coalition);
        Some(page)
    }
}

fn key(reply: PlannedReply) -> (RoundId, usize, Part, usize) {
    (reply.round, reply.group, reply.part, reply.client)
}
