//! How numbers that nobody reads are held in their ranges.

use serde::{Deserialize, Serialize};

use super::{Settings, SettingsConflict};

/// Which bounds hidden numbers are held to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum), clap(rename_all = "lower"))]
pub enum RangeRule {
    /// Proven ones where they leave 64-bit words enough fractional bits, calibrated ones elsewhere.
    #[default]
    Auto,
    /// Bounds that follow from published norms: no number can leave its range.
    Proven,
    /// What owners measured under models they know, and two bits: fewer bits for deep models, and numbers that leave their range are
    /// counted.
    Calibrated,
}

impl RangeRule {
    /// Its name on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Proven => "proven",
            Self::Calibrated => "calibrated",
        }
    }
}

/// How numbers that nobody reads are held in their ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HiddenSettings {
    /// Which bounds they are held to.
    pub ranges: RangeRule,
    /// Whether numbers out of range are counted where none can be, too. They always are where bounds are only measured.
    pub checks_all: bool,
    /// Labels of ten thousand that a model with functions by straight pieces must share with the exact model, at least.
    pub agreement: u16,
}

impl Default for HiddenSettings {
    fn default() -> Self {
        Self::USUAL
    }
}

impl HiddenSettings {
    /// The usual ones.
    pub const USUAL: Self = Self { ranges: RangeRule::Auto, checks_all: false, agreement: 9950 };

    /// Bytes in the encoding that a session's fingerprint is the digest of; none for the usual ones.
    pub(super) fn session_bytes(self) -> Vec<u8> {
        let ranges = match self.ranges {
            RangeRule::Auto => 0,
            RangeRule::Calibrated => 1,
            RangeRule::Proven => 2,
        };
        let byte = ranges + 4 * u8::from(self.checks_all);
        match (self == Self::USUAL, self.agreement == Self::USUAL.agreement) {
            (true, _) => Vec::new(),
            (false, true) => vec![byte],
            // No other part begins with so large a byte.
            (false, false) => [vec![8 + byte], self.agreement.to_le_bytes().to_vec()].concat(),
        }
    }
}

impl Settings {
    /// The same with other hidden numbers, if the protocol hides any.
    pub fn with_hidden(self, hidden: HiddenSettings) -> Result<Self, SettingsConflict> {
        if hidden != HiddenSettings::USUAL && self.protocol.rules().has_decryptors() {
            let expected =
                "proven, or protocol blindsv: under the others somebody reads numbers and sees their range";
            return Err(SettingsConflict { setting: "ranges", expected, found: hidden.ranges.name() });
        }
        Ok(Self { hidden, ..self })
    }
}

#[cfg(test)]
mod tests {
    use secsv_federation::skip::SkipMode;
    use secsv_he::Preset;

    use super::*;
    use crate::decryptors::Protocol;

    #[test]
    fn ranges_are_for_numbers_that_nobody_reads() {
        let hidden = HiddenSettings { ranges: RangeRule::Calibrated, ..HiddenSettings::USUAL };
        let checked = HiddenSettings { checks_all: true, ..hidden };
        for protocol in Protocol::ALL {
            let settings = Settings::new(protocol, Preset::Standard, None, SkipMode::Off, true).unwrap();
            assert_eq!(settings.with_hidden(HiddenSettings::default()), Ok(settings));
            let found = settings.with_hidden(hidden).err().map(|conflict| conflict.setting);
            assert_eq!(found, (protocol != Protocol::BlindSv).then_some("ranges"), "{protocol:?}");
            assert_eq!(settings.with_hidden(checked).is_ok(), protocol == Protocol::BlindSv);
        }
    }
}
