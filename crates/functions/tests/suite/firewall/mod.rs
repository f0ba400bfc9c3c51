//! The firewall: connections in every order, instances that know parts of them, and hostile packets.

mod asymmetric;
mod blocks;
mod cluster;
mod connections;
mod ends;
mod floods;
mod hostile;
mod manual;
mod metrics;
pub(crate) mod packets;
mod reject;
mod reopening;
mod vlans;
mod waiting;
