//! Views as `secsv evaluate --views` writes them (docs/VIEWS.md).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use npyz::NpyFile;
use secsv_algebra::FixedPoint;
use secsv_federation::{Architecture, ClientId, Coalition, ModelSpec, RoundId, Tensor, TestSet, Weights};
use secsv_protocol::{
    Program,
    precision::{OperatorFormat, Precision},
};
use serde::{Deserialize, de::DeserializeOwned};
use zip::ZipArchive;

use crate::view::{ClientView, DecryptedOutputs};

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
    model: ModelSpec,
    modulus: String,
    operators: Vec<OperatorListing>,
    gru: Option<GruListing>,
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
}

/// A views directory.
pub struct Directory {
    path: PathBuf,
    index: CommonListing,
}

/// The file of everything that a client decrypted, and the arrays in it.
const OUTPUTS: (&str, &str) = ("derived-outputs.npz", "outputs");
/// The file of what servers open to each other, less the own masks, and the outputs in it.
const MASKED_OUTPUTS: (&str, &str) = ("derived-masked-openings.npz", "masked outputs");
/// The file of what the other server sent for that.
const MASKED_OPENINGS: (&str, &str) = ("masked-opening.npz", "share");
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
        let outputs = self.outputs(&directory, OUTPUTS)?;
        let ClientKnowledge { own, local, global, .. } = known;
        Ok(ClientView { client, program, precision, sizes, local, global, own, outputs })
    }

    /// Outputs that a server could read: none, if docs/SECURITY.md is right.
    pub fn server(&self, party: &str) -> Result<Vec<DecryptedOutputs>, DirectoryError> {
        self.of_party(party, OUTPUTS)
    }

    /// Outputs as a server of BlindSV has them: under the other server's masks alone.
    pub fn masked_outputs(&self, party: &str) -> Result<Vec<DecryptedOutputs>, DirectoryError> {
        self.of_party(party, MASKED_OUTPUTS)
    }

    /// Outputs that both servers of BlindSV have together: they take off each other's masks.
    pub fn pooled_outputs(&self) -> Result<Vec<DecryptedOutputs>, DirectoryError> {
        let [mut found, others] = [self.masked_outputs("principal")?, self.masked_outputs("auxiliary")?];
        let mut sent = self.of_party("principal", MASKED_OPENINGS)?;
        sent.extend(self.of_party("auxiliary", MASKED_OPENINGS)?);
        let bits = self.index.modulus.parse().map_or(64, u128::trailing_zeros);
        let is_same = |a: &DecryptedOutputs, b: &DecryptedOutputs| {
            (a.round, a.coalition, a.owner, a.step) == (b.round, b.coalition, b.owner, b.step)
        };
        for outputs in &mut found {
            // Y + V_A and Y + V_P, less both parts of Y + V_P + V_A, is Y.
            let plus = others.iter().filter(|other| is_same(other, outputs)).map(|other| (1, other));
            let less = sent.iter().filter(|sent| is_same(sent, outputs)).map(|sent| (-1, sent));
            let terms: Vec<_> = plus.chain(less).collect();
            for (place, number) in outputs.numbers.iter_mut().enumerate() {
                let terms = terms.iter().map(|(sign, term)| term.numbers[place].wrapping_mul(*sign));
                let sum = terms.fold(*number, i64::wrapping_add);
                *number = (sum << (64 - bits)) >> (64 - bits);
            }
        }
        Ok(found)
    }

    fn of_party(&self, party: &str, arrays: (&str, &str)) -> Result<Vec<DecryptedOutputs>, DirectoryError> {
        let entry = self.index.parties.iter().find(|entry| entry.party == party);
        entry.map_or(Ok(Vec::new()), |entry| self.outputs(&self.path.join(&entry.directory), arrays))
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
        let mut found = BTreeMap::new();
        let Some(entry) = self.index.parties.iter().find(|entry| entry.party == party) else {
            return Ok(found);
        };
        let directory = self.path.join(&entry.directory);
        let index: ArrayListings = json(&directory.join("index.json"))?;
        for entry in index.arrays.iter().filter(|entry| entry.file == DATA_SHARES && entry.what == "share") {
            let file = directory.join(DATA_SHARES);
            let (_, numbers) = array(&mut open(&file)?, &entry.array, &file, integers)?;
            found.extend(entry.owner.as_ref().and_then(|id| self.position(id)).map(|owner| (owner, numbers)));
        }
        Ok(found)
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
        Program::new(&architecture).map_err(|e| wrong(e.to_string()))
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

    fn outputs(
        &self,
        directory: &Path,
        (name, what): (&str, &str),
    ) -> Result<Vec<DecryptedOutputs>, DirectoryError> {
        let index: ArrayListings = json(&directory.join("index.json"))?;
        let mut archive = None;
        let mut found = Vec::new();
        for entry in index.arrays.iter().filter(|entry| entry.file == name && entry.what == what) {
            if entry.operator.is_none() {
                continue;
            }
            let file = directory.join(name);
            let archive = match &mut archive {
                Some(archive) => archive,
                none => none.insert(open(&file)?),
            };
            let (_, numbers) = array(archive, &entry.array, &file, integers)?;
            found.extend(self.entry(entry, numbers));
        }
        Ok(found)
    }

    fn entry(&self, entry: &ArrayListing, numbers: Vec<i64>) -> Option<DecryptedOutputs> {
        let members: Option<Coalition> =
            entry.coalition.as_ref()?.iter().map(|id| self.position(id)).collect();
        Some(DecryptedOutputs {
            round: entry.round?,
            coalition: members?,
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
