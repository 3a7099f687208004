//! Encrypted matrix times shared or clear matrix: BFV presets, keys, ciphertexts, wire format and three matrix methods.
