//! The table in sentences: with those that the rules of a protocol have on its servers, the only source of what commands,
//! reports and documents say.

use secsv_federation::Coalition;

use super::{
    Can::{self, Nothing, Rebuild, Recognise},
    Exposure, PartyExposure, Sight,
};
use crate::rules::ServerExposure;

/// What holds under every protocol in which clients decrypt.
pub const HEADLINE: &str = "Clients who decrypt can rebuild other clients' samples and models: they read scores or activations, and they know the global models.";

/// What happens where somebody stays away.
pub const TAKEOVER: &str =
    "If a client that decrypts stays away, another takes over and can rebuild the same samples.";

impl Exposure {
    /// What holds of everybody: nothing where nobody decrypts.
    pub fn headlines(&self) -> Vec<String> {
        let said = if self.has_decryptors() { &[HEADLINE, TAKEOVER][..] } else { &[] };
        said.iter().map(|sentence| (*sentence).to_owned()).collect()
    }

    /// What each client, each server and those together can do; `names` are the clients'.
    pub fn rows(&self, names: &[&str]) -> Vec<PartyExposure> {
        let clients = (0..self.clients.len()).map(|client| self.of_client(client, names));
        clients.chain(self.of_several()).chain(self.of_servers()).collect()
    }

    /// What others can do with one client's samples and models, sentence by sentence.
    pub fn of_owner(&self, owner: usize, names: &[&str]) -> Vec<String> {
        let others = || (0..self.clients.len()).filter(|&client| client != owner);
        let who = |can| -> Coalition { others().filter(|&c| self.of_samples(c, owner) == can).collect() };
        let models: Coalition = others().filter(|&client| self.of_models(client) == Rebuild).collect();
        let (own, samples) = (name(owner, names), self.samples_are);
        let said = |who: Coalition, can: String| {
            let alone = if who.len() > 1 { ", each alone" } else { "" };
            (!who.is_empty()).then(|| format!("{} {can}{alone}.", listed(who, names)))
        };
        let alone = [
            said(who(Rebuild), format!("can rebuild {own}'s {samples}")),
            said(who(Recognise), format!("can recognise {own}'s {samples}")),
            said(models, format!("can rebuild the layers of {own}'s local models that they read")),
        ];
        let mut sentences: Vec<String> = alone.into_iter().flatten().collect();
        if sentences.is_empty() {
            sentences.push(format!("No client alone reads anything about {own}'s {samples} or models."));
        }
        sentences.extend(self.has_decryptors().then(|| TAKEOVER.to_owned()));
        sentences.extend(self.of_several().into_iter().map(|row| row.sentence));
        sentences.push(self.protocol.rules().exposure().aggregator.2.to_owned());
        sentences
    }

    fn of_client(&self, client: usize, names: &[&str]) -> PartyExposure {
        let Sight { reads, judges, .. } = self.clients[client];
        let (who, samples_are) = (name(client, names), self.samples_are);
        let [reads, judges] = [reads, judges.difference(reads)].map(|owners| owners.without(client));
        let samples = match (reads.is_empty(), judges.is_empty()) {
            (false, _) => Rebuild,
            (true, false) => Recognise,
            (true, true) => Nothing,
        };
        let mut sentence = match samples {
            _ if !self.has_decryptors() => format!(
                "{who} receives which coalitions are tested, and the values. It reads nothing of other clients' {samples_are}, scores and models."
            ),
            Rebuild => format!(
                "{who} can rebuild the {samples_are} of {}, and of other clients' models {}.",
                listed(reads, names),
                self.parts(client)
            ),
            _ => format!("{who} reads no score and no activation of other clients' {samples_are}."),
        };
        if !judges.is_empty() {
            sentence
                .push_str(&format!(" {who} can recognise the {samples_are} of {}.", listed(judges, names)));
        }
        PartyExposure { who, samples, models: self.of_models(client), sentence }
    }

    /// The parts of other clients' models that a client can rebuild.
    fn parts(&self, client: usize) -> String {
        let Sight { layers, unit, .. } = &self.clients[client];
        if !self.has_gru && layers.len() == self.layers {
            return match self.layers {
                1 => "everything: their one layer".to_owned(),
                layers => format!("everything: {}s 1 to {layers}", self.step()),
            };
        }
        let unit = unit.then(|| "the recurrent unit's input and hidden weights".to_owned());
        let behind = if self.has_gru { " behind the recurrent unit" } else { "" };
        let layers = layers.iter().map(|layer| format!("{} {}{behind}", self.step(), layer + 1));
        joined(&unit.into_iter().chain(layers).collect::<Vec<_>>())
    }

    /// What a client reads the outputs of.
    fn step(&self) -> &'static str {
        if self.is_joined { "step" } else { "layer" }
    }

    fn of_several(&self) -> Vec<PartyExposure> {
        let ServerExposure { together, said, clients, .. } = self.protocol.rules().exposure();
        let servers = ["a client with the principal", "a client with the auxiliary", "both servers"];
        let servers = (0..3).map(|i| row(servers[i], together[i].0, together[i].1, said[i]));
        let (who, samples, models, sentence) = clients;
        [row(who, samples, models, sentence)].into_iter().chain(servers).collect()
    }

    fn of_servers(&self) -> [PartyExposure; 3] {
        let ServerExposure { alone: [principal, auxiliary], aggregator, .. } =
            self.protocol.rules().exposure();
        let (samples, models, sentence) = aggregator;
        let by_class = self.protocol.rules().class_counts().filter(|_| self.by_class);
        let principal = by_class.map_or(principal, |counts| counts.alone);
        [
            row("the principal", Nothing, Nothing, principal),
            row("the auxiliary", Nothing, Nothing, auxiliary),
            row("a server that aggregated the training", samples, models, sentence),
        ]
    }

    fn has_decryptors(&self) -> bool {
        self.protocol.rules().has_decryptors()
    }
}

fn row(who: &str, samples: Can, models: Can, sentence: &str) -> PartyExposure {
    PartyExposure { who: who.to_owned(), samples, models, sentence: sentence.to_owned() }
}

fn name(client: usize, names: &[&str]) -> String {
    names.get(client).map_or_else(|| format!("client {}", client + 1), |name| (*name).to_owned())
}

fn listed(clients: Coalition, names: &[&str]) -> String {
    joined(&clients.members().map(|client| name(client, names)).collect::<Vec<_>>())
}

/// One, two and three.
fn joined(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [before @ .., last] => format!("{} and {last}", before.join(", ")),
    }
}
