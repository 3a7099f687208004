use proptest::prelude::*;
use secsv_algebra::{Prg, Seed};

use super::*;

/// Random operands of one shape under limbs of both lengths.
fn operands(
    limbs: &[Limb],
    degree: usize,
    counts: (usize, usize, usize),
    extreme: bool,
    seed: u8,
) -> (Vec<CipherTiles>, Vec<PlainRows>) {
    let (rows, columns, inner) = counts;
    let mut prg = Prg::new(&Seed::from_bytes([seed; 32]));
    let mut points = |limb: &Limb| {
        let mut words = vec![limb.modulus().value() - 1; degree];
        if !extreme {
            prg.fill_uniform(limb.modulus().value(), &mut words);
        }
        words
    };
    let ciphers = (0..rows).map(|_| {
        let mut tiles = CipherTiles::zero(inner, limbs.len(), degree);
        for (i, part, l) in (0..inner)
            .flat_map(|i| (0..2).map(move |p| (i, p)))
            .flat_map(|(i, p)| (0..limbs.len()).map(move |l| (i, p, l)))
        {
            tiles.store(i, part, l, &points(&limbs[l]));
        }
        tiles
    });
    let ciphers: Vec<CipherTiles> = ciphers.collect();
    let plains = (0..columns).map(|_| {
        let mut tiles = PlainRows::zero(inner, limbs.len(), degree);
        for (i, l) in (0..inner).flat_map(|i| (0..limbs.len()).map(move |l| (i, l))) {
            tiles.row_mut(i, l).copy_from_slice(&points(&limbs[l]));
        }
        tiles
    });
    (ciphers, plains.collect())
}

fn limbs(degree: usize) -> Vec<Limb> {
    [0x3fffffffef8001, 0x7ffffffffb4001, 0x3fffffffe7c001].map(|q| Limb::new(q, degree).unwrap()).to_vec()
}

fn products(
    backend: Backend,
    limbs: &[Limb],
    degree: usize,
    ciphers: &[CipherTiles],
    plains: &[PlainRows],
) -> Vec<Ciphertext> {
    let mut products = vec![Ciphertext::zero(limbs.len(), degree); ciphers.len() * plains.len()];
    let (rows, columns): (Vec<_>, Vec<_>) = (ciphers.iter().collect(), plains.iter().collect());
    multiply(backend, limbs, &rows, &columns, &mut products).unwrap();
    products
}

/// One product straight from the definition.
fn definition(
    limb: &Limb,
    l: usize,
    degree: usize,
    row: &CipherTiles,
    column: &PlainRows,
    part: usize,
) -> Vec<u64> {
    let (mut a, mut b, mut sum) = (vec![0; degree], vec![0; degree], vec![0u64; degree]);
    for i in 0..row.inner() {
        row.load(i, part, l, &mut a);
        b.copy_from_slice(column.row(i, l));
        for (s, (&a, &b)) in sum.iter_mut().zip(a.iter().zip(&b)) {
            *s = limb.modulus().add(*s, limb.modulus().mul(a, b));
        }
    }
    sum
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn both_implementations_give_the_bits_of_the_definition(
        rows in 1usize..7, columns in 1usize..7, inner in 1usize..300, extreme: bool, seed: u8,
    ) {
        let degree = 32;
        let limbs = limbs(degree);
        let (ciphers, plains) = operands(&limbs, degree, (rows, columns, inner), extreme, seed);
        let portable = products(Backend::Portable, &limbs, degree, &ciphers, &plains);
        let fastest = products(Backend::detect(), &limbs, degree, &ciphers, &plains);
        prop_assert!(portable == fastest);
        let (r, c) = (rows - 1, columns - 1);
        for part in 0..2 {
            for (l, limb) in limbs.iter().enumerate() {
                let expected = definition(limb, l, degree, &ciphers[r], &plains[c], part);
                prop_assert_eq!(fastest[r * columns + c].limb(part, l), &expected[..]);
            }
        }
    }
}

/// Columns that hold a few tiles at a time give what whole columns give, whatever the products held before.
#[test]
fn products_in_parts_are_the_products() {
    let (degree, inner) = (32, 3 * TILE + 5);
    let limbs = limbs(degree);
    let (ciphers, plains) = operands(&limbs, degree, (2, 1, inner), false, 9);
    let rows: Vec<&CipherTiles> = ciphers.iter().collect();
    let whole = products(Backend::Portable, &limbs, degree, &ciphers, &plains);
    for backend in [Backend::Portable, Backend::detect()] {
        let mut sums = vec![Ciphertext::zero(limbs.len(), degree); 2];
        sums.iter_mut().for_each(|sum| sum.part_mut(0).fill(7));
        let mut part = PlainRows::zero(2 * TILE, limbs.len(), degree);
        for first in (0..inner).step_by(2 * TILE) {
            for i in first..inner.min(first + 2 * TILE) {
                for (l, row) in part.rows_mut(i - first).enumerate() {
                    row.copy_from_slice(plains[0].row(i, l));
                }
            }
            multiply_part(backend, &limbs, &rows, &[&part], first / TILE, &mut sums).unwrap();
        }
        assert!(sums == whole);
        let beyond = multiply_part(backend, &limbs, &rows, &[&part], 4, &mut sums);
        assert!(matches!(beyond, Err(HeError::Count { what: "column inputs", .. })));
    }
}

proptest! {
    #[test]
    fn entrywise_products_and_sums_agree(seed: u8, extreme: bool, factor: u64, weights in prop::collection::vec(0u32..1 << 27, 1..20)) {
        let degree = 64;
        for limb in limbs(degree) {
            let (modulus, mut prg) = (limb.modulus().value(), Prg::new(&Seed::from_bytes([seed; 32])));
            let mut words = |bound: u64| {
                let mut words = vec![bound - 1; degree];
                if !extreme {
                    prg.fill_uniform(bound, &mut words);
                }
                words
            };
            let (a, b, wide) = (words(modulus), words(modulus), words(1 << 57));
            let (mut ours, mut portable) = (words(modulus), vec![]);
            portable.clone_from(&ours);
            multiply_add(Backend::detect(), &limb, &a, &b, &mut ours);
            multiply_add(Backend::Portable, &limb, &a, &b, &mut portable);
            prop_assert_eq!(&ours, &portable);
            let (mut ours, mut portable) = (wide.clone(), wide);
            scale(Backend::detect(), &limb, factor % modulus, &mut ours);
            scale(Backend::Portable, &limb, factor % modulus, &mut portable);
            prop_assert_eq!(&ours, &portable);
            let p = 0x1ff_ffff_0001;
            let elements: Vec<u64> = a.iter().map(|x| x % p).chain([0, p / 2, p / 2 + 1, p - 1]).collect();
            let (mut lifted, mut expected) = (vec![0; degree + 4], vec![0; degree + 4]);
            lift(Backend::detect(), &limb, p, &elements, &mut lifted);
            lift(Backend::Portable, &limb, p, &elements, &mut expected);
            prop_assert_eq!(lifted, expected);
            let terms: Vec<(u64, &[u64])> = (0..16).map(|i| ((factor >> i) % modulus, &a[..])).collect();
            combine(Backend::detect(), &limb, &terms, &mut ours);
            combine(Backend::Portable, &limb, &terms, &mut portable);
            prop_assert_eq!(&ours, &portable);
            for form in [Words::Split, Words::Plain] {
                let stored = if form == Words::Split { a.iter().map(|&x| split(x)).collect() } else { a.clone() };
                let terms: Vec<(u32, &[[u64; BLOCK]])> = weights.iter().map(|&w| (w, stored.as_chunks().0)).collect();
                let (mut ours, mut portable) = (vec![[0; BLOCK]; degree / BLOCK], vec![[0; BLOCK]; degree / BLOCK]);
                weighted_sum(Backend::detect(), &limb, form, &terms, &mut ours);
                weighted_sum(Backend::Portable, &limb, form, &terms, &mut portable);
                prop_assert_eq!(&ours, &portable);
            }
        }
    }
}

#[test]
fn nothing_overflows_at_the_largest_residues_and_lengths() {
    let degree = 32;
    let limbs = limbs(degree);
    let (ciphers, plains) = operands(&limbs, degree, (1, 1, 1500), true, 0);
    let portable = products(Backend::Portable, &limbs, degree, &ciphers, &plains);
    assert!(portable == products(Backend::detect(), &limbs, degree, &ciphers, &plains));
    for (l, limb) in limbs.iter().enumerate() {
        // (q - 1)^2 = 1, 1500 times.
        assert!(portable[0].limb(0, l).iter().all(|&x| x == 1500), "limb {}", limb.modulus().value());
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let degree = 32;
    let limbs = limbs(degree);
    let row = CipherTiles::zero(3, 3, degree);
    let mut out = vec![Ciphertext::zero(3, degree)];
    let run = |row: &CipherTiles, column: PlainRows, out: &mut [Ciphertext]| {
        multiply(Backend::detect(), &limbs, &[row], &[&column], out)
    };
    assert!(matches!(
        run(&row, PlainRows::zero(2, 3, degree), &mut out),
        Err(HeError::Count { expected: 3, found: 2, .. })
    ));
    assert!(matches!(run(&row, PlainRows::zero(3, 2, degree), &mut out), Err(HeError::Mixed { .. })));
    assert!(matches!(run(&row, PlainRows::zero(3, 3, 64), &mut out), Err(HeError::Mixed { .. })));
    assert!(matches!(run(&row, PlainRows::zero(3, 3, degree), &mut []), Err(HeError::Count { .. })));
    assert!(run(&row, PlainRows::zero(3, 3, degree), &mut out).is_ok());
}
