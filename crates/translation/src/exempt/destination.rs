//! The destinations that are not translated, as an operator sets them.

use core::net::Ipv4Addr;

use asterism_forwarding::{Faults, Prefix};
use asterism_function::Protocol;

/// Destinations that are not translated, at most: they are searched one after the other for each of their packets.
pub const EXEMPT_MAX: usize = 64;

/// A destination outside that is not translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NatExemption {
    /// Its addresses. Those that are inside, and the NAT's own, are left out of it.
    pub to: Prefix,
    /// Its protocol; `None`: of every one, those that the NAT does not translate among them.
    pub protocol: Option<Protocol>,
    /// Its first and last port, of TCP and UDP alone; `None`: packets of every port, and those without.
    pub ports: Option<(u16, u16)>,
}

impl NatExemption {
    /// All of a network.
    #[must_use]
    pub const fn all(to: Prefix) -> Self {
        Self {
            to,
            protocol: None,
            ports: None,
        }
    }

    /// Whether a remote end is one of them. `port` is `None` of packets without one: later fragments belong to a port that they do
    /// not say.
    #[must_use]
    pub fn covers(&self, address: Ipv4Addr, protocol: Protocol, port: Option<u16>) -> bool {
        self.to.contains(address)
            && self.protocol.is_none_or(|own| own == protocol)
            && self.ports.is_none_or(|(first, last)| {
                has_ports(protocol) && port.is_some_and(|port| (first..=last).contains(&port))
            })
    }
}

const fn has_ports(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::TCP | Protocol::UDP)
}

/// What is wrong with the destinations that are not translated.
pub(crate) fn check_exempt(exempt: &[NatExemption], faults: &mut Faults) {
    const FIELD: &str = "exempt";
    let count = exempt.len();
    if count > EXEMPT_MAX {
        faults.add(FIELD, format!("{count} exceed {EXEMPT_MAX}"));
    }
    for NatExemption {
        to,
        protocol,
        ports,
    } in exempt
    {
        if to.length > 32 {
            faults.add(FIELD, format!("{to}: the length exceeds 32"));
        }
        let Some((first, last)) = ports else {
            continue;
        };
        if *first == 0 || first > last {
            let sentence = format!("{to}: {first} to {last} is no range of ports");
            faults.add(FIELD, sentence);
        }
        if protocol.is_some_and(|protocol| !has_ports(protocol)) {
            faults.add(FIELD, format!("{to}: only tcp and udp have ports"));
        }
    }
}

/// What all members must have alike: what one host translates, another must.
pub(crate) fn write(exempt: &[NatExemption], bytes: &mut Vec<u8>) {
    for one in exempt {
        let (first, last) = one.ports.unwrap_or((0, 0));
        bytes.extend((one.to.address.to_bits() & one.to.mask()).to_be_bytes());
        bytes.extend([one.to.length, one.protocol.map_or(0, |own| own.0)]);
        bytes.extend(first.to_be_bytes());
        bytes.extend(last.to_be_bytes());
    }
}
