//! The kinds of messages: who sends which to whom.

use std::fmt;

use crate::decryptors::Protocol;

/// What a message holds. A kind has one meaning in all protocols that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Client to principal: what it publishes.
    ClientHello = 1,
    /// Principal to all: everything parties agree on.
    Session = 2,
    /// Leader to the servers (SecSV): the public key.
    ServerKeys = 3,
    /// Leader to a client through the principal: the clients' secrets, sealed.
    SealedClientKeys = 4,
    /// Principal to participants: models of a round are needed.
    RoundStart = 5,
    /// Client to the servers (SecSV, HESV): its model of a round, encrypted.
    Model = 6,
    /// Client to the servers (SecSV, SecretSV, BlindSV): its share of its samples.
    DataShare = 7,
    /// Principal to those concerned: a test.
    Test = 8,
    /// Principal to an owner: a test of a model it knows.
    OwnTest = 9,
    /// Owner to principal (SecSV, SecretSV): which of its samples that model predicts right.
    OwnResult = 10,
    /// Auxiliary to principal (SecSV): its halves of first-layer outputs.
    FirstLayerHalf = 11,
    /// Auxiliary to principal (SecSV): its halves of a later layer's outputs.
    LayerHalf = 12,
    /// Principal to a decryptor (SecSV, HESV): outputs, sanitised.
    Reply = 13,
    /// Decryptor to the servers (SecSV, SecretSV): shares of what it made of them.
    ActivationShare = 14,
    /// Owner to the servers (SecSV, SecretSV): shares of its blinded labels.
    LabelShare = 15,
    /// Last decryptor to the servers (SecSV, SecretSV): shares of the blinded predictions.
    PredictionShare = 16,
    /// Auxiliary to principal (SecSV, SecretSV): its share of the differences.
    DifferenceShare = 17,
    /// Dealer to the servers (SecSV, SecretSV): a multiplication triple.
    Triple = 18,
    /// Server to server (SecSV, SecretSV): masked factors of a gated sum.
    MaskedFactors = 19,
    /// Server to a client (SecSV, SecretSV): its share of outputs or of a gated sum.
    OutputShare = 20,
    /// Auxiliary to principal (SecSV, SecretSV): the seed of their zero-sharings.
    CommonSeed = 21,
    /// Principal to auxiliary (SecSV, SecretSV): a test has ended.
    TestFinished = 22,
    /// Principal to the counting client (HESV): blinded differences, encrypted.
    BlindedDifferences = 23,
    /// Counting client to principal (HESV): how many are zero.
    Count = 24,
    /// Principal to all: the values, and the utilities behind them.
    Values = 25,
    /// Principal to clients (SecSV, HESV): the public key that it holds.
    PublicKey = 26,
    /// Principal to auxiliary (SecSV, SecretSV): the seeds of its shares of a unit's labels, for the auxiliary to count
    /// for itself.
    OpenedSeeds = 27,
    /// Owner to auxiliary (SecSV, SecretSV): how many of its samples models predict right that it knows.
    OwnCount = 28,
    /// Principal to auxiliary (SecSV, SecretSV): a round has ended.
    RoundFinished = 29,
    /// Auxiliary to clients (SecSV): the digest of the public key that it holds.
    PublicKeyDigest = 30,
    /// Leader to the server (HESV): public and evaluation keys.
    EvaluationKeys = 31,
    /// Owner to the server (HESV): a chunk of its samples, encrypted.
    EncryptedData = 32,
    /// Decryptor to the server (HESV): what it made of outputs, encrypted again.
    EncryptedActivations = 33,
    /// Owner to the server (HESV): its labels, encrypted.
    EncryptedLabels = 34,
    /// Last decryptor to the server (HESV): the predictions, encrypted.
    EncryptedPredictions = 35,
    /// Owner to the server (HESV): how many of its samples models predict right that it knows.
    OwnResultCounts = 36,
    /// Client to the servers (SecretSV, BlindSV): the seed of what it deals.
    MaskSeed = 37,
    /// Client to the servers (SecretSV): its share of its model of a round.
    ModelShare = 38,
    /// Owner to auxiliary (SecretSV, BlindSV): its share of a round's masks times the owner's samples.
    DealtProduct = 39,
    /// Server to server (SecretSV): its share of a round's first layers, masked for one owner's samples.
    MaskedFirstLayer = 40,
    /// Server to server (SecretSV): its share of a coalition's later layer, masked for a unit.
    MaskedLayer = 41,
    /// Leader to a server (BlindSV): the seed of its masks of models.
    ModelMaskSeed = 42,
    /// Client to the servers (BlindSV): its model of a round, under both servers' masks.
    MaskedModel = 43,
    /// Principal to the auxiliary and to owners (BlindSV): coalitions that are tested in a round.
    BlindTest = 44,
    /// Owner to auxiliary (BlindSV): its share of everything that the owner deals for a test.
    Dealing = 45,
    /// Server to server (BlindSV): its share of what is opened at a stage, under its mask.
    MaskedOpening = 46,
    /// Auxiliary to principal (BlindSV): its shares of how many predictions are right, over all owners.
    OutcomeShare = 47,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 47] = [
        Self::ClientHello,
        Self::Session,
        Self::ServerKeys,
        Self::SealedClientKeys,
        Self::RoundStart,
        Self::Model,
        Self::DataShare,
        Self::Test,
        Self::OwnTest,
        Self::OwnResult,
        Self::FirstLayerHalf,
        Self::LayerHalf,
        Self::Reply,
        Self::ActivationShare,
        Self::LabelShare,
        Self::PredictionShare,
        Self::DifferenceShare,
        Self::Triple,
        Self::MaskedFactors,
        Self::OutputShare,
        Self::CommonSeed,
        Self::TestFinished,
        Self::BlindedDifferences,
        Self::Count,
        Self::Values,
        Self::PublicKey,
        Self::OpenedSeeds,
        Self::OwnCount,
        Self::RoundFinished,
        Self::PublicKeyDigest,
        Self::EvaluationKeys,
        Self::EncryptedData,
        Self::EncryptedActivations,
        Self::EncryptedLabels,
        Self::EncryptedPredictions,
        Self::OwnResultCounts,
        Self::MaskSeed,
        Self::ModelShare,
        Self::DealtProduct,
        Self::MaskedFirstLayer,
        Self::MaskedLayer,
        Self::ModelMaskSeed,
        Self::MaskedModel,
        Self::BlindTest,
        Self::Dealing,
        Self::MaskedOpening,
        Self::OutcomeShare,
    ];

    /// From the byte it has in frames.
    pub fn from_wire(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Whether sessions of a protocol have such messages.
    pub fn is_of(self, protocol: Protocol) -> bool {
        protocol.rules().kinds().iter().any(|kinds| kinds.contains(&self))
    }

    /// The name in accounts and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClientHello => "client hello",
            Self::Session => "session",
            Self::ServerKeys => "server keys",
            Self::SealedClientKeys => "sealed client keys",
            Self::RoundStart => "round start",
            Self::Model => "model",
            Self::DataShare => "data share",
            Self::Test => "test",
            Self::OwnTest => "own test",
            Self::OwnResult => "own result",
            Self::FirstLayerHalf => "first-layer half",
            Self::LayerHalf => "layer half",
            Self::Reply => "reply",
            Self::ActivationShare => "activation share",
            Self::LabelShare => "label share",
            Self::PredictionShare => "prediction share",
            Self::DifferenceShare => "difference share",
            Self::Triple => "triple",
            Self::MaskedFactors => "masked factors",
            Self::OutputShare => "output share",
            Self::CommonSeed => "common seed",
            Self::TestFinished => "test finished",
            Self::BlindedDifferences => "blinded differences",
            Self::Count => "count",
            Self::Values => "values",
            Self::PublicKey => "public key",
            Self::OpenedSeeds => "opened seeds",
            Self::OwnCount => "own count",
            Self::RoundFinished => "round finished",
            Self::PublicKeyDigest => "public key digest",
            Self::EvaluationKeys => "evaluation keys",
            Self::EncryptedData => "encrypted data",
            Self::EncryptedActivations => "encrypted activations",
            Self::EncryptedLabels => "encrypted labels",
            Self::EncryptedPredictions => "encrypted predictions",
            Self::OwnResultCounts => "own result counts",
            Self::MaskSeed => "mask seed",
            Self::ModelShare => "model share",
            Self::DealtProduct => "dealt product",
            Self::MaskedFirstLayer => "masked first layer",
            Self::MaskedLayer => "masked layer",
            Self::ModelMaskSeed => "model mask seed",
            Self::MaskedModel => "masked model",
            Self::BlindTest => "blind test",
            Self::Dealing => "dealing",
            Self::MaskedOpening => "masked opening",
            Self::OutcomeShare => "outcome share",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_has_a_byte_and_a_name_of_its_own() {
        assert!(Kind::ALL.iter().all(|&kind| Kind::from_wire(kind as u8) == Some(kind)));
        assert!(Kind::from_wire(0).is_none() && Kind::from_wire(Kind::ALL.len() as u8 + 1).is_none());
        let names: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), Kind::ALL.len());
    }
}
