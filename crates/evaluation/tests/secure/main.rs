//! Whole federations under the secure protocols, every party a role that sees frames alone.
//!
//! What counts as failure: a set of right samples that is not the fixed-point run's, bit for bit; a prediction that
//! differs from the clear one's beyond the computed rounding; a message that depends on data; operations or bytes that
//! were not predicted; a fault that ends in a wrong value, a panic or a hang.

#![cfg(test)]

mod bit_for_bit;
mod blindsv;
mod classes;
mod counts;
mod estimators;
mod faults;
mod federations;
mod gathered;
mod near_ties;
mod nssv;
mod plan;
mod ranges;
mod rounds;
mod views;
