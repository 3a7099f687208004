//! Views as `secsv evaluate --views` writes them (docs/VIEWS.md).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use nalgebra::DMatrix;
use npyz::NpyFile;
use secsv_algebra::FixedPoint;
use secsv_federation::{Architecture, ClientId, Coalition, ModelSpec, RoundId, Tensor, TestSet, Weights};
use secsv_protocol::{
    Program,
    decryptors::Protocol,
    precision::{OperatorFormat, Precision},
};
use serde::{Deserialize, de::DeserializeOwned};
use zip::ZipArchive;

use crate::{
    hidden::{Hidden, HiddenNumbers, Stage, Sum, centred},
    view::{ClientView, DecryptedOutputs},
};

/// Why a view cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// A file cannot be read.
    #[error("{}: {source}", file.display())]
    Reading {
        /// Which.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something is not as docs/VIEWS.md says.
    #[error("{}: {what}: expected {expected}, found {found}", file.display())]
    Unexpected {
        /// In which file.
        file: PathBuf,
        /// The field or file.
        what: &'static str,
        /// The value that is expected.
        expected: &'static str,
        /// The value that was found.
        found: String,
    },
}

/// Facts that everybody knows, as far as attacks use them.
#[derive(Deserialize)]
struct CommonListing {
    protocol: String,
    clients: Vec<ClientId>,
    parties: Vec<PartyListing>,
    rounds: Vec<RoundListing>,
    test_sizes: BTreeMap<ClientId, usize>,
    model: ModelSpec,
    operators: Vec<OperatorListing>,
    gru: Option<GruListing>,
    #[serde(default)]
    sums: Vec<Sum>,
    #[serde(default)]
    stages: Vec<Stage>,
}

#[derive(Deserialize)]
struct PartyListing {
    party: String,
    client: Option<ClientId>,
    directory: String,
}

#[derive(Deserialize)]
struct RoundListing {
    round: RoundId,
    participants: Vec<ClientId>,
    train_sizes: BTreeMap<ClientId, f64>,
}

#[derive(Deserialize)]
struct OperatorListing {
    weight_bits: u32,
    input_bits: u32,
    word_bits: Option<u32>,
}

#[derive(Deserialize)]
struct GruListing {
    gate_bits: u32,
    update_bits: u32,
}

#[derive(Deserialize)]
struct MessageListings {
    messages: Vec<MessageListing>,
}

#[derive(Deserialize)]
struct MessageListing {
    kind: String,
}

#[derive(Deserialize)]
struct ArrayListings {
    arrays: Vec<ArrayListing>,
}

#[derive(Deserialize)]
struct ArrayListing {
    file: String,
    array: String,
    what: String,
    round: Option<RoundId>,
    coalition: Option<Vec<ClientId>>,
    owner: Option<ClientId>,
    samples: Option<Vec<(usize, usize)>>,
    hop: Option<usize>,
    operator: Option<usize>,
    first_position: Option<usize>,
    client: Option<ClientId>,
    shape: [usize; 2],
    scale: Option<f64>,
    offset: Option<i64>,
}

/// Words of local models: weights row by row, then biases; by round, client and operator.
pub type MaskedModels = BTreeMap<(RoundId, usize, usize), Vec<i64>>;

/// A views directory.
pub struct Directory {
    path: PathBuf,
    index: CommonListing,
}

/// The file of everything that a client decrypted, and the arrays in it.
const OUTPUTS: (&str, &str) = ("derived-outputs.npz", "outputs");
/// The file of what servers open to each other, less the own masks.
const MASKED: &str = "derived-masked-openings.npz";
/// The file of what the other server sent for that.
const SENT: &str = "masked-opening.npz";
/// The files of masked models: as they came, and less the own masks.
const MODELS: [&str; 2] = ["masked-model.npz", "derived-masked-models.npz"];
/// The file of a server's shares of samples.
const DATA_SHARES: &str = "data-share.npz";

impl Directory {
    /// Reads what everybody knows.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DirectoryError> {
        let path = path.into();
        let index = json(&path.join("index.json"))?;
        Ok(Self { path, index })
    }

    /// Clients in order.
    pub fn clients(&self) -> &[ClientId] {
        &self.index.clients
    }

    /// The protocol's name.
    pub fn protocol(&self) -> &str {
        &self.index.protocol
    }

    /// The view of a client.
    pub fn client(&self, client: usize) -> Result<ClientView, DirectoryError> {
        let file = self.path.join("index.json");
        let missing = |found: String| {
            let file = file.clone();
            DirectoryError::Unexpected { file, what: "parties", expected: "this client", found }
        };
        let id = self.index.clients.get(client).ok_or_else(|| missing(client.to_string()))?;
        let entry = self.index.parties.iter().find(|party| party.client.as_ref() == Some(id));
        let entry = entry.ok_or_else(|| missing(id.to_string()))?;
        let directory = self.path.join(&entry.directory);
        let known = ClientKnowledge::read(&directory.join("known.npz"))?;
        let program = self.program(&known)?;
        let (precision, sizes) = (self.precision(), self.sizes());
        let outputs = self.outputs(&entry.party)?;
        let ClientKnowledge { own, local, global, .. } = known;
        Ok(ClientView { client, program, precision, sizes, local, global, own, outputs })
    }

    /// Arrays of a party's file, with their numbers.
    fn arrays(
        &self,
        party: &str,
        name: &str,
        is_wanted: impl Fn(&ArrayListing) -> bool,
    ) -> Result<Vec<(ArrayListing, Vec<i64>)>, DirectoryError> {
        let Some(entry) = self.index.parties.iter().find(|entry| entry.party == party) else {
            return Ok(Vec::new());
        };
        let directory = self.path.join(&entry.directory);
        let index: ArrayListings = json(&directory.join("index.json"))?;
        let (file, mut archive, mut found) = (directory.join(name), None, Vec::new());
        for entry in index.arrays.into_iter().filter(|entry| entry.file == name && is_wanted(entry)) {
            let archive = match &mut archive {
                Some(archive) => archive,
                none => none.insert(open(&file)?),
            };
            let (_, numbers) = array(archive, &entry.array, &file, integers)?;
            found.push((entry, numbers));
        }
        Ok(found)
    }

    /// Outputs that a server could read: none, if docs/SECURITY.md is right.
    pub fn server(&self, party: &str) -> Result<Vec<DecryptedOutputs>, DirectoryError> {
        self.outputs(party)
    }

    /// Numbers as a server of BlindSV has them: under the other server's masks alone. Clients have none.
    pub fn hidden(&self, party: &str) -> Result<HiddenNumbers, DirectoryError> {
        let (stages, sums) = (self.index.stages.clone(), self.index.sums.clone());
        Ok(HiddenNumbers { stages, sums, all: self.opened(party, MASKED)?, samples: BTreeMap::new() })
    }

    /// Numbers and samples that both servers of BlindSV have together: they take off each other's masks.
    pub fn pooled(&self) -> Result<HiddenNumbers, DirectoryError> {
        let sent = [self.opened("principal", SENT)?, self.opened("auxiliary", SENT)?];
        let mut pooled = self.hidden("principal")?.pooled(&self.hidden("auxiliary")?, &sent);
        let [one, other] = [self.data_shares("principal")?, self.data_shares("auxiliary")?];
        let [bits, input] = self.sample_bits();
        for (owner, share) in one {
            let Some(other) = other.get(&owner).filter(|other| other.len() == share.len()) else { continue };
            let sum = share.iter().zip(other).map(|(a, b)| centred(a.wrapping_add(*b), bits));
            let reals: Vec<f64> = sum.map(|sum| sum as f64 * f64::powi(0.5, input as i32)).collect();
            let count = self.index.test_sizes.get(&self.index.clients[owner]).copied().unwrap_or(0);
            if let Some(rows) = reals.len().checked_div(count) {
                pooled.samples.insert(owner, DMatrix::from_row_slice(rows, count, &reals));
            }
        }
        Ok(pooled)
    }

    /// Bits of words of samples, and of their fractions.
    pub fn sample_bits(&self) -> [u32; 2] {
        let first = self.index.operators.first();
        [self.word_bits(0), first.map_or(0, |operator| operator.input_bits)]
    }

    /// Bits of an operator's words.
    fn word_bits(&self, operator: usize) -> u32 {
        self.index.operators.get(operator).and_then(|operator| operator.word_bits).unwrap_or(64)
    }

    /// What the other server sent, as numbers of their stages.
    pub fn sent_to(&self, party: &str) -> Result<HiddenNumbers, DirectoryError> {
        Ok(HiddenNumbers { all: self.opened(party, SENT)?, ..self.hidden(party)? })
    }

    fn opened(&self, party: &str, name: &str) -> Result<Vec<Hidden>, DirectoryError> {
        let mut found = Vec::new();
        let is_of_numbers = |entry: &ArrayListing| {
            let stage = entry.hop.and_then(|stage| self.index.stages.get(stage));
            stage.is_some_and(|stage| stage.bits.is_some())
        };
        for (entry, numbers) in self.arrays(party, name, is_of_numbers)? {
            let members = self.members(&entry);
            let owner = entry.owner.as_ref().and_then(|id| self.position(id));
            let samples = entry.samples.iter().flatten().flat_map(|&(first, end)| first..end).collect();
            let (Some(round), Some(coalition), Some(owner), Some(stage), Some(scale)) =
                (entry.round, members, owner, entry.hop, entry.scale)
            else {
                continue;
            };
            let (offset, columns) = (entry.offset.unwrap_or(0), entry.shape[1]);
            found.push(Hidden { round, coalition, owner, samples, stage, scale, offset, columns, numbers });
        }
        Ok(found)
    }

    /// Local models as a server of BlindSV has them, operator by operator: under both masks, and under the other server's alone.
    pub fn masked_models(&self, party: &str) -> Result<[MaskedModels; 2], DirectoryError> {
        let mut found = [MaskedModels::new(), MaskedModels::new()];
        for (found, name) in found.iter_mut().zip(MODELS) {
            for (entry, numbers) in self.arrays(party, name, |_| true)? {
                let client = entry.client.as_ref().and_then(|id| self.position(id));
                let place = entry.round.zip(client);
                let operator = entry.operator.unwrap_or(0);
                found.extend(place.map(|(round, client)| ((round, client, operator), numbers)));
            }
        }
        Ok(found)
    }

    /// Local models that both servers of BlindSV have together.
    pub fn pooled_models(&self) -> Result<MaskedModels, DirectoryError> {
        let ([masked, mut found], [_, other]) =
            (self.masked_models("principal")?, self.masked_models("auxiliary")?);
        for (place, numbers) in &mut found {
            let (Some(other), Some(masked)) = (other.get(place), masked.get(place)) else { continue };
            // E + U_P and E + U_A, less E, is the model.
            for (number, (other, masked)) in numbers.iter_mut().zip(other.iter().zip(masked)) {
                *number = centred(number.wrapping_add(*other).wrapping_sub(*masked), self.word_bits(place.2));
            }
        }
        Ok(found)
    }

    /// Kinds of messages that a client received.
    pub fn received(&self, client: usize) -> Result<BTreeSet<String>, DirectoryError> {
        let id = self.index.clients.get(client);
        let entry =
            self.index.parties.iter().find(|party| party.client.is_some() && party.client.as_ref() == id);
        let Some(entry) = entry else { return Ok(BTreeSet::new()) };
        let index: MessageListings = json(&self.path.join(&entry.directory).join("index.json"))?;
        Ok(index.messages.into_iter().map(|message| message.kind).collect())
    }

    /// A server's shares of each owner's samples: a row for each number of a sample, a column for each
    /// sample.
    pub fn data_shares(&self, party: &str) -> Result<BTreeMap<usize, Vec<i64>>, DirectoryError> {
        let shares = self.arrays(party, DATA_SHARES, |entry| entry.what == "share")?;
        let of_owner = |(entry, numbers): (ArrayListing, _)| Some((self.position(&entry.owner?)?, numbers));
        Ok(shares.into_iter().filter_map(of_owner).collect())
    }

    fn position(&self, id: &ClientId) -> Option<usize> {
        self.index.clients.iter().position(|client| client == id)
    }

    fn program(&self, known: &ClientKnowledge) -> Result<Program, DirectoryError> {
        let file = self.path.join("index.json");
        let wrong = |found: String| DirectoryError::Unexpected {
            file: file.clone(),
            what: "model",
            expected: "a model",
            found,
        };
        let shapes = known.global.values().next().map(Weights::shapes).unwrap_or_default();
        let architecture =
            Architecture::new(&self.index.model, &shapes, &file, &file).map_err(|e| wrong(e.to_string()))?;
        let protocol = Protocol::ALL.into_iter().find(|protocol| protocol.name() == self.index.protocol);
        let protocol = protocol.ok_or_else(|| wrong(self.index.protocol.clone()))?;
        protocol.rules().program(&architecture).map_err(|e| wrong(e.to_string()))
    }

    /// Ranges are not in the index; whoever only reads needs none.
    fn precision(&self) -> Precision {
        const WIDE: i32 = 38;
        let format = |bits: u32| FixedPoint::new(bits, WIDE - bits as i32);
        let operator = |entry: &OperatorListing| OperatorFormat {
            weight: format(entry.weight_bits),
            input: format(entry.input_bits),
            bias: format(entry.weight_bits + entry.input_bits),
        };
        let gru = self.index.gru.as_ref();
        Precision {
            operators: self.index.operators.iter().map(operator).collect(),
            gate: format(gru.map_or(1, |gru| gru.gate_bits)),
            update: format(gru.map_or(1, |gru| gru.update_bits)),
        }
    }

    fn sizes(&self) -> BTreeMap<RoundId, Vec<f64>> {
        let of_round = |entry: &RoundListing| {
            let size = |id: &ClientId| match entry.participants.contains(id) {
                true => entry.train_sizes.get(id).copied().unwrap_or(0.0),
                false => 0.0,
            };
            (entry.round, self.index.clients.iter().map(size).collect())
        };
        self.index.rounds.iter().map(of_round).collect()
    }

    fn outputs(&self, party: &str) -> Result<Vec<DecryptedOutputs>, DirectoryError> {
        let (file, what) = OUTPUTS;
        let found = self.arrays(party, file, |entry| entry.what == what && entry.operator.is_some())?;
        Ok(found.into_iter().filter_map(|(entry, numbers)| self.entry(&entry, numbers)).collect())
    }

    /// The members of an array's coalition.
    fn members(&self, entry: &ArrayListing) -> Option<Coalition> {
        entry.coalition.as_ref()?.iter().map(|id| self.position(id)).collect()
    }

    fn entry(&self, entry: &ArrayListing, numbers: Vec<i64>) -> Option<DecryptedOutputs> {
        Some(DecryptedOutputs {
            round: entry.round?,
            coalition: self.members(entry)?,
            owner: self.position(entry.owner.as_ref()?)?,
            samples: entry.samples.as_ref()?.iter().flat_map(|&(first, end)| first..end).collect(),
            step: entry.hop?,
            operator: entry.operator?,
            first: entry.first_position.unwrap_or(0),
            numbers,
        })
    }
}

/// Samples and models that a client knew before.
struct ClientKnowledge {
    own: TestSet,
    local: BTreeMap<RoundId, Weights>,
    global: BTreeMap<RoundId, Weights>,
}

impl ClientKnowledge {
    fn read(file: &Path) -> Result<Self, DirectoryError> {
        let mut archive = open(file)?;
        let names: Vec<String> =
            archive.file_names().filter_map(|name| name.ok().map(|name| name.to_string())).collect();
        let (shape, features) = array(&mut archive, "x", file, |array| array.into_vec())?;
        let (_, labels) = array(&mut archive, "y", file, integers)?;
        let wrong = |what, error: secsv_federation::Defect| DirectoryError::Unexpected {
            file: file.to_owned(),
            what,
            expected: "an array of its shape",
            found: error.to_string(),
        };
        let own = TestSet::new(shape.get(1..).unwrap_or(&[]).to_vec(), features, labels)
            .map_err(|e| wrong("x", e))?;
        let mut models = [BTreeMap::new(), BTreeMap::new()];
        for name in names.iter().map(|name| name.trim_end_matches(".npy")) {
            let mut parts = name.splitn(3, '/');
            let (Some(kind), Some(round), Some(tensor)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            let Some(round) = round.strip_prefix("round-").and_then(|round| round.parse().ok()) else {
                continue;
            };
            let (shape, values) = array(&mut archive, name, file, |array| array.into_vec())?;
            let values = Tensor::new(shape, values).map_err(|e| wrong("a model", e))?;
            let model: &mut Weights =
                models[usize::from(kind == "global")].entry(RoundId(round)).or_insert_with(Weights::new);
            model.insert(tensor, values);
        }
        let [local, global] = models;
        Ok(Self { own, local, global })
    }
}

type ArrayArchive = ZipArchive<BufReader<File>>;

/// The error that a file cannot be read.
fn unreadable<E: Into<io::Error>>(file: &Path) -> impl Fn(E) -> DirectoryError + '_ {
    |source| DirectoryError::Reading { file: file.to_owned(), source: source.into() }
}

fn open(file: &Path) -> Result<ArrayArchive, DirectoryError> {
    let opened = File::open(file).map_err(unreadable(file))?;
    ZipArchive::new(BufReader::new(opened)).map_err(unreadable(file))
}

fn json<T: DeserializeOwned>(file: &Path) -> Result<T, DirectoryError> {
    let text = fs::read_to_string(file).map_err(unreadable(file))?;
    serde_json::from_str(&text).map_err(unreadable(file))
}

/// An array's shape, and its elements as `read` takes them.
fn array<T>(
    archive: &mut ArrayArchive,
    name: &str,
    file: &Path,
    read: impl FnOnce(NpyFile<&[u8]>) -> io::Result<Vec<T>>,
) -> Result<(Vec<usize>, Vec<T>), DirectoryError> {
    let mut bytes = Vec::new();
    let mut entry = archive.by_name(&format!("{name}.npy")).map_err(unreadable(file))?;
    entry.read_to_end(&mut bytes).map_err(unreadable(file))?;
    let array = NpyFile::new(bytes.as_slice()).map_err(unreadable(file))?;
    let shape = array.shape().iter().map(|&d| d as usize).collect();
    Ok((shape, read(array).map_err(unreadable(file))?))
}

/// Integers, or elements of Z_2^64 as those of smallest magnitude.
fn integers(array: NpyFile<&[u8]>) -> io::Result<Vec<i64>> {
    match array.try_data::<i64>() {
        Ok(signed) => signed.collect(),
        Err(array) => array.into_vec::<u64>().map(|all| all.into_iter().map(u64::cast_signed).collect()),
    }
}
