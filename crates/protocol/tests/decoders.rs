//! Every decoder against hostile bytes: a typed error or an object that encodes to the same bytes, no panic, no
//! allocation beyond what an honest object takes.
//!
//! Each target runs as a plain test for a bounded time and count, and under a coverage-guided fuzzer with
//! `cargo bolero test`.

#[cfg(test)]
mod tests {
    use std::{
        path::Path,
        sync::{Arc, Mutex},
        time::Duration,
    };

    use bolero::TypeGenerator;
    use peak_alloc::PeakAlloc;
    use secsv_federation::{
        Architecture, ClientId, ClientSpec, Coalition, FederationSpec, LayerSpec, ModelSpec, Tensor, Weights,
    };
    use secsv_protocol::{
        Preset,
        decryptors::Protocol,
        hostile,
        message::ClientHello,
        precision::Ranges,
        session::{Federation, Matmul, Session, Settings, typical_costs},
    };

    #[global_allocator]
    static MEMORY: PeakAlloc = PeakAlloc;
    /// Peaks are of the whole process: one target at a time.
    static ALONE: Mutex<()> = Mutex::new(());

    /// What happens to an honest encoding on its way.
    #[derive(Debug, TypeGenerator)]
    enum Damage {
        Flip { at: u32, bit: u8 },
        Truncate { to: u32 },
        Extend { by: u16 },
        Overwrite { at: u32, with: Vec<u8> },
        Replace { with: Vec<u8> },
    }

    impl Damage {
        fn apply(&self, honest: &[u8]) -> Vec<u8> {
            let mut bytes = honest.to_vec();
            let place = |at: u32| at as usize % honest.len();
            match self {
                Self::Flip { at, bit } => bytes[place(*at)] ^= 1 << (bit % 8),
                Self::Truncate { to } => bytes.truncate(place(*to)),
                Self::Extend { by } => bytes.extend(std::iter::repeat_n(0, usize::from(*by) + 1)),
                Self::Overwrite { at, with } => {
                    bytes[place(*at)..].iter_mut().zip(with).for_each(|(b, w)| *b = *w);
                }
                Self::Replace { with } => bytes.clone_from(with),
            }
            bytes
        }
    }

    /// Decodes damaged bytes; `decode` returns what the decoded object encodes to. `bound` is in bytes, beside a few
    /// times the input.
    fn attack<E: std::fmt::Debug>(
        honest: &[u8],
        bound: usize,
        decode: impl Fn(&[u8]) -> Result<Vec<u8>, E> + std::panic::RefUnwindSafe,
    ) {
        let alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        assert_eq!(decode(honest).unwrap(), honest, "an honest encoding survives");
        let honest = honest.to_vec();
        bolero::check!()
            .with_type::<Damage>()
            .with_test_time(Duration::from_millis(500))
            .with_iterations(2000)
            .for_each(|damage| {
                let bytes = damage.apply(&honest);
                let before = MEMORY.current_usage();
                MEMORY.reset_peak_usage();
                let decoded = decode(&bytes);
                let taken = MEMORY.peak_usage().saturating_sub(before);
                assert!(
                    taken <= 16 * bytes.len() + bound,
                    "{taken} bytes taken for {} bytes of input",
                    bytes.len()
                );
                if let Ok(encoded) = decoded {
                    assert_eq!(encoded, bytes, "what is accepted is canonical");
                }
            });
        drop(alone);
    }

    /// Room for what the harness itself takes meanwhile.
    const SMALL: usize = 64 << 10;

    /// A target for every kind of message, by the reader that its receiver reads it with.
    #[test]
    fn messages() {
        for sample in hostile::samples() {
            println!("{}", sample.name);
            attack(&sample.honest, SMALL, sample.decode);
        }
    }

    #[test]
    fn sample_set() {
        let honest = [&21u64.to_le_bytes()[..], &[0b1010_0001, 0xff, 0b0001_1111]].concat();
        attack(&honest, SMALL, hostile::sample_set);
    }

    #[test]
    fn elements() {
        attack(&[0; 47], SMALL, hostile::field_elements);
        attack(&[0; 72], SMALL, hostile::words);
    }

    #[test]
    fn envelope() {
        attack(&hostile::honest_envelope().unwrap(), SMALL, hostile::envelope);
    }

    fn federation(protocol: Protocol) -> Arc<Federation> {
        let linear = |name: &str| LayerSpec::Linear { weight: name.to_owned(), bias: None };
        let layers = vec![linear("a"), LayerSpec::Relu {}, linear("b")];
        let client = |i: usize| ClientSpec::new(ClientId::new(format!("c{i}")).unwrap(), 3.0);
        let model = ModelSpec::new(vec![3], 2, layers);
        let spec = FederationSpec::new("x".into(), 1, model, (0..4).map(client).collect());
        let mut weights = Weights::new();
        weights.insert("a", Tensor::new(vec![4, 3], vec![0.0; 12]).unwrap());
        weights.insert("b", Tensor::new(vec![2, 4], vec![0.0; 8]).unwrap());
        let file = Path::new("x");
        let architecture = Architecture::new(&spec.model, &weights.shapes(), file, file).unwrap();
        let settings = Settings {
            protocol,
            preset: Preset::Compact,
            matmul: Matmul::Packed,
            always_skips: false,
            whole_rounds: false,
            hidden: Default::default(),
            by_class: false,
        };
        Arc::new(Federation::new(&spec, &architecture, |_| Coalition::first(4), settings).unwrap())
    }

    #[test]
    fn session() {
        for protocol in [Protocol::SecSv, Protocol::SecretSv] {
            let federation = federation(protocol);
            let ranges = Ranges { norms: vec![1, 2], inputs: vec![0, 1], outputs: vec![2, 3] };
            let hello = |samples| ClientHello {
                samples,
                ranges: ranges.clone(),
                public_key: vec![5; 32],
                accepts_few: false,
                agreement: Default::default(),
            };
            let hellos: Vec<ClientHello> = [4, 0, 1, 9].map(hello).to_vec();
            let costs = typical_costs(Preset::Compact);
            let honest = {
                // Tables of several megabytes: not while another test counts bytes.
                let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                Session::propose(&federation, 2, &hellos, Some(&costs)).unwrap().1
            };
            let federation = std::panic::AssertUnwindSafe(&federation);
            // What follows is checked against the encryption's tables, which take a few megabytes.
            attack(&honest, 64 << 20, move |bytes| hostile::session(*federation, bytes));
        }
    }
}
