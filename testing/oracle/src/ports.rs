//! Which port Linux chose and which one we did, session by session.
//!
//! The choice of a port is the one thing that may differ. Here it is known as a bijection for each remote endpoint: an
//! outside port of Linux is one of ours and no other's. Packets to an outside port of Linux are readdressed to ours
//! before our NAT gets them, and what it sends is readdressed to Linux's before it is compared.

use std::collections::HashMap;

use crate::setup::Setup;
use crate::wire::{self, End, Ip, Place};

/// A session as seen from outside: protocol, remote endpoint, outside endpoint with Linux's port.
pub(crate) type Session = (u8, End, End);

/// What is known of one session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Our port.
    pub(crate) ours: u16,
    /// When a packet of it left both, last.
    pub(crate) last_us: u64,
    /// A reset, or FINs of both ends, were seen.
    pub(crate) ended: bool,
    fins: u8,
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    sessions: HashMap<Session, Known>,
    /// The session through an outside endpoint that was used last: for packets of strangers to it.
    latest: HashMap<(u8, End), Session>,
    /// By our port.
    back: HashMap<(u8, End, End), u16>,
}

/// Whether the choice of a port is consistent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Consistent {
    Yes,
    /// It is a new choice, and the old one may be forgotten: the session was ended or idle.
    Again,
    No,
}

impl Ports {
    pub(crate) fn get(&self, session: &Session) -> Option<&Known> {
        self.sessions.get(session)
    }

    /// Whether our port may stand for Linux's in a session, now.
    pub(crate) fn consistent(
        &self,
        session: &Session,
        ours: u16,
        now_us: u64,
        idle_us: u64,
    ) -> Consistent {
        let (protocol, remote, (address, theirs)) = *session;
        let forgotten = |session: &Session| {
            self.sessions
                .get(session)
                .is_none_or(|known| known.ended || now_us >= known.last_us + idle_us)
        };
        let clash = match self.sessions.get(session) {
            Some(known) if known.ours != ours => Some(*session),
            Some(_) => None,
            None => self
                .back
                .get(&(protocol, remote, (address, ours)))
                .filter(|other| **other != theirs)
                .map(|other| (protocol, remote, (address, *other))),
        };
        match clash {
            None => Consistent::Yes,
            Some(other) if forgotten(&other) => Consistent::Again,
            Some(_) => Consistent::No,
        }
    }

    /// A packet of the session left both.
    pub(crate) fn seen(
        &mut self,
        session: Session,
        ours: u16,
        flags: Option<u8>,
        from_outside: bool,
        now_us: u64,
    ) {
        let (protocol, remote, outside) = session;
        let known = self.sessions.entry(session).or_insert(Known {
            ours,
            last_us: now_us,
            ended: false,
            fins: 0,
        });
        let flags = flags.unwrap_or(0);
        if flags & wire::SYN != 0 && known.ended {
            (known.ended, known.fins) = (false, 0);
        }
        if flags & wire::FIN != 0 {
            known.fins |= 1 << u8::from(from_outside);
        }
        known.ended |= flags & wire::RST != 0 || known.fins == 3;
        known.last_us = now_us;
        if known.ours != ours {
            self.back
                .remove(&(protocol, remote, (outside.0, known.ours)));
            known.ours = ours;
        }
        self.back
            .insert((protocol, remote, (outside.0, ours)), outside.1);
        self.latest.insert((protocol, outside), session);
    }

    /// Readdresses a packet that was sent to an outside port of Linux to ours.
    pub(crate) fn to_ours(&self, frame: &mut [u8], setup: &Setup) {
        rewrite(frame, setup, |protocol, remote, outside| {
            let session = (protocol, remote, outside);
            let known = self.sessions.get(&session).or_else(|| {
                let latest = self.latest.get(&(protocol, outside))?;
                self.sessions.get(latest)
            })?;
            Some(known.ours)
        });
    }

    /// Readdresses a packet of ours as if Linux's ports were in it; unknown ones stay.
    pub(crate) fn to_theirs(&self, frame: &mut [u8], setup: &Setup) {
        rewrite(frame, setup, |protocol, remote, outside| {
            self.back.get(&(protocol, remote, outside)).copied()
        });
    }
}

/// The sessions that a frame names, with the place of the outside port: of the packet, and of the one that it quotes.
pub(crate) fn named(frame: &[u8], setup: &Setup) -> Vec<(Session, Place)> {
    let Some(ip) = Ip::of(frame) else {
        return Vec::new();
    };
    let mut named = Vec::new();
    for ip in [Some(&ip), ip.quoted(frame).as_ref()].into_iter().flatten() {
        let (source, destination) = ip.ends(frame);
        for place in ip.places(frame) {
            let (outside, mut remote) = if place.is_source {
                (source, destination)
            } else {
                (destination, source)
            };
            if ip.protocol == wire::ICMP {
                remote.1 = 0;
            }
            if setup.is_outside_address(outside.0) {
                named.push(((ip.protocol, remote, outside), place));
            }
        }
    }
    named
}

/// Puts these ports at these places.
pub(crate) fn rewrite_to(frame: &mut [u8], setup: &Setup, ports: &[(usize, u16)]) {
    rewrite_places(frame, setup, |_, place| {
        let wanted = ports.iter().find(|(at, _)| *at == place.at)?;
        Some(wanted.1)
    });
}

fn rewrite(frame: &mut [u8], setup: &Setup, port: impl Fn(u8, End, End) -> Option<u16>) {
    rewrite_places(frame, setup, |(protocol, remote, outside), _| {
        port(protocol, remote, outside)
    });
}

fn rewrite_places(frame: &mut [u8], setup: &Setup, port: impl Fn(Session, Place) -> Option<u16>) {
    let Some(outer) = Ip::of(frame) else {
        return;
    };
    let quoted = outer.quoted(frame);
    for (session, place) in named(frame, setup) {
        let Some(new) = port(session, place).filter(|new| *new != place.port) else {
            continue;
        };
        let is_udp = session.0 == wire::UDP;
        match &quoted {
            Some(quoted) => {
                // The error's checksum covers the port and the checksum inside.
                let error_checksum = outer.transport + 2;
                if let Some(at) = quoted.checksum_at()
                    && let Some(old) = wire::word(frame, at)
                {
                    wire::replace(frame, place.at, new, at, is_udp);
                    if let Some(repaired) = wire::word(frame, at) {
                        wire::put(frame, at, old);
                        wire::replace(frame, at, repaired, error_checksum, false);
                    }
                    wire::put(frame, place.at, place.port);
                }
                wire::replace(frame, place.at, new, error_checksum, false);
            }
            None => {
                if let Some(at) = outer.checksum_at() {
                    wire::replace(frame, place.at, new, at, is_udp);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::build;
    use core::net::Ipv4Addr;

    const REMOTE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
    const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

    fn setup() -> Setup {
        let text = "
            inside = 192.168.50.1/24 02:00:00:00:00:01 mtu 1500
            outside = 198.51.100.1/24 02:00:00:00:00:02 mtu 1500
        ";
        Setup::read(text, "").unwrap()
    }

    fn udp(from: End, to: End) -> Vec<u8> {
        let header = build::Header4::between(from.0, to.0);
        let mut out = vec![0; 200];
        let length = build::udp4(&header, from.1, to.1, b"payload", &mut out).unwrap();
        out.truncate(length);
        out
    }

    fn known() -> (Ports, Session) {
        let session = (wire::UDP, (REMOTE, 53), (OUTSIDE, 46_842));
        let mut ports = Ports::default();
        ports.seen(session, 40_001, None, false, 0);
        (ports, session)
    }

    #[test]
    fn ports_are_exchanged_both_ways_with_right_checksums() {
        let (setup, (ports, _)) = (setup(), known());
        let mut reply = udp((REMOTE, 53), (OUTSIDE, 46_842));
        ports.to_ours(&mut reply, &setup);
        assert_eq!(reply, udp((REMOTE, 53), (OUTSIDE, 40_001)));
        let mut packet = udp((OUTSIDE, 40_001), (REMOTE, 53));
        ports.to_theirs(&mut packet, &setup);
        assert_eq!(packet, udp((OUTSIDE, 46_842), (REMOTE, 53)));
        // In the packet that an error quotes, too.
        let error = |packet: &[u8]| {
            let mut out = vec![0; 200];
            let length = build::icmp_unreachable(packet, REMOTE, 3, &mut out).unwrap();
            out.truncate(length);
            out
        };
        let mut quoted = error(&udp((OUTSIDE, 46_842), (REMOTE, 53)));
        ports.to_ours(&mut quoted, &setup);
        assert_eq!(quoted, error(&udp((OUTSIDE, 40_001), (REMOTE, 53))));
        // A stranger's packet goes to anyone who used the port last.
        let mut stranger = udp((REMOTE, 99), (OUTSIDE, 46_842));
        ports.to_ours(&mut stranger, &setup);
        assert_eq!(stranger, udp((REMOTE, 99), (OUTSIDE, 40_001)));
    }

    #[test]
    fn a_second_choice_is_consistent_only_when_the_first_has_ended() {
        let (mut ports, session) = known();
        let idle = 10;
        assert_eq!(ports.consistent(&session, 40_001, 5, idle), Consistent::Yes);
        assert_eq!(ports.consistent(&session, 40_002, 5, idle), Consistent::No);
        assert_eq!(
            ports.consistent(&session, 40_002, 10, idle),
            Consistent::Again
        );
        // One port of ours for two of Linux's.
        let other = (wire::UDP, (REMOTE, 53), (OUTSIDE, 50_000));
        assert_eq!(ports.consistent(&other, 40_001, 5, idle), Consistent::No);
        assert_eq!(ports.consistent(&other, 40_003, 5, idle), Consistent::Yes);
        ports.seen(session, 40_001, Some(wire::RST), false, 5);
        assert_eq!(ports.consistent(&other, 40_001, 6, idle), Consistent::Again);
    }
}
