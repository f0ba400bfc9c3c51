//! All tests of this crate from outside, in one program: each further one costs seconds of linking.

mod arp;
mod captures;
mod edits;
mod facts;
mod frames;
mod fuzz_replay;
mod icmp_errors;
mod layouts;
mod oracle;
