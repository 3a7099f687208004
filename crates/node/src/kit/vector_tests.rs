//! A frozen kit, `vectors/kit`: whatever changes how a kit or a request is read or written fails here. Its keys are test keys and
//! serve nothing else. With `SECSV_BLESS=1` the recorded fields and errors are written anew; the kit itself only if it is
//! not there, because keys and signatures are drawn.

use std::{fs, path::Path, time::Duration};

use rcgen::SigningKey as _;

use super::{
    files::{AUTHORITY_KEY, to_pem},
    request::RequestFile,
    tests::{id, provision},
    *,
};
use crate::{
    fingerprint::to_hex,
    vector_tests::{folder, frozen, is_blessing, refusal},
};

const FILES: [&str; 6] = [PRIVATE_KEY, ENVELOPE_KEY, CERTIFICATE, AUTHORITY, FEDERATION, SIGNATURE];
const REQUEST: &str = "north.request.toml";

/// A moment at which the kit is valid.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// Makes the kits of a whole federation and keeps one, with the key of its authority, and a request.
fn make(kept: &Path) {
    let made = tempfile::tempdir().unwrap();
    let mut provision = provision();
    provision.federation.name = "frozen, with test keys".into();
    provision.validity = Validity::days(now(), 30);
    let kits = made.path().join("kits");
    provision.generate_keys(&kits).unwrap();
    let request = generate_keys(&id("north"), &made.path().join("requests")).unwrap();
    fs::create_dir_all(kept).unwrap();
    for file in FILES {
        fs::copy(kits.join("north").join(file), kept.join(file)).unwrap();
    }
    fs::copy(kits.join(AUTHORITY_KEY), kept.join(AUTHORITY_KEY)).unwrap();
    fs::copy(request, kept.join(REQUEST)).unwrap();
}

/// A copy of the frozen kit whose keys are their owner's alone, as the repository cannot have them.
fn copy() -> tempfile::TempDir {
    let kept = folder("kit/north");
    if is_blessing() && !kept.exists() {
        make(&kept);
    }
    let copy = tempfile::tempdir().unwrap();
    for file in FILES.into_iter().chain([REQUEST, AUTHORITY_KEY]) {
        let path = copy.path().join(file);
        fs::write(&path, fs::read(kept.join(file)).unwrap()).unwrap();
        #[cfg(unix)]
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    copy
}

#[test]
fn a_frozen_kit_is_read_as_recorded() {
    let copy = copy();
    let kit = Kit::open_at(copy.path(), now()).unwrap();
    let request = Request::read(&copy.path().join(REQUEST)).unwrap();
    let federation = &kit.federation;
    let fields = [
        ("own", kit.own.to_string()),
        ("name", kit.own_name()),
        ("digest", to_hex(&kit.digest)),
        ("session", to_hex(&kit.session().unwrap().digest())),
        ("evaluation", format!("{:?}", kit.evaluation().unwrap().method)),
        ("valid from", date(kit.validity.from)),
        ("valid until", date(kit.validity.until)),
        ("certificate", Fingerprint::sha256(&kit.tls_certificate()).to_string()),
        ("envelope key", to_hex(&kit.envelope_keys.as_ref().unwrap().public_key())),
        ("parties", kit.names().iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(" ")),
        ("round 2", format!("{:?}", federation.participants(secsv_federation::RoundId(2)))),
        ("request of", request.id.to_string()),
        ("request's envelope key", request.envelope_key.to_string()),
        ("request's key", to_hex(rcgen::PublicKeyData::der_bytes(&request.key))),
    ];
    let lines = fields.map(|(name, value)| format!("{name}: {value}\n"));
    frozen(&folder("kit/north.txt"), &lines.concat());
}

#[test]
fn a_frozen_kit_is_written_again_as_it_was() {
    let copy = copy();
    let read = |file: &str| fs::read_to_string(copy.path().join(file)).unwrap();
    let federation = Kit::open_at(copy.path(), now()).unwrap().federation;
    assert_eq!(toml::to_string(&federation).unwrap(), read(FEDERATION));
    let request: RequestFile = toml::from_str(&read(REQUEST)).unwrap();
    assert_eq!(toml::to_string(&request).unwrap(), read(REQUEST));
    let private = x25519_from_pem(Path::new(ENVELOPE_KEY), read(ENVELOPE_KEY).as_bytes()).unwrap();
    assert_eq!(*files::x25519_to_pem(&private).expose(), read(ENVELOPE_KEY));
    let key = read(PRIVATE_KEY);
    let der = pem(Path::new(PRIVATE_KEY), key.as_bytes(), "PRIVATE KEY").unwrap();
    assert_eq!(to_pem("PRIVATE KEY", der.expose()), key);
}

/// A frozen kit with one file changed.
struct Broken(tempfile::TempDir);

impl Broken {
    fn new(file: &str, change: impl FnOnce(String) -> String) -> Self {
        let copy = copy();
        let path = copy.path().join(file);
        let (before, after) = (fs::read_to_string(&path).unwrap(), path.clone());
        let changed = change(before.clone());
        assert_ne!(changed, before, "{file} is as it was");
        fs::write(after, changed).unwrap();
        Self(copy)
    }

    /// The same with a federation file that the authority signed as it is now.
    fn signed(change: impl FnOnce(String) -> String) -> Self {
        let broken = Self::new(FEDERATION, change);
        let path = broken.0.path();
        let authority = pem(path, &fs::read(path.join(AUTHORITY_KEY)).unwrap(), "PRIVATE KEY").unwrap();
        let authority = key_from_der(path, authority.expose()).unwrap();
        let signature = authority.sign(&fs::read(path.join(FEDERATION)).unwrap()).unwrap();
        fs::write(path.join(SIGNATURE), format!("{}\n", to_hex(&signature))).unwrap();
        broken
    }

    fn refusal(&self, fault: &str, now: SystemTime) -> String {
        let error = Kit::open_at(self.0.path(), now).err().unwrap_or_else(|| panic!("{fault}: opened"));
        refusal(fault, &error, self.0.path())
    }
}

fn swapped(from: &'static str, to: &'static str) -> impl FnOnce(String) -> String {
    move |text| text.replacen(from, to, 1)
}

/// The text with another digit behind a mark.
fn digit(mark: &'static str) -> impl FnOnce(String) -> String {
    move |text| {
        let at = text.find(mark).unwrap() + mark.len();
        let other = if text[at..].starts_with('0') { "1" } else { "0" };
        format!("{}{other}{}", &text[..at], &text[at + 1..])
    }
}

#[test]
fn broken_kits_are_refused_as_recorded() {
    let half = |text: String| text[..text.len() / 2].to_owned();
    let cases = [
        ("private_key_cut", Broken::new(PRIVATE_KEY, half)),
        ("envelope_key_cut", Broken::new(ENVELOPE_KEY, half)),
        ("certificate_cut", Broken::new(CERTIFICATE, half)),
        ("certificate_with_text_beside", Broken::new(CERTIFICATE, |text| format!("\n{text}"))),
        ("authority_cut", Broken::new(AUTHORITY, half)),
        ("signature_cut", Broken::new(SIGNATURE, half)),
        ("federation_cut", Broken::new(FEDERATION, half)),
        ("federation_changed", Broken::new(FEDERATION, swapped("seed = 0", "seed = 1"))),
        ("signed_federation_cut", Broken::signed(half)),
        ("another_format", Broken::signed(swapped("format = 1", "format = 2"))),
        ("unknown_field", Broken::signed(swapped("[servers]", "[servers]\nspare = 1"))),
        ("missing_field", Broken::signed(swapped("seed = 0\n", ""))),
        ("unknown_protocol", Broken::signed(swapped("\"secsv\"", "\"nssv\""))),
        ("another_authority", Broken::signed(digit("authority = \""))),
        ("another_certificate", Broken::signed(digit("id = \"north\"\nrole = \"client\"\ncertificate = \""))),
        ("another_envelope_key", {
            Broken::signed(|text| {
                let (before, own) = text.split_once("id = \"north\"").unwrap();
                format!("{before}id = \"north\"{}", digit("envelope_key = \"")(own.to_owned()))
            })
        }),
        ("another_role", Broken::signed(swapped("role = \"auxiliary\"", "role = \"client\""))),
        ("other_tensors", Broken::signed(swapped("w = [2, 3]", "w = [2, 4]"))),
    ];
    let mut text: String = cases.iter().map(|(fault, broken)| broken.refusal(fault, now())).collect();
    let whole = Broken(copy());
    text += &whole.refusal("early", now() - Duration::from_secs(86_400));
    text += &whole.refusal("late", now() + Duration::from_secs(31 * 86_400));
    frozen(&folder("kit/refused.txt"), &text);
}

#[test]
fn broken_requests_are_refused_as_recorded() {
    let half = |text: String| text[..text.len() / 2].to_owned();
    let cases = [
        ("cut", Broken::new(REQUEST, half)),
        ("another_format", Broken::new(REQUEST, swapped("format = 1", "format = 2"))),
        ("unknown_field", Broken::new(REQUEST, |text| format!("{text}spare = 1\n"))),
        ("another_name", Broken::new(REQUEST, swapped("\"north\"", "\"south\""))),
        ("another_envelope_key", Broken::new(REQUEST, digit("envelope_key = \""))),
        ("another_proof", Broken::new(REQUEST, digit("proof = \"30"))),
    ];
    let text = cases.iter().map(|(fault, Broken(kit))| {
        let error = Request::read(&kit.path().join(REQUEST)).err().unwrap_or_else(|| panic!("{fault}: read"));
        refusal(fault, &error, kit.path())
    });
    frozen(&folder("kit/refused-requests.txt"), &text.collect::<String>());
}
