//! When tests begin, with whom, and when rounds are opened: as far as there is memory for them.

use std::{
    collections::{BTreeSet, btree_map::Entry},
    sync::Arc,
};

use secsv_federation::RoundId;

use super::{
    Assignment, Principal, RoundState, TestRequest, TestState, base_test,
    split::{SplitTest, is_secure, split_by_known_models},
};
use crate::{
    Error, PartyId,
    decryptors::{PlanError, Unit},
    first_layer_batch::to_gather,
    message::{FirstLayerBatchId, Kind, Message as _, OwnTest, RoundStart, TestPlan, UnitPlan},
    role::{Effects, Outgoing},
    round_memory::open_rounds,
    server::{UnitContext, UnitState},
    session::Session,
};

/// Tests that run at the same time: enough to keep every party busy ...
pub(super) const MAX_ACTIVE: usize = 12;
/// ... also if a test is one visit to a client about one model, and most of its time goes by on the way and at the disks ...
const MAX_ACTIVE_OF_ONE_LAYER: usize = 40;
/// ... and few enough that the coalitions' models of both servers fit this many bytes.
const MODELS_MEMORY: usize = 1 << 30;

impl Principal {
    /// Starts queued tests while there is room.
    pub(super) fn pump(&mut self) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let Some(session) = self.session.clone() else { return Ok(effects) };
        let ready = if self.is_hesv() {
            self.hesv_ready(&session)
        } else if session.encryption.is_none() {
            self.common.is_some() && self.secret.is_ready(&session)
        } else {
            self.public.is_some() && self.common.is_some() && self.store.all_data(&session).is_some()
        };
        if !ready {
            return Ok(self.open_early(&session));
        }
        while self.tests.len() < self.most_active(&session) {
            let Some((round, test)) = self.next_queued(&session) else { break };
            let Some(request) = self.queue.remove(&(round, test)) else { break };
            match self.start(&session, test, request.clone()) {
                Err(Error::Plan(PlanError::Awaiting { clients, .. })) => {
                    // It waits until one of them is back.
                    self.queue.insert((round, test), request);
                    self.awaited = self.awaited.union(clients);
                    break;
                }
                started => effects.and(started?),
            }
        }
        Ok(effects)
    }

    /// Where models are tested together nothing about a round batch's first tests depends on anything but the session: its models
    /// are base_test for while keys and samples are still on their way.
    fn open_early(&mut self, session: &Session) -> Effects<Self> {
        // A test of models that owners know needs no round, and might end before the models come.
        let is_together = |request: &&TestRequest| {
            request.coalitions.len() > 1
                && request.rounds == session.rounds_of(request.round)
                && is_secure(session, request)
        };
        let first = self.queue.values().find(is_together).map(|request| request.round);
        let first = first.filter(|_| session.federation.tests_together() && self.rounds.is_empty());
        first.map_or_else(Effects::default, |round_batch| self.open_round(round_batch))
    }

    /// The earliest test that waits: of any round if there is memory for one more, else of those that are open. Should
    /// none of these be under way, somebody still looks at the last results: more tests follow, or a round is closed.
    pub(super) fn next_queued(&self, session: &Session) -> Option<(RoundId, u64)> {
        if self.rounds.len() < open_rounds(session) {
            return self.queue.first_key_value().map(|(&key, _)| key);
        }
        let of_round = |&round: &RoundId| self.queue.range((round, 0)..=(round, u64::MAX)).next();
        self.rounds.keys().find_map(of_round).map(|(&key, _)| key)
    }

    pub(super) fn start(
        &mut self,
        session: &Arc<Session>,
        test: u64,
        request: TestRequest,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let round = request.round;
        let participants = session.federation.participants(round);
        let unit = |coalition, group| Unit { round, participants, group, coalition };
        let roles = |coalition, group| self.first_roles(unit(coalition, group));
        let SplitTest { own, secure, mut plan } = split_by_known_models(session, test, &request, roles)?;
        if !self.is_hesv() && request.samples.difference(&request.candidate_samples).is_empty() {
            for unit in &mut plan.units {
                unit.gathered =
                    to_gather(session, unit.group, &request.candidate_samples, participants.len());
            }
        }
        if !secure.is_empty() && request.rounds != session.rounds_of(round) {
            return Err(Error::Local { what: "a test of a whole round_batch" });
        }
        let mut state = TestState::new(request);
        state.units_left.extend(secure);
        for (owner, tests) in own {
            state.owners_left.insert(owner, tests.iter().map(|(number, _)| *number).collect());
            let model = |(number, samples): (usize, _)| (state.request.coalitions[number], samples);
            let models = tests.into_iter().map(model).collect();
            let own_test = OwnTest { test, rounds: state.request.rounds.clone(), models };
            effects.outbox.push(Outgoing::of(PartyId::Client(owner), &own_test));
        }
        let attempts = self.attempts(session, &state.request, plan);
        self.tests.insert(test, state);
        if attempts.iter().any(|plan| !plan.units.is_empty()) {
            effects.and(self.open_round(round));
            for plan in attempts {
                effects.and(self.announce(session, &plan)?);
            }
            // Its roles may be older than somebody's absence.
            effects.and(self.replace_absent(session, |unit| base_test(unit.test) == test)?);
        }
        effects.and(self.finish(test)?);
        Ok(effects)
    }

    /// Tells those concerned of a test, and begins with those of its units that are at this attempt.
    pub(super) fn announce(
        &mut self,
        session: &Arc<Session>,
        plan: &TestPlan,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let content = Arc::new(plan.encode());
        let mut concerned: BTreeSet<PartyId> = self.auxiliary().into_iter().collect();
        let mut begun = Vec::new();
        for context in UnitContext::of(session, plan) {
            concerned.extend(context.decryptors().chain(context.owners(session)).map(PartyId::Client));
            let id = context.id;
            if !self.is_stale(id) {
                if let Some(state) = self
                    .rounds
                    .get_mut(&plan.round)
                    .filter(|_| context.layer_batch.id != FirstLayerBatchId::All)
                {
                    state
                        .gathered
                        .entry(context.layer_batch.id)
                        .or_insert((context.layer_batch.clone(), false));
                }
                self.units.insert(id, UnitState { plan: Some(Arc::new(context)), ..UnitState::default() });
                begun.push(id);
            }
        }
        for to in concerned {
            effects.outbox.push(Outgoing::new(to, Kind::Test, content.clone()));
        }
        for unit in begun {
            effects.and(self.advance(unit)?);
        }
        if plan.units.iter().any(|unit| unit.gathered.is_some()) {
            effects.and(self.first_layer(plan.round)?);
        }
        Ok(effects)
    }

    /// Who was first to test a coalition on a group's samples: planned once, whatever the samples.
    fn first_roles(&mut self, unit: Unit) -> Result<UnitPlan, Error> {
        let key = (unit.round, unit.coalition, unit.group);
        if !self.roles.contains_key(&key) {
            self.assign(Assignment { unit, away: self.away, sent: None })?;
        }
        let roles = self.roles.get(&key).ok_or(Error::Local { what: "assigned roles" })?;
        roles.attempts.first().cloned().ok_or(Error::Local { what: "assigned roles" })
    }

    pub(super) fn open_round(&mut self, round: RoundId) -> Effects<Self> {
        let mut effects = Effects::default();
        if let Entry::Vacant(vacant) = self.rounds.entry(round) {
            vacant.insert(RoundState::default());
            let mut concerned = self.federation.participants(round);
            if let Some(session) = self.session.as_ref().filter(|session| session.encryption.is_none()) {
                // Owners deal for the first layer of every round.
                concerned = session.groups.iter().fold(concerned, |all, group| all.union(group.owners));
            }
            for client in concerned.members() {
                effects.outbox.push(Outgoing::of(PartyId::Client(client), &RoundStart { round }));
            }
        }
        effects
    }
}

/// How many tests run at the same time.
pub(crate) fn most_active(session: &Session) -> usize {
    let later = session.encryption.iter().flat_map(|encryption| encryption.layouts.iter().skip(1));
    let of_one: usize = later.map(|layout| 2 * layout.prepared_bytes()).sum();
    let is_one_visit = session.program().steps.len() == 1 && !session.federation.tests_together();
    let most = if is_one_visit { MAX_ACTIVE_OF_ONE_LAYER } else { MAX_ACTIVE };
    MODELS_MEMORY.checked_div(of_one).unwrap_or(most).clamp(2, most)
}
