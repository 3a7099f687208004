//! Pieces of a session's work, to be timed by whoever has a clock.

use std::sync::Arc;

use secsv_algebra::{Matrix, Ring, Ring64, Secret, Seed, share::split};
use secsv_federation::{Coalition, SampleSet};

use crate::{
    Error,
    activation::Activator,
    blindsv::rehearsal::rehearse,
    codec::{pack, unpack},
    combinations::Selection,
    combinations::{Combinations, Derivation, Outputs},
    labels::{self, Wiped},
    participant::output_shape,
    program::Receive,
    session::{Agreed, Session},
};

/// What becomes of so many shared elements: one share drawn twice, the other packed and unpacked.
pub fn rehearse_sharing(session: &Session, elements: usize) -> Result<usize, Error> {
    match session.encryption() {
        Some(_) => sharing(session.field(), elements),
        None => sharing(Ring64, elements),
    }
}

fn sharing<R: Ring>(ring: R, elements: usize) -> Result<usize, Error> {
    let (seeded, rest) = split(&Matrix::zero(ring, 1, elements), Seed::from_bytes([3; 32]));
    let bytes = pack(ring, rest.expose().elements());
    let unpacked = unpack(ring, elements, &bytes).map_or(0, |rest| rest.len());
    Ok(unpacked + seeded.expand().expose().columns())
}

/// So many elements scaled and added to a sum.
pub fn rehearse_sum(elements: usize) -> Result<usize, Error> {
    let matrix = Matrix::zero(Ring64, 1, elements);
    Ok(matrix.add(&matrix.scale(3))?.columns())
}

/// All steps of so many samples: outputs read, activated and encoded again.
pub fn rehearse_activation(session: &Session, samples: usize) -> Result<(), Error> {
    match session.encryption() {
        Some(_) if session.federation.tests_together() => added_up(session, samples),
        Some(_) => activation(session, session.field(), samples),
        None => activation(session, Ring64, samples),
    }
}

/// What becomes of so many labels: blinded, their shares drawn twice, taken away from each other and read.
pub fn rehearse_labels(session: &Session, count: usize) -> usize {
    let (field, seed) = (session.label_field(), Seed::from_bytes([4; 32]));
    let mut packed = Secret::new(Wiped(vec![0; field.packed_len(count)]));
    if field.has_factors() {
        field.pack_into(&vec![1; count], packed.expose_mut());
        field.blind(packed.expose_mut(), field.factors(&seed, count).expose());
    }
    let mut rest = Secret::new(Wiped(labels::rest(packed, &seed)));
    labels::subtract(&mut rest, labels::expand(&seed, field.packed_len(count)).expose());
    field.zeros(rest.expose(), count).map(|zeros| zeros.count_ones() as usize).sum()
}

/// A test of so many samples under masks: what the owner deals and both servers do. Nothing under other protocols.
pub fn rehearse_masked(session: &Arc<Session>, samples: usize) -> Result<usize, Error> {
    match session.agreed() {
        Agreed::BlindSv(session) => rehearse(&session, samples),
        _ => Ok(0),
    }
}

/// The outputs of some coalitions, of a single layer, and their classes: for so many samples in all.
fn added_up(session: &Session, samples: usize) -> Result<(), Error> {
    let clients = session.federation.clients;
    let coalitions: Vec<Coalition> = (1..1 << clients.min(6)).map(Coalition::from_bits).collect();
    let terms: Vec<Vec<(usize, u64)>> =
        coalitions.iter().map(|coalition| coalition.members().map(|client| (client, 1)).collect()).collect();
    let samples = samples.div_ceil(terms.len());
    let selection = Selection { samples: SampleSet::all(samples), places: (0..samples).collect() };
    let selection = Arc::new(selection);
    let selections = vec![selection; terms.len()];
    let combinations = Combinations { sent: vec![0; clients], terms };
    let rows = session.program().operators[0].shape.d_out;
    let outputs = Outputs::new(&Matrix::zero(session.field(), rows, samples));
    let received: Vec<Outputs> = (0..clients).map(|_| outputs.clone()).collect();
    let derivation = Derivation::new(session.field(), &combinations, &coalitions, &selections);
    match (session.program().classes, rows) {
        (2, 1) => derivation.signs(&received, &(0..samples), |_, _, _| {}),
        (classes, _) => derivation.labels(&received, &(0..samples), classes, |_, _, _| {}),
    }
}

fn activation<R: Ring>(session: &Session, ring: R, samples: usize) -> Result<(), Error> {
    let program = session.program();
    let mut activator = Activator::default();
    for (step, decryption) in program.steps.iter().enumerate() {
        let outputs = |receive: &Receive| {
            let (rows, columns) = output_shape(program, receive, samples);
            match receive {
                // Of any numbers whose roots can be divided by.
                Receive::Vector { .. } => Matrix::from_fn(ring, rows, columns, |_, _| 1),
                _ => Matrix::zero(ring, rows, columns),
            }
        };
        let received: Vec<Matrix<R>> = decryption.receives.iter().map(outputs).collect();
        activator.step(program, &session.precision, step, 1.0, &received)?;
    }
    Ok(())
}
