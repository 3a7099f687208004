//! What the auxiliary does under every protocol with two servers: takes tests as the principal announces them, compares labels, and
//! counts for itself.

mod engine;

pub(crate) use engine::{AuxiliaryEngine, AuxiliaryUnit};

use std::{collections::BTreeMap, sync::Arc};

use secsv_algebra::Seed;
use secsv_federation::{Coalition, RoundId};

use crate::{
    Error, PartyId,
    comparison::difference_share,
    decryptors::knowing,
    early::Early,
    error::CodecError,
    message::{Counted, Head, Kind, OwnCount, Recount, RoundFinished, TestFinished, TestPlan, UnitId},
    role::{Effects, Incoming, Phase, waits_for},
    scope::Scope,
    session::Session,
    test_id::{RequestId, TestId},
    unit::{UnitContext, check_plan, may_send, server_address},
};

/// Units under way, and the engine that works on them.
pub(crate) struct Follower<E: AuxiliaryEngine> {
    pub session: Arc<Session>,
    pub engine: E,
    pub seed: Seed,
    pub units: BTreeMap<UnitId, E::Unit>,
    /// Messages that came before their test was announced.
    early: Early,
    pub(crate) counts: Counts,
    pub(crate) finished: Vec<Scope>,
}

/// What the auxiliary counted.
#[derive(Default)]
pub(crate) struct Counts {
    /// In tests that have ended.
    ended: Recount,
    /// The same, by test, as far as it is not stored yet.
    pub new: Vec<(TestId, Vec<u8>)>,
    /// What owners counted themselves, by owner and test.
    own: BTreeMap<(usize, RequestId), Recount>,
}

impl Counts {
    pub(crate) fn all(&self) -> Recount {
        let mut all = self.ended.clone();
        self.own.values().for_each(|own| all.merge(own));
        all
    }

    /// Takes what an owner says of models that it knows.
    fn take_own(&mut self, session: &Session, owner: usize, message: OwnCount) -> Result<(), CodecError> {
        let OwnCount { request, counted: found } = message;
        let own = Coalition::EMPTY.with(owner);
        let samples = session.hellos.get(owner).map_or(0, |hello| hello.samples as usize);
        let is_its_own = |(&(round, coalition), found): (&(RoundId, Coalition), &Counted)| {
            let participants = session.federation.participants(round);
            found.tested <= samples && !knowing(own, coalition, participants).is_empty()
        };
        // Of each round it knows four models, and may be asked about each twice: nobody has this party keep more.
        let all = (owner, RequestId::FIRST)..=(owner, RequestId::LAST);
        let known = self.own.range(all).map(|(_, own)| own.counts.len());
        let is_too_much = known.sum::<usize>() + found.counts.len() > 8 * session.federation.rounds.len();
        if is_too_much || !found.disputed.is_empty() || !found.counts.iter().all(is_its_own) {
            return Err(CodecError::Value { what: "models" });
        }
        self.own.entry((owner, request)).or_insert(found);
        Ok(())
    }
}

impl<E: AuxiliaryEngine> Follower<E> {
    /// A follower in a session that has just been agreed on.
    pub(crate) fn new(engine: E, seed: Seed) -> Self {
        Self {
            session: engine.session().clone(),
            engine,
            seed,
            units: BTreeMap::new(),
            early: Early::default(),
            counts: Counts::default(),
            finished: Vec::new(),
        }
    }

    pub(crate) fn on_message(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        if !message.kind.is_of(self.session.federation.settings.protocol) {
            return Err(message.unexpected("another protocol"));
        }
        match (message.kind, message.from) {
            (Kind::Test, PartyId::Principal) => self.join_test(&message),
            (Kind::TestFinished, PartyId::Principal) => {
                self.end_test(message.read(&())?);
                Ok(Effects::default())
            }
            (Kind::RoundFinished, PartyId::Principal) => {
                let RoundFinished { round } = message.read(&())?;
                self.engine.forget_round(round);
                self.finished.push(Scope::Round(round));
                Ok(Effects::default())
            }
            (Kind::OpenedSeeds, PartyId::Principal) => {
                let session = self.session.clone();
                let (address, context) = server_address(&session, &message, |id| self.context(id))?;
                self.unit(address.unit, &message)?.labels().count(&session, &context, &message)?;
                Ok(Effects::default())
            }
            (Kind::OwnCount, PartyId::Client(owner)) => {
                let taken = self.counts.take_own(&self.session, owner, message.read(&())?);
                taken.map_err(|why| message.malformed(why))?;
                Ok(Effects::default())
            }
            (
                Kind::ActivationShare | Kind::LabelShare | Kind::PredictionShare | Kind::Triple,
                PartyId::Client(client),
            ) => self.take_share(client, message),
            _ => E::on_message(self, message),
        }
    }

    /// What a unit under way is about.
    pub(crate) fn context(&self, unit: UnitId) -> Option<Arc<UnitContext>> {
        self.units.get(&unit).map(|unit| unit.context().clone())
    }

    /// A unit under way that a message is about.
    pub(crate) fn unit(&mut self, unit: UnitId, message: &Incoming) -> Result<&mut E::Unit, Error> {
        self.units.get_mut(&unit).ok_or_else(|| message.unexpected("no such test"))
    }

    /// A test, as the principal announces it.
    fn join_test(&mut self, message: &Incoming) -> Result<Effects<Self>, Error> {
        let plan: TestPlan = message.read(&())?;
        check_plan(&self.session, &plan).map_err(|why| message.malformed(why))?;
        let contexts = UnitContext::of(&self.session, &plan)?;
        let is_another = |context: &UnitContext| {
            self.units.get(&context.id).is_some_and(|known| known.context().digest != context.digest)
        };
        if contexts.iter().any(is_another) {
            return Err(Error::Second { from: message.from, kind: message.kind });
        }
        let mut effects = Effects::default();
        for context in contexts.into_iter().map(Arc::new) {
            let id = context.id;
            if !self.units.contains_key(&id) {
                self.units.insert(id, self.engine.unit(context.clone()));
            }
            effects.and(self.take_early(id)?);
            effects.and(self.advance(id)?);
            effects.and(E::on_announced(self, &context)?);
        }
        Ok(effects)
    }

    /// Takes messages that waited for a unit.
    fn take_early(&mut self, id: UnitId) -> Result<Effects<Self>, Error> {
        let is_due = |message: &Incoming| {
            Head::step(message.kind, &message.content).is_some_and(|address| address.unit == id)
        };
        let mut effects = Effects::default();
        for message in self.early.take(is_due) {
            // It was kept before it could be judged: if it is at fault, it has no effect.
            effects.and(self.on_message(message).or_else(Error::unless_of_peer)?);
        }
        Ok(effects)
    }

    /// What a client shares in a unit.
    fn take_share(&mut self, client: usize, message: Incoming) -> Result<Effects<Self>, Error> {
        let address = Head::step(message.kind, &message.content);
        let address = address.ok_or_else(|| message.malformed(CodecError::Truncated))?;
        let Some(unit) = self.units.get_mut(&address.unit) else {
            // The principal's announcement is still on its way: the client could not have known without one.
            self.early.keep(message, "no such test")?;
            return Ok(Effects::default());
        };
        let context = unit.context().clone();
        if !may_send(&self.session, &context, client, message.kind, address) {
            return Err(message.unexpected("somebody else's part"));
        }
        if matches!(message.kind, Kind::ActivationShare | Kind::Triple) {
            return E::take_share(self, address.unit, message);
        }
        unit.labels().take_share(&self.session, &context, client, &message)?;
        self.advance(address.unit)
    }

    /// Starts whatever a unit has everything for.
    pub(crate) fn advance(&mut self, id: UnitId) -> Result<Effects<Self>, Error> {
        let mut effects = E::advance(self, id)?;
        effects.and(self.compare(id));
        Ok(effects)
    }

    /// Starts whatever some units have everything for.
    pub(crate) fn advance_all(&mut self, of: impl Fn(&UnitId) -> bool) -> Result<Effects<Self>, Error> {
        let units: Vec<UnitId> = self.units.keys().filter(|&id| of(id)).copied().collect();
        let mut effects = Effects::default();
        for unit in units {
            effects.and(self.advance(unit)?);
        }
        Ok(effects)
    }

    /// Computes the share of predicted minus true labels, once all of them have come.
    fn compare(&mut self, id: UnitId) -> Effects<Self> {
        let mut effects = Effects::default();
        let Some(unit) = self.units.get_mut(&id) else { return effects };
        let (session, context) = (self.session.clone(), unit.context().clone());
        let Some(labels) = unit.labels().take_whole(&session, &context) else { return effects };
        effects.job(move |meter| {
            meter.enter(Phase::Share);
            let message = difference_share(&session, &context, labels)?;
            Ok(move |role: &mut Self| {
                if let Some(unit) = role.units.get_mut(&id) {
                    unit.labels().sent(message.content.clone());
                }
                Ok(Effects::send(message))
            })
        });
        effects
    }

    /// A test has ended: what was counted in it stays.
    fn end_test(&mut self, TestFinished { test }: TestFinished) {
        let mut found = Recount::default();
        for (_, mut unit) in self.units.extract_if(.., |id, _| id.test == test) {
            if let Some(counted) = unit.labels().counted() {
                found.merge(counted);
            }
        }
        if !found.is_empty() {
            self.counts.new.push((test, found.encode()));
            self.counts.ended.merge(&found);
        }
        self.engine.forget_test(test);
        self.finished.push(Scope::Test(test));
    }

    /// What has not come, and from whom, in words.
    pub(crate) fn missing(&self) -> String {
        let mut missing = E::missing(self);
        self.units.values().for_each(|unit| missing.extend(unit.missing(&self.session)));
        waits_for(PartyId::Auxiliary, &missing)
    }
}
