//! One file per command.

pub mod report;
