//! Which settings of a run go together.

use secsv_federation::skip::SkipMode;
use secsv_he::Preset;

use super::{Matmul, Settings};
use crate::decryptors::Protocol;

/// A setting that does not go together with the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: expected {expected}, found {found}")]
pub struct SettingsConflict {
    /// Its name, as in a federation file and, behind two dashes, on the command line.
    pub setting: &'static str,
    /// Values that go with the protocol, and why.
    pub expected: &'static str,
    /// Its value.
    pub found: &'static str,
}

impl Settings {
    /// The settings of a run, if they go together. Without a `matmul` the protocol's usual method is taken;
    /// `whole_rounds` says whether every coalition of every round will be asked for, all at once.
    pub fn new(
        protocol: Protocol,
        preset: Preset,
        matmul: Option<Matmul>,
        skip: SkipMode,
        whole_rounds: bool,
    ) -> Result<Self, SettingsConflict> {
        let usual = if protocol == Protocol::Hesv { Matmul::Squaring } else { Matmul::Packed };
        let matmul = matmul.unwrap_or(usual);
        let conflict = |setting, expected, found| Err(SettingsConflict { setting, expected, found });
        match (protocol, matmul, skip) {
            (Protocol::Hesv, Matmul::Packed, _) => conflict(
                "matmul",
                "squaring or reducing with hesv: packing is for half-encrypted products",
                matmul.name(),
            ),
            (Protocol::SecSv, Matmul::Squaring, _) => conflict(
                "matmul",
                "packed or reducing with secsv: rotations leave too little room for flooding",
                matmul.name(),
            ),
            (Protocol::Hesv, _, SkipMode::On | SkipMode::Auto) => conflict(
                "skip",
                "off with hesv: its server learns counts, not which samples are right",
                skip.name(),
            ),
            _ => Ok(Self { protocol, preset, matmul, always_skips: skip == SkipMode::On, whole_rounds }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_do_not_go_together_are_named() {
        let conflict = |protocol, matmul, skip| {
            Settings::new(protocol, Preset::Standard, matmul, skip, true).err().map(|found| found.setting)
        };
        let (off, auto) = (SkipMode::Off, SkipMode::Auto);
        assert_eq!(conflict(Protocol::Hesv, Some(Matmul::Packed), off), Some("matmul"));
        assert_eq!(conflict(Protocol::SecSv, Some(Matmul::Squaring), off), Some("matmul"));
        assert_eq!(conflict(Protocol::Hesv, None, auto), Some("skip"));
        assert_eq!(conflict(Protocol::Hesv, Some(Matmul::Reducing), off), None);
        assert_eq!(conflict(Protocol::SecSv, None, auto), None);
        assert_eq!(conflict(Protocol::SecretSv, None, SkipMode::On), None);
    }
}
