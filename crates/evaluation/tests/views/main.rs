//! What `Views` says each party saw, held against the same run without cryptography.
//!
//! What counts as failure: a decoded output that is not the fixed-point one to the last bit, or one that somebody
//! decrypted and no view has; shares that do not add up; a message that travelled and is in no view, or the other way
//! round; a right or wrong that is not; files that say something else than the views they were written from.

#![cfg(test)]

mod blindsv;
mod federations;
mod files;
mod messages;
mod outputs;
mod shares;
