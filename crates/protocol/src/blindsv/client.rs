//! BlindSV at a client: gives its models under masks, and deals for its own samples. It receives the schedule and the values.

use std::{collections::BTreeSet, sync::Arc};

use secsv_algebra::{Ring64, Seed, Share};
use secsv_federation::{Coalition, RoundId, SampleSet};

use super::{
    dealer::{Dealer, OwnerKeys, deal_known},
    keys::{OwnerKey, Place},
    later::LaterMasks,
    layer::{ModelMasks, data_share, deal_product, masked_model, model_masks, sample_words},
    server::check_test,
};
use crate::{
    Error, PartyId,
    error::CodecError,
    message::{
        BlindTest, DataShare, Dealing, DealtProduct, Kind, MaskSeed, MaskedModel, ModelMaskSeed, RoundStart,
        ShareBody,
    },
    participant::{ClientSecrets, Identity, KeyCheck, KeyHolder, own_right},
    role::{Effects, Incoming, Outgoing, Phase, waits_for},
    session::{BlindSession, Session},
};

/// What the leader makes: the seed of all masks of models.
pub(crate) struct BlindKeys;

impl KeyHolder for BlindKeys {
    type Session = BlindSession;
    const KEY_CHECK: KeyCheck = KeyCheck::None;

    /// Each server gets the seed of its own masks.
    fn leader_keys(_: &BlindSession, key: &Seed, _: &Seed) -> Vec<Outgoing> {
        let [principal, auxiliary] = model_masks(key);
        let seed = |to, seed| Outgoing::of(to, &ModelMaskSeed { seed });
        vec![seed(PartyId::Principal, principal), seed(PartyId::Auxiliary, auxiliary)]
    }

    fn check_key_bytes(_: &BlindSession, _: &[u8]) -> Result<(), CodecError> {
        Ok(())
    }

    fn check_public_key(_: &BlindSession, _: &ClientSecrets, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }
}

/// A client that takes part in tests.
pub(crate) struct BlindTesting {
    identity: Identity,
    session: BlindSession,
    masks: ModelMasks,
    keys: OwnerKeys,
    samples: Option<Arc<Share<Ring64>>>,
    labels: Arc<Vec<usize>>,
    /// Models that were dealt for: each once.
    used: BTreeSet<(RoundId, Coalition)>,
    /// Jobs under way: what is dealt comes of them.
    jobs: usize,
}

impl BlindTesting {
    /// A client that has the clients' secret, with what it gives the servers once.
    pub(crate) fn begin(
        identity: Identity,
        session: BlindSession,
        secrets: &ClientSecrets,
    ) -> Result<(Self, Effects<Self>), Error> {
        let masks = model_masks(&secrets.key);
        // For these samples, under this agreement.
        let own = identity.seed.covering(&[&identity.samples[..], &session.federation.digest()].concat());
        let keys = [0, 1].map(|server| OwnerKey::new(own.derive("owner's key", server)));
        let labels = identity.input.test_set.labels().iter().map(|&label| label as usize);
        let labels = Arc::new(labels.collect::<Vec<_>>());
        let mut effects = Effects::default();
        let mut samples = None;
        if !identity.input.test_set.is_empty() {
            let words = Arc::new(sample_words(&session, &identity.input.test_set)?);
            samples = Some(words.clone());
            for (to, key) in [PartyId::Principal, PartyId::Auxiliary].into_iter().zip(&keys) {
                effects.outbox.push(Outgoing::of(to, &MaskSeed { seed: key.seed().clone() }));
            }
            let (session, key, labels) = (session.clone(), keys[0].clone(), labels.clone());
            let owner = identity.position;
            effects.job(move |meter| {
                meter.enter(Phase::Share);
                let share = data_share(&session, owner, &key, &words, &labels);
                let share = DataShare { share: ShareBody::Elements(&share) };
                let message = Outgoing::of(PartyId::Auxiliary, &share);
                Ok(move |testing: &mut Self| testing.sends(message))
            });
        }
        let used = BTreeSet::new();
        let testing =
            Self { identity, session, masks, keys, samples, labels, used, jobs: effects.jobs.len() };
        Ok((testing, effects))
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.session.shared()
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What it waits for, in words.
    pub(crate) fn awaiting(&self) -> String {
        waits_for(self.identity.party(), &[])
    }

    /// Whether it has dealt for every coalition of every round: nobody needs it until the values come.
    pub(crate) fn has_dealt_all(&self) -> bool {
        let rounds = self.session.federation.rounds.keys();
        let coalitions = rounds.map(|&round| {
            let participants = self.session.federation.participants(round).len() as u32;
            1usize.checked_shl(participants).unwrap_or(usize::MAX) - 1
        });
        self.jobs == 0
            && self.samples.is_some()
            && self.used.len() >= coalitions.fold(0, usize::saturating_add)
    }

    pub(crate) fn on_message(&mut self, message: &Incoming) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        match (message.kind, message.from) {
            (Kind::RoundStart, PartyId::Principal) => {
                let RoundStart { round } = message.read(&())?;
                self.begin_round(round).map_err(malformed)
            }
            (Kind::BlindTest, PartyId::Principal) => {
                let test = message.read(&())?;
                self.deal_test(test).map_err(malformed)
            }
            _ => Err(message.unexpected("testing")),
        }
    }

    /// Sends what a job found.
    #[allow(clippy::unnecessary_wraps, reason = "it is what follows a job")]
    fn sends(&mut self, message: Outgoing) -> Result<Effects<Self>, Error> {
        self.jobs -= 1;
        Ok(Effects::send(message))
    }

    /// The model under masks if this client took part, masks times samples if it has any. A round that opens again gets the same
    /// bytes again.
    fn begin_round(&mut self, round: RoundId) -> Result<Effects<Self>, CodecError> {
        let (session, identity) = (&self.session, &self.identity);
        let participants = session.federation.participants(round);
        let has_model = participants.contains(identity.position) && identity.input.local.contains_key(&round);
        if !session.federation.rounds.contains_key(&round) || (!has_model && self.samples.is_none()) {
            return Err(CodecError::Value { what: "round" });
        }
        let mut effects = Effects::default();
        if has_model {
            let (session, identity, masks) = (session.clone(), identity.clone(), self.masks.clone());
            effects.job(move |meter| {
                meter.enter(Phase::Share);
                let mut outbox = Vec::new();
                if let Some(weights) = identity.input.local.get(&round) {
                    let model = masked_model(&session, &masks, (round, identity.position), weights)?;
                    let model = MaskedModel { round, elements: &model };
                    let principal = Outgoing::of(PartyId::Principal, &model);
                    let auxiliary =
                        Outgoing::new(PartyId::Auxiliary, Kind::MaskedModel, principal.content.clone());
                    outbox.extend([principal, auxiliary]);
                }
                Ok(move |testing: &mut Self| {
                    testing.jobs -= 1;
                    Ok(Effects { outbox, jobs: Vec::new() })
                })
            });
        }
        if let Some(samples) = self.samples.clone() {
            let (session, keys, masks) = (session.clone(), self.keys.clone(), self.masks.clone());
            let owner = identity.position;
            effects.job(move |meter| {
                meter.enter(Phase::Linear);
                let dealt = deal_product(&session, &keys, &masks, (round, owner), &samples)?;
                let dealt = DealtProduct { round, elements: &dealt };
                let message = Outgoing::of(PartyId::Auxiliary, &dealt);
                Ok(move |testing: &mut Self| testing.sends(message))
            });
        }
        self.jobs += effects.jobs.len();
        Ok(effects)
    }

    /// Deals for a test: for coalitions that it does not know what the servers need, for others its own count.
    fn deal_test(&mut self, test: BlindTest) -> Result<Effects<Self>, CodecError> {
        check_test(&self.session, &test)?;
        let BlindTest { request, round, coalitions, samples } = test;
        if coalitions.iter().any(|&coalition| self.used.contains(&(round, coalition))) {
            return Err(CodecError::Value { what: "coalition, which was tested before" });
        }
        self.used.extend(coalitions.iter().map(|&coalition| (round, coalition)));
        let (session, identity) = (self.session.clone(), self.identity.clone());
        let (keys, labels, masks) = (self.keys.clone(), self.labels.clone(), self.masks.clone());
        let part = session.parts(samples.as_ref()).find(|(owner, ..)| *owner == identity.position);
        let (_, tested, chunks) = part.ok_or(CodecError::Value { what: "test, without samples" })?;
        let mut effects = Effects::default();
        effects.job(move |meter| {
            meter.enter(Phase::Share);
            let owner = identity.position;
            let is_known = |coalition: &Coalition| session.knows(owner, round, *coalition);
            let (known, secure): (Vec<Coalition>, Vec<Coalition>) =
                coalitions.into_iter().partition(is_known);
            let length = secure.len() * chunks.dealt_len() + known.len() * chunks.outcome_len();
            let mut dealt = Dealing::begin(request, length);
            let tested = tested.unwrap_or_else(|| (0..labels.len()).collect());
            let labels: Vec<usize> = tested.iter().map(|&sample| labels[sample]).collect();
            for coalition in secure {
                let later = (1..session.program().operators.len())
                    .map(|operator| LaterMasks::new(&session, &masks, (round, coalition), operator));
                let (later, scales) =
                    (later.collect::<Result<Vec<_>, Error>>()?, session.scales(round, coalition));
                for (first, shape) in chunks.iter() {
                    let dealer = Dealer {
                        shape: &shape,
                        keys: &keys,
                        place: Place { round, coalition, first },
                        scales: &scales,
                        later: &later,
                        labels: &labels[first..first + shape.samples()],
                    };
                    dealer.deal(&mut dealt)?;
                }
            }
            meter.enter(Phase::Clear);
            let mut asked = SampleSet::none(identity.input.test_set.len());
            tested.iter().for_each(|&sample| asked.insert(sample));
            for coalition in known {
                let right = own_right(&session.federation, owner, &identity.input, round, coalition, &asked)?;
                let right = tested.iter().map(|&sample| right.contains(sample));
                let place = Place::of_model(round, coalition);
                deal_known(&chunks, &keys[0], place, (right, &labels), &mut dealt);
            }
            let message = Outgoing::new(PartyId::Auxiliary, Kind::Dealing, dealt);
            Ok(move |testing: &mut Self| testing.sends(message))
        });
        self.jobs += effects.jobs.len();
        Ok(effects)
    }
}
