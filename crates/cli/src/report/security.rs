//! Who learned what, who can do what with it, and what trust the protocol needs.

use maud::{Markup, html};
use secsv_evaluation::{EvaluationResult, ExposureRow, SecurityResult};

use super::{
    amounts::{bytes, count},
    folded, framed, section,
};

/// Who could rebuild whose samples and models, in words and in a table; nothing for a run in the clear.
pub fn rebuilding(result: &EvaluationResult) -> Markup {
    let Some(security) = &result.security else { return html! {} };
    section(
        "exposure",
        "Who can rebuild what of others",
        html! {
            @for sentence in &security.exposure.sentences { p { strong { (sentence) } } }
            @for (who, whose) in rebuilders(security) {
                p { (whose) ": " (who) "." }
            }
            (framed("Exposure", html! {
                table class="stacked" {
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
                                th scope="row" { (row.called()) }
                                td data-label="Samples" { (row.samples) }
                                td data-label="Models" { (row.models) }
                                td { (row.sentence) }
                            }
                        }
                    }
                }
            }))
        },
    )
}

/// Those who can rebuild, by what they can rebuild.
fn rebuilders(security: &SecurityResult) -> Vec<(String, &'static str)> {
    const CAN: &str = "can rebuild";
    let who = |of: &dyn Fn(&ExposureRow) -> bool| {
        let found: Vec<_> =
            security.exposure.rows.iter().filter(|row| of(row)).map(ExposureRow::called).collect();
        found.join(", ")
    };
    [
        (
            who(&|row| row.samples == CAN && row.models == CAN),
            "Could rebuild test cases and models of others",
        ),
        (who(&|row| row.samples == CAN && row.models != CAN), "Could rebuild test cases of others"),
        (who(&|row| row.samples != CAN && row.models == CAN), "Could rebuild models of others"),
    ]
    .into_iter()
    .filter(|(who, _)| !who.is_empty())
    .collect()
}

/// Everything a secure run disclosed, and its messages; nothing for a run in the clear.
pub fn disclosed(result: &EvaluationResult) -> Markup {
    let Some(security) = &result.security else { return html! {} };
    html! {
        (folded("disclosures", "Who learned what", html! {
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
            (distance(security))
            (ranges(security))
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

/// Ranges that hidden numbers were held to.
fn ranges(security: &SecurityResult) -> Markup {
    if security.ranges.is_empty() {
        return html! {};
    }
    framed(
        "Ranges of hidden numbers",
        html! {
            table {
                thead {
                    tr {
                        th scope="col" { "Layer" }
                        th scope="col" { "Bound" }
                        th scope="col" class="amount" { "At most" }
                        th scope="col" class="amount" { "Norms prove" }
                        th scope="col" class="amount" { "Bits after the point" }
                    }
                }
                tbody {
                    @for range in &security.ranges {
                        tr {
                            th scope="row" { (range.layer) }
                            td { (range.bound) }
                            td class="amount" { "2" sup { (range.bits) } }
                            td class="amount" { "2" sup { (range.proven_bits) } }
                            td class="amount" { (range.fraction_bits) }
                        }
                    }
                }
            }
        },
    )
}

fn messages(result: &EvaluationResult) -> Markup {
    if result.messages.is_empty() {
        return html! {};
    }
    folded(
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
