//! A small run directory, written byte by byte.

use std::{
    fs,
    path::{Path, PathBuf},
};

use secsv_federation::{Error, RunDirectory};

/// Three features, two classes, one linear layer.
pub const MODEL: &str = "input = [3]\nclasses = 2\n[[model.layers]]\nkind = \"linear\"\nweight = \"fc.weight\"\nbias = \"fc.bias\"\n";

/// An array of a safetensors file.
#[derive(Clone)]
pub struct Array {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Array {
    pub fn new(name: &str, dtype: &str, shape: &[usize], bytes: Vec<u8>) -> Self {
        Self { name: name.into(), dtype: dtype.into(), shape: shape.to_vec(), bytes }
    }

    pub fn singles(name: &str, shape: &[usize], values: &[f32]) -> Self {
        Self::new(name, "F32", shape, f32s(values))
    }
}

pub fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub fn f64s(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub fn i64s(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// A model of [`MODEL`].
pub fn linear(scale: f32) -> Vec<Array> {
    vec![Array::singles("fc.weight", &[2, 3], &[scale; 6]), Array::singles("fc.bias", &[2], &[scale, -scale])]
}

fn safetensors(arrays: &[Array]) -> Vec<u8> {
    let (mut entries, mut data) = (Vec::new(), Vec::<u8>::new());
    for Array { name, dtype, shape, bytes } in arrays {
        let begin = data.len();
        data.extend(bytes);
        let end = data.len();
        entries.push(format!(
            "\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{begin},{end}]}}"
        ));
    }
    let header = format!("{{{}}}", entries.join(","));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

/// A run directory of clients a, b and c with training sizes 1, 2 and 1 and two rounds, whose local models are `linear(1)`,
/// `linear(2)` and `linear(3)`.
pub struct Files(tempfile::TempDir);

impl Files {
    /// With this `[model]` table.
    pub fn new(model: &str) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        let mut text = format!("name = \"three\"\nrounds = 2\n[model]\n{model}");
        for (client, size) in [("a", 1), ("b", 2), ("c", 1)] {
            text += &format!("[[clients]]\nid = \"{client}\"\ntrain_size = {size}\n");
        }
        fs::write(files.path().join("federation.toml"), text).unwrap();
        files.all_models(linear);
        for client in ["a", "b", "c"] {
            let x = Array::singles("x", &[1, 3], &[0.5; 3]);
            files.test_set(client, &[x, Array::new("y", "I64", &[1], i64s(&[1]))]);
        }
        files
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes the initial model of scale 0 and the local ones of scale 1, 2 and 3.
    pub fn all_models(&self, model: impl Fn(f32) -> Vec<Array>) {
        self.model("initial", &model(0.0));
        for (client, scale) in [("a", 1.0), ("b", 2.0), ("c", 3.0)] {
            for round in 1..=2 {
                self.model(&format!("clients/{client}/round-{round:04}"), &model(scale));
            }
        }
    }

    pub fn model(&self, name: &str, arrays: &[Array]) {
        self.file(&format!("{name}.safetensors"), &safetensors(arrays));
    }

    pub fn test_set(&self, client: &str, arrays: &[Array]) {
        self.file(&format!("clients/{client}/test.safetensors"), &safetensors(arrays));
    }

    pub fn file(&self, name: &str, bytes: &[u8]) {
        let file: PathBuf = self.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }

    /// Changes the text of `federation.toml` in one place.
    pub fn replace(&self, from: &str, to: &str) {
        let file = self.path().join("federation.toml");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{from:?} is not in {text}");
        fs::write(file, text.replacen(from, to, 1)).unwrap();
    }

    pub fn check(&self) -> Result<RunDirectory, Error> {
        let run = RunDirectory::open(self.path())?;
        run.check()?;
        Ok(run)
    }

    /// It is refused in these words.
    pub fn says(&self, words: &[&str]) {
        let refusal = self.check().expect_err(&format!("expected {words:?}"));
        assert!(refusal.is_bad_input(), "{refusal}");
        let text = refusal.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "expected {words:?} in {text}");
    }
}
