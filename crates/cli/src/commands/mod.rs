//! One file per command.

pub mod evaluate;
pub mod report;
pub mod train;
