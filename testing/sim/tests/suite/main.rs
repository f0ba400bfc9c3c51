//! All tests of this crate from outside, in one program: each further one costs seconds of linking.

mod forged_segments;
mod functions;
mod remote;
mod seeds;
mod stores;
