//! Every decoder against hostile bytes: a typed error or an object that encodes to the same bytes, no panic,
//! no allocation beyond what an honest object takes.
//!
//! Each target runs as a plain test for a bounded time and count, and under a coverage-guided fuzzer with
//! `cargo bolero test`.

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, LazyLock, Mutex},
        time::Duration,
    };

    use bolero::TypeGenerator;
    use peak_alloc::PeakAlloc;
    use secsv_algebra::{Matrix, Prg, Seed};
    use secsv_he::{
        Ciphertext, EncryptedSlots, EvaluationKey, Flooding, Operations, Parameters, Preset, PublicKey,
        Reply, SecretKey, WireError,
        linear::{
            BlockShape, EncodedBatch, EncryptedBatch, EncryptedMatrix, LayerShape, Layout, MatrixMethod,
            multiply,
        },
    };

    #[global_allocator]
    static MEMORY: PeakAlloc = PeakAlloc;
    /// Peaks are of the whole process: one target at a time.
    static ALONE: Mutex<()> = Mutex::new(());

    /// A change to an honest encoding on its way.
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
            // Half of the flips and overwrites hit the head, where most of the checks are.
            let place =
                |at: u32| if at.is_multiple_of(2) { (at / 2) as usize % 16 } else { at as usize } % honest.len();
            match self {
                Self::Flip { at, bit } => bytes[place(*at)] ^= 1 << (bit % 8),
                Self::Truncate { to } => bytes.truncate(*to as usize % honest.len()),
                Self::Extend { by } => bytes.extend(std::iter::repeat_n(0, usize::from(*by) + 1)),
                Self::Overwrite { at, with } => {
                    bytes[place(*at)..].iter_mut().zip(with).for_each(|(b, w)| *b = *w);
                }
                Self::Replace { with } => bytes.clone_from(with),
            }
            bytes
        }
    }

    struct Honest {
        parameters: Arc<Parameters>,
        layout: Layout,
        matrix: Vec<u8>,
        batch: Vec<u8>,
        slots: Vec<u8>,
        ciphertext: Vec<u8>,
        reply: Vec<u8>,
        carried: usize,
        public: Vec<u8>,
        evaluation: Vec<u8>,
        secret: Vec<u8>,
    }

    static HONEST: LazyLock<Honest> = LazyLock::new(|| {
        let parameters = Parameters::preset(Preset::Compact).unwrap();
        let (mut rng, mut ops) = (Prg::new(&Seed::from_bytes([1; 32])), Operations::default());
        let key = SecretKey::generate(&parameters, &mut rng);
        let block = BlockShape { rows: 1, columns: 1, samples: parameters.degree() };
        let layout =
            Layout::new(&parameters, LayerShape { d_out: 1, d_in: 2 }, MatrixMethod::Packed(block)).unwrap();
        let a = Matrix::uniform(parameters.field(), 1, 2, &mut rng);
        let b = Matrix::uniform(parameters.field(), 2, 9, &mut rng);
        let encrypted = layout.encrypt(&key, &a, &mut rng, &mut ops).unwrap();
        let batch = layout.encrypt_batch(&key, &b, 0, &mut rng, &mut ops).unwrap();
        let prepared = layout.prepare(&encrypted).unwrap();
        let encoded: Vec<EncodedBatch> = layout.encode(&b, &mut ops).unwrap();
        let product =
            multiply(&layout, &[&prepared], &[&encoded[0]], None, &mut ops).unwrap().remove(0).remove(0);
        let public = key.public_key(&mut rng);
        let flooding = Flooding::new(&parameters, layout.half_noise()).unwrap();
        let planned = layout.planned(0, |column| column < 9).unwrap();
        let ciphertext = product.to_bytes(&parameters);
        let reply =
            public.sanitise(&product, layout.packing(), &planned, &flooding, &mut rng, &mut ops).unwrap();
        Honest {
            matrix: encrypted.to_bytes(&parameters),
            batch: batch.to_bytes(&parameters),
            slots: key.encrypt_slots(&[5; 4097], &mut rng, &mut ops).unwrap().to_bytes(&parameters),
            ciphertext,
            reply: reply.to_bytes(&parameters),
            carried: layout.carried(0, 9),
            public: public.to_bytes(),
            evaluation: key.evaluation_key(&[1], &mut rng).to_bytes(&parameters),
            secret: key.to_secret_bytes().expose().clone(),
            parameters,
            layout,
        }
    });

    /// Decodes damaged bytes; `decode` returns what the decoded object encodes to.
    fn attack<E: std::fmt::Debug>(
        honest: &'static [u8],
        decode: impl Fn(&[u8]) -> Result<Vec<u8>, E> + std::panic::RefUnwindSafe,
    ) {
        let alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        assert_eq!(decode(honest).unwrap(), honest, "an honest encoding survives");
        // Expanded keys take a few times their encoding, those that travel as a seed half a megabyte at most.
        let bound = 16 * honest.len() + (512 << 10);
        bolero::check!()
            .with_type::<Damage>()
            .with_test_time(Duration::from_secs(1))
            .with_iterations(400)
            .for_each(|damage| {
                let bytes = damage.apply(honest);
                let before = MEMORY.current_usage();
                MEMORY.reset_peak_usage();
                let decoded = decode(&bytes);
                let taken = MEMORY.peak_usage().saturating_sub(before);
                assert!(taken <= bound, "{taken} bytes taken for {} bytes of input", bytes.len());
                if let Ok(encoded) = decoded {
                    assert_eq!(encoded, bytes, "what is accepted is canonical");
                }
            });
        drop(alone);
    }

    #[test]
    fn encrypted_matrix() {
        let h = &*HONEST;
        attack(&h.matrix, |b| {
            let found = EncryptedMatrix::from_bytes(&h.layout, b);
            assert_eq!(EncryptedMatrix::check_bytes(&h.layout, b).err(), found.as_ref().err().cloned());
            found.map(|m| m.to_bytes(&h.parameters))
        });
    }

    #[test]
    fn encrypted_batch() {
        let h = &*HONEST;
        attack(&h.batch, |b| {
            let found = EncryptedBatch::from_bytes(&h.layout, b);
            assert_eq!(EncryptedBatch::check_bytes(&h.layout, b).err(), found.as_ref().err().cloned());
            found.map(|m| m.to_bytes(&h.parameters))
        });
    }

    #[test]
    fn encrypted_slots() {
        let h = &*HONEST;
        attack(&h.slots, |b| {
            let found = EncryptedSlots::from_bytes(&h.parameters, 4097, b);
            assert_eq!(
                EncryptedSlots::check_bytes(&h.parameters, 4097, b).err(),
                found.as_ref().err().cloned()
            );
            found.map(|s| s.to_bytes(&h.parameters))
        });
    }

    #[test]
    fn ciphertext() {
        let h = &*HONEST;
        attack(&h.ciphertext, |b| {
            let found = Ciphertext::from_bytes(&h.parameters, b);
            assert_eq!(Ciphertext::check_bytes(&h.parameters, b).err(), found.as_ref().err().cloned());
            found.map(|c| c.to_bytes(&h.parameters))
        });
    }

    #[test]
    fn reply() {
        let h = &*HONEST;
        attack(&h.reply, |b| {
            Reply::from_bytes(&h.parameters, h.carried, b).map(|r| r.to_bytes(&h.parameters))
        });
    }

    #[test]
    fn public_key() {
        let h = &*HONEST;
        attack(&h.public, |b| PublicKey::from_bytes(&h.parameters, b).map(|k| k.to_bytes()));
    }

    #[test]
    fn evaluation_key() {
        let h = &*HONEST;
        attack(&h.evaluation, |b| {
            EvaluationKey::from_bytes(&h.parameters, &[1], b).map(|k| k.to_bytes(&h.parameters))
        });
    }

    #[test]
    fn secret_key() {
        let h = &*HONEST;
        attack(&h.secret, |b| {
            SecretKey::from_secret_bytes(&h.parameters, b).map(|k| k.to_secret_bytes().expose().clone())
        });
    }

    #[test]
    fn each_defect_has_its_name() {
        let h = &*HONEST;
        let decode = |bytes: &[u8]| Reply::from_bytes(&h.parameters, h.carried, bytes).unwrap_err();
        let with = |at: usize, value: u8| {
            let mut bytes = h.reply.clone();
            bytes[at] = value;
            decode(&bytes)
        };
        let expected = h.reply.len();
        assert_eq!(decode(&h.reply[..expected - 1]), WireError::Length { expected, found: expected - 1 });
        assert_eq!(
            decode(&[&h.reply[..], &[0]].concat()),
            WireError::Length { expected, found: expected + 1 }
        );
        assert_eq!(decode(&[]), WireError::Length { expected, found: 0 });
        assert!(matches!(with(0, b'x'), WireError::Magic { .. }));
        assert_eq!(with(3, 9), WireError::Version { expected: 2, found: 9 });
        assert_eq!(with(4, 1), WireError::Kind { expected: 4, found: 1 });
        assert!(matches!(with(5, h.reply[5] ^ 1), WireError::Parameters { .. }));
        let mut unreduced = h.reply.clone();
        unreduced[13..20].fill(0xff);
        assert!(matches!(decode(&unreduced), WireError::Unreduced { index: 0, .. }));
        let standard = Parameters::preset(Preset::Standard).unwrap();
        assert!(matches!(
            Reply::from_bytes(&standard, h.carried, &h.reply),
            Err(WireError::Parameters { .. })
        ));
    }
}
