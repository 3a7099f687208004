//! miRNA: does a microRNA bind a site of a messenger RNA? Ten steps of 64 features per pair.
//!
//! The paper's own pairs and encoding are not public; these are the human CLASH pairs of Helwak (2013) in our
//! encoding. The site is read from its 3' end. Step t holds its bases 5t to 5t+4 one-hot (20), the microRNA's
//! bases 2t and 2t+1 one-hot (8), how each of the five site bases pairs with microRNA bases 2 to 8, the seed
//! (35; Watson-Crick 1, G-U wobble 0.5), and a constant 1.

use std::path::Path;

use super::Dataset;
use super::files::{Content, PublicFiles};
use crate::{Samples, TrainingError};

const FILES: PublicFiles = PublicFiles {
    dataset: "mirna",
    original: "human CLASH pairs (Helwak 2013) as prepared for miRBind, on GitHub in ML-Bioinfo-CEITEC/miRBind, \
               folder Datasets, files clash2013_train_1_1.tsv and clash2013_test_1_1.tsv",
};

const STEPS: usize = 10;
const FEATURES: usize = 64;
const SITE_PER_STEP: usize = 5;
const MIRNA_PER_STEP: usize = 2;
/// Positions 2 to 8 of the microRNA, counted from 1.
const SEED: std::ops::Range<usize> = 1..8;

pub(super) fn load(data: Option<&Path>) -> Result<Dataset, TrainingError> {
    let train = pairs(&FILES.read(data, "clash2013_train_1_1.tsv")?)?;
    let test = pairs(&FILES.read(data, "clash2013_test_1_1.tsv")?)?;
    Ok(Dataset::new("mirna", 2, train, test))
}

fn pairs(content: &Content) -> Result<Samples, TrainingError> {
    let (mut features, mut labels) = (Vec::new(), Vec::new());
    for (line, text) in content.text()?.lines().enumerate() {
        let place = format!("line {}", line + 1);
        let fields: Vec<&str> = text.split('\t').collect();
        let &[mirna, site, label] = fields.as_slice() else {
            let found = format!("{} fields", fields.len());
            return Err(content.wrong(place, "miRNA, gene and label separated by tabs", found));
        };
        if line == 0 && label == "label" {
            continue;
        }
        if mirna.is_empty() || mirna.len() > STEPS * MIRNA_PER_STEP {
            return Err(content.wrong(place, "a miRNA of 1 to 20 bases", mirna));
        }
        if site.len() != STEPS * SITE_PER_STEP {
            return Err(content.wrong(place, "a site of 50 bases", site));
        }
        match label {
            "0" | "1" => labels.push(u32::from(label == "1")),
            _ => return Err(content.wrong(place, "label 0 or 1", label)),
        }
        encode(mirna.as_bytes(), site.as_bytes(), &mut features);
    }
    Ok(Samples::new(vec![STEPS, FEATURES], features, labels))
}

fn encode(mirna: &[u8], site: &[u8], features: &mut Vec<f32>) {
    let from_three_prime: Vec<u8> = site.iter().rev().copied().collect();
    for (step, bases) in from_three_prime.chunks_exact(SITE_PER_STEP).enumerate() {
        bases.iter().for_each(|&base| features.extend(one_hot(Some(base))));
        for position in MIRNA_PER_STEP * step..MIRNA_PER_STEP * (step + 1) {
            features.extend(one_hot(mirna.get(position).copied()));
        }
        for &base in bases {
            features
                .extend(SEED.map(|position| mirna.get(position).map_or(0.0, |&other| pairing(base, other))));
        }
        features.push(1.0);
    }
}

/// A, C, G, T (or U); anything else, or nothing, is all zero.
fn one_hot(base: Option<u8>) -> [f32; 4] {
    let chosen = base.and_then(|base| match base.to_ascii_uppercase() {
        b'A' => Some(0),
        b'C' => Some(1),
        b'G' => Some(2),
        b'T' | b'U' => Some(3),
        _ => None,
    });
    std::array::from_fn(|position| if chosen == Some(position) { 1.0 } else { 0.0 })
}

fn pairing(site: u8, mirna: u8) -> f32 {
    let dna = |base: u8| if base.eq_ignore_ascii_case(&b'U') { b'T' } else { base.to_ascii_uppercase() };
    match (dna(site), dna(mirna)) {
        (b'A', b'T') | (b'T', b'A') | (b'C', b'G') | (b'G', b'C') => 1.0,
        (b'G', b'T') | (b'T', b'G') => 0.5,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Content {
        Content { file: "pairs.tsv".into(), bytes: text.into() }
    }

    #[test]
    fn a_pair_becomes_ten_steps_of_64() {
        let site = format!("{}{}", "A".repeat(49), "G");
        let samples = pairs(&file(&format!("miRNA\tgene\tlabel\nTCTAAAAAA\t{site}\t1\n"))).unwrap();
        assert_eq!((samples.shape(), samples.labels()), ([10, 64].as_slice(), [1].as_slice()));
        let first = &samples.row(0)[..64];
        assert_eq!(first[..8], [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0], "G, the 3' end, then A");
        assert_eq!(first[20..28], [0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0], "miRNA T, C");
        assert_eq!(first[28..35], [1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0], "G pairs C, wobbles with T");
        assert_eq!(first[35..42], [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0], "A pairs T");
        assert_eq!(first[63], 1.0);
        let last = &samples.row(0)[9 * 64..];
        assert_eq!(last[20..28], [0.0; 8], "the miRNA has ended");
    }

    #[test]
    fn broken_lines_are_named() {
        let site = "A".repeat(50);
        for bad in [
            format!("ACGT\t{site}"),
            format!("ACGT\t{site}A\t1"),
            format!("ACGT\t{site}\t2"),
            format!("{}\t{site}\t1", "A".repeat(21)),
        ] {
            let message = pairs(&file(&format!("miRNA\tgene\tlabel\n{bad}\n"))).unwrap_err().to_string();
            assert!(message.contains("line 2"), "{message}");
        }
    }
}
