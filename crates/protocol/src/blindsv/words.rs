//! Words and planes as bytes: a word takes as many bytes as its width has.

/// Appends words of `bytes` bytes each.
pub(super) fn pack(words: impl Iterator<Item = u64>, bytes: usize, out: &mut Vec<u8>) {
    match bytes {
        5 => words.for_each(|word| out.extend_from_slice(&word.to_le_bytes()[..5])),
        8 => words.for_each(|word| out.extend_from_slice(&word.to_le_bytes())),
        _ => words.for_each(|word| out.extend_from_slice(&word.to_le_bytes()[..bytes])),
    }
}

/// The words in some bytes, `bytes` bytes each.
pub(super) fn unpack(packed: &[u8], bytes: usize) -> impl Iterator<Item = u64> + '_ {
    packed.chunks_exact(bytes).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}
