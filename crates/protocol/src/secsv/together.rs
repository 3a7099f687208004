//! Models of all coalitions tested together: one decryptor receives outputs that those of every coalition follow from.

use std::sync::Arc;

use secsv_algebra::{Field, Matrix, Secret, Seed};
use secsv_federation::RoundId;
use secsv_he::SecretKey;

use crate::{
    Error, PartyId,
    activation::{Activator, Handed, last_scores},
    combinations::{Derivation, Outputs},
    disclosure::Disclosure,
    encrypted::first_outputs,
    labels::{self, Labels, Packed, Wiped},
    message::{Kind, StepAddress},
    participant::{
        ClientEngine, ClientReading, Matrices, ReceivedParts, StepParts, Testing, Unasked,
        labels::{factors, hide, label_shares},
        numbers_of, of_model,
    },
    program::{DecryptionStep, Then},
    role::{Effects, Meter, Phase},
    session::{EncryptedSession, Session},
    unit::{Segment, UnitContext},
    views::by_owner,
};

/// What a decryptor reads replies and hides labels with.
#[derive(Clone)]
pub(super) struct DecryptorSecrets {
    pub session: EncryptedSession,
    pub key: Arc<SecretKey>,
    /// The secret that labels are hidden with.
    pub labels: Seed,
}

/// Decrypts what a unit receives at its only step: outputs that those of every coalition follow from.
pub(crate) fn receive_together(
    session: &EncryptedSession,
    context: &UnitContext,
    key: &SecretKey,
    parts: &ReceivedParts,
    meter: &mut Meter<'_>,
) -> Result<Secret<Matrices<Field>>, Error> {
    // A single layer, at all its positions.
    let positions = (0, session.program().operators[0].positions);
    let opening = session.opening(Disclosure::LayerOutputs)?;
    let mut received = Secret::new(Matrices(Vec::new()));
    for (item, &number) in context.combinations(session).sent.iter().enumerate() {
        let (selection, outputs) = (&context.selections[number], (0, positions));
        let outputs =
            first_outputs(&opening, session, context, outputs, (item, selection), parts, key, meter)?;
        received.expose_mut().0.push(outputs);
    }
    Ok(received)
}

/// Decrypts what a unit receives at its only step, and shares what all its coalitions' models predict.
pub(super) fn hand_on_together<E: ClientEngine>(
    secrets: DecryptorSecrets,
    own: PartyId,
    context: Arc<UnitContext>,
    address: StepAddress,
    seed: Seed,
    parts: ReceivedParts,
) -> Effects<Testing<E>> {
    let mut effects = Effects::default();
    effects.job(move |meter| {
        let DecryptorSecrets { session, key, labels: secret } = &secrets;
        let decrypted = receive_together(session, &context, key, &parts, meter)?;
        let height = session.program().operators[0].shape.d_out;
        let mut packed = labels::empty(context.label_bytes(session));
        // The same for all rounds.
        let (combinations, coalitions) = (context.combinations(session), &context.plan.coalitions);
        let derivation = Derivation::new(session.field(), combinations, coalitions, &context.selections);
        for (k, &round) in context.rounds.iter().enumerate() {
            meter.enter(Phase::Activate);
            let of_round = |matrix: &Matrix<_>| Outputs::of_rows(matrix, k * height..(k + 1) * height);
            let received: Vec<Outputs> = decrypted.expose().0.iter().map(of_round).collect();
            let mut found = found_together(session, &context, round, &derivation, &received)?;
            meter.enter(Phase::Share);
            blind_together(session, secret, &context, round, &mut found);
            packed.expose_mut().extend_from_slice(found.expose());
        }
        let seed = seed.covering(&context.digest).covering(packed.expose());
        let rest = labels::rest(packed, &seed);
        let outbox = label_shares(own, Kind::PredictionShare, address, &seed, &rest);
        Ok(move |role: &mut Testing<E>| {
            role.forget_unit(context.id);
            Ok(Effects { outbox, jobs: Vec::new() })
        })
    });
    effects
}

/// The classes that all coalitions' models of a round predict, as they are, where models are tested together.
fn found_together(
    session: &EncryptedSession,
    context: &UnitContext,
    round: RoundId,
    derivation: &Derivation<'_>,
    received: &[Outputs],
) -> Result<Packed, Error> {
    let (program, field) = (session.program(), session.label_field());
    let combinations = context.combinations(session);
    let bytes = context.label_bytes(session) / context.rounds.len().max(1);
    let mut packed = Packed::new(Wiped(vec![0; bytes]));
    let all = packed.expose_mut();
    if let [DecryptionStep { then: Then::Label(activations), .. }] = &program.steps[..]
        && activations.is_empty()
        && program.operators[0].positions == 1
    {
        // Scores are outputs over a positive number, and differ wherever outputs do; row by row they are the classes'.
        for (owner, begins) in context.begins(session) {
            let places = session.groups[context.plan.group].places(owner);
            let is_sign = program.classes == 2 && program.operators[0].shape.d_out == 1;
            if is_sign {
                derivation.signs(received, &places, |number, samples, words| {
                    let begin = begins[number] + field.packed_len(samples.start);
                    field.pack_bits(samples.len(), words, &mut all[begin..]);
                })?;
            } else {
                derivation.labels(received, &places, program.classes, |number, samples, labels| {
                    let begin = begins[number] + field.packed_len(samples.start);
                    field.pack_into(labels, &mut all[begin..]);
                })?;
            }
        }
        return Ok(packed);
    }
    let mut rest = all.as_mut_slice();
    for (number, &coalition) in context.plan.coalitions.iter().enumerate() {
        let outputs = combinations.outputs(number, &context.selections, received)?;
        let total = session.total_share(round, coalition);
        let outputs = Secret::new(outputs.matrix()?);
        let labels = last_scores(program, &session.precision, total, std::slice::from_ref(outputs.expose()))
            .labels(program.classes);
        let labels = Labels::new(Wiped(labels));
        let mut labels = labels.expose().as_slice();
        for Segment { places, .. } in context.segments(session, number) {
            let (of_segment, later) = labels.split_at(places.len());
            field.pack_into(of_segment, &mut rest[..field.packed_len(places.len())]);
            rest = &mut rest[field.packed_len(places.len())..];
            labels = later;
        }
    }
    Ok(packed)
}

/// Multiplies all coalitions' labels in a round by blinding factors and masks them.
fn blind_together(
    session: &Session,
    secret: &Seed,
    context: &UnitContext,
    round: RoundId,
    packed: &mut Packed,
) {
    let field = session.label_field();
    let mut rest = packed.expose_mut().as_mut_slice();
    for (number, &coalition) in context.plan.coalitions.iter().enumerate() {
        for segment in context.segments(session, number) {
            let (now, later) = rest.split_at_mut(field.packed_len(segment.places.len()));
            if field.has_factors() {
                field.blind(now, factors(session, secret, (round, coalition), segment).expose());
            }
            hide(session, secret, (round, coalition), segment, now);
            rest = later;
        }
    }
}

/// Adds what was sent where models are tested together, the outputs of every coalition that follow, and their classes to a view.
pub(super) fn view_together<E: ClientEngine>(
    DecryptorSecrets { session, key, .. }: &DecryptorSecrets,
    reading: &mut ClientReading<'_, E>,
    context: &UnitContext,
    parts: &StepParts,
) -> Result<(), Error> {
    let (mut probe, contents) = (Unasked, reading.contents(parts));
    let decrypted = receive_together(session, context, key, &contents, &mut Meter::new(&mut probe))?;
    let (program, precision) = (session.program(), &session.precision);
    let (combinations, height) = (context.combinations(session), program.operators[0].shape.d_out);
    let receive = &program.steps[0].receives[0];
    for (k, &round) in context.rounds.iter().enumerate() {
        let of_round = |matrix: &Matrix<_>| Outputs::of_rows(matrix, k * height..(k + 1) * height);
        let received: Vec<Outputs> = decrypted.expose().0.iter().map(of_round).collect();
        for (item, (&number, outputs)) in combinations.sent.iter().zip(&received).enumerate() {
            let entry = reading.entry(context, 0, receive, numbers_of(parts, |part| part.0 == item));
            let entry = of_model(session, entry, context, number, round);
            reading.arrays.extend(by_owner(session, context, number, &outputs.matrix()?, &entry));
        }
        for number in 0..context.plan.coalitions.len() {
            let terms = combinations.terms[number].iter().map(|(item, _)| *item).collect::<Vec<_>>();
            let messages = numbers_of(parts, |part| terms.contains(&part.0));
            let entry = reading.entry(context, 0, receive, messages);
            let entry = of_model(session, entry, context, number, round);
            let outputs = combinations.outputs(number, &context.selections, &received)?.matrix()?;
            let derived = entry.derived("outputs", "outputs");
            reading.arrays.extend(by_owner(session, context, number, &outputs, &derived));
            let total = session.total_share(round, context.plan.coalitions[number]);
            let handed = Activator::default().step(program, precision, 0, total, &[outputs])?;
            if let Handed::Labels(classes) = handed {
                reading.classes(context, number, classes, &entry);
            }
        }
    }
    Ok(())
}
