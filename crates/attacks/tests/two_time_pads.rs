//! Randomness that is used twice: whoever gets two messages made with it subtracts them and has the change in
//! the clear.

#![cfg(test)]

mod support;

use std::sync::{Arc, Mutex};

use secsv_algebra::{Field, Matrix, Prg, Ring, Seed, share::split};
use secsv_evaluation::{
    Envelope, client_inputs,
    in_process::{InProcess, Interceptor},
};
use secsv_federation::{Coalition, RoundId, SampleSet, Tensor, TestSet};
use secsv_protocol::{
    ClientInput, PartyId, Preset, TestRequest,
    decryptors::Protocol,
    message::Kind,
    session::{Federation, Matmul, Settings, typical_costs},
};
use secsv_training::{DatasetSource, ModelKind};
use support::{Trained, Training};

/// Bytes of an element of the small field.
const ELEMENT: usize = 5;

#[test]
fn two_shares_with_one_seed_give_the_change_away() {
    let ring = Field::compact();
    let before = Matrix::uniform(ring, 5, 9, &mut Prg::new(&Seed::from_bytes([1; 32])));
    let mut after = before.clone();
    after.set(3, 4, ring.add(before.at(3, 4), 16384));
    let share = |of: &Matrix<Field>| split(of, Seed::from_bytes([2; 32])).1.expose().clone();
    let difference = share(&after).sub(&share(&before)).unwrap();
    let changed: Vec<u64> = difference.elements().iter().copied().filter(|x| *x != 0).collect();
    assert_eq!(changed, [16384], "the attack works where a seed is used twice");
}

/// Messages: their kind and what they hold.
type Heard = Vec<(Kind, Vec<u8>)>;

/// Keeps what the first client sends to the auxiliary.
struct Listener(Arc<Mutex<Heard>>);

impl Interceptor for Listener {
    fn pass(&mut self, envelope: Envelope) -> Vec<Envelope> {
        if (envelope.from, envelope.to) == (PartyId::Client(0), PartyId::Auxiliary) {
            self.0.lock().unwrap().push((envelope.kind, envelope.content.clone()));
        }
        vec![envelope]
    }
}

/// Messages of the first client to the auxiliary: the parties' seed is always the same, as after a restart.
fn sent(trained: &Trained, inputs: Vec<ClientInput>) -> Heard {
    let settings = Settings {
        protocol: Protocol::SecSv,
        preset: Preset::Compact,
        matmul: Matmul::Packed,
        always_skips: false,
        whole_rounds: false,
        hidden: Default::default(),
        by_class: false,
    };
    let run = &trained.run;
    let federation = Federation::new(run.spec(), run.architecture(), |r| run.participants(r), settings);
    let (heard, samples): (Arc<Mutex<Heard>>, usize) =
        (Arc::default(), inputs.iter().map(|input| input.test_set.len()).sum());
    let listener = Box::new(Listener(Arc::clone(&heard)));
    let costs = Some(typical_costs(settings.preset));
    let seed = Seed::from_bytes([3; 32]);
    let mut world = InProcess::new(&Arc::new(federation.unwrap()), inputs, costs, &seed, listener);
    let request = TestRequest::new(RoundId(1), Coalition::first(2), SampleSet::all(samples));
    world.run(vec![request], |_, _| Ok(Vec::new())).unwrap();
    heard.lock().unwrap().clone()
}

fn content(sent: &[(Kind, Vec<u8>)], kind: Kind) -> &[u8] {
    &sent.iter().find(|(found, _)| *found == kind).unwrap().1
}

fn trained() -> Trained {
    let training = Training { clients: 4, rounds: 1, epochs: Some(1), limits: (Some(400), Some(120)) };
    Trained::new(&DatasetSource::Digits, None, ModelKind::Cnn, training)
}

#[test]
fn a_changed_sample_does_not_show_in_the_difference_of_what_is_sent() {
    let trained = trained();
    let before = sent(&trained, client_inputs(&trained.run).unwrap());
    let mut inputs = client_inputs(&trained.run).unwrap();
    let old = &inputs[0].test_set;
    let mut features = old.features().to_vec();
    features[7] = if features[7] > 0.5 { 0.0 } else { 1.0 };
    inputs[0].test_set = TestSet::new(old.input().to_vec(), features, old.labels().to_vec()).unwrap();
    let after = sent(&trained, inputs);
    let (before, after) = (content(&before, Kind::DataShare), content(&after, Kind::DataShare));
    assert_eq!(before.len(), after.len());
    let elements = before.chunks_exact(ELEMENT).zip(after.chunks_exact(ELEMENT));
    let (all, same) = (elements.len(), elements.filter(|(a, b)| a == b).count());
    println!("data share after a changed sample: {same} of {all} elements are the same");
    assert!(all > 500 && same <= 1, "{same} of {all} elements did not change: their mask was used twice");
}

#[test]
fn a_changed_weight_does_not_leave_other_ciphertexts_as_they_were() {
    let trained = trained();
    let before = sent(&trained, client_inputs(&trained.run).unwrap());
    let mut inputs = client_inputs(&trained.run).unwrap();
    let model = inputs[0].local.get_mut(&RoundId(1)).unwrap();
    let old = model.get("conv1.bias").unwrap();
    let mut values = old.singles().into_owned();
    values[0] += 1.0 / 1024.0;
    let changed = Tensor::new(old.shape().to_vec(), values).unwrap();
    model.insert("conv1.bias", changed);
    let after = sent(&trained, inputs);
    let (before, after) = (content(&before, Kind::Model), content(&after, Kind::Model));
    assert_eq!(before.len(), after.len());
    let words = before.chunks_exact(8).zip(after.chunks_exact(8));
    let (all, same) = (words.len(), words.filter(|(a, b)| a == b).count());
    println!("encrypted model after a changed weight: {same} of {all} words are the same");
    // Heads of objects are: kinds, parameters, lengths.
    assert!(
        all > 5000 && same * 100 < all,
        "{same} of {all} words did not change: their randomness was used twice"
    );
}
