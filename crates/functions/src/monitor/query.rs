//! What a monitor knows, for anyone who looks: records in the words of its `report`, for the control plane.
//!
//! Every instance holds what all counted, so any of them can be asked.

use asterism_function::notice;
use asterism_function::{HeavyPlace, Host, Tick, TopK, Wire, Writer};

use super::{Alarm, Flow, FlowRecord, Monitor, MonitorState, ProtocolCount, Suspect};
use asterism_function::records::Record;

/// What a monitor can be asked. Its number is a question of `report`: those below are intervals, whose flows are reported as they are
/// exported, and no interval before the year 2106 reaches them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrafficQuery {
    /// What each protocol carried: [`ProtocolCount`]s.
    Protocols = 1,
    /// Hosts with their degrees: [`NodeRecord`]s.
    Nodes = 2,
    /// Which hosts send to which others: [`LinkRecord`]s.
    Links = 3,
    /// The heaviest flows by bytes: [`HeavyRecord`]s.
    HeavyBytes = 4,
    /// The heaviest flows by packets: [`HeavyRecord`]s.
    HeavyPackets = 5,
    /// Packets of the cells of the sketch of flow sizes: [`CellRecord`]s.
    Sizes = 6,
    /// Hosts whose degree is too high: [`AlarmRecord`]s.
    Alarms = 7,
    /// What the others are to be read by: one [`Summary`].
    Summary = 8,
}

impl TrafficQuery {
    const ALL: [Self; 8] = [
        Self::Protocols,
        Self::Nodes,
        Self::Links,
        Self::HeavyBytes,
        Self::HeavyPackets,
        Self::Sizes,
        Self::Alarms,
        Self::Summary,
    ];

    /// The question of a `report` that this answers.
    #[must_use]
    pub const fn question(self) -> u32 {
        notice::QUESTION - self as u32
    }

    /// What a question asks for; `None`: the flows of an interval, or alarms as notices.
    pub(super) fn of(question: u32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|look| look.question() == question)
    }
}

/// A host of the dispersion graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire)]
pub struct NodeRecord {
    /// The host.
    pub host: Host,
    /// To how many others it sends.
    pub out_degree: u32,
    /// From how many others something is sent to it.
    pub in_degree: u32,
}

/// An edge of the dispersion graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire)]
pub struct LinkRecord {
    /// Who sends.
    pub source: Host,
    /// The recipient.
    pub destination: Host,
    /// Bytes since it began.
    pub bytes: u64,
}

/// A place of one instance among the heaviest flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire)]
pub struct HeavyRecord {
    /// Stands for the instance.
    pub writer: u32,
    /// The flow.
    pub flow: Flow,
    /// Its bytes or packets there, or more.
    pub count: u64,
    /// How much more, at most.
    pub error: u64,
    /// By the sketch of volumes, bytes of the flow over all instances at most: nearly always what there were; none for packets.
    pub volume: u64,
}

impl From<HeavyRecord> for HeavyPlace<Flow> {
    fn from(record: HeavyRecord) -> Self {
        let HeavyRecord {
            writer,
            flow: key,
            count,
            error,
            ..
        } = record;
        Self {
            writer,
            key,
            count,
            error,
        }
    }
}

/// A cell of the sketch of flow sizes in one interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire)]
pub struct CellRecord {
    /// The first second of the interval.
    pub start: Tick,
    /// Packets of all flows that share the cell.
    pub packets: u64,
}

/// A host whose degree is too high.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire)]
pub struct AlarmRecord {
    /// Which host, and which degree.
    pub suspect: Suspect,
    /// Since when, and how high.
    pub alarm: Alarm,
}

/// What the other records are to be read by, and for what there was no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire)]
pub struct Summary {
    /// Seconds of an interval.
    pub interval_s: Tick,
    /// Places of each instance for the heaviest flows.
    pub places: u32,
    /// Cells of the sketch of flow sizes.
    pub cells: u32,
    /// Hosts of the dispersion graph.
    pub nodes: u32,
    /// Its edges.
    pub links: u32,
    /// How often a flow, an edge or an alarm found no room.
    pub unrecorded: u64,
}

impl Record for ProtocolCount {}
impl Record for FlowRecord {}
impl Record for NodeRecord {}
impl Record for LinkRecord {}
impl Record for HeavyRecord {}
impl Record for CellRecord {}
impl Record for AlarmRecord {}
impl Record for Summary {}

impl Monitor {
    /// Appends a part of the answer: what up to so many places from the cursor on hold. Where to go on.
    pub(super) fn query(
        &self,
        state: &MonitorState,
        look: TrafficQuery,
        range: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        let mut out = Writer::new(out, &[]);
        match look {
            TrafficQuery::Protocols => {
                for count in state.protocol_counts() {
                    count.encode(&mut out);
                }
                None
            }
            TrafficQuery::Nodes => {
                state
                    .links
                    .for_each_node_from(range, |&host, out_degree, in_degree| {
                        let node = NodeRecord {
                            host,
                            out_degree,
                            in_degree,
                        };
                        node.encode(&mut out);
                    })
            }
            TrafficQuery::Links => {
                state
                    .links
                    .for_each_from(range, |&source, &destination, bytes| {
                        let link = LinkRecord {
                            source,
                            destination,
                            bytes,
                        };
                        link.encode(&mut out);
                    })
            }
            TrafficQuery::HeavyBytes => heavy(&state.heavy_bytes, range, &mut out, |flow| {
                state.volumes.known(flow).unwrap_or(u64::MAX)
            }),
            TrafficQuery::HeavyPackets => {
                heavy(&state.heavy_packets, range, &mut out, |_| u64::MAX)
            }
            TrafficQuery::Sizes => {
                let mut next = None;
                for start in state.sizes.kept() {
                    next = state.sizes.for_each_at(start, range, |_, packets| {
                        CellRecord { start, packets }.encode(&mut out);
                    });
                }
                next
            }
            TrafficQuery::Alarms => state.alarms.for_each_from(range, |row, &alarm, _| {
                let suspect = row.0;
                AlarmRecord { suspect, alarm }.encode(&mut out);
            }),
            TrafficQuery::Summary => {
                let config = &self.config;
                let summary = Summary {
                    interval_s: config.interval_s,
                    places: config.places,
                    cells: config.cells,
                    nodes: state.links.nodes() as u32,
                    links: state.links.edges() as u32,
                    unrecorded: state.unrecorded.get().unwrap_or(0),
                };
                summary.encode(&mut out);
                None
            }
        }
    }
}

fn heavy(
    flows: &TopK<Flow>,
    range: (u32, u32),
    out: &mut Writer<'_>,
    volume: impl Fn(&Flow) -> u64,
) -> Option<u32> {
    flows.for_each_place(range, |place| {
        let record = HeavyRecord {
            writer: place.writer,
            flow: place.key,
            count: place.count,
            error: place.error,
            volume: volume(&place.key),
        };
        record.encode(out);
    })
}
