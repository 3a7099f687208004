//! Contribution values from coalition utilities: exact and sampled, plan, absorb, finish.
