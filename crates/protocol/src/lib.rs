//! SecSV, HESV and SecretSV as roles that take a message and return messages.
//!
//! A role's secrets are fields of its own module, so nobody else can name them:
//!
//! ```compile_fail,E0616
//! fn read(client: &secsv_protocol::Client) {
//!     let _ = &client.stage;
//! }
//! ```
//! ```compile_fail,E0616
//! fn read(auxiliary: &secsv_protocol::Auxiliary) {
//!     let _ = &auxiliary.stage;
//! }
//! ```
//! ```compile_fail,E0616
//! fn read(principal: &secsv_protocol::Principal) {
//!     let _ = &principal.stage;
//! }
//! ```
//!
//! and the servers' code does not name the types that clients' secrets have at all, which a test checks.

pub mod activation;
mod agreement;
mod auxiliary;
mod blindsv;
mod check;
mod client;
mod codec;
mod combinations;
mod comparison;
pub mod cost;
pub mod decryptors;
pub mod disclosure;
mod early;
mod encrypted;
mod error;
pub mod exposure;
mod first_layer_batch;
mod follower;
mod gated_sums;
mod hesv;
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub mod hostile;
pub mod ideal;
mod kind;
mod labels;
mod lengths;
pub mod message;
pub mod model;
mod opening;
mod participant;
mod party;
pub mod precision;
mod principal;
pub mod program;
pub mod role;
mod round_memory;
pub mod rounding;
pub mod rules;
mod scheduler;
pub mod scope;
mod sealed;
mod secretsv;
mod secsv;
pub mod session;
mod test_id;
mod unit;
pub mod views;

pub use agreement::{Agreement, approximations};
pub use auxiliary::Auxiliary;
pub use blindsv::hops::HopRange;
pub use client::Client;
pub use early::MAX_EARLY_BYTES;
pub use error::{CodecError, Error, KeyDefect};
pub use message::{Counted, Recount};
pub use participant::{ClientInput, model_digest, own_right, test_set_digest};
pub use party::PartyId;
pub use principal::Principal;
pub use program::Program;
pub use scheduler::{Assignment, ClassCount, TestRequest, TestResult};
pub use scope::Scope;
pub use sealed::EnvelopeKeys;
pub use test_id::{RequestId, TestId};

pub use secsv_algebra::{Field, Matrix, Ring, Ring64, Secret, Seed};
pub use secsv_he::{Operations, Preset, UnitCosts};

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    /// Code without tests and comments.
    fn code(source: &str) -> String {
        let production = source.split("#[cfg(test)]").next().unwrap_or_default();
        production.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
    }

    /// The code of these modules and of all below them.
    fn sources(modules: &[&str]) -> Vec<(PathBuf, String)> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut open: Vec<PathBuf> = modules.iter().map(|module| root.join(module)).collect();
        let mut found = Vec::new();
        while let Some(path) = open.pop() {
            let below = path.with_extension("");
            if path.is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else if path.file_name().is_some_and(|name| name != "tests.rs") {
                open.extend(Some(below).filter(|below| !path.ends_with("mod.rs") && below.is_dir()));
                found.push((path.clone(), code(&fs::read_to_string(&path).unwrap())));
            }
        }
        assert!(found.len() >= modules.len());
        found
    }

    /// Files of the servers' code.
    const SERVERS: [&str; 15] = [
        "principal.rs",
        "auxiliary.rs",
        "scheduler.rs",
        "follower.rs",
        "comparison.rs",
        "gated_sums.rs",
        "unit.rs",
        "encrypted/models.rs",
        "encrypted/replies.rs",
        "secsv/principal.rs",
        "secsv/auxiliary.rs",
        "secsv/server.rs",
        "secretsv/engines.rs",
        "secretsv/server.rs",
        "hesv/server.rs",
    ];
    /// Files of the clients' code.
    const CLIENTS: [&str; 7] = [
        "client.rs",
        "participant.rs",
        "secsv/client.rs",
        "secsv/together.rs",
        "secretsv/client.rs",
        "secretsv/dealer.rs",
        "hesv/client.rs",
    ];

    fn names_none_of(files: &[&str], words: &[&str]) {
        for (file, source) in &sources(files) {
            for word in words {
                assert!(!source.contains(word), "{} names {word}", file.display());
            }
        }
    }

    #[test]
    fn servers_have_no_word_for_what_clients_hold() {
        let keys = ["SecretKey", "EnvelopeKeys", "label_secret", "blinds(", "decrypt_reply", ".reply(key"];
        let inputs = ["ClientInput", "TestSet", "Weights", "EncodedModel"];
        names_none_of(&SERVERS, &[&keys[..], &inputs, &["Activator", "activation::", " Values {"]].concat());
    }

    #[test]
    fn clients_have_no_word_for_what_servers_hold() {
        let words = ["Store", "Principal {", "Auxiliary {", "GatedSums", "PrincipalLabels", "zero sharing"];
        names_none_of(&CLIENTS, &words);
    }

    #[test]
    fn servers_do_not_reach_into_each_other() {
        for (one, other) in [
            ("principal.rs", "auxiliary::"),
            ("scheduler.rs", "follower::"),
            ("secsv/principal.rs", "auxiliary::"),
            ("secsv/auxiliary.rs", "principal::"),
            ("auxiliary.rs", "principal::"),
            ("follower.rs", "scheduler::"),
        ] {
            names_none_of(&[one], &[other]);
        }
    }
}
