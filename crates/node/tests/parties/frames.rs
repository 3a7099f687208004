//! What parties sent each other, as their logs say.

use std::{collections::BTreeMap, fs};

use secsv_protocol::message::Kind;
use serde_json::Value;

use crate::{federation::Fixture, process::parties};

/// Sender, receiver and kind.
pub type Link = (String, String, String);

/// A message that a party sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sent {
    pub link: Link,
    pub bytes: u64,
    /// Of all its bytes.
    pub digest: String,
}

/// Messages that a party has sent so far; those of a killed process are among them.
pub fn sent_by(fixture: &Fixture, party: &str) -> Vec<Sent> {
    let frame = |frame: Value| {
        let text = |field: &str| frame[field].as_str().unwrap().to_owned();
        (text("direction") == "sent").then(|| Sent {
            link: (party.to_owned(), text("peer"), text("kind")),
            bytes: frame["size"].as_u64().unwrap(),
            digest: text("digest"),
        })
    };
    frames(fixture, party).into_iter().filter_map(frame).collect()
}

/// How many messages of a kind a party has received from another so far.
pub fn received_by(fixture: &Fixture, party: &str, (from, kind): (&str, Kind)) -> usize {
    let is_one = |frame: &Value| {
        (&frame["direction"], &frame["peer"], &frame["kind"])
            == (&"received".into(), &from.into(), &kind.name().into())
    };
    frames(fixture, party).iter().filter(|frame| is_one(frame)).count()
}

fn frames(fixture: &Fixture, party: &str) -> Vec<Value> {
    let log = fs::read_to_string(fixture.options(party).state.join("audit.jsonl")).unwrap_or_default();
    // The last line may not be whole yet.
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter_map(|mut line| Some(line.get_mut("frame")?.take())).collect()
}

/// Everything that was sent, in order of links and contents.
pub fn all_sent(fixture: &Fixture) -> Vec<Sent> {
    let mut sent: Vec<Sent> = parties().iter().flat_map(|party| sent_by(fixture, party)).collect();
    sent.sort();
    sent
}

/// Bytes and messages by link and kind.
pub fn by_link(sent: &[Sent]) -> BTreeMap<Link, (u64, u64)> {
    let mut links: BTreeMap<Link, (u64, u64)> = BTreeMap::new();
    for Sent { link, bytes, .. } in sent {
        let (sum, messages) = links.entry(link.clone()).or_default();
        (*sum, *messages) = (*sum + bytes, *messages + 1);
    }
    links
}
