//! What a protocol does at the auxiliary, beside what all protocols with two servers share.

use std::sync::Arc;

use secsv_federation::RoundId;

use super::Follower;
use crate::{
    Error,
    comparison::AuxiliaryLabels,
    message::UnitId,
    role::{Effects, Incoming},
    session::Session,
    test_id::TestId,
    unit::UnitContext,
};

/// A unit under way at the auxiliary.
pub(crate) trait AuxiliaryUnit: Send + 'static {
    /// What it is about.
    fn context(&self) -> &Arc<UnitContext>;

    /// Its labels.
    fn labels(&mut self) -> &mut AuxiliaryLabels;

    /// What has not come, and from whom, in words.
    fn missing(&self, session: &Session) -> Vec<String>;
}

/// An engine: keys and shares of one protocol, and the steps of its units.
pub(crate) trait AuxiliaryEngine: Sized + Send + 'static {
    /// A unit under way.
    type Unit: AuxiliaryUnit;

    /// The agreement.
    fn session(&self) -> &Arc<Session>;

    /// A unit about which nothing has come.
    fn unit(&self, context: Arc<UnitContext>) -> Self::Unit;

    /// Takes a message of a session under way that is about no unit, or comes from the principal.
    fn on_message(follower: &mut Follower<Self>, message: Incoming)
    -> Result<Effects<Follower<Self>>, Error>;

    /// Takes what a decryptor shares, or a dealer. It was checked that this is the client's part.
    fn take_share(
        follower: &mut Follower<Self>,
        unit: UnitId,
        message: Incoming,
    ) -> Result<Effects<Follower<Self>>, Error>;

    /// Starts whatever a unit has everything for, but for its labels.
    fn advance(follower: &mut Follower<Self>, unit: UnitId) -> Result<Effects<Follower<Self>>, Error>;

    /// A unit was announced.
    fn on_announced(
        _follower: &mut Follower<Self>,
        _context: &UnitContext,
    ) -> Result<Effects<Follower<Self>>, Error> {
        Ok(Effects::default())
    }

    /// Forgets a round that has ended.
    fn forget_round(&mut self, round: RoundId);

    /// Forgets a test that has ended.
    fn forget_test(&mut self, _test: TestId) {}

    /// What has not come, and from whom, in words.
    fn missing(follower: &Follower<Self>) -> Vec<String>;
}
