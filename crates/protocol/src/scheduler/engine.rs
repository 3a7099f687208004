//! What a protocol does at the principal, under the scheduler that all protocols share.

use std::sync::Arc;

use secsv_federation::{Coalition, RoundId, SampleSet};

use super::{Scheduler, TestResult};
use crate::{
    Error, PartyId,
    message::UnitId,
    role::{Effects, Incoming},
    session::Session,
    test_id::TestId,
    unit::UnitContext,
};

/// A unit under way at the principal.
pub(crate) trait PrincipalUnit: Send + 'static {
    /// What it is about.
    fn context(&self) -> &Arc<UnitContext>;

    /// Whether everything has come: nobody is awaited any more.
    fn is_whole(&self) -> bool;
}

/// An engine: keys, shares and ciphertexts of one protocol, and the steps of its units.
pub(crate) trait Engine: Sized + Send + 'static {
    /// A unit under way.
    type Unit: PrincipalUnit;
    /// What it keeps of an open round.
    type Round: Default + Send + 'static;
    /// The second server, where there is one.
    const AUXILIARY: Option<PartyId> = Some(PartyId::Auxiliary);

    /// The agreement.
    fn session(&self) -> &Arc<Session>;

    /// Whether keys and samples have come, which every test needs.
    fn is_ready(&self) -> bool;

    /// How many tests run at the same time, at most.
    fn max_active(&self) -> usize;

    /// A unit about which nothing has come.
    fn unit(&self, context: Arc<UnitContext>) -> Self::Unit;

    /// The result of a test before anything is found among `samples` of them.
    fn nothing_found(samples: usize) -> TestResult {
        TestResult::from(SampleSet::none(samples))
    }

    /// Clients that are told when a round begins.
    fn concerned(&self, round: RoundId) -> Coalition {
        self.session().federation.participants(round)
    }

    /// Samples whose first-layer outputs are gathered for a unit of a group, and others of the round: of these candidates.
    fn to_gather(&self, _group: usize, _candidates: &SampleSet, _participants: usize) -> Option<SampleSet> {
        None
    }

    /// How many stages of a unit were sent features, or are about to be. All of them unless it is known better: the rules of
    /// replacement may then only be stricter.
    fn stages_sent(&self, _unit: &Self::Unit) -> usize {
        let program = self.session().program();
        program.chain() + 1 + usize::from(program.gru.is_some())
    }

    /// Takes a message of a session under way.
    fn on_message(
        scheduler: &mut Scheduler<Self>,
        message: Incoming,
    ) -> Result<Effects<Scheduler<Self>>, Error>;

    /// Starts whatever a unit has everything for.
    fn advance(scheduler: &mut Scheduler<Self>, unit: UnitId) -> Result<Effects<Scheduler<Self>>, Error>;

    /// Units of a round were announced.
    fn on_announced(
        _scheduler: &mut Scheduler<Self>,
        _round: RoundId,
    ) -> Result<Effects<Scheduler<Self>>, Error> {
        Ok(Effects::default())
    }

    /// Forgets a round that has ended.
    fn forget_round(&mut self, round: RoundId);

    /// Forgets a test that has ended.
    fn forget_test(&mut self, _test: TestId) {}

    /// What has not come, and from whom, in words.
    fn missing(scheduler: &Scheduler<Self>) -> Vec<String>;
}
