//! Parties as processes over TLS on loopback: the values of one process, whatever happens on the way.
//!
//! Failures: a value that differs in any bit, a process that does not end, a state directory that does not
//! open, a stranger who is let in or disturbs the run.

#![cfg(test)]

#[path = "../../../node/tests/parties/address.rs"]
mod address;
mod consortium;
mod ends;
mod equal;
mod unwritable;
