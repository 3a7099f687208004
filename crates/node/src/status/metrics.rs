//! The board in Prometheus' text format (version 0.0.4).

use std::fmt::Write as _;

use super::{PeerStatus, ProcessPhase, Status};

/// The metrics page.
pub(super) fn metrics(status: &Status) -> String {
    let mut text = String::new();
    let party =
        [("party", status.party.as_str()), ("protocol", &status.protocol), ("federation", &status.digest)];
    family(&mut text, "secsv_info", "gauge", "Whose process this is", [(&party[..], 1.0)]);
    family(
        &mut text,
        "secsv_uptime_seconds",
        "gauge",
        "Since the process started",
        [(&[][..], status.uptime_seconds)],
    );
    let phases = ProcessPhase::ALL
        .map(|phase| ([("phase", phase.name())], f64::from(u8::from(phase == status.phase))));
    let phases = phases.iter().map(|(label, value)| (&label[..], *value));
    family(&mut text, "secsv_phase", "gauge", "1 for what the process does", phases);
    if let Some(left) = status.seconds_left {
        family(&mut text, "secsv_seconds_left", "gauge", "Estimated time left", [(&[][..], left)]);
    }
    if let Some(until) = status.certificate_until {
        let help = "When the certificate ends, in seconds since 1970";
        family(&mut text, "secsv_certificate_until_seconds", "gauge", help, [(&[][..], until as f64)]);
    }
    if let Some(bytes) = resident_memory() {
        let help = "Memory of the process";
        family(&mut text, "secsv_resident_memory_bytes", "gauge", help, [(&[][..], bytes as f64)]);
    }
    let rounds: Vec<(String, usize, usize)> =
        status.rounds.iter().map(|round| (round.round.to_string(), round.asked, round.done)).collect();
    for (name, help, pick) in [
        (
            "secsv_tests_asked_total",
            "Tests asked for, by round",
            (|r| r.1) as fn(&(String, usize, usize)) -> usize,
        ),
        ("secsv_tests_done_total", "Tests done, by round", |r| r.2),
    ] {
        let samples: Vec<_> =
            rounds.iter().map(|round| ([("round", round.0.as_str())], pick(round) as f64)).collect();
        family(&mut text, name, "counter", help, samples.iter().map(|(label, value)| (&label[..], *value)));
    }
    peers(&mut text, &status.peers);
    text
}

/// A metric of a peer: name, type, help, value.
type PeerMetric = (&'static str, &'static str, &'static str, fn(&PeerStatus) -> f64);

const PEER_METRICS: [PeerMetric; 7] = [
    ("secsv_refused_messages_total", "counter", "Messages of the party that were refused", |p| {
        p.refused as f64
    }),
    ("secsv_peer_connected", "gauge", "1 if the party is connected", |p| {
        f64::from(u8::from(p.connected_since.is_some()))
    }),
    ("secsv_peer_connections_total", "counter", "How often the party came", |p| p.connections as f64),
    ("secsv_sent_frames_total", "counter", "Frames sent to the party", |p| p.sent_frames as f64),
    ("secsv_sent_bytes_total", "counter", "Bytes sent to the party", |p| p.sent_bytes as f64),
    ("secsv_received_frames_total", "counter", "Frames received from the party", |p| {
        p.received_frames as f64
    }),
    ("secsv_received_bytes_total", "counter", "Bytes received from the party", |p| p.received_bytes as f64),
];

fn peers(text: &mut String, peers: &[PeerStatus]) {
    for (name, kind, help, value) in PEER_METRICS {
        let samples: Vec<_> =
            peers.iter().map(|peer| ([("peer", peer.name.as_str())], value(peer))).collect();
        family(text, name, kind, help, samples.iter().map(|(label, value)| (&label[..], *value)));
    }
}

fn family<'a>(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    samples: impl IntoIterator<Item = (&'a [(&'a str, &'a str)], f64)>,
) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in samples {
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(text, "{name}{labels} {value}");
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// What the system says the process holds, where it tells.
fn resident_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::{super::board::tests::board, *};

    #[test]
    fn every_line_is_a_comment_or_a_sample_of_a_family_named_before() {
        let text = metrics(&board().status());
        let mut family = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                family = rest.split(' ').next().unwrap().to_owned();
            } else if !line.starts_with("# HELP ") {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert_eq!(name.split('{').next().unwrap(), family, "{line}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        for expected in [
            "secsv_tests_asked_total{round=\"2\"} 3\n",
            "secsv_tests_done_total{round=\"2\"} 1\n",
            "secsv_peer_connected{peer=\"north<&\\\"\"} 1\n",
            "secsv_peer_connected{peer=\"auxiliary\"} 0\n",
            "secsv_sent_bytes_total{peer=\"north<&\\\"\"} 15\n",
            "secsv_phase{phase=\"running\"} 1\n",
            "secsv_phase{phase=\"paused\"} 0\n",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }
}
