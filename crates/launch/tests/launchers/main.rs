//! Launchers on the real system: processes, processes in network namespaces, containers by podman. All keep the same laws, with a
//! host program that behaves as its configuration says (`stub.rs`).

mod container;
mod crash;
mod namespace;
mod process;
mod stub;
