//! All tests of this crate from outside, in one program: each further one costs seconds of linking.

mod cluster;
mod processes;
mod session;
