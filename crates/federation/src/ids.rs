//! Names of clients, rounds and coalitions.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The most clients a federation may have: coalitions are sets of bits in one machine word pair.
pub const MAX_CLIENTS: usize = 128;

/// The name a federation gives a client: 1 to 64 characters of `[A-Za-z0-9._-]`, because it is also the name
/// of a directory, a certificate and a JSON key. It does not begin with a dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClientId(String);

/// Why a string is no [`ClientId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "client id {found:?}: expected 1 to 64 characters of [A-Za-z0-9._-], not beginning with a dot; other names go into labels.toml"
)]
pub struct ClientIdError {
    /// The string that was offered.
    pub found: String,
}

impl ClientId {
    /// Checks the characters and the length.
    pub fn new(id: impl Into<String>) -> Result<Self, ClientIdError> {
        let id = id.into();
        let fits = (1..=64).contains(&id.len())
            && !id.starts_with('.')
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        if fits { Ok(Self(id)) } else { Err(ClientIdError { found: id }) }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ClientId {
    type Error = ClientIdError;
    fn try_from(id: String) -> Result<Self, ClientIdError> {
        Self::new(id)
    }
}

impl From<ClientId> for String {
    fn from(id: ClientId) -> Self {
        id.0
    }
}

/// A training round, counted from 1 as the paper and the file names do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RoundId(pub u32);

impl fmt::Display for RoundId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of clients, by their position in the federation's client list (the paper's S, a subset of I).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Coalition(u128);

impl Coalition {
    /// Nobody.
    pub const EMPTY: Self = Self(0);

    /// The first `n` clients.
    ///
    /// # Panics
    /// Panics if `n` exceeds [`MAX_CLIENTS`].
    pub fn first(n: usize) -> Self {
        assert!(n <= MAX_CLIENTS, "at most {MAX_CLIENTS} clients");
        if n == MAX_CLIENTS { Self(u128::MAX) } else { Self((1 << n) - 1) }
    }

    /// The set whose members are the one bits.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// One bit per member.
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// Number of members.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether nobody is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the client at this position is a member.
    pub const fn contains(self, client: usize) -> bool {
        client < MAX_CLIENTS && self.0 >> client & 1 == 1
    }

    /// This set and the client at this position.
    #[must_use]
    pub const fn with(self, client: usize) -> Self {
        Self(self.0 | 1 << client)
    }

    /// This set less the client at this position.
    #[must_use]
    pub const fn without(self, client: usize) -> Self {
        Self(self.0 & !(1 << client))
    }

    /// Members of both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Members of either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Members of this set that are not in the other.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether every member is in the other set too.
    pub const fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The members, ascending.
    pub fn members(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            (rest != 0).then(|| {
                let client = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                client
            })
        })
    }

    /// Every subset, the empty one and the set itself included, in ascending order of their bits.
    pub fn subsets(self) -> impl Iterator<Item = Self> {
        let whole = self.0;
        let mut next = Some(0u128);
        std::iter::from_fn(move || {
            let current = next?;
            // Counting up within the bits of `whole`: the carry runs over the gaps.
            next = (current != whole).then(|| (current.wrapping_sub(whole)) & whole);
            Some(Self(current))
        })
    }
}

impl FromIterator<usize> for Coalition {
    fn from_iter<I: IntoIterator<Item = usize>>(members: I) -> Self {
        members.into_iter().fold(Self::EMPTY, Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_are_all_of_them_once() {
        let set: Coalition = [0, 3, 4, 127].into_iter().collect();
        let all: Vec<_> = set.subsets().collect();
        assert_eq!(all.len(), 16);
        assert!(all.windows(2).all(|w| w[0] < w[1]));
        assert!(all.iter().all(|s| s.is_subset_of(set)));
        assert_eq!((all[0], all[15]), (Coalition::EMPTY, set));
        assert_eq!(Coalition::EMPTY.subsets().count(), 1);
    }

    #[test]
    fn members_and_set_algebra_agree() {
        let a: Coalition = [1, 2, 100].into_iter().collect();
        let b: Coalition = [2, 100, 101].into_iter().collect();
        assert_eq!(a.members().collect::<Vec<_>>(), [1, 2, 100]);
        assert_eq!(a.intersection(b).len(), 2);
        assert_eq!(a.union(b).without(1), b);
        assert_eq!(a.difference(b), Coalition::EMPTY.with(1));
        assert_eq!(Coalition::first(MAX_CLIENTS).len(), MAX_CLIENTS);
    }

    #[test]
    fn ids_that_could_leave_their_directory_are_refused() {
        for bad in ["", ".", "..", "a/b", "a b", "é", ".hidden"] {
            assert!(ClientId::new(bad).is_err(), "{bad:?}");
        }
        assert!(ClientId::new("x".repeat(65)).is_err());
        assert_eq!(ClientId::new("north-1.site_A").unwrap().as_str(), "north-1.site_A");
    }
}
