//! Data sets, non-IID splits and federated averaging that write run directories.
