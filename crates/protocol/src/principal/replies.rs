//! What replies are made of: both servers' halves and the members' biases, sanitised.

use std::sync::Arc;

use secsv_algebra::{Prg, Seed};
use secsv_he::{Ciphertext, PublicKey};

use crate::{
    Error, PartyId,
    error::CodecError,
    message::{OutputReply, Parts, StepAddress},
    role::{Incoming, Meter, Outgoing, Phase},
    server::{LocalModel, UnitContext},
    session::Session,
};

/// Replies of one job.
pub(super) struct Replies<'a> {
    session: &'a Session,
    operator: usize,
    public: Arc<PublicKey>,
    rng: Prg,
    parts: Vec<Vec<u8>>,
}

impl<'a> Replies<'a> {
    pub(super) fn new(
        session: &'a Session,
        operator: usize,
        public: Arc<PublicKey>,
        seed: &Seed,
    ) -> Result<Self, Error> {
        Ok(Self { session, operator, public, rng: Prg::new(seed), parts: Vec::new() })
    }

    /// Sanitises a sum of outputs of which some columns are wanted (SECURITY.md, replies).
    pub(super) fn add(
        &mut self,
        terms: &[(u32, &Ciphertext)],
        row: usize,
        wanted: impl Fn(usize) -> bool,
        meter: &mut Meter<'_>,
    ) -> Result<(), Error> {
        meter.enter(Phase::Sanitise);
        let encryption = self.session.encryption()?;
        let layout = &encryption.layouts[self.operator];
        let planned = layout.planned(row, wanted)?;
        let flooding = &encryption.floodings[self.operator];
        let reply = self.public.sanitise_sum(
            terms,
            layout.packing(),
            &planned,
            flooding,
            &mut self.rng,
            &mut meter.operations,
        )?;
        self.parts.push(reply.to_bytes(&encryption.parameters));
        Ok(())
    }

    /// The message with them.
    pub(super) fn message(&self, to: PartyId, address: StepAddress) -> Outgoing {
        Outgoing::of(to, &OutputReply { address, replies: Parts::from(&self.parts[..]) })
    }
}

/// The members' biases for one row of outputs, each counted once.
pub(super) fn biases<'a>(
    session: &Session,
    context: &UnitContext,
    operator: usize,
    row: usize,
    models: &'a [(usize, Arc<LocalModel>)],
) -> Vec<(u32, &'a Ciphertext)> {
    let members = session.members(context.round, context.coalition());
    let bias =
        |i: usize| models.iter().find(|(client, _)| *client == i).map(|(_, m)| &m.biases[operator][row]);
    members.iter().filter_map(|(i, _)| bias(*i).map(|bias| (1, bias))).collect()
}

/// Decodes exactly so many ciphertexts of a message, one at a time.
pub(super) fn ciphertexts<'a>(
    session: &'a Session,
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
    let parameters = &session.encryption()?.parameters;
    Ok(parts
        .into_iter()
        .map(move |part| Ciphertext::from_bytes(parameters, part).map_err(|e| malformed(e.into()))))
}
