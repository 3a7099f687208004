//! Kits for everybody: certificates signed by a fresh authority, and one federation file for all.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use rcgen::PublicKeyData;
use secsv_federation::{ClientId, FederationSpec, LABELS_FILE, Labels, RoundId, RunDirectory};
use secsv_protocol::{Secret, exposure::Exposure};

use super::{
    FederationFile, KitDefect, KitError, PartyIdentity, PartyRole, Request, Servers, SessionSpec, Validity,
    certificates::Authority,
    federation_file::FORMAT,
    files::{
        AUTHORITY, AUTHORITY_KEY, CERTIFICATE, FEDERATION, SIGNATURE, make_directory, to_pem, write,
        write_private,
    },
    request::PartyKeys,
};
use crate::{Fingerprint, fingerprint::to_hex};
use secsv_evaluation::{ExposureResult, exposure_result};

/// What kits are made from, beside keys.
#[derive(Clone, Debug)]
pub struct Provision {
    /// The federation.
    pub federation: FederationSpec,
    /// The shape of every tensor of its model.
    pub tensors: BTreeMap<String, Vec<usize>>,
    /// Rounds that clients missed.
    pub absent: BTreeMap<ClientId, Vec<RoundId>>,
    /// Where the servers will be.
    pub servers: Servers,
    /// How the federation is valued.
    pub session: SessionSpec,
    /// How long certificates last.
    pub validity: Validity,
    /// What people call the silos.
    pub labels: Labels,
}

/// Kits that were made.
#[derive(Clone, Debug)]
pub struct Provisioned {
    /// A directory for each party, in the federation file's order.
    pub kits: Vec<(ClientId, PathBuf)>,
    /// The digest that all of them have in common.
    pub digest: Fingerprint,
    /// Who can do what with whose samples and models.
    pub exposure: ExposureResult,
}

/// A party that gets a certificate.
struct Applicant<'a, K> {
    id: ClientId,
    role: PartyRole,
    host: Option<&'a str>,
    key: &'a K,
    envelope_key: Fingerprint,
}

/// A party's name, its role and its address, where it has one.
type Listed<'a> = (ClientId, PartyRole, Option<&'a str>);

impl Provision {
    /// For the federation of a run directory, or of what a silo or the provisioner holds of one: `federation.toml` and
    /// `initial.safetensors`. Who missed a round is read from the clients' directories where all are there;
    /// elsewhere a `train_size` of 0 for a round says it.
    pub fn of_run(run: &RunDirectory, servers: Servers, session: SessionSpec, validity: Validity) -> Self {
        let federation = run.spec().clone();
        let is_whole = federation.ids().all(|id| run.path().join("clients").join(id.as_str()).is_dir());
        let missed =
            |id: &ClientId| federation.round_ids().filter(|&round| !run.took_part(id, round)).collect();
        let absent = federation.ids().filter(|_| is_whole).map(|id| (id.clone(), missed(id))).collect();
        let tensors = run.architecture().tensors().clone();
        Self { federation, tensors, absent, servers, session, validity, labels: Labels::default() }
    }

    /// The same with what people call the silos, which goes into every kit.
    #[must_use]
    pub fn labelled(self, labels: Labels) -> Self {
        Self { labels, ..self }
    }

    /// Signs the requests of all parties. Private keys stay where they are: a kit gets complete when its files are
    /// put beside them.
    pub fn sign(
        &self,
        requests: &[Request],
        requests_from: &Path,
        out: &Path,
    ) -> Result<Provisioned, KitError> {
        let mut by_id = BTreeMap::new();
        for request in requests {
            if by_id.insert(request.id.clone(), request).is_some() {
                let found = format!("another one of {}", request.id);
                return Err(KitError::invalid(&request.file, "id", "one request for each party", found));
            }
        }
        let mut applicants = Vec::new();
        for (id, role, host) in self.parties(requests_from)? {
            let Some(request) = by_id.remove(&id) else {
                let file = requests_from.join(format!("{id}{}", super::files::REQUEST_SUFFIX));
                return Err(KitError::new(&file, "file", KitDefect::Missing));
            };
            let (key, envelope_key) = (&request.key, request.envelope_key);
            applicants.push(Applicant { id, role, host, key, envelope_key });
        }
        if let Some(request) = by_id.into_values().next() {
            let expected = "principal, auxiliary or a client of the federation";
            return Err(KitError::invalid(&request.file, "id", expected, request.id.as_str()));
        }
        let mut keys = BTreeSet::new();
        for request in requests {
            if !keys.insert(request.key.der_bytes().to_vec()) || !keys.insert(request.envelope_key.0.to_vec())
            {
                return Err(KitError::invalid(&request.file, "keys", "keys of its own", "another party's"));
            }
        }
        whole(out, |directory| self.write(&applicants, directory, out))
    }

    /// Makes everybody's keys as well, in one place: for trials. Whoever runs this could speak for everybody.
    pub fn generate_keys(&self, out: &Path) -> Result<Provisioned, KitError> {
        let parties = self.parties(out)?;
        let keys = parties.iter().map(|_| PartyKeys::generate(out)).collect::<Result<Vec<_>, _>>()?;
        let applicants: Vec<_> = parties
            .into_iter()
            .zip(&keys)
            .map(|((id, role, host), keys)| {
                let envelope_key = Fingerprint(keys.envelope.public_key());
                Applicant { id, role, host, key: &keys.certificate, envelope_key }
            })
            .collect();
        whole(out, |directory| {
            let provisioned = self.write(&applicants, directory, out)?;
            for (applicant, keys) in applicants.iter().zip(&keys) {
                keys.write(&directory.join(applicant.id.as_str()))?;
            }
            Ok(provisioned)
        })
    }

    /// Everybody with role and host, in the federation file's order.
    fn parties(&self, file: &Path) -> Result<Vec<Listed<'_>>, KitError> {
        let reserved = ["principal", "auxiliary", AUTHORITY, AUTHORITY_KEY];
        if let Some(id) = self.federation.ids().find(|id| reserved.contains(&id.as_str())) {
            let expected = "a name that no server or file has";
            return Err(KitError::invalid(file, "clients.id", expected, id.as_str()));
        }
        let named = |name: &str| {
            ClientId::new(name).map_err(|error| KitError::invalid(file, "id", "a party's name", error.found))
        };
        let Servers { principal, auxiliary } = &self.servers;
        let mut parties = vec![
            (named("principal")?, PartyRole::Principal, Some(principal.host.as_str())),
            (named("auxiliary")?, PartyRole::Auxiliary, Some(auxiliary.host.as_str())),
        ];
        parties.extend(self.federation.ids().map(|id| (id.clone(), PartyRole::Client, None)));
        Ok(parties)
    }

    fn write<K: PublicKeyData>(
        &self,
        applicants: &[Applicant<'_, K>],
        directory: &Path,
        out: &Path,
    ) -> Result<Provisioned, KitError> {
        let authority = Authority::generate(&self.federation.name, self.validity, out)?;
        let mut parties = Vec::new();
        let mut certificates = Vec::new();
        for Applicant { id, role, host, key, envelope_key } in applicants {
            let certificate = authority.sign(id.as_str(), *role, *host, *key, self.validity, out)?;
            parties.push(PartyIdentity {
                id: id.clone(),
                role: *role,
                certificate: Fingerprint::sha256(&certificate),
                envelope_key: (*role == PartyRole::Client).then_some(*envelope_key),
                absent: self.absent.get(id).cloned().unwrap_or_default(),
            });
            certificates.push(certificate);
        }
        let file = FederationFile {
            format: FORMAT,
            authority: Fingerprint::sha256(&authority.certificate),
            made: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            follows: None,
            last: false,
            servers: self.servers.clone(),
            session: self.session.clone(),
            parties,
            tensors: self.tensors.clone(),
            federation: self.federation.clone(),
        };
        let target = out.join(FEDERATION);
        let text = toml::to_string(&file).map_err(|error| {
            KitError::invalid(&target, "file", "numbers that TOML can hold", error.to_string())
        })?;
        // What nobody could open is not handed out.
        FederationFile::parse(text.as_bytes(), &target)?;
        let exposure = Exposure::new(&file.session(&[0; 32], &target)?)
            .map_err(|error| KitError::new(&target, "session", error.into()))?;
        let exposure = exposure_result(&exposure, &file.federation, &self.labels);
        let signature = format!("{}\n", to_hex(&authority.sign_bytes(text.as_bytes(), out)?));
        let authority_pem = to_pem("CERTIFICATE", &authority.certificate);
        for (applicant, certificate) in applicants.iter().zip(&certificates) {
            let kit = directory.join(applicant.id.as_str());
            make_directory(&kit)?;
            write(&kit.join(CERTIFICATE), to_pem("CERTIFICATE", certificate).as_bytes())?;
            write(&kit.join(AUTHORITY), authority_pem.as_bytes())?;
            write(&kit.join(FEDERATION), text.as_bytes())?;
            write(&kit.join(SIGNATURE), signature.as_bytes())?;
            let labelled = self.labels.write(&kit);
            labelled.map_err(|error| KitError::new(&kit.join(LABELS_FILE), "file", error.into()))?;
        }
        write(&directory.join(AUTHORITY), authority_pem.as_bytes())?;
        let key = Secret::new(to_pem("PRIVATE KEY", authority.key_der()));
        write_private(&directory.join(AUTHORITY_KEY), key.expose().as_bytes())?;
        let kits = applicants.iter().map(|a| (a.id.clone(), out.join(a.id.as_str()))).collect();
        Ok(Provisioned { kits, digest: Fingerprint(FederationFile::digest(text.as_bytes())), exposure })
    }
}

/// Fills a directory that is there as a whole afterwards, or not at all.
pub(super) fn whole<T>(out: &Path, fill: impl FnOnce(&Path) -> Result<T, KitError>) -> Result<T, KitError> {
    let is_free = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(KitError::reading(out, error)),
    };
    if !is_free {
        return Err(KitError::new(out, "directory", KitDefect::NotEmpty));
    }
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    let partial = out.with_file_name(format!(".{name}.partial-{}", std::process::id()));
    let filled = make_directory(&partial)
        .and_then(|()| fill(&partial))
        .and_then(|made| fs::rename(&partial, out).map(|()| made).map_err(|e| KitError::writing(out, e)));
    if filled.is_err() {
        // Half of a set of kits is of no use; the first error is the one to tell.
        let _ = fs::remove_dir_all(&partial);
    }
    filled
}
