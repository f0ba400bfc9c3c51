//! When packets leave: at once, or when other hosts have the state that they depend on.

use core::time::Duration;

use asterism_engine::{FlowClass, HoldSettings, Overdue};
use asterism_function::Protocol;

use asterism_notation::network::Ports;
use asterism_placement::membership::MEMBERS_MAX;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::{Kind, Word};
use asterism_toml_schema::section::{ChosenWord, Default, List, Setting, Values, section};

/// Lists of ports and the like, at most.
const EXCEPTIONS_MAX: usize = 64;

section! {
    /// How packets are held back.
    pub(crate) static HOLD: HoldKeys = {
        path: "cluster.hold",
        meaning: "How packets are held back with `release = \"acked\"`.",
        fields: {
            copies: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: MEMBERS_MAX as u64 - 1,
                },
                default: Default::Is("1"),
                meaning: "The number of other hosts that must have what a packet depends on: so many hosts may die at once. Where fewer take part, all of them.",
            },
            longest: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::from_micros(100),
                    most: Duration::from_secs(1),
                },
                default: Default::Is("\"20ms\""),
                meaning: "The longest that a packet is held. More than a round trip to the other hosts, and less than senders wait before they send again.",
            },
            held_max: u64 = Setting {
                kind: Kind::Count {
                    least: 32,
                    most: 1 << 16,
                },
                default: Default::Is("1_024"),
                meaning: "The most packets that an instance holds, of the buffers of its ports.",
            },
            held_bytes_max: u64 = Setting {
                kind: Kind::Size {
                    least: 64 << 10,
                    most: 1 << 30,
                },
                default: Default::Is("\"2MiB\""),
                meaning: "The most bytes of these packets.",
            },
            overdue: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "drop",
                            meaning: "They are dropped and counted. The promise is kept, and senders send again.",
                        },
                        Word {
                            word: "release",
                            meaning: "They leave, and are counted. Their connections may be lost with this host.",
                        },
                    ],
                    refused: &[],
                },
                default: Default::Is("\"drop\""),
                meaning: "What becomes of packets that were held for the longest time, or that are too many.",
            },
            except_tcp: List<Ports> = Setting {
                kind: Kind::List {
                    of: &Kind::Ports,
                    most: EXCEPTIONS_MAX,
                },
                default: Default::Is("[]"),
                meaning: "TCP ports, at either end: packets of these flows leave at once.",
            },
            except_udp: List<Ports> = Setting {
                kind: Kind::List {
                    of: &Kind::Ports,
                    most: EXCEPTIONS_MAX,
                },
                default: Default::Is("[]"),
                meaning: "UDP ports, at either end: packets of these flows leave at once.",
            },
            except_icmp: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("false"),
                meaning: "Whether ICMP packets leave at once.",
            },
        },
    };
}

/// How packets of a cluster of so many hosts are held back. `None` if anything is wrong.
pub(super) fn hold(values: &Values, members: usize, report: &mut Report) -> Option<HoldSettings> {
    let copies = values.get(HOLD.copies)?;
    if copies as usize >= members && values.place(HOLD.copies).is_some() {
        report.add(
            Diagnostic::error(
                format!("{members} hosts cannot make {copies} other copies"),
                values.span_of(HOLD.copies),
            )
            .help(match members.saturating_sub(1) {
                0 => {
                    "list a second host in `members`, or leave `release` and `hold` out".to_owned()
                }
                most => format!("write copies = {most} or less, or list more `members`"),
            }),
        );
    }
    let ports = |key, protocol| {
        let ports: List<Ports> = values.get(key).unwrap_or_default();
        ports.into_iter().map(move |(ports, _)| FlowClass {
            protocol,
            ports: Some(ports.first..=ports.last),
        })
    };
    let mut exempt: Vec<_> = ports(HOLD.except_tcp, Protocol::TCP).collect();
    exempt.extend(ports(HOLD.except_udp, Protocol::UDP));
    if values.get(HOLD.except_icmp)? {
        exempt.push(FlowClass {
            protocol: Protocol::ICMP,
            ports: None,
        });
    }
    Some(HoldSettings {
        copies: copies as u32,
        packets_max: values.get(HOLD.held_max)? as usize,
        bytes_max: values.get(HOLD.held_bytes_max)? as usize,
        age_max: values.get(HOLD.longest)?,
        overdue: match values.get(HOLD.overdue)? {
            "release" => Overdue::Release,
            _ => Overdue::Drop,
        },
        exempt,
    })
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use asterism_engine::Overdue;

    use crate::Config;

    fn read(cluster: &str, state: &str) -> Result<Config, String> {
        let text = format!(
            "[cluster]\nmembers = [\"a\", \"b\", \"c\"]\nkey = \"k\"\n{cluster}\n[function.firewall]\nrules = \"r\"\n[function.firewall.state]\n{state}\n"
        );
        let (config, report) = Config::read("test.toml", &text);
        config.ok_or_else(|| report.render(false))
    }

    #[test]
    fn packets_leave_at_once_unless_the_cluster_says_otherwise() {
        let config = read("", "").expect("it is right");
        assert_eq!(config.cluster.hold, None);
        assert!(config.function.objects.iter().all(|one| !one.holds_output));
        let hold = "release = \"acked\"\nhold = { copies = 2, longest = \"5ms\", overdue = \"release\", except_udp = [\"53\", \"500-600\"], except_icmp = true }";
        let config = read(hold, "blocked = { release = \"at-once\" }").expect("it is right");
        let hold = config.cluster.hold.expect("packets are held");
        assert_eq!((hold.copies, hold.exempt.len()), (2, 3));
        assert_eq!(
            (hold.age_max, hold.overdue),
            (Duration::from_millis(5), Overdue::Release)
        );
        let holds = |name| config.function.object_settings(name).holds_output;
        assert!(holds("flows") && holds("fragments") && !holds("blocked"));
    }

    #[test]
    fn what_makes_no_packet_wait_is_refused_with_a_cure() {
        let refused = |cluster, state, cure: &str| {
            let report = read(cluster, state).expect_err("it is wrong");
            assert!(report.contains(cure), "{report}");
        };
        refused(
            "hold = { copies = 1 }",
            "",
            "add release = \"acked\" to [cluster]",
        );
        refused(
            "",
            "flows = { release = \"acked\" }",
            "add release = \"acked\" to [cluster]",
        );
        let local = "flows = { placement = \"local\", release = \"acked\" }";
        refused(
            "release = \"acked\"",
            local,
            "choose placement = \"replicated\"",
        );
        refused(
            "release = \"acked\"\nhold = { copies = 3 }",
            "",
            "write copies = 2 or less",
        );
        refused("release = \"acked\"\nhold = { copies = 0 }", "", "1 to 63");
    }
}
