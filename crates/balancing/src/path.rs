//! How a packet reaches a backend in each mode, and how the answer returns.

use core::net::Ipv4Addr;

use asterism_forwarding::{
    Egress, ForwardingMode, Forwards, FragmentContext, Router, Side, portless,
};
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
    /// From one host of the backends' link to another, both ends translated; without an address the source is the router itself.
    Masqueraded(Endpoint, Endpoint),
    /// An ICMP error about what went the other way.
    ErrorMasqueraded(Endpoint, Endpoint),
}

impl Flow {
    /// The path of a packet that came from a side.
    #[inline]
    #[must_use]
    pub fn path(&self, from: Side) -> Path {
        match from {
            _ if self.role.is_masqueraded() => {
                let (source, destination) = self.masqueraded(from);
                Path::Masqueraded(source, destination)
            }
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
            _ if self.role.is_masqueraded() => {
                let (source, destination) = self.masqueraded(from);
                Path::ErrorMasqueraded(source, destination)
            }
            Side::Outside => Path::ErrorToBackend(self.mode, self.backend),
            Side::Inside => Path::ErrorToClient(self.service),
        }
    }

    #[cold]
    fn masqueraded(&self, from: Side) -> (Endpoint, Endpoint) {
        match from {
            Side::Outside => (self.seen_client(), self.backend),
            Side::Inside => (self.service, self.client),
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
        let Some(egress) = self.egress(ask.packet()) else {
            return Ok(Verdict::Drop(Reason::NoRoute));
        };
        router.forward(ask, egress, |act| {
            self.edit(router.inside.interface.address, &mut act.packet);
            write(act);
        })
    }

    #[inline]
    fn egress(self, packet: &Packet<'_>) -> Option<Egress> {
        Some(match self {
            Self::ToBackend(mode, backend) | Self::ErrorToBackend(mode, backend) => {
                Egress::new(Side::Inside, backend.address, mode.mode())
            }
            Self::ToClient(_) | Self::ErrorToClient(_) => {
                Egress::routed(Side::Outside, packet.ipv4_destination()?)
            }
            Self::Masqueraded(_, to) | Self::ErrorMasqueraded(_, to) => {
                Egress::routed(Side::Inside, to.address)
            }
        })
    }

    #[inline]
    fn edit(self, own: Ipv4Addr, packet: &mut Packet<'_>) {
        let named = |end: Endpoint| match end.address.is_unspecified() {
            true => Endpoint::new(own, end.port, end.protocol),
            false => end,
        };
        match self {
            Self::Masqueraded(source, destination) => {
                packet.set_source(named(source));
                packet.set_destination(destination);
            }
            Self::ErrorMasqueraded(source, destination) => {
                let source = named(source);
                packet.set_source(portless(source.address));
                packet.set_destination(portless(destination.address));
                packet.set_embedded_source(destination);
                packet.set_embedded_destination(source);
            }
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
    const fn mode(self) -> ForwardingMode {
        match self {
            Self::Nat => ForwardingMode::Routed,
            Self::Direct => ForwardingMode::Switched,
            Self::Tunnel => ForwardingMode::Tunnelled,
        }
    }

    const fn of_carriage(mode: ForwardingMode) -> Self {
        match mode {
            ForwardingMode::Routed => Self::Nat,
            ForwardingMode::Switched => Self::Direct,
            ForwardingMode::Tunnelled => Self::Tunnel,
        }
    }
}

/// What a first fragment leaves for the later ones of its datagram: where they go, and between which ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Value)]
#[wire(check = Self::is_known)]
#[value(order)]
pub struct Led {
    /// The mode of those that go by the backends' link, one more than its code; 0 of those that go to a client outside.
    kind: u8,
    /// The source that they leave with.
    source: Ipv4Addr,
    /// The destination that they leave with; in direct return and in a tunnel the backend.
    address: Ipv4Addr,
}

impl Led {
    fn is_known(&self) -> bool {
        self.kind == 0 || self.mode().is_some()
    }
    fn mode(self) -> Option<Mode> {
        self.kind.checked_sub(1).and_then(Mode::from_code)
    }
}

impl FragmentContext for Led {
    fn of(packet: &Packet<'_>, egress: &Egress) -> Option<Self> {
        Some(Self {
            kind: match egress.side {
                Side::Inside => Mode::of_carriage(egress.mode).code() + 1,
                Side::Outside => 0,
            },
            source: packet.ipv4_source()?,
            address: egress.towards,
        })
    }
    fn egress(&self, _: &Router, _: &Packet<'_>) -> Option<Egress> {
        Some(match self.mode() {
            Some(mode) => Egress::new(Side::Inside, self.address, mode.mode()),
            None => Egress::routed(Side::Outside, self.address),
        })
    }
    fn edit(&self, packet: &mut Packet<'_>) {
        if [None, Some(Mode::Nat)].contains(&self.mode()) {
            packet.set_source(portless(self.source));
            packet.set_destination(portless(self.address));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::Role;
    use asterism_function::{Protocol, build};

    fn own() -> Ipv4Addr {
        [10, 0, 0, 254].into()
    }

    fn bytes_of(packet: &Packet<'_>) -> Vec<u8> {
        packet.bytes().to_vec()
    }

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
                role: Role::default(),
            };
            for (from, mut bytes) in [
                (Side::Outside, frame(client, service)),
                (Side::Inside, frame(backend, client)),
            ] {
                let mut packet = Packet::parse(&mut bytes).unwrap();
                let path = flow.path(from);
                let egress = path.egress(&packet).unwrap();
                let mut later = bytes_of(&packet);
                path.edit(own(), &mut packet);
                let led = Led::of(&packet, &egress).unwrap();
                assert!(led.is_known());
                let ends = (packet.ipv4_source(), packet.ipv4_destination());
                let mut later = Packet::parse(&mut later).unwrap();
                led.edit(&mut later);
                assert_eq!((later.ipv4_source(), later.ipv4_destination()), ends);
                assert_eq!(
                    (led.address, led.kind == 0),
                    (egress.towards, from == Side::Inside)
                );
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
            Path::ToBackend(mode, backend).edit(own(), &mut packet);
            assert_eq!(packet.flow4().unwrap().destination(), expected);
            assert_eq!(packet.flow4().unwrap().source(), client);
            assert_eq!(packet.verify_transport_checksum(), Some(true));
        }
    }
}
