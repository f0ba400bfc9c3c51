//! The deterministic simulator and its checkers.
