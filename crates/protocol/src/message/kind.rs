//! The kinds of messages, sender by sender.

use std::fmt;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Client to principal: what it publishes.
    ClientHello = 1,
    /// Principal to all: everything parties agree on.
    Session = 2,
    /// Leader to the servers: public and evaluation keys. In SecretSV every client to the servers: the seed of what it
    /// deals.
    ServerKeys = 3,
    /// Leader to a client through the principal: the clients' secrets, sealed.
    SealedClientKeys = 4,
    /// Principal to participants: models of a round are needed.
    RoundStart = 5,
    /// Client to the servers: its model of a round.
    Model = 6,
    /// Client to the servers: its share of its samples.
    DataShare = 7,
    /// Principal to those concerned: a test.
    Test = 8,
    /// Principal to an owner: a test of a model it knows.
    OwnTest = 9,
    /// Owner to principal: which of its samples that model predicts right.
    OwnResult = 10,
    /// Auxiliary to principal: its halves of first-layer outputs. In SecretSV owner to auxiliary: its share of masks
    /// times samples.
    FirstLayerHalf = 11,
    /// Auxiliary to principal: its halves of a later layer's outputs.
    LayerHalf = 12,
    /// Principal to a decryptor: outputs, sanitised.
    Reply = 13,
    /// Decryptor to the servers: shares of what it made of them.
    ActivationShare = 14,
    /// Owner to the servers: shares of its blinded labels.
    LabelShare = 15,
    /// Last decryptor to the servers: shares of the blinded predictions.
    PredictionShare = 16,
    /// Auxiliary to principal: its share of the differences.
    DifferenceShare = 17,
    /// Dealer to the servers: a multiplication triple.
    Triple = 18,
    /// Server to server: masked factors.
    MaskedFactors = 19,
    /// Server to a client: its share of outputs or of a gated sum.
    OutputShare = 20,
    /// Auxiliary to principal: the seed of their zero-sharings.
    CommonSeed = 21,
    /// Principal to auxiliary: a round or a test is over.
    Done = 22,
    /// Principal to the counting client: blinded differences, encrypted.
    BlindedDifferences = 23,
    /// Counting client to principal: how many are zero.
    Count = 24,
    /// Principal to all: the values, and the utilities behind them.
    Values = 25,
    /// Principal to clients: the public key that it holds. Auxiliary to clients: the digest of the one that it holds.
    PublicKey = 26,
    /// Principal to auxiliary: the seeds of its shares of a unit's labels, for the auxiliary to count for itself.
    OpenedSeeds = 27,
    /// Owner to auxiliary: how many of its samples models predict right that it knows.
    OwnCount = 28,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 28] = [
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
        Self::Done,
        Self::BlindedDifferences,
        Self::Count,
        Self::Values,
        Self::PublicKey,
        Self::OpenedSeeds,
        Self::OwnCount,
    ];

    /// From the byte it has in frames.
    pub fn from_wire(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
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
            Self::Done => "done",
            Self::BlindedDifferences => "blinded differences",
            Self::Count => "count",
            Self::Values => "values",
            Self::PublicKey => "public key",
            Self::OpenedSeeds => "opened seeds",
            Self::OwnCount => "own count",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
