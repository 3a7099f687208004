//! Values of rounds on the status page: a line for each silo, which grows.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{LiveRound, LiveStatus, Status};

/// Width and height of a line's picture, and the room around the line.
const SIZE: (f64, f64) = (260.0, 36.0);
const MARGIN: f64 = 3.0;
/// Rounds that are listed, the latest first.
const LISTED: usize = 12;

/// What the page says of rounds that have ended.
pub(super) fn live(status: &Status, live: &LiveStatus) -> Markup {
    let labels: BTreeMap<&str, &str> =
        status.peers.iter().filter_map(|peer| Some((peer.name.as_str(), peer.label.as_deref()?))).collect();
    let lines: Vec<(&str, Vec<f64>)> =
        live.totals.keys().map(|id| (id.as_str(), sums(live, id.as_str()))).collect();
    let all = || lines.iter().flat_map(|(_, sums)| sums).copied();
    let (least, most) = (all().fold(0.0, f64::min), all().fold(0.0, f64::max));
    html! {
        h2 { "Values so far" }
        @if let Some(what) = &live.waiting { p { "Waiting for " (what) } }
        @if live.rounds.is_empty() { p.small { "No round has ended yet." } } @else {
            table {
                thead { tr { th { "Silo" } th.n { "Sum" } th.n { "Last round" } th { "By round" } } }
                tbody {
                    @for (id, sums) in &lines {
                        tr {
                            td { (labels.get(id).unwrap_or(id)) @if labels.contains_key(id) { " " span.small { (id) } } }
                            td.n { (signed(sums.last().copied().unwrap_or_default())) }
                            td.n { (last(live, id)) }
                            td { (line(id, sums, (least, most))) }
                        }
                    }
                }
            }
            table {
                thead { tr { th { "Round" } th.n { "Seconds" } th { "Values" } } }
                tbody { @for round in live.rounds.iter().rev().take(LISTED) { (row(round)) } }
            }
            @if live.rounds.len() > LISTED { p.small { (live.rounds.len() - LISTED) " rounds before" } }
        }
    }
}

fn row(round: &LiveRound) -> Markup {
    let seconds = round.seconds.map_or_else(String::new, |seconds| format!("{seconds:.1}"));
    let values = || {
        let value = |(id, value): (&_, &f64)| format!("{id} {}", signed(*value));
        round.values.iter().map(value).collect::<Vec<_>>().join(", ")
    };
    html! {
        tr {
            td { (round.round) }
            td.n { (seconds) }
            @match &round.missed { Some(why) => td.away { "missed: " (why) }, None => td { (values()) } }
        }
    }
}

/// A silo's sum after each round, from 0 on.
fn sums(live: &LiveStatus, id: &str) -> Vec<f64> {
    let value =
        |round: &LiveRound| round.values.iter().find(|(of, _)| of.as_str() == id).map_or(0.0, |(_, v)| *v);
    let sums = live.rounds.iter().scan(0.0, |sum, round| {
        *sum += value(round);
        Some(*sum)
    });
    std::iter::once(0.0).chain(sums).collect()
}

fn last(live: &LiveStatus, id: &str) -> String {
    let valued = live.rounds.iter().rev().find(|round| round.missed.is_none());
    let value = valued.and_then(|round| round.values.iter().find(|(of, _)| of.as_str() == id));
    value.map_or_else(|| "-".to_owned(), |(_, value)| signed(*value))
}

fn signed(value: f64) -> String {
    format!("{value:+.4}")
}

/// A silo's line, in the same scale as the others' lines, with one at 0.
fn line(id: &str, sums: &[f64], (least, most): (f64, f64)) -> Markup {
    let ((width, height), span) = (SIZE, (most - least).max(f64::MIN_POSITIVE));
    let step = (width - 2.0 * MARGIN) / (sums.len().max(2) - 1) as f64;
    let across = |place: usize| MARGIN + step * place as f64;
    let down = |value: f64| height - MARGIN - (height - 2.0 * MARGIN) * (value - least) / span;
    let points: Vec<String> = sums
        .iter()
        .enumerate()
        .map(|(place, &sum)| format!("{:.1},{:.1}", across(place), down(sum)))
        .collect();
    let (zero, end) = (format!("{:.1}", down(0.0)), sums.last().copied().unwrap_or_default());
    let label = format!("{id}: sum after each round, now {}", signed(end));
    let colour = if end < 0.0 { "#c2410c" } else { "#1d70b8" };
    html! {
        svg.line viewBox=(format!("0 0 {width} {height}")) preserveAspectRatio="none" role="img" aria-label=(label) {
            line x1="0" x2=(width) y1=(zero) y2=(zero) stroke="currentColor" stroke-opacity="0.3" {}
            polyline points=(points.join(" ")) fill="none" stroke=(colour) stroke-width="2" vector-effect="non-scaling-stroke" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use secsv_federation::ClientId;

    use super::{super::board::tests::board, *};

    fn round(number: u32, values: &[(&str, f64)]) -> LiveRound {
        let values = values.iter().map(|(id, value)| (ClientId::new(*id).unwrap(), *value)).collect();
        LiveRound { round: number, values, seconds: Some(1.25), missed: None }
    }

    #[test]
    fn each_silo_has_a_line_that_grows() {
        let missed = LiveRound { missed: Some("waited 5 s for <west>".into()), ..round(2, &[]) };
        let rounds =
            vec![round(1, &[("north", 0.5), ("south", -0.25)]), missed, round(3, &[("north", 0.25)])];
        let totals = [("north", 0.75), ("south", -0.25)].map(|(id, sum)| (ClientId::new(id).unwrap(), sum));
        let status = LiveStatus { rounds, totals: totals.into(), waiting: Some("rounds/0004.toml".into()) };
        assert_eq!(sums(&status, "north"), [0.0, 0.5, 0.5, 0.75]);
        let text = live(&board().status(), &status).into_string();
        assert_eq!(text.matches("<polyline").count(), 2);
        let points = |text: &str, at: usize| {
            text.split("points=\"").nth(at).unwrap().split('"').next().unwrap().split(' ').count()
        };
        assert_eq!(points(&text, 1), 4, "0 and a point for each round");
        for expected in
            ["+0.7500", "-0.2500", "rounds/0004.toml", "missed: waited 5 s for &lt;west&gt;", "1.2"]
        {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }
}
