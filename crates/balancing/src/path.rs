//! How a packet gets to a backend, in each mode, and an answer back. Imports `asterism_forwarding`, `asterism_function`,
//! `flow` and `service`.

use core::net::Ipv4Addr;

use asterism_forwarding::{Carriage, Forwards, Lead, Onward, Router, Side, portless};
use asterism_function::{Act, Ask, Endpoint, Late, Packet, Reason, Value, Verdict, Wire};

use crate::flow::Flow;
use crate::service::Mode;

/// What is done with a packet of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    /// It goes to this backend.
    ToBackend(Mode, Endpoint),
    /// It comes from a backend, and goes to its destination as if from this endpoint.
    ToClient(Endpoint),
    /// An ICMP error about what this backend sent, to it: a router's "fragmentation needed", say. Where the backend answers
    /// directly, this is the only way that it hears of it, since the error comes to the service's address.
    ErrorToBackend(Mode, Endpoint),
    /// An ICMP error, of a backend or of a router before it, about what was sent to this service: to its client.
    ErrorToClient(Endpoint),
}

impl Flow {
    /// The path of a packet that came from a side.
    #[inline]
    #[must_use]
    pub fn path(&self, from: Side) -> Path {
        match from {
            Side::Outside => Path::ToBackend(self.mode, self.backend),
            Side::Inside => Path::ToClient(self.service),
        }
    }

    /// The path of an ICMP error that came from a side, about a packet that went there (RFC 5508 section 4 for those that are
    /// translated).
    #[inline]
    #[must_use]
    pub fn path_of_error(&self, from: Side) -> Path {
        match from {
            Side::Outside => Path::ErrorToBackend(self.mode, self.backend),
            Side::Inside => Path::ErrorToClient(self.service),
        }
    }
}

impl Path {
    /// Sends a packet on as [`Router::forward`] does; `write` writes the state once it is sure that it leaves.
    pub fn send<S: Forwards>(
        self,
        router: &Router,
        ask: Ask<'_, S>,
        write: impl FnOnce(&mut Act<'_, S>),
    ) -> Result<Verdict, Late> {
        let Some(onward) = self.onward(ask.packet()) else {
            return Ok(Verdict::Drop(Reason::NoRoute));
        };
        router.forward(ask, onward, |act| {
            self.edit(&mut act.packet);
            write(act);
        })
    }

    #[inline]
    fn onward(self, packet: &Packet<'_>) -> Option<Onward> {
        Some(match self {
            Self::ToBackend(mode, backend) | Self::ErrorToBackend(mode, backend) => {
                Onward::new(Side::Inside, backend.address, mode.carriage())
            }
            Self::ToClient(_) | Self::ErrorToClient(_) => {
                Onward::routed(Side::Outside, packet.ipv4_destination()?)
            }
        })
    }

    #[inline]
    fn edit(self, packet: &mut Packet<'_>) {
        match self {
            Self::ToBackend(Mode::Nat, backend) => packet.set_destination(backend),
            Self::ErrorToBackend(Mode::Nat, backend) => {
                packet.set_destination(portless(backend.address));
                packet.set_embedded_source(backend);
            }
            Self::ToBackend(..) | Self::ErrorToBackend(..) => {}
            Self::ToClient(service) => packet.set_source(service),
            Self::ErrorToClient(service) => {
                packet.set_source(portless(service.address));
                packet.set_embedded_destination(service);
            }
        }
    }
}

impl Mode {
    const fn carriage(self) -> Carriage {
        match self {
            Self::Nat => Carriage::Routed,
            Self::Direct => Carriage::Switched,
            Self::Tunnel => Carriage::Tunnelled,
        }
    }

    const fn of_carriage(carriage: Carriage) -> Self {
        match carriage {
            Carriage::Routed => Self::Nat,
            Carriage::Switched => Self::Direct,
            Carriage::Tunnelled => Self::Tunnel,
        }
    }
}

/// What a first fragment leaves for the later ones of its datagram: where they go.
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

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::{Protocol, build};

    fn end(last: u8, port: u16) -> Endpoint {
        Endpoint::new([10, 0, 0, last].into(), port, Protocol::UDP)
    }

    fn frame(from: Endpoint, to: Endpoint) -> Vec<u8> {
        let mut frame = vec![0; 128];
        let header = build::Header4::between(from.address, to.address);
        let length = build::udp4(
            &header,
            from.port,
            to.port,
            b"a datagram in parts",
            &mut frame,
        );
        frame.truncate(length.unwrap());
        frame
    }

    #[test]
    fn later_fragments_go_where_the_first_one_went() {
        let (client, service, backend) = (end(1, 5_000), end(2, 53), end(3, 5_353));
        for mode in [Mode::Nat, Mode::Direct, Mode::Tunnel] {
            let flow = Flow {
                client,
                service,
                backend,
                mode,
                place: 0,
            };
            for (from, mut bytes) in [
                (Side::Outside, frame(client, service)),
                (Side::Inside, frame(backend, client)),
            ] {
                let mut packet = Packet::parse(&mut bytes).unwrap();
                let path = flow.path(from);
                let onward = path.onward(&packet).unwrap();
                path.edit(&mut packet);
                let led = Led::of(&packet, &onward).unwrap();
                assert!(led.is_known());
                assert_eq!(led.path().onward(&packet), Some(onward));
                let ends = (packet.ipv4_source(), packet.ipv4_destination());
                led.path().edit(&mut packet);
                assert_eq!((packet.ipv4_source(), packet.ipv4_destination()), ends);
            }
        }
    }

    #[test]
    fn translation_alone_changes_what_a_packet_says() {
        let (client, service, backend) = (end(1, 5_000), end(2, 53), end(3, 5_353));
        for (mode, expected) in [
            (Mode::Nat, backend),
            (Mode::Direct, service),
            (Mode::Tunnel, service),
        ] {
            let mut bytes = frame(client, service);
            let mut packet = Packet::parse(&mut bytes).unwrap();
            Path::ToBackend(mode, backend).edit(&mut packet);
            assert_eq!(packet.flow4().unwrap().destination(), expected);
            assert_eq!(packet.flow4().unwrap().source(), client);
            assert_eq!(packet.verify_transport_checksum(), Some(true));
        }
    }
}
