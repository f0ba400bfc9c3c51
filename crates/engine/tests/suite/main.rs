//! All tests of this crate from outside, in one program: each further one costs seconds of linking.

mod audit;
mod backlog;
mod bad_groups;
mod chain;
mod cluster;
mod dates;
mod holding;
mod homes;
mod packet_loop;
mod prefetching;
mod sites;
mod store_end;
mod stored;
mod transport;
