//! One file per command.

pub mod bench;
pub mod demo;
