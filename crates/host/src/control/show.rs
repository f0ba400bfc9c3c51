//! Traced packets, as text and as documents.

use asterism_engine::{TracedEnd, TracedPacket, TracedStageEnd, TracedStep};
use asterism_function::Reason;
use asterism_packet::Packet;
use serde::{Deserialize, Serialize};

use asterism_host_view::{Names, Own};

/// A traced packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedDocument {
    /// The port of arrival.
    pub port: String,
    /// Its length in bytes.
    pub length: usize,
    /// A line that describes the packet on arrival.
    pub packet: String,
    /// A line that describes the packet as it left; absent if it did not leave immediately.
    pub left_as: Option<String>,
    /// The reads and writes, in order.
    pub steps: Vec<String>,
    /// The packet's end.
    pub end: String,
    /// Packets that the function emitted for it.
    pub emitted: u64,
    /// Bytes of operations for the other members.
    pub logged_bytes: u64,
    /// The cost of the call in nanoseconds, tracing included.
    pub cost_ns: u64,
}

/// Packets as documents.
#[must_use]
pub fn traced(packets: &[TracedPacket], names: &Names) -> Vec<TracedDocument> {
    let port = |number: u16| {
        names
            .ports
            .get(usize::from(number))
            .map_or_else(|| number.to_string(), |port| port.0.to_owned())
    };
    packets
        .iter()
        .map(|packet| TracedDocument {
            port: port(packet.port.0),
            length: packet.length,
            packet: summary(&packet.before),
            left_as: (!packet.after.is_empty()).then(|| summary(&packet.after)),
            steps: packet
                .steps
                .iter()
                .map(|one| step(one, &names.own))
                .collect(),
            end: match packet.end {
                TracedEnd::Forwarded(to) => format!("forwarded by {}", port(to.0)),
                TracedEnd::Dropped(reason) => format!("dropped: {}", names.own.label(reason)),
                TracedEnd::Consumed => "consumed".to_owned(),
                TracedEnd::Parked => "parked: an answer is late".to_owned(),
            },
            emitted: packet.emitted,
            logged_bytes: packet.logged_bytes,
            cost_ns: packet.cost_ns,
        })
        .collect()
}

fn step(step: &TracedStep, own: &Own) -> String {
    match step {
        TracedStep::Ask {
            object,
            lane,
            found,
        } => {
            let found = if *found { "found" } else { "nothing" };
            format!("ask {object} by key {lane}: {found}")
        }
        TracedStep::Grant {
            object,
            number: Some(number),
        } => format!("grant of {object}: number {number}"),
        TracedStep::Grant { object, .. } => format!("grant of {object}: none left"),
        TracedStep::Act => "act".to_owned(),
        TracedStep::Write { object, what } => format!("{} {object}", what.word()),
        TracedStep::Stage { stage, port } => format!("stage {stage}, by its port {}", port.0),
        TracedStep::StageEnd {
            stage,
            end,
            cost_ns,
        } => format!("stage {stage}: {}, {cost_ns} ns", stage_end(end, own)),
    }
}

fn stage_end(end: &TracedStageEnd, own: &Own) -> String {
    let label = |reason: &Option<Reason>| reason.map_or("unknown", |reason| own.label(reason));
    match end {
        TracedStageEnd::Forwarded(port) => format!("forward by its port {}", port.0),
        TracedStageEnd::Dropped(reason) => format!("drop, {}", label(reason)),
        TracedStageEnd::Consumed => "consumed".to_owned(),
        TracedStageEnd::Late => "late, the packet waits here".to_owned(),
        TracedStageEnd::Bypassed(reason) => format!("bypassed, {}", label(reason)),
        TracedStageEnd::Mirrored => "gets a copy".to_owned(),
    }
}

/// A packet as a line.
fn summary(bytes: &[u8]) -> String {
    let mut copy = bytes.to_vec();
    match Packet::parse(&mut copy) {
        Ok(packet) => match packet.flow4() {
            Some(flow) => {
                let flags = packet
                    .tcp_flags()
                    .map_or_else(String::new, |flags| format!(" {flags:?}"));
                let ttl = packet
                    .ttl()
                    .map_or_else(String::new, |ttl| format!(" ttl {ttl}"));
                format!("{flow}{flags}{ttl}")
            }
            None => {
                let kind = bytes
                    .get(12..14)
                    .map_or(0, |kind| u16::from_be_bytes([kind[0], kind[1]]));
                match kind {
                    0x0806 => "ARP".to_owned(),
                    0x86DD => "IPv6".to_owned(),
                    kind => format!("EtherType {kind:#06x}"),
                }
            }
        },
        Err(malformed) => format!("malformed: {malformed:?}"),
    }
}
