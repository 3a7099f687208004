//! The kit of one round that came later: what was signed once, with what the round brought.

use std::{fmt, path::Path};

use secsv_federation::{FederationSpec, RoundFile, RoundId};

use super::{FederationFile, Kit, KitError, PartyRole, files::FEDERATION};
use crate::{Fingerprint, fingerprint::to_hex, transport::OTHER_FILES};

/// How a notice begins.
const ON: &str = "round ";
/// Digits of the signed file's digest in a notice.
const DIGITS: usize = 16;

/// What a round's kit has beside others.
pub(super) struct OfRound {
    pub(super) whole: FederationSpec,
    pub(super) file: RoundFile,
    notice: RoundNotice,
}

/// What a party says of the round that it is in, in few words: by them others see where they differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundNotice {
    /// The round.
    pub round: RoundId,
    /// The beginning of the digest of what was signed.
    signed: String,
    /// Whether it is the last one.
    last: String,
    /// Weights by client, in the federation's order: `-` for whoever the round does without.
    weights: Vec<String>,
}

impl RoundNotice {
    fn new(file: &RoundFile, whole: &FederationSpec, signed: &[u8; 32]) -> Self {
        let weight = |weight: Option<f64>| weight.map_or("-".to_owned(), |weight| weight.to_string());
        Self {
            round: file.round,
            signed: to_hex(signed)[..DIGITS].to_owned(),
            last: if file.last { "last" } else { "not-last" }.to_owned(),
            weights: file.weights(whole).into_iter().map(weight).collect(),
        }
    }

    /// Reads what another party said; none if these are other words.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_prefix(ON)?.split(' ');
        let round = RoundId(words.next()?.parse().ok()?);
        let [signed, last] = [words.next()?.to_owned(), words.next()?.to_owned()];
        Some(Self { round, signed, last, weights: words.map(str::to_owned).collect() })
    }

    /// Whether another party of the same federation is in another round.
    pub fn is_of_another_round(&self, other: &Self) -> bool {
        self.signed == other.signed && self.round != other.round
    }

    /// Where another party's round differs from this one: the field, what is expected by this party, what was found.
    pub fn difference(&self, other: &Self, whole: &FederationSpec) -> String {
        let differs = |field: &str, expected: &str, found: &str| {
            format!(
                "rounds/{:04}.toml differs: {field}: expected {expected}, found {found} there",
                self.round.0
            )
        };
        if self.signed != other.signed {
            return OTHER_FILES.to_owned();
        }
        if self.round != other.round {
            return format!("round {} is on there, round {} here", other.round, self.round);
        }
        if self.last != other.last {
            return differs("last", &self.last, &other.last);
        }
        let mut pairs = self.weights.iter().zip(&other.weights).zip(whole.ids());
        match pairs.find(|((own, other), _)| own != other) {
            Some(((own, other), id)) => differs(&format!("clients.{id}"), &said(own), &said(other)),
            None => "rounds differ".to_owned(),
        }
    }
}

fn said(weight: &str) -> String {
    match weight {
        "-" => "a round without it".to_owned(),
        "0" => "no part in the round".to_owned(),
        weight => format!("weight {weight}"),
    }
}

impl fmt::Display for RoundNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ON}{} {} {} {}", self.round.0, self.signed, self.last, self.weights.join(" "))
    }
}

impl Kit {
    /// The kit of a round: its federation file follows from what was signed and from the round's file, byte for byte the same at every
    /// party that has the same.
    pub fn of_round(mut self, file: &RoundFile) -> Result<Self, KitError> {
        let (name, path) = (self.own_name(), self.path.join(FEDERATION));
        let base = self.federation;
        let spec = base.federation.in_round(file);
        let is_there = |id: &str| spec.ids().any(|known| known.as_str() == id);
        let mut parties = base.parties.clone();
        parties.retain(|party| party.role != PartyRole::Client || is_there(party.id.as_str()));
        let follows = Some(Fingerprint(self.digest));
        let of_round = FederationFile { follows, last: file.last, parties, federation: spec, ..base.clone() };
        let text = toml::to_string(&of_round).map_err(|error| {
            KitError::invalid(&path, "file", "numbers that TOML can hold", error.to_string())
        })?;
        let federation = FederationFile::parse(text.as_bytes(), Path::new("the federation file of a round"))?;
        let absent = || KitError::invalid(&path, "without", "a round that this party is in", name.clone());
        self.own = federation.party_named(&name).ok_or_else(absent)?;
        let renewed = self.renewed.into_iter();
        self.renewed = renewed
            .filter_map(|(of, party)| Some((of, federation.party_named(&base.name(party))?)))
            .collect();
        let (whole, file) = (base.federation, file.clone());
        let notice = RoundNotice::new(&file, &whole, &self.digest);
        self.digest = FederationFile::digest(text.as_bytes());
        self.of_round = Some(OfRound { whole, file, notice });
        (self.federation, self.federation_bytes) = (federation, text.into_bytes());
        Ok(self)
    }

    /// The file of the round that this kit is of, if it is of one.
    pub fn round(&self) -> Option<&RoundFile> {
        self.of_round.as_ref().map(|of| &of.file)
    }

    /// What is said of that round to others.
    pub fn notice(&self) -> Option<&RoundNotice> {
        self.of_round.as_ref().map(|of| &of.notice)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{
        super::tests::{followed, id},
        *,
    };

    const ROUND: &str = "round = 3\n[[clients]]\nid = \"north\"\n[[clients]]\nid = \"south\"\n";

    fn of_round(kits: &Path, party: &str, text: &str) -> Kit {
        let kit = Kit::open(&kits.join(party)).unwrap();
        let file = RoundFile::parse(text, kits, &kit.federation.federation).unwrap();
        kit.of_round(&file).unwrap()
    }

    /// Whatever part of a round's file differs, and whatever was signed: parties of the two are not understood.
    #[test]
    fn a_round_has_a_digest_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let [kits, others] = ["kits", "others"].map(|name| directory.path().join(name));
        [&kits, &others].into_iter().for_each(|out| drop(followed().generate_keys(out).unwrap()));
        let own = of_round(&kits, "north", ROUND);
        let same = of_round(&kits, "principal", ROUND);
        assert_eq!((own.digest, &own.federation_bytes), (same.digest, &same.federation_bytes));
        let without = format!("without = [\"west\"]\n{ROUND}");
        let texts = [
            ROUND.to_owned(),
            ROUND.replace("round = 3", "round = 4"),
            ROUND.replace("id = \"south\"", "id = \"south\"\ntrain_size = 9"),
            ROUND.replace("south", "east"),
            format!("{ROUND}[[clients]]\nid = \"east\"\n"),
            without,
            format!("last = true\n{ROUND}"),
        ];
        let kits_of = texts.iter().map(|text| of_round(&kits, "north", text));
        let all: Vec<Kit> = kits_of.chain([of_round(&others, "north", ROUND)]).collect();
        let digests: BTreeSet<_> = all.iter().map(|kit| kit.digest).collect();
        let sessions: BTreeSet<_> = all.iter().map(|kit| kit.session().unwrap().digest()).collect();
        assert_eq!((digests.len(), sessions.len()), (all.len(), all.len()));
        // What verifies logs offline reads the same.
        let again = FederationFile::parse(&own.federation_bytes, Path::new("copy")).unwrap();
        assert_eq!(
            (again, FederationFile::digest(&own.federation_bytes)),
            (own.federation.clone(), own.digest)
        );
    }

    #[test]
    fn differences_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let kits = directory.path().join("kits");
        followed().generate_keys(&kits).unwrap();
        let own = of_round(&kits, "north", ROUND);
        let told = |text: &str| {
            let other = of_round(&kits, "principal", text);
            let heard = RoundNotice::parse(&other.notice().unwrap().to_string()).unwrap();
            assert_eq!(&heard, other.notice().unwrap());
            own.notice().unwrap().difference(&heard, own.whole())
        };
        let size = ROUND.replace("id = \"south\"", "id = \"south\"\ntrain_size = 9");
        for (text, expected) in [
            (size, "rounds/0003.toml differs: clients.south: expected weight 10, found weight 9 there"),
            (
                ROUND.replace("south", "east"),
                "clients.south: expected weight 10, found no part in the round there",
            ),
            (
                format!("without = [\"west\"]\n{ROUND}"),
                "clients.west: expected no part in the round, found a round without it",
            ),
            (format!("last = true\n{ROUND}"), "last: expected not-last, found last there"),
            (ROUND.replace("round = 3", "round = 5"), "round 5 is on there, round 3 here"),
        ] {
            let found = told(&text);
            assert!(found.contains(expected), "{found}");
        }
        for words in ["", "round", "round x a b 1", "the federation files differ"] {
            assert_eq!(RoundNotice::parse(words), None, "{words}");
        }
    }

    #[test]
    fn whoever_is_not_in_a_round_has_no_kit_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let kits = directory.path().join("kits");
        followed().generate_keys(&kits).unwrap();
        let text = format!("without = [\"east\"]\n{ROUND}");
        let west = of_round(&kits, "west", &text);
        assert_eq!((west.own, west.own_name()), (secsv_protocol::PartyId::Client(2), "west".to_owned()));
        assert_eq!(west.whole().clients.len(), 4);
        let kit = Kit::open(&kits.join("east")).unwrap();
        let file = RoundFile::parse(&text, &kits, kit.whole()).unwrap();
        let refused = kit.of_round(&file).err().unwrap();
        assert!(refused.is_bad_input() && refused.to_string().contains("without"), "{refused}");
        assert_eq!(file.without, BTreeSet::from([id("east")]));
    }

    /// What would not add up to the whole is not agreed on.
    #[test]
    fn stopping_rules_are_refused_beside_limits() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |change: &dyn Fn(&mut super::super::Provision)| {
            let mut provision = followed();
            change(&mut provision);
            provision.generate_keys(&directory.path().join("kits")).unwrap_err().to_string()
        };
        assert!(refused(&|provision| provision.session.max_tests = Some(9)).contains("session.max_tests"));
        assert!(
            refused(&|provision| provision.session.estimator = "wt-shapley".into())
                .contains("session.estimator")
        );
        assert!(refused(&|provision| provision.session.protocol = "secretsv".into()).contains("limits"));
    }
}
