//! All tests of this crate from outside, in one program: each further one costs seconds of linking.

mod firewall;
mod live;
mod recordings;
