//! Who may decrypt what.
