//! All tests of this crate from outside, in one program: each further one costs seconds of linking.

mod balancer;
mod cache_digests;
mod chain;
mod contract;
mod firewall;
mod limiter;
mod monitor;
mod nat;
mod nfcapd;
mod port_scan;
mod records;
mod signature;
