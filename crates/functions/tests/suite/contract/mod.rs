//! The contract, for each function of the library: its packets, the reasons that it drops for, and what it keeps. See
//! docs/src/contract.md.

mod cases;
mod signatures;

use crate::balancer::network as balanced;
use crate::cache_digests::frames as digested;
use crate::firewall::packets as filtered;
use crate::nat::network as translated;
use crate::port_scan::packets as made;

asterism_function::contract! {
    nat: crate::contract::cases::nat(),
    firewall: crate::contract::cases::firewall(),
    balancer: crate::contract::cases::balancer(),
    port_scan: crate::contract::cases::port_scan(),
    signature: crate::contract::signatures::signature(),
    reassembly: crate::contract::signatures::reassembly(),
    monitor: crate::contract::cases::monitor(),
    limiter: crate::contract::cases::limiter(),
    span: crate::contract::cases::span(),
    cache_digests: crate::contract::cases::cache_digests(),
    pass_through: crate::contract::cases::pass_through(),
    chain: crate::contract::cases::chain(),
}
