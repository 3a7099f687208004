//! Kits that are whole open; kits with anything missing, changed, swapped or out of date do not, and say why.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use secsv_federation::{ClientId, ClientSpec, FederationSpec, LayerSpec, Limits, ModelSpec, RoundId};
use secsv_protocol::PartyId;
use tempfile::TempDir;

use super::{
    files::{AUTHORITY, AUTHORITY_KEY, CERTIFICATE, ENVELOPE_KEY, FEDERATION, PRIVATE_KEY, SIGNATURE},
    *,
};

const FILES: [&str; 6] = [PRIVATE_KEY, ENVELOPE_KEY, CERTIFICATE, AUTHORITY, FEDERATION, SIGNATURE];
const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn id(name: &str) -> ClientId {
    ClientId::new(name).unwrap()
}

pub(crate) fn provision() -> Provision {
    let client = |name: &str| ClientSpec::new(id(name), 10.0);
    let session = SessionSpec {
        protocol: "secsv".into(),
        preset: "compact".into(),
        matmul: "packed".into(),
        ranges: None,
        check_ranges: false,
        agreement: None,
        skip: "off".into(),
        estimator: "exact".into(),
        utility: "accuracy".into(),
        seed: 0,
        epsilon: 0.25,
        delta: 0.1,
        samples: None,
        max_error: None,
        max_tests: None,
    };
    Provision {
        federation: FederationSpec::new(
            "four silos".into(),
            2,
            ModelSpec::new(vec![3], 2, vec![LayerSpec::Linear { weight: "w".into(), bias: None }]),
            ["north", "south", "east", "west"].map(client).to_vec(),
        ),
        tensors: BTreeMap::from([("w".to_owned(), vec![2, 3])]),
        absent: BTreeMap::from([(id("south"), vec![RoundId(2)])]),
        servers: Servers {
            principal: "localhost:7001".parse().unwrap(),
            auxiliary: "127.0.0.1:7002".parse().unwrap(),
        },
        session,
        validity: Validity::days(SystemTime::now(), 30),
        labels: Labels::default(),
    }
}

/// The same under `blindsv`, whose rounds come later.
pub(crate) fn followed() -> Provision {
    let mut provision = provision();
    let limits = Some(Limits { rounds: 9, norm: 8.0, input: 4.0, hidden: None });
    provision.federation = FederationSpec { rounds: 0, limits, ..provision.federation };
    provision.session.protocol = "blindsv".into();
    provision.session.preset = "standard".into();
    provision.absent.clear();
    provision
}

/// Kits of everybody in a directory that goes away with the guard.
fn kits() -> (TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("kits");
    provision().generate_keys(&out).unwrap();
    (parent, out)
}

fn refused(kit: &Path) -> KitError {
    match Kit::open(kit) {
        Ok(kit) => panic!("opened as {}", kit.own_name()),
        Err(error) => error,
    }
}

fn is_about(error: &KitError, file: &str) -> bool {
    error.file.file_name().is_some_and(|name| name == file)
}

#[test]
fn everybodys_kit_opens_as_its_own_and_all_have_one_digest() {
    let (_guard, out) = kits();
    let parties = ["principal", "auxiliary", "north", "south", "east", "west"];
    let opened: Vec<Kit> = parties.iter().map(|party| Kit::open(&out.join(party)).unwrap()).collect();
    for (kit, party) in opened.iter().zip(parties) {
        assert_eq!(kit.own_name(), party);
        assert_eq!(kit.digest, opened[0].digest);
        assert_eq!(kit.party_of(&kit.tls_certificate()), Some(kit.own));
        assert_eq!(kit.session().unwrap().digest(), opened[0].session().unwrap().digest());
        assert_eq!(kit.envelope_keys.is_some(), matches!(kit.own, PartyId::Client(_)));
    }
    assert_eq!(opened[3].own, PartyId::Client(1));
    assert_eq!(opened[0].federation.participants(RoundId(1)).len(), 4);
    assert!(!opened[0].federation.participants(RoundId(2)).contains(1), "south was absent");
    let again = kits();
    assert_ne!(Kit::open(&again.1.join("north")).unwrap().digest, opened[0].digest, "another consortium");
}

#[test]
fn a_missing_file_is_named() {
    for file in FILES {
        let (_guard, out) = kits();
        fs::remove_file(out.join("north").join(file)).unwrap();
        let error = refused(&out.join("north"));
        assert!(is_about(&error, file), "{error}");
        assert!(matches!(error.defect, KitDefect::Missing), "{error}");
    }
}

#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    let (_guard, out) = kits();
    let kit = out.join("west");
    for file in FILES {
        let path = kit.join(file);
        let bytes = fs::read(&path).unwrap();
        for position in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[position] ^= 1 << (position % 7);
            fs::write(&path, &flipped).unwrap();
            let error = refused(&kit);
            assert!(error.is_bad_input(), "{file} byte {position}: {error}");
            assert_eq!(error.file.parent(), Some(kit.as_path()), "{error}");
        }
        fs::write(&path, &bytes).unwrap();
    }
    Kit::open(&kit).unwrap();
}

#[test]
fn a_kit_with_anything_of_another_party_is_refused() {
    let (_guard, out) = kits();
    for file in [PRIVATE_KEY, ENVELOPE_KEY] {
        let own = out.join("north").join(file);
        let kept = fs::read(&own).unwrap();
        fs::copy(out.join("south").join(file), &own).unwrap();
        let error = refused(&out.join("north"));
        assert!(is_about(&error, file), "{error}");
        assert!(matches!(error.defect, KitDefect::AnothersKey { .. }), "{error}");
        fs::write(&own, kept).unwrap();
    }
    // Whoever takes another's certificate lacks its key.
    fs::copy(out.join("principal").join(CERTIFICATE), out.join("north").join(CERTIFICATE)).unwrap();
    let error = refused(&out.join("north"));
    assert!(matches!(error.defect, KitDefect::AnothersKey { .. }), "{error}");
}

#[test]
fn files_of_another_consortium_do_not_mix() {
    let ((_one, out), (_other, foreign)) = (kits(), kits());
    let (kit, stranger) = (out.join("north"), foreign.join("north"));
    for files in [&[FEDERATION][..], &[AUTHORITY], &[CERTIFICATE], &[FEDERATION, SIGNATURE, AUTHORITY]] {
        let kept: Vec<_> = files.iter().map(|file| fs::read(kit.join(file)).unwrap()).collect();
        for file in files {
            fs::copy(stranger.join(file), kit.join(file)).unwrap();
        }
        let error = refused(&kit);
        assert!(error.is_bad_input(), "{files:?}: {error}");
        files.iter().zip(kept).for_each(|(file, bytes)| fs::write(kit.join(file), bytes).unwrap());
    }
    Kit::open(&kit).unwrap();
}

#[test]
fn certificates_have_their_time() {
    let (_guard, out) = kits();
    let now = SystemTime::now();
    let late = Kit::open_at(&out.join("north"), now + 31 * DAY).err().unwrap();
    assert!(is_about(&late, CERTIFICATE) && matches!(late.defect, KitDefect::Expired { .. }), "{late}");
    let early = Kit::open_at(&out.join("north"), now - DAY).err().unwrap();
    assert!(matches!(early.defect, KitDefect::NotYetValid { .. }), "{early}");
    Kit::open_at(&out.join("north"), now + 29 * DAY).unwrap();
}

#[cfg(unix)]
#[test]
fn private_keys_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_guard, out) = kits();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&out.join(AUTHORITY_KEY)), 0o600);
    for file in [PRIVATE_KEY, ENVELOPE_KEY] {
        let path = out.join("east").join(file);
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = refused(&out.join("east"));
        assert!(is_about(&error, file), "{error}");
        assert!(matches!(error.defect, KitDefect::OpenToOthers { mode: 0o640 }), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// Everybody's keys made at home, and their requests in one directory.
fn requests(parent: &Path) -> PathBuf {
    let requests = parent.join("requests");
    fs::create_dir(&requests).unwrap();
    for party in ["principal", "auxiliary", "north", "south", "east", "west"] {
        let request = generate_keys(&id(party), &parent.join(party)).unwrap();
        fs::copy(&request, requests.join(request.file_name().unwrap())).unwrap();
    }
    requests
}

fn sign(requests: &Path, out: &Path) -> Result<Provisioned, KitError> {
    provision().sign(&Request::read_all(requests)?, requests, out)
}

#[test]
fn requests_become_kits_without_private_keys() {
    let parent = tempfile::tempdir().unwrap();
    let (requests, out) = (requests(parent.path()), parent.path().join("kits"));
    let made = sign(&requests, &out).unwrap();
    assert_eq!(made.kits.len(), 6);
    for (party, kit) in made.kits {
        let home = parent.path().join(party.as_str());
        assert!(!kit.join(PRIVATE_KEY).exists() && !kit.join(ENVELOPE_KEY).exists());
        for entry in fs::read_dir(&kit).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), home.join(entry.file_name())).unwrap();
        }
        let opened = Kit::open(&home).unwrap();
        assert_eq!((opened.own_name(), Fingerprint(opened.digest)), (party.to_string(), made.digest));
    }
    let error = generate_keys(&id("north"), &parent.path().join("north")).unwrap_err();
    assert!(matches!(error.defect, KitDefect::Exists), "a key is never overwritten: {error}");
    let error = sign(&requests, &out).unwrap_err();
    assert!(matches!(error.defect, KitDefect::NotEmpty), "{error}");
}

#[test]
fn requests_that_do_not_fit_are_refused_and_nothing_is_written() {
    let parent = tempfile::tempdir().unwrap();
    let (requests, out) = (requests(parent.path()), parent.path().join("kits"));
    let north = requests.join("north.request.toml");
    let text = fs::read_to_string(&north).unwrap();
    let refuse = |what: &str, about: &str| {
        let error = sign(&requests, &out).unwrap_err();
        assert!(error.to_string().contains(about), "{what}: {error}");
        assert!(!out.exists(), "{what}");
    };
    fs::remove_file(&north).unwrap();
    refuse("one is missing", "north.request.toml: file: expected this file");
    let mut flipped = text.clone().into_bytes();
    let position = text.find("envelope_key = \"").unwrap() + 20;
    flipped[position] = if flipped[position] == b'0' { b'1' } else { b'0' };
    fs::write(&north, &flipped).unwrap();
    refuse("another envelope key than was signed for", "proof");
    fs::write(&north, text.replace("id = \"north\"", "id = \"south\"")).unwrap();
    refuse("under another name", "certificate_request: expected the name south");
    fs::write(&north, &text).unwrap();
    fs::write(requests.join("twice.request.toml"), &text).unwrap();
    refuse("twice", "one request for each party");
    fs::remove_file(requests.join("twice.request.toml")).unwrap();
    let stranger = generate_keys(&id("stranger"), &parent.path().join("stranger")).unwrap();
    fs::copy(stranger, requests.join("stranger.request.toml")).unwrap();
    refuse("of a stranger", "a client of the federation, found stranger");
    fs::remove_file(requests.join("stranger.request.toml")).unwrap();
    sign(&requests, &out).unwrap();
}

#[test]
fn what_cannot_be_valued_is_not_provisioned() {
    let parent = tempfile::tempdir().unwrap();
    let mut cases: Vec<(&str, Provision)> = Vec::new();
    let mut case = |field: &'static str, change: &dyn Fn(&mut Provision)| {
        let mut provision = provision();
        change(&mut provision);
        cases.push((field, provision));
    };
    case("session.matmul", &|p| p.session.matmul = "squaring".into());
    case("session.skip", &|p| {
        (p.session.protocol, p.session.matmul, p.session.preset) =
            ("hesv".into(), "reducing".into(), "standard".into());
        p.session.skip = "on".into();
    });
    case("session", &|p| {
        (p.session.protocol, p.session.matmul) = ("hesv".into(), "reducing".into());
    });
    case("session.estimator", &|p| p.session.estimator = "contribution-index-or".into());
    case("session.protocol", &|p| p.session.protocol = "nssv".into());
    case("tensors", &|p| drop(p.tensors.insert("w".into(), vec![2, 4])));
    case("parties[3].absent", &|p| drop(p.absent.insert(id("south"), vec![RoundId(3)])));
    case("servers.auxiliary", &|p| p.servers.auxiliary = p.servers.principal.clone());
    case("clients.id", &|p| p.federation.clients[0].id = id("principal"));
    case("parties.absent", &|p| {
        p.absent = p.federation.ids().map(|id| (id.clone(), vec![RoundId(1)])).collect();
    });
    for (field, provision) in cases {
        let out = parent.path().join("kits");
        let error = provision.generate_keys(&out).unwrap_err();
        assert_eq!(error.field, field, "{error}");
        assert!(error.is_bad_input() && !out.exists());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0, "nothing is left");
    }
}
