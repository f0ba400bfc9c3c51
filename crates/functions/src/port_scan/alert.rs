//! What all instances know of the scans found, the sources blocked and the ports watched.

use asterism_function::notice::{End, Notice, Outcome};
use asterism_function::{
    Ask, BadBytes, Host, Key, Late, OwnEvent, Protocol, Reader, Reason, Tick, Value, Verdict, Wire,
    Writer, layout,
};

use super::{Class, Flood, Methods, PortScan, PortScanState, Service, Shape, Watch};
use crate::events::{DENIAL, SCAN, event};
use asterism_blocking::blocked::{self, BlockedRecord};
use asterism_blocking::manual::{self, BY_HAND, Block, Change};

const TCP_PORTS: OwnEvent = event(1, "TCP port scan", SCAN, 3);
const TCP_HOSTS: OwnEvent = event(2, "TCP host sweep", SCAN, 3);
const UDP_PORTS: OwnEvent = event(3, "UDP port scan", SCAN, 3);
const UDP_HOSTS: OwnEvent = event(4, "UDP host sweep", SCAN, 3);
const ICMP_HOSTS: OwnEvent = event(5, "ICMP sweep", SCAN, 3);
const IP_PROTOCOLS: OwnEvent = event(6, "IP protocol scan", SCAN, 3);
const VOLUME: OwnEvent = event(10, "Destination port over its volume", DENIAL, 2);
const FLOOD: OwnEvent = event(11, "SYN flood", DENIAL, 1);
/// What the detector finds.
pub const EVENTS: [OwnEvent; 8] = [
    TCP_PORTS,
    TCP_HOSTS,
    UDP_PORTS,
    UDP_HOSTS,
    ICMP_HOSTS,
    IP_PROTOCOLS,
    VOLUME,
    FLOOD,
];

/// What an alert is about: there is one for each source, class and shape.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Subject {
    /// Who scans: of IPv6 the first address of its prefix (`PortScanConfig::ipv6_prefix`).
    pub source: Host,
    /// By which protocol.
    pub class: Class,
    /// Many ports, or many hosts.
    pub shape: Shape,
}

impl Subject {
    /// The kind in a few words, for reports.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match (self.class, self.shape) {
            (Class::Tcp, Shape::Ports) => "TCP port scan",
            (Class::Tcp, Shape::Hosts) => "TCP host sweep",
            (Class::Udp, Shape::Ports) => "UDP port scan",
            (Class::Udp, Shape::Hosts) => "UDP host sweep",
            (Class::Icmp, _) => "ICMP sweep",
            (Class::Ip, _) => "IP protocol scan",
        }
    }
}

impl Wire for Subject {
    const LAYOUT: u64 = layout::manual("port-scan subject", 2);
    fn encode(&self, out: &mut Writer<'_>) {
        self.source.encode(out);
        out.u8((self.class as u8) << 1 | self.shape as u8);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let source = Host::decode(input)?;
        let (class, shape) = match input.u8()? {
            0 => (Class::Tcp, Shape::Ports),
            1 => (Class::Tcp, Shape::Hosts),
            2 => (Class::Udp, Shape::Ports),
            3 => (Class::Udp, Shape::Hosts),
            4 => (Class::Icmp, Shape::Ports),
            5 => (Class::Icmp, Shape::Hosts),
            6 => (Class::Ip, Shape::Ports),
            7 => (Class::Ip, Shape::Hosts),
            _ => return Err(BadBytes),
        };
        Ok(Self {
            source,
            class,
            shape,
        })
    }
}

impl Key for Subject {
    fn hash(&self, seed: u64) -> u64 {
        self.source
            .hash(seed ^ (self.class as u64) << 8 ^ self.shape as u64)
    }
}

/// A scan that was found. Joins: the earliest time with what was probed then, the largest counts, all methods.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire)]
pub struct Alert {
    /// When it was first found.
    pub first: Tick,
    /// Host and port of the probe that it was found by; the port is 0 for ICMP, and the protocol's number for IP protocols.
    pub target: (Host, u16),
    /// Who sent that probe: an address of the source.
    pub by: Host,
    /// Distinct ports without an answer within two windows, estimated; 300 stands for more than can be reported. Brought
    /// up to date each time that a count has doubled.
    pub ports: u16,
    /// Distinct hosts that refused or kept silent, likewise.
    pub hosts: u16,
    /// How it was probed.
    pub methods: Methods,
}

impl Value for Alert {
    const JOINS: bool = true;
    fn join(&mut self, other: &Self) {
        let found = |alert: &Self| (alert.first, alert.target, alert.by);
        if found(other) < found(self) {
            (self.first, self.target, self.by) = found(other);
        }
        self.ports = self.ports.max(other.ports);
        self.hosts = self.hosts.max(other.hosts);
        self.methods |= other.methods;
    }
}

/// Cursors from here on are of watched ports, and from here on of floods.
const WATCHED_FROM: u32 = 1 << 31;
const FLOODS_FROM: u32 = 3 << 30;

impl PortScan {
    /// A part of the notices of a state, and where to go on.
    pub(super) fn notices(
        &self,
        state: &PortScanState,
        (cursor, count): (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        if cursor < WATCHED_FROM {
            let more = state
                .alerts
                .for_each_from((cursor, count), |row, alert, member| {
                    self.of_scan(&row.0, alert, member).write(out);
                });
            return more.or(Some(WATCHED_FROM));
        }
        if cursor >= FLOODS_FROM {
            let from = cursor - FLOODS_FROM;
            let more = state
                .floods
                .for_each_from((from, count), |row, flood, member| {
                    of_flood(&row.0, flood, member).write(out);
                });
            return more.map(|next| next + FLOODS_FROM);
        }
        let from = cursor - WATCHED_FROM;
        let more = state
            .watched
            .for_each_from((from, count), |row, watch, member| {
                if watch.blocked_until > 0 {
                    self.of_volume(row.0, watch, member).write(out);
                }
            });
        Some(more.map_or(FLOODS_FROM, |next| next + WATCHED_FROM))
    }

    /// A part of who is blocked: sources, then ports. Where to go on.
    pub(super) fn blocks(
        &self,
        state: &PortScanState,
        (cursor, count): (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        if cursor < WATCHED_FROM {
            let more = state
                .blocked
                .for_each_from((cursor, count), |row, block, _| {
                    let record = BlockedRecord {
                        source: End::host(row.0),
                        destination: End::default(),
                        until: block.until,
                        by: match block.is_manual() {
                            true => BY_HAND.to_owned(),
                            false => format!("it scanned{}", self.of_prefix(row.0)),
                        },
                    };
                    blocked::write(&record, out);
                });
            return more.or(Some(WATCHED_FROM));
        }
        let from = cursor - WATCHED_FROM;
        let more = state.watched.for_each_from((from, count), |row, watch, _| {
            if watch.blocked_until > 0 {
                let record = BlockedRecord {
                    source: End::default(),
                    destination: End {
                        host: None,
                        port: Some(row.0),
                    },
                    until: watch.blocked_until,
                    by: "the volume to this port".to_owned(),
                };
                blocked::write(&record, out);
            }
        });
        more.map(|next| next + WATCHED_FROM)
    }

    /// Blocks a source manually, or lifts its block, also one that a detector began, and that of its prefix. Its histories stay: if it goes on it is blocked
    /// again.
    #[cold]
    #[inline(never)]
    pub(super) fn reported(&self, ask: Ask<'_, PortScanState>) -> Result<Verdict, Late> {
        let Some((source, seconds)) = manual::of_source(ask.packet().bytes()) else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let block = seconds.map(|seconds| Block::manual(ask.now(), seconds));
        let one = self.scans.sources().one(source);
        let of_prefix = match (block, one == source) {
            (None, false) => ask.blocked.get(&one).map(|at| {
                let found = at.filter(|at| !at.value.is_manual());
                found.map_or(Change::None, Change::Remove)
            }),
            _ => Ok(Change::None),
        };
        let (of_prefix, change) = ask.all((of_prefix, Change::new(&ask.blocked, source, block)))?;
        let mut act = ask.act()?;
        of_prefix.write(&mut act.blocked);
        Ok(change.write(&mut act.blocked))
    }

    fn of_scan(&self, subject: &Subject, alert: &Alert, member: u16) -> Notice {
        let event = match (subject.class, subject.shape) {
            (Class::Tcp, Shape::Ports) => TCP_PORTS,
            (Class::Tcp, Shape::Hosts) => TCP_HOSTS,
            (Class::Udp, Shape::Ports) => UDP_PORTS,
            (Class::Udp, Shape::Hosts) => UDP_HOSTS,
            (Class::Icmp, _) => ICMP_HOSTS,
            (Class::Ip, _) => IP_PROTOCOLS,
        };
        let (target, port) = alert.target;
        let protocol = match (subject.class, subject.source.address().is_ipv4()) {
            (Class::Tcp, _) => Some(Protocol::TCP),
            (Class::Udp, _) => Some(Protocol::UDP),
            (Class::Icmp, true) => Some(Protocol::ICMP),
            (Class::Icmp, false) => Some(Protocol::ICMPV6),
            // Many of them.
            (Class::Ip, _) => None,
        };
        let what = match subject.class {
            Class::Ip => "protocols",
            _ => "ports",
        };
        let methods: Vec<_> = alert.methods.names().collect();
        Notice {
            first: Some(alert.first),
            source: End::host(alert.by),
            destination: match subject.class {
                Class::Icmp | Class::Ip => End::host(target),
                _ => End::endpoint((target, port)),
            },
            protocol: protocol.map(|protocol| protocol.0),
            outcome: match self.block_s(subject.class) {
                None => Outcome::Passed,
                Some(_) => Outcome::Dropped,
            },
            detail: format!(
                "{what} without an answer: {}; hosts silent or refusing: {}; by {}{}",
                alert.ports,
                alert.hosts,
                methods.join(" "),
                self.of_prefix(subject.source)
            ),
            ..Notice::of(&event, member)
        }
    }

    /// Which addresses the source is, where they are several.
    fn of_prefix(&self, source: Host) -> String {
        match self.config().ipv6_prefix {
            length if length < 128 && source.address().is_ipv6() => {
                format!("; from addresses of {source}/{length}")
            }
            _ => String::new(),
        }
    }

    fn of_volume(&self, port: u16, watch: &Watch, member: u16) -> Notice {
        let block_s = self.config().volume.map_or(0, |policy| policy.block_s);
        let for_ever = watch.blocked_until == Tick::MAX;
        Notice {
            first: (!for_ever).then(|| watch.blocked_until.saturating_sub(block_s)),
            destination: End {
                host: None,
                port: Some(port),
            },
            outcome: Outcome::Dropped,
            detail: match for_ever {
                true => "blocked for ever".to_owned(),
                false => format!("blocked for {block_s} s"),
            },
            ..Notice::of(&VOLUME, member)
        }
    }
}

/// A flood's source is named where it is one.
fn of_flood(service: &Service, flood: &Flood, member: u16) -> Notice {
    let is_one = flood.sources == 1;
    Notice {
        first: Some(flood.first),
        source: match is_one {
            true => End::host(flood.source),
            false => End::default(),
        },
        destination: End::endpoint((service.host, service.port)),
        protocol: Some(Protocol::TCP.0),
        detail: match is_one {
            true => format!(
                "handshakes not completed: about {}; from one source",
                flood.open
            ),
            false => format!(
                "handshakes not completed: about {}; from {} sources or more",
                flood.open, flood.sources
            ),
        },
        is_of_destination: true,
        ..Notice::of(&FLOOD, member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::laws;
    use asterism_function::objects::hash;

    #[test]
    fn values_join_as_the_law_says() {
        let number = |draw: u64, place: u64, below: u64| hash::words(draw, place, 5) % below;
        let alert = |draw: u64| Alert {
            first: number(draw, 0, 5) as u32,
            target: (
                core::net::Ipv4Addr::from_bits(number(draw, 8, 2) as u32).into(),
                number(draw, 9, 2) as u16,
            ),
            by: core::net::Ipv4Addr::from_bits(number(draw, 10, 2) as u32).into(),
            ports: number(draw, 1, 5) as u16,
            hosts: number(draw, 2, 5) as u16,
            methods: Methods(number(draw, 3, 512) as u16),
        };
        for draw in 0..2_000 {
            let draws = [draw, draw + 10_000, draw + 20_000];
            let [a, b, c] = draws.map(alert);
            laws::value(a, b, c);
        }
    }

    #[test]
    fn values_come_back_from_the_wire() {
        fn back<W: Wire + PartialEq + core::fmt::Debug>(value: W) {
            let mut bytes = Vec::new();
            value.encode(&mut Writer::new(&mut bytes, &[]));
            assert_eq!(
                W::decode(&mut Reader::new(&bytes, &[])).as_ref(),
                Ok(&value)
            );
            for length in 0..bytes.len() {
                assert!(W::decode(&mut Reader::new(&bytes[..length], &[])).is_err());
            }
        }
        back(Alert {
            first: 7,
            target: (core::net::Ipv6Addr::LOCALHOST.into(), 443),
            by: core::net::Ipv4Addr::LOCALHOST.into(),
            ports: 300,
            hosts: 2,
            methods: Methods::ACK,
        });
        back(Block::found(u32::MAX));
        back(Block::manual(7, 600));
        for class in [Class::Tcp, Class::Udp, Class::Icmp, Class::Ip] {
            for shape in [Shape::Ports, Shape::Hosts] {
                back(Subject {
                    source: core::net::Ipv6Addr::LOCALHOST.into(),
                    class,
                    shape,
                });
            }
        }
        assert_eq!(
            Subject::decode(&mut Reader::new(&[4, 255, 1, 2, 3, 4, 8], &[])),
            Err(BadBytes)
        );
    }
}
