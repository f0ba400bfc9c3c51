//! All tests of this crate from outside, in one program: each further one costs seconds of linking.

mod cluster_kit;
mod contract;
mod derives;
mod store;
mod testkit;
