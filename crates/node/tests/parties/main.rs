//! Parties with kits, over TLS on loopback: as threads and as processes, disturbed and attacked.
//!
//! Failures: a value that differs in any bit from that of one process, a process that does not end, a state directory that
//! does not open, a stranger who is let in or refused without a reason, a run that a stranger disturbs.

#![cfg(test)]

mod address;
mod attacker;
mod away;
mod changed_files;
mod chaos;
mod dealt_ahead;
mod equal;
mod federation;
mod frames;
mod hostile;
mod ideal;
mod impostor;
mod live;
mod malformed;
mod process;
mod rogue;
mod wiped;
