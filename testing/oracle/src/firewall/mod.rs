//! The firewall judged by Linux: the same packets through connection tracking and through ours, verdict by verdict. Needs
//! root. Read first: `judges.rs`.
//!
//! [`Judges`] has both side by side. A packet with two different verdicts counts as a difference, unless a [`Rule`] with its
//! clause explains it, whose condition must hold for that packet.

mod judges;
mod linux;
mod packets;
mod rules;
mod scripts;

pub use judges::{Difference, Judges, Tally};
pub use packets::{Step, captures, steps};
pub use rules::Rule;
pub use scripts::{lost_servers, script};

/// The Ethernet address of what is inside.
const MAC_INSIDE: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The Ethernet address of what is outside.
const MAC_OUTSIDE: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Which way a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From inside.
    Out,
    /// From outside.
    In,
}

/// One policy, in both languages.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// What it is called.
    pub name: &'static str,
    /// As our rule file.
    pub rules: &'static str,
    /// As statements of nftables, behind those for states.
    pub nft: &'static str,
    /// Whether connections may be picked up in their middle.
    pub picks_up: bool,
}

impl Policy {
    /// Inside may begin everything, outside a few services; connections are known from their beginning.
    pub const STRICT: Self = Self {
        name: "strict",
        rules: RULES,
        nft: NFT,
        picks_up: false,
    };
    /// The same, with connections that are picked up in their middle.
    pub const LOOSE: Self = Self {
        name: "loose",
        picks_up: true,
        ..Self::STRICT
    };
    /// All policies.
    pub const ALL: [Self; 2] = [Self::STRICT, Self::LOOSE];
}

const RULES: &str = "\
set services = 22, 80, 443, 8000-8099
drop tcp on inside to 198.18.0.0/15
allow any on inside
allow tcp on outside to any port @services
allow udp on outside to any port 53
allow icmp, icmpv6 on outside
default drop
";

const NFT: &str = "\
ether saddr 02:00:00:00:00:01 ip daddr 198.18.0.0/15 meta l4proto tcp drop
ether saddr 02:00:00:00:00:01 accept
tcp dport { 22, 80, 443, 8000-8099 } accept
udp dport 53 accept
meta l4proto { icmp, icmpv6 } accept
";
