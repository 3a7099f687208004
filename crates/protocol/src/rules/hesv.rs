//! HESV: models and samples are encrypted, one server multiplies them, and one more client counts the right predictions.

use std::sync::Arc;

use secsv_federation::skip::SkipMode;
use secsv_he::{NoiseBound, Parameters, Preset, linear::Layout};

use super::{
    Batching, COMMON_KINDS, ENCRYPTED_MODEL_KINDS, EncryptionRules, Matmuls, ProtocolRules, ServerExposure,
};
use crate::{
    Error, PartyId, Program,
    disclosure::{Disclosure as D, Line, line, of_decryptors},
    message::Kind,
    rules::Can::{Nothing, Rebuild},
    rules::Matmul,
};

/// The facts.
pub(super) struct Hesv;

impl ProtocolRules for Hesv {
    fn name(&self) -> &'static str {
        "hesv"
    }

    fn session_byte(&self) -> u8 {
        1
    }

    fn servers(&self) -> &'static [PartyId] {
        &[PartyId::Principal]
    }

    fn kinds(&self) -> &'static [&'static [Kind]] {
        const OWN: &[Kind] = &[
            Kind::BlindedDifferences,
            Kind::Count,
            Kind::EvaluationKeys,
            Kind::EncryptedData,
            Kind::EncryptedActivations,
            Kind::EncryptedLabels,
            Kind::EncryptedPredictions,
            Kind::OwnResultCounts,
        ];
        &[COMMON_KINDS, ENCRYPTED_MODEL_KINDS, OWN]
    }

    fn matmuls(&self) -> Matmuls {
        Matmuls {
            usual: Matmul::Squaring,
            all: &[Matmul::Squaring, Matmul::Reducing],
            expected: "squaring or reducing with hesv: packing is for half-encrypted products",
        }
    }

    fn skip_refusal(&self, skip: SkipMode) -> Option<&'static str> {
        (skip != SkipMode::Off)
            .then_some("off with hesv: its server learns counts, not which samples are right")
    }

    fn encryption(&self) -> Option<&'static dyn EncryptionRules> {
        Some(&Self)
    }

    /// Clients encrypt their own samples: no batch has two owners.
    fn batching(&self) -> Batching {
        Batching { mixes_owners: false, tests_together: false, gathers: false }
    }

    fn deals(&self, _: bool) -> bool {
        false
    }

    fn has_counting_client(&self) -> bool {
        true
    }

    fn disclosures(&self, program: &Program) -> Vec<Line> {
        let mut lines = vec![
            line(
                D::Counts,
                "the server",
                "how many predictions of each tested coalition are right, owner by owner",
                "utilities are computed from them",
            ),
            line(
                D::SlotsRightOrWrong,
                "the counting client of a batch",
                "right or wrong for each sample of a batch that is not its own, under random factors that hide the classes",
                "somebody has to count",
            ),
        ];
        lines.extend(of_decryptors(program));
        lines
    }

    fn exposure(&self) -> ServerExposure {
        ServerExposure {
            alone: [
                "The principal alone learns how many predictions of each tested coalition are right, owner by owner.",
                "The auxiliary takes no part.",
            ],
            together: [(Rebuild, Rebuild), (Rebuild, Rebuild), (Nothing, Nothing)],
            said: [
                "Any client together with the principal can rebuild all samples and all models: clients share the key to what the principal holds.",
                "The auxiliary takes no part: a client together with it can rebuild what the client can alone.",
                "The auxiliary takes no part: both servers together hold what the principal holds alone.",
            ],
            aggregator: super::NO_AGGREGATOR,
            clients: super::TWO_CLIENTS,
            trust: "One server, which reads counts and nothing else. A client together with the server opens what the server holds, because clients share a key.",
            brief: "Models and test cases stayed encrypted: the one server that did the work read only counts.",
        }
    }
}

/// Products of two encrypted matrices.
impl EncryptionRules for Hesv {
    fn check_preset(&self, preset: Preset) -> Result<(), Error> {
        match preset {
            Preset::Standard => Ok(()),
            Preset::Compact => Err(Error::Unsupported {
                what: "hesv needs the preset standard: compact has no room for products of two ciphertexts",
            }),
        }
    }

    fn parameters(&self, preset: Preset) -> Result<Arc<Parameters>, Error> {
        Ok(Parameters::for_full_products(preset)?)
    }

    fn noise(&self, layout: &Layout) -> Result<NoiseBound, Error> {
        layout.check_full().map_err(|_| Error::Unsupported {
            what: "a layer has more inputs than products of two ciphertexts can be summed under hesv",
        })?;
        Ok(layout.full_noise())
    }
}
