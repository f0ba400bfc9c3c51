//! Hosts in threads of this process, over sockets of the kernel. Read `hosts` first.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the I/O layer wait for the kernel and read its clock"
)]

mod hostile;
mod hosts;
mod loopback;
mod namespaces;
mod relay;
mod rotation;
mod silence;
mod sites;
mod sockets;
