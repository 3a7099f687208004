//! SecretSV: models and samples are shared, two servers multiply them with the help of clients that deal.

use super::{Batching, COMMON_KINDS, Matmuls, ProtocolRules, ServerExposure, two_servers};
use secsv_federation::{Architecture, Layer};

use crate::{
    Error, PartyId, Program, disclosure::Line, message::Kind, program::joined, rules::Can::Rebuild,
    rules::Matmul,
};

/// The facts.
pub(super) struct SecretSv;

impl ProtocolRules for SecretSv {
    fn name(&self) -> &'static str {
        "secretsv"
    }

    fn session_byte(&self) -> u8 {
        2
    }

    fn servers(&self) -> &'static [PartyId] {
        two_servers::SERVERS
    }

    fn kinds(&self) -> &'static [&'static [Kind]] {
        const OWN: &[Kind] = &[
            Kind::MaskSeed,
            Kind::ModelShare,
            Kind::DealtProduct,
            Kind::MaskedFirstLayer,
            Kind::MaskedLayer,
        ];
        &[COMMON_KINDS, two_servers::KINDS, OWN]
    }

    fn matmuls(&self) -> Matmuls {
        Matmuls {
            usual: Matmul::Packed,
            all: &[Matmul::Packed, Matmul::Reducing, Matmul::Squaring],
            expected: "any with secretsv: it encrypts no matrix",
        }
    }

    fn batching(&self) -> Batching {
        Batching { mixes_owners: true, tests_together: false, gathers: false }
    }

    fn deals(&self, _: bool) -> bool {
        true
    }

    /// A chain of layers as it is; others with what lies between layers with weights at one client.
    fn program(&self, architecture: &Architecture) -> Result<Program, Error> {
        let is_normalised = architecture.layers().iter().any(|p| matches!(p.layer, Layer::BatchNorm(_)));
        match architecture.is_chain() && !is_normalised {
            true => Program::new(architecture),
            false => joined(architecture),
        }
    }

    fn disclosures(&self, program: &Program) -> Vec<Line> {
        two_servers::disclosures(program)
    }

    fn exposure(&self) -> ServerExposure {
        ServerExposure {
            alone: two_servers::ALONE,
            together: [(Rebuild, Rebuild); 3],
            said: [
                "Any client together with the principal can rebuild the models it dealt masks for (an owner the first layer of every local model, a decryptor the next layer of a coalition's), the samples that it reads about, and the labels.",
                "Any client together with the auxiliary can rebuild the models it dealt masks for (an owner the first layer of every local model, a decryptor the next layer of a coalition's), the samples that it reads about, and the labels.",
                "Both servers together can rebuild all samples and all models: they hold both shares of everything.",
            ],
            aggregator: super::NO_AGGREGATOR,
            clients: super::TWO_CLIENTS,
            trust: "Two servers that must not collude: together they open all samples and all models. A client together with one server opens the models it dealt masks for (an owner the first layer of every local model, a decryptor the next layer of a coalition's) and from them, by solving equations, samples whose outputs it decrypts. It can open labels too, because clients share the secret that masks them.",
            brief: "Models and test cases were split between two servers, so that neither alone could read them. If the two \
                    servers worked together, they could read everything.",
        }
    }
}
