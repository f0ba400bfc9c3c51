//! What an operator chooses of the monitor.

use asterism_function::Tick;

/// What an operator chooses; `MonitorConfig::default()` is meant for a network's edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MonitorConfig {
    /// Seconds of an interval: flows are counted, exported and forgotten by intervals. 10 to 3,600, others are taken as the
    /// nearest of these. Default 60.
    pub interval_s: Tick,
    /// A host with edges to so many others raises an alarm; 0: none does. Default 200.
    pub out_degree: u32,
    /// A host to which edges lead from so many others raises an alarm; 0: none does. Default 2,000.
    pub in_degree: u32,
    /// Seconds for which an edge of the dispersion graph stays without a packet. Default 300.
    pub edge_idle_s: Tick,
    /// Edges as instances see them at most, over the whole cluster. Default 65,536.
    pub edges_max: u32,
    /// Flows of the last intervals at most, over the whole cluster, 2¹⁷ at most. Default 65,536.
    pub flows_max: u32,
    /// Places of each instance for the heaviest flows by bytes, and as many by packets. Default 512.
    pub places: u32,
    /// Cells of the sketch of flow sizes, 2¹³ at most. Default 4,096.
    pub cells: u32,
    /// Alarms at most. Default 4,096.
    pub alarms_max: u32,
    /// Seconds for which an alarm is kept after its last news. Default 3,600.
    pub alarm_keep_s: Tick,
}

impl Default for MonitorConfig {
    fn default() -> Self {
        Self {
            interval_s: 60,
            out_degree: 200,
            in_degree: 2_000,
            edge_idle_s: 300,
            edges_max: 1 << 16,
            flows_max: 1 << 16,
            places: 512,
            cells: 1 << 12,
            alarms_max: 1 << 12,
            alarm_keep_s: 3_600,
        }
    }
}

impl MonitorConfig {
    /// With every value within its bounds.
    pub(super) fn bounded(self) -> Self {
        Self {
            interval_s: self.interval_s.clamp(10, 3_600),
            flows_max: self.flows_max.clamp(1, 1 << 17),
            places: self.places.clamp(1, 1 << 16),
            cells: self.cells.clamp(1, 1 << 13),
            ..self
        }
    }
}
