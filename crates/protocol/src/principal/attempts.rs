//! Clients that stay away: others take their places, in a new attempt. An attempt has a number of its own, so nothing of
//! it is mixed up with what came before, and no randomness is used twice.

use std::sync::Arc;

use secsv_federation::{Coalition, MAX_CLIENTS, RoundId, SampleSet};

use super::{Assignment, Principal, TestRequest, TestState, split::part};
use crate::{
    Error,
    decryptors::{PlanError, Planner, Unit, UnitRoles, knowing},
    message::{Kind, Place, TestPlan, UnitId, UnitPlan},
    role::Effects,
    scope::ATTEMPT,
    server::UnitContext,
    session::{MAX_TOGETHER, Session},
};

/// Parts from here on are single coalitions that were to be tested together with others.
const ALONE: usize = 1 << 8;
const _: () = assert!(ALONE > MAX_CLIENTS && ALONE + MAX_TOGETHER <= u16::MAX as usize);

/// The test that was base_test for, whatever the attempt.
pub(super) fn base_test(test: u64) -> u64 {
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
pub(crate) fn plan_of(roles: &UnitRoles) -> UnitPlan {
    UnitPlan {
        group: roles.unit().group,
        part: 0,
        coalitions: vec![roles.unit().coalition],
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
        effects.and(self.replace_absent(&session, |_| true)?);
        effects.and(self.pump()?);
        Ok(effects)
    }

    /// Has others take over what clients that stay away were to do in some units.
    pub(super) fn replace_absent(
        &mut self,
        session: &Arc<Session>,
        of: impl Fn(UnitId) -> bool,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        // Where everything has come, nobody is awaited any more.
        let contexts = self.units.iter().filter(|(id, state)| of(**id) && !state.judged);
        let contexts: Vec<Arc<UnitContext>> = contexts.filter_map(|(_, state)| state.plan.clone()).collect();
        for context in contexts {
            let decryptors: Coalition = context.decryptors().collect();
            if !decryptors.intersection(self.away).is_empty() {
                effects.and(self.replace(session, &context)?);
            }
        }
        Ok(effects)
    }

    /// Has others take over what they may. Coalitions that were tested together then go on one by one.
    fn replace(&mut self, session: &Arc<Session>, context: &UnitContext) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let (round, group) = (context.round, context.plan.group);
        let participants = session.federation.participants(round);
        let sent = Some(self.stages_sent(session, context.id));
        let mut is_replaced = false;
        for &coalition in &context.plan.coalitions {
            let unit = Unit { round, participants, group, coalition };
            match self.assign(Assignment { unit, away: self.away, sent }) {
                Ok(()) => is_replaced = true,
                Err(Error::Plan(PlanError::Awaiting { clients, .. })) => {
                    self.awaited = self.awaited.union(clients);
                }
                Err(Error::Plan(PlanError::NobodyLeft { .. })) => {
                    let decryptors: Coalition = context.decryptors().collect();
                    self.awaited = self.awaited.union(decryptors.intersection(self.away));
                }
                Err(error) => return Err(error),
            }
        }
        if !is_replaced {
            return Ok(effects);
        }
        self.units.remove(&context.id);
        self.secret.forget_unit(context.id);
        let test = base_test(context.id.test);
        let request = self.tests.get(&test).ok_or(Error::Local { what: "a test under way" })?.request.clone();
        for &coalition in &context.plan.coalitions {
            let last = self.attempts_at(round, coalition, group).len().saturating_sub(1);
            let plan = self.alone(session, &request, test, &context.plan, coalition, last);
            let plan = plan.ok_or(Error::Local { what: "assigned roles" })?;
            effects.and(self.announce(session, &plan)?);
        }
        Ok(effects)
    }

    fn attempts_at(&self, round: RoundId, coalition: Coalition, group: usize) -> &[UnitPlan] {
        self.roles.get(&(round, coalition, group)).map_or(&[], |roles| &roles.attempts)
    }

    /// One coalition of a unit by itself, at an attempt.
    fn alone(
        &self,
        session: &Session,
        request: &TestRequest,
        test: u64,
        unit: &UnitPlan,
        coalition: Coalition,
        attempt: usize,
    ) -> Option<TestPlan> {
        let number = request.coalitions.iter().position(|other| *other == coalition)?;
        let part = if request.coalitions.len() == 1 { 0 } else { ALONE + number };
        let roles = self.attempts_at(request.round, coalition, unit.group).get(attempt)?.clone();
        let participants = session.federation.participants(request.round);
        let knowing = knowing(session.groups[unit.group].owners, coalition, participants);
        let samples = session.without_owners(unit.group, &unit.samples, knowing);
        let units = vec![UnitPlan { part, samples, gathered: unit.gathered.clone(), ..roles }];
        Some(TestPlan { test: numbered(test, attempt), round: request.round, units })
    }

    /// To how many stages features went, or are about to.
    fn stages_sent(&self, session: &Session, unit: UnitId) -> usize {
        use crate::program::DecryptorSlot;
        let Some(state) = self.units.get(&unit) else { return 0 };
        if session.encryption.is_none() || self.is_hesv() {
            // Counted as if everything had gone: the rules may then only be stricter.
            return session.program().chain() + 1 + usize::from(session.program().gru.is_some());
        }
        let before = usize::from(session.program().gru.is_some());
        let stage = |step: usize| match session.program().steps.get(step).map(|decryption| decryption.slot) {
            Some(DecryptorSlot::Layer(place)) => place + before + 1,
            _ => 1,
        };
        state.started.iter().map(|(step, ..)| stage(*step)).max().unwrap_or(0)
    }

    /// A test as it is announced: all its units, then each coalition of those that others had to take over.
    pub(super) fn attempts(&self, session: &Session, request: &TestRequest, plan: TestPlan) -> Vec<TestPlan> {
        let mut later = Vec::new();
        for unit in &plan.units {
            let tried = |coalition| self.attempts_at(plan.round, coalition, unit.group).len();
            if unit.coalitions.iter().all(|&coalition| tried(coalition) <= 1) {
                continue;
            }
            for &coalition in &unit.coalitions {
                let first = usize::from(tried(coalition) > 1);
                let attempts = (first..tried(coalition))
                    .filter_map(|attempt| self.alone(session, request, plan.test, unit, coalition, attempt));
                later.extend(attempts);
            }
        }
        [plan].into_iter().chain(later).collect()
    }

    /// Every number that a test has had.
    pub(super) fn numbers(&self, test: u64, request: &TestRequest) -> Vec<u64> {
        let attempts = |&coalition: &Coalition| {
            let of = |group| (request.round, coalition, group);
            self.roles.range(of(0)..=of(usize::MAX)).map(|(_, roles)| roles.attempts.len()).max()
        };
        let most = request.coalitions.iter().filter_map(attempts).max().unwrap_or(1);
        (0..most.max(1)).map(|attempt| numbered(test, attempt)).collect()
    }

    /// Whether others have taken a unit over, or a part of it.
    pub(super) fn is_stale(&self, unit: UnitId) -> bool {
        let Some(TestState { request, .. }) = self.tests.get(&base_test(unit.test)) else { return false };
        // Asked about every message, and a unit may have many coalitions.
        if !self.replaced.contains(&(request.round, unit.group)) {
            return false;
        }
        let attempts = |&coalition: &Coalition| self.attempts_at(request.round, coalition, unit.group);
        let alone = match unit.part.checked_sub(ALONE) {
            Some(number) => request.coalitions.get(number),
            None => request.coalitions.first().filter(|_| request.coalitions.len() == 1),
        };
        match alone {
            Some(coalition) => attempt_of(unit.test) + 1 < attempts(coalition).len(),
            None => request.coalitions.iter().map(attempts).any(|attempts| {
                attempts.len() > 1 && attempts.first().is_some_and(|first| part(request, first) == unit.part)
            }),
        }
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
