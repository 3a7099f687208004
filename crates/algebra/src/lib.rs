//! Fields, rings, fixed point, matrices, additive shares, PRG and secrets.
