//! Logs against each other: what one says it sent, the other received, and nothing else.

use std::collections::BTreeMap;

use secsv_protocol::{PartyId, message::Kind};

use super::{Finding, Verification, log::ReadLog};
use crate::audit::{Direction, Frame};

/// Frames by number.
type Numbered<'a> = BTreeMap<u64, (usize, &'a Frame)>;

pub(super) fn check(logs: &[ReadLog], found: &mut Verification) {
    for log in logs {
        check_numbers(log, found);
    }
    if let [first, others @ ..] = logs {
        for other in others {
            if let (Some(one), Some(another)) = (first.federation, other.federation)
                && one != another
            {
                let what = format!("expected a log of federation {one}, found one of {another}");
                found.findings.push(Finding::new(&other.file, Some(1), what));
            }
        }
    }
    for sender in logs {
        let Some(from) = &sender.party else { continue };
        for (to, sent) in by_peer(sender, Direction::Sent) {
            match logs.iter().find(|log| log.party.as_deref() == Some(to)) {
                Some(receiver) => {
                    let received =
                        by_peer(receiver, Direction::Received).remove(from.as_str()).unwrap_or_default();
                    compare(sender, &sent, receiver, &received, found);
                }
                None => found.frames_unmatched += sent.len(),
            }
        }
        for (peer, received) in by_peer(sender, Direction::Received) {
            let Some(other) = logs.iter().find(|log| log.party.as_deref() == Some(peer)) else {
                found.frames_unmatched += received.len();
                continue;
            };
            if !by_peer(other, Direction::Sent).contains_key(from.as_str()) {
                compare(other, &BTreeMap::new(), sender, &received, found);
            }
        }
    }
}

fn by_peer(log: &ReadLog, direction: Direction) -> BTreeMap<&str, Numbered<'_>> {
    let mut peers: BTreeMap<&str, Numbered<'_>> = BTreeMap::new();
    for (line, frame) in log.frames().filter(|(_, frame)| frame.direction == direction) {
        peers.entry(&frame.peer).or_default().entry(frame.number).or_insert((line, frame));
    }
    peers
}

/// Numbers on a link count up without gaps, and none comes twice.
fn check_numbers(log: &ReadLog, found: &mut Verification) {
    let mut seen: BTreeMap<(Direction, &str, u64), usize> = BTreeMap::new();
    for (line, frame) in log.frames() {
        if let Some(first) = seen.insert((frame.direction, &frame.peer, frame.number), line) {
            let what =
                format!("expected each frame once, found {} again (line {first} has it)", described(frame));
            found.findings.push(Finding::new(&log.file, Some(line), what));
        }
    }
    for direction in [Direction::Sent, Direction::Received] {
        for (peer, frames) in by_peer(log, direction) {
            let missing = (0..).zip(frames.keys()).find(|(expected, number)| *expected != **number);
            if let Some((expected, _)) = missing {
                let line = frames.range(expected..).next().map(|(_, (line, _))| *line);
                let what = format!("expected frame {expected} {} {peer}, found none", direction.words());
                found.findings.push(Finding::new(&log.file, line, what));
            }
        }
    }
}

fn compare(
    sender: &ReadLog,
    sent: &Numbered<'_>,
    receiver: &ReadLog,
    received: &Numbered<'_>,
    found: &mut Verification,
) {
    let mut on_the_way = 0;
    let first_on_the_way = first_on_the_way(sender, sent, receiver, received);
    for (number, &(line, frame)) in sent {
        match received.get(number) {
            Some(&(there, other)) => {
                if let Some(difference) = difference(frame, other) {
                    let what = format!(
                        "expected {} as in line {line} of {}, found {difference}",
                        described(other),
                        sender.file.display()
                    );
                    found.findings.push(Finding::new(&receiver.file, Some(there), what));
                } else {
                    found.frames_agreed += 1;
                }
            }
            None if first_on_the_way.is_some_and(|first| first <= *number) => on_the_way += 1,
            None => {
                let what = format!("{}, which {} does not have", described(frame), receiver.file.display());
                found.findings.push(Finding::new(&sender.file, Some(line), what));
            }
        }
    }
    for (_, &(line, frame)) in received.iter().filter(|(number, _)| !sent.contains_key(number)) {
        let what = format!("{}, which {} does not have", described(frame), sender.file.display());
        found.findings.push(Finding::new(&receiver.file, Some(line), what));
    }
    if on_the_way > 0 {
        let when =
            if receiver.is_complete() { "had not arrived when it ended" } else { "have not arrived yet" };
        let what = format!("{on_the_way} frames sent by {} {when}", sender.file.display());
        found.notes.push(Finding::new(&receiver.file, None, what));
    }
}

/// The first frame that may still be on its way, if any may. Links keep the order: nothing that was sent before what has
/// arrived can be.
fn first_on_the_way(
    sender: &ReadLog,
    sent: &Numbered<'_>,
    receiver: &ReadLog,
    received: &Numbered<'_>,
) -> Option<u64> {
    let next = received.keys().next_back().map_or(0, |last| last + 1);
    // Logs may be copied in the middle of a run.
    if !receiver.is_complete() {
        return Some(next);
    }
    // What a party sends that was away and is back finds others at their end.
    if !sender.has_restarted() {
        return None;
    }
    let after = |kind: Kind| {
        let first = sent.iter().find(|(_, (_, frame))| frame.kind == kind.name());
        first.map(|(number, _)| next.max(number + 1))
    };
    // Nobody else ends before the values have come from the principal, and with them everything that it sent before.
    if sender.party == Some(PartyId::Principal.to_string()) {
        return after(Kind::Values);
    }
    // Nothing begins before the principal has had everybody's hello. What comes later others may have done in the
    // sender's place, so it can be missing.
    after(Kind::ClientHello).or(Some(next))
}

fn described(frame: &Frame) -> String {
    format!(
        "frame {} ({}, {} bytes) {} {}",
        frame.number,
        frame.kind,
        frame.size,
        frame.direction.words(),
        frame.peer
    )
}

fn difference(sent: &Frame, received: &Frame) -> Option<String> {
    match () {
        () if sent.kind != received.kind => {
            Some(format!("kind {:?} instead of {:?}", received.kind, sent.kind))
        }
        () if sent.size != received.size => Some(format!("{} bytes instead of {}", received.size, sent.size)),
        () if sent.digest != received.digest => {
            Some(format!("digest {} instead of {}", received.digest, sent.digest))
        }
        () => None,
    }
}
