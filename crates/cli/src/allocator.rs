//! Where the process's memory comes from. Ciphertexts of a few sizes come and go by the thousand, on several
//! threads: the system's allocator leaves holes between them (7.4 GiB where 4.5 are in use, for MNIST) and
//! gives pages back that are asked for again at once.

use std::ptr::null_mut;

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Large pages; freed memory goes back after a minute, by a thread of the allocator's own. One part for all
/// threads: what one party's thread frees another's can use, so a fifth less is held (HESV on MNIST), and
/// large blocks come from it as well. Blocks are large and few, so threads seldom meet there. Large blocks
/// begin at pages: what is written past the system's cache need not be copied for it, and a tenth less is
/// held.
#[expect(
    unsafe_code,
    reason = "the allocator reads its settings from a symbol of this name when it starts: a constant, and nothing else defines it"
)]
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS: &[u8; 108] =
    b"thp:always,dirty_decay_ms:60000,oversize_threshold:0,background_thread:true,narenas:1,\
    cache_oblivious:false\0";

/// Gives memory that nobody uses back to the system, at once.
#[expect(unsafe_code, reason = "the allocator takes commands only through its C interface")]
pub fn purge_arenas() {
    // 4096 stands for all arenas (`MALLCTL_ARENAS_ALL`).
    let all = c"arena.4096.purge";
    // SAFETY: the name ends in a zero, and the command reads and writes nothing else.
    let _ = unsafe { tikv_jemalloc_sys::mallctl(all.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
}
