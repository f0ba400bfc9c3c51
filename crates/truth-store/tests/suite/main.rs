//! Tests of the stores: the laws on each, the embedded one killed and damaged, etcd killed, paused, compacted and behind a
//! proxy that lies, and an etcd in memory with troubles that a real one has rarely.

mod embedded;
mod etcd;
mod etcd_access;
mod etcd_troubles;
mod gateway;
mod log_replay;
mod memory;
mod proxy;
