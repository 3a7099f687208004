//! Frozen encodings, `vectors/` at the root of the repository: whatever changes a byte on the wire fails here. Messages that
//! must be refused say with which error. With `SECSV_BLESS=1` the files are written anew.

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        fmt::Write as _,
        fs,
        path::{Path, PathBuf},
    };

    use secsv_federation::{
        Architecture, ClientId, ClientSpec, Coalition, FederationSpec, LayerSpec, ModelSpec, RoundId,
        RoundOverride,
    };
    use secsv_protocol::{
        Preset,
        decryptors::Protocol,
        hostile::{self, Sample},
        message::Kind,
        session::{Federation, Matmul, Settings},
    };

    fn file(folder: &str, name: &str) -> PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(folder);
        root.join(format!("{}.txt", name.replace(' ', "-")))
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    fn unhex(text: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(digit).collect()
    }

    /// Compares with the frozen text, or freezes it.
    fn frozen(path: &Path, text: &str) {
        if std::env::var_os("SECSV_BLESS").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let expected = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(text, expected, "{}", path.display());
    }

    /// The honest encoding, then every bad one: its fault, its bytes, the error that refuses it.
    fn text(sample: &Sample) -> String {
        let mut text = format!("good {}\n", hex(&sample.honest));
        for (fault, bytes) in &sample.bad {
            let refused = (sample.decode)(bytes).expect_err(&format!("{}: {fault}", sample.name));
            let _ = writeln!(text, "bad_{} {} {refused}", fault.replace(' ', "_"), hex(bytes));
        }
        text
    }

    #[test]
    fn messages_are_encoded_and_refused_as_frozen() {
        for sample in hostile::samples() {
            frozen(&file("messages", &sample.name), &text(&sample));
        }
    }

    #[test]
    fn frozen_messages_are_decoded_and_bad_ones_refused_by_name() {
        for sample in hostile::samples() {
            let frozen = fs::read_to_string(file("messages", &sample.name)).unwrap();
            for line in frozen.lines() {
                let (name, rest) = line.split_once(' ').unwrap();
                let (bytes, error) = rest.split_once(' ').unwrap_or((rest, ""));
                let decoded = (sample.decode)(&unhex(bytes));
                match name {
                    "good" => assert_eq!(decoded.unwrap(), unhex(bytes), "{}", sample.name),
                    _ => assert_eq!(decoded.unwrap_err().to_string(), error, "{}: {name}", sample.name),
                }
            }
        }
    }

    #[test]
    fn every_kind_has_a_vector_and_every_vector_a_kind() {
        let samples = hostile::samples();
        let kinds: BTreeSet<Kind> = samples.iter().map(|sample| sample.kind).collect();
        let missing: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !kinds.contains(kind)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let names: BTreeSet<PathBuf> = samples.iter().map(|sample| file("messages", &sample.name)).collect();
        assert_eq!(names.len(), samples.len());
        let folder = names.first().unwrap().parent().unwrap();
        let there: BTreeSet<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(there, names);
        // Content of any length can only be refused by what it is decoded to.
        let unrefused: BTreeSet<Kind> =
            samples.iter().filter(|sample| sample.bad.is_empty()).map(|sample| sample.kind).collect();
        let free = [Kind::ServerKeys, Kind::DataShare, Kind::Values, Kind::PublicKey];
        assert_eq!(unrefused, free.into_iter().collect());
    }

    fn federation(model: &ModelSpec, shapes: &[(&str, &[usize])], settings: Settings) -> Federation {
        let client = |i: u64| ClientSpec {
            rounds: if i == 1 { vec![RoundOverride { round: RoundId(2), weight: 7.0 }] } else { vec![] },
            ..ClientSpec::new(ClientId::new(format!("site-{i}")).unwrap(), (10 + i) as f64)
        };
        let clients = (0..4).map(client).collect();
        let spec = FederationSpec::new("frozen".into(), 2, model.clone(), clients);
        let shapes: BTreeMap<_, _> =
            shapes.iter().map(|&(name, shape)| (name.to_owned(), shape.to_vec())).collect();
        let architecture = Architecture::new(model, &shapes, Path::new("a"), Path::new("a")).unwrap();
        let present =
            |round: RoundId| if round == RoundId(1) { Coalition::first(4) } else { Coalition::first(3) };
        Federation::new(&spec, &architecture, present, settings).unwrap()
    }

    #[test]
    fn the_digests_of_two_sessions_are_frozen() {
        let linear = |name: &str, bias: Option<&str>| LayerSpec::Linear {
            weight: name.to_owned(),
            bias: bias.map(str::to_owned),
        };
        let layers = vec![linear("a", Some("b")), LayerSpec::Relu {}, linear("c", None)];
        let deep = ModelSpec::new(vec![3], 2, layers);
        let shapes: [(&str, &[usize]); 3] = [("a", &[4, 3]), ("b", &[4]), ("c", &[2, 4])];
        let settings = Settings {
            protocol: Protocol::SecSv,
            preset: Preset::Compact,
            matmul: Matmul::Packed,
            always_skips: false,
            whole_rounds: true,
            hidden: Default::default(),
            by_class: false,
        };
        let secsv = federation(&deep, &shapes, settings);
        frozen(&file("session", "secsv two layers"), &format!("digest {}\n", hex(&secsv.digest())));
        let flat = ModelSpec { layers: vec![linear("a", None).into()], ..deep };
        let settings = Settings {
            protocol: Protocol::Hesv,
            preset: Preset::Standard,
            matmul: Matmul::Squaring,
            always_skips: true,
            whole_rounds: false,
            hidden: Default::default(),
            by_class: false,
        };
        let hesv = federation(&flat, &[("a", &[2, 3])], settings).with_identities(vec![[7; 32]; 4], &[9; 32]);
        frozen(&file("session", "hesv known parties"), &format!("digest {}\n", hex(&hesv.unwrap().digest())));
        assert_ne!(hex(&secsv.digest()), "");
    }
}
