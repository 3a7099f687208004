//! Views as files: JSON, and archives of arrays that NumPy reads. Their owner alone can.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufWriter, Seek, Write},
    path::{Path, PathBuf},
};

use npyz::{AutoSerialize, WriterBuilder as _};
use secsv_protocol::views::Numbers;
use serde::Serialize;
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use super::{KnownArray, KnownValues, PartyView, Views, ViewsError, party_index::PartyIndex};

/// Refuses a directory with something in it.
pub fn check_target(directory: &Path) -> Result<(), ViewsError> {
    let failed = |source| ViewsError::Writing { file: directory.to_owned(), source };
    match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(ViewsError::NotEmpty { directory: directory.to_owned() }),
        },
    }
}

pub(super) fn write(views: &Views, directory: &Path) -> Result<(), ViewsError> {
    check_target(directory)?;
    make_directory(directory)?;
    write_json(&directory.join("index.json"), &views.index)?;
    views.parties().try_for_each(|party| write_party(views, party, &directory.join(&party.directory)))
}

fn write_party(views: &Views, party: &PartyView, directory: &Path) -> Result<(), ViewsError> {
    make_directory(directory)?;
    let mut files: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut names = Vec::with_capacity(party.view.arrays.len());
    for (number, array) in party.view.arrays.iter().enumerate() {
        let of_file = files.entry(&array.file).or_default();
        names.push(format!("{:06}", of_file.len()));
        of_file.push(number);
    }
    for (file, numbers) in files {
        let mut archive = Archive::create(directory.join(format!("{file}.npz")))?;
        for number in numbers {
            let array = &party.view.arrays[number];
            let shape = [array.shape.0 as u64, array.shape.1 as u64];
            match array.numbers.expose() {
                Numbers::Signed(numbers) => archive.array(&names[number], &shape, numbers),
                Numbers::Ring(numbers) => archive.array(&names[number], &shape, numbers),
                Numbers::Bytes(numbers) => archive.array(&names[number], &shape, numbers),
                Numbers::Words(numbers) => archive.array(&names[number], &shape, numbers),
            }?;
        }
        archive.finish()?;
    }
    write_known(&party.known, directory)?;
    write_json(&directory.join("index.json"), &PartyIndex::new(party, &names, &views.names))
}

fn write_known(known: &[KnownArray], directory: &Path) -> Result<(), ViewsError> {
    if known.is_empty() {
        return Ok(());
    }
    let mut archive = Archive::create(directory.join("known.npz"))?;
    for KnownArray { name, shape, values } in known {
        let shape: Vec<u64> = shape.iter().map(|&size| size as u64).collect();
        match values {
            KnownValues::Singles(numbers) => archive.array(name, &shape, numbers),
            KnownValues::Labels(numbers) => archive.array(name, &shape, numbers),
        }?;
    }
    archive.finish()
}

/// An archive of arrays that is being written.
struct Archive {
    path: PathBuf,
    zip: ZipWriter<BufWriter<fs::File>>,
}

impl Archive {
    fn create(path: PathBuf) -> Result<Self, ViewsError> {
        let zip = ZipWriter::new(BufWriter::new(create(&path)?));
        Ok(Self { path, zip })
    }

    fn array<T: AutoSerialize + Copy>(
        &mut self,
        name: &str,
        shape: &[u64],
        numbers: &[T],
    ) -> Result<(), ViewsError> {
        write_array(&mut self.zip, name, shape, numbers)
            .map_err(|source| ViewsError::Writing { file: self.path.clone(), source })
    }

    fn finish(self) -> Result<(), ViewsError> {
        let written = self.zip.finish().map_err(io::Error::from).and_then(|mut file| file.flush());
        written.map_err(|source| ViewsError::Writing { file: self.path, source })
    }
}

fn write_array<W: Write + Seek, T: AutoSerialize + Copy>(
    zip: &mut ZipWriter<W>,
    name: &str,
    shape: &[u64],
    numbers: &[T],
) -> io::Result<()> {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .large_file(size_of_val(numbers) as u64 >= 1 << 31)
        .unix_permissions(0o600);
    zip.start_file(format!("{name}.npy"), options).map_err(io::Error::from)?;
    let mut writer = npyz::WriteOptions::new().default_dtype().shape(shape).writer(zip).begin_nd()?;
    writer.extend(numbers.iter().copied())?;
    writer.finish()
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), ViewsError> {
    let failed = |source| ViewsError::Writing { file: path.to_owned(), source };
    let mut file = BufWriter::new(create(path)?);
    serde_json::to_writer(&mut file, value).map_err(|error| failed(error.into()))?;
    file.flush().map_err(failed)
}

/// A file that was not there and that its owner alone can read.
fn create(path: &Path) -> Result<fs::File, ViewsError> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(|source| ViewsError::Writing { file: path.to_owned(), source })
}

fn make_directory(path: &Path) -> Result<(), ViewsError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|source| ViewsError::Writing { file: path.to_owned(), source })
}
