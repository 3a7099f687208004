//! One file per command.

pub mod bench;
pub mod compare;
pub mod demo;
pub mod evaluate;
pub mod parties;
pub mod plan;
pub mod protocols;
pub mod report;
pub mod reproduce;
pub mod train;
