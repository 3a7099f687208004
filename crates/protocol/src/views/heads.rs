//! What a message's head says, and what a message is to whom it reaches.

use super::{About, SeenMessage};
use crate::message::{Head, Kind};

/// Whether a server can read nothing in such a message.
pub(super) fn is_ciphertext(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Model
            | Kind::FirstLayerHalf
            | Kind::LayerHalf
            | Kind::EncryptedData
            | Kind::EncryptedActivations
            | Kind::EncryptedLabels
            | Kind::EncryptedPredictions
    )
}

/// What a message is.
pub(super) fn holds(kind: Kind) -> &'static str {
    match kind {
        _ if is_ciphertext(kind) => "ciphertext, not readable",
        Kind::ClientHello => "published sizes",
        Kind::Session => "agreement",
        Kind::ServerKeys | Kind::EvaluationKeys | Kind::PublicKey | Kind::PublicKeyDigest => "public key",
        Kind::SealedClientKeys => "sealed envelope",
        Kind::RoundStart
        | Kind::Test
        | Kind::BlindTest
        | Kind::OwnTest
        | Kind::TestFinished
        | Kind::RoundFinished => "announcement",
        Kind::CommonSeed | Kind::MaskSeed | Kind::ModelMaskSeed | Kind::OpenedSeeds => "seed",
        Kind::Reply | Kind::BlindedDifferences => "ciphertext",
        Kind::OwnResult | Kind::OwnResultCounts => "right or wrong",
        Kind::Count | Kind::OwnCount => "count",
        Kind::Values => "values",
        _ => "share",
    }
}

/// What a message's head says. What does not decode says nothing.
pub(super) fn about(message: &SeenMessage) -> About {
    let mut about = About::default();
    let Ok((head, _)) = Head::of(message.kind, message.content()) else { return about };
    match head {
        Head::Session => {}
        Head::Client(client) => about.client = Some(client),
        Head::Chunk(chunk) => about.chunk = Some(chunk),
        Head::Round(round) => about.round = Some(round),
        Head::FirstLayer { round, chunk, .. } => (about.round, about.chunk) = (Some(round), Some(chunk)),
        Head::Owner { round, owner } => (about.round, about.owner) = (Some(round), Some(owner)),
        Head::Request(request) => about.test = Some(request.to_wire()),
        Head::Opening { request, owner, stage } => {
            (about.test, about.owner, about.step) = (Some(request.to_wire()), Some(owner), Some(stage));
        }
        Head::Test(test) => about.test = Some(test.to_wire()),
        Head::Plan { test, round } => (about.test, about.round) = (Some(test.to_wire()), Some(round)),
        Head::Step(address) => {
            about.test = Some(address.unit.test.to_wire());
            about.group = Some(address.unit.group);
            about.part = Some(address.unit.part);
            about.step = Some(address.step);
            about.item = Some(address.item);
            about.chunk = Some(address.chunk);
        }
    }
    about
}
