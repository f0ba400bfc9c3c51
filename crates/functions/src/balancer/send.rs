//! How a packet leaves, in each mode. Imports `asterism_function` and what lies beside it.
//!
//! Tunnel: RFC 2003. The inner packet's time to live is decremented, as it is forwarded (section 3.1); "don't fragment" and
//! the type of service are copied to the outer header. What is too long with the outer header is refused by "fragmentation
//! needed" with what the tunnel leaves, or, where it may be cut, cut before it goes in, so that the backend need not put
//! the outer packets together (section 5).

use core::net::Ipv4Addr;
use core::ops::ControlFlow;

use asterism_function::{
    Act, Ask, Cut, Endpoint, Fragment, Late, Packet, Reason, Tick, Vacancy, Verdict, build,
    checksum,
};

use super::fragment::Led;
use super::{Balancer, BalancerState, Mode};
use crate::nat::FragmentKey;
use crate::nat::neighbour::{NextHop, next_hop};
use crate::nat::open::length_of;
use crate::nat::report::{Report, own_identification};
use crate::nat::route::Link;

/// Bytes of the outer header of a tunnel.
const OUTER: usize = 20;
/// Bytes of a packet that is cut or put into another, at most: what a function may emit.
const EMITTED_PACKET_MAX: usize = 1_500;
/// Parts that a packet is cut into at most.
const PARTS_MAX: usize = 45;
/// IP in IP (RFC 2003).
const PROTOCOL_IPV4: u8 = 4;
const DONT_FRAGMENT: u8 = 0x40;
/// The time to live of outer packets.
const OUTER_TTL: u8 = 64;

/// What is done with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Path {
    /// It goes to this backend.
    ToBackend(Mode, Endpoint),
    /// It comes from a backend, and goes to its destination as if from this endpoint.
    ToClient(Endpoint),
}

/// A packet that may leave, and how.
#[derive(Debug)]
pub(super) struct Departure<'n> {
    path: Path,
    link: &'n Link,
    hop: NextHop,
    cut: Option<Cut>,
    fragment: Option<(FragmentKey, Vacancy)>,
    identification: [u8; 2],
    now: Tick,
}

impl Balancer {
    /// Whether and how a packet leaves. If it does not, all that is due was done.
    pub(super) fn departure<'a, 'n>(
        &'n self,
        ask: Ask<'a, BalancerState>,
        path: Path,
    ) -> Result<ControlFlow<Verdict, (Ask<'a, BalancerState>, Departure<'n>)>, Late> {
        let (link, towards) = match path {
            Path::ToBackend(_, backend) => (&self.backends, Some(backend.address)),
            Path::ToClient(_) => (&self.clients, ask.packet().ipv4_destination()),
        };
        if path.hops() && ask.packet().ttl().is_none_or(|ttl| ttl <= 1) {
            let verdict = self.report(ask, Report::TimeExceeded, Reason::TtlExceeded)?;
            return Ok(ControlFlow::Break(verdict));
        }
        let cut = match cut(ask.packet(), link, path) {
            Ok(cut) => cut,
            Err(most) => {
                let verdict = if ask.packet().ipv4_dont_fragment() == Some(true) {
                    self.report(ask, Report::TooBig(most), Reason::PacketTooBig)?
                } else {
                    Verdict::Drop(Reason::PacketTooBig)
                };
                return Ok(ControlFlow::Break(verdict));
            }
        };
        let Some(towards) = towards else {
            return Ok(ControlFlow::Break(Verdict::Drop(Reason::NoRoute)));
        };
        let hop = next_hop(&ask.neighbours, ask.now(), link, towards)?;
        match hop {
            NextHop::Unresolved(address) => {
                return Ok(ControlFlow::Break(self.resolve(ask, link, address)?));
            }
            NextHop::Unreachable => {
                return Ok(ControlFlow::Break(Verdict::Drop(Reason::NoRoute)));
            }
            NextHop::Station(_) | NextHop::Ageing(_) => {}
        }
        let fragment = if ask.packet().layout().fragment() == Fragment::First {
            match (FragmentKey::of(ask.packet()), ask.fragments.vacancy()?) {
                (Some(key), Some(vacancy)) => Some((key, vacancy)),
                _ => return Ok(ControlFlow::Break(Verdict::Drop(Reason::TableFull))),
            }
        } else {
            None
        };
        let departure = Departure {
            path,
            link,
            hop,
            cut,
            fragment,
            identification: own_identification(&ask),
            now: ask.now(),
        };
        Ok(ControlFlow::Continue((ask, departure)))
    }
}

impl Path {
    /// Whether the packet counts this as a hop. Direct return leaves it as it is.
    const fn hops(self) -> bool {
        !matches!(self, Self::ToBackend(Mode::Direct, _))
    }

    const fn is_tunnel(self) -> bool {
        matches!(self, Self::ToBackend(Mode::Tunnel, _))
    }
}

impl Departure<'_> {
    /// Edits the packet and sends it on.
    pub(super) fn leave(mut self, mut act: Act<'_, BalancerState>) -> Verdict {
        if self.path.hops() {
            act.packet.decrement_ttl();
        }
        match self.path {
            Path::ToBackend(Mode::Nat, backend) => act.packet.set_destination(backend),
            Path::ToBackend(..) => {}
            Path::ToClient(service) => act.packet.set_source(service),
        }
        if let Some((key, vacancy)) = self.fragment.take() {
            act.fragments.insert(vacancy, key, Led::of(self.path));
        }
        self.hand_over(act)
    }

    /// Addresses the frame to the next hop and sends it there.
    fn hand_over(self, mut act: Act<'_, BalancerState>) -> Verdict {
        let interface = self.link.interface;
        let station = match self.hop {
            NextHop::Station(station) => station,
            NextHop::Ageing(known) => {
                let mut asked = known.value;
                asked.asked = self.now;
                act.neighbours.update(&known, asked);
                act.emit(interface.port, |_, out| {
                    build::arp_request(interface.mac, interface.address, known.row.0, out)
                });
                known.value.mac
            }
            // `Balancer::departure` ended these.
            NextHop::Unresolved(_) | NextHop::Unreachable => {
                return Verdict::Drop(Reason::NoRoute);
            }
        };
        act.packet.set_ethernet(interface.mac, station);
        let parts = self.cut.as_ref().map_or(1, Cut::count);
        if let Path::ToBackend(Mode::Tunnel, backend) = self.path {
            let outer = Outer {
                source: interface.address,
                destination: backend.address,
                identification: self.identification,
            };
            for part in 0..parts {
                // What finds no room is counted by the engine, as `emission-overflow`.
                act.emit(interface.port, |packet, out| {
                    outer.around(packet, self.cut.as_ref(), part, out)
                });
            }
            return Verdict::Consumed;
        }
        let Some(cut) = self.cut else {
            return Verdict::Forward(interface.port);
        };
        for part in 0..parts {
            act.emit(interface.port, |packet, out| {
                cut.write(packet.bytes(), part, out)
            });
        }
        Verdict::Consumed
    }
}

/// How a packet is cut for a link; `None`: it is short enough. `Err`: it is too long; how long it may be.
fn cut(packet: &Packet<'_>, link: &Link, path: Path) -> Result<Option<Cut>, u16> {
    let mut most = match link.interface.mtu {
        0 => usize::from(u16::MAX),
        mtu => mtu.into(),
    };
    if path.is_tunnel() {
        most = most.min(EMITTED_PACKET_MAX) - OUTER;
    }
    if length_of(packet) <= most {
        return Ok(None);
    }
    let room = most.min(EMITTED_PACKET_MAX);
    match Cut::of(packet, room).filter(|cut| cut.count() <= PARTS_MAX) {
        Some(cut) => Ok(Some(cut)),
        None => Err(most as u16),
    }
}

/// The header around a packet in a tunnel.
struct Outer {
    source: Ipv4Addr,
    destination: Ipv4Addr,
    identification: [u8; 2],
}

impl Outer {
    /// Writes a packet, or a part of it, with the outer header.
    fn around(
        &self,
        packet: &Packet<'_>,
        cut: Option<&Cut>,
        part: usize,
        out: &mut [u8],
    ) -> Option<usize> {
        let at = packet.layout().network_offset();
        let inner_end = match cut {
            Some(cut) => cut.write(packet.bytes(), part, out)?,
            None => {
                let whole = packet.bytes().get(..packet.layout().end())?;
                out.get_mut(..whole.len())?.copy_from_slice(whole);
                whole.len()
            }
        };
        let end = inner_end + OUTER;
        let out = out.get_mut(..end)?;
        out.copy_within(at..inner_end, at + OUTER);
        let (service, dont_fragment) = (out[at + OUTER + 1], out[at + OUTER + 6] & DONT_FRAGMENT);
        let header = out.get_mut(at..at + OUTER)?;
        header.fill(0);
        header[0] = 0x45;
        header[1] = service;
        header[2..4].copy_from_slice(&u16::try_from(end - at).ok()?.to_be_bytes());
        // Parts of one packet are packets of their own here: each has another identification.
        let identification = u16::from_be_bytes(self.identification).wrapping_add(part as u16);
        header[4..6].copy_from_slice(&identification.to_be_bytes());
        header[6] = dont_fragment;
        header[8] = OUTER_TTL;
        header[9] = PROTOCOL_IPV4;
        header[12..16].copy_from_slice(&self.source.octets());
        header[16..20].copy_from_slice(&self.destination.octets());
        let sum = checksum::of(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        Some(end)
    }
}
