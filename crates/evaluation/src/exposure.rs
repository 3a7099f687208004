//! What a session exposes, as results, commands and reports tell it.

use secsv_federation::FederationSpec;
use secsv_protocol::exposure::Exposure;

use crate::{ExposureResult, ExposureRow};

/// The table as outsiders read it.
pub fn exposure_result(exposure: &Exposure, spec: &FederationSpec) -> ExposureResult {
    let names: Vec<&str> = spec.ids().map(secsv_federation::ClientId::as_str).collect();
    let row = |row: secsv_protocol::exposure::PartyExposure| ExposureRow {
        who: row.who,
        samples: row.samples.to_string(),
        models: row.models.to_string(),
        sentence: row.sentence,
    };
    ExposureResult {
        sentences: exposure.headlines(),
        rows: exposure.rows(&names).into_iter().map(row).collect(),
    }
}

impl std::fmt::Display for ExposureResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "who can do what with other clients' samples and models")?;
        self.sentences.iter().try_for_each(|sentence| writeln!(f, "  {sentence}"))?;
        let width = self.rows.iter().map(|row| row.who.len()).max().unwrap_or(0);
        writeln!(f, "  {:width$}  {:13}  {:13}", "", "samples", "models")?;
        for row in &self.rows {
            writeln!(f, "  {:width$}  {:13}  {:13}  {}", row.who, row.samples, row.models, row.sentence)?;
        }
        Ok(())
    }
}
