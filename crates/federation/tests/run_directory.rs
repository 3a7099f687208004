//! Run directories as they are written, read back, and refused with the file, the field, what was expected
//! and what was found.

use std::{
    error::Error as StdError,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use secsv_federation::{
    ClientId, ClientSpec, CollectiveTestSet, Error, FederationSpec, LayerSpec, ModelSpec, RoundId,
    RoundOverride, RunDirectory, RunWriter, Tensor, TestSet, WeightedMean, Weights,
};

type Outcome<T> = Result<T, Box<dyn StdError>>;

fn spec() -> Outcome<FederationSpec> {
    let layers = vec![
        LayerSpec::Linear { weight: "fc.weight".into(), bias: Some("fc.bias".into()) },
        LayerSpec::Sigmoid {},
    ];
    let mut clients = Vec::new();
    for (id, weight) in [("north", 10.0), ("south", 30.0), ("east", 5.0), ("west", 15.0)] {
        clients.push(ClientSpec::new(ClientId::new(id)?, weight));
    }
    clients[1].rounds.push(RoundOverride { round: RoundId(2), weight: 60.0 });
    let model = ModelSpec::new(vec![3], 2, layers);
    Ok(FederationSpec::new("four".into(), 2, model, clients))
}

fn model(scale: f32) -> Outcome<Weights> {
    let weight = Tensor::new(vec![2, 3], [1.0, -2.0, 3.0, 0.5, 0.25, -1.0].map(|v| v * scale).to_vec())?;
    let bias = Tensor::new(vec![2], vec![scale, -scale])?;
    Ok(Weights::from_iter([("fc.weight".to_owned(), weight), ("fc.bias".to_owned(), bias)]))
}

/// A federation in which `east` misses round 2, written to a new directory.
fn written(parent: &Path) -> Outcome<PathBuf> {
    let (path, spec) = (parent.join("run"), spec()?);
    let writer = RunWriter::create(&path, &spec)?;
    writer.initial_model(&model(0.1)?)?;
    for (index, client) in spec.clients.iter().enumerate() {
        let features = (0..6).map(|v| v as f32 - index as f32).collect();
        writer.test_set(&client.id, &TestSet::new(vec![3], features, vec![0, 1])?)?;
    }
    for round in spec.round_ids() {
        let mut mean = WeightedMean::new();
        for (index, client) in spec.clients.iter().enumerate() {
            if client.id.as_str() == "east" && round == RoundId(2) {
                continue;
            }
            let local = model(index as f32 + round.0 as f32)?;
            mean.add(&local, client.weight_in(round));
            writer.local_model(&client.id, round, &local)?;
        }
        writer.global_model(round, &mean.finish_single().ok_or("no weight")?)?;
    }
    writer.finish()?;
    Ok(path)
}

fn check(path: &Path) -> Result<(), Error> {
    RunDirectory::open(path)?.check()
}

/// Damages a fresh run and gives the complaint about it.
fn complaint(damage: impl Fn(&Path) -> Outcome<()>) -> Outcome<String> {
    let parent = tempfile::tempdir()?;
    let path = written(parent.path())?;
    damage(&path)?;
    match check(&path) {
        Ok(()) => Err("the damage went unnoticed".into()),
        Err(error) if !error.is_bad_input() => Err(format!("not called bad input: {error}").into()),
        Err(error) => Ok(error.to_string()),
    }
}

fn replace_in_spec(path: &Path, from: &str, to: &str) -> Outcome<()> {
    let file = path.join("federation.toml");
    let text = fs::read_to_string(&file)?;
    assert!(text.contains(from), "{from:?} is not in {text}");
    Ok(fs::write(file, text.replacen(from, to, 1))?)
}

/// A safetensors file with one tensor after the other.
fn raw_safetensors(tensors: &[(&str, &str, &str, Vec<u8>)]) -> Vec<u8> {
    let (mut header, mut data) = (String::from("{"), Vec::<u8>::new());
    for (name, dtype, shape, bytes) in tensors {
        let begin = data.len();
        data.extend(bytes);
        let comma = if begin == 0 && header.len() == 1 { "" } else { "," };
        let end = data.len();
        header += &format!(
            "{comma}\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{begin},{end}]}}"
        );
    }
    header.push('}');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn i64s(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn local_model(weight: (&str, Vec<u8>), extra: &[(&str, &str, &str, Vec<u8>)]) -> Vec<u8> {
    let mut tensors = vec![("fc.weight", "F32", weight.0, weight.1)];
    tensors.push(("fc.bias", "F32", "[2]", f32s(&[0.0, 0.0])));
    tensors.extend(extra.iter().cloned());
    raw_safetensors(&tensors)
}

#[test]
fn a_written_run_directory_is_read_back() {
    let parent = tempfile::tempdir().unwrap();
    let path = written(parent.path()).unwrap();
    let run = RunDirectory::open(&path).unwrap();
    run.check().unwrap();
    assert_eq!(run.spec(), &spec().unwrap());
    assert_eq!(run.initial_model().unwrap(), model(0.1).unwrap());
    let east = ClientId::new("east").unwrap();
    assert_eq!(run.local_model(&east, RoundId(1)).unwrap(), model(3.0).unwrap());
    assert!(!run.took_part(&east, RoundId(2)));
    assert_eq!(run.participants(RoundId(2)).members().collect::<Vec<_>>(), [0, 1, 3]);
    assert_eq!(run.spec().clients[1].weight_in(RoundId(2)), 60.0);
    let collective = CollectiveTestSet::read(&run).unwrap();
    assert_eq!((collective.len(), collective.sizes()), (8, &[2, 2, 2, 2][..]));
    assert_eq!(collective.sample(3), [2.0, 3.0, 4.0]);
    // Nothing half-finished lies around, and the same again is refused.
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
    assert!(RunWriter::create(&path, &spec().unwrap()).is_err());
}

#[test]
fn an_unfinished_or_defective_run_leaves_nothing_behind() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("run");
    let writer = RunWriter::create(&path, &spec().unwrap()).unwrap();
    writer.initial_model(&model(1.0).unwrap()).unwrap();
    assert!(writer.finish().is_err(), "no test sets, no local models");
    drop(RunWriter::create(&path, &spec().unwrap()).unwrap());
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    let mut one = spec().unwrap();
    one.clients.clear();
    assert!(RunWriter::create(&path, &one).is_err());
}

#[test]
fn a_silo_opens_its_own_part() {
    let parent = tempfile::tempdir().unwrap();
    let path = written(parent.path()).unwrap();
    for other in ["south", "east", "west"] {
        fs::remove_dir_all(path.join("clients").join(other)).unwrap();
    }
    let run = RunDirectory::open(&path).unwrap();
    let north = ClientId::new("north").unwrap();
    assert_eq!(run.test_set(&north).unwrap().len(), 2);
    assert!(run.local_model(&north, RoundId(2)).is_ok());
    assert!(run.global_model(RoundId(1)).is_ok());
    assert!(run.check().is_err(), "as a whole it is not complete");
}

#[test]
fn absent_aggregates_are_recomputed_and_empty_test_sets_allowed() {
    let parent = tempfile::tempdir().unwrap();
    let path = written(parent.path()).unwrap();
    fs::remove_dir_all(path.join("global")).unwrap();
    check(&path).unwrap();
    let empty = raw_safetensors(&[("x", "F32", "[0,3]", vec![]), ("y", "I64", "[0]", vec![])]);
    for client in ["north", "south", "east"] {
        fs::write(path.join("clients").join(client).join("test.safetensors"), &empty).unwrap();
    }
    check(&path).unwrap();
    let one = raw_safetensors(&[("x", "F32", "[1,3]", f32s(&[1.0; 3])), ("y", "I64", "[1]", i64s(&[1]))]);
    fs::write(path.join("clients/west/test.safetensors"), one).unwrap();
    check(&path).unwrap();
    fs::write(path.join("clients/west/test.safetensors"), &empty).unwrap();
    let complaint = check(&path).unwrap_err().to_string();
    assert!(complaint.contains("at least one test sample"), "{complaint}");
}

/// Where the complaint has to point, and what it has to say.
fn assert_says(found: Outcome<String>, words: &[&str]) {
    let found = found.unwrap_or_else(|error| format!("no complaint, but {error}"));
    for word in words {
        assert!(found.contains(word), "{word:?} is missing in: {found}");
    }
}

#[test]
fn defects_of_federation_toml_are_named() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("rounds = 2", "rounds = 2\nround = 2", &["federation.toml", "unknown field `round`", "expected"]),
        ("kind = \"sigmoid\"", "kind = \"sigmoid\"\nslope = 1", &["federation.toml", "slope"]),
        ("kind = \"sigmoid\"", "kind = \"swish\"", &["federation.toml", "unknown variant `swish`", "linear"]),
        ("bias = ", "offset = ", &["federation.toml", "unknown field `offset`"]),
        ("classes = 2\n", "", &["federation.toml", "missing field `classes`"]),
        ("classes = 2", "classes = \"two\"", &["federation.toml", "classes", "invalid type"]),
        ("classes = 2", "classes = 1", &["federation.toml: model.classes: expected 2 to", "found 1"]),
        ("classes = 2", "classes = 3", &["model.classes: expected shape [3]", "found [2]"]),
        (
            "input = [3]",
            "input = [4]",
            &["initial.safetensors: fc.weight: expected shape [outputs, 4], found [2, 3]"],
        ),
        ("input = [3]", "input = []", &["federation.toml: model.input: expected 1 to 8, found 0"]),
        ("input = [3]", "input = [0]", &["model.input", "found 0"]),
        ("rounds = 2", "rounds = 0", &["federation.toml: rounds: expected 1 to 9999, found 0"]),
        ("rounds = 2", "rounds = 1", &["clients.south.rounds: expected 1 to 1, found 2"]),
        ("rounds = 2", "rounds = 3", &["round-0003", "round 3", "found none"]),
        ("id = \"north\"", "id = \"south\"", &["clients[1].id", "expected every client once, found south"]),
        (
            "id = \"north\"",
            "id = \"principal\"",
            &["clients[0].id: expected an id that is not a server's, found principal"],
        ),
        ("id = \"north\"", "id = \"../north\"", &["federation.toml", "client id \"../north\""]),
        ("train_size = 10", "train_size = -1", &["federation.toml", "train_size", "-1"]),
        (
            "train_size = 10",
            "train_size = 0",
            &["clients.north.train_size: expected a weight above 0", "found 0"],
        ),
        (
            "train_size = 10",
            "train_size = 9000000000000000000",
            &["clients.north.train_size", "found 9000000000000000000"],
        ),
        ("fc.weight", "fc.w", &["initial.safetensors: fc.w: expected this tensor, found fc.bias, fc.weight"]),
        ("bias = \"fc.bias\"\n", "", &["initial.safetensors: fc.bias: expected only fc.weight"]),
        (
            "kind = \"linear\"",
            "kind = \"conv2d\"",
            &["model.layers[0]", "[channels, height, width]", "found [3]"],
        ),
    ];
    for (from, to, words) in cases {
        assert_says(complaint(|path| replace_in_spec(path, from, to)), words);
    }
}

#[test]
fn a_name_that_nobody_could_read_is_refused() {
    for name in ["", " ", "two\\nlines"] {
        let found = complaint(|path| {
            let file = path.join("federation.toml");
            let text = fs::read_to_string(&file)?;
            let rest = text.split_once('\n').ok_or("a line")?.1;
            Ok(fs::write(file, format!("name = \"{name}\"\n{rest}"))?)
        });
        assert_says(found, &["federation.toml: name: expected one line of 1 to 200 characters, found"]);
    }
}

/// Whoever opened a pipe for reading would wait for ever.
#[cfg(unix)]
#[test]
fn a_pipe_is_no_file() {
    for file in ["federation.toml", "clients/east/test.safetensors", "clients/east/round-0001.safetensors"] {
        let found = complaint(|path| {
            fs::remove_file(path.join(file))?;
            let made = std::process::Command::new("mkfifo").arg(path.join(file)).status()?;
            assert!(made.success());
            Ok(())
        });
        assert_says(found, &[file, "expected a file, found a pipe"]);
    }
}

#[test]
fn a_federation_without_clients_is_refused() {
    let found = complaint(|path| {
        let file = path.join("federation.toml");
        let text = fs::read_to_string(&file)?;
        let (first, _) = text.match_indices("[[clients]]").next().ok_or("no clients")?;
        let text = format!("clients = []\n{}", &text[..first]);
        fs::write(file, text)?;
        Ok(())
    });
    assert_says(found, &["federation.toml: clients: expected 1 to 128, found 0"]);
}

#[test]
fn defects_of_models_are_named() {
    let file = "clients/south/round-0002.safetensors";
    let six = f32s(&[0.0; 6]);
    let mut not_finite = [0.0f32; 6];
    not_finite[4] = f32::NAN;
    let mut infinite = [0.0f32; 6];
    infinite[1] = f32::INFINITY;
    let missing = raw_safetensors(&[("fc.bias", "F32", "[2]", f32s(&[0.0, 0.0]))]);
    let extra = ("fc.scale", "F32", "[1]", f32s(&[1.0]));
    let integers = raw_safetensors(&[
        ("fc.weight", "I16", "[2,3]", vec![0; 12]),
        ("fc.bias", "F32", "[2]", f32s(&[0.0, 0.0])),
    ]);
    let cases: Vec<(Vec<u8>, &[&str])> = vec![
        (missing, &["fc.weight: expected this tensor, found fc.bias"]),
        (local_model(("[2,3]", six.clone()), &[extra]), &["fc.scale: expected only fc.bias, fc.weight"]),
        (local_model(("[3,2]", six.clone()), &[]), &["fc.weight: expected shape [2, 3], found [3, 2]"]),
        (
            local_model(("[2,3]", f32s(&not_finite)), &[]),
            &["fc.weight: expected finite numbers, found NaN at position 4"],
        ),
        (local_model(("[2,3]", f32s(&infinite)), &[]), &["fc.weight", "found inf at position 1"]),
        (integers, &["fc.weight: expected elements of type F32, F64, F16 or BF16, found I16"]),
        (local_model(("[2,3]", vec![0; 20]), &[]), &["expected a safetensors file"]),
        (b"short".to_vec(), &["header: expected a safetensors file, found one with 5 bytes"]),
        (vec![0xff; 64], &["header", "18446744073709551615"]),
        (
            local_model(("[4611686018427387904,4611686018427387904]", six.clone()), &[]),
            &["expected a safetensors file"],
        ),
        (local_model(("[2,3]", six.clone()), &[])[..60].to_vec(), &["header"]),
    ];
    for (bytes, words) in cases {
        let found = complaint(|path| Ok(fs::write(path.join(file), &bytes)?));
        assert_says(found, &[&[file], words].concat());
    }
}

#[test]
fn sizes_that_overflow_are_refused() {
    // Offsets near the end of the address space, one tensor after the other.
    let huge = 1u64 << 60;
    let mut header = String::from("{");
    for index in 0..15u64 {
        let (begin, end) = (index * huge, (index + 1) * huge);
        let comma = if index == 0 { "" } else { "," };
        header += &format!(
            "{comma}\"t{index}\":{{\"dtype\":\"U8\",\"shape\":[{huge}],\"data_offsets\":[{begin},{end}]}}"
        );
    }
    header.push('}');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    let found = complaint(|path| Ok(fs::write(path.join("initial.safetensors"), &file)?));
    assert_says(found, &["initial.safetensors: header", "0 bytes of data where the header says"]);
}

#[test]
fn defects_of_test_sets_are_named() {
    let file = "clients/east/test.safetensors";
    let x = || ("x", "F32", "[2,3]", f32s(&[0.5; 6]));
    let y = |labels: &[i64]| ("y", "I64", "[2]", i64s(labels));
    let cases: Vec<(Vec<u8>, &[&str])> = vec![
        (raw_safetensors(&[x(), y(&[0, 2])]), &["y: expected labels in 0..2, found 2 at position 1"]),
        (raw_safetensors(&[x(), y(&[-1, 0])]), &["y: expected labels in 0..2, found -1 at position 0"]),
        (raw_safetensors(&[x()]), &["y: expected this tensor, found x"]),
        (raw_safetensors(&[x(), y(&[0, 0]), ("z", "F32", "[1]", f32s(&[0.0]))]), &["z: expected only x, y"]),
        (raw_safetensors(&[x(), ("y", "I64", "[3]", i64s(&[0; 3]))]), &["y: expected shape [2], found [3]"]),
        (
            raw_safetensors(&[("x", "F32", "[3,2]", f32s(&[0.5; 6])), ("y", "I64", "[3]", i64s(&[0; 3]))]),
            &["x: expected shape [m, 3], found [3, 2]"],
        ),
        (
            raw_safetensors(&[x(), ("y", "F32", "[2]", f32s(&[0.5, 0.0]))]),
            &["y: expected whole numbers as labels, found 0.5 at position 0"],
        ),
        (
            raw_safetensors(&[("x", "F32", "[2,3]", f32s(&[f32::NAN; 6])), y(&[0, 0])]),
            &["x: expected finite"],
        ),
    ];
    for (bytes, words) in cases {
        let found = complaint(|path| Ok(fs::write(path.join(file), &bytes)?));
        assert_says(found, &[&[file], words].concat());
    }
    let found = complaint(|path| Ok(fs::remove_file(path.join(file))?));
    assert_says(found, &[file, "expected this file, found none"]);
}

#[test]
fn files_that_federation_toml_does_not_name_are_refused() {
    let stranger = complaint(|path| Ok(fs::create_dir(path.join("clients/nobody"))?));
    assert_says(stranger, &["clients: clients: expected only what federation.toml names, found nobody"]);
    let round = complaint(|path| {
        Ok(fs::rename(
            path.join("clients/north/round-0002.safetensors"),
            path.join("clients/north/round-2.safetensors"),
        )?)
    });
    assert_says(round, &["clients/north", "found round-2.safetensors"]);
    let beyond = complaint(|path| {
        fs::copy(path.join("global/round-0002.safetensors"), path.join("global/round-0003.safetensors"))?;
        Ok(())
    });
    assert_says(beyond, &["global", "found round-0003.safetensors"]);
}

#[test]
fn a_global_model_has_to_be_the_mean() {
    let off = complaint(|path| {
        let other = raw_safetensors(&[
            ("fc.bias", "F32", "[2]", f32s(&[2.5, -2.5])),
            ("fc.weight", "F32", "[2,3]", f32s(&[2.5, -5.0, 7.5, 1.25, 0.625, -2.4])),
        ]);
        Ok(fs::write(path.join("global/round-0001.safetensors"), other)?)
    });
    assert_says(off, &["global/round-0001.safetensors", "expected the weighted mean", "to 1e-4"]);
    let lost = complaint(|path| Ok(fs::remove_file(path.join("clients/north/round-0001.safetensors"))?));
    assert_says(lost, &["expected the weighted mean", "no model of this round from north: lost, or"]);
    let gap = complaint(|path| Ok(fs::remove_file(path.join("global/round-0001.safetensors"))?));
    assert_says(gap, &["global/round-0001.safetensors: file: expected this file, found none"]);
    let missing = complaint(|path| Ok(fs::remove_file(path.join("initial.safetensors"))?));
    assert_says(missing, &["initial.safetensors: file: expected this file, found none"]);
}

/// Arrays of an archive by name.
type Arrays = Vec<(&'static str, Vec<u8>)>;

/// An array as NumPy writes it.
fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn npz(path: &Path, arrays: &[(&str, Vec<u8>)]) -> Outcome<()> {
    let mut archive = zip::ZipWriter::new(fs::File::create(path)?);
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    for (name, bytes) in arrays {
        archive.start_file(format!("{name}.npy"), options)?;
        archive.write_all(bytes)?;
    }
    archive.finish()?;
    Ok(())
}

fn with_npz(arrays: &[(&str, Vec<u8>)]) -> impl Fn(&Path) -> Outcome<()> {
    move |path| {
        let client = path.join("clients/east");
        fs::remove_file(client.join("test.safetensors"))?;
        npz(&client.join("test.npz"), arrays)
    }
}

#[test]
fn test_sets_come_from_numpy_too() {
    let features = [0.5f32, 1.0, 1.5, 2.0, 2.5, 3.0];
    let columns = [0.5f64, 2.0, 1.0, 2.5, 1.5, 3.0];
    let doubles: Vec<u8> = columns.iter().flat_map(|v| v.to_le_bytes()).collect();
    let cases = [
        [
            ("x", npy("<f4", false, "(2, 3)", &f32s(&features))),
            ("y", npy("<i8", false, "(2,)", &i64s(&[1, 0]))),
        ],
        [("x", npy("<f8", true, "(2, 3)", &doubles)), ("y", npy("|u1", false, "(2,)", &[1, 0]))],
        [
            ("x", npy("<f8", true, "(2, 3)", &doubles)),
            ("y", npy(">i4", false, "(2,)", &[0, 0, 0, 1, 0, 0, 0, 0])),
        ],
    ];
    for arrays in cases {
        let parent = tempfile::tempdir().unwrap();
        let path = written(parent.path()).unwrap();
        with_npz(&arrays)(&path).unwrap();
        let run = RunDirectory::open(&path).unwrap();
        run.check().unwrap();
        let test_set = run.test_set(&ClientId::new("east").unwrap()).unwrap();
        assert_eq!((test_set.features(), test_set.labels()), (&features[..], &[1, 0][..]));
    }
}

#[test]
fn defects_of_numpy_archives_are_named() {
    let x = || ("x", npy("<f4", false, "(2, 3)", &f32s(&[0.5; 6])));
    let y = |labels: &[i64]| ("y", npy("<i8", false, "(2,)", &i64s(labels)));
    let nested = format!("{}1{}", "(".repeat(4000), ")".repeat(4000));
    let cases: Vec<(Arrays, &[&str])> = vec![
        (vec![x()], &["y: expected this tensor"]),
        (vec![x(), y(&[0, 1]), ("z", npy("<f4", false, "(1,)", &[0; 4]))], &["z: expected only x, y"]),
        (vec![x(), y(&[0, 5])], &["y: expected labels in 0..2, found 5 at position 1"]),
        (vec![x(), ("y", npy("<c8", false, "(2,)", &[0; 16]))], &["y: expected elements of type integers"]),
        (
            vec![("x", npy("<c8", false, "(2, 3)", &[0; 48])), y(&[0, 1])],
            &["x: expected elements of type f4, f8 or integers"],
        ),
        (
            vec![("x", npy("<f4", false, "(3, 2)", &[0; 24])), y(&[0, 1])],
            &["y: expected shape [3], found [2]"],
        ),
        (
            vec![("x", npy("<f4", false, "(2, 3)", &[0; 20])), y(&[0, 1])],
            &["x", "20 bytes of data where the header says 24"],
        ),
        (
            vec![("x", npy("<f8", false, "(2, 3)", &f64::MAX.to_le_bytes().repeat(6))), y(&[0, 1])],
            &["x: expected finite"],
        ),
        (
            vec![("x", npy("<f4", false, "(9999999999, 9999999999)", &[])), y(&[0, 1])],
            &["x", "beyond 64 bits"],
        ),
        (
            vec![("x", npy("<f4", false, "(99999999, 99999999999)", &[])), y(&[0, 1])],
            &["x: expected a size that fits"],
        ),
        (vec![("x", npy("<f4", false, &nested, &[])), y(&[0, 1])], &["x", "nested"]),
        (vec![("x", b"nonsense and more".to_vec()), y(&[0, 1])], &["x", "no NumPy array"]),
    ];
    for (arrays, words) in cases {
        assert_says(complaint(with_npz(&arrays)), &[&["clients/east/test.npz"], words].concat());
    }
    let both = complaint(|path| npz(&path.join("clients/east/test.npz"), &[x(), y(&[0, 1])]));
    assert_says(both, &["clients/east: test: expected one of test.safetensors and test.npz, found both"]);
    let no_archive = complaint(|path| {
        fs::remove_file(path.join("clients/east/test.safetensors"))?;
        Ok(fs::write(path.join("clients/east/test.npz"), b"PK but no more")?)
    });
    assert_says(no_archive, &["test.npz: archive: expected a .npz archive"]);
}

/// Every file of a run, with its bytes.
fn files(directory: &Path) -> Outcome<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}

#[test]
fn damaged_bytes_never_panic() {
    use rand::{Rng, SeedableRng};
    let mut rng = rand_chacha::ChaCha20Rng::seed_from_u64(7);
    let parent = tempfile::tempdir().unwrap();
    let path = written(parent.path()).unwrap();
    npz(
        &path.join("clients/east/test.npz"),
        &[
            ("x", npy("<f4", false, "(2, 3)", &f32s(&[0.5; 6]))),
            ("y", npy("<i8", false, "(2,)", &i64s(&[0, 1]))),
        ],
    )
    .unwrap();
    fs::remove_file(path.join("clients/east/test.safetensors")).unwrap();
    check(&path).unwrap();
    let mut refused = 0;
    for file in files(&path).unwrap() {
        let bytes = fs::read(&file).unwrap();
        for _ in 0..60 {
            let mut damaged = bytes.clone();
            for _ in 0..rng.random_range(1..4) {
                let place = rng.random_range(0..damaged.len());
                damaged[place] = rng.random();
            }
            damaged.truncate(rng.random_range(damaged.len() / 2..=damaged.len()));
            fs::write(&file, &damaged).unwrap();
            refused += usize::from(check(&path).is_err());
        }
        fs::write(&file, bytes).unwrap();
    }
    check(&path).unwrap();
    assert!(refused > 300, "only {refused} damaged runs were refused");
}
