//! Words and planes as bytes: a word takes as many bytes as its width has.

use secsv_algebra::Secret;

/// Words that are packed at once.
const AT_ONCE: usize = 64;

/// Appends words of `bytes` bytes each, the lowest byte first. Whatever is above is left out.
pub(super) fn pack(words: impl Iterator<Item = u64>, bytes: usize, out: &mut Vec<u8>) {
    out.reserve(words.size_hint().0 * bytes);
    let (mut some, mut count) = (Secret::new([0; AT_ONCE]), 0);
    words.for_each(|word| {
        some.expose_mut()[count] = word;
        count += 1;
        if count == AT_ONCE {
            pack_words(some.expose(), bytes, out);
            count = 0;
        }
    });
    pack_words(&some.expose()[..count], bytes, out);
}

/// The same for words that stand in a slice.
pub(super) fn pack_words(words: &[u64], bytes: usize, out: &mut Vec<u8>) {
    match bytes {
        1 => packed::<1>(words, out),
        2 => packed::<2>(words, out),
        3 => packed::<3>(words, out),
        4 => packed::<4>(words, out),
        5 => packed::<5>(words, out),
        6 => packed::<6>(words, out),
        7 => packed::<7>(words, out),
        _ => packed::<8>(words, out),
    }
}

/// Appends words of so many bytes: eight at once, each written over what the one before has above its bytes.
fn packed<const BYTES: usize>(words: &[u64], out: &mut Vec<u8>) {
    const WORD: usize = size_of::<u64>();
    out.reserve(words.len() * BYTES);
    let (groups, rest) = words.as_chunks::<WORD>();
    for group in groups {
        let mut bytes = [0; WORD * WORD];
        for (index, word) in group.iter().enumerate() {
            bytes[index * BYTES..][..WORD].copy_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&bytes[..WORD * BYTES]);
    }
    rest.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()[..BYTES]));
}

/// The words in some bytes, `bytes` bytes each.
pub(super) fn unpack(packed: &[u8], bytes: usize) -> impl ExactSizeIterator<Item = u64> + '_ {
    let mask = u64::MAX >> (u64::BITS as usize - 8 * bytes);
    (0..packed.len() / bytes).map(move |index| {
        let rest = &packed[index * bytes..];
        match rest.first_chunk() {
            Some(word) => u64::from_le_bytes(*word) & mask,
            None => {
                let mut word = [0; size_of::<u64>()];
                word[..bytes].copy_from_slice(&rest[..bytes]);
                u64::from_le_bytes(word)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_come_back(words in prop::collection::vec(any::<u64>(), 0..20), bytes in 1usize..=8) {
            let mask = u64::MAX >> (64 - 8 * bytes);
            let mut packed = vec![7];
            pack(words.iter().copied(), bytes, &mut packed);
            let plain: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()[..bytes].to_vec()).collect();
            prop_assert_eq!(&packed[1..], &plain);
            let found: Vec<u64> = unpack(&packed[1..], bytes).collect();
            prop_assert_eq!(found, words.iter().map(|word| word & mask).collect::<Vec<_>>());
        }
    }
}
