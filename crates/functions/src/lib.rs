//! The library of network functions.
