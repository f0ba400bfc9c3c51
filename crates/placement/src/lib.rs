//! The placement protocols, sans I/O.
