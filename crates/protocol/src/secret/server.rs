//! What both servers do in SecretSV, each with its own shares.

mod first_layer;
mod outputs;
mod receive;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use secsv_algebra::{Ring64, Seed, Share};
use secsv_federation::RoundId;

use super::{Masks, SharedModel};
use crate::{
    Error, PartyId,
    codec::unpack_matrix,
    message::{Kind, Server, UnitId},
    role::{Effects, Role},
    server::{Opening, Triple, UnitContext, UnitState},
    session::Session,
};
pub(crate) use outputs::advance;
pub(crate) use receive::{take, take_shared, take_triple, takes};

/// A server that holds such a state.
pub(crate) trait Host: Role {
    /// Which of the two it is.
    const SIDE: PartyId;
    /// The state.
    fn secret(&mut self) -> &mut SecretServer;
    /// The seed of the servers' sharings of zero.
    fn common(&self) -> Option<Seed>;
    /// Units under way.
    fn units(&self) -> &BTreeMap<UnitId, UnitState>;
    /// Goes on with a unit.
    fn resume(&mut self, unit: UnitId) -> Result<Effects<Self>, Error>;
    /// Something that tests wait for has come.
    fn prepared(&mut self) -> Result<Effects<Self>, Error>;

    /// A unit under way, once it was announced.
    fn context(&self, unit: UnitId) -> Option<Arc<UnitContext>> {
        self.units().get(&unit).and_then(|state| state.plan.clone())
    }

    /// The numbers of units under way.
    fn under_way(&self) -> Vec<UnitId> {
        self.units().keys().copied().collect()
    }
}

fn is_principal<H: Host>() -> bool {
    H::SIDE == PartyId::Principal
}

/// It, as messages to it are read.
fn server<H: Host>() -> Server {
    if is_principal::<H>() { Server::Principal } else { Server::Auxiliary }
}

fn other_side<H: Host>() -> PartyId {
    if is_principal::<H>() { PartyId::Auxiliary } else { PartyId::Principal }
}

/// One server's shares.
#[derive(Default)]
pub(crate) struct SecretServer {
    /// What clients deal to this server.
    masks: BTreeMap<usize, Masks>,
    data: BTreeMap<usize, Arc<Share<Ring64>>>,
    rounds: BTreeMap<RoundId, Round>,
    units: BTreeMap<UnitId, SecretUnit>,
}

#[derive(Default)]
struct Round {
    models: BTreeMap<usize, Arc<SharedModel>>,
    /// The first layer on each owner's samples.
    owners: BTreeMap<usize, FirstLayer>,
}

#[derive(Default)]
struct FirstLayer {
    masking: Masking,
    /// At the auxiliary: its share of the products that the owner dealt.
    dealt: Option<Vec<u8>>,
    started: bool,
    /// Outputs of all models, one below the other.
    outputs: Option<Arc<Share<Ring64>>>,
}

/// E = theta - U on its way to be opened.
#[derive(Default)]
struct Masking {
    started: bool,
    own: Option<Share<Ring64>>,
    other: Option<Vec<u8>>,
}

impl Masking {
    /// E, once both shares are there.
    fn open(&self, from: PartyId, kind: Kind) -> Result<Option<Share<Ring64>>, Error> {
        let (Some(own), Some(other)) = (&self.own, &self.other) else { return Ok(None) };
        let (rows, columns) = own.expose().shape();
        let malformed = |why| Error::Malformed { from, kind, why };
        let other = unpack_matrix(Ring64, rows, columns, other).map_err(malformed)?;
        Ok(Some(own.add(&Share::new(other))?))
    }
}

#[derive(Default)]
struct SecretUnit {
    /// What clients shared, by step.
    inputs: BTreeMap<usize, Arc<Shared>>,
    /// Later operators' maskings, and what they opened.
    maskings: BTreeMap<usize, Masking>,
    masked: BTreeMap<usize, Arc<Share<Ring64>>>,
    /// Which receives are under way.
    started: BTreeSet<(usize, usize)>,
    triples: BTreeMap<usize, Triple<Ring64>>,
    openings: BTreeMap<usize, Opening<Ring64>>,
}

/// What a client shared at a step: numbers, and the mask of the operator that takes them times the numbers.
struct Shared {
    input: Share<Ring64>,
    product: Option<Share<Ring64>>,
}

impl SecretServer {
    /// Whether every client has given what all tests need.
    pub(crate) fn is_ready(&self, session: &Session) -> bool {
        let all = 0..session.federation.clients;
        all.clone().all(|client| self.masks.contains_key(&client))
            && owners(session).all(|owner| self.data.contains_key(&owner))
    }

    pub(crate) fn forget_round(&mut self, round: RoundId) {
        self.rounds.remove(&round);
    }

    pub(crate) fn forget_unit(&mut self, unit: UnitId) {
        self.units.remove(&unit);
    }

    pub(crate) fn forget_test(&mut self, test: u64) {
        self.units.retain(|id, _| id.test != test);
    }

    /// What this server waits for, in words.
    pub(crate) fn missing<'a>(
        &self,
        session: &Session,
        side: PartyId,
        units: impl Iterator<Item = &'a Arc<UnitContext>>,
    ) -> Vec<String> {
        let from = |kind: Kind, client: usize| format!("{kind} from {}", PartyId::Client(client));
        let masks = (0..session.federation.clients).filter(|client| !self.masks.contains_key(client));
        let mut missing: Vec<String> = masks.map(|client| from(Kind::MaskSeed, client)).collect();
        let data = owners(session).filter(|owner| !self.data.contains_key(owner));
        missing.extend(data.map(|owner| from(Kind::DataShare, owner)));
        let contexts: Vec<_> = units.collect();
        let rounds: BTreeSet<RoundId> = contexts.iter().map(|context| context.round).collect();
        for round in rounds {
            missing.extend(self.missing_of_round(session, side, round));
        }
        for context in contexts {
            let unit = self.units.get(&context.id);
            let steps = session.program().steps.iter().enumerate().take(session.program().steps.len() - 1);
            let mut open = steps.filter(|(step, _)| unit.is_none_or(|unit| !unit.inputs.contains_key(step)));
            if let Some((step, decryption)) = open.next()
                && let Ok(client) = context.client(decryption.slot)
            {
                let UnitId { test, group, .. } = context.id;
                missing.push(format!(
                    "{} of test {test} group {group} step {step} from {}",
                    Kind::ActivationShare,
                    PartyId::Client(client)
                ));
            }
        }
        missing
    }

    fn missing_of_round(&self, session: &Session, side: PartyId, round: RoundId) -> Vec<String> {
        let of = |kind: Kind, from: PartyId| format!("{kind} of round {round} from {from}");
        let state = self.rounds.get(&round);
        let models = session.federation.participants(round).members();
        let models = models.filter(|i| state.is_none_or(|state| !state.models.contains_key(i)));
        let mut missing: Vec<String> = models.map(|i| of(Kind::ModelShare, PartyId::Client(i))).collect();
        for owner in owners(session) {
            let layer = state.and_then(|state| state.owners.get(&owner));
            let pending = layer.is_none_or(|layer| !layer.started);
            if pending && side == PartyId::Auxiliary && layer.is_none_or(|layer| layer.dealt.is_none()) {
                missing.push(of(Kind::DealtProduct, PartyId::Client(owner)));
            }
            if pending && layer.is_none_or(|layer| layer.masking.other.is_none()) {
                missing.push(format!("{} of round {round} from the other server", Kind::MaskedFirstLayer));
            }
        }
        missing
    }

    /// All models of a round in the order of their clients, once everybody's has come.
    fn all_models(&self, session: &Session, round: RoundId) -> Option<Vec<(usize, Arc<SharedModel>)>> {
        let models = &self.rounds.get(&round)?.models;
        let participants = session.federation.participants(round);
        participants.members().map(|i| models.get(&i).map(|model| (i, model.clone()))).collect()
    }
}

fn owners(session: &Session) -> impl Iterator<Item = usize> + '_ {
    (0..session.federation.clients).filter(|&client| session.hellos[client].samples > 0)
}
