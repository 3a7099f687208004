//! Words that a reader of the report may not know.

use maud::{Markup, html};
use secsv_evaluation::EvaluationResult;

use super::folded;
use crate::protocol_name::ProtocolName;

const WORDS: [(&str, &str); 11] = [
    (
        "organisation, client",
        "Whoever trained a part of the shared model on data of its own and is valued here.",
    ),
    (
        "test case, sample",
        "One record with a known answer, kept aside by its owner, on which models are tried.",
    ),
    (
        "round",
        "One step of training: everybody improves the shared model on its own data, and the results are averaged.",
    ),
    ("combination, coalition", "Some of the organisations. Its model is the average of theirs alone."),
    (
        "points",
        "Hundredths of what is measured: where that is accuracy, right answers per hundred test cases.",
    ),
    (
        "contribution",
        "How much accuracy rises when an organisation joins, on average, by the method named above.",
    ),
    (
        "principal, auxiliary",
        "The two servers. They belong to organisations that do not pool what they hold.",
    ),
    ("layer", "One step inside a model, from the numbers of a case to one score for each answer."),
    ("activation", "The numbers inside a model between two layers. They can give away the case."),
    ("mask, share", "A random number that hides another: either alone says nothing, both together say all."),
    ("standard error", "How far a number would typically move if chance were repeated."),
];

/// Where the protocol needs one.
const DECRYPTOR: (&str, &str) = ("decryptor", "A client that decrypts intermediate numbers for the others.");

/// Explanations, the protocol's and the method's among them.
pub fn words(result: &EvaluationResult) -> Markup {
    let rules = ProtocolName::of(result).and_then(ProtocolName::rules);
    let decryptor = rules.filter(|rules| rules.has_decryptors()).map(|_| &DECRYPTOR);
    folded(
        "glossary",
        "Words",
        html! {
            dl class="words" {
                @for (word, meaning) in WORDS.iter().chain(decryptor) { dt { (word) } dd { (meaning) } }
                dt { (result.protocol) } dd { (protocol(&result.protocol)) }
                @if let Ok(method) = result.estimator.parse::<secsv_shapley::Method>() {
                    dt { (result.estimator) } dd { (method.about()) "." }
                }
            }
        },
    )
}

fn protocol(name: &str) -> &'static str {
    match name {
        "nssv" => "Everything in the clear, by one party that sees all: the yardstick for the others.",
        "blindsv" => "Two servers compute on masked numbers, and totals alone come out.",
        "secsv" => {
            "Models are encrypted, test cases shared between two servers; clients decrypt intermediate numbers."
        }
        "hesv" => {
            "One server computes on encrypted models and test cases; clients decrypt intermediate numbers."
        }
        "secretsv" => {
            "Models and test cases are shared between two servers; clients read intermediate numbers."
        }
        _ => "How models were tested.",
    }
}
