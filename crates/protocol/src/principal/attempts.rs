//! Clients that stay away: others take their places, in a new attempt. An attempt has a number of its own, so nothing of
//! it is mixed up with what came before, and no randomness is used twice.

use std::sync::Arc;

use secsv_federation::{Coalition, SampleSet};

use super::{Assignment, Principal, TestRequest};
use crate::{
    Error,
    decryptors::{PlanError, Planner, Unit, UnitRoles},
    message::{Kind, Place, TestPlan, UnitId, UnitPlan},
    role::Effects,
    scope::ATTEMPT,
    server::UnitContext,
    session::Session,
};

/// The test that was asked for, whatever the attempt.
pub(super) fn asked(test: u64) -> u64 {
    test & ((1 << ATTEMPT) - 1)
}

fn attempt_of(test: u64) -> usize {
    (test >> ATTEMPT) as usize
}

fn numbered(test: u64, attempt: usize) -> u64 {
    test | (attempt as u64) << ATTEMPT
}

/// Who does what in a unit, and who was to do it before.
pub(super) struct Roles {
    current: UnitRoles,
    /// By attempt, without samples.
    pub attempts: Vec<UnitPlan>,
}

impl Roles {
    pub fn new(current: UnitRoles) -> Self {
        let attempts = vec![plan_of(&current)];
        Self { current, attempts }
    }

    pub fn replace(&mut self, planner: &mut Planner, sent: usize, away: Coalition) -> Result<(), PlanError> {
        planner.replace(&mut self.current, sent, away)?;
        self.attempts.push(plan_of(&self.current));
        Ok(())
    }
}

/// Who does what, as it travels.
fn plan_of(roles: &UnitRoles) -> UnitPlan {
    UnitPlan {
        group: roles.unit().group,
        samples: SampleSet::none(0),
        gathered: None,
        chain: roles.decryptors().to_vec(),
        gru: roles.gru().map(|gru| (gru.resharer, gru.gates.unwrap_or(gru.resharer))),
        dealer: roles.dealer(),
        counter: roles.counter(),
    }
}

impl Principal {
    /// Clients without whom something cannot go on, although others were looked for.
    pub fn awaited(&self) -> Coalition {
        self.awaited
    }

    /// Says which clients stay away. What they were to do is given to others where the rules leave somebody.
    pub fn set_away(&mut self, away: Coalition) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        self.away = away;
        self.awaited = Coalition::EMPTY;
        let Some(session) = self.session.clone() else { return Ok(effects) };
        let contexts: Vec<Arc<UnitContext>> =
            self.units.values().filter_map(|state| state.plan.clone()).collect();
        for context in contexts {
            let seated: Coalition = context.seated().collect();
            if seated.intersection(away).is_empty() {
                continue;
            }
            effects.and(self.replace(&session, &context)?);
        }
        effects.and(self.pump()?);
        Ok(effects)
    }

    fn replace(&mut self, session: &Arc<Session>, context: &UnitContext) -> Result<Effects<Self>, Error> {
        let (round, coalition, group) = (context.round, context.coalition, context.plan.group);
        let participants = session.federation.participants(round);
        let unit = Unit { round, participants, group, coalition };
        let sent = Some(self.stages_sent(session, context.id));
        match self.assign(Assignment { unit, away: self.away, sent }) {
            Ok(()) => {}
            Err(Error::Plan(PlanError::Awaiting { clients, .. })) => {
                self.awaited = self.awaited.union(clients);
                return Ok(Effects::default());
            }
            Err(Error::Plan(PlanError::NobodyLeft { .. })) => {
                let seated: Coalition = context.seated().collect();
                self.awaited = self.awaited.union(seated.intersection(self.away));
                return Ok(Effects::default());
            }
            Err(error) => return Err(error),
        }
        self.units.remove(&context.id);
        self.secret.forget_unit(context.id);
        let test = asked(context.id.test);
        let roles = self.roles.get(&(round, coalition, group));
        let Some((attempt, plan)) = roles.and_then(|roles| roles.attempts.iter().enumerate().next_back())
        else {
            return Err(Error::Local { what: "assigned roles" });
        };
        let (samples, gathered) = (context.plan.samples.clone(), context.plan.gathered.clone());
        let units = vec![UnitPlan { samples, gathered, ..plan.clone() }];
        let plan = TestPlan { test: numbered(test, attempt), round, coalition, units };
        self.announce(session, &plan)
    }

    /// To how many stages features went, or are about to.
    fn stages_sent(&self, session: &Session, unit: UnitId) -> usize {
        use crate::program::Seat;
        let Some(state) = self.units.get(&unit) else { return 0 };
        if session.encryption.is_none() || self.is_hesv() {
            // Counted as if everything had gone: the rules may then only be stricter.
            return session.program().chain() + 1 + usize::from(session.program().gru.is_some());
        }
        let before = usize::from(session.program().gru.is_some());
        let stage = |hop: usize| match session.program().hops.get(hop).map(|step| step.seat) {
            Some(Seat::Layer(place)) => place + before + 1,
            _ => 1,
        };
        state.started.iter().map(|(hop, ..)| stage(*hop)).max().unwrap_or(0)
    }

    /// A test as it is announced: all its units, then each of those that others had to take over.
    pub(super) fn attempts(&self, plan: TestPlan) -> Vec<TestPlan> {
        let TestPlan { test, round, coalition, .. } = plan;
        let mut later = Vec::new();
        for unit in &plan.units {
            let roles = self.roles.get(&(round, coalition, unit.group));
            let attempts = roles.map_or(&[][..], |roles| &roles.attempts);
            for (attempt, plan) in attempts.iter().enumerate().skip(1) {
                let (samples, gathered) = (unit.samples.clone(), unit.gathered.clone());
                let units = vec![UnitPlan { samples, gathered, ..plan.clone() }];
                later.push(TestPlan { test: numbered(test, attempt), round, coalition, units });
            }
        }
        [plan].into_iter().chain(later).collect()
    }

    /// Every number that a test has had.
    pub(super) fn numbers(&self, test: u64, request: &TestRequest) -> Vec<u64> {
        let (round, coalition) = (request.round, request.coalition);
        let roles = self.roles.range((round, coalition, 0)..=(round, coalition, usize::MAX));
        let most = roles.map(|(_, roles)| roles.attempts.len()).max().unwrap_or(1);
        (0..most.max(1)).map(|attempt| numbered(test, attempt)).collect()
    }

    /// Whether others have taken a unit over.
    pub(super) fn is_stale(&self, unit: UnitId) -> bool {
        let Some(test) = self.tests.get(&asked(unit.test)) else { return false };
        let TestRequest { round, coalition, .. } = test.request;
        let roles = self.roles.get(&(round, coalition, unit.group));
        roles.is_some_and(|roles| attempt_of(unit.test) + 1 < roles.attempts.len())
    }

    /// Whether a message is about a unit that others have taken over.
    pub(super) fn is_late(&self, kind: Kind, content: &[u8]) -> bool {
        let is_secret = self.session.as_ref().is_some_and(|session| session.encryption.is_none());
        let content = match kind {
            Kind::Opening if is_secret && content.first() == Some(&0) => return false,
            Kind::Opening if is_secret => content.get(1..).unwrap_or_default(),
            Kind::Half
            | Kind::Opening
            | Kind::Verdict
            | Kind::Shared
            | Kind::Truth
            | Kind::Predicted
            | Kind::Triple
            | Kind::Count => content,
            _ => return false,
        };
        Place::decode(content).is_ok_and(|(place, _)| self.is_stale(place.unit))
    }
}
