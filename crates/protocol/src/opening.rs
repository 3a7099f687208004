//! Openings: the places where somebody comes to read a number that was shared, encrypted or hidden. Each names the disclosure that it
//! stands on, and a session opens nothing that the list of its protocol does not have.

use secsv_algebra::{Matrix, Ring, Secret};
use secsv_he::{Operations, Packing, Reply, SecretKey};

use crate::{
    Error,
    disclosure::Disclosure,
    labels::{self, Packed},
    session::Session,
};

/// Leave to read something. Only [`Session::opening`] gives it.
#[must_use]
pub(crate) struct Opening(());

impl Session {
    /// Leave to read what a disclosure of the session's protocol allows.
    pub(crate) fn opening(&self, disclosure: Disclosure) -> Result<Opening, Error> {
        if self.disclosures.contains(&disclosure) {
            Ok(Opening(()))
        } else {
            Err(Error::Undisclosed { disclosure })
        }
    }
}

impl Opening {
    /// The sum of two shares.
    pub(crate) fn sum<R: Ring>(self, own: &Matrix<R>, other: &Matrix<R>) -> Result<Matrix<R>, Error> {
        Ok(own.add(other)?)
    }

    /// The numbers in a reply.
    pub(crate) fn reply(
        &self,
        key: &SecretKey,
        packing: Packing,
        planned: &[bool],
        reply: &Reply,
        operations: &mut Operations,
    ) -> Result<Secret<Vec<u64>>, Error> {
        Ok(key.decrypt_reply(packing, planned, reply, operations)?)
    }

    /// Differences of labels: the sum of one share of the labels and one of their differences.
    pub(crate) fn differences(self, mut own: Packed, other: &[u8]) -> Packed {
        labels::subtract(&mut own, other);
        own
    }

    /// Something that was told in the clear.
    pub(crate) fn told<T>(self, told: T) -> T {
        told
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use crate::{
        disclosure::Disclosure,
        rules::Protocol,
        session::{
            Matmul,
            tests::{session, session_by_class},
        },
    };

    /// Every disclosure on a protocol's list can be opened, and no other.
    #[test]
    fn a_session_opens_what_its_protocol_lists() {
        for (protocol, by_class) in Protocol::ALL.into_iter().flat_map(|p| [(p, false), (p, true)]) {
            let matmul = if protocol == Protocol::Hesv { Matmul::Squaring } else { Matmul::Packed };
            let session =
                if by_class { session_by_class(protocol, matmul) } else { session(protocol, matmul) };
            let skips = protocol.rules().learns_each_prediction(false);
            let listed = protocol.disclosures(session.program(), skips, by_class);
            for disclosure in Disclosure::ALL {
                let is_listed = listed.iter().any(|line| line.disclosure == disclosure);
                assert_eq!(session.opening(disclosure).is_ok(), is_listed, "{protocol:?}: {disclosure:?}");
            }
        }
    }

    /// Nobody decrypts a reply or adds shares up without leave: these calls are in this file alone.
    #[test]
    fn nothing_is_decrypted_elsewhere() {
        let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else if !path.ends_with("opening.rs") && !path.ends_with("lib.rs") {
                let source = fs::read_to_string(&path).unwrap();
                assert!(!source.contains("decrypt_reply"), "{} decrypts by itself", path.display());
            }
        }
    }
}
