//! Hidden weights from the gates that one client decrypts.

#![cfg(test)]

mod support;

use secsv_attacks::{
    linear::{correlation, median},
    recurrent::DecryptedGates,
};
use secsv_federation::{Coalition, RoundId};
use secsv_protocol::{decryptors::Protocol, exposure::Can};
use secsv_training::{DatasetSource, ModelKind};
use support::{Trained, Training};

/// Of the hidden weights.
const OPERATOR: usize = 1;
const ROUND: RoundId = RoundId(1);
/// As many as a claim that it is excluded was once made for.
const CLIENTS: usize = 5;

#[test]
fn the_gate_decryptor_recovers_hidden_weights_of_single_models() {
    let training = Training { clients: CLIENTS, rounds: 1, epochs: Some(2), limits: (None, Some(200)) };
    let trained = Trained::new(&DatasetSource::Digits, None, ModelKind::Gru, training);
    let views = trained.views(Protocol::SecretSv, false);
    let sizes: Vec<usize> = views.clients.iter().map(|view| view.own.len()).collect();
    let largest = (0..CLIENTS).max_by_key(|&owner| sizes[owner]).unwrap();
    let mut stolen = 0;
    for (client, view) in views.clients.iter().enumerate() {
        for of in 0..CLIENTS {
            let Some(unit) = DecryptedGates::read(view, ROUND, Coalition::EMPTY.with(of), largest) else {
                continue;
            };
            let truth = support::layer(&view.program, OPERATOR, &trained.local(of, ROUND.0));
            let (layer, known) = (unit.layer().unwrap(), &view.global[&ROUND]);
            let known = correlation(support::layer(&view.program, OPERATOR, known).iter(), truth.iter());
            let error = median((&layer - &truth).iter().copied());
            let found = correlation(layer.iter(), truth.iter());
            println!(
                "gru: client {client}, model of {of} on {} samples of {largest}: correlation {found:.6} (the global model has \
                 {known:.4}), median error {error:.1e} of {:.3}",
                sizes[largest],
                median(truth.iter().copied())
            );
            assert!(found > 0.999 && error < 1e-3, "{found} {error}");
            assert_eq!(views.exposure.of_models(client), Can::Rebuild);
            stolen += 1;
        }
    }
    assert!(stolen > 0, "nobody decrypted gates of a single model");
    views.assert_servers_read_no_outputs();
}
