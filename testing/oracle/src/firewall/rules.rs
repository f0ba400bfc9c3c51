//! The rules that explain a difference, each with its clause and a condition that is shown to hold for the packet. Imports
//! `asterism_function` for reading packets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use asterism_function::{FlowKey, Fragment, Packet, Reason, TcpFlags, Verdict};

use super::Step;

/// Why a verdict may differ from Linux's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// A segment of a connection that both know is judged with a window of tolerance: other instances may have let through
    /// as much.
    Window,
    /// The opener's SYN with another sequence number begins an unanswered connection again.
    NewSyn,
    /// A reset that acknowledges nothing does not refuse a connection that was not answered yet.
    BlindReset,
    /// Fragments pass one by one and are not put together: overlapping and incomplete datagrams are the receiver's to
    /// refuse, and a first fragment must hold its transport header.
    Fragments,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 4] = [
        Self::Window,
        Self::NewSyn,
        Self::BlindReset,
        Self::Fragments,
    ];

    /// A word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::NewSyn => "new-syn",
            Self::BlindReset => "blind-reset",
            Self::Fragments => "fragments",
        }
    }

    /// Where it is from.
    #[must_use]
    pub const fn clause(self) -> &'static str {
        match self {
            Self::Window => {
                "RFC 9293 §3.4 and §3.10.7.4: the receiver itself tells acceptable segments"
            }
            Self::NewSyn => "RFC 9293 §3.10.7.3: an unanswered connection may be begun again",
            Self::BlindReset => "RFC 9293 §3.10.7.3: a reset must acknowledge the SYN",
            Self::Fragments => {
                "RFC 791 §3.2, RFC 8200 §4.5 and RFC 5722: receivers reassemble; RFC 1858 §3"
            }
        }
    }
}

/// What went before.
#[derive(Debug, Default)]
pub(super) struct Story {
    /// Of each TCP connection: the first numbers of its SYNs since one was answered, and whether both judges let packets of both
    /// ends through.
    connections: BTreeMap<FlowKey, Connection>,
    datagrams: BTreeMap<FlowKey, Datagram>,
}

#[derive(Debug, Default)]
struct Connection {
    begun: BTreeSet<(IpAddr, u32)>,
    passed: BTreeSet<IpAddr>,
}

/// A fragmented datagram.
#[derive(Debug, Default)]
struct Datagram {
    /// Offsets of its parts, and their ends.
    parts: BTreeMap<u32, u32>,
    overlaps: bool,
    ends_at: Option<u32>,
    /// The first part does not hold the transport header.
    is_tiny: bool,
    passed_by_linux: bool,
    passed: usize,
    arrived: usize,
}

impl Datagram {
    fn is_whole(&self) -> bool {
        let mut reached = 0;
        for (&offset, &end) in &self.parts {
            if offset != reached {
                return false;
            }
            reached = end;
        }
        !self.overlaps && self.ends_at == Some(reached)
    }
}

/// What became of all datagrams that came in fragments.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    pub(super) alike: u64,
    pub(super) explained: u64,
    pub(super) different: Vec<String>,
}

impl Story {
    /// Takes up a packet and what both said. True if it is judged with the datagram that it is a part of.
    pub(super) fn note(
        &mut self,
        step: &Step,
        linux: bool,
        passes: bool,
        left: &[Vec<u8>],
    ) -> bool {
        // Linux sends a datagram on when its last part came.
        for frame in left {
            if let Some((key, _)) = fragment(frame) {
                self.datagrams.entry(key).or_default().passed_by_linux = true;
            }
        }
        if let Some((key, part)) = fragment(&step.frame) {
            let datagram = self.datagrams.entry(key).or_default();
            datagram.arrived += 1;
            datagram.passed += usize::from(passes);
            datagram.is_tiny |= part.is_tiny;
            if !part.more {
                datagram.ends_at = Some(part.end);
            }
            datagram.overlaps |= datagram
                .parts
                .iter()
                .any(|(offset, end)| part.offset < *end && *offset < part.end);
            datagram.parts.insert(part.offset, part.end);
            return true;
        }
        let mut bytes = step.frame.clone();
        let Ok(packet) = Packet::parse(&mut bytes) else {
            return false;
        };
        if let (Some(flags), Some(sequence), Some(source)) =
            (packet.tcp_flags(), packet.tcp_sequence(), source(&packet))
        {
            let connection = self.connections.entry(FlowKey::of(&packet)).or_default();
            if flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags::ACK) {
                connection.begun.insert((source, sequence));
            } else if flags.contains(TcpFlags::SYN) && linux && passes {
                connection.begun.clear();
            }
            if linux && passes {
                connection.passed.insert(source);
            }
        }
        false
    }

    /// The rule whose condition holds for a packet on which the judges disagree.
    pub(super) fn explain(&self, step: &Step, linux: bool, verdict: Verdict) -> Option<Rule> {
        let mut bytes = step.frame.clone();
        let packet = Packet::parse(&mut bytes).ok()?;
        let connection = self.connections.get(&FlowKey::of(&packet))?;
        let begun_by = |source: &IpAddr| {
            connection
                .begun
                .iter()
                .filter(|(begun_by, _)| begun_by == source)
                .count()
        };
        if connection
            .begun
            .iter()
            .any(|(source, _)| begun_by(source) > 1)
        {
            return Some(Rule::NewSyn);
        }
        let flags = packet.tcp_flags()?;
        let is_known = connection.passed.len() == 2;
        let refused = verdict == Verdict::Drop(Reason::OutOfWindow);
        let is_bare = flags & (TcpFlags::RST | TcpFlags::ACK) == TcpFlags::RST;
        if linux && refused && is_bare && !is_known {
            return Some(Rule::BlindReset);
        }
        let is_more = !linux && matches!(verdict, Verdict::Forward(_));
        let is_less = linux && verdict == Verdict::Drop(Reason::OutOfWindow);
        let judged_by_numbers = !flags.contains(TcpFlags::SYN) && (is_more || is_less);
        (is_known && judged_by_numbers).then_some(Rule::Window)
    }

    /// Datagrams in fragments, each as one.
    pub(super) fn datagrams(&self) -> Datagrams {
        let mut datagrams = Datagrams::default();
        for datagram in self.datagrams.values().filter(|one| one.arrived > 0) {
            let passed = datagram.passed == datagram.arrived;
            if passed == datagram.passed_by_linux {
                datagrams.alike += 1;
            } else if datagram.is_whole() && !datagram.is_tiny {
                datagrams.different.push(format!("{datagram:?}"));
            } else {
                datagrams.explained += 1;
            }
        }
        datagrams
    }
}

/// A part of a datagram.
struct Part {
    offset: u32,
    end: u32,
    more: bool,
    is_tiny: bool,
}

fn fragment(frame: &[u8]) -> Option<(FlowKey, Part)> {
    let mut bytes = frame.to_vec();
    let packet = Packet::parse(&mut bytes).ok()?;
    let layout = packet.layout();
    if layout.fragment() == Fragment::Whole {
        return None;
    }
    let offset = u32::from(packet.fragment_offset()?);
    let (data_at, more) = match packet.ipv4_header_length() {
        Some(length) => {
            let at = layout.network_offset();
            (at + length, packet.bytes().get(at + 6)? & 0x20 != 0)
        }
        None => (
            layout.transport_offset(),
            // The last word of offset and flags stands four bytes before the identification's end.
            ipv6_more(&packet)?,
        ),
    };
    let length = layout.end().checked_sub(data_at)? as u32;
    let first = layout.fragment() == Fragment::First;
    let part = Part {
        offset,
        end: offset + length,
        more,
        is_tiny: first && packet.ports().is_none() || !first && offset < 20,
    };
    Some((FlowKey::of(&packet), part))
}

/// Whether more fragments follow, from the fragment header: it stands right before what it fragments.
fn ipv6_more(packet: &Packet<'_>) -> Option<bool> {
    let layout = packet.layout();
    let from = layout.network_offset() + 40;
    let identification = packet.ipv6_identification()?.to_be_bytes();
    let header = packet.bytes().get(from..layout.end())?;
    let at = header
        .windows(8)
        .position(|window| window[4..] == identification)?;
    Some(header[at + 3] & 1 != 0)
}

fn source(packet: &Packet<'_>) -> Option<IpAddr> {
    let ipv4 = packet.ipv4_source().map(IpAddr::from);
    ipv4.or_else(|| packet.ipv6_source().map(IpAddr::from))
}

/// A packet in words.
pub(super) fn describe(frame: &[u8]) -> String {
    let mut bytes = frame.to_vec();
    let Ok(packet) = Packet::parse(&mut bytes) else {
        return "a damaged packet".to_owned();
    };
    let ends = match (packet.ipv4_source(), packet.ipv4_destination()) {
        (Some(source), Some(destination)) => format!("{source} > {destination}"),
        _ => format!(
            "{:?} > {:?}",
            packet.ipv6_source(),
            packet.ipv6_destination()
        ),
    };
    format!(
        "{ends} protocol {} ports {:?} icmp {:?} flags {:?} sequence {:?} acknowledgement {:?}",
        packet.layout().protocol(),
        packet.ports(),
        packet.icmp_type(),
        packet.tcp_flags(),
        packet.tcp_sequence(),
        packet.tcp_acknowledgement(),
    )
}
