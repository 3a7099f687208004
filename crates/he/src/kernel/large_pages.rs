//! Large pages for operands, which are read in long runs over more memory than the translation buffers cover.
#![expect(unsafe_code, reason = "advice to the system about pages is given by address")]

use super::CacheLine;

/// Asks the system for large pages where lines cover whole ones.
pub(super) fn prefer_large_pages(lines: &mut [CacheLine]) {
    const LARGE: usize = 2 << 20;
    let start = lines.as_mut_ptr().cast::<u8>();
    let skipped = start.align_offset(LARGE);
    let length = size_of_val(lines).saturating_sub(skipped) / LARGE * LARGE;
    if length > 0 {
        // SAFETY: a hint about pages that lie wholly inside the slice; it changes no byte. Refusal does no
        // harm.
        let _ = unsafe {
            rustix::mm::madvise(start.add(skipped).cast(), length, rustix::mm::Advice::LinuxHugepage)
        };
    }
}
