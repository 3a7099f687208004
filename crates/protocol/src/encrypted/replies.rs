//! Replies to decryptors: outputs of layers and the members' biases, sanitised (SECURITY.md, replies).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use secsv_algebra::{Prg, Seed};
use secsv_he::{Ciphertext, PublicKey};

use super::{RoundModels, member_terms};
use crate::{
    Error, PartyId,
    check::{wanted_batches, wanted_of},
    error::CodecError,
    message::{FirstLayerBatchId, OutputReply, Parts, StepAddress},
    program::{Input, Receive},
    role::{Digest, Effects, Incoming, Meter, Outgoing, Phase},
    session::EncryptedSession,
    unit::UnitContext,
};

/// First-layer outputs of every model on a chunk.
pub(crate) struct FirstOutputs {
    /// Model by model.
    pub ciphertexts: Vec<Vec<Ciphertext>>,
    /// Of the auxiliary's half, where there is one.
    pub half: Digest,
}

/// First-layer outputs of a round, chunk by chunk.
pub(crate) type RoundOutputs = BTreeMap<(FirstLayerBatchId, usize), Arc<FirstOutputs>>;

/// Replies of one job.
pub(crate) struct Replies<'a> {
    session: &'a EncryptedSession,
    operator: usize,
    public: &'a PublicKey,
    rng: Prg,
    parts: Vec<Vec<u8>>,
}

impl<'a> Replies<'a> {
    pub(crate) fn new(
        session: &'a EncryptedSession,
        operator: usize,
        public: &'a PublicKey,
        seed: &Seed,
    ) -> Self {
        Self { session, operator, public, rng: Prg::new(seed), parts: Vec::new() }
    }

    /// Sanitises a sum of outputs of which some columns are wanted.
    pub(crate) fn add(
        &mut self,
        terms: &[(u32, &Ciphertext)],
        row: usize,
        wanted: impl Fn(usize) -> bool,
        meter: &mut Meter<'_>,
    ) -> Result<(), Error> {
        meter.enter(Phase::Sanitise);
        let layout = self.session.layout(self.operator);
        let planned = layout.planned(row, wanted)?;
        let flooding = &self.session.encryption.floodings[self.operator];
        let (packing, ops) = (layout.packing(), &mut meter.operations);
        let reply = self.public.sanitise_sum(terms, packing, &planned, flooding, &mut self.rng, ops)?;
        self.parts.push(reply.to_bytes(self.session.parameters()));
        Ok(())
    }

    /// The message with them.
    pub(crate) fn message(&self, to: PartyId, address: StepAddress) -> Outgoing {
        Outgoing::of(to, &OutputReply { address, replies: Parts::from(&self.parts[..]) })
    }
}

/// What the replies of a unit are made from at the principal.
pub(crate) struct UnitReplies<'a> {
    pub session: &'a EncryptedSession,
    pub context: &'a Arc<UnitContext>,
    pub public: &'a Arc<PublicKey>,
    /// The principal's own.
    pub seed: &'a Seed,
    /// Of everything that outputs of the round are computed from.
    pub inputs: Digest,
}

impl UnitReplies<'_> {
    /// Randomness for one reply, which covers everything that the reply is made from.
    pub(crate) fn seed(&self, address: StepAddress, purpose: &str, covered: &[Digest]) -> Seed {
        let seed = address.seed(self.seed, purpose);
        seed.covering([&[self.context.digest, self.inputs], covered].concat().as_flattened())
    }

    /// Replies with first-layer outputs, chunk by chunk. `sent` are the addresses of replies that are on their way.
    pub(crate) fn first_layer<R: 'static>(
        &self,
        outputs: &RoundOutputs,
        sent: &mut BTreeSet<StepAddress>,
    ) -> Effects<R> {
        let mut effects = Effects::default();
        let context = self.context;
        let sent_models = &context.combinations(self.session).sent;
        for (step, decryption) in self.session.program().steps.iter().enumerate() {
            let receives = decryption.receives.iter();
            let items = receives.flat_map(|receive| sent_models.iter().map(move |&model| (receive, model)));
            for (item, (receive, model)) in items.enumerate() {
                let &Receive::Outputs { operator, input: Input::Data, first, count } = receive else {
                    continue;
                };
                for chunk in context.layer_batch.wanted_chunks(&context.selections[model].samples) {
                    let Some(outputs) = outputs.get(&(context.layer_batch.id, chunk)) else { continue };
                    let address = StepAddress { unit: context.id, step, item, chunk };
                    if sent.insert(address) {
                        let part = FirstLayerPart { operator, positions: (first, count), model };
                        self.first_layer_chunk(&mut effects, address, part, outputs.clone());
                    }
                }
            }
        }
        effects
    }

    /// A reply with the outputs of one coalition on one chunk.
    fn first_layer_chunk<R: 'static>(
        &self,
        effects: &mut Effects<R>,
        address: StepAddress,
        FirstLayerPart { operator, positions, model }: FirstLayerPart,
        outputs: Arc<FirstOutputs>,
    ) {
        let seed = self.seed(address, "reply", &[outputs.half]);
        let to = PartyId::Client(self.context.decryptor(address.step));
        let (session, context, public) = (self.session.clone(), self.context.clone(), self.public.clone());
        effects.job(move |meter| {
            let layout = session.layout(operator);
            let members = session.members(context.round, context.plan.coalitions[model]);
            let order: Vec<usize> = session.federation.participants(context.round).members().collect();
            let places = members.iter().filter_map(|(i, _)| order.iter().position(|client| client == i));
            let members: Vec<_> = places.filter_map(|place| outputs.ciphertexts.get(place)).collect();
            let (samples, chunk) = (&context.selections[model].samples, address.chunk);
            let wants = context.layer_batch.wants(samples, chunk, positions);
            let columns = session.program().operators[operator].positions * context.layer_batch.length(chunk);
            let mut replies = Replies::new(&session, operator, &public, &seed);
            for batch in wanted_batches(layout, columns, &wants) {
                for row in 0..layout.rows() {
                    let outputs = members.iter().filter_map(|member| member.get(batch * layout.rows() + row));
                    let terms: Vec<(u32, &Ciphertext)> = outputs.map(|output| (1, output)).collect();
                    replies.add(&terms, row, wanted_of(layout, columns, batch, &wants), meter)?;
                }
            }
            let message = replies.message(to, address);
            Ok(move |_: &mut R| Ok(Effects::send(message)))
        });
    }

    /// Replies with biases alone: the hidden gates of a zero state.
    pub(crate) fn biases<R: 'static, W: Send + Sync + 'static>(
        &self,
        models: &RoundModels<W>,
        sent: &mut BTreeSet<StepAddress>,
    ) -> Effects<R> {
        let mut effects = Effects::default();
        for (step, decryption) in self.session.program().steps.iter().enumerate() {
            for (item, receive) in decryption.receives.iter().enumerate() {
                let &Receive::Bias { operator } = receive else { continue };
                let address = StepAddress { item, ..StepAddress::new(self.context.id, step) };
                if !sent.insert(address) {
                    continue;
                }
                let to = PartyId::Client(self.context.decryptor(step));
                let seed = self.seed(address, "bias reply", &[]);
                let (session, context, public) =
                    (self.session.clone(), self.context.clone(), self.public.clone());
                let models = models.clone();
                effects.job(move |meter| {
                    let (layout, columns) = (session.layout(operator), context.places().len());
                    let mut replies = Replies::new(&session, operator, &public, &seed);
                    for batch in 0..layout.batches(columns) {
                        for row in 0..layout.rows() {
                            let terms = member_terms(&session, context.model(), &models, |model| {
                                &model.biases[operator][row]
                            });
                            replies.add(&terms, row, wanted_of(layout, columns, batch, |_| true), meter)?;
                        }
                    }
                    let message = replies.message(to, address);
                    Ok(move |_: &mut R| Ok(Effects::send(message)))
                });
            }
        }
        effects
    }
}

/// Which first-layer outputs a reply is about.
struct FirstLayerPart {
    operator: usize,
    /// The first position of the layer, and how many.
    positions: (usize, usize),
    /// Which of the unit's coalitions.
    model: usize,
}

/// Decodes `expected` ciphertexts of a message, one at a time.
pub(crate) fn ciphertexts<'a>(
    session: &'a EncryptedSession,
    message: &'a Incoming,
    Parts(parts): Parts<'a>,
    expected: usize,
    meter: &mut Meter<'_>,
) -> Result<impl Iterator<Item = Result<Ciphertext, Error>> + 'a, Error> {
    meter.enter(Phase::Codec);
    let malformed = move |why| message.malformed(why);
    if parts.len() != expected {
        return Err(malformed(CodecError::Value { what: "number of ciphertexts" }));
    }
    let parameters = session.parameters();
    Ok(parts
        .into_iter()
        .map(move |part| Ciphertext::from_bytes(parameters, part).map_err(|e| malformed(e.into()))))
}
