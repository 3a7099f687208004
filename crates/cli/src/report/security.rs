//! Who learned what, who can do what with it, and what trust the protocol needs.

use maud::{Markup, html};
use secsv_evaluation::{EvaluationResult, SecurityResult};

use super::{
    amounts::{bytes, count},
    framed, section,
};

/// Everything a secure run disclosed; nothing for a run in the clear.
pub fn disclosed(result: &EvaluationResult) -> Markup {
    let Some(security) = &result.security else { return html! {} };
    html! {
        (section("disclosures", "Who learned what", html! {
            p { (security.trust) }
            (framed("Disclosures", html! {
                table {
                    thead { tr { th scope="col" { "Who" } th scope="col" { "Learned" } th scope="col" { "Why" } } }
                    tbody {
                        @for line in &security.disclosures {
                            tr { th scope="row" { (line.who) } td { (line.what) } td { (line.why) } }
                        }
                    }
                }
            }))
        }))
        (section("exposure", "Who can do what with other clients' samples and models", html! {
            @for sentence in &security.exposure.sentences { p { strong { (sentence) } } }
            (framed("Exposure", html! {
                table {
                    thead {
                        tr {
                            th scope="col" { "Who" }
                            th scope="col" { "Samples" }
                            th scope="col" { "Models" }
                            th scope="col" { "In one sentence" }
                        }
                    }
                    tbody {
                        @for row in &security.exposure.rows {
                            tr {
                                th scope="row" { (row.who) }
                                td { (row.samples) }
                                td { (row.models) }
                                td { (row.sentence) }
                            }
                        }
                    }
                }
            }))
            (distance(security))
        }))
        (messages(result))
    }
}

/// Statistical distance that flooding keeps, for one reply and for all.
fn distance(security: &SecurityResult) -> Markup {
    html! {
        @match security.statistical_bits_per_reply {
            Some(bits) if security.statistical_claim => {
                p {
                    "Each of the " (count(security.replies)) " replies to a decryptor is within 2" sup { "-" (bits) }
                    " of one that depends on nothing but the planned outputs; all of them together within 2"
                    sup { "-" (format!("{:.0}", f64::from(bits) - (security.replies.max(1) as f64).log2())) } "."
                }
            }
            Some(_) => p { "These parameters make no statistical claim about replies to decryptors." },
            None => {}
        }
    }
}

fn messages(result: &EvaluationResult) -> Markup {
    section(
        "messages",
        "Messages",
        framed(
            "Messages by kind",
            html! {
                table {
                    thead {
                        tr { th scope="col" { "Kind" } th scope="col" class="amount" { "Messages" } th scope="col" class="amount" { "Bytes" } }
                    }
                    tbody {
                        @for kind in &result.messages {
                            tr {
                                th scope="row" { (kind.kind) }
                                td class="amount" { (count(kind.messages)) }
                                td class="amount" { (bytes(kind.bytes)) }
                            }
                        }
                    }
                }
            },
        ),
    )
}
