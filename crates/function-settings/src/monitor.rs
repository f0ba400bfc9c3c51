//! The settings of the monitor.

use core::net::SocketAddr;
use core::time::Duration;

use asterism_function::Tick;
use asterism_functions::ipfix::Export;
use asterism_functions::monitor::{Monitor, MonitorConfig};

use super::export::{export, export_protocol};
use crate::described::{
    CHOICE, DROP, Description, GRAPH, HEAVIEST, LISTED, REPLICATED, Together, absent, capacity,
    check_whole_seconds, count, delay, kept_here, objects, placement, release,
};
use crate::error::FunctionError;
use crate::objects::{self, ObjectChoice};
use crate::settings::{FunctionSettings, changeable};
use asterism_notation::value::show_duration;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::Kind;
use asterism_toml_schema::section::{ChosenWord, Default, Field, Setting, Values, section};

/// The settings of the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorSettings {
    /// How long flows are counted before they are exported.
    pub interval: Duration,
    /// Edges from a host that raise an alarm; 0: none do.
    pub out_degree: u32,
    /// Edges to a host that raise an alarm; 0: none do.
    pub in_degree: u32,
    /// How long an edge stays without a packet.
    pub edge_idle: Duration,
    /// Cells of the sketch of flow sizes.
    pub cells: u32,
    /// How long an alarm is kept after its last news.
    pub alarm_keep: Duration,
    /// Where flows are exported to.
    pub collector: Option<SocketAddr>,
    /// By which protocol.
    pub protocol: Export,
}

/// Keys that windowed counters may have, and places of the heaviest flows.
const fn bounded(most: u64, default: &'static str, meaning: &'static str) -> Field {
    CHOICE
        .capacity
        .field(count((16, most), Default::Is(default), meaning))
}

const FLOWS: &str = "The most flows of the last intervals over the whole cluster, shared out to hosts. Further flows pass and are counted as unrecorded.";
const PLACES: &str =
    "Places of each instance: a flow's reported size is off by all traffic ÷ places at most.";

objects! {
    "monitor":
    protocols: Counter = "Packets and bytes by protocol.",
        [placement(REPLICATED), delay()];
    links: Table = "Edges from sending to receiving hosts, each counted once for each instance that sees it.",
        [kept_here(REPLICATED, GRAPH), delay(), absent(DROP), release(), capacity("65_536")];
    alarms: Table = "Hosts with too many edges.",
        [placement(REPLICATED), delay(), absent(DROP), release(), capacity("4_096")];
    flow_packets: Counter = "Packets of each flow, by intervals.",
        [kept_here(REPLICATED, LISTED), delay(), bounded(1 << 17, "65_536", FLOWS)];
    flow_bytes: Counter = "Bytes of each flow, by intervals.",
        [kept_here(REPLICATED, LISTED), delay(), bounded(1 << 17, "65_536", FLOWS)];
    sizes: Counter = "The sketch of flow sizes, by intervals.",
        [kept_here(REPLICATED, LISTED), delay()];
    heavy_bytes: Counter = "The heaviest flows by bytes.",
        [kept_here(REPLICATED, HEAVIEST), delay(), bounded(1 << 16, "512", PLACES)];
    heavy_packets: Counter = "The heaviest flows by packets.",
        [kept_here(REPLICATED, HEAVIEST), delay(), bounded(1 << 16, "512", PLACES)];
    volumes: Counter = "Approximate bytes of any flow: a sketch.",
        [placement(REPLICATED), delay()];
    unrecorded: Counter = "How often an entry found no room.",
        [placement(REPLICATED), delay()];
}

pub(super) const MONITOR: Description<MonitorSettings> = Description {
    name: "monitor",
    settings: SETTINGS.section(),
    objects: OBJECTS,
    together: &[Together {
        objects: &[OBJECT.flow_packets, OBJECT.flow_bytes],
        otherwise: "one host would export flows with the packets of all hosts and the bytes of some",
    }],
    build,
};

const fn seconds(
    (least, most): (u64, u64),
    default: &'static str,
    meaning: &'static str,
) -> Setting {
    Setting {
        kind: Kind::Duration {
            least: Duration::from_secs(least),
            most: Duration::from_secs(most),
        },
        default: Default::Is(default),
        meaning,
    }
}

/// A week.
const WEEK: u64 = 7 * 24 * 3600;

section! {
    static SETTINGS: SettingsKeys = {
        path: "function.monitor",
        meaning: "Measures the traffic of all hosts together and changes none of it.",
        fields: {
            interval: Duration = seconds(
                (10, 3_600),
                "\"60s\"",
                "The interval in which flows are counted, exported and forgotten.",
            ),
            out_degree: u64 = count(
                (0, 1 << 22),
                Default::Is("200"),
                "A host that sends to this many others raises an alarm; 0: none does.",
            ),
            in_degree: u64 = count(
                (0, 1 << 22),
                Default::Is("2_000"),
                "A host that receives from this many others raises an alarm; 0: none does.",
            ),
            edge_idle: Duration = seconds(
                (1, WEEK),
                "\"5m\"",
                "How long a host counts as sending to another after its last packet.",
            ),
            cells: u64 = count(
                (16, 1 << 13),
                Default::Is("4_096"),
                "Cells of the sketch of flow sizes. Somewhat more cells than flows in an interval keep its error small.",
            ),
            alarm_keep: Duration = seconds(
                (1, WEEK),
                "\"1h\"",
                "How long an alarm is kept after its last update.",
            ),
            collector: SocketAddr = Setting {
                kind: Kind::Socket,
                default: Default::Unset("flows are not exported"),
                meaning: "The UDP address of the collector to which `asterism run` exports flows.",
            },
            protocol: ChosenWord = export_protocol(),
        },
    };
}

fn build(values: &Values, report: &mut Report) -> Option<MonitorSettings> {
    for field in [SETTINGS.interval, SETTINGS.edge_idle, SETTINGS.alarm_keep] {
        check_whole_seconds(values, field, report);
    }
    let narrow = |field| u32::try_from(values.get(field)?).ok();
    if let Some(collector) = values.get(SETTINGS.collector)
        && (collector.port() == 0 || collector.ip().is_unspecified())
    {
        report.add(
            Diagnostic::error(
                "nothing can be sent to this collector",
                values.span_of(SETTINGS.collector),
            )
            .help("write its address and port, such as \"192.0.2.9:4739\""),
        );
    }
    Some(MonitorSettings {
        interval: values.get(SETTINGS.interval)?,
        out_degree: narrow(SETTINGS.out_degree)?,
        in_degree: narrow(SETTINGS.in_degree)?,
        edge_idle: values.get(SETTINGS.edge_idle)?,
        cells: narrow(SETTINGS.cells)?,
        alarm_keep: values.get(SETTINGS.alarm_keep)?,
        collector: values.get(SETTINGS.collector),
        protocol: export(values.get(SETTINGS.protocol)?),
    })
}

impl FunctionSettings for MonitorSettings {
    type Function = Monitor;
    // The degrees: all else is what the state was made of, or what others have to count alike.
    changeable!(SETTINGS: out_degree = out_degree, in_degree = in_degree);

    fn function(&self, objects: &[ObjectChoice]) -> Result<Monitor, FunctionError> {
        let of = |name| objects::capacity(objects, name);
        Ok(Monitor::new(MonitorConfig {
            edges_max: of(OBJECT.links),
            flows_max: of(OBJECT.flow_packets).max(of(OBJECT.flow_bytes)),
            alarms_max: of(OBJECT.alarms),
            places: of(OBJECT.heavy_bytes).max(of(OBJECT.heavy_packets)),
            ..config(self)
        }))
    }

    fn words(&self) -> String {
        let exported = self.collector.map_or_else(
            || "not exported".to_owned(),
            |collector| match self.protocol {
                Export::Ipfix => format!("exported to {collector}"),
                Export::NetFlow9 => format!("exported to {collector} by NetFlow version 9"),
            },
        );
        format!(
            "every packet leaves as it came; flows are counted by {} and {exported}",
            show_duration(self.interval)
        )
    }
}

/// The settings in the function's own words, with its own capacities.
fn config(settings: &MonitorSettings) -> MonitorConfig {
    let seconds = |time: Duration| Tick::try_from(time.as_secs()).unwrap_or(Tick::MAX);
    MonitorConfig {
        interval_s: seconds(settings.interval),
        out_degree: settings.out_degree,
        in_degree: settings.in_degree,
        edge_idle_s: seconds(settings.edge_idle),
        cells: settings.cells,
        alarm_keep_s: seconds(settings.alarm_keep),
        ..MonitorConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Function;
    use crate::Settings;

    fn read(fields: &str) -> (MonitorSettings, Function) {
        let (function, report) = Function::alone(&format!("[function.monitor]\n{fields}"));
        let function = function.unwrap_or_else(|| panic!("{}", report.render(false)));
        let Settings::Monitor(settings) = function.settings.clone() else {
            panic!("a monitor")
        };
        (settings, function)
    }

    #[test]
    fn defaults_are_the_functions_own() {
        let (settings, function) = read("");
        let made = settings.function(&function.objects).unwrap();
        assert_eq!(*made.config(), MonitorConfig::default());
        let (settings, function) = read("collector = \"192.0.2.9:4739\"");
        settings.function(&function.objects).unwrap();
        assert!(settings.words().ends_with("exported to 192.0.2.9:4739"));
        assert_eq!(settings.protocol, Export::Ipfix);
        let (settings, _) = read("collector = \"192.0.2.9:2055\"\nprotocol = \"netflow-v9\"");
        assert_eq!(settings.protocol, Export::NetFlow9);
        assert!(settings.words().ends_with("by NetFlow version 9"));
    }

    #[test]
    fn degrees_may_change_while_it_runs_and_nothing_else() {
        let (now, _) = read("");
        assert_eq!(now.change_to(&now), Some(Vec::new()));
        let (wanted, _) = read("in_degree = 7\nout_degree = 8");
        let both = vec!["out_degree".to_owned(), "in_degree".to_owned()];
        assert_eq!(now.change_to(&wanted), Some(both));
        for other in [
            "interval = \"30s\"",
            "collector = \"192.0.2.9:4739\"",
            "protocol = \"netflow-v9\"",
        ] {
            assert_eq!(now.change_to(&read(other).0), None, "{other}");
        }
    }
}
