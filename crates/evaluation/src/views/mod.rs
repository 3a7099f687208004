//! What each party of a run in one process saw (docs/VIEWS.md): recorded while it runs, read afterwards, by each
//! party's own role, and written as files that NumPy reads.
//!
//! ```
//! # use secsv_federation::*;
//! # use secsv_protocol::{Seed, session::{Settings, typical_costs}};
//! # use secsv_evaluation::*;
//! # fn example(run: &RunDirectory, settings: Settings) -> Result<(), Box<dyn std::error::Error>> {
//! let costs = Some(typical_costs(settings.preset));
//! let mut evaluator = SecureEvaluator::recorded(run, settings, costs, &Seed::from_bytes([1; 32]))?;
//! evaluate(run.spec(), &mut evaluator, &EvaluationSettings::default(), |_| {})?;
//! let views = evaluator.views(run.spec())?;
//! for array in &views.clients[0].view.arrays {
//!     println!("{} {:?} of {:?}", array.what, array.shape, array.about.owner);
//! }
//! views.write("views".as_ref())?;
//! # Ok(())
//! # }
//! ```

mod files;
mod index;
mod known;
mod party_index;
mod recorder;

use std::{path::Path, sync::Arc};

use secsv_federation::FederationSpec;
use secsv_protocol::{PartyId, session::Session, views::View};

pub use crate::views_error::ViewsError;
use crate::{Error, in_process::InProcess};
pub use files::check_target;
pub use index::Index;
pub use known::{KnownArray, KnownValues};
pub use recorder::{Recorder, Transcript};

/// One party's view, and what it knew before.
pub struct PartyView {
    /// `principal`, `auxiliary` or `client` and its id.
    pub name: String,
    /// Its directory.
    pub directory: String,
    /// What it saw.
    pub view: View,
    /// What it knew: a client's samples and models.
    pub known: Vec<KnownArray>,
}

/// What all parties of a run saw.
pub struct Views {
    /// What everybody knows.
    pub index: Index,
    /// The principal's.
    pub principal: PartyView,
    /// The auxiliary's.
    pub auxiliary: PartyView,
    /// The clients', in the order of the federation.
    pub clients: Vec<PartyView>,
    names: PartyNames,
}

/// Names of parties in files.
#[derive(Clone)]
pub(crate) struct PartyNames(Arc<Vec<String>>);

impl PartyNames {
    fn new(spec: &FederationSpec) -> Self {
        Self(Arc::new(spec.ids().map(|id| id.as_str().to_owned()).collect()))
    }

    fn client(&self, position: usize) -> String {
        self.0.get(position).cloned().unwrap_or_default()
    }

    fn party(&self, party: PartyId) -> String {
        match party {
            PartyId::Principal => "principal".to_owned(),
            PartyId::Auxiliary => "auxiliary".to_owned(),
            PartyId::Client(position) => format!("client {}", self.client(position)),
        }
    }

    fn directory(&self, party: PartyId) -> String {
        match party {
            PartyId::Client(position) => format!("clients/{}", self.client(position)),
            server => self.party(server),
        }
    }
}

impl Views {
    /// Has every party that is at rest read what was recorded.
    pub fn read(
        in_process: &InProcess,
        spec: &FederationSpec,
        transcript: &Transcript,
    ) -> Result<Self, Error> {
        let names = PartyNames::new(spec);
        let session: Option<Arc<Session>> = in_process.with_principal(|p| p.session().cloned()).flatten();
        let session = session.ok_or(Error::Views(ViewsError::NoSession))?;
        let view_of = |party: PartyId| {
            transcript.with(party, |received, sent| match party {
                PartyId::Principal => {
                    in_process.with_principal(|role| (role.view(received, sent), Vec::new()))
                }
                PartyId::Auxiliary => {
                    in_process.with_auxiliary(|role| (role.view(received, sent), Vec::new()))
                }
                PartyId::Client(i) => {
                    in_process.with_client(i, |role| (role.view(received), known::of(role.input())))
                }
            })
        };
        let of = |party: PartyId| {
            let (view, known) = view_of(party).ok_or(Error::Views(ViewsError::AtWork))?;
            let view = view.map_err(Error::Role)?;
            Ok::<_, Error>(PartyView {
                name: names.party(party),
                directory: names.directory(party),
                view,
                known,
            })
        };
        let clients = (0..spec.clients.len()).map(|client| of(PartyId::Client(client)));
        Ok(Self {
            index: Index::new(spec, &session, &names),
            principal: of(PartyId::Principal)?,
            auxiliary: of(PartyId::Auxiliary)?,
            clients: clients.collect::<Result<_, _>>()?,
            names,
        })
    }

    /// All parties.
    pub fn parties(&self) -> impl Iterator<Item = &PartyView> {
        [&self.principal, &self.auxiliary].into_iter().chain(&self.clients)
    }

    /// Writes everything to a directory that is empty or not there yet.
    pub fn write(&self, directory: &Path) -> Result<(), Error> {
        files::write(self, directory).map_err(Error::Views)
    }
}
