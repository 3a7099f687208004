//! Clients that stay away: others take their places, in a new attempt. An attempt has a number of its own, so nothing of
//! it is mixed up with what came before, and no randomness is used twice.

use std::sync::Arc;

use secsv_federation::{Coalition, RoundId, SampleSet};

use super::{Assignment, Engine, PrincipalUnit as _, Scheduler, TestRequest, TestState, split::part};
use crate::{
    Error,
    decryptors::{PlanError, Planner, Unit, UnitRoles, knowing},
    message::{GruDecryptors, Head, Kind, TestPlan, UnitId, UnitPart, UnitPlan},
    role::Effects,
    test_id::{RequestId, TestId},
    unit::UnitContext,
};

/// Who does what in a unit, and who was to do it before.
pub(super) struct Roles {
    pub current: UnitRoles,
    /// By attempt, without samples.
    pub attempts: Vec<UnitPlan>,
}

impl Roles {
    pub fn new(current: UnitRoles) -> Self {
        let attempts = vec![plan_of(&current)];
        Self { current, attempts }
    }

    /// How many attempts there were: at most as many as numbers of tests have room for.
    pub fn tried(&self) -> u16 {
        u16::try_from(self.attempts.len()).unwrap_or(u16::MAX)
    }

    pub fn replace(
        &mut self,
        planner: &mut Planner,
        sent: usize,
        away: Coalition,
    ) -> Result<UnitPlan, PlanError> {
        planner.replace(&mut self.current, sent, away)?;
        let plan = plan_of(&self.current);
        self.attempts.push(plan.clone());
        Ok(plan)
    }
}

/// Who does what, as it travels.
pub(crate) fn plan_of(roles: &UnitRoles) -> UnitPlan {
    UnitPlan {
        group: roles.unit().group,
        part: UnitPart::WHOLE,
        coalitions: vec![roles.unit().coalition],
        samples: SampleSet::none(0),
        gathered: None,
        chain: roles.decryptors().to_vec(),
        gru: roles
            .gru()
            .map(|gru| GruDecryptors { resharer: gru.resharer, gates: gru.gates.unwrap_or(gru.resharer) }),
        dealer: roles.dealer(),
        counter: roles.counter(),
    }
}

impl<E: Engine> Scheduler<E> {
    /// Takes note of which clients stay away, and gives what they were to do to others where the rules leave somebody.
    pub(crate) fn replace_all(&mut self, away: Coalition) -> Result<Effects<Self>, Error> {
        self.away = away;
        self.awaited = Coalition::EMPTY;
        let mut effects = self.replace_absent(|_| true)?;
        effects.and(self.pump()?);
        Ok(effects)
    }

    /// Has others take over what clients that stay away were to do in some units.
    pub(super) fn replace_absent(&mut self, of: impl Fn(UnitId) -> bool) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        // Where everything has come, nobody is awaited any more.
        let units = self.units.iter().filter(|(id, unit)| of(**id) && !unit.is_whole());
        let contexts: Vec<Arc<UnitContext>> = units.map(|(_, unit)| unit.context().clone()).collect();
        for context in contexts {
            let assigned: Coalition = context.assigned().collect();
            if !assigned.intersection(self.away).is_empty() {
                effects.and(self.replace(&context)?);
            }
        }
        Ok(effects)
    }

    /// Has others take over what they may. Coalitions that were tested together then go on one by one.
    fn replace(&mut self, context: &UnitContext) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let (round, group) = (context.round, context.plan.group);
        let participants = self.session.federation.participants(round);
        let sent = self.units.get(&context.id).map(|unit| self.engine.stages_sent(unit)).or(Some(0));
        let mut is_replaced = false;
        for &coalition in &context.plan.coalitions {
            let unit = Unit { round, participants, group, coalition };
            match self.assign(Assignment { unit, away: self.away, sent }) {
                Ok(_) => is_replaced = true,
                Err(Error::Plan(PlanError::Awaiting { clients, .. })) => {
                    self.awaited = self.awaited.union(clients);
                }
                Err(Error::Plan(PlanError::NobodyLeft { .. })) => {
                    let assigned: Coalition = context.assigned().collect();
                    self.awaited = self.awaited.union(assigned.intersection(self.away));
                }
                Err(error) => return Err(error),
            }
        }
        if !is_replaced {
            return Ok(effects);
        }
        self.units.remove(&context.id);
        let id = context.id.test.request;
        let Some(request) = self.tests.get(&id).map(|state| state.request.clone()) else {
            return Ok(effects);
        };
        let alone = context.plan.coalitions.iter().filter_map(|&coalition| {
            let attempt = self.tried(round, coalition, group).saturating_sub(1);
            self.alone(&request, TestId { attempt, request: id }, &context.plan, coalition)
        });
        let plans: Vec<TestPlan> = alone.collect();
        for plan in plans {
            effects.and(self.announce(&plan)?);
        }
        Ok(effects)
    }

    pub(super) fn attempts_at(&self, round: RoundId, coalition: Coalition, group: usize) -> &[UnitPlan] {
        self.roles.get(&(round, coalition, group)).map_or(&[], |roles| &roles.attempts)
    }

    /// How many attempts there were.
    fn tried(&self, round: RoundId, coalition: Coalition, group: usize) -> u16 {
        self.roles.get(&(round, coalition, group)).map_or(0, Roles::tried)
    }

    /// One coalition of a unit by itself, at an attempt.
    fn alone(
        &self,
        request: &TestRequest,
        test: TestId,
        unit: &UnitPlan,
        coalition: Coalition,
    ) -> Option<TestPlan> {
        let number = request.coalitions.iter().position(|other| *other == coalition)?;
        let part = if request.coalitions.len() == 1 { UnitPart::WHOLE } else { UnitPart::Alone(number) };
        let attempts = self.attempts_at(request.round, coalition, unit.group);
        let roles = attempts.get(usize::from(test.attempt))?.clone();
        let session = &self.session;
        let participants = session.federation.participants(request.round);
        let knowing = knowing(session.groups[unit.group].owners, coalition, participants);
        let samples = session.without_owners(unit.group, &unit.samples, knowing);
        let units = vec![UnitPlan { part, samples, gathered: unit.gathered.clone(), ..roles }];
        Some(TestPlan { test, round: request.round, units })
    }

    /// A test as it is announced: all its units, then each coalition of those that others had to take over.
    pub(super) fn attempts(&self, request: &TestRequest, plan: TestPlan) -> Vec<TestPlan> {
        let mut later = Vec::new();
        for unit in &plan.units {
            let tried = |coalition| self.tried(plan.round, coalition, unit.group);
            if unit.coalitions.iter().all(|&coalition| tried(coalition) <= 1) {
                continue;
            }
            for &coalition in &unit.coalitions {
                let first = u16::from(tried(coalition) > 1);
                let tests = (first..tried(coalition)).map(|attempt| TestId { attempt, ..plan.test });
                later.extend(tests.filter_map(|test| self.alone(request, test, unit, coalition)));
            }
        }
        [plan].into_iter().chain(later).collect()
    }

    /// Every attempt at a test.
    pub(super) fn tests_at(&self, id: RequestId, request: &TestRequest) -> Vec<TestId> {
        let attempts = |&coalition: &Coalition| {
            let of = |group| (request.round, coalition, group);
            self.roles.range(of(0)..=of(usize::MAX)).map(|(_, roles)| roles.tried()).max()
        };
        let most = request.coalitions.iter().filter_map(attempts).max().unwrap_or(1);
        (0..most.max(1)).map(|attempt| TestId { attempt, request: id }).collect()
    }

    /// Whether others have taken a unit over, or a part of it.
    pub(super) fn is_stale(&self, unit: UnitId) -> bool {
        let Some(TestState { request, .. }) = self.tests.get(&unit.test.request) else { return false };
        // Asked about every message, and a unit may have many coalitions.
        if !self.replaced.contains(&(request.round, unit.group)) {
            return false;
        }
        let attempts = |&coalition: &Coalition| self.attempts_at(request.round, coalition, unit.group);
        let alone = match unit.part {
            UnitPart::Alone(number) => request.coalitions.get(number),
            UnitPart::Decryptor(_) => request.coalitions.first().filter(|_| request.coalitions.len() == 1),
        };
        match alone {
            Some(coalition) => usize::from(unit.test.attempt) + 1 < attempts(coalition).len(),
            None => request.coalitions.iter().map(attempts).any(|attempts| {
                attempts.len() > 1 && attempts.first().is_some_and(|first| part(request, first) == unit.part)
            }),
        }
    }

    /// Whether a message is about a unit that others have taken over.
    pub(super) fn is_late(&self, kind: Kind, content: &[u8]) -> bool {
        Head::step(kind, content).is_some_and(|address| self.is_stale(address.unit))
    }
}
