//! Addresses for servers that start later.

use std::{
    net::TcpListener,
    sync::atomic::{AtomicU32, Ordering},
};

use secsv_node::kit::Address;

/// Ports below those that the system gives to whoever asks for any: nobody gets one between now and a server's start, nor
/// while the server is down.
const PORTS: std::ops::Range<u32> = 20_000..32_000;

/// An address at which nobody listens, and that this process has not given out before.
pub fn free_address() -> Address {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = PORTS.end - PORTS.start;
    let numbers = (0..count).map(|_| std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)));
    let mut addresses = numbers.map(|number| format!("127.0.0.1:{}", PORTS.start + number % count));
    let free = addresses.find(|address| TcpListener::bind(address).is_ok());
    free.expect("a port that nobody listens on").parse().unwrap()
}
