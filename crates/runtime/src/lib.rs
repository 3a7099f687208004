//! Drives estimators against clear or secure evaluation of a federation.
