//! The settings of the port-scan detector.

use core::time::Duration;

use asterism_function::{IpPrefix, Tick};
use asterism_functions::port_scan::{
    FloodPolicy, PortScan, PortScanConfig, Response, Thresholds, VolumePolicy,
};

use crate::described::{
    DROP, Description, REPLICATED, absent, capacity, check_whole_seconds, delay, objects,
    placement, release, seconds,
};
use crate::error::FunctionError;
use crate::objects::{self, ObjectChoice};
use crate::settings::{FunctionSettings, changeable};
use asterism_notation::value::{show_count, show_duration};
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::{Kind, Word};
use asterism_toml_schema::section::{ChosenWord, Default, List, Setting, Values, section};

/// The settings of the port-scan detector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortScanSettings {
    /// How long a scanner is blocked; `None`: scans are only reported.
    pub block: Option<Duration>,
    /// The window of evidence.
    pub window: Duration,
    /// Unanswered ports that make a port scan.
    pub ports: u16,
    /// Hosts that refused that make a sweep.
    pub hosts: u16,
    /// What makes a scan by UDP, and what is done about one; `None`: they are not looked for.
    pub udp: Option<UdpScans>,
    /// Bits of an IPv6 address that are one source's.
    pub ipv6_prefix: u8,
    /// Sources that never raise an alert.
    pub exempt: Vec<IpPrefix>,
    /// The volume policy.
    pub volume: Option<Volume>,
    /// What makes a SYN flood, if they are looked for.
    pub flood: Option<Flooded>,
}

/// What makes a scan by UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpScans {
    /// Whether its source is blocked, where sources of other scans are.
    pub blocks: bool,
    /// Ports that refused that make a port scan.
    pub ports: u16,
    /// Hosts that refused that make a sweep.
    pub hosts: u16,
}

/// A service with so many handshakes that are not completed is flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flooded {
    /// Handshakes begun within the window and not completed, over all hosts.
    pub handshakes: u32,
    /// The window.
    pub window: Duration,
}

/// A destination port that gets more than this is blocked for everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Bits of whole frames, over all hosts.
    pub bits: u64,
    /// The window that they are counted in; zero: since the start, and the block is for ever.
    pub window: Duration,
    /// How long the port is blocked.
    pub block: Duration,
}

objects! {
    "port-scan":
    histories: Table = "Recent probes of each source; up to four entries a source.",
        [placement(REPLICATED), delay(), absent(DROP), release(), capacity("65_536")];
    blocked: Table = "Sources blocked for a scan, or manually.",
        [placement(REPLICATED), delay(), absent(DROP), release(), capacity("8_192")];
    alerts: Table = "Scans found.",
        [placement(REPLICATED), delay(), absent(DROP), release(), capacity("8_192")];
    volume: Counter = "Bits by destination port.",
        [placement(REPLICATED), delay()];
    watched: Table = "Destination ports that are measured or blocked.",
        [placement(REPLICATED), delay(), absent(DROP), release()];
    syns: Counter = "Approximate recent SYNs of each service: a sketch.",
        [placement(REPLICATED), delay()];
    handshakes: Table = "Outcomes of handshakes with services that get many SYNs; up to three entries a service.",
        [placement(REPLICATED), delay(), absent(DROP), release(), capacity("4_096")];
    floods: Table = "SYN floods found, each for a minute; as many as `alerts` or `blocked`.",
        [placement(REPLICATED), delay(), absent(DROP), release()];
    unrecorded: Counter = "How often an entry found no room.",
        [placement(REPLICATED), delay()];
}

pub(super) const PORT_SCAN: Description<PortScanSettings> = Description {
    name: "port-scan",
    settings: SETTINGS.section(),
    objects: OBJECTS,
    together: &[],
    build,
};

section! {
    static SETTINGS: SettingsKeys = {
        path: "function.port-scan",
        meaning: "Finds port scans, sweeps and SYN floods, informs every host, and blocks scanners.",
        fields: {
            response: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "block",
                            meaning: "Every host drops all packets of the scanner for the time `block`.",
                        },
                        Word {
                            word: "detect",
                            meaning: "An alert is raised; every packet passes.",
                        },
                    ],
                    refused: &[],
                },
                default: Default::Is("\"block\""),
                meaning: "The response to a scan. Source addresses can be forged: exempt those that must not be cut off.",
            },
            block: Duration = seconds(1, "\"10m\"", "How long a scanner is blocked."),
            window: Duration = seconds(
                1,
                "\"1m\"",
                "The window of evidence: this window and the previous one count; slower scans are not found.",
            ),
            ports: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 200,
                },
                default: Default::Is("7"),
                meaning: "Distinct unanswered TCP ports, or refused IP protocols, that make a port scan.",
            },
            hosts: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 200,
                },
                default: Default::Is("5"),
                meaning: "Distinct refusing hosts that make a sweep.",
            },
            udp: Values = Setting {
                kind: Kind::Table(UDP.section()),
                default: Default::Unset("the defaults of its fields"),
                meaning: "Finds UDP scans. Silence is weak evidence: streams and lost clients are silent, too.",
            },
            ipv6_prefix: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 128,
                },
                default: Default::Is("64"),
                meaning: "The prefix length of an IPv6 source: its evidence and its block cover all addresses with the same prefix. 128 separates all addresses.",
            },
            exempt: List<IpPrefix> = Setting {
                kind: Kind::List {
                    of: &Kind::IpPrefix,
                    most: 1024,
                },
                default: Default::Is("[]"),
                meaning: "Sources that never raise an alert: monitoring, resolvers, name servers. Their handshakes are part of no flood.",
            },
            volume: Values = Setting {
                kind: Kind::Table(VOLUME.section()),
                default: Default::Unset("no port is blocked for its volume"),
                meaning: "Blocks a destination port with too much traffic.",
            },
            flood: Values = Setting {
                kind: Kind::Table(FLOOD.section()),
                default: Default::Unset("the defaults of its fields"),
                meaning: "Finds services with too many SYNs. Nothing is dropped, as sources of a flood are forged.",
            },
        },
    };
}

section! {
    static UDP: UdpKeys = {
        path: "function.port-scan.udp",
        meaning: "Finds UDP scans.",
        fields: {
            response: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "block",
                            meaning: "The function's response, as for other scans.",
                        },
                        Word {
                            word: "detect",
                            meaning: "An alert is raised; every packet passes.",
                        },
                        Word {
                            word: "off",
                            meaning: "UDP scans are not looked for.",
                        },
                    ],
                    refused: &[],
                },
                default: Default::Is("\"block\""),
                meaning: "The response to a UDP scan.",
            },
            ports: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 100,
                },
                default: Default::Is("10"),
                meaning: "Distinct refusing ports that make a port scan. A silent port counts half, and an eighth where the host sends, too.",
            },
            hosts: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 200,
                },
                default: Default::Is("5"),
                meaning: "Distinct refusing hosts that make a sweep. A silent host counts an eighth.",
            },
        },
    };
}

section! {
    static VOLUME: VolumeKeys = {
        path: "function.port-scan.volume",
        meaning: "Blocks a destination port with too much traffic, over all hosts.",
        fields: {
            megabits: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 1_000_000_000,
                },
                default: Default::Is("1_024"),
                meaning: "The limit, in millions of bits of whole frames.",
            },
            window: Duration = seconds(
                0,
                "\"0s\"",
                "The window in which the bits are counted. With 0s they are counted from the start, and the block is permanent.",
            ),
            block: Duration = seconds(0, "\"0s\"", "How long the port is blocked, with a window."),
        },
    };
}

section! {
    static FLOOD: FloodKeys = {
        path: "function.port-scan.flood",
        meaning: "Finds services with too many SYNs, over all hosts.",
        fields: {
            handshakes: u64 = Setting {
                kind: Kind::Count {
                    least: 0,
                    most: 10_000_000,
                },
                default: Default::Is("500"),
                meaning: "About how many handshakes with an address and port, begun in a window and not completed, make a flood; 0 looks for none.",
            },
            window: Duration = seconds(3, "\"5s\"", "The window for begun handshakes."),
        },
    };
}

/// Fewer handshakes are no flood: they are not distinguished from chance.
const HANDSHAKES_LEAST: u64 = 16;

fn build(values: &Values, report: &mut Report) -> Option<PortScanSettings> {
    let blocks = values.get(SETTINGS.response)? == "block";
    let (volume, flood) = (values.get(SETTINGS.volume), values.get(SETTINGS.flood));
    check_block(blocks, values, report);
    for field in [SETTINGS.block, SETTINGS.window] {
        check_whole_seconds(values, field, report);
    }
    if let Some(volume) = &volume {
        check_volume(volume, report);
    }
    if let Some(flood) = &flood {
        check_flood(flood, report);
    }
    let exempt = values.get(SETTINGS.exempt)?.into_iter();
    let small = |field| u16::try_from(values.get(field)?).ok();
    Some(PortScanSettings {
        block: match blocks {
            true => Some(values.get(SETTINGS.block)?),
            false => None,
        },
        window: values.get(SETTINGS.window)?,
        ports: small(SETTINGS.ports)?,
        hosts: small(SETTINGS.hosts)?,
        udp: match values.get(SETTINGS.udp) {
            None => Some(UdpScans::default()),
            Some(udp) => udp_scans(&udp)?,
        },
        ipv6_prefix: u8::try_from(values.get(SETTINGS.ipv6_prefix)?).ok()?,
        exempt: exempt.map(|(prefix, _)| prefix).collect(),
        volume: match volume {
            None => None,
            Some(volume) => Some(Volume {
                bits: volume.get(VOLUME.megabits)? * 1_000_000,
                window: volume.get(VOLUME.window)?,
                block: volume.get(VOLUME.block)?,
            }),
        },
        flood: match flood {
            None => Some(Flooded::default()),
            Some(flood) => flooded(&flood)?,
        },
    })
}

fn check_block(blocks: bool, values: &Values, report: &mut Report) {
    if !blocks && let Some(place) = values.place(SETTINGS.block) {
        report.add(
            Diagnostic::error(
                "`block` has no meaning with the response \"detect\"",
                place.key.clone(),
            )
            .help("leave `block` out, or choose response = \"block\""),
        );
    }
}

fn check_volume(volume: &Values, report: &mut Report) {
    for field in [VOLUME.block, VOLUME.window] {
        check_whole_seconds(volume, field, report);
    }
    if volume.get(VOLUME.window) != Some(Duration::ZERO)
        && volume.get(VOLUME.block) == Some(Duration::ZERO)
    {
        report.add(
            Diagnostic::error(
                "a port would be blocked for no time",
                volume.span_of(VOLUME.block),
            )
            .help("write how long, such as block = \"10m\""),
        );
    }
}

fn check_flood(flood: &Values, report: &mut Report) {
    check_whole_seconds(flood, FLOOD.window, report);
    if let Some(handshakes) = flood.get(FLOOD.handshakes)
        && (1..HANDSHAKES_LEAST).contains(&handshakes)
    {
        report.add(
            Diagnostic::error(
                format!("{handshakes} handshakes are too few to tell a flood from chance"),
                flood.span_of(FLOOD.handshakes),
            )
            .help(format!(
                "write handshakes = {HANDSHAKES_LEAST} or more, or handshakes = 0 to look for no floods"
            )),
        );
    }
}

/// What was chosen of floods; `None` of the inner option: they are not looked for.
fn flooded(flood: &Values) -> Option<Option<Flooded>> {
    let flooded = Flooded {
        handshakes: u32::try_from(flood.get(FLOOD.handshakes)?).ok()?,
        window: flood.get(FLOOD.window)?,
    };
    Some((flooded.handshakes != 0).then_some(flooded))
}

/// What was chosen of UDP; `None` of the inner option: its scans are not looked for.
fn udp_scans(udp: &Values) -> Option<Option<UdpScans>> {
    let response = udp.get(UDP.response)?;
    let scans = UdpScans {
        blocks: response == "block",
        ports: u16::try_from(udp.get(UDP.ports)?).ok()?,
        hosts: u16::try_from(udp.get(UDP.hosts)?).ok()?,
    };
    Some((response != "off").then_some(scans))
}

impl core::default::Default for UdpScans {
    fn default() -> Self {
        Self {
            blocks: true,
            ports: Thresholds::UDP.ports,
            hosts: Thresholds::UDP.hosts,
        }
    }
}

impl core::default::Default for Flooded {
    fn default() -> Self {
        let policy = FloodPolicy::default();
        Self {
            handshakes: policy.handshakes,
            window: Duration::from_secs(policy.window_s.into()),
        }
    }
}

impl FunctionSettings for PortScanSettings {
    type Function = PortScan;
    // What evidence amounts to, and whose does not count: all else is what the state was made of, or how evidence is kept.
    changeable!(SETTINGS: ports = ports, hosts = hosts, udp = udp, exempt = exempt);

    fn function(&self, objects: &[ObjectChoice]) -> Result<PortScan, FunctionError> {
        let of = |name| objects::capacity(objects, name);
        Ok(PortScan::new(PortScanConfig {
            histories_max: of(OBJECT.histories),
            samples_max: of(OBJECT.handshakes),
            alerts_max: of(OBJECT.alerts).max(of(OBJECT.blocked)),
            ..config(self)
        }))
    }

    fn words(&self) -> String {
        let response = match self.block {
            Some(block) => format!("is blocked for {}", show_duration(block)),
            None => "is reported".to_owned(),
        };
        let flood = self.flood.map_or_else(String::new, |flood| {
            format!(
                "; a service with {} handshakes begun within {} and not completed is reported",
                show_count(flood.handshakes.into()),
                show_duration(flood.window)
            )
        });
        format!(
            "a source with {} unanswered ports or {} refusing hosts within {} {response}{flood}",
            self.ports,
            self.hosts,
            show_duration(self.window)
        )
    }
}

fn config(settings: &PortScanSettings) -> PortScanConfig {
    let seconds = |time: Duration| Tick::try_from(time.as_secs()).unwrap_or(Tick::MAX);
    PortScanConfig {
        response: match settings.block {
            Some(block) => Response::Block {
                block_s: seconds(block),
            },
            None => Response::Detect,
        },
        window_s: seconds(settings.window),
        ports: settings.ports,
        hosts: settings.hosts,
        udp: settings.udp.map(|udp| Thresholds {
            ports: udp.ports,
            hosts: udp.hosts,
        }),
        udp_blocks: settings.udp.is_some_and(|udp| udp.blocks),
        ipv6_prefix: settings.ipv6_prefix,
        exempt: settings.exempt.clone(),
        volume: settings.volume.map(|volume| VolumePolicy {
            bits: volume.bits,
            window_s: seconds(volume.window),
            block_s: seconds(volume.block),
        }),
        flood: settings.flood.map(|flood| FloodPolicy {
            handshakes: flood.handshakes,
            window_s: seconds(flood.window),
        }),
        ..PortScanConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Function;
    use crate::Settings;

    fn read(fields: &str) -> PortScanSettings {
        let text = format!("[function.port-scan]\n{fields}");
        let (function, report) = Function::alone(&text);
        let function = function.unwrap_or_else(|| panic!("{}", report.render(false)));
        let Settings::PortScan(settings) = function.settings else {
            panic!("a detector of port scans")
        };
        settings
    }

    #[test]
    fn thresholds_and_exempt_sources_may_change_while_it_runs_and_nothing_else() {
        let now = read("ports = 7");
        assert_eq!(now.change_to(&read("# a comment\n")), Some(Vec::new()));
        let wanted = read(
            "ports = 9\nhosts = 8\nudp = { response = \"off\" }\nexempt = [\"192.0.2.9\", \"2001:db8::/32\"]",
        );
        let changed = now.change_to(&wanted).expect("they can change");
        assert_eq!(changed, PortScanSettings::CHANGEABLE);
        assert_eq!(
            now.change_to(&read("hosts = 8")),
            Some(vec!["hosts".to_owned()])
        );
        for other in [
            "window = \"2m\"",
            "ipv6_prefix = 56",
            "response = \"detect\"",
            "block = \"1m\"",
            "flood = { handshakes = 600 }",
            "volume = { megabits = 9 }",
        ] {
            let wanted = read(&format!("ports = 9\n{other}"));
            assert_eq!(now.change_to(&wanted), None, "{other}");
        }
    }
    #[test]
    fn udp_has_thresholds_and_a_switch_of_its_own() {
        let config = |fields: &str| config(&read(fields));
        let default = config("");
        assert_eq!(
            (default.udp, default.udp_blocks),
            (Some(Thresholds::UDP), true)
        );
        assert_eq!(config("udp = { response = \"off\" }").udp, None);
        let detect = config("udp = { response = \"detect\", ports = 20 }");
        let thresholds = Thresholds {
            ports: 20,
            hosts: 5,
        };
        assert_eq!((detect.udp, detect.udp_blocks), (Some(thresholds), false));
    }

    #[test]
    fn prefixes_of_both_versions_are_exempt() {
        let settings = read("exempt = [\"192.0.2.9\", \"10.0.0.0/8\", \"2001:db8::/32\", \"::1\"]");
        let shown: Vec<_> = settings.exempt.iter().map(ToString::to_string).collect();
        assert_eq!(shown.len(), 4);
        let text = "[function.port-scan]\nexempt = [\"::ffff:10.0.0.0/104\", \"10.0.0.1/8\"]";
        let (function, report) = Function::alone(text);
        assert!(function.is_none());
        let said = report.render(false);
        assert!(said.contains("10.0.0.0/8"), "{said}");
    }
}
