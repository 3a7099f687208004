//! A later layer of somebody's model, from its input and its output in one view.

#![cfg(test)]

mod support;

use secsv_attacks::{
    linear::{correlation, median},
    models,
};
use secsv_protocol::{decryptors::Protocol, exposure::Can};
use secsv_training::{DatasetSource, ModelKind};
use support::{Trained, Training};

#[test]
fn a_hidden_layer_of_a_single_model_is_stolen_where_both_ends_meet() {
    let training = Training { rounds: 2, epochs: Some(2), ..Training::default() };
    let trained = Trained::new(&DatasetSource::Digits, None, ModelKind::Cnn, training);
    let views = trained.views(Protocol::SecretSv, false);
    let (mut met, mut stolen) = (0, 0);
    for (client, view) in views.clients.iter().enumerate() {
        for meeting in models::meetings(view).iter().filter(|meeting| meeting.operator == 1) {
            met += 1;
            let unknowns = view.program.operators[1].shape.d_in + 1;
            let samples = trained.truth(meeting.owner).len() / view.program.input_size;
            let Some(of) = meeting.coalition.members().next().filter(|_| meeting.coalition.len() == 1) else {
                continue;
            };
            let layer = models::second_layer(view, meeting).unwrap();
            if samples < unknowns {
                continue;
            }
            let (layer, truth) =
                (layer.unwrap(), support::layer(&view.program, 1, &trained.local(of, meeting.round.0)));
            let error = median((&layer - &truth).iter().copied());
            let correlation = correlation(layer.iter(), truth.iter());
            println!(
                "digits: client {client}, layer 2 ({}x{}) of client {of}, round {}, {samples} samples of {}: correlation {correlation:.6}, median error {error:.1e}",
                layer.nrows(),
                layer.ncols() - 1,
                meeting.round,
                meeting.owner
            );
            assert!(correlation > 0.999, "{correlation}");
            assert_eq!(views.exposure.of_models(client), Can::Rebuild);
            stolen += 1;
        }
    }
    println!(
        "digits: {met} times one client holds both ends of layer 2, {stolen} layers of single models stolen"
    );
    assert!(stolen > 0, "both ends of no single model's layer met");
    views.assert_servers_read_no_outputs();
}
