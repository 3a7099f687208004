//! SecSV: models are encrypted, samples are shared, each of two servers multiplies the one by its share of the other.

use std::sync::Arc;

use secsv_he::{NoiseBound, Parameters, Preset, linear::Layout};

use super::{
    Batching, COMMON_KINDS, ENCRYPTED_MODEL_KINDS, EncryptionRules, Matmuls, ProtocolRules, ServerExposure,
    two_servers,
};
use crate::{Error, PartyId, Program, disclosure::Line, message::Kind, rules::Can::Rebuild, rules::Matmul};

/// The facts.
pub(super) struct SecSv;

impl ProtocolRules for SecSv {
    fn name(&self) -> &'static str {
        "secsv"
    }

    fn session_byte(&self) -> u8 {
        0
    }

    fn servers(&self) -> &'static [PartyId] {
        two_servers::SERVERS
    }

    fn kinds(&self) -> &'static [&'static [Kind]] {
        const OWN: &[Kind] =
            &[Kind::ServerKeys, Kind::FirstLayerHalf, Kind::LayerHalf, Kind::PublicKeyDigest];
        &[COMMON_KINDS, two_servers::KINDS, ENCRYPTED_MODEL_KINDS, OWN]
    }

    fn matmuls(&self) -> Matmuls {
        Matmuls {
            usual: Matmul::Packed,
            all: &[Matmul::Packed, Matmul::Reducing],
            expected: "packed or reducing with secsv: rotations leave too little room for flooding",
        }
    }

    fn encryption(&self) -> Option<&'static dyn EncryptionRules> {
        Some(&Self)
    }

    fn batching(&self) -> Batching {
        Batching { mixes_owners: true, tests_together: true, gathers: true }
    }

    fn deals(&self, has_gru: bool) -> bool {
        has_gru
    }

    fn disclosures(&self, program: &Program) -> Vec<Line> {
        two_servers::disclosures(program)
    }

    fn exposure(&self) -> ServerExposure {
        ServerExposure {
            alone: two_servers::ALONE,
            together: [(Rebuild, Rebuild); 3],
            said: [
                "Any client together with the principal can rebuild all samples and all models: clients share the key to what the principal holds.",
                "Any client together with the auxiliary can rebuild all models, because clients share the key to them. They can also rebuild the samples that this client reads about, and the labels.",
                "Both servers together can rebuild all samples, and all models from activations and from which predictions differ.",
            ],
            aggregator: super::NO_AGGREGATOR,
            clients: super::TWO_CLIENTS,
            trust: "Two servers that must not collude: together they open all samples and activations and can rebuild all models. A client together with one server opens what that server holds, and can open labels, because clients share a key and the secret that masks labels.",
            brief: "Models stayed encrypted and test cases were split between two servers, so that neither server alone could \
                    read them. If the two servers worked together, they could.",
        }
    }
}

/// Products of an encrypted and a shared matrix.
impl EncryptionRules for SecSv {
    fn parameters(&self, preset: Preset) -> Result<Arc<Parameters>, Error> {
        Ok(Parameters::preset(preset)?)
    }

    fn noise(&self, layout: &Layout) -> Result<NoiseBound, Error> {
        Ok(layout.half_noise().of_two_servers())
    }
}
