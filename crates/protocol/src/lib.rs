//! SecSV, HESV and SecretSV as roles that take a message and return messages.

pub mod decryptors;
