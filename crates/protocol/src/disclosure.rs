//! Who learns what: everything a party sees in the clear beyond its own input, in one list. Whatever opens a value
//! names the entry it stands on.

use crate::{Program, decryptors::Protocol};

/// One thing that somebody learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Disclosure {
    /// Norms, ranges, sizes, participation.
    Published,
    /// Which predictions of each tested coalition are right.
    RightOrWrong,
    /// How many predictions of each tested coalition are right.
    Counts,
    /// Right or wrong, for each slot of a batch that is not one's own.
    SlotsRightOrWrong,
    /// A layer's outputs for the samples of others.
    LayerOutputs,
    /// A recurrent unit's gates of all steps but the first.
    Gates,
    /// A recurrent unit's hidden states.
    HiddenStates,
    /// The classes predicted for the samples of others.
    Predictions,
    /// Factors under one-time masks.
    MaskedFactors,
    /// Which samples are tested on which coalition.
    Schedule,
    /// The values.
    Values,
}

/// One line of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// What.
    pub disclosure: Disclosure,
    /// Who learns it.
    pub who: &'static str,
    /// What exactly.
    pub what: &'static str,
    /// Why it cannot be avoided here, or why it does no harm.
    pub why: &'static str,
}

/// Everything that is learned under a protocol.
pub fn disclosures(protocol: Protocol, program: &Program, skips: bool) -> Vec<Line> {
    let has_gru = program.gru.is_some();
    use Disclosure as D;
    let mut lines = vec![line(
        D::Published,
        "everybody",
        "the model's architecture, training and test set sizes, who took part in which round, and for each layer and client one power of two that bounds its weights and one that bounds its activations",
        "fixed-point formats that cannot overflow are chosen from them",
    )];
    lines.extend(of_servers(protocol, program));
    lines.extend(of_decryptors(program));
    if protocol == Protocol::SecretSv || (has_gru && protocol == Protocol::SecSv) {
        lines.push(line(
            D::MaskedFactors,
            "both servers",
            "factors of products under one-time masks that a client dealt",
            "multiplication of shares; uniform to whoever does not hold the masks",
        ));
    }
    if skips {
        lines.push(line(D::Schedule, "owners, decryptors and the auxiliary", "how many samples, and which, are tested on a coalition or may still be on larger ones: it depends on which smaller coalitions were right", "SampleSkip saves their tests"));
    }
    lines.push(line(
        D::Values,
        "everybody",
        "every client's contribution and the utility of each tested coalition",
        "the purpose",
    ));
    lines
}

/// Lines about servers and about the client that counts for one.
fn of_servers(protocol: Protocol, program: &Program) -> Vec<Line> {
    use Disclosure as D;
    let mut lines = Vec::new();
    match protocol {
        Protocol::Hesv => {
            lines.push(line(
                D::Counts,
                "the server",
                "how many predictions of each tested coalition are right, owner by owner",
                "utilities are computed from them",
            ));
            lines.push(line(D::SlotsRightOrWrong, "the counting client of a batch", "right or wrong for each sample of a batch that is not its own, under random factors that hide the classes", "somebody has to count"));
        }
        _ => {
            let right = if program.classes > 2 {
                "which samples each tested coalition predicts right, as right or wrong alone: differences are blinded by a secret of the clients"
            } else {
                "which samples each tested coalition predicts right: of two classes a difference says no more"
            };
            lines.push(line(
                D::RightOrWrong,
                "the principal",
                right,
                "utilities are computed from them, and SampleSkip needs them",
            ));
            lines.push(line(
                D::RightOrWrong,
                "the auxiliary",
                "the same once a test is over, but of models that owners test themselves only how many are right",
                "it counts for itself, to find a principal that reports other counts",
            ));
            lines.push(line(
                D::Schedule,
                "the auxiliary",
                "which coalition is tested on which samples and when",
                "it multiplies its share",
            ));
        }
    }
    lines
}

/// Lines about clients that decrypt.
fn of_decryptors(program: &Program) -> Vec<Line> {
    use Disclosure as D;
    let mut lines = Vec::new();
    let outputs = if program.compares_with_last_class() {
        "that layer's outputs for samples of others, from which it can rebuild these; of the last layer only how far scores are above the last class's"
    } else {
        "that layer's outputs for samples of others, from which it can rebuild these"
    };
    lines.push(line(D::LayerOutputs, "the decryptor of a layer", outputs, "activations are computed in the clear (the paper's globally encrypted, locally decrypted strategy); the rules of docs/SECURITY.md keep these clients few and do not protect against them"));
    lines.push(line(
        D::Predictions,
        "the last decryptor",
        "the classes predicted for samples of others",
        "it computes the largest score",
    ));
    if program.gru.is_some() {
        lines.push(line(
            D::Gates,
            "the gate decryptor of a unit",
            "gates of all steps but the first, from which it can compute every hidden state",
            "it computes them",
        ));
        lines.push(line(
            D::HiddenStates,
            "the re-sharer of a unit",
            "the first step's gates and every hidden state",
            "states are re-encoded without a truncation protocol",
        ));
    }
    lines
}

fn line(disclosure: Disclosure, who: &'static str, what: &'static str, why: &'static str) -> Line {
    Line { disclosure, who, what, why }
}

/// What collusion opens: the ladder of trust.
pub fn trust(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Hesv => {
            "One server, which reads counts and nothing else. A client together with the server opens what the server holds, because clients share a key."
        }
        Protocol::SecSv => {
            "Two servers that must not collude: together they open all samples and activations and can rebuild all models. A client together with one server opens what that server holds, and can open labels, because clients share a key and the secret that masks labels."
        }
        Protocol::SecretSv => {
            "Two servers that must not collude: together they open all samples and all models. A client together with one server opens the models it dealt masks for (an owner the first layer of every local model, a decryptor the next layer of a coalition's) and from them, by solving equations, samples whose outputs it decrypts. It can open labels too, because clients share the secret that masks them."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::GruShape;

    #[test]
    fn every_protocol_lists_what_its_server_learns() {
        let program = Program {
            input_size: 1,
            classes: 2,
            prelude: Vec::new(),
            operators: Vec::new(),
            steps: Vec::new(),
            gru: Some(GruShape { steps: 1, hidden: 1, hidden_operator: 0 }),
        };
        for protocol in [Protocol::SecSv, Protocol::Hesv, Protocol::SecretSv] {
            let lines = disclosures(protocol, &program, false);
            assert!(lines.iter().any(|line| line.disclosure == Disclosure::Values));
            let counts = lines.iter().any(|line| line.disclosure == Disclosure::Counts);
            assert_eq!(counts, protocol == Protocol::Hesv, "samples stay hidden from a single server");
            assert!(!trust(protocol).is_empty());
        }
    }
}
