//! The settings of the rate limiter.

use core::ops::Range;

use asterism_function::{Spending, TokenRate};
use asterism_functions::limiter::{From, Limit, Limiter, LimiterConfig, Network, Tenants, Unit};

use super::{
    Described, FunctionSettings, ObjectKind, REPLICATED, Settings, delay, described, object,
    placement,
};
use crate::config::diagnostic::{Diagnostic, Report};
use crate::config::kind::{Kind, Value, Word};
use crate::config::network::Prefix;
use crate::config::objects::{self, ObjectChoice, Placement, Sharing};
use crate::config::section::{Default, Field, Section, Values};
use crate::config::value::show_count;

/// What the limiter is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimiterSettings {
    /// Which packets are limited: `inside`, `outside` or `both`.
    pub from: &'static str,
    /// Never overshot, whatever is delayed or lost.
    pub exact: bool,
    /// For each source.
    pub sources: Option<LimitSettings>,
    /// For each destination.
    pub destinations: Option<LimitSettings>,
    /// For each destination, protocol and port.
    pub services: Option<LimitSettings>,
    /// For each tenant.
    pub tenant: Option<LimitSettings>,
    /// The networks of each tenant.
    pub tenants: Vec<Vec<Prefix>>,
}

/// How much each key may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSettings {
    /// Packets are counted instead of bytes.
    pub packets: bool,
    /// So many a second.
    pub rate: u64,
    /// So many at once.
    pub burst: u64,
    /// Where the burst is written.
    pub burst_at: Range<usize>,
}

impl LimiterSettings {
    /// All limits by name.
    pub fn limits(&self) -> impl Iterator<Item = (&'static str, &LimitSettings)> {
        [
            ("sources", &self.sources),
            ("destinations", &self.destinations),
            ("services", &self.services),
            ("tenant", &self.tenant),
        ]
        .into_iter()
        .filter_map(|(name, limit)| Some((name, limit.as_ref()?)))
    }
}

/// Keys of one kind.
const fn keys() -> Field {
    Field {
        name: "capacity",
        kind: Kind::Count {
            least: 64,
            most: 1 << 17,
        },
        default: Default::Is("16_384"),
        meaning: "The most buckets over the whole cluster; hosts share it out. Packets of further keys are dropped (`table-full`).",
    }
}

object!(
    SOURCES,
    "function.limiter.state.sources",
    "A bucket for each source.",
    [placement(REPLICATED), delay(), keys()]
);
object!(
    DESTINATIONS,
    "function.limiter.state.destinations",
    "A bucket for each destination.",
    [placement(REPLICATED), delay(), keys()]
);
object!(
    SERVICES,
    "function.limiter.state.services",
    "A bucket for each service.",
    [placement(REPLICATED), delay(), keys()]
);
object!(
    TENANTS,
    "function.limiter.state.tenants",
    "A bucket for each tenant.",
    [placement(REPLICATED), delay()]
);
object!(
    WITHOUT_ROOM,
    "function.limiter.state.without_room",
    "Packets for whose bucket there was no room.",
    [placement(REPLICATED), delay()]
);

pub(super) const LIMITER: Described = Described {
    name: "limiter",
    settings: &SETTINGS,
    objects: &[
        described("sources", ObjectKind::TokenBucket, &SOURCES),
        described("destinations", ObjectKind::TokenBucket, &DESTINATIONS),
        described("services", ObjectKind::TokenBucket, &SERVICES),
        described("tenants", ObjectKind::TokenBucket, &TENANTS),
        described("without_room", ObjectKind::Counter, &WITHOUT_ROOM),
    ],
    together: &[],
    build,
};

macro_rules! limit {
    ($name:ident, $path:literal, $meaning:literal) => {
        static $name: Section = Section {
            path: $path,
            meaning: $meaning,
            fields: &[
                Field {
                    name: "unit",
                    kind: Kind::Choice {
                        allowed: &[
                            Word {
                                word: "bytes",
                                meaning: "Bytes of IP packets, headers included.",
                            },
                            Word {
                                word: "packets",
                                meaning: "Packets.",
                            },
                        ],
                        refused: &[Word {
                            word: "bits",
                            meaning: "choose \"bytes\", and divide the rate by 8",
                        }],
                    },
                    default: Default::Is("\"bytes\""),
                    meaning: "What is counted.",
                },
                Field {
                    name: "rate",
                    kind: Kind::Count {
                        least: 1,
                        most: 1_000_000_000_000,
                    },
                    default: Default::Required("1_000_000"),
                    meaning: "So many a second are let through, over all hosts.",
                },
                Field {
                    name: "burst",
                    kind: Kind::Count {
                        least: 1,
                        most: 1 << 32,
                    },
                    default: Default::Required("100_000"),
                    meaning: "So many at once after a pause.",
                },
            ],
        };
    };
}

limit!(
    OF_SOURCES,
    "function.limiter.sources",
    "What each source may send."
);
limit!(
    OF_DESTINATIONS,
    "function.limiter.destinations",
    "What may be sent to each destination."
);
limit!(
    OF_SERVICES,
    "function.limiter.services",
    "What may be sent to each destination, protocol and port."
);
limit!(
    OF_TENANT,
    "function.limiter.tenant",
    "What each tenant may send and receive together."
);

static TENANT: Section = Section {
    path: "function.limiter.tenants.NAME",
    meaning: "A tenant. A packet is counted for its sender's tenant, or else its receiver's.",
    fields: &[Field {
        name: "networks",
        kind: Kind::List {
            of: &Kind::Prefix,
            most: 1_024,
        },
        default: Default::Required("[\"10.1.0.0/16\"]"),
        meaning: "Its networks; of several that hold an address the longest decides.",
    }],
};

const fn table(name: &'static str, section: &'static Section, meaning: &'static str) -> Field {
    Field {
        name,
        kind: Kind::Table(section),
        default: Default::Unset("they are not limited"),
        meaning,
    }
}

static SETTINGS: Section = Section {
    path: "function.limiter",
    meaning: "Limits what sources, destinations, services and tenants may send, over all hosts together.",
    fields: &[
        Field {
            name: "from",
            kind: Kind::Choice {
                allowed: &[
                    Word {
                        word: "both",
                        meaning: "All packets are limited.",
                    },
                    Word {
                        word: "inside",
                        meaning: "Those that come from inside are; others pass.",
                    },
                    Word {
                        word: "outside",
                        meaning: "Those that come from outside are; others pass.",
                    },
                ],
                refused: &[],
            },
            default: Default::Is("\"both\""),
            meaning: "Which packets are limited.",
        },
        Field {
            name: "accuracy",
            kind: Kind::Choice {
                allowed: &[
                    Word {
                        word: "approximate",
                        meaning: "Each host spends from the whole bucket: fair wherever packets come, but for (hosts - 1) × (burst + rate × delay) too much at the worst moment.",
                    },
                    Word {
                        word: "exact",
                        meaning: "Each host has an equal share: never too much, but a key whose packets all come to one host gets that share alone.",
                    },
                ],
                refused: &[],
            },
            default: Default::Is("\"approximate\""),
            meaning: "How hosts share a limit.",
        },
        table("sources", &OF_SOURCES, "Limits what each source may send."),
        table(
            "destinations",
            &OF_DESTINATIONS,
            "Limits what may be sent to each destination.",
        ),
        table(
            "services",
            &OF_SERVICES,
            "Limits what may be sent to each destination, protocol and port.",
        ),
        table("tenant", &OF_TENANT, "Limits each of the tenants."),
        Field {
            name: "tenants",
            kind: Kind::Named {
                section: &TENANT,
                most: 1_024,
            },
            default: Default::Is("{}"),
            meaning: "A table for each tenant: its networks.",
        },
    ],
};

/// The longest IPv4 packet of an Ethernet.
const LONG_PACKET: u64 = 1_500;

fn limit(values: &Values, name: &str, report: &mut Report) -> Option<LimitSettings> {
    let table = values.table(name)?;
    let limit = LimitSettings {
        packets: table.choice("unit")? == "packets",
        rate: table.count("rate")?,
        burst: table.count("burst")?,
        burst_at: table.span_of("burst"),
    };
    if !limit.packets && limit.burst < LONG_PACKET {
        report.add(
            Diagnostic::warning(
                format!("packets longer than {} bytes never pass", limit.burst),
                limit.burst_at.clone(),
            )
            .help(format!("write {LONG_PACKET} or more")),
        );
    }
    Some(limit)
}

fn build(values: &Values, report: &mut Report) -> Option<Settings> {
    let limits = ["sources", "destinations", "services", "tenant"];
    if limits.iter().all(|name| values.place(name).is_none()) {
        report.add(
            Diagnostic::error("nothing is limited", values.span.clone())
                .help("write a limit, such as sources = { rate = 1_000_000, burst = 100_000 }"),
        );
    }
    let tenants = values.named("tenants")?;
    if let Some(place) = values.place("tenant")
        && tenants.is_empty()
    {
        report.add(
            Diagnostic::error("there are no tenants to limit", place.key.clone())
                .help("add a table [function.limiter.tenants.NAME] with networks = [\"10.1.0.0/16\"] for each"),
        );
    }
    if let Some(place) = values.place("tenants")
        && !tenants.is_empty()
        && values.place("tenant").is_none()
    {
        report.add(
            Diagnostic::error("the tenants are not limited", place.key.clone())
                .help("write tenant = { rate = 1_000_000, burst = 100_000 } in [function.limiter]"),
        );
    }
    let mut seen: Vec<(Prefix, Range<usize>)> = Vec::new();
    let mut networks = Vec::with_capacity(tenants.len());
    for tenant in &tenants {
        let mut own = Vec::new();
        for (value, at) in tenant.values.list("networks")? {
            let Value::Prefix(prefix) = value else {
                continue;
            };
            if let Some((_, first)) = seen.iter().find(|(other, _)| *other == prefix) {
                report.add(
                    Diagnostic::error(format!("{prefix} is listed twice"), at.clone())
                        .also(first.clone(), "it is listed here")
                        .help("leave it to one tenant"),
                );
            }
            seen.push((prefix, at));
            own.push(prefix);
        }
        networks.push(own);
    }
    let sources = limit(values, "sources", report);
    let destinations = limit(values, "destinations", report);
    let services = limit(values, "services", report);
    let tenant = limit(values, "tenant", report);
    Some(Settings::Limiter(LimiterSettings {
        from: values.choice("from")?,
        exact: values.choice("accuracy")? == "exact",
        sources,
        destinations,
        services,
        tenant,
        tenants: networks,
    }))
}

impl FunctionSettings for LimiterSettings {
    type Function = Limiter;
    const CHANGEABLE: &'static [&'static str] = &["from"];

    fn function(&self, objects: &[ObjectChoice]) -> Result<Limiter, String> {
        let keys = ["sources", "destinations", "services"].into_iter();
        let keys_max = keys.map(|name| objects::capacity(objects, name)).max();
        Ok(Limiter::new(LimiterConfig {
            keys_max: keys_max.unwrap_or(0),
            ..config(self)?
        }))
    }

    fn words(&self) -> String {
        let limits: Vec<String> = self
            .limits()
            .map(|(name, limit)| {
                format!(
                    "{name} {} {} a second, {} at once",
                    show_count(limit.rate),
                    if limit.packets { "packets" } else { "bytes" },
                    show_count(limit.burst)
                )
            })
            .collect();
        let accuracy = if self.exact { "exact" } else { "approximate" };
        format!("{} ({accuracy})", limits.join("; "))
    }

    /// Which way packets are limited: rates, bursts and tenants are what all hosts spend by.
    fn change_to(&self, wanted: &Self) -> Option<Vec<String>> {
        let placed = |settings: &Self| {
            let anywhere = |limit: &Option<LimitSettings>| {
                limit.clone().map(|limit| LimitSettings {
                    burst_at: 0..0,
                    ..limit
                })
            };
            Self {
                from: wanted.from,
                sources: anywhere(&settings.sources),
                destinations: anywhere(&settings.destinations),
                services: anywhere(&settings.services),
                tenant: anywhere(&settings.tenant),
                ..settings.clone()
            }
        };
        (placed(self) == placed(wanted)).then(|| {
            let changed = (self.from != wanted.from).then(|| "from".to_owned());
            changed.into_iter().collect()
        })
    }

    /// Refuses bursts that leave an instance's exact share without a token.
    fn check(&self, objects: &[ObjectChoice], sharing: Sharing, _: &Values, report: &mut Report) {
        let instances = (sharing.members * sharing.instances) as u64;
        for (name, limit) in self.limits() {
            let object = if name == "tenant" { "tenants" } else { name };
            let is_shared = objects
                .iter()
                .any(|one| one.name == object && one.placement == Placement::Replicated);
            if !self.exact || !is_shared {
                continue;
            }
            let share = limit.burst / instances;
            if share == 0 {
                report.add(
                    Diagnostic::error(
                        format!(
                            "the burst of `{name}` leaves no token for some of {instances} instances"
                        ),
                        limit.burst_at.clone(),
                    )
                    .help(format!("write {instances} or more"))
                    .help("or choose accuracy = \"approximate\""),
                );
            } else if !limit.packets && share < LONG_PACKET && limit.burst >= LONG_PACKET {
                report.add(
                    Diagnostic::warning(
                        format!("packets longer than {share} bytes never pass"),
                        limit.burst_at.clone(),
                    )
                    .label(format!("an equal share for each of {instances} instances"))
                    .help(format!("write {} or more", LONG_PACKET * instances)),
                );
            }
        }
    }
}

/// The settings in the function's own words, with its own capacities.
fn config(settings: &LimiterSettings) -> Result<LimiterConfig, String> {
    let limit = |limit: &Option<LimitSettings>| {
        limit.as_ref().map(|limit| Limit {
            unit: if limit.packets {
                Unit::Packets
            } else {
                Unit::Bytes
            },
            rate: TokenRate {
                tokens_per_second: limit.rate,
                burst_tokens: limit.burst,
            },
        })
    };
    let network = |prefix: &Prefix| Network {
        address: prefix.address.into(),
        length: prefix.length,
    };
    let tenants = settings.tenants.iter();
    let tenants: Vec<Vec<Network>> = tenants
        .map(|networks| networks.iter().map(network).collect())
        .collect();
    Ok(LimiterConfig {
        from: match settings.from {
            "inside" => From::Inside,
            "outside" => From::Outside,
            _ => From::Both,
        },
        spending: if settings.exact {
            Spending::Escrow
        } else {
            Spending::Approximate
        },
        sources: limit(&settings.sources),
        destinations: limit(&settings.destinations),
        services: limit(&settings.services),
        tenant: limit(&settings.tenant),
        tenants: Tenants::new(tenants.iter().map(Vec::as_slice))
            .map_err(|_| "the limiter cannot be made: it has too many tenants".to_owned())?,
        ..LimiterConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Function};

    const SOURCES: &str = "[function.limiter]\nsources = { rate = 1000, burst = 3000 }";

    fn read(text: &str) -> (LimiterSettings, Function) {
        let (config, report) = Config::read("test.toml", text);
        let function = config
            .unwrap_or_else(|| panic!("{}", report.render(false)))
            .function;
        let Settings::Limiter(settings) = function.settings.clone() else {
            panic!("a limiter")
        };
        (settings, function)
    }

    #[test]
    fn defaults_are_the_functions_own() {
        let (settings, function) = read(SOURCES);
        let made = settings.function(&function.objects).unwrap();
        let own = LimiterConfig {
            sources: made.config().sources,
            ..LimiterConfig::default()
        };
        assert_eq!(*made.config(), own);
        let (settings, function) = read(
            "[function.limiter]\naccuracy = \"exact\"\ntenant = { unit = \"packets\", rate = 10, burst = 5 }\n[function.limiter.tenants.gold]\nnetworks = [\"10.0.0.0/8\"]",
        );
        settings.function(&function.objects).unwrap();
    }

    #[test]
    fn the_side_may_change_while_it_runs_and_no_limit() {
        let (now, _) = read(SOURCES);
        let (moved, _) = read(&format!("# a comment\n{SOURCES}"));
        assert_eq!(now.change_to(&moved), Some(Vec::new()));
        let (wanted, _) = read(&format!("{SOURCES}\nfrom = \"inside\""));
        assert_eq!(now.change_to(&wanted), Some(vec!["from".to_owned()]));
        let (wanted, _) = read(&SOURCES.replace("1000", "1001"));
        assert_eq!(now.change_to(&wanted), None);
    }
}
