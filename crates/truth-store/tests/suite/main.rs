//! Tests of the stores: the laws on each, the embedded one killed and damaged, etcd killed, paused, compacted and behind a
//! proxy that lies.

mod embedded;
mod etcd;
mod etcd_access;
mod memory;
mod proxy;
