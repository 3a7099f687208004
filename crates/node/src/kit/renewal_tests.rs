//! Renewed certificates: kits open with them, old and new are taken side by side, and nothing else is.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use super::{
    files::{CERTIFICATE, RENEWAL, RENEWAL_SIGNATURE},
    tests::provision,
    *,
};

const PARTIES: [&str; 6] = ["principal", "auxiliary", "north", "south", "east", "west"];

fn install(renewed: &Path, kits: &Path, party: &str) {
    for file in [CERTIFICATE, RENEWAL, RENEWAL_SIGNATURE] {
        fs::copy(renewed.join(party).join(file), kits.join(party).join(file)).unwrap();
    }
}

#[test]
fn renewed_kits_open_after_the_old_ones_have_ended_and_keep_their_digest() {
    let home = tempfile::tempdir().unwrap();
    let (kits, renewed) = (home.path().join("kits"), home.path().join("renewed"));
    provision().generate_keys(&kits).unwrap();
    let old: Vec<Kit> = PARTIES.iter().map(|party| Kit::open(&kits.join(party)).unwrap()).collect();
    let made = renew(&kits, Validity::days(SystemTime::now(), 90), &renewed).unwrap();
    assert_eq!(made.len(), PARTIES.len());
    PARTIES.iter().for_each(|party| install(&renewed, &kits, party));
    let later = SystemTime::now() + Duration::from_secs(60 * 86_400);
    for (party, old) in PARTIES.iter().zip(&old) {
        let new = Kit::open_at(&kits.join(party), later).unwrap();
        assert_eq!((new.own, new.digest), (old.own, old.digest), "state directories stay bound to it");
        assert_ne!(new.certificate, old.certificate);
        assert_eq!(
            new.party_of(&old.tls_certificate()),
            Some(old.own),
            "whoever has not changed yet is known"
        );
        assert_eq!(old.party_of(&new.tls_certificate()), None, "who has no list does not know new ones");
        assert_eq!(new.session().unwrap().digest(), old.session().unwrap().digest());
    }
    // A second renewal goes on from the kits as they were provisioned.
    assert!(matches!(
        renew(&kits, Validity::days(SystemTime::now(), 90), &home.path().join("again")),
        Err(KitError { field, .. }) if field == "SHA-256"
    ));
}

#[test]
fn a_list_that_the_authority_did_not_sign_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let (kits, renewed) = (home.path().join("kits"), home.path().join("renewed"));
    provision().generate_keys(&kits).unwrap();
    renew(&kits, Validity::days(SystemTime::now(), 90), &renewed).unwrap();
    install(&renewed, &kits, "north");
    let file = kits.join("north").join(RENEWAL);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("format = 1", "format = 1 ")).unwrap();
    let error = Kit::open(&kits.join("north")).err().unwrap().to_string();
    assert!(
        error.contains("renewal.signature: signature: expected the signature of the authority"),
        "{error}"
    );
    // That of another federation is no use either.
    let (others, theirs) = (home.path().join("others"), home.path().join("theirs"));
    provision().generate_keys(&others).unwrap();
    renew(&others, Validity::days(SystemTime::now(), 90), &theirs).unwrap();
    install(&theirs, &kits, "north");
    assert!(Kit::open(&kits.join("north")).is_err());
}
