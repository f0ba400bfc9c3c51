//! Watches traffic for all instances together and changes none of it: which hosts talk to which others, the heaviest flows,
//! flow sizes, volumes by protocol, and records of all flows for a collector.
//!
//! All values are sums that instances add to, so a flow whose packets come to several instances is one flow. `flow.rs` has
//! the counted values, `alarm.rs` alarms of the dispersion graph; for the control plane `sizes.rs` reads the sketch of flow
//! sizes, `election.rs` elects the host that exports an interval, `ipfix.rs` writes the export, `look.rs` has the operator's
//! view and `metrics.rs` the metrics. Read first: [`MonitorState`].
//!
//! Flows are counted by *intervals* of the cluster's common seconds, as an exporter with an active timeout does: a flow that
//! lasts is reported once for each interval. When a table is full the packet passes and is counted as unrecorded; the
//! heaviest flows, the volumes and the sizes go on, since they do not grow with flows.

mod alarm;
mod config;
mod election;
mod flow;
mod ipfix;
mod metrics;
mod query;
mod sizes;

use asterism_function::notice;
use asterism_function::{
    Ask, Builder, CountMin, Counter, Counters, Graph, Host, Key, Late, Map, NetworkFunction,
    Observable, OwnEvent, OwnMetric, PortNumber, Single, Tick, TopK, Verdict, Window,
    WindowedCounters, Wire, Writer, state,
};

use crate::mutant::{self, Mutant};

pub use alarm::{Alarm, Degree, EVENTS, Suspect};
pub use config::MonitorConfig;
pub use election::{Before, EXPORT_S, ExporterElection, GRACE_S, SILENCE_S};
pub use flow::{Flow, Observed};
pub use ipfix::{Exporter, FlowRecord, MESSAGE_BYTES_MAX, Span};
pub use query::{
    AlarmRecord, CellRecord, HeavyRecord, LinkRecord, NodeRecord, Summary, TrafficQuery,
};
pub use sizes::FlowSizes;

use alarm::AlarmUpdate;

/// What the instances of a monitor share.
#[state]
pub struct MonitorState {
    /// Packets and bytes by protocol; see [`ProtocolCount`].
    pub protocols: Counters<u16>,
    /// Which hosts send to which others, by bytes.
    pub links: Graph<Host>,
    /// Hosts whose degree is too high.
    pub alarms: Map<Suspect, Alarm>,
    /// Packets of each flow, by intervals.
    pub flow_packets: WindowedCounters<Observed>,
    /// Bytes of each flow, by intervals.
    pub flow_bytes: WindowedCounters<Observed>,
    /// Packets of each cell of the sketch of flow sizes, by intervals.
    pub sizes: WindowedCounters<u16>,
    /// The heaviest flows by bytes.
    pub heavy_bytes: TopK<Flow>,
    /// The heaviest flows by packets.
    pub heavy_packets: TopK<Flow>,
    /// About how many bytes any flow has.
    pub volumes: CountMin<Flow>,
    /// Packets whose flow or edge found no room, and alarms.
    pub unrecorded: Counter,
}

/// By what share of all bytes a flow's volume is too great at most, and how probable it is that it is more: 5 rows of 907 cells.
pub const VOLUME_ERROR: f64 = 0.003;
/// See [`VOLUME_ERROR`].
pub const VOLUME_DOUBT: f64 = 0.01;

/// What a protocol carried since the start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire)]
pub struct ProtocolCount {
    /// The number of the transport protocol and whether it is over IPv6; `None` for what is not IP.
    pub protocol: Option<(u8, bool)>,
    /// Packets.
    pub packets: u64,
    /// Bytes: of IP packets with their headers, of others those of the frame.
    pub bytes: u64,
}

/// Keys of `protocols`: the protocol, and a bit each for IPv6, not IP, and bytes instead of packets.
const IPV6: u16 = 1 << 8;
const NOT_IP: u16 = 1 << 9;
const BYTES: u16 = 1 << 10;
/// Keys that there can be: both versions, both sums; and what is not IP.
const PROTOCOL_KEYS: u32 = 2 * 2 * 256 + 2;

impl MonitorState {
    /// What each protocol carried, by number. For the control plane: allocates.
    #[must_use]
    pub fn protocol_counts(&self) -> Vec<ProtocolCount> {
        let mut counts = std::collections::BTreeMap::new();
        self.protocols.for_each(|&key, sum| {
            let of = key & !BYTES;
            let entry = counts.entry(of).or_insert((0, 0));
            if key & BYTES == 0 {
                entry.0 = sum;
            } else {
                entry.1 = sum;
            }
        });
        let count = |(of, (packets, bytes)): (u16, (u64, u64))| ProtocolCount {
            protocol: (of & NOT_IP == 0).then_some((of as u8, of & IPV6 != 0)),
            packets,
            bytes,
        };
        counts.into_iter().map(count).collect()
    }

    /// All alarms, the oldest first. For the control plane: walks the table and allocates.
    #[must_use]
    pub fn raised(&self) -> Vec<(Suspect, Alarm)> {
        let mut raised = Vec::with_capacity(self.alarms.len_now());
        self.alarms
            .for_each(|row, alarm| raised.push((row.0, *alarm)));
        raised.sort_by_key(|(suspect, alarm)| (alarm.first, *suspect));
        raised
    }

    /// Flows of the interval that `tick` lies in, as long as it is kept: a part of the table from `cursor` on, and where to go on. For
    /// the control plane, between bursts.
    pub fn flows_at(
        &self,
        tick: Tick,
        (cursor, count): (u32, u32),
        mut each: impl FnMut(FlowRecord),
    ) -> Option<u32> {
        self.flow_packets
            .for_each_at(tick, (cursor, count), |observed, packets| {
                each(FlowRecord {
                    packets,
                    bytes: self.flow_bytes.sum_at(observed, tick),
                    ..FlowRecord::of(*observed)
                });
            })
    }

    /// How large the flows of the interval are that `tick` lies in. For the control plane: allocates.
    #[must_use]
    pub fn sizes_at(&self, tick: Tick, cells: u32) -> FlowSizes {
        let mut sizes = Vec::new();
        self.sizes
            .for_each_at(tick, (0, u32::MAX), |_, packets| sizes.push(packets));
        FlowSizes::of(sizes, cells)
    }
}

/// The function: forwards from its first port to its second and back, whatever it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Monitor {
    config: MonitorConfig,
}

impl Monitor {
    /// A monitor; values out of their bounds are taken as the nearest within.
    #[must_use]
    pub fn new(config: MonitorConfig) -> Self {
        Self {
            config: config.bounded(),
        }
    }

    /// What the operator chose.
    #[must_use]
    pub fn config(&self) -> &MonitorConfig {
        &self.config
    }

    /// Counts what is not IP.
    #[inline(never)]
    fn other(ask: Ask<'_, MonitorState>) -> Result<Verdict, Late> {
        let (packets, bytes) = ask.all((
            ask.protocols.find(&NOT_IP),
            ask.protocols.find(&(NOT_IP | BYTES)),
        ))?;
        let (out, length) = (forward(&ask), ask.packet().bytes().len() as u64);
        let mut act = ask.act()?;
        if let (Some(packets), Some(bytes)) = (packets, bytes) {
            act.protocols.add(&packets, 1);
            act.protocols.add(&bytes, length);
        }
        Ok(Verdict::Forward(out))
    }
}

impl NetworkFunction for Monitor {
    type State = MonitorState;

    fn state(&self, builder: &Builder) -> MonitorState {
        let config = &self.config;
        // The interval that is counted, and one that is over, for anyone who has to export it in another's place.
        let window = Window {
            buckets: 2,
            bucket_seconds: config.interval_s,
        };
        // Any instance may be the first to use any of these keys, and each may begin its share of them.
        let (_, instances) = builder.context().identity().share();
        // Alarms are decided by degrees, which edges tell as they are found; all sums are for reports.
        let lazily = builder.lazily();
        let listed = |name, flows| lazily.windowed_counters(name, flows, window).listed();
        MonitorState {
            protocols: lazily.counters("protocols", PROTOCOL_KEYS.saturating_mul(instances)),
            links: lazily.graph("links", config.edges_max, config.edge_idle_s),
            alarms: builder.table("alarms", config.alarms_max, &[config.alarm_keep_s]),
            flow_packets: listed("flow_packets", config.flows_max),
            flow_bytes: listed("flow_bytes", config.flows_max),
            sizes: lazily
                .windowed_counters("sizes", config.cells.saturating_mul(instances), window)
                .listed(),
            heavy_bytes: lazily.top_k("heavy_bytes", config.places),
            heavy_packets: lazily.top_k("heavy_packets", config.places),
            volumes: lazily.count_min("volumes", VOLUME_ERROR, VOLUME_DOUBT),
            unrecorded: lazily.counter("unrecorded"),
        }
    }

    #[inline(always)]
    fn packet(&self, ask: Ask<'_, MonitorState>) -> Result<Verdict, Late> {
        let Some(flow) = Flow::of(ask.packet()) else {
            return Self::other(ask);
        };
        let layout = ask.packet().layout();
        let bytes = layout.end().saturating_sub(layout.network_offset()) as u64;
        let of_ipv6 = if flow.is_ipv4() { 0 } else { IPV6 };
        let protocol = u16::from(flow.protocol) | of_ipv6;
        let cell = cell(&ask, &flow, self.config.cells);
        let observed = Observed::of(ask.packet(), flow);
        let protocols = ask.all((
            ask.protocols.find(&protocol),
            ask.protocols.find(&(protocol | BYTES)),
        ));
        let flows = ask.all((
            ask.flow_packets.find(&observed),
            ask.flow_bytes.find(&observed),
            ask.sizes.find(&cell),
        ));
        let links = ask.all((
            ask.links.link(&flow.source, &flow.destination),
            ask.links.out_degree(&flow.source),
            ask.links.in_degree(&flow.destination),
        ));
        let (protocols, (packets_of, bytes_of, cell), (link, out_degree, in_degree)) =
            ask.all((protocols, flows, links))?;
        let suspect = |host, degree| Suspect { host, degree };
        let (source, destination) = (
            suspect(flow.source, Degree::Out),
            suspect(flow.destination, Degree::In),
        );
        let (spreads, gathers) = ask.all((
            AlarmUpdate::of(&ask, source, out_degree, self.config.out_degree),
            AlarmUpdate::of(&ask, destination, in_degree, self.config.in_degree),
        ))?;
        let out = forward(&ask);
        let mut act = ask.act()?;
        let mut unrecorded = spreads.write(&mut act) + gathers.write(&mut act);
        if let (Some(packets_of), Some(bytes_of)) = protocols {
            act.protocols.add(&packets_of, 1);
            act.protocols.add(&bytes_of, bytes);
        }
        match link {
            Some(link) => act.links.add(link, bytes),
            None => unrecorded += 1,
        }
        match (packets_of, bytes_of) {
            (Some(packets_of), Some(bytes_of)) => {
                let twice = mutant::active(Mutant::FirstCountedTwice) && packets_of.total == 0;
                act.flow_packets.add(&packets_of, 1 + u64::from(twice));
                act.flow_bytes.add(&bytes_of, bytes);
            }
            _ => unrecorded += 1,
        }
        match cell {
            Some(cell) => act.sizes.add(&cell, 1),
            None => unrecorded += 1,
        }
        act.heavy_bytes.add(&flow, bytes);
        act.heavy_packets.add(&flow, 1);
        act.volumes.add(&flow, bytes);
        if unrecorded > 0 {
            act.unrecorded.add(unrecorded);
        }
        Ok(Verdict::Forward(out))
    }

    fn observable(&self) -> Option<&dyn Observable<MonitorState>> {
        Some(self)
    }

    fn schema(&self) -> u64 {
        u64::from(self.config.interval_s) << 32 | u64::from(self.config.cells)
    }
}

impl Observable<MonitorState> for Monitor {
    /// Of an interval by its number, [`FlowRecord`]s; alarms as [`Notice::read_all`](notice::Notice::read_all) reads them;
    /// what [`TrafficQuery`] names.
    fn report(
        &self,
        state: &MonitorState,
        question: u32,
        range: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        if question == notice::QUESTION {
            let each = |row: &Single<Suspect>, alarm: &Alarm, member| {
                alarm.notice(&row.0, member).write(out);
            };
            return state.alarms.for_each_from(range, each);
        }
        if let Some(look) = TrafficQuery::of(question) {
            return self.query(state, look, range, out);
        }
        let tick = question.saturating_mul(self.config.interval_s);
        let mut out = Writer::new(out, &[]);
        state.flows_at(tick, range, |record| record.encode(&mut out))
    }

    fn metrics(&self) -> &[OwnMetric] {
        &metrics::METRICS
    }

    fn measure(&self, state: &MonitorState, values: &mut Vec<u64>) {
        state.measure(values);
    }

    fn events(&self) -> &[OwnEvent] {
        &EVENTS
    }
}

#[inline(always)]
fn forward(ask: &Ask<'_, MonitorState>) -> PortNumber {
    PortNumber(ask.port().0 ^ 1)
}

/// The flow's cell in the sketch of sizes, alike on all instances; with the secret in both steps, so that nobody can choose
/// flows that share one.
#[inline(always)]
fn cell(ask: &Ask<'_, MonitorState>, flow: &Flow, cells: u32) -> u16 {
    let secret = ask.choose(1 << 63, u32::MAX);
    ask.choose(flow.hash(secret.into()), cells) as u16
}
