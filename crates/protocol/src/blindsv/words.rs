//! Words and planes as bytes: a word takes as many bytes as its width has.

/// Appends words of `bytes` bytes each, the lowest byte first. Whatever is above is left out.
pub(super) fn pack(words: impl Iterator<Item = u64>, bytes: usize, out: &mut Vec<u8>) {
    out.reserve(words.size_hint().0 * bytes);
    for word in words {
        let (end, word) = (out.len() + bytes, word.to_le_bytes());
        // Eight bytes at once, of which the last are written over, while there is room for them.
        match out.capacity() - out.len() >= word.len() {
            true => out.extend_from_slice(&word),
            false => out.extend_from_slice(&word[..bytes]),
        }
        out.truncate(end);
    }
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
