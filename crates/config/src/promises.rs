//! Combinations of choices that cannot keep a function's promises: each is refused with an alternative.

use core::ops::Range;
use core::time::Duration;

use super::diagnostic::{Diagnostic, Report};
use super::functions::{BalancerMode, Described, ObjectKind, Settings};
use super::kind::Absent;
use super::objects::{Chosen, ObjectChoice, Placement, Sharing};
use super::port::{Port, PortMode};
use super::section::Values;
use super::{fields, suggestion};

/// Refuses combinations that cannot keep what the function promises.
pub(super) fn check(
    function: &Described,
    chosen: &[Chosen<'_>],
    sharing: Sharing,
    report: &mut Report,
) {
    for together in function.together {
        let objects: Vec<_> = together
            .objects
            .iter()
            .filter_map(|name| chosen.iter().find(|one| one.object.name == *name))
            .collect();
        let apart = objects.windows(2).find(|pair| {
            pair[0].placement.is_some()
                && pair[1].placement.is_some()
                && pair[0].placement != pair[1].placement
        });
        if let Some(pair) = apart {
            report.add(apart_error(pair, together.otherwise));
        } else if sharing.members * sharing.instances > 1
            && let Some(one) = objects.iter().find(|one| {
                one.placement
                    .is_some_and(|placement| placement != Placement::Replicated)
            })
        {
            let names =
                suggestion::ticked(together.objects.iter().copied()).replace(" or ", " and ");
            report.add(
                Diagnostic::error(
                    format!(
                        "{names} are not shared, but there are {} instances",
                        sharing.members * sharing.instances
                    ),
                    one.values.span_of("placement"),
                )
                .label(format!("so {}", together.otherwise))
                .help(
                    "choose placement = \"replicated\" for all of them, or run a single instance",
                ),
            );
        }
    }
    for one in chosen {
        if one.object.kind == ObjectKind::TokenBucket
            && one.placement == Some(Placement::Replicated)
            && one.values.has("accuracy")
            && one.values.choice("accuracy") == Some("exact")
        {
            report.add(
                Diagnostic::error(
                    format!("`{}` cannot be exact on replicas", one.object.name),
                    one.values.span_of("accuracy"),
                )
                .label("hosts learn of tokens spent elsewhere only later")
                .help("choose accuracy = \"shared\": each host gets an equal share of the rate")
                .help("or choose placement = \"local\": the rate then holds for each instance"),
            );
        }
        if one.placement == Some(Placement::Local)
            && sharing.members > 1
            && one.values.place("placement").is_some()
            && one.object.kind == ObjectKind::Counter
        {
            report.add(
                Diagnostic::warning(
                    format!("each host counts its own `{}`", one.object.name),
                    one.values.span_of("placement"),
                )
                .help("choose placement = \"replicated\" for the sum over all hosts"),
            );
        }
    }
}

fn apart_error(pair: &[&Chosen<'_>], otherwise: &str) -> Diagnostic {
    let word = |one: &Chosen<'_>| one.placement.map_or("", Placement::word);
    let (first, second) = (pair[0], pair[1]);
    // At the one that is written and differs from `replicated`, if there is such.
    let (at, other) = if second.values.place("placement").is_some() && word(second) != "replicated"
        || first.values.place("placement").is_none()
    {
        (second, first)
    } else {
        (first, second)
    };
    let mut diagnostic = Diagnostic::error(
        format!(
            "`{}` and `{}` need the same placement",
            first.object.name, second.object.name
        ),
        at.values.span_of("placement"),
    )
    .label(format!("`{}` is {}", at.object.name, word(at)));
    if other.values.place("placement").is_some() {
        diagnostic = diagnostic.also(
            other.values.span_of("placement"),
            format!("`{}` is {}", other.object.name, word(other)),
        );
    } else {
        diagnostic = diagnostic.help(format!(
            "`{}` is {} unless configured otherwise",
            other.object.name,
            word(other)
        ));
    }
    let choose = if [first, second].iter().any(|one| word(one) == "replicated") {
        "replicated"
    } else {
        "local"
    };
    diagnostic
        .help(format!("placed apart, {otherwise}"))
        .help(format!("choose placement = \"{choose}\" for both"))
}

/// Bytes of the longest packets that come by a port of the mode `bulk`: an IP packet has no more.
const LONGEST: u16 = u16::MAX;

/// Says so when a function would refuse, as too long for the next link, what ports of the mode `bulk` bring and cut where it leaves.
pub(super) fn check_bulk(
    (name, settings): (&str, &Settings),
    ports: Option<&[Port]>,
    values: &Values,
    report: &mut Report,
) {
    let links = match settings {
        Settings::Nat(nat) => [
            ("inside_link", nat.inside_link),
            ("outside_link", nat.outside_link),
        ],
        Settings::Balancer(balancer) => [
            ("clients_link", balancer.clients_link),
            ("backends_link", balancer.backends_link),
        ],
        Settings::Chain(chain) => {
            for stage in &chain.stages {
                check_bulk((stage.name, &stage.settings), ports, values, report);
            }
            return;
        }
        _ => return,
    };
    let Some((link, short)) = links.iter().find(|(_, link)| link.mtu < LONGEST) else {
        return;
    };
    let is_bulk = |port: &&Port| port.mode == PortMode::Bulk;
    for port in ports.unwrap_or_default().iter().filter(is_bulk) {
        let place = values
            .table(port.name)
            .map_or(0..0, |table| table.span_of("mode"));
        report.add(
            Diagnostic::error(
                format!(
                    "packets of up to {LONGEST} bytes come by a port of the mode \"bulk\", and `{name}` refuses those longer than {} bytes",
                    short.mtu
                ),
                place,
            )
            .help(format!(
                "write mtu = \"{LONGEST}B\" in [function.{name}.{link}] and for its other link: they are cut where they leave; or choose mode = \"ring\""
            )),
        );
    }
}

/// Says so when packets would go into tunnels before their checksums are complete.
pub(super) fn check_tunnels(
    settings: &Settings,
    ports: Option<&[Port]>,
    values: &Values,
    report: &mut Report,
) {
    let balancer = match settings {
        Settings::Balancer(balancer) => balancer,
        Settings::Chain(chain) => {
            for stage in &chain.stages {
                check_tunnels(&stage.settings, ports, values, report);
            }
            return;
        }
        _ => return,
    };
    let services = balancer.services.iter();
    let Some(tunnel) = services
        .into_iter()
        .find(|service| service.mode == BalancerMode::Tunnel)
    else {
        return;
    };
    let outside = ports.unwrap_or_default().iter();
    for port in outside.filter(|port| port.name == "outside" && port.mode == PortMode::Bulk) {
        let place = values
            .table(port.name)
            .map_or(0..0, |table| table.span_of("mode"));
        report.add(
            Diagnostic::error(
                format!(
                    "the service `{}` puts packets into tunnels, which cannot be with a port of the mode \"bulk\"",
                    tunnel.name
                ),
                place,
            )
            .help("choose mode = \"ring\", or mode = \"direct\" or \"nat\" for the service"),
        );
    }
}

/// A wait that is shorter than state messages are ever late does nothing.
pub(super) fn check_waits(
    choices: &[ObjectChoice],
    keep_alive: Option<Duration>,
    at: Range<usize>,
    report: &mut Report,
) {
    let Some(keep_alive) = keep_alive else { return };
    let shortest = choices.iter().filter_map(|one| match one.absent {
        Absent::Wait(longest) if longest < keep_alive => Some((one.name, longest)),
        _ => None,
    });
    if let Some((name, longest)) = shortest.min_by_key(|(_, longest)| *longest) {
        report.add(
            Diagnostic::warning(
                format!("packets wait at most {} for an absent entry of `{name}`, less than one keep-alive", fields::shown(longest)),
                at,
            )
            .help(format!("hosts of an idle cluster exchange messages every {}: wait longer, or shorten `keep_alive`", fields::shown(keep_alive))),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::DescribedObject;
    use crate::kind::{Kind, Word};
    use crate::objects::read;
    use crate::section::{Default, Field, Section};
    use toml::de::DeTable;

    static BUCKET: Section = Section {
        path: "function.limiter.state.tokens",
        meaning: "For this test.",
        fields: &[
            Field {
                name: "placement",
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "local",
                            meaning: ".",
                        },
                        Word {
                            word: "replicated",
                            meaning: ".",
                        },
                    ],
                    refused: &[],
                },
                default: Default::Is("\"replicated\""),
                meaning: ".",
            },
            Field {
                name: "delay",
                kind: Kind::Duration {
                    least: Duration::ZERO,
                    most: Duration::MAX,
                },
                default: Default::Unset("."),
                meaning: ".",
            },
            Field {
                name: "accuracy",
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "exact",
                            meaning: ".",
                        },
                        Word {
                            word: "shared",
                            meaning: ".",
                        },
                    ],
                    refused: &[],
                },
                default: Default::Is("\"shared\""),
                meaning: ".",
            },
        ],
    };

    static TOKENS: [DescribedObject; 1] = [DescribedObject {
        name: "tokens",
        kind: ObjectKind::TokenBucket,
        section: &BUCKET,
    }];

    fn limiter(text: &str) -> Report {
        let function = Described {
            name: "limiter",
            settings: &BUCKET,
            objects: &TOKENS,
            together: &[],
            build: |_, _| None,
            jobs: &[],
        };
        let mut report = Report::new("test.toml", text);
        let table = DeTable::parse(text).unwrap();
        let sharing = Sharing {
            members: 3,
            instances: 1,
        };
        let choices = read(
            &function,
            table.get_ref(),
            table.span(),
            sharing,
            &mut report,
        );
        assert_eq!(choices.is_some(), report.errors() == 0);
        report
    }

    #[test]
    fn an_exact_token_bucket_on_replicas_is_refused() {
        let refused =
            limiter("tokens = { placement = \"replicated\", accuracy = \"exact\" }").render(false);
        assert!(refused.contains("cannot be exact on replicas"), "{refused}");
        assert!(refused.contains("accuracy = \"shared\""), "{refused}");
        assert_eq!(limiter("tokens = { accuracy = \"shared\" }").errors(), 0);
        assert_eq!(
            limiter("tokens = { placement = \"local\", accuracy = \"exact\" }").errors(),
            0
        );
    }
}
