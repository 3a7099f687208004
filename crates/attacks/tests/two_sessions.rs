//! Two sessions over the same models and samples: a client adds up what it got in both.

#![cfg(test)]

mod support;

use secsv_attacks::{ClientView, span};
use secsv_federation::{Coalition, RoundId};
use secsv_protocol::decryptors::Protocol;
use secsv_training::{DatasetSource, ModelKind};
use support::{Trained, Training};

/// Number of times that a client's replies about one owner's samples in one round add up to outputs of its
/// own model, and how many views there are.
fn own_models(one: &[ClientView], other: &[ClientView], rounds: &[RoundId]) -> (usize, usize) {
    let (mut own, mut all) = (0, 0);
    for (one, other) in one.iter().zip(other) {
        for (&round, owner) in rounds.iter().flat_map(|round| (0..5).map(move |owner| (round, owner))) {
            let replies = [one, other].map(|view| view.first_layer(round, owner, 0));
            let coalitions: Vec<Coalition> = replies.iter().flatten().map(|reply| reply.coalition).collect();
            all += usize::from(!coalitions.is_empty());
            own += usize::from(
                span::of_coalition(&coalitions, None, Coalition::EMPTY.with(one.client)).is_some(),
            );
        }
    }
    (own, all)
}

#[test]
fn a_second_session_adds_nobodys_own_model() {
    let training = Training { rounds: 4, ..Training::default() };
    let trained = Trained::new(&DatasetSource::BreastCancer, None, ModelKind::Logistic, training);
    let rounds: Vec<RoundId> = trained.run.spec().round_ids().collect();
    let exact = trained.views(Protocol::SecSv, true);
    let single = trained.views(Protocol::SecSv, false);
    let (own, all) = own_models(&exact.clients, &single.clients, &rounds);
    println!("breast cancer: exact, then round by round: {own} of {all} views span the client's own model");
    assert_eq!(own, 0);
    // Where the condition is missing the same count finds what it looks for: two clients who put their
    // replies together.
    let mut pooled = single.clients.clone();
    for (view, partner) in pooled.iter_mut().zip([1, 2, 3, 4, 0]) {
        view.outputs.extend(single.clients[partner].outputs.iter().cloned());
    }
    let (own, all) = own_models(&pooled, &pooled, &rounds);
    println!("breast cancer: two clients together: {own} of {all}");
    assert!(own > 0);
}
