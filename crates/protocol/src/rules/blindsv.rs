//! BlindSV: two servers compute on numbers that both see under masks; owners deal the masks, and nobody reads a score.

use secsv_federation::{Architecture, skip::SkipMode};

use super::{Batching, Can, ClassCounts, FewSamples, Matmuls, ProtocolRules, ServerExposure, two_servers};
use crate::{
    Error, PartyId, Program,
    blindsv::{
        hops::{WORD_WIDTHS, between},
        wiring::wired,
    },
    disclosure::{Disclosure as D, Line, line},
    message::Kind,
    rules::Matmul,
};

/// The facts.
pub(super) struct BlindSv;

impl ProtocolRules for BlindSv {
    fn name(&self) -> &'static str {
        "blindsv"
    }

    fn session_byte(&self) -> u8 {
        3
    }

    fn servers(&self) -> &'static [PartyId] {
        two_servers::SERVERS
    }

    fn kinds(&self) -> &'static [&'static [Kind]] {
        &[&[
            Kind::ClientHello,
            Kind::Session,
            Kind::SealedClientKeys,
            Kind::RoundStart,
            Kind::Values,
            Kind::ModelMaskSeed,
            Kind::MaskSeed,
            Kind::DataShare,
            Kind::MaskedModel,
            Kind::DealtProduct,
            Kind::BlindTest,
            Kind::Dealing,
            Kind::MaskedOpening,
            Kind::OutcomeShare,
            Kind::TestFinished,
            Kind::RoundFinished,
        ]]
    }

    fn matmuls(&self) -> Matmuls {
        Matmuls {
            usual: Matmul::Packed,
            all: &[Matmul::Packed, Matmul::Reducing, Matmul::Squaring],
            expected: "any with blindsv: it encrypts no matrix",
        }
    }

    /// Nobody learns which predictions are right unless that is asked for in so many words.
    fn skip_refusal(&self, skip: SkipMode) -> Option<&'static str> {
        let refusal =
            "off or on with blindsv: with it the servers and owners learn which predictions are right";
        (skip == SkipMode::Auto).then_some(refusal)
    }

    fn skip_disclosure(&self) -> Option<Line> {
        Some(line(
            D::RightOrWrong,
            "the principal; the auxiliary and owners learn part of it from the samples that are left out",
            "which samples each tested coalition predicts right",
            "SampleSkip was asked for: it leaves out samples that smaller coalitions predict right",
        ))
    }

    fn class_counts(&self) -> Option<ClassCounts> {
        let line = line(
            D::ClassCounts,
            "the principal, and with the result everybody",
            "how many samples of all owners together each true class has, and how many of them each tested coalition predicts right: of a class with few samples that says much about each",
            "the utility is computed from them",
        );
        let alone = "The principal alone learns how many samples of all owners together each true class has and how many of them each tested coalition predicts right: what utilities are computed from, which everybody is told. Of a class with few samples that says much about each. Samples, single labels, models and scores it sees under masks that it does not know.";
        Some(ClassCounts { line, alone })
    }

    fn few_samples(&self) -> Option<FewSamples> {
        Some(FewSamples {
            samples: 30,
            owners: 2,
            refusal: "fewer than 30 samples in all, or of fewer than 2 owners, or 3 where numbers out of range are counted: what is told of all tells much about single samples or one owner's, so blindsv asks every owner to accept that (--accept-few-samples)",
        })
    }

    fn word_widths(&self) -> &'static [u32] {
        &WORD_WIDTHS
    }

    fn batching(&self) -> Batching {
        Batching { mixes_owners: false, tests_together: true, gathers: false }
    }

    fn deals(&self, _: bool) -> bool {
        true
    }

    /// Totals are opened at the principal alone.
    fn recounts(&self) -> bool {
        false
    }

    fn has_decryptors(&self) -> bool {
        false
    }

    /// A chain of layers where one hop is enough between two, otherwise nodes.
    fn program(&self, architecture: &Architecture) -> Result<Program, Error> {
        let chain = Program::new(architecture).ok();
        let is_chain = |program: &Program| program.gru.is_none() && between(program).is_ok();
        chain.filter(is_chain).map_or_else(|| wired(architecture), Ok)
    }

    fn disclosures(&self, program: &Program) -> Vec<Line> {
        let mut lines = vec![
            line(
                D::Counts,
                "the principal",
                "how many samples of all owners together each tested coalition predicts right",
                "utilities are computed from them",
            ),
            line(
                D::Schedule,
                "the auxiliary and owners",
                "which coalitions are tested, and when",
                "the auxiliary does its half, and owners deal for it",
            ),
        ];
        if program.published() > 1 {
            lines.push(line(
                D::Overflows,
                "everybody",
                "how many hidden numbers each tested coalition has out of their range, of samples of all owners that do not know its model: 0 unless a result is in doubt",
                "nobody reads hidden numbers, so one that leaves a range that is only measured must be counted",
            ));
        }
        lines
    }

    fn exposure(&self) -> ServerExposure {
        ServerExposure {
            alone: [
                "The principal alone learns how many samples of all owners together each tested coalition predicts right: the utilities, which everybody is told. Samples, labels, models and scores it sees under masks that it does not know.",
                "The auxiliary alone learns which coalitions are tested and when. Samples, labels, models and scores it sees under masks that it does not know.",
            ],
            together: [
                (Can::Nothing, Can::Rebuild),
                (Can::Nothing, Can::Rebuild),
                (Can::Rebuild, Can::Rebuild),
            ],
            said: [
                "Any client together with the principal can rebuild all models: clients know the auxiliary's masks of them. Of other clients' samples they have the totals alone.",
                "Any client together with the auxiliary can rebuild all models: clients know the principal's masks of them. Of other clients' samples they have the totals alone.",
                "Both servers together can rebuild all samples, labels and models: they hold both shares of everything.",
            ],
            aggregator: (
                Can::Nothing,
                Can::Rebuild,
                "No server may be run by whoever aggregated the training: it knows all models. Of samples it has the totals that everybody is told, over all owners together. With few samples totals say much about each, and two sessions whose samples differ by one say which models predict that sample right.",
            ),
            clients: (
                "any number of clients",
                Can::Nothing,
                Can::Nothing,
                "Clients together, however many, learn what is published and no more: utilities, and with them counts of classes or of numbers out of range where these are asked for. From these they can subtract how many of their own samples a model that they know predicts right.",
            ),
            trust: "Two servers that must not collude: together they open all samples, labels and models. A client together with one server opens all models, and no other client's samples. Clients alone, however many, learn the published utilities.",
            brief: "Models and test cases were split between two servers, so that neither alone could read them, and no \
                    other participant received anything but the result. If the two servers worked together, they could \
                    read everything.",
        }
    }
}
