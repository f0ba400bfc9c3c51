//! Tests of the director from outside: frames in, frames out.

mod allocations;
mod fuzz_replay;
mod harness;
mod hostile;
mod link;
mod namespaces;
mod steering;
mod two;
mod waiting;
