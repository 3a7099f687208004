//! The federation file: what all parties of a consortium agree on, the same bytes in every kit.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use secsv_federation::{Architecture, ClientId, Coalition, FederationSpec, RoundId};
use secsv_protocol::{PartyId, session::Federation};
use serde::{Deserialize, Serialize};

use super::{Address, KitError, SessionSpec, files::from_toml, session_spec::Misfit};
use crate::Fingerprint;
use secsv_evaluation::EvaluationSettings;

/// What a party may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartyRole {
    /// The server that plans and adds up.
    Principal,
    /// The second server.
    Auxiliary,
    /// A silo.
    Client,
}

/// One party and how it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartyIdentity {
    /// Its name.
    pub id: ClientId,
    /// What it may do.
    pub role: PartyRole,
    /// SHA-256 of its certificate.
    pub certificate: Fingerprint,
    /// The public key that envelopes for it are sealed to; clients have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope_key: Option<Fingerprint>,
    /// Rounds of training that a client missed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<RoundId>,
}

impl PartyRole {
    /// The role's name; a server is called by it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Principal => "principal",
            Self::Auxiliary => "auxiliary",
            Self::Client => "client",
        }
    }
}

/// Where the servers are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Servers {
    /// The principal.
    pub principal: Address,
    /// The auxiliary.
    pub auxiliary: Address,
}

/// What all parties agree on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FederationFile {
    /// Of this file's form: 1.
    pub format: u32,
    /// SHA-256 of the authority's certificate.
    pub authority: Fingerprint,
    /// When the kits were made, in seconds since 1970: two runs with the same settings are still two.
    pub made: u64,
    /// The digest of the signed file that this one follows from, where it is of one round that came later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<Fingerprint>,
    /// Whether no round comes after that one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
    /// Where the servers are.
    pub servers: Servers,
    /// How the federation is valued.
    pub session: SessionSpec,
    /// Everybody: the principal, the auxiliary, then the clients in the federation's order.
    pub parties: Vec<PartyIdentity>,
    /// The shape of every tensor of the model.
    pub tensors: BTreeMap<String, Vec<usize>>,
    /// The run directory's `federation.toml`.
    pub federation: FederationSpec,
}

/// The form that this build reads and writes.
pub(super) const FORMAT: u32 = 1;

impl FederationFile {
    /// Reads and checks everything; `file` is named in errors.
    pub fn parse(bytes: &[u8], file: &Path) -> Result<Self, KitError> {
        let parsed: Self = from_toml(file, bytes)?;
        parsed.check(file)?;
        Ok(parsed)
    }

    /// The digest by which parties see that they mean the same.
    pub fn digest(bytes: &[u8]) -> [u8; 32] {
        let mut hash = blake3::Hasher::new();
        hash.update(b"secsv federation file, format 1\n").update(bytes);
        *hash.finalize().as_bytes()
    }

    /// Everybody's position, in the order of `parties`.
    pub fn party_ids(&self) -> impl Iterator<Item = PartyId> + use<> {
        let clients = (0..self.federation.clients.len()).map(PartyId::Client);
        [PartyId::Principal, PartyId::Auxiliary].into_iter().chain(clients)
    }

    /// How a party is known.
    pub fn party(&self, party: PartyId) -> Option<&PartyIdentity> {
        self.parties.get(match party {
            PartyId::Principal => 0,
            PartyId::Auxiliary => 1,
            PartyId::Client(position) => position.checked_add(2)?,
        })
    }

    /// A party's name.
    pub fn name(&self, party: PartyId) -> String {
        self.party(party).map_or_else(|| party.to_string(), |party| party.id.to_string())
    }

    /// The party of a name.
    pub fn party_named(&self, name: &str) -> Option<PartyId> {
        self.find(|party| party.id.as_str() == name)
    }

    /// The party whose certificate has this SHA-256.
    pub fn party_with(&self, certificate: Fingerprint) -> Option<PartyId> {
        self.find(|party| party.certificate == certificate)
    }

    fn find(&self, is_it: impl Fn(&PartyIdentity) -> bool) -> Option<PartyId> {
        self.party_ids().zip(&self.parties).find(|(_, party)| is_it(party)).map(|(id, _)| id)
    }

    /// Who took part in a round of training.
    pub fn participants(&self, round: RoundId) -> Coalition {
        let took_part = |(client, party): (usize, &PartyIdentity)| {
            let weight = self.federation.clients.get(client).map_or(0.0, |c| c.weight_in(round));
            (weight > 0.0 && !party.absent.contains(&round)).then_some(client)
        };
        self.parties.iter().skip(2).enumerate().filter_map(took_part).collect()
    }

    /// How values are computed; `file` is named in errors.
    pub fn evaluation(&self, file: &Path) -> Result<EvaluationSettings, KitError> {
        self.session.evaluation().map_err(|misfit| setting(file, misfit))
    }

    /// What the roles need to know, bound to `digest` and to every client's envelope key; `file` is named in errors. Where rounds are
    /// still to come, as if there were one in which everybody takes part.
    pub fn session(&self, digest: &[u8; 32], file: &Path) -> Result<Federation, KitError> {
        let settings = self.session.settings().map_err(|misfit| setting(file, misfit))?;
        let with_one = FederationSpec { rounds: 1, ..self.federation.clone() };
        let spec = if self.federation.comes_later() { &with_one } else { &self.federation };
        let architecture = Architecture::new(&spec.model, &self.tensors, file, file)
            .map_err(|error| KitError::new(file, "tensors", error.into()))?;
        let keys = self.parties.iter().skip(2).filter_map(|party| party.envelope_key.map(|key| key.0));
        Federation::new(spec, &architecture, |round| self.participants(round), settings)
            .and_then(|federation| federation.with_identities(keys.collect(), digest))
            .map_err(|error| KitError::new(file, "session", error.into()))
    }

    fn check(&self, file: &Path) -> Result<(), KitError> {
        if self.format != FORMAT {
            return Err(KitError::invalid(file, "format", FORMAT.to_string(), self.format.to_string()));
        }
        let Servers { principal, auxiliary } = &self.servers;
        if principal.is_same_place(auxiliary) {
            let expected = "another address than the principal's";
            return Err(KitError::invalid(file, "servers.auxiliary", expected, auxiliary.to_string()));
        }
        self.federation.check(file).map_err(|error| KitError::new(file, "federation", error.into()))?;
        self.check_parties(file)?;
        for round in self.federation.round_ids() {
            if self.participants(round).is_empty() {
                let (expected, found) =
                    ("at least one client in each round", format!("nobody in round {round}"));
                return Err(KitError::invalid(file, "parties.absent", expected, found));
            }
        }
        self.session(&[0; 32], file)?;
        let evaluation = self.evaluation(file)?;
        match self.federation.limits.map(|_| self.session.misfit_of_rounds(&evaluation)) {
            Some(Some(misfit)) => Err(setting(file, misfit)),
            _ => Ok(()),
        }
    }

    /// Exactly the two servers and the federation's clients, nobody with anything of another.
    fn check_parties(&self, file: &Path) -> Result<(), KitError> {
        let servers = [("principal", PartyRole::Principal), ("auxiliary", PartyRole::Auxiliary)];
        let clients = self.federation.ids().map(|id| (id.as_str(), PartyRole::Client));
        let expected: Vec<_> = servers.into_iter().chain(clients).collect();
        if self.parties.len() != expected.len() {
            let (expected, found) = (expected.len(), self.parties.len());
            return Err(KitError::invalid(file, "parties", format!("{expected} of them"), found.to_string()));
        }
        let mut seen = BTreeSet::from([self.authority]);
        for (index, (party, (id, role))) in self.parties.iter().zip(expected).enumerate() {
            let wrong = |name: &str, expected: &str, found: &str| {
                Err(KitError::invalid(file, format!("parties[{index}].{name}"), expected, found))
            };
            let (of_its_own, of_another) = ("one of its own", "another party's");
            if party.id.as_str() != id {
                return wrong("id", id, party.id.as_str());
            }
            if party.role != role {
                let words = |role: PartyRole| format!("{role:?}").to_lowercase();
                return wrong("role", &words(role), &words(party.role));
            }
            if !seen.insert(party.certificate) {
                return wrong("certificate", of_its_own, of_another);
            }
            let is_client = role == PartyRole::Client;
            match party.envelope_key {
                None if is_client => return wrong("envelope_key", "a client's key", "none"),
                Some(_) if !is_client => return wrong("envelope_key", "none for a server", "one"),
                Some(key) if !seen.insert(key) => return wrong("envelope_key", of_its_own, of_another),
                _ => {}
            }
            let is_round = |round: &RoundId| (1..=self.federation.rounds).contains(&round.0);
            if !is_client && !party.absent.is_empty() || !party.absent.iter().all(is_round) {
                let found = format!("{:?}", party.absent.iter().map(|round| round.0).collect::<Vec<_>>());
                return wrong("absent", "rounds that a client missed", &found);
            }
        }
        Ok(())
    }
}

fn setting(file: &Path, (name, expected, found): Misfit) -> KitError {
    KitError::invalid(file, format!("session.{name}"), expected, found)
}
