//! `rounds/0003.toml`: what one round brings to a federation that is valued while it trains.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    ClientId, Defect, Error, FederationSpec, RoundId, run_directory::read_text, spec::RoundOverride,
    spec::check_weight,
};

/// The directory of round files.
pub const ROUNDS: &str = "rounds";

/// A round: who took part, and with what weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundFile {
    /// Which round.
    pub round: RoundId,
    /// Whether none comes after it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
    /// Clients that have left, or have not come yet: nobody waits for them, and their samples are not tested.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub without: BTreeSet<ClientId>,
    /// Who took part.
    pub clients: Vec<Participant>,
}

/// A client that took part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Participant {
    /// Its name.
    pub id: ClientId,
    /// Training samples, where these are its weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_size: Option<u64>,
    /// Its weight, where that is no number of samples; the usual one if neither is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

impl Participant {
    fn weight(&self, spec: &FederationSpec) -> Option<f64> {
        let usual = || spec.clients.iter().find(|client| client.id == self.id).map(|client| client.weight);
        self.weight.or(self.train_size.map(|size| size as f64)).or_else(usual)
    }
}

impl fmt::Display for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

/// Where a round's file is.
pub fn round_path(directory: &Path, round: RoundId) -> PathBuf {
    directory.join(format!("{:04}.toml", round.0))
}

impl RoundFile {
    /// Rounds whose files are in a directory, in order.
    pub fn listed(directory: &Path) -> Result<BTreeSet<RoundId>, Error> {
        let listing = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            listing => listing.map_err(|source| Error::reading(directory, source))?,
        };
        let mut rounds = BTreeSet::new();
        for entry in listing {
            let name = entry.map_err(|source| Error::reading(directory, source))?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".toml"));
            let is_number = |text: &&str| text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_digit());
            rounds.extend(number.filter(is_number).and_then(|text| text.parse().ok()).map(RoundId));
        }
        rounds.remove(&RoundId(0));
        Ok(rounds)
    }

    /// Reads and checks a round's file.
    pub fn read(directory: &Path, round: RoundId, spec: &FederationSpec) -> Result<Self, Error> {
        let file = round_path(directory, round);
        let found = Self::parse(&read_text(&file)?, &file, spec)?;
        if found.round != round {
            let defect = Defect::AnotherRound { expected: round, found: found.round };
            return Err(Error::defect(&file, "round", defect));
        }
        Ok(found)
    }

    /// The same of its text; `file` is named in errors.
    pub fn parse(text: &str, file: &Path, spec: &FederationSpec) -> Result<Self, Error> {
        let mut found: Self = toml::from_str(text)
            .map_err(|source| Error::Toml { file: file.to_owned(), source: Box::new(source) })?;
        found.check(file, spec)?;
        // One spelling: in the federation's order, each with its weight.
        let position = |id: &ClientId| spec.ids().position(|known| known == id);
        found.clients.sort_by_key(|participant| position(&participant.id));
        for participant in &mut found.clients {
            let weight = participant.weight(spec).unwrap_or_default();
            let is_whole = weight.fract() == 0.0;
            participant.train_size = is_whole.then_some(weight as u64);
            participant.weight = (!is_whole).then_some(weight);
        }
        Ok(found)
    }

    /// The text of the file.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// Weights by client: 0 for those who took no part, none for those without whom the round is valued.
    pub fn weights(&self, spec: &FederationSpec) -> Vec<Option<f64>> {
        let of = |id: &ClientId| self.clients.iter().find(|participant| participant.id == *id);
        let weight = |id| of(id).and_then(|participant| participant.weight(spec)).unwrap_or(0.0);
        spec.ids().map(|id| (!self.without.contains(id)).then(|| weight(id))).collect()
    }

    fn check(&self, file: &Path, spec: &FederationSpec) -> Result<(), Error> {
        let most = spec.limits.map_or(spec.rounds, |limits| limits.rounds);
        if !(1..=most).contains(&self.round.0) {
            let defect = Defect::Range { least: 1, most: most.into(), found: self.round.0.into() };
            return Err(Error::defect(file, "round", defect));
        }
        let is_known = |id: &ClientId| spec.ids().any(|known| known == id);
        if let Some(id) = self.without.iter().find(|id| !is_known(id)) {
            return Err(Error::defect(file, "without", Defect::Unlisted { found: id.to_string() }));
        }
        let mut seen = BTreeSet::new();
        for participant in &self.clients {
            let (id, field) = (&participant.id, format!("clients.{}", participant.id));
            if !is_known(id) {
                return Err(Error::defect(file, field, Defect::Unlisted { found: id.to_string() }));
            }
            if !seen.insert(id) || self.without.contains(id) {
                return Err(Error::defect(file, field, Defect::DuplicateClient { found: id.clone() }));
            }
            if participant.train_size.is_some() && participant.weight.is_some() {
                return Err(Error::defect(file, field, Defect::TwoWeights));
            }
            match participant.weight(spec) {
                Some(weight) if weight != 0.0 => check_weight(id, weight, file)?,
                _ => return Err(Error::defect(file, field, Defect::NoWeight { round: self.round })),
            }
        }
        if self.clients.is_empty() {
            return Err(Error::defect(file, "clients", Defect::NobodyTookPart { round: self.round }));
        }
        Ok(())
    }
}

impl FederationSpec {
    /// The federation as it is in one round alone, among those who are there.
    pub fn in_round(&self, file: &RoundFile) -> Self {
        let weights = file.weights(self);
        let present = self.clients.iter().zip(weights).filter_map(|(client, weight)| Some((client, weight?)));
        let clients = present.map(|(client, weight)| {
            // The usual weight is not said again: results of all rounds name the same training sizes.
            let other = RoundOverride { round: file.round, weight };
            let rounds = if weight == client.weight { Vec::new() } else { vec![other] };
            crate::ClientSpec { rounds, ..client.clone() }
        });
        Self { first: file.round.0, rounds: file.round.0, clients: clients.collect(), ..self.clone() }
    }

    /// The federation with all of these rounds, which count from 1 and leave out nobody.
    pub fn in_rounds(&self, files: &BTreeMap<RoundId, RoundFile>) -> Self {
        let mut whole = self.clone();
        whole.rounds = files.len() as u32;
        for file in files.values() {
            for (client, weight) in whole.clients.iter_mut().zip(file.weights(self)) {
                let weight = weight.unwrap_or(0.0);
                if weight != client.weight {
                    client.rounds.push(RoundOverride { round: file.round, weight });
                }
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientSpec, LayerSpec, Limits, ModelSpec};

    fn spec() -> FederationSpec {
        let layer = LayerSpec::Linear { weight: "w".into(), bias: None };
        let clients = ["north", "south", "west"].map(|id| ClientSpec::new(ClientId::new(id).unwrap(), 10.0));
        let model = ModelSpec::new(vec![3], 2, [layer]);
        let limits = Some(Limits { rounds: 9, norm: 8.0, input: 4.0, hidden: None });
        FederationSpec { rounds: 0, limits, ..FederationSpec::new("live".into(), 1, model, clients.into()) }
    }

    fn parsed(text: &str) -> Result<RoundFile, String> {
        RoundFile::parse(text, Path::new("rounds/0003.toml"), &spec()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_round_is_one_text_however_it_was_written() {
        let text =
            "round = 3\nclients = [{ id = \"south\", weight = 10.0 }, { id = \"north\", train_size = 7 }]";
        let round = parsed(text).unwrap();
        let again = "round = 3\n[[clients]]\nid = \"north\"\ntrain_size = 7\n[[clients]]\nid = \"south\"\n";
        assert_eq!(round, parsed(again).unwrap());
        assert_eq!(parsed(&round.to_toml().unwrap()).unwrap(), round);
        assert_eq!(round.weights(&spec()), [Some(7.0), Some(10.0), Some(0.0)]);
        let alone = spec().in_round(&round);
        assert_eq!(alone.round_ids().collect::<Vec<_>>(), [RoundId(3)]);
        let weights = alone.clients.iter().map(|client| client.weight_in(RoundId(3)));
        assert_eq!(weights.collect::<Vec<_>>(), [7.0, 10.0, 0.0]);
        alone.check(Path::new("federation.toml")).unwrap();
        let text = alone.to_toml().unwrap();
        assert_eq!(FederationSpec::parse(&text, Path::new("federation.toml")).unwrap(), alone);
    }

    #[test]
    fn clients_that_have_left_are_not_there() {
        let round = parsed("round = 4\nwithout = [\"west\"]\nclients = [{ id = \"north\" }]").unwrap();
        assert_eq!(round.weights(&spec()), [Some(10.0), Some(0.0), None]);
        let alone = spec().in_round(&round);
        assert_eq!(alone.ids().map(ClientId::as_str).collect::<Vec<_>>(), ["north", "south"]);
    }

    #[test]
    fn what_cannot_be_a_round_is_refused_by_field() {
        for (text, expected) in [
            ("round = 10\nclients = [{ id = \"north\" }]", "round: "),
            ("round = 3\nclients = []", "clients: "),
            ("round = 3\nclients = [{ id = \"east\" }]", "clients.east: "),
            ("round = 3\nclients = [{ id = \"north\" }, { id = \"north\" }]", "clients.north: "),
            ("round = 3\nwithout = [\"north\"]\nclients = [{ id = \"north\" }]", "clients.north: "),
            ("round = 3\nwithout = [\"east\"]\nclients = [{ id = \"north\" }]", "without: "),
            ("round = 3\nclients = [{ id = \"north\", train_size = 0 }]", "clients.north: "),
            ("round = 3\nclients = [{ id = \"north\", weight = -1.0 }]", "clients.north.weight: "),
            ("round = 3\nclients = [{ id = \"north\", weight = 1.0, train_size = 1 }]", "clients.north: "),
            ("round = 3\nname = 1\nclients = [{ id = \"north\" }]", "name"),
        ] {
            let found = parsed(text).unwrap_err();
            assert!(found.contains("rounds/0003.toml") && found.contains(expected), "{text}: {found}");
        }
    }

    #[test]
    fn rounds_are_listed_by_number() {
        let directory = tempfile::tempdir().unwrap();
        assert!(RoundFile::listed(&directory.path().join("rounds")).unwrap().is_empty());
        for name in ["0003.toml", "0012.toml", ".0004.toml.partial-1", "0000.toml", "5.toml", "notes.toml"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        assert_eq!(RoundFile::listed(directory.path()).unwrap(), BTreeSet::from([RoundId(3), RoundId(12)]));
    }
}
