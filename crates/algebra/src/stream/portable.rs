//! AES-256 in counter mode by the `aes` crate.

use aes::{
    Aes256, Block,
    cipher::{BlockEncrypt as _, KeyInit as _},
};

/// Blocks that are encrypted in one call.
const AT_ONCE: usize = 64;

/// The blocks from number `first` on.
pub(super) fn blocks(key: &[u8; 32], first: u64, out: &mut [[u64; 2]]) {
    let cipher = Aes256::new(key.into());
    let mut counters = [Block::default(); AT_ONCE];
    for (run, words) in out.chunks_mut(AT_ONCE).enumerate() {
        let begin = first.wrapping_add((run * AT_ONCE) as u64);
        let blocks = &mut counters[..words.len()];
        for (k, block) in (0u64..).zip(blocks.iter_mut()) {
            *block = Block::from(u128::from(begin.wrapping_add(k)).to_le_bytes());
        }
        cipher.encrypt_blocks(blocks);
        for (words, block) in words.iter_mut().zip(blocks.iter()) {
            let (halves, _) = block.as_slice().as_chunks::<8>();
            words.iter_mut().zip(halves).for_each(|(word, half)| *word = u64::from_le_bytes(*half));
        }
    }
    // What was drawn last does not stay.
    counters.fill(Block::default());
    std::hint::black_box(&counters);
}
