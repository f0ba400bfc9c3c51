//! What a monitor's cluster sees of traffic, put together for people: the answer to `asterism traffic`.
//!
//! The first instance tells its state in parts, between bursts; here they become lists of the most and the heaviest, which take
//! memory by what is asked for and not by what there is. What was counted while the parts were read may be in some and not in others.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

use asterism_function::records::Record;
use asterism_function::{Heavy, HeavyKeys, Protocol, Tick};
use asterism_functions::monitor::{
    AlarmRecord, CellRecord, Degree, Flow, FlowRecord, FlowSizes, HeavyRecord, LinkRecord,
    NodeRecord, ProtocolCount, Summary, TrafficQuery,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use asterism_event_log::date;
use asterism_host_view::{AskError, Asked, View};

/// Items of a list at most.
pub const COUNT_MAX: usize = 1_000;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Items of each list.
    pub count: usize,
    /// What this address takes part in alone.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// The interval that goes on instead of the last one that is over.
    #[serde(default)]
    pub now: bool,
}

/// What the hosts of a cluster see of traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct TrafficDocument {
    pub interval: IntervalDocument,
    pub flows: FlowsDocument,
    /// Absent where an address is asked for: protocols are counted over all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<SizesDocument>,
    pub since_start: SinceStartDocument,
    pub hosts: HostsDocument,
    pub alarms: Vec<AlarmDocument>,
    /// Flows, edges and alarms for which there was no room, since the start.
    pub unrecorded: u64,
}

/// The interval of `flows` and `sizes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalDocument {
    /// Its first second, in UTC.
    pub start: String,
    /// How long it is.
    pub seconds: u64,
    /// Whether it is over.
    pub over: bool,
}

/// Flows of an interval, counted one by one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowsDocument {
    /// How many there are.
    pub count: u64,
    /// Their packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The heaviest by bytes.
    pub by_bytes: Vec<FlowDocument>,
    /// The heaviest by packets.
    pub by_packets: Vec<FlowDocument>,
}

/// The ends of a flow, one direction of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndsDocument {
    /// Who sends.
    pub source: IpAddr,
    /// From which port; absent of what has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// The recipient.
    pub destination: IpAddr,
    /// To which port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// The transport protocol: `tcp`, `udp`, `icmp`, `icmpv6` or its number.
    pub protocol: String,
}

/// A flow of an interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowDocument {
    /// Whose.
    #[serde(flatten)]
    pub ends: EndsDocument,
    /// Its packets.
    pub packets: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// How many flows had how many packets in the interval, from cells that flows share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizesDocument {
    /// What each number is off by at most; absent when all cells are in use, and nothing can be reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Numbers of flows with at least so many packets.
    pub at_least: Vec<SizeDocument>,
}

/// A row of [`SizesDocument`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeDocument {
    /// So many packets or more.
    pub packets: u64,
    /// So many flows had, about.
    pub flows: u64,
}

/// What was counted since the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinceStartDocument {
    /// By protocol, the heaviest first; empty where an address is asked for.
    pub protocols: Vec<ProtocolDocument>,
    /// The heaviest flows by bytes.
    pub by_bytes: HeavyDocument,
    /// The heaviest flows by packets.
    pub by_packets: HeavyDocument,
}

/// What a protocol carried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtocolDocument {
    /// `tcp`, `udp`, `icmp`, `icmpv6` or a number; `not-ip`.
    pub protocol: String,
    /// The version of IP: 4 or 6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<u8>,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The heaviest flows of all, within bounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeavyDocument {
    /// All that was counted.
    pub total: u64,
    /// What a sum is off by at most.
    pub error: u64,
    /// The flows.
    pub flows: Vec<HeavyFlowDocument>,
}

/// A heavy flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeavyFlowDocument {
    /// Whose.
    #[serde(flatten)]
    pub ends: EndsDocument,
    /// Its bytes or packets, about.
    pub sum: u64,
    /// At least.
    pub at_least: u64,
    /// And at most.
    pub at_most: u64,
}

/// Which hosts talk to which others: the dispersion graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostsDocument {
    /// Hosts that sent something, or were sent something.
    pub count: u64,
    /// Edges between them.
    pub links: u64,
    /// Those that send to most others.
    pub by_out_degree: Vec<HostDocument>,
    /// Hosts to which most others send.
    pub by_in_degree: Vec<HostDocument>,
    /// The heaviest edges.
    pub by_bytes: Vec<LinkDocument>,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDocument {
    /// Its address.
    pub address: IpAddr,
    /// To how many others it sends.
    pub out_degree: u32,
    /// From how many others something is sent to it.
    pub in_degree: u32,
}

/// An edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkDocument {
    /// Who sends.
    pub source: IpAddr,
    /// The recipient.
    pub destination: IpAddr,
    /// Bytes since the edge began.
    pub bytes: u64,
}

/// A host with too many others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlarmDocument {
    /// Which host.
    pub address: IpAddr,
    /// `out` or `in`.
    pub degree: String,
    /// How high it was when it was last looked at: each time that it doubled.
    pub others: u32,
    /// When it was first seen, in UTC.
    pub since: String,
}

/// The greatest of what it is given, by a measure; equal ones by their order.
struct Most<T, M> {
    count: usize,
    measure: fn(&T) -> M,
    items: Vec<T>,
}

impl<T: Copy + Ord, M: Ord> Most<T, M> {
    fn new(count: usize, measure: fn(&T) -> M) -> Self {
        Self {
            count,
            measure,
            items: Vec::new(),
        }
    }

    fn add(&mut self, item: T) {
        self.items.push(item);
        if self.items.len() > 2 * self.count + 64 {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let measure = self.measure;
        self.items
            .sort_unstable_by_key(|item| (Reverse(measure(item)), *item));
        self.items.truncate(self.count);
    }

    fn all(mut self) -> Vec<T> {
        self.cut();
        self.items
    }
}

/// Asks the host's monitor.
struct Asking<'a> {
    view: &'a View,
    monitor: Asked,
}

impl Asking<'_> {
    fn records<R: Record>(&self, question: u32, each: impl FnMut(R)) -> Result<(), AskError> {
        self.view.records(self.monitor, question, each)
    }

    fn query<R: Record>(&self, look: TrafficQuery, each: impl FnMut(R)) -> Result<(), AskError> {
        self.records(look.question(), each)
    }
}

/// Why there is no answer about traffic. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TrafficError {
    /// The function watches no traffic.
    #[error(
        "this host's function watches no traffic: it needs [function.monitor], alone or in a chain"
    )]
    NoMonitor,
    /// More rows are wanted than are ever shown: none is.
    #[error("count is {0}: it must be at most {COUNT_MAX}")]
    CountTooLarge(usize),
    /// The instance has no summary to tell.
    #[error("the instance tells of no monitor")]
    NoSummary,
    /// The instance was not asked, or did not answer: nothing of an answer is shown.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// What a host knows of its cluster's traffic.
///
/// # Errors
/// Its function watches none, or the instance does not tell; in words.
pub fn query(view: &View, wanted: Wanted) -> Result<TrafficDocument, TrafficError> {
    let monitor = view.monitor.ok_or(TrafficError::NoMonitor)?;
    if wanted.count > COUNT_MAX {
        return Err(TrafficError::CountTooLarge(wanted.count));
    }
    let asking = Asking { view, monitor };
    let mut summary = None;
    asking.query(TrafficQuery::Summary, |one: Summary| summary = Some(one))?;
    let summary = summary.ok_or(TrafficError::NoSummary)?;
    let interval_s = summary.interval_s.max(1);
    let number = (view.tick() / interval_s).saturating_sub(u32::from(!wanted.now));
    let start = number.saturating_mul(interval_s);
    let sizes = match wanted.address {
        Some(_) => None,
        None => Some(sizes(&asking, start, summary.cells)?),
    };
    Ok(TrafficDocument {
        interval: IntervalDocument {
            start: date(view.dates().date_s(start)),
            seconds: interval_s.into(),
            over: !wanted.now,
        },
        flows: flows(&asking, number, wanted)?,
        sizes,
        since_start: SinceStartDocument {
            protocols: protocols(&asking, wanted)?,
            by_bytes: heavy(&asking, TrafficQuery::HeavyBytes, summary.places, wanted)?,
            by_packets: heavy(&asking, TrafficQuery::HeavyPackets, summary.places, wanted)?,
        },
        hosts: hosts(&asking, summary, wanted)?,
        alarms: alarms(&asking, wanted)?,
        unrecorded: summary.unrecorded,
    })
}

impl Wanted {
    fn takes(&self, ends: &[IpAddr]) -> bool {
        self.address
            .is_none_or(|address| ends.contains(&address.to_canonical()))
    }

    fn takes_flow(&self, flow: &Flow) -> bool {
        self.takes(&[flow.source.address(), flow.destination.address()])
    }
}

/// A flow of an interval as it is put in order.
type Counted = (Flow, u64, u64);

fn flows(asking: &Asking<'_>, interval: u32, wanted: Wanted) -> Result<FlowsDocument, AskError> {
    let mut by_bytes = Most::new(wanted.count, |(_, _, bytes): &Counted| *bytes);
    let mut by_packets = Most::new(wanted.count, |(_, packets, _): &Counted| *packets);
    let (mut count, mut packets, mut bytes) = (0, 0u64, 0u64);
    asking.records(interval, |record: FlowRecord| {
        if wanted.takes_flow(&record.flow) {
            count += 1;
            packets = packets.saturating_add(record.packets);
            bytes = bytes.saturating_add(record.bytes);
            let counted = (record.flow, record.packets, record.bytes);
            by_bytes.add(counted);
            by_packets.add(counted);
        }
    })?;
    let document = |(flow, packets, bytes): Counted| FlowDocument {
        ends: EndsDocument::of(&flow),
        packets,
        bytes,
    };
    Ok(FlowsDocument {
        count,
        packets,
        bytes,
        by_bytes: by_bytes.all().into_iter().map(document).collect(),
        by_packets: by_packets.all().into_iter().map(document).collect(),
    })
}

fn sizes(asking: &Asking<'_>, start: Tick, cells: u32) -> Result<SizesDocument, AskError> {
    let mut packets = Vec::new();
    asking.query(TrafficQuery::Sizes, |cell: CellRecord| {
        if cell.start == start {
            packets.push(cell.packets);
        }
    })?;
    let sizes = FlowSizes::of(packets, cells);
    let row = |(packets, flows)| SizeDocument { packets, flows };
    Ok(SizesDocument {
        error: sizes.error(),
        at_least: sizes.table().into_iter().map(row).collect(),
    })
}

fn protocols(asking: &Asking<'_>, wanted: Wanted) -> Result<Vec<ProtocolDocument>, AskError> {
    let mut protocols = Vec::new();
    if wanted.address.is_some() {
        return Ok(protocols);
    }
    asking.query(TrafficQuery::Protocols, |count: ProtocolCount| {
        let (protocol, ip) = match count.protocol {
            None => ("not-ip".to_owned(), None),
            Some((number, is_ipv6)) => {
                let version = if is_ipv6 { 6 } else { 4 };
                (Protocol(number).to_string(), Some(version))
            }
        };
        protocols.push(ProtocolDocument {
            protocol,
            ip,
            packets: count.packets,
            bytes: count.bytes,
        });
    })?;
    // All of them: there are hardly ever more than a screen holds.
    protocols.sort_by_key(|one| Reverse(one.bytes));
    Ok(protocols)
}

fn heavy(
    asking: &Asking<'_>,
    look: TrafficQuery,
    places: u32,
    wanted: Wanted,
) -> Result<HeavyDocument, AskError> {
    let mut keys = HeavyKeys::new(places);
    let mut volumes = BTreeMap::new();
    asking.query(look, |record: HeavyRecord| {
        volumes.insert(record.flow, record.volume);
        keys.add(record.into());
    })?;
    let document = |heavy: Heavy<Flow>| {
        // The sketch may say more exactly how much it is at most; before all of it has come it says less than there was.
        let volume = volumes.get(&heavy.key).copied().unwrap_or(u64::MAX);
        HeavyFlowDocument {
            ends: EndsDocument::of(&heavy.key),
            sum: heavy.sum,
            at_least: heavy.at_least,
            at_most: heavy.at_most.min(volume.max(heavy.at_least)),
        }
    };
    let all = keys.heaviest(usize::MAX).into_iter();
    let taken = all.filter(|heavy| wanted.takes_flow(&heavy.key));
    Ok(HeavyDocument {
        total: keys.total(),
        error: keys.excess(),
        flows: taken.take(wanted.count).map(document).collect(),
    })
}

fn hosts(asking: &Asking<'_>, summary: Summary, wanted: Wanted) -> Result<HostsDocument, AskError> {
    let mut by_out = Most::new(wanted.count, |node: &NodeRecord| node.out_degree);
    let mut by_in = Most::new(wanted.count, |node: &NodeRecord| node.in_degree);
    asking.query(TrafficQuery::Nodes, |node: NodeRecord| {
        if wanted.takes(&[node.host.address()]) {
            by_out.add(node);
            by_in.add(node);
        }
    })?;
    let mut by_bytes = Most::new(wanted.count, |link: &LinkRecord| link.bytes);
    asking.query(TrafficQuery::Links, |link: LinkRecord| {
        if wanted.takes(&[link.source.address(), link.destination.address()]) {
            by_bytes.add(link);
        }
    })?;
    let host = |node: NodeRecord| HostDocument {
        address: node.host.address(),
        out_degree: node.out_degree,
        in_degree: node.in_degree,
    };
    let link = |link: LinkRecord| LinkDocument {
        source: link.source.address(),
        destination: link.destination.address(),
        bytes: link.bytes,
    };
    // Who sends to nobody does not belong to those who send to most.
    let (out, into) = (by_out.all().into_iter(), by_in.all().into_iter());
    Ok(HostsDocument {
        count: summary.nodes.into(),
        links: summary.links.into(),
        by_out_degree: out.filter(|node| node.out_degree > 0).map(host).collect(),
        by_in_degree: into.filter(|node| node.in_degree > 0).map(host).collect(),
        by_bytes: by_bytes.all().into_iter().map(link).collect(),
    })
}

fn alarms(asking: &Asking<'_>, wanted: Wanted) -> Result<Vec<AlarmDocument>, AskError> {
    let mut alarms = Vec::new();
    asking.query(TrafficQuery::Alarms, |record: AlarmRecord| {
        let address = record.suspect.host.address();
        if wanted.takes(&[address]) {
            alarms.push((
                Reverse(record.alarm.first),
                record.suspect,
                record.alarm.degree,
            ));
        }
    })?;
    let dates = asking.view.dates();
    // The newest first.
    alarms.sort_unstable();
    alarms.truncate(wanted.count);
    let document = |(Reverse(first), suspect, others): (Reverse<Tick>, _, u32)| {
        let asterism_functions::monitor::Suspect { host, degree } = suspect;
        AlarmDocument {
            address: host.address(),
            degree: match degree {
                Degree::Out => "out",
                Degree::In => "in",
            }
            .to_owned(),
            others,
            since: date(dates.date_s(first)),
        }
    };
    Ok(alarms.into_iter().map(document).collect())
}

impl EndsDocument {
    fn of(flow: &Flow) -> Self {
        let has_ports = matches!(Protocol(flow.protocol), Protocol::TCP | Protocol::UDP);
        Self {
            source: flow.source.address(),
            source_port: has_ports.then_some(flow.source_port),
            destination: flow.destination.address(),
            destination_port: has_ports.then_some(flow.destination_port),
            protocol: Protocol(flow.protocol).to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_are_kept_of_any_number() {
        let mut most = Most::new(3, |item: &(u32, u32)| item.1);
        for number in 0..1_000u32 {
            most.add((number, number * 37 % 991));
            assert!(most.items.len() <= 2 * 3 + 64);
        }
        let mut all: Vec<(u32, u32)> = (0..1_000)
            .map(|number| (number, number * 37 % 991))
            .collect();
        all.sort_unstable_by_key(|&(number, measure)| (Reverse(measure), number));
        assert_eq!(most.all(), all[..3]);
        assert!(Most::new(0, |item: &u32| *item).all().is_empty());
    }

    #[test]
    fn an_address_is_taken_in_either_form_and_place() {
        let with = |address: &str| Wanted {
            count: 1,
            address: Some(address.parse().unwrap()),
            now: false,
        };
        let ends = ["10.0.0.1", "2001:db8::1"].map(|one| one.parse::<IpAddr>().unwrap());
        for (address, taken) in [
            ("10.0.0.1", true),
            ("::ffff:10.0.0.1", true),
            ("2001:db8::1", true),
            ("10.0.0.2", false),
        ] {
            assert_eq!(with(address).takes(&ends), taken, "{address}");
        }
    }
}
