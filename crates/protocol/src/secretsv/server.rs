//! What both servers do in SecretSV, each with its own shares.

mod first_layer;
mod outputs;
mod receive;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use secsv_algebra::{Matrix, Ring64, Seed, Share};
use secsv_federation::RoundId;

use super::{Masks, SharedModel};
use crate::{
    Error, PartyId,
    codec::unpack_matrix,
    disclosure::Disclosure,
    gated_sums::GatedSums,
    message::{Kind, Server, StepAddress, UnitId},
    role::Effects,
    session::Session,
    unit::{UnitContext, missing_input},
};
pub(super) use outputs::advance;
pub(super) use receive::{take, take_share};

/// A server of SecretSV: which of the two it is, and where it keeps what.
pub(super) trait ShareHost: Sized + Send + 'static {
    /// Which of the two it is.
    const SERVER: Server;

    /// What it keeps for all units.
    fn secret(&mut self) -> &mut SecretServer;

    /// The seed of the servers' sharings of zero.
    fn common(&self) -> Option<Seed>;

    /// A unit under way.
    fn secret_unit(&mut self, unit: UnitId) -> Option<&mut SecretUnit>;

    /// Goes on with a unit.
    fn resume(&mut self, unit: UnitId) -> Result<Effects<Self>, Error>;

    /// Goes on with all units.
    fn resume_all(&mut self) -> Result<Effects<Self>, Error>;

    /// Something that tests wait for has come.
    fn prepared(&mut self) -> Result<Effects<Self>, Error>;
}

/// The other server of the two.
fn other_party<H: ShareHost>() -> PartyId {
    H::SERVER.other().party()
}

/// One server's shares.
#[derive(Default)]
pub(super) struct SecretServer {
    /// What clients deal to this server.
    masks: BTreeMap<usize, Masks>,
    data: BTreeMap<usize, Arc<Share<Ring64>>>,
    rounds: BTreeMap<RoundId, SharedRound>,
}

/// Models of a round, and their first layer on each owner's samples.
#[derive(Default)]
struct SharedRound {
    models: BTreeMap<usize, Arc<SharedModel>>,
    owners: BTreeMap<usize, FirstLayer>,
}

/// The first layer of a round on one owner's samples.
#[derive(Default)]
struct FirstLayer {
    masking: Masking,
    /// At the auxiliary: its share of the products that the owner dealt.
    dealt: Option<Vec<u8>>,
    outputs: FirstProduct,
}

/// First-layer outputs, by what they wait for.
#[derive(Default)]
enum FirstProduct {
    /// The opened mask, or what the owner deals.
    #[default]
    Factors,
    /// The product, which is computed.
    Product,
    /// Nothing: outputs of all models, one below the other.
    Known(Arc<Share<Ring64>>),
}

/// E = theta - U on its way to be opened, by what it waits for.
enum Masking {
    /// The models. The other server's share may have come.
    Models { other: Option<Vec<u8>> },
    /// The own share, which is computed.
    Own { other: Option<Vec<u8>> },
    /// The other server's share.
    OtherServer(Share<Ring64>),
    /// Nothing: it is known.
    Open(Arc<Matrix<Ring64>>),
    /// Nothing: it was used.
    Used,
}

impl Default for Masking {
    fn default() -> Self {
        Self::Models { other: None }
    }
}

impl Masking {
    /// Whether the own share has to be computed: it is asked for once.
    fn begin(&mut self) -> bool {
        let Self::Models { other } = self else { return false };
        *self = Self::Own { other: other.take() };
        true
    }

    /// Takes the own share.
    fn take_own<H: ShareHost>(
        &mut self,
        session: &Session,
        own: Share<Ring64>,
        kind: Kind,
    ) -> Result<(), Error> {
        let Self::Own { other } = self else { return Ok(()) };
        *self = match other.take() {
            Some(other) => Self::open::<H>(session, &own, &other, kind)?,
            None => Self::OtherServer(own),
        };
        Ok(())
    }

    /// Takes the other server's share, whose length was checked.
    fn take_other<H: ShareHost>(
        &mut self,
        session: &Session,
        elements: &[u8],
        kind: Kind,
    ) -> Result<(), Error> {
        match self {
            Self::Models { other } | Self::Own { other } => *other = Some(elements.to_vec()),
            Self::OtherServer(own) => *self = Self::open::<H>(session, own, elements, kind)?,
            Self::Open(_) | Self::Used => {}
        }
        Ok(())
    }

    fn open<H: ShareHost>(
        session: &Session,
        own: &Share<Ring64>,
        other: &[u8],
        kind: Kind,
    ) -> Result<Self, Error> {
        let (rows, columns) = own.expose().shape();
        let malformed = |why| Error::Malformed { from: other_party::<H>(), kind, why };
        let other = unpack_matrix(Ring64, rows, columns, other).map_err(malformed)?;
        let opened = session.opening(Disclosure::MaskedFactors)?.sum(own.expose(), &other)?;
        Ok(Self::Open(Arc::new(opened)))
    }

    fn opened(&self) -> Option<&Arc<Matrix<Ring64>>> {
        if let Self::Open(opened) = self { Some(opened) } else { None }
    }

    /// Whether the other server's share has not come.
    fn awaits_other(&self) -> bool {
        matches!(self, Self::Models { other: None } | Self::Own { other: None } | Self::OtherServer(_))
    }
}

/// A unit at one server, but for its labels.
pub(super) struct SecretUnit {
    pub context: Arc<UnitContext>,
    /// What clients shared, by step.
    inputs: BTreeMap<usize, Arc<Shared>>,
    /// Later operators' maskings.
    maskings: BTreeMap<usize, Masking>,
    /// Outputs that are computed.
    begun: BTreeSet<StepAddress>,
    sums: GatedSums<Ring64>,
}

impl SecretUnit {
    pub(super) fn new(context: Arc<UnitContext>, server: Server) -> Self {
        let (inputs, maskings, begun) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { context, inputs, maskings, begun, sums: GatedSums::new(Ring64, server, "outputs of a test") }
    }

    /// What has not come, and from whom, in words.
    pub(super) fn missing(&self, session: &Session) -> Vec<String> {
        let input = missing_input(session, &self.context, |step| self.inputs.contains_key(&step));
        input.into_iter().chain(self.sums.missing(session, &self.context)).collect()
    }
}

/// Something that a client shared at a step: numbers, and for each operator that takes some of them its mask times these.
struct Shared {
    input: Share<Ring64>,
    products: BTreeMap<usize, Arc<Share<Ring64>>>,
}

impl SecretServer {
    /// Whether every client has given what all tests need.
    pub(super) fn is_ready(&self, session: &Session) -> bool {
        let all = 0..session.federation.clients;
        all.clone().all(|client| self.masks.contains_key(&client))
            && owners(session).all(|owner| self.data.contains_key(&owner))
    }

    pub(super) fn forget_round(&mut self, round: RoundId) {
        self.rounds.remove(&round);
    }

    /// What this server waits for beside units, in words. `rounds` are those that units are about.
    pub(super) fn missing(
        &self,
        session: &Session,
        server: Server,
        rounds: BTreeSet<RoundId>,
    ) -> Vec<String> {
        let from = |kind: Kind, client: usize| format!("{kind} from {}", PartyId::Client(client));
        let masks = (0..session.federation.clients).filter(|client| !self.masks.contains_key(client));
        let data = owners(session).filter(|owner| !self.data.contains_key(owner));
        let masks = masks.map(|client| from(Kind::MaskSeed, client));
        let data = data.map(|owner| from(Kind::DataShare, owner));
        let rounds = rounds.into_iter().flat_map(|round| self.missing_of_round(session, server, round));
        masks.chain(data).chain(rounds).collect()
    }

    fn missing_of_round(&self, session: &Session, server: Server, round: RoundId) -> Vec<String> {
        let of = |kind: Kind, from: PartyId| format!("{kind} of round {round} from {from}");
        let state = self.rounds.get(&round);
        let models = session.federation.participants(round).members();
        let models = models.filter(|i| state.is_none_or(|state| !state.models.contains_key(i)));
        let mut missing: Vec<String> = models.map(|i| of(Kind::ModelShare, PartyId::Client(i))).collect();
        for owner in owners(session) {
            let layer = state.and_then(|state| state.owners.get(&owner));
            let pending = layer.is_none_or(|layer| matches!(layer.outputs, FirstProduct::Factors));
            if pending && server == Server::Auxiliary && layer.is_none_or(|layer| layer.dealt.is_none()) {
                missing.push(of(Kind::DealtProduct, PartyId::Client(owner)));
            }
            if pending && layer.is_none_or(|layer| layer.masking.awaits_other()) {
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
