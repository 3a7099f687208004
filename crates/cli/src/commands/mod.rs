//! One file per command.

pub mod bench;
pub mod compare;
pub mod completions;
pub mod demo;
pub mod diff;
pub mod evaluate;
pub mod follow;
pub mod keygen;
pub mod parties;
pub mod plan;
pub mod preflight;
pub mod protocols;
pub mod provision;
pub mod renew;
pub mod report;
pub mod reproduce;
pub mod train;
pub mod valuation;
pub mod verify;
