//! The packet loop, ports and links.
