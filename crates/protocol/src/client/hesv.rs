//! A client's part in HESV: it encrypts its samples and labels as well as its models, encrypts again what it makes of
//! layers' outputs, and counts zeros among blinded differences.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use secsv_algebra::{Field, Matrix, Prg, Secret, Seed};
use secsv_federation::Coalition;
use secsv_he::SecretKey;

use super::Client;
use crate::{
    Error, PartyId,
    activation::Handed,
    check,
    error::CodecError,
    hesv::{Upload, encrypt_batches, is_hesv, open_slots, rotation_steps},
    ideal::columns_of,
    message::{
        BlindedDifferences, Count, EncryptedData, EncryptedLabels, EvaluationKeys, Kind, Message as _,
        OutputReply, Parts, StepAddress, UnitId,
    },
    model::sample_values,
    role::{Effects, Meter, Outgoing, Phase},
    server::UnitContext,
    session::Session,
};

/// What only HESV has a client remember.
#[derive(Default)]
pub(super) struct HesvClient {
    /// Units whose right answers this client counts.
    counting: BTreeMap<UnitId, Arc<UnitContext>>,
}

impl HesvClient {
    pub(super) fn forget(&mut self, units: RangeInclusive<UnitId>) {
        self.counting.extract_if(units, |_, _| true).for_each(drop);
    }
}

impl Client {
    pub(super) fn is_hesv(&self) -> bool {
        self.federation.settings.protocol == crate::decryptors::Protocol::Hesv
    }

    /// The leader's keys for the server: to re-randomise, to multiply and to rotate (Algorithm 1, step 2).
    pub(super) fn evaluation_keys(
        &self,
        session: &Session,
        secret: &SecretKey,
        public: &[u8],
    ) -> Result<Outgoing, Error> {
        let mut rng = Prg::new(&self.seed.derive("evaluation key", 0));
        let evaluation = secret.evaluation_key(&rotation_steps(session)?, &mut rng);
        let evaluation = &evaluation.to_bytes(secret.parameters());
        Ok(Outgoing::of(PartyId::Principal, &EvaluationKeys { public, evaluation }))
    }

    /// Encrypts the samples, chunk by chunk (Algorithm 1, step 3).
    pub(super) fn upload_data(&mut self, session: &Arc<Session>) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let own = Coalition::EMPTY.with(self.position);
        let key = self.key.clone().ok_or(Error::Local { what: "the clients' key" })?;
        for group in session.groups.iter().filter(|group| group.owners == own) {
            for chunk in group.chunks.clone() {
                let (session, input, key) = (session.clone(), self.input.clone(), key.clone());
                let seed = self.seed.derive("encrypted data", chunk as u64);
                effects.job(move |meter| {
                    meter.enter(Phase::Encrypt);
                    let values = sample_values(session.program(), &input.test_set);
                    let format = session.precision.operators[0].input;
                    let samples = Secret::new(values.encode(session.field(), format, 1)?);
                    let places = &session.chunks[chunk].places;
                    let columns = Secret::new(columns_of(samples.expose(), places.start, places.len()));
                    let columns = Secret::new(session.program().operators[0].arrange(columns.expose())?);
                    let mut rng = Prg::new(&seed.covering_words([columns.expose().elements()]));
                    let parts = encrypt_batches(&session, 0, columns.expose(), &key, &mut rng, meter)?;
                    let data = EncryptedData { chunk, batches: Parts::from(&parts[..]) };
                    let message = Outgoing::of(PartyId::Principal, &data);
                    Ok(move |_: &mut Self| Ok(Effects::send(message)))
                });
            }
        }
        Ok(effects)
    }

    /// Encrypts the labels of a unit's samples, sample by sample.
    pub(super) fn encrypted_truth(
        &mut self,
        session: &Arc<Session>,
        context: &Arc<UnitContext>,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let address = StepAddress::new(context.id, 0);
        let seed = address.seed(&self.seed, "encrypted truth");
        let key = self.key.clone().ok_or(Error::Local { what: "the clients' key" })?;
        let (session, context, input, position) =
            (session.clone(), context.clone(), self.input.clone(), self.position);
        effects.job(move |meter| {
            meter.enter(Phase::Encrypt);
            let places = session.groups[context.plan.group].places(position);
            let own = context.places().iter().filter(|place| places.contains(place));
            let labels = own.map(|place| input.test_set.labels()[place - places.start] as u64);
            let labels = Secret::new(labels.collect::<Vec<u64>>());
            let seed = seed.covering(&context.digest).covering_words([labels.expose().as_slice()]);
            let slots = key.encrypt_slots(labels.expose(), &mut Prg::new(&seed), &mut meter.operations)?;
            let labels = EncryptedLabels { address, slots: &slots.to_bytes(key.parameters()) };
            let message = Outgoing::of(PartyId::Principal, &labels);
            Ok(move |_: &mut Self| Ok(Effects::send(message)))
        });
        Ok(effects)
    }

    /// Remembers a unit whose right answers this client counts.
    pub(super) fn await_differences(&mut self, context: &Arc<UnitContext>) {
        if self.is_hesv() && context.plan.counter == Some(self.position) {
            self.hesv.counting.insert(context.id, context.clone());
        }
    }

    /// Counts zeros (Algorithm 2, step 11). The others are random: the server multiplied them (PROTOCOL.md 2).
    pub(super) fn count_right(
        &mut self,
        session: &Arc<Session>,
        content: Vec<u8>,
    ) -> Result<Effects<Self>, CodecError> {
        let BlindedDifferences { address, replies } = BlindedDifferences::decode(&content, &())?;
        let (Some(context), Some(key)) = (self.hesv.counting.get(&address.unit).cloned(), self.key.clone())
        else {
            return Err(CodecError::Value { what: "unit to count" });
        };
        check::slot_replies(session, context.places().len(), &replies)?;
        self.hesv.counting.remove(&address.unit);
        let mut effects = Effects::default();
        let session = session.clone();
        effects.job(move |meter| {
            let (samples, kind) = (context.places().len(), Kind::BlindedDifferences);
            let malformed = |why| Error::Malformed { from: PartyId::Principal, kind, why };
            let BlindedDifferences { replies, .. } =
                BlindedDifferences::decode(&content, &()).map_err(malformed)?;
            let differences = open_slots(&session, samples, &key, kind, &replies, meter)?;
            let right = differences.expose().iter().filter(|&&difference| difference == 0).count();
            let count = Count { address: StepAddress::new(context.id, 0), right: right as u64 };
            let message = Outgoing::of(PartyId::Principal, &count);
            Ok(move |_: &mut Self| Ok(Effects::send(message)))
        });
        Ok(effects)
    }
}

/// What a step handed on, encrypted, where the protocol is HESV.
pub(super) fn encrypted(
    session: &Session,
    address: StepAddress,
    handed: &Handed<Field>,
    key: &SecretKey,
    seed: &Seed,
    meter: &mut Meter<'_>,
) -> Result<Option<Outgoing>, Error> {
    if !is_hesv(session) {
        return Ok(None);
    }
    let seed = seed.derive("encrypted", 0);
    let seed = match handed {
        Handed::Shared(matrix) => seed.covering_words([matrix.elements()]),
        Handed::Labels(labels) => {
            let labels = Secret::new(labels.iter().map(|&label| label.into()).collect::<Vec<u64>>());
            seed.covering_words([labels.expose().as_slice()])
        }
    };
    let mut rng = Prg::new(&seed);
    Upload::encrypt(session, address, handed, key, &mut rng, meter).map(Some)
}

/// The gated sum, as the server computed it.
pub(super) fn opened_sum(
    session: &Session,
    context: &UnitContext,
    key: &SecretKey,
    reply: &OutputReply<'_>,
    meter: &mut Meter<'_>,
) -> Result<Matrix<Field>, Error> {
    let hidden = session.program().gru.map_or(0, |gru| gru.hidden);
    let samples = context.places().len();
    let opened = open_slots(session, hidden * samples, key, Kind::Reply, &reply.replies, meter)?;
    Ok(Matrix::new(session.field(), hidden, samples, opened.expose().clone())?)
}
