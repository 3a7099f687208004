//! What a session exposes, as results, commands and reports tell it.

use secsv_federation::{FederationSpec, Labels};
use secsv_protocol::exposure::{Exposure, PartyExposure};

use crate::{ExposureResult, ExposureRow};

/// The table as outsiders read it: rows by id, and sentences with what people call the clients.
pub fn exposure_result(exposure: &Exposure, spec: &FederationSpec, labels: &Labels) -> ExposureResult {
    let ids: Vec<&str> = spec.ids().map(secsv_federation::ClientId::as_str).collect();
    let row = |(row, called): (PartyExposure, PartyExposure)| ExposureRow {
        label: (row.who != called.who).then_some(called.who),
        who: row.who,
        samples: row.samples.to_string(),
        models: row.models.to_string(),
        sentence: called.sentence,
    };
    let rows = exposure.rows(&ids).into_iter().zip(exposure.rows(&names(spec, labels)));
    ExposureResult { sentences: exposure.headlines(), rows: rows.map(row).collect() }
}

/// What people call each client, in order.
pub fn names<'a>(spec: &'a FederationSpec, labels: &'a Labels) -> Vec<&'a str> {
    spec.ids().map(|id| labels.get(id).unwrap_or(id.as_str())).collect()
}

impl ExposureRow {
    /// What people call whom it is about.
    pub fn called(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.who)
    }
}

impl std::fmt::Display for ExposureResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "who can do what with other clients' samples and models")?;
        self.sentences.iter().try_for_each(|sentence| writeln!(f, "  {sentence}"))?;
        let width = self.rows.iter().map(|row| row.called().chars().count()).max().unwrap_or(0);
        writeln!(f, "  {:width$}  {:13}  {:13}", "", "samples", "models")?;
        for row in &self.rows {
            let called = row.called();
            writeln!(f, "  {called:width$}  {:13}  {:13}  {}", row.samples, row.models, row.sentence)?;
        }
        Ok(())
    }
}
