//! One file per command.

pub mod bench;
pub mod demo;
pub mod evaluate;
pub mod report;
pub mod train;
