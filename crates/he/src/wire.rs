//! Our own wire format: a 13-byte head (magic, version, kind, digest of the parameters or the layout), then
//! residues packed to the length of their prime. The length of every object follows from the parameters and
//! what is expected, so it is checked before anything is allocated; every residue is checked to be reduced.

mod check;

use std::{cell::RefCell, sync::Arc};

use rand::CryptoRng;
use secsv_algebra::{Field, Matrix, Seed};
use zeroize::Zeroizing;

use crate::{
    Ciphertext, EncryptedSlots, EvaluationKey, HeError, Operations, Parameters, PublicKey, Reply, SecretKey,
    SeededCiphertext, WireError,
    keys::SwitchKey,
    linear::{EncryptedBatch, EncryptedBias, EncryptedMatrix, Layout, PreparedMatrix},
};

const MAGIC: [u8; 3] = *b"ssv";
const VERSION: u8 = 2;
const HEAD: usize = 13;
const SEED: usize = 32;

/// The kind of object that follows the head.
#[derive(Clone, Copy)]
enum ObjectKind {
    Matrix = 1,
    Batch = 2,
    Ciphertext = 3,
    Reply = 4,
    PublicKey = 5,
    EvaluationKey = 6,
    SecretKey = 7,
    Bias = 8,
    Slots = 9,
}

/// The encoding of seeded ciphertexts whose number follows from their layout.
macro_rules! seeded_of_layout {
    ($type:ty, $kind:expr, $count:expr) => {
        impl $type {
            /// Length of the encoding of one of this layout.
            pub fn encoded_len(layout: &Layout) -> usize {
                HEAD + $count(layout) * seeded_len(layout.parameters())
            }

            /// Encodes it.
            pub fn to_bytes(&self, parameters: &Parameters) -> Vec<u8> {
                WordWriter::new(parameters, self.layout, $kind).seeded(&self.ciphertexts).bytes
            }

            /// Decodes one of this layout.
            pub fn from_bytes(layout: &Layout, bytes: &[u8]) -> Result<Self, WireError> {
                let body = open(layout.digest(), $kind, Self::encoded_len(layout), bytes)?;
                let ciphertexts = WordReader::new(layout.parameters(), body).seeded($count(layout))?;
                Ok(Self { layout: layout.digest(), ciphertexts })
            }

            /// Checks the encoding of one of this layout.
            pub fn check_bytes(layout: &Layout, bytes: &[u8]) -> Result<(), WireError> {
                let body = open(layout.digest(), $kind, Self::encoded_len(layout), bytes)?;
                WordReader::new(layout.parameters(), body).check_seeded($count(layout))
            }
        }
    };
}

seeded_of_layout!(EncryptedMatrix, ObjectKind::Matrix, Layout::weight_ciphertexts);
seeded_of_layout!(EncryptedBatch, ObjectKind::Batch, Layout::inner);
seeded_of_layout!(EncryptedBias, ObjectKind::Bias, Layout::rows);

impl PreparedMatrix {
    /// Decodes an encrypted matrix of this layout and makes it ready to multiply, ciphertext by ciphertext.
    pub fn from_bytes(layout: &Layout, bytes: &[u8]) -> Result<Self, WireError> {
        let expected = EncryptedMatrix::encoded_len(layout);
        let body = open(layout.digest(), ObjectKind::Matrix, expected, bytes)?;
        let reader = RefCell::new(WordReader::new(layout.parameters(), body));
        layout.prepare_each(
            || Ok(()),
            |()| reader.borrow_mut().seed(),
            |(), l, words| reader.borrow_mut().limb(l, words),
        )
    }
}

impl Layout {
    /// Encrypts a weight matrix and appends its encoding, ciphertext by ciphertext: what [`Layout::encrypt`] and
    /// [`EncryptedMatrix::to_bytes`] give.
    pub fn encrypt_onto(
        &self,
        bytes: Vec<u8>,
        key: &SecretKey,
        a: &Matrix<Field>,
        rng: &mut impl CryptoRng,
        ops: &mut Operations,
    ) -> Result<Vec<u8>, HeError> {
        let mut writer = WordWriter::onto(bytes, self.parameters(), self.digest(), ObjectKind::Matrix);
        writer.bytes.reserve(EncryptedMatrix::encoded_len(self));
        self.encrypt_each(key, a, rng, ops, |ciphertext| writer.add_seeded(&ciphertext))?;
        Ok(writer.bytes)
    }
}

impl EncryptedSlots {
    /// Length of the encoding of this many elements.
    pub fn encoded_len(parameters: &Parameters, elements: usize) -> usize {
        HEAD + elements.div_ceil(parameters.degree()) * seeded_len(parameters)
    }

    /// Encodes the vector; how many elements it has is agreed on beforehand.
    pub fn to_bytes(&self, parameters: &Parameters) -> Vec<u8> {
        WordWriter::new(parameters, self.parameters, ObjectKind::Slots).seeded(&self.ciphertexts).bytes
    }

    /// Decodes a vector of this many elements.
    pub fn from_bytes(parameters: &Parameters, elements: usize, bytes: &[u8]) -> Result<Self, WireError> {
        let expected = Self::encoded_len(parameters, elements);
        let body = open(parameters.digest(), ObjectKind::Slots, expected, bytes)?;
        let ciphertexts = WordReader::new(parameters, body).seeded(elements.div_ceil(parameters.degree()))?;
        Ok(Self { parameters: parameters.digest(), ciphertexts })
    }
}

impl Ciphertext {
    /// Length of the encoding.
    pub fn encoded_len(parameters: &Parameters) -> usize {
        HEAD + 2 * polynomial_len(parameters)
    }

    /// Encodes a ciphertext at full modulus.
    pub fn to_bytes(&self, parameters: &Parameters) -> Vec<u8> {
        WordWriter::new(parameters, parameters.digest(), ObjectKind::Ciphertext)
            .polynomial(self.part(0))
            .polynomial(self.part(1))
            .bytes
    }

    /// Decodes a ciphertext at full modulus.
    pub fn from_bytes(parameters: &Parameters, bytes: &[u8]) -> Result<Self, WireError> {
        let body = open(parameters.digest(), ObjectKind::Ciphertext, Self::encoded_len(parameters), bytes)?;
        let mut reader = WordReader::new(parameters, body);
        let (c0, c1) = (reader.polynomial()?, reader.polynomial()?);
        Ok(Self::from_parts(parameters.limbs().len(), parameters.degree(), &c0, &c1))
    }
}

impl Reply {
    /// Length of the encoding of a reply that carries `carried` coefficients of its first part.
    pub fn encoded_len(parameters: &Parameters, carried: usize) -> usize {
        HEAD + words_len(parameters, 0, carried.next_multiple_of(8)) + limb_len(parameters, 0)
    }

    /// Encodes the reply.
    pub fn to_bytes(&self, parameters: &Parameters) -> Vec<u8> {
        let mut c0 = self.c0.clone();
        c0.resize(c0.len().next_multiple_of(8), 0);
        let writer = WordWriter::new(parameters, parameters.digest(), ObjectKind::Reply);
        writer.limb(0, &c0).limb(0, &self.c1).bytes
    }

    /// Decodes a reply that carries `carried` coefficients of its first part.
    pub fn from_bytes(parameters: &Parameters, carried: usize, bytes: &[u8]) -> Result<Self, WireError> {
        let expected = Self::encoded_len(parameters, carried);
        let body = open(parameters.digest(), ObjectKind::Reply, expected, bytes)?;
        let mut reader = WordReader::new(parameters, body);
        let (mut c0, mut c1) = (vec![0; carried.next_multiple_of(8)], vec![0; parameters.degree()]);
        reader.limb(0, &mut c0)?;
        reader.limb(0, &mut c1)?;
        // One encoding for one reply.
        if let Some(index) = (carried..c0.len()).find(|&k| c0[k] != 0) {
            return Err(WireError::Unreduced { index, modulus: 1 });
        }
        c0.truncate(carried);
        Ok(Self { c0, c1 })
    }
}

impl PublicKey {
    /// Length of the encoding.
    pub fn encoded_len(parameters: &Parameters) -> usize {
        HEAD + seeded_len(parameters)
    }

    /// Encodes the key.
    pub fn to_bytes(&self) -> Vec<u8> {
        WordWriter::new(&self.parameters, self.parameters.digest(), ObjectKind::PublicKey)
            .seeded(std::slice::from_ref(&self.seeded))
            .bytes
    }

    /// Decodes a key.
    pub fn from_bytes(parameters: &Arc<Parameters>, bytes: &[u8]) -> Result<Self, WireError> {
        let body = open(parameters.digest(), ObjectKind::PublicKey, Self::encoded_len(parameters), bytes)?;
        let seeded = WordReader::new(parameters, body).one_seeded()?;
        Ok(Self::from_seeded(parameters, seeded))
    }
}

impl EvaluationKey {
    /// Length of the encoding of a key for this many rotations.
    pub fn encoded_len(parameters: &Parameters, rotations: usize) -> usize {
        HEAD + (1 + rotations) * parameters.limbs().len() * seeded_len(parameters)
    }

    /// Encodes the key; which steps it holds is agreed on beforehand.
    pub fn to_bytes(&self, parameters: &Parameters) -> Vec<u8> {
        let keys = std::iter::once(&self.relinearise).chain(self.rotations.values());
        keys.fold(WordWriter::new(parameters, parameters.digest(), ObjectKind::EvaluationKey), |w, key| {
            w.seeded(&key.digits)
        })
        .bytes
    }

    /// Decodes a key for these steps, which must ascend.
    pub fn from_bytes(parameters: &Parameters, steps: &[usize], bytes: &[u8]) -> Result<Self, HeError> {
        if let Some(i) = (1..steps.len()).find(|&i| steps[i] <= steps[i - 1]) {
            return Err(HeError::Steps { index: i, found: steps[i] });
        }
        let body = open(
            parameters.digest(),
            ObjectKind::EvaluationKey,
            Self::encoded_len(parameters, steps.len()),
            bytes,
        )?;
        let mut reader = WordReader::new(parameters, body);
        let mut key = || Ok(SwitchKey::new(parameters, reader.seeded(parameters.limbs().len())?));
        let relinearise = key()?;
        let rotations = steps.iter().map(|&step| Ok((step, key()?))).collect::<Result<_, WireError>>()?;
        Ok(Self { relinearise, rotations })
    }
}

impl SecretKey {
    /// Length of the encoding.
    pub const ENCODED_LEN: usize = HEAD + SEED;

    /// Encodes the key, to be sealed: these bytes are the secret.
    pub fn to_secret_bytes(&self) -> secsv_algebra::Secret<Vec<u8>> {
        let mut writer =
            WordWriter::new(self.parameters(), self.parameters().digest(), ObjectKind::SecretKey);
        writer.bytes.extend_from_slice(self.seed().expose());
        secsv_algebra::Secret::new(writer.bytes)
    }

    /// Decodes a key.
    pub fn from_secret_bytes(parameters: &Arc<Parameters>, bytes: &[u8]) -> Result<Self, WireError> {
        let body = open(parameters.digest(), ObjectKind::SecretKey, Self::ENCODED_LEN, bytes)?;
        let mut seed = Zeroizing::new([0; SEED]);
        seed.copy_from_slice(body);
        Ok(Self::from_seed(parameters, Seed::from_bytes(*seed)))
    }
}

/// Bytes of `words` words of a limb: multiples of 8, so nothing is padded.
fn words_len(parameters: &Parameters, limb: usize, words: usize) -> usize {
    words / 8 * parameters.limbs()[limb].bits() as usize
}

/// Bytes of one limb of a polynomial.
fn limb_len(parameters: &Parameters, limb: usize) -> usize {
    words_len(parameters, limb, parameters.degree())
}

fn polynomial_len(parameters: &Parameters) -> usize {
    (0..parameters.limbs().len()).map(|l| limb_len(parameters, l)).sum()
}

fn seeded_len(parameters: &Parameters) -> usize {
    SEED + polynomial_len(parameters)
}

/// Checks the length and the head, returns the body.
fn open(expected_digest: u64, kind: ObjectKind, expected: usize, bytes: &[u8]) -> Result<&[u8], WireError> {
    let wrong_length = WireError::Length { expected, found: bytes.len() };
    let Some((head, body)) = bytes.split_first_chunk::<HEAD>() else { return Err(wrong_length) };
    let [m0, m1, m2, version, found_kind, digest @ ..] = *head;
    if [m0, m1, m2] != MAGIC {
        return Err(WireError::Magic { expected: MAGIC, found: [m0, m1, m2] });
    }
    if version != VERSION {
        return Err(WireError::Version { expected: VERSION, found: version });
    }
    if found_kind != kind as u8 {
        return Err(WireError::Kind { expected: kind as u8, found: found_kind });
    }
    let found = u64::from_le_bytes(digest);
    if found != expected_digest {
        return Err(WireError::Parameters { expected: expected_digest, found });
    }
    if bytes.len() == expected { Ok(body) } else { Err(wrong_length) }
}

struct WordWriter<'a> {
    parameters: &'a Parameters,
    bytes: Vec<u8>,
}

impl<'a> WordWriter<'a> {
    fn new(parameters: &'a Parameters, digest: u64, kind: ObjectKind) -> Self {
        Self::onto(Vec::new(), parameters, digest, kind)
    }

    fn onto(mut bytes: Vec<u8>, parameters: &'a Parameters, digest: u64, kind: ObjectKind) -> Self {
        bytes.extend(MAGIC);
        bytes.extend([VERSION, kind as u8]);
        bytes.extend(digest.to_le_bytes());
        Self { parameters, bytes }
    }

    fn seeded(mut self, ciphertexts: &[SeededCiphertext]) -> Self {
        self.bytes.reserve(ciphertexts.len() * seeded_len(self.parameters));
        ciphertexts.iter().for_each(|ciphertext| self.add_seeded(ciphertext));
        self
    }

    fn add_seeded(&mut self, ciphertext: &SeededCiphertext) {
        self.bytes.extend_from_slice(&ciphertext.seed);
        self.add_polynomial(&ciphertext.c0);
    }

    fn polynomial(mut self, words: &[u64]) -> Self {
        self.bytes.reserve(polynomial_len(self.parameters));
        self.add_polynomial(words);
        self
    }

    fn add_polynomial(&mut self, words: &[u64]) {
        for (l, words) in words.chunks_exact(self.parameters.degree()).enumerate() {
            self.add_limb(l, words);
        }
    }

    fn limb(mut self, limb: usize, words: &[u64]) -> Self {
        self.bytes.reserve(words_len(self.parameters, limb, words.len()));
        self.add_limb(limb, words);
        self
    }

    fn add_limb(&mut self, limb: usize, words: &[u64]) {
        match self.parameters.limbs()[limb].bits() {
            54 => pack::<54>(words, &mut self.bytes),
            _ => pack::<55>(words, &mut self.bytes),
        }
    }
}

/// Packs words of BITS bits, eight of them into BITS bytes.
fn pack<const BITS: usize>(words: &[u64], bytes: &mut Vec<u8>) {
    for eight in words.as_chunks::<8>().0 {
        let mut packed = [0u64; 8];
        for (i, &word) in eight.iter().enumerate() {
            let (place, shift) = (i * BITS / 64, i * BITS % 64);
            packed[place] |= word << shift;
            if shift + BITS > 64 {
                packed[place + 1] |= word >> (64 - shift);
            }
        }
        let mut all = [0; 64];
        for (target, word) in all.as_chunks_mut::<8>().0.iter_mut().zip(packed) {
            *target = word.to_le_bytes();
        }
        bytes.extend_from_slice(&all[..BITS]);
    }
}

/// Unpacks what [`pack`] packed; the bytes are those of the words exactly.
fn unpack<const BITS: usize>(bytes: &[u8], words: &mut [u64]) {
    for (eight, bytes) in words.as_chunks_mut::<8>().0.iter_mut().zip(bytes.chunks_exact(BITS)) {
        let mut all = [0; 72];
        all[..BITS].copy_from_slice(bytes);
        let mut packed = [0u64; 9];
        for (word, bytes) in packed.iter_mut().zip(all.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        for (i, word) in eight.iter_mut().enumerate() {
            let (place, shift) = (i * BITS / 64, i * BITS % 64);
            let low = packed[place] >> shift;
            let high = if shift == 0 { 0 } else { packed[place + 1] << (64 - shift) };
            *word = (low | high) & ((1 << BITS) - 1);
        }
    }
}

struct WordReader<'a> {
    parameters: &'a Parameters,
    rest: &'a [u8],
    /// Residues read so far, to name a bad one.
    read: usize,
}

impl<'a> WordReader<'a> {
    fn new(parameters: &'a Parameters, rest: &'a [u8]) -> Self {
        Self { parameters, rest, read: 0 }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let short = WireError::Length { expected: length, found: self.rest.len() };
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn seeded(&mut self, count: usize) -> Result<Vec<SeededCiphertext>, WireError> {
        (0..count).map(|_| self.one_seeded()).collect()
    }

    fn seed(&mut self) -> Result<[u8; SEED], WireError> {
        let mut seed = [0; SEED];
        seed.copy_from_slice(self.take(SEED)?);
        Ok(seed)
    }

    fn one_seeded(&mut self) -> Result<SeededCiphertext, WireError> {
        Ok(SeededCiphertext { seed: self.seed()?, c0: self.polynomial()? })
    }

    fn polynomial(&mut self) -> Result<Vec<u64>, WireError> {
        let mut words = vec![0; self.parameters.words()];
        for (l, words) in words.chunks_exact_mut(self.parameters.degree()).enumerate() {
            self.limb(l, words)?;
        }
        Ok(words)
    }

    fn limb(&mut self, limb: usize, words: &mut [u64]) -> Result<(), WireError> {
        let bytes = self.take(words_len(self.parameters, limb, words.len()))?;
        let (bits, modulus) = {
            let limb = &self.parameters.limbs()[limb];
            (limb.bits(), limb.modulus().value())
        };
        match bits {
            54 => unpack::<54>(bytes, words),
            _ => unpack::<55>(bytes, words),
        }
        // Nearly always none is: look at all at once before looking for one.
        let largest = words.iter().fold(0, |largest: u64, &w| largest.max(w));
        let unreduced = if largest < modulus { None } else { words.iter().position(|&w| w >= modulus) };
        match unreduced {
            Some(index) => Err(WireError::Unreduced { index: self.read + index, modulus }),
            None => {
                self.read += words.len();
                Ok(())
            }
        }
    }
}
