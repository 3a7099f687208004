//! Images from the outputs of a convolution: windows overlap.

#![cfg(test)]

mod support;

use secsv_attacks::{ClientView, equations, images, linear::correlation};
use secsv_federation::RoundId;
use secsv_protocol::decryptors::Protocol;
use secsv_training::{DatasetSource, ModelKind};
use support::{Trained, Training};

/// Equations, unknowns, root mean square error and correlation of rebuilt images.
struct Figures {
    equations: usize,
    unknowns: usize,
    rms: f64,
    correlation: f64,
}

fn figures(view: &ClientView, owner: usize, rounds: &[RoundId], truth: &[f32]) -> Option<Figures> {
    let system = equations::known(view, owner, rounds).unwrap()?;
    let found = images::rebuild(&system, view.own.features()).unwrap();
    let truth: Vec<f64> = truth.iter().map(|&x| f64::from(x)).collect();
    let squares: f64 = found.iter().zip(&truth).map(|(a, b)| (a - b) * (a - b)).sum();
    let (equations, unknowns) = system.matrix.shape();
    let rms = (squares / truth.len().max(1) as f64).sqrt();
    Some(Figures { equations, unknowns, rms, correlation: correlation(found.iter(), &truth) })
}

#[test]
fn one_round_of_a_small_convolution_gives_every_image() {
    let training = Training { rounds: 1, epochs: Some(2), limits: (None, Some(150)), ..Training::default() };
    let trained = Trained::new(&DatasetSource::Digits, None, ModelKind::Cnn, training);
    for protocol in [Protocol::SecSv, Protocol::SecretSv] {
        let views = trained.views(protocol, true);
        let mut rebuilt = 0;
        for (attacker, owner) in (0..5).flat_map(|a| (0..5).map(move |o| (a, o))) {
            let truth = trained.truth(owner);
            let Some(found) = figures(&views.clients[attacker], owner, &[RoundId(1)], &truth) else {
                continue;
            };
            println!(
                "digits, {protocol:?}: client {attacker} against {owner}: {} equations beside {} pixels, rms error {:.1e}, correlation {:.5}",
                found.equations, found.unknowns, found.rms, found.correlation
            );
            assert!(attacker != owner && found.correlation > 0.999, "{}", found.correlation);
            rebuilt += 1;
        }
        assert!(rebuilt > 0, "nobody was exposed");
        views.assert_servers_read_no_outputs();
        trained.assert_shares_are_noise(&views);
    }
}

#[test]
fn four_rounds_of_the_papers_convolution_give_every_image() {
    let Some(data) = support::data() else { return };
    let training =
        Training { rounds: 5, epochs: Some(1), limits: (Some(4000), Some(150)), ..Training::default() };
    let trained = Trained::new(&DatasetSource::Mnist, Some(&data), ModelKind::Cnn, training);
    let views = trained.views(Protocol::SecretSv, true);
    let rounds: Vec<RoundId> = trained.run.spec().round_ids().collect();
    let exposed = |attacker: usize, owner: usize| {
        let is_exposed =
            |round: &RoundId| equations::known(&views.clients[attacker], owner, &[*round]).unwrap().is_some();
        rounds.iter().copied().filter(is_exposed).collect::<Vec<_>>()
    };
    let pairs = (0..5).flat_map(|a| (0..5).map(move |o| (a, o))).filter(|(a, o)| a != o);
    let pairs: Vec<_> = pairs.map(|(a, o)| (a, o, exposed(a, o))).collect();
    let counts: Vec<usize> = pairs.iter().map(|(.., rounds)| rounds.len()).collect();
    println!("mnist: rounds in which each of {} pairs is exposed: {counts:?}", pairs.len());
    let (attacker, owner, rounds) = pairs.iter().max_by_key(|(.., rounds)| rounds.len()).unwrap();
    let truth = trained.truth(*owner);
    for count in [1, 2, 3, 4, rounds.len()] {
        let found = figures(&views.clients[*attacker], *owner, &rounds[..count], &truth).unwrap();
        println!(
            "mnist: client {attacker} against {owner}, {count} rounds: {} equations beside {} pixels, rms error {:.5}, correlation {:.5}",
            found.equations, found.unknowns, found.rms, found.correlation
        );
        // One round leaves most of an image open; four decide it.
        assert!(count > 1 || found.correlation < 0.95, "{}", found.correlation);
        assert!(count < 4 || found.correlation > 0.999, "{}", found.correlation);
    }
    views.assert_servers_read_no_outputs();
}
