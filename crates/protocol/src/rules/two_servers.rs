//! What SecSV and SecretSV have in common: shared samples, and two servers that find which predictions are right.

use crate::{
    PartyId, Program,
    disclosure::{Disclosure as D, Line, line, of_decryptors},
    message::Kind,
};

/// Both servers.
pub(super) const SERVERS: &[PartyId] = &[PartyId::Principal, PartyId::Auxiliary];

/// Kinds of messages about shared samples, activations and labels.
pub(super) const KINDS: &[Kind] = &[
    Kind::DataShare,
    Kind::OwnResult,
    Kind::ActivationShare,
    Kind::LabelShare,
    Kind::PredictionShare,
    Kind::DifferenceShare,
    Kind::Triple,
    Kind::MaskedFactors,
    Kind::OutputShare,
    Kind::CommonSeed,
    Kind::TestFinished,
    Kind::OpenedSeeds,
    Kind::OwnCount,
    Kind::RoundFinished,
];

/// The principal, the auxiliary.
pub(super) const ALONE: [&str; 2] = [
    "The principal alone learns which samples each tested coalition predicts right, and has neither samples nor models.",
    "The auxiliary alone learns which coalition is tested on which samples and when and, once the principal has opened its shares of the labels, which of these samples are predicted right. It has neither samples nor models.",
];

/// What servers and decryptors learn.
pub(super) fn disclosures(program: &Program) -> Vec<Line> {
    let right = if program.classes > 2 {
        "which samples each tested coalition predicts right, as right or wrong alone: differences are blinded by a secret of the clients"
    } else {
        "which samples each tested coalition predicts right: of two classes a difference says no more"
    };
    let mut lines = vec![
        line(
            D::RightOrWrong,
            "the principal",
            right,
            "utilities are computed from them, and SampleSkip needs them",
        ),
        line(
            D::RightOrWrong,
            "the auxiliary",
            "the same once the principal has opened its shares of the labels, but of models that owners test themselves only how many are right",
            "it counts for itself, to find a principal that reports other counts",
        ),
        line(
            D::Schedule,
            "the auxiliary",
            "which coalition is tested on which samples and when",
            "it multiplies its share",
        ),
    ];
    lines.extend(of_decryptors(program));
    lines
}
