//! One file per command.

pub mod train;
