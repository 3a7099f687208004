//! The status page for people: one page without scripts that asks for itself again every few seconds.

use std::time::{Duration, UNIX_EPOCH};

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{PeerStatus, ProcessPhase, RoundStatus, Status, live_page::live};
use crate::kit::date;

const STYLE: &str = "
:root{color-scheme:light dark}
body{font:16px/1.45 system-ui,sans-serif;max-width:46rem;margin:0 auto;padding:.75rem}
h1{font-size:1.25rem;margin:.25rem 0}h2{font-size:1.05rem;margin:1.25rem 0 .25rem}
p{margin:.25rem 0}table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.25rem .5rem .25rem 0;vertical-align:top;overflow-wrap:break-word}
td.n,th.n{text-align:right;white-space:nowrap}
svg.line{width:100%;min-width:5rem;max-width:18rem;height:2.25rem;display:block}
progress{width:100%}.away{font-weight:600}.small{font-size:.85rem;opacity:.8;overflow-wrap:anywhere}
";
/// Coalitions under way that a round's row names.
const MAX_NAMED: usize = 3;

/// The page.
pub(super) fn page(status: &Status) -> Markup {
    let (asked, done) =
        status.rounds.iter().fold((0, 0), |sum, round| (sum.0 + round.asked, sum.1 + round.done));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                @if status.live.is_some() || !matches!(status.phase, ProcessPhase::Finished | ProcessPhase::Failed) {
                    meta http-equiv="refresh" content="5";
                }
                title { (status.party) ": " (status.phase.name()) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (status.federation) }
                p { (status.party) ", " (status.protocol) ": " strong { (status.phase.name()) } }
                @if !status.awaited.is_empty() {
                    p.away role="alert" { "Waiting for " (status.awaited.join(", ")) }
                }
                @if asked > 0 {
                    h2 { "Tests" }
                    progress value=(done) max=(asked) aria-label="Tests done" {}
                    p { (done) " of " (asked) " coalitions tested"
                        @if let Some(left) = status.seconds_left { ", about " (duration(left)) " left" } }
                    (rounds(&status.rounds))
                }
                @if let Some(values) = &status.live { (live(status, values)) }
                @if let Some(finished) = status.tests_finished {
                    h2 { "Tests" }
                    @if let Some(planned) = status.tests_planned {
                        progress value=(finished) max=(planned) aria-label="Tests finished" {}
                        p { (finished) " of " (planned) " tests are through" }
                    } @else {
                        p { (finished) " tests are through" }
                    }
                }
                h2 { "Parties" }
                (peers(&status.peers, status.live.as_ref().is_some_and(|live| live.waiting.is_some())))
                @if let Some(until) = status.certificate_until {
                    p.small { "Certificate valid until " (moment(until)) }
                }
                p.small { "Running for " (duration(status.uptime_seconds)) ". Federation " code { (status.digest) } }
            }
        }
    }
}

fn rounds(rounds: &[RoundStatus]) -> Markup {
    html! {
        table {
            thead { tr { th { "Round" } th.n { "Tested" } th { "Under way" } } }
            tbody {
                @for round in rounds {
                    tr {
                        td { (round.round) }
                        td.n { (round.done) " / " (round.asked) }
                        td { (under_way(round)) }
                    }
                }
            }
        }
    }
}

fn under_way(round: &RoundStatus) -> String {
    let named: Vec<String> = round
        .open
        .iter()
        .take(MAX_NAMED)
        .map(|members| if members.is_empty() { "nobody".to_owned() } else { members.join(" + ") })
        .collect();
    let more = round.asked.saturating_sub(round.done).saturating_sub(named.len());
    match (named.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => named.join("; "),
        (false, more) => format!("{}; {more} more", named.join("; ")),
    }
}

/// Everybody else. Between two rounds there are no links, and nothing is wrong.
fn peers(peers: &[PeerStatus], is_between: bool) -> Markup {
    html! {
        table {
            thead { tr { th { "Party" } th { "Connected" } th.n { "Sent" } th.n { "Received" } } }
            tbody {
                @for peer in peers {
                    tr {
                        td {
                            (peer.label.as_ref().unwrap_or(&peer.name))
                            @if peer.label.is_some() { " " span.small { (peer.name) } }
                            @if let Some(why) = &peer.refused_because {
                                br; span.away { (peer.refused) " refused and cut off: " (why) }
                            }
                            @if let (Some(why), None, false) = (&peer.trouble, peer.connected_since, is_between) {
                                br; span.small { (why) }
                            }
                        }
                        @match peer.connected_since {
                            Some(since) => td { "since " (moment(since)) },
                            None if is_between => td { "between rounds" },
                            None => td.away { @if peer.connections > 0 { "away" } @else { "not yet" } },
                        }
                        td.n { (bytes(peer.sent_bytes)) }
                        td.n { (bytes(peer.received_bytes)) }
                    }
                }
            }
        }
    }
}

/// A moment that may be wrapped between date and time.
fn moment(since: u64) -> String {
    date(UNIX_EPOCH + Duration::from_secs(since)).replace('T', " ").replace('Z', " UTC")
}

fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.1} KiB", count as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", count as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", count as f64 / 1_073_741_824.0),
    }
}

fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::board::tests::board, *};

    #[test]
    fn the_page_tells_and_escapes() {
        let text = page(&board().status()).into_string();
        for expected in [
            "1 of 3 coalitions tested",
            "north&lt;&amp;",
            "not yet",
            "http-equiv=\"refresh\"",
            "width=device-width",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        assert!(!text.contains("<&"), "{text}");
        let finished = Status { phase: ProcessPhase::Finished, ..board().status() };
        assert!(!page(&finished).into_string().contains("refresh"), "nothing changes any more");
    }

    #[test]
    fn sizes_and_times_are_for_people() {
        assert_eq!(
            [bytes(1023), bytes(1536), bytes(5 << 20), bytes(3 << 30)],
            ["1023 B", "1.5 KiB", "5.0 MiB", "3.00 GiB"]
        );
        assert_eq!([duration(59.4), duration(61.0), duration(7260.0)], ["59 s", "1 min 1 s", "2 h 1 min"]);
    }
}
