//! The attribute `#[state]` that makes a struct of state objects usable by a network function.
