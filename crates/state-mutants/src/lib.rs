//! What tests plant in the state objects, and which branches of theirs they count: two lists, apart from the code that asks for them.
//!
//! Below the state objects, which export both as modules of their own.

#![forbid(unsafe_code)]

pub mod branch;
pub mod mutant;
