//! The firewall: connections in every order, instances that know parts of them, and hostile packets.

mod anew;
mod asymmetric;
mod blocks;
mod by_hand;
mod cluster;
mod connections;
mod ends;
mod floods;
mod hostile;
mod metrics;
mod packets;
mod reject;
mod vlans;
mod waiting;
