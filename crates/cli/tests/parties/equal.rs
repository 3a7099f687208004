//! The same bits in one process and in seven.

use secsv_federation::skip::SkipMode;
use secsv_protocol::{Preset, decryptors::Protocol};

use crate::consortium::{Consortium, Recipe};

fn check(recipe: &Recipe<'_>) {
    let consortium = Consortium::new(recipe);
    let expected = consortium.expected();
    consortium.start_all().finish();
    consortium.assert_equal(&expected);
}

#[test]
fn secsv_over_tls_is_secsv() {
    check(&Recipe::default());
}

#[test]
fn secsv_with_skipping_and_layers_over_tls_is_the_same() {
    let model = &["--model", "dnn", "--layers", "2"];
    check(&Recipe { model, rounds: 1, skip: SkipMode::On, ..Recipe::default() });
}

#[test]
fn hesv_over_tls_is_hesv() {
    check(&Recipe { protocol: Protocol::Hesv, preset: Preset::Standard, rounds: 1, ..Recipe::default() });
}

#[test]
fn secretsv_over_tls_is_secretsv() {
    check(&Recipe { protocol: Protocol::SecretSv, ..Recipe::default() });
}

#[test]
fn blindsv_over_tls_is_blindsv() {
    check(&Recipe { protocol: Protocol::BlindSv, preset: Preset::Standard, ..Recipe::default() });
}
