//! Which settings of a run go together.

use secsv_federation::skip::SkipMode;
use secsv_he::Preset;

use super::{HiddenSettings, Matmul, Settings};
use crate::{decryptors::Protocol, rules::Matmuls};

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
        let rules = protocol.rules();
        let conflict = |setting, expected, found| Err(SettingsConflict { setting, expected, found });
        let Matmuls { usual, all, expected } = rules.matmuls();
        let matmul = matmul.unwrap_or(usual);
        match (all.contains(&matmul), rules.skip_refusal(skip)) {
            (false, _) => conflict("matmul", expected, matmul.name()),
            (true, Some(expected)) => conflict("skip", expected, skip.name()),
            _ => Ok(Self {
                protocol,
                preset,
                matmul,
                always_skips: skip == SkipMode::On,
                whole_rounds,
                hidden: HiddenSettings::default(),
                by_class: false,
            }),
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
