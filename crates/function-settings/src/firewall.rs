//! The settings of the firewall. Its rules are in a file of their own, which callers read: see
//! [`FirewallSettings::read_rules`].

use core::time::Duration;
use std::path::PathBuf;

use asterism_function::Tick;
use asterism_functions::firewall::{Firewall, FirewallConfig, IdleTimes, Rules, read_rules};

use crate::described::{
    DROP, Description, LOCAL, REPLICATED, Together, absent, capacity, check_whole_seconds, delay,
    flow_capacity, objects, placement, release, times,
};
use crate::error::FunctionError;
use crate::objects::{self, ObjectChoice, Placement, Sharing};
use crate::settings::{FunctionSettings, ReadFile, differing};
use asterism_notation::value::show_count;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::{Kind, Word};
use asterism_toml_schema::section::{ChosenWord, Default, Setting, Values, section};

/// The settings of the firewall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirewallSettings {
    /// The rule file, as the configuration names it.
    pub rules_file: PathBuf,
    /// Where the configuration names it.
    pub rules_place: core::ops::Range<usize>,
    /// Its content; `None`: not read yet.
    pub rules: Option<Rules>,
    /// Whether connections are picked up in their middle.
    pub picks_up: bool,
    /// Half-open connections of a source.
    pub half_open_per_source: u32,
    /// Half-open connections to a destination.
    pub half_open_per_destination: u32,
    /// Half-open connections begun on a link.
    pub half_open_total: u32,
    /// Answers of rules that reject, in a second.
    pub answers_per_second: u16,
    /// Whether paths may show one direction of a connection alone.
    pub asymmetric: bool,
    /// Whether a flow is of its VLAN.
    pub per_vlan: bool,
    /// Whether flows that new rules deny end when those are taken up.
    pub ends_denied: bool,
    /// How long a packet waits for what another host may have seen.
    pub settle: Duration,
    /// When flows end.
    pub idle: FirewallIdleTimes,
}

impl FirewallSettings {
    /// Takes up what the rule file says.
    ///
    /// # Errors
    /// A report on that file, with all its mistakes; nothing was taken up.
    pub fn read_rules(&mut self, name: &str, text: &str) -> Result<(), Report> {
        match read_rules(text) {
            Ok(rules) => {
                self.rules = Some(rules);
                Ok(())
            }
            Err(mistakes) => {
                let mut report = Report::new(name, text);
                for mistake in mistakes {
                    report
                        .add(Diagnostic::error(mistake.wrong, mistake.span).help(mistake.instead));
                }
                Err(report)
            }
        }
    }
}

objects! {
    "firewall":
    flows: Conversations = "The state of each flow.",
        [placement(REPLICATED), delay(), absent(DROP), release(), flow_capacity("65_536")];
    handshakes: Counter = "Connections begun and completed within the last minute by source; two entries for each.",
        [placement(REPLICATED), delay(), capacity("16_384")];
    destinations: Counter = "Connections begun and completed within the last minute by destination; two entries for each.",
        [placement(REPLICATED), delay(), capacity("16_384")];
    links: Counter = "Connections begun and completed within the last minute on each link.",
        [placement(REPLICATED), delay()];
    fragments: Conversations = "Fragmented datagrams whose first fragment passed.",
        [placement(REPLICATED), delay(), absent(DROP), release(), capacity("65_536")];
    blocked: Table = "Sources blocked by a rule, or manually.",
        [placement(REPLICATED), delay(), absent(DROP), release(), capacity("8_192")];
    hits: Counter = "New flows by the number of the deciding rule; 0 is the default.",
        [placement(REPLICATED), delay()];
    events: Table = "Decisions of rules with `log`, and refusals by limits on half-open connections, once for each rule, source and minute.",
        [placement(REPLICATED), delay(), absent(DROP), release(), capacity("8_192")];
    answers: Table = "Rejected flows answered in the current second, for each link.",
        [placement(LOCAL), delay(), absent(DROP), release()];
    blocks_without_room: Counter = "Packets whose source was not blocked because `blocked` was full.",
        [placement(REPLICATED), delay()];
    events_without_room: Counter = "Packets not recorded because `events` was full.",
        [placement(REPLICATED), delay()];
}

pub(super) const FIREWALL: Description<FirewallSettings> = Description {
    name: "firewall",
    settings: SETTINGS.section(),
    objects: OBJECTS,
    together: &[Together {
        objects: &[OBJECT.flows, OBJECT.fragments],
        otherwise: "a datagram would pass in part",
    }],
    build,
};

section! {
    static SETTINGS: SettingsKeys = {
        path: "function.firewall",
        meaning: "Admits new flows by rules, and packets that belong to known flows.",
        fields: {
            rules: String = Setting {
                kind: Kind::File,
                default: Default::Required("\"firewall.rules\""),
                meaning: "The rule file. Its rules may change while hosts run: `asterism reload`.",
            },
            pick_up: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("false"),
                meaning: "Whether connections without a seen beginning go on where a rule would admit them: for a firewall's first minutes in a network with existing connections.",
            },
            asymmetric: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("false"),
                meaning: "Whether paths may show only one direction of a TCP connection. Its packets then pass without answers, connections without a seen beginning go on as with `pick_up`, and sequence numbers are not checked. Costs safety: see the firewall's page.",
            },
            per_vlan: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("true"),
                meaning: "Whether the same addresses and ports on two VLANs are two flows; `false` where the directions of a path have different VLANs.",
            },
            on_reload: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "keep",
                            meaning: "Known flows go on, even if the new rules deny them.",
                        },
                        Word {
                            word: "end-denied",
                            meaning: "Flows that the new rules deny end, on all hosts.",
                        },
                    ],
                    refused: &[],
                },
                default: Default::Is("\"keep\""),
                meaning: "What happens to known flows when changed rules take effect. This setting may change with the rules.",
            },
            half_open_per_source: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 1 << 20,
                },
                default: Default::Is("256"),
                meaning: "The most half-open TCP connections begun by one source within the last minute, over all hosts.",
            },
            half_open_total: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 1 << 22,
                },
                default: Default::Is("16_384"),
                meaning: "The same over all sources on one link, inside or outside. Choose less than half the capacity of `flows`, so that floods leave room.",
            },
            half_open_per_destination: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 1 << 22,
                },
                default: Default::Is("4_096"),
                meaning: "The same to one destination, over all sources, so that a flood of one server leaves room for connections to others. With the value of `half_open_total` destinations have no limit of their own.",
            },
            reject_answers: u64 = Setting {
                kind: Kind::Rate {
                    least: 0,
                    most: 65_535,
                },
                default: Default::Is("\"1000/s\""),
                meaning: "The most answers to rejected flows, for each link and instance separately; further flows are dropped without an answer.",
            },
            settle: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::ZERO,
                    most: Duration::from_secs(1),
                },
                default: Default::Is("\"20ms\""),
                meaning: "How long a packet that fits no flow waits for updates of other hosts before it is dropped; unused by a single host.",
            },
            idle: Values = Setting {
                kind: Kind::Table(IDLE.section()),
                default: Default::Is("{}"),
                meaning: "Idle times of flows.",
            },
        },
    };
}

times! {
    /// When flows end.
    pub struct FirewallIdleTimes;
    static IDLE: IdleKeys = {
        path: "function.firewall.idle",
        meaning: "Idle times after which a flow ends, in whole seconds.",
        fields: {
            tcp_half_open = (5, "\"1m\"", "TCP before the handshake is complete."),
            tcp_established = (60, "\"2h 4m\"", "TCP (RFC 5382, REQ-5)."),
            tcp_closing = (1, "\"2m\"", "TCP after a reset or both FINs."),
            udp_one_way = (1, "\"30s\"", "UDP without an answer."),
            udp = (1, "\"5m\"", "UDP (RFC 4787, REQ-5)."),
            icmp_query = (1, "\"30s\"", "ICMP queries."),
            other = (1, "\"10m\"", "Other protocols."),
        },
    };
}

fn build(values: &Values, report: &mut Report) -> Option<FirewallSettings> {
    let idle = values.get(SETTINGS.idle)?;
    for field in FirewallIdleTimes::KEYS {
        check_whole_seconds(&idle, *field, report);
    }
    let (own, to, all) = (
        values.get(SETTINGS.half_open_per_source)?,
        values.get(SETTINGS.half_open_per_destination)?,
        values.get(SETTINGS.half_open_total)?,
    );
    if own > all {
        let title = "one source may have more half-open connections than all together";
        report.add(
            Diagnostic::error(title, values.span_of(SETTINGS.half_open_per_source))
                .help(format!("write half_open_per_source = {all} or less")),
        );
    }
    Some(FirewallSettings {
        rules_file: values.get(SETTINGS.rules)?.into(),
        rules_place: values.span_of(SETTINGS.rules),
        rules: None,
        picks_up: values.get(SETTINGS.pick_up)?,
        asymmetric: values.get(SETTINGS.asymmetric)?,
        per_vlan: values.get(SETTINGS.per_vlan)?,
        ends_denied: values.get(SETTINGS.on_reload)? == "end-denied",
        half_open_per_source: u32::try_from(own).ok()?,
        half_open_per_destination: u32::try_from(to).ok()?,
        half_open_total: u32::try_from(all).ok()?,
        answers_per_second: u16::try_from(values.get(SETTINGS.reject_answers)?).ok()?,
        settle: values.get(SETTINGS.settle)?,
        idle: FirewallIdleTimes::read(&idle)?,
    })
}

impl FunctionSettings for FirewallSettings {
    type Function = Firewall;
    const CHANGEABLE: &'static [&'static str] = &[
        SETTINGS.keys().rules.name(),
        SETTINGS.keys().on_reload.name(),
    ];

    fn function(&self, objects: &[ObjectChoice]) -> Result<Firewall, FunctionError> {
        let of = |name| objects::capacity(objects, name);
        let shared = objects
            .iter()
            .any(|object| object.name == "flows" && object.placement == Placement::Replicated);
        let config = config(self)?;
        Ok(Firewall::new(FirewallConfig {
            settle_us: if shared { config.settle_us } else { 0 },
            flows_max: of(OBJECT.flows),
            fragments_max: of(OBJECT.fragments),
            blocked_max: of(OBJECT.blocked),
            events_max: of(OBJECT.events),
            ..config
        }))
    }

    fn words(&self) -> String {
        let rules = self.rules.as_ref().map_or(0, |rules| rules.rules().len());
        format!(
            "{} rules of {}; {} half-open connections a source, {} a destination, {} a link",
            show_count(rules as u64),
            self.rules_file.display(),
            show_count(self.half_open_per_source.into()),
            show_count(
                self.half_open_per_destination
                    .min(self.half_open_total)
                    .into()
            ),
            show_count(self.half_open_total.into())
        )
    }

    fn shared_by(&mut self, sharing: Sharing) {
        if !sharing.is_shared() {
            self.settle = Duration::ZERO;
        }
    }

    fn why_not_passed_by(&self) -> Option<&'static str> {
        Some("refused packets would pass")
    }

    fn read_files(&mut self, read: &ReadFile<'_>, report: &mut Report) {
        let place = self.rules_place.clone();
        match read(&self.rules_file) {
            Ok((name, text)) => {
                let read = self.read_rules(&name, &text);
                if let (Ok(()), Some(rules)) = (&read, &self.rules) {
                    let mut warnings = Report::new(&name, &text);
                    for rule in rules.rules().iter().filter(|rule| rule.names_no_address()) {
                        warnings.add(
                            Diagnostic::warning(
                                format!(
                                    "the rule of line {} names an IPv4-mapped network, which holds no address",
                                    rule.line
                                ),
                                line_of(&text, rule.line),
                            )
                            .help("write the network in IPv4's own form, such as 10.0.0.0/8"),
                        );
                    }
                    if warnings.warnings() > 0 {
                        report.others.push(warnings);
                    }
                }
                if let Err(mistakes) = read {
                    report.others.push(mistakes);
                    report.add(
                        Diagnostic::error("the rule file has mistakes", place)
                            .help("they are reported below"),
                    );
                }
            }
            Err(error) => report.add(
                Diagnostic::error("the rule file cannot be used", place).help(error.to_string()),
            ),
        }
    }

    fn change_to(&self, wanted: &Self) -> Option<Vec<String>> {
        let without = |settings: &Self| Self {
            rules: None,
            rules_file: PathBuf::new(),
            rules_place: 0..0,
            ends_denied: false,
            ..settings.clone()
        };
        (without(self) == without(wanted)).then(|| {
            differing([
                (SETTINGS.rules.name(), self.rules != wanted.rules),
                (
                    SETTINGS.on_reload.name(),
                    self.ends_denied != wanted.ends_denied,
                ),
            ])
        })
    }
}

/// Where a line of a text is, counted from 1.
fn line_of(text: &str, line: u32) -> core::ops::Range<usize> {
    let ends = text.match_indices('\n').map(|(at, _)| at);
    let mut starts = core::iter::once(0).chain(ends.map(|at| at + 1));
    let start = starts.nth(line.saturating_sub(1) as usize).unwrap_or(0);
    let end = text[start..].find('\n').map_or(text.len(), |at| start + at);
    start..end
}

/// The settings in the function's own words, with its own capacities.
fn config(settings: &FirewallSettings) -> Result<FirewallConfig, FunctionError> {
    let seconds = |time: Duration| Tick::try_from(time.as_secs()).unwrap_or(Tick::MAX);
    let rules = settings
        .rules
        .clone()
        .ok_or_else(|| FunctionError::RulesNotRead(settings.rules_file.clone()))?;
    Ok(FirewallConfig {
        rules,
        picks_up: settings.picks_up,
        asymmetric: settings.asymmetric,
        per_vlan: settings.per_vlan,
        half_open_per_source: settings.half_open_per_source,
        half_open_per_destination: settings.half_open_per_destination,
        half_open_total: settings.half_open_total,
        answers_per_second: settings.answers_per_second,
        settle_us: settings.settle.as_micros() as u32,
        idle: IdleTimes {
            tcp_half_open: seconds(settings.idle.tcp_half_open),
            tcp_established: seconds(settings.idle.tcp_established),
            tcp_closing: seconds(settings.idle.tcp_closing),
            udp_one_way: seconds(settings.idle.udp_one_way),
            udp: seconds(settings.idle.udp),
            icmp_query: seconds(settings.idle.icmp_query),
            other: seconds(settings.idle.other),
        },
        ..FirewallConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Function;
    use crate::Settings;

    #[test]
    fn a_firewall_is_made_of_its_rules_and_of_nothing_without_them() {
        let text = "[function.firewall]\nrules = \"none.rules\"";
        let (function, report) = Function::alone(text);
        let function = function.unwrap_or_else(|| panic!("{}", report.render(false)));
        let Settings::Firewall(mut settings) = function.settings else {
            panic!()
        };
        assert!(settings.function(&function.objects).is_err());
        settings.read_rules("none.rules", "default drop").unwrap();
        let made = settings.function(&function.objects).unwrap();
        let alone = FirewallConfig {
            settle_us: 0,
            ..FirewallConfig::default()
        };
        assert_eq!(*made.config(), alone);
    }

    #[test]
    fn a_packet_waits_for_other_instances_only_where_there_are_some() {
        let settle = |members, instances| {
            let sharing = Sharing {
                members,
                instances,
                is_acked: false,
            };
            let text = "[function.firewall]\nrules = \"none.rules\"";
            let (function, report) = Function::shared(text, sharing);
            let function = function.unwrap_or_else(|| panic!("{}", report.render(false)));
            match function.settings {
                Settings::Firewall(settings) => settings.settle,
                _ => panic!("a firewall"),
            }
        };
        let wait = Duration::from_millis(20);
        assert_eq!(settle(1, 1), Duration::ZERO);
        assert_eq!(settle(2, 1), wait);
        assert_eq!(settle(1, 2), wait);
    }
}
