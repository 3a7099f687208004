//! Labels as clients give them to two servers: times blinding factors, masked, in two shares (PROTOCOL.md 2).

use std::sync::Arc;

use secsv_algebra::{Matrix, Ring, Secret, Seed, share::split as share};
use secsv_federation::{Coalition, RoundId};

use super::{ClientEngine, Testing};
use crate::{
    PartyId,
    activation::Handed,
    codec::pack,
    comparison::commitment,
    labels::{self, Labels, Packed, Wiped},
    message::{ActivationShare, Kind, LabelBody, LabelShare, PredictionShare, ShareBody, StepAddress},
    role::{Effects, Outgoing, Phase},
    session::Session,
    unit::{Segment, UnitContext},
};

/// Shares the true labels of a unit's samples that are this client's.
pub(crate) fn share_labels<E: ClientEngine>(
    testing: &Testing<E>,
    context: &Arc<UnitContext>,
) -> Effects<Testing<E>> {
    let mut effects = Effects::default();
    let address = StepAddress::new(context.id, 0);
    let (identity, secret) = (testing.identity.clone(), testing.engine.label_secret().clone());
    let (session, context) = (testing.engine.session().clone(), context.clone());
    effects.job(move |meter| {
        meter.enter(Phase::Share);
        let position = identity.position;
        let mut packed = labels::empty(context.truth_bytes(&session, position));
        for (round, number) in context.shared_truths(&session, position) {
            for segment in context.segments(&session, number).filter(|segment| segment.owner == position) {
                let label = |sample| identity.input.test_set.labels()[sample] as u16;
                let labels = Labels::new(Wiped(segment.samples().map(label).collect()));
                let model = (round, context.plan.coalitions[number]);
                blind(&session, &secret, model, segment, labels.expose(), &mut packed);
            }
        }
        let seed = address.seed(&identity.seed, "truth").covering(&context.digest).covering(packed.expose());
        let rest = labels::rest(packed, &seed);
        let outbox = label_shares(identity.party(), Kind::LabelShare, address, &seed, &rest);
        Ok(move |_: &mut Testing<E>| Ok(Effects { outbox, jobs: Vec::new() }))
    });
    effects
}

/// A decryptor that shares what it made of a step's outputs.
pub(crate) struct Resharer<'a> {
    pub session: &'a Session,
    pub context: &'a UnitContext,
    pub address: StepAddress,
    pub own: PartyId,
    /// Of this client, for this step.
    pub seed: &'a Seed,
    /// The secret that labels are hidden with.
    pub secret: &'a Seed,
}

impl Resharer<'_> {
    /// Shares of activations, or of predicted labels. `dealt` follows the auxiliary's share of activations.
    pub(crate) fn share<R: Ring, E>(
        &self,
        handed: Handed<R>,
        dealt: impl FnOnce(&Matrix<R>) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<Outgoing>, E> {
        Ok(match handed {
            Handed::Shared(matrix) => {
                let matrix = Secret::new(matrix);
                let seed = self.seed.covering(&self.context.digest);
                let seed = seed.covering_words([matrix.expose().elements()]);
                let (seeded, rest) = share(matrix.expose(), seed);
                let mut rest = pack(matrix.expose().ring(), rest.expose().elements());
                rest.extend(dealt(matrix.expose())?);
                activation_shares(self.address, seeded.seed(), &rest)
            }
            Handed::Labels(classes) => {
                let (seed, rest) = blinded(self.session, self.secret, self.context, classes, self.seed);
                label_shares(self.own, Kind::PredictionShare, self.address, &seed, &rest)
            }
        })
    }
}

/// Shares of activations for both servers.
fn activation_shares(address: StepAddress, seed: &Seed, rest: &[u8]) -> Vec<Outgoing> {
    let shares = [
        (PartyId::Principal, ActivationShare { address, share: ShareBody::Seed(seed.clone()) }),
        (PartyId::Auxiliary, ActivationShare { address, share: ShareBody::Elements(rest) }),
    ];
    shares.iter().map(|(to, share)| Outgoing::of(*to, share)).collect()
}

/// Shares of true or predicted labels for both servers, with a commitment for the auxiliary to the principal's seed.
pub(crate) fn label_shares(
    own: PartyId,
    kind: Kind,
    address: StepAddress,
    seed: &Seed,
    rest: &[u8],
) -> Vec<Outgoing> {
    let commitment = commitment(own, kind, address, seed);
    let shares = [
        (PartyId::Principal, LabelBody::Seed(seed.clone())),
        (PartyId::Auxiliary, LabelBody::Committed { commitment, labels: rest }),
    ];
    let message = |(to, share)| match kind {
        Kind::PredictionShare => Outgoing::of(to, &PredictionShare { address, share }),
        _ => Outgoing::of(to, &LabelShare { address, share }),
    };
    shares.into_iter().map(message).collect()
}

/// Predicted labels times blinding factors in two shares, where models are not tested together: the principal's is a seed.
fn blinded(
    session: &Session,
    secret: &Seed,
    context: &UnitContext,
    labels: Vec<u16>,
    seed: &Seed,
) -> (Seed, Vec<u8>) {
    let labels = Secret::new(Wiped(labels));
    let mut packed = labels::empty(context.label_bytes(session));
    blind_all(session, secret, context, (context.round, 0), labels.expose(), &mut packed);
    let seed = seed.covering(&context.digest).covering(packed.expose());
    let rest = labels::rest(packed, &seed);
    (seed, rest)
}

/// Appends the segments of a coalition's labels in a round, which are those of all its places.
fn blind_all(
    session: &Session,
    secret: &Seed,
    context: &UnitContext,
    (round, number): (RoundId, usize),
    labels: &[u16],
    packed: &mut Packed,
) {
    let mut rest = labels;
    for segment in context.segments(session, number) {
        let (labels, later) = rest.split_at(segment.places.len());
        blind(session, secret, (round, context.plan.coalitions[number]), segment, labels, packed);
        rest = later;
    }
}

/// Appends a segment of a model's labels times blinding factors, masked.
fn blind(
    session: &Session,
    secret: &Seed,
    model: (RoundId, Coalition),
    segment: Segment<'_>,
    labels: &[u16],
    packed: &mut Packed,
) {
    let field = session.label_field();
    let begin = packed.expose().len();
    if field.has_factors() {
        field.pack_blinded(labels, factors(session, secret, model, segment).expose(), packed);
    } else {
        field.pack(labels, packed);
    }
    hide(session, secret, model, segment, &mut packed.expose_mut()[begin..]);
}

/// Adds masks that no server knows to a packed segment of a model's labels.
pub(crate) fn hide(
    session: &Session,
    secret: &Seed,
    model: (RoundId, Coalition),
    segment: Segment<'_>,
    packed: &mut [u8],
) {
    let (field, samples) = (session.label_field(), session.hellos[segment.owner].samples as usize);
    let mut masks = session.label_masks(secret, model, segment.owner);
    if segment.places.len() != samples {
        let all = field.unpack(masks.expose(), samples);
        let chosen = segment.samples().map(|sample| all.expose()[sample]);
        let chosen = Labels::new(Wiped(chosen.collect()));
        masks = labels::empty(packed.len());
        field.pack(chosen.expose(), &mut masks);
    }
    labels::add(packed, masks.expose());
}

/// The blinding factors of a segment.
pub(crate) fn factors(
    session: &Session,
    secret: &Seed,
    (round, coalition): (RoundId, Coalition),
    segment: Segment<'_>,
) -> Labels {
    let blinds = session.blinds(secret, round, coalition, segment.owner);
    if segment.places.len() == blinds.expose().len() {
        return blinds;
    }
    Labels::new(Wiped(segment.samples().map(|sample| blinds.expose()[sample]).collect()))
}
