//! SecretSV's engines: both servers do the same with their shares.

use std::{collections::BTreeSet, sync::Arc};

use secsv_algebra::Seed;
use secsv_federation::{Coalition, RoundId};

use super::server::{SecretServer, SecretUnit, ShareHost, advance, take, take_share};
use crate::{
    Error, PartyId,
    comparison::{AuxiliaryLabels, PrincipalLabels},
    error::CodecError,
    follower::{AuxiliaryEngine, AuxiliaryUnit, Follower},
    message::{CommonSeed, Head, Kind, Server, UnitId},
    role::{Effects, Incoming},
    scheduler::{Engine, PrincipalUnit, Scheduler, max_tests},
    session::Session,
    test_id::TestId,
    unit::{UnitContext, may_send},
};

/// SecretSV at the principal.
pub(crate) struct SecretSvPrincipal {
    session: Arc<Session>,
    common: Option<Seed>,
    secret: SecretServer,
}

/// SecretSV at the auxiliary.
pub(crate) struct SecretSvAuxiliary {
    session: Arc<Session>,
    common: Seed,
    secret: SecretServer,
}

/// A unit at a server, with its share of the labels.
pub(crate) struct LabelledUnit<L> {
    unit: SecretUnit,
    labels: L,
}

impl SecretSvPrincipal {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session, common: None, secret: SecretServer::default() }
    }
}

impl SecretSvAuxiliary {
    pub(crate) fn new(session: Arc<Session>, common: Seed) -> Self {
        Self { session, common, secret: SecretServer::default() }
    }
}

impl ShareHost for Scheduler<SecretSvPrincipal> {
    const SERVER: Server = Server::Principal;

    fn secret(&mut self) -> &mut SecretServer {
        &mut self.engine.secret
    }

    fn common(&self) -> Option<Seed> {
        self.engine.common.clone()
    }

    fn secret_unit(&mut self, unit: UnitId) -> Option<&mut SecretUnit> {
        self.units.get_mut(&unit).map(|unit| &mut unit.unit)
    }

    fn resume(&mut self, unit: UnitId) -> Result<Effects<Self>, Error> {
        SecretSvPrincipal::advance(self, unit)
    }

    fn resume_all(&mut self) -> Result<Effects<Self>, Error> {
        self.advance_all(|_| true)
    }

    fn prepared(&mut self) -> Result<Effects<Self>, Error> {
        self.pump()
    }
}

impl PrincipalUnit for LabelledUnit<PrincipalLabels> {
    fn context(&self) -> &Arc<UnitContext> {
        &self.unit.context
    }

    fn is_whole(&self) -> bool {
        self.labels.is_comparing()
    }
}

impl Engine for SecretSvPrincipal {
    type Unit = LabelledUnit<PrincipalLabels>;
    type Round = ();

    fn session(&self) -> &Arc<Session> {
        &self.session
    }

    fn is_ready(&self) -> bool {
        self.common.is_some() && self.secret.is_ready(&self.session)
    }

    fn max_active(&self) -> usize {
        max_tests(&self.session)
    }

    fn unit(&self, context: Arc<UnitContext>) -> Self::Unit {
        LabelledUnit { unit: SecretUnit::new(context, Server::Principal), labels: PrincipalLabels::default() }
    }

    /// Owners deal for the first layer of every round.
    fn concerned(&self, round: RoundId) -> Coalition {
        let participants = self.session.federation.participants(round);
        self.session.groups.iter().fold(participants, |all, group| all.union(group.owners))
    }

    fn on_message(
        scheduler: &mut Scheduler<Self>,
        message: Incoming,
    ) -> Result<Effects<Scheduler<Self>>, Error> {
        let session = scheduler.session.clone();
        match (message.kind, message.from) {
            (Kind::CommonSeed, PartyId::Auxiliary) => {
                let CommonSeed { seed } = message.read(&())?;
                scheduler.engine.common = Some(seed);
                scheduler.pump()
            }
            (Kind::DifferenceShare, PartyId::Auxiliary) => {
                let address = Head::step(message.kind, &message.content);
                let address = address.ok_or_else(|| message.malformed(CodecError::Truncated))?;
                let unit = scheduler.unit(address.unit, &message)?;
                unit.labels.take_differences(&session, &unit.unit.context, &message)?;
                Self::advance(scheduler, address.unit)
            }
            (
                Kind::ActivationShare | Kind::LabelShare | Kind::PredictionShare | Kind::Triple,
                PartyId::Client(client),
            ) => {
                let address = Head::step(message.kind, &message.content);
                let address = address.ok_or_else(|| message.malformed(CodecError::Truncated))?;
                let unit = scheduler
                    .units
                    .get_mut(&address.unit)
                    .filter(|unit| may_send(&session, &unit.unit.context, client, message.kind, address));
                let Some(unit) = unit else {
                    return Err(message.unexpected("somebody else's part, or no such test"));
                };
                if matches!(message.kind, Kind::ActivationShare | Kind::Triple) {
                    return take_share(scheduler, &session, address.unit, message);
                }
                unit.labels.take_share(client, &message)?;
                Self::advance(scheduler, address.unit)
            }
            _ => take(scheduler, &session, &message),
        }
    }

    fn advance(scheduler: &mut Scheduler<Self>, id: UnitId) -> Result<Effects<Scheduler<Self>>, Error> {
        let session = scheduler.session.clone();
        let mut effects = advance(scheduler, &session, id)?;
        if let Some(unit) = scheduler.units.get_mut(&id) {
            let context = unit.unit.context.clone();
            if let Some(labels) = unit.labels.take_whole(&session, &context) {
                effects.and(scheduler.compare(&context, labels));
            }
        }
        Ok(effects)
    }

    fn forget_round(&mut self, round: RoundId) {
        self.secret.forget_round(round);
    }

    fn forget_test(&mut self, _test: TestId) {}

    fn missing(scheduler: &Scheduler<Self>) -> Vec<String> {
        let (session, engine) = (&scheduler.session, &scheduler.engine);
        let common = engine.common.is_none().then(|| format!("{} from auxiliary", Kind::CommonSeed));
        let rounds: BTreeSet<RoundId> =
            scheduler.units.values().map(|unit| unit.unit.context.round).collect();
        let mut missing: Vec<String> = common.into_iter().collect();
        missing.extend(engine.secret.missing(session, Server::Principal, rounds));
        for LabelledUnit { unit, labels } in scheduler.units.values() {
            missing.extend(unit.missing(session));
            missing.extend(labels.missing(session, &unit.context));
        }
        missing
    }
}

impl ShareHost for Follower<SecretSvAuxiliary> {
    const SERVER: Server = Server::Auxiliary;

    fn secret(&mut self) -> &mut SecretServer {
        &mut self.engine.secret
    }

    fn common(&self) -> Option<Seed> {
        Some(self.engine.common.clone())
    }

    fn secret_unit(&mut self, unit: UnitId) -> Option<&mut SecretUnit> {
        self.units.get_mut(&unit).map(|unit| &mut unit.unit)
    }

    fn resume(&mut self, unit: UnitId) -> Result<Effects<Self>, Error> {
        self.advance(unit)
    }

    fn resume_all(&mut self) -> Result<Effects<Self>, Error> {
        self.advance_all(|_| true)
    }

    fn prepared(&mut self) -> Result<Effects<Self>, Error> {
        Ok(Effects::default())
    }
}

impl AuxiliaryUnit for LabelledUnit<AuxiliaryLabels> {
    fn context(&self) -> &Arc<UnitContext> {
        &self.unit.context
    }

    fn labels(&mut self) -> &mut AuxiliaryLabels {
        &mut self.labels
    }

    fn missing(&self, session: &Session) -> Vec<String> {
        let labels = self.labels.missing(session, &self.unit.context);
        self.unit.missing(session).into_iter().chain(labels).collect()
    }
}

impl AuxiliaryEngine for SecretSvAuxiliary {
    type Unit = LabelledUnit<AuxiliaryLabels>;

    fn session(&self) -> &Arc<Session> {
        &self.session
    }

    fn unit(&self, context: Arc<UnitContext>) -> Self::Unit {
        LabelledUnit { unit: SecretUnit::new(context, Server::Auxiliary), labels: AuxiliaryLabels::default() }
    }

    fn on_message(
        follower: &mut Follower<Self>,
        message: Incoming,
    ) -> Result<Effects<Follower<Self>>, Error> {
        let session = follower.session.clone();
        take(follower, &session, &message)
    }

    fn take_share(
        follower: &mut Follower<Self>,
        unit: UnitId,
        message: Incoming,
    ) -> Result<Effects<Follower<Self>>, Error> {
        let session = follower.session.clone();
        take_share(follower, &session, unit, message)
    }

    fn advance(follower: &mut Follower<Self>, unit: UnitId) -> Result<Effects<Follower<Self>>, Error> {
        let session = follower.session.clone();
        advance(follower, &session, unit)
    }

    fn forget_round(&mut self, round: RoundId) {
        self.secret.forget_round(round);
    }

    fn missing(follower: &Follower<Self>) -> Vec<String> {
        let rounds = follower.units.values().map(|unit| unit.unit.context.round).collect();
        follower.engine.secret.missing(&follower.session, Server::Auxiliary, rounds)
    }
}
