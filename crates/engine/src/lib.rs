//! The packet loop, ports and links.

pub mod frame;
pub mod link;
pub mod pages;
pub mod port;
pub mod ring;
