//! The port-scan IDPS over real captures, over evidence that is split between instances, and over hostile packets.

mod capture;
mod cluster;
mod evasions;
mod flood;
mod hostile;
mod innocents;
mod ip;
mod labelled;
mod manual;
mod metrics;
mod ordinary;
pub(crate) mod packets;
mod slow;
mod volume;
