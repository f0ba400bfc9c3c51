//! The contract, for each function of the library: its packets, the reasons that it drops for, and what it keeps. See
//! docs/src/contract.md.

#[path = "../balancer/network.rs"]
#[allow(dead_code, reason = "shared with the balancer's tests")]
mod balanced;
mod cases;
#[path = "../cache_digests/frames.rs"]
#[allow(dead_code, reason = "shared with the tests of cache digests")]
mod digested;
#[path = "../firewall/packets.rs"]
#[allow(dead_code, reason = "shared with the firewall's tests")]
mod filtered;
#[path = "../port_scan/packets.rs"]
#[allow(dead_code, reason = "shared with the tests of the port-scan detector")]
mod made;
#[path = "../signature/packets.rs"]
#[allow(dead_code, reason = "shared with the tests of signatures")]
mod signed;
#[path = "../nat/network.rs"]
#[allow(dead_code, reason = "shared with the NAT's tests")]
mod translated;

asterism_function::contract! {
    nat: crate::cases::nat(),
    firewall: crate::cases::firewall(),
    balancer: crate::cases::balancer(),
    port_scan: crate::cases::port_scan(),
    signature: crate::cases::signature(),
    monitor: crate::cases::monitor(),
    limiter: crate::cases::limiter(),
    span: crate::cases::span(),
    cache_digests: crate::cases::cache_digests(),
    pass_through: crate::cases::pass_through(),
    chain: crate::cases::chain(),
}
