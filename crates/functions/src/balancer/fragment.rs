//! What a first fragment leaves for the later ones of its datagram: where they go. Imports `asterism_forwarding`,
//! `asterism_function` and what lies beside it.

use core::net::Ipv4Addr;

use asterism_forwarding::{Lead, Onward, Router, Side, portless};
use asterism_function::{Endpoint, Packet, Value, Wire};

use super::Mode;
use super::send::Path;

/// Where the fragments of a datagram go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Value)]
#[wire(check = Self::is_known)]
#[value(order)]
pub struct Led {
    /// The mode of those that go to a backend, one more than its code; 0 of those that go to a client.
    kind: u8,
    /// The backend, or the service that the client knows.
    address: Ipv4Addr,
}

impl Led {
    fn is_known(&self) -> bool {
        self.kind == 0 || Mode::from_code(self.kind - 1).is_some()
    }
    fn path(self) -> Path {
        let end: Endpoint = portless(self.address);
        match self.kind.checked_sub(1).and_then(Mode::from_code) {
            Some(mode) => Path::ToBackend(mode, end),
            None => Path::ToClient(end),
        }
    }
}

impl Lead for Led {
    fn of(packet: &Packet<'_>, onward: &Onward) -> Option<Self> {
        Some(match onward.side {
            Side::Inside => Self {
                kind: Mode::of_carriage(onward.carriage).code() + 1,
                address: onward.towards,
            },
            Side::Outside => Self {
                kind: 0,
                address: packet.ipv4_source()?,
            },
        })
    }
    fn onward(&self, _: &Router, packet: &Packet<'_>) -> Option<Onward> {
        self.path().onward(packet)
    }
    fn edit(&self, packet: &mut Packet<'_>) {
        self.path().edit(packet);
    }
}
