//! The fields of the rate limiter, and its objects.

use asterism_function::IpPrefix;

use super::LimiterSettings;
use crate::described::{CHOICE, Description, REPLICATED, count, delay, objects, placement};
use asterism_toml_schema::kind::{Kind, NamedValues, Word};
use asterism_toml_schema::section::{
    ChosenWord, Default, Field, List, Section, Setting, Values, keys, section,
};

/// Keys of one kind.
const fn keys() -> Field {
    CHOICE.capacity.field(count(
        (64, 1 << 17),
        Default::Is("16_384"),
        "The most buckets over the whole cluster, shared out to hosts. Packets of further keys are dropped (`table-full`).",
    ))
}

objects! {
    "limiter":
    sources: TokenBucket = "A bucket for each source.",
        [placement(REPLICATED), delay(), keys()];
    destinations: TokenBucket = "A bucket for each destination.",
        [placement(REPLICATED), delay(), keys()];
    services: TokenBucket = "A bucket for each service.",
        [placement(REPLICATED), delay(), keys()];
    tenants: TokenBucket = "A bucket for each tenant.",
        [placement(REPLICATED), delay()];
    without_room: Counter = "Packets whose bucket found no room.",
        [placement(REPLICATED), delay()];
}

pub(crate) const LIMITER: Description<LimiterSettings> = Description {
    name: "limiter",
    settings: SETTINGS.section(),
    objects: OBJECTS,
    together: &[],
    build: super::build,
};

const fn rate(default: Default) -> Setting {
    Setting {
        kind: Kind::Count {
            least: 1,
            most: 1_000_000_000_000,
        },
        default,
        meaning: "The rate a second that passes, over all hosts.",
    }
}

const fn burst(default: Default) -> Setting {
    Setting {
        kind: Kind::Count {
            least: 1,
            most: 1 << 32,
        },
        default,
        meaning: "The burst that passes after a pause.",
    }
}

/// Rates and bursts as examples say them.
pub(super) const RATE: &str = "1_000_000";
pub(super) const BURST: &str = "100_000";

keys! {
    /// The fields of a limit.
    pub(super) const LIMIT: LimitKeys {
        unit: ChosenWord,
        rate: u64,
        burst: u64,
    }
}

/// The fields of a limit, with this rate and burst.
const fn limit(rate_default: Default, burst_default: Default) -> [Field; 3] {
    [
        LIMIT.unit.field(Setting {
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
            meaning: "The unit of the limit.",
        }),
        LIMIT.rate.field(rate(rate_default)),
        LIMIT.burst.field(burst(burst_default)),
    ]
}

/// The fields of a limit that has a rate and a burst of its own.
const LIMITS: &[Field] = &limit(Default::Required(RATE), Default::Required(BURST));

static OF_SOURCES: Section = Section {
    path: "function.limiter.sources",
    meaning: "The limit on traffic of each source.",
    fields: LIMITS,
};
static OF_DESTINATIONS: Section = Section {
    path: "function.limiter.destinations",
    meaning: "The limit on traffic to each destination.",
    fields: LIMITS,
};
static OF_SERVICES: Section = Section {
    path: "function.limiter.services",
    meaning: "The limit on traffic to each destination, protocol and port.",
    fields: LIMITS,
};
static OF_TENANT: Section = Section {
    path: "function.limiter.tenant",
    meaning: "The limit on traffic of each tenant, sent and received together, unless the tenant has its own.",
    fields: &limit(EACH_ITS_OWN, EACH_ITS_OWN),
};

const EACH_ITS_OWN: Default = Default::Unset("each tenant has its own");
const OF_ALL: Default = Default::Unset("that of `tenant`");

section! {
    pub(super) static TENANT: TenantKeys = {
        path: "function.limiter.tenants.NAME",
        meaning: "A tenant. A packet counts for its sender's tenant, or else its receiver's.",
        fields: {
            networks: List<IpPrefix> = Setting {
                kind: Kind::List {
                    of: &Kind::IpPrefix,
                    most: 1_024,
                },
                default: Default::Required("[\"10.1.0.0/16\"]"),
                meaning: "The tenant's IPv4 and IPv6 networks; if several hold an address, the longest decides.",
            },
            rate: u64 = rate(OF_ALL),
            burst: u64 = burst(OF_ALL),
        },
    };
}

const fn table(section: &'static Section, default: &'static str, meaning: &'static str) -> Setting {
    Setting {
        kind: Kind::Table(section),
        default: Default::Unset(default),
        meaning,
    }
}

/// What it means that there is no such table.
const UNLIMITED: &str = "they are not limited";

section! {
    pub(super) static SETTINGS: SettingsKeys = {
        path: "function.limiter",
        meaning: "Limits the traffic of sources, destinations, services and tenants, over all hosts together.",
        fields: {
            from: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "both",
                            meaning: "All packets are limited.",
                        },
                        Word {
                            word: "inside",
                            meaning: "Packets from inside are limited; others pass.",
                        },
                        Word {
                            word: "outside",
                            meaning: "Packets from outside are limited; others pass.",
                        },
                    ],
                    refused: &[],
                },
                default: Default::Is("\"both\""),
                meaning: "The packets that are limited.",
            },
            accuracy: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "approximate",
                            meaning: "Each host spends from the whole bucket: fair wherever packets arrive, but (hosts - 1) × (burst + rate × delay) too much at the worst moment.",
                        },
                        Word {
                            word: "exact",
                            meaning: "Each host has an equal share: never too much, but a key whose packets all arrive at one host gets only that share.",
                        },
                    ],
                    refused: &[],
                },
                default: Default::Is("\"approximate\""),
                meaning: "How hosts share a limit.",
            },
            sources: Values = table(&OF_SOURCES, UNLIMITED, "Limits the traffic of each source."),
            destinations: Values = table(
                &OF_DESTINATIONS,
                UNLIMITED,
                "Limits the traffic to each destination.",
            ),
            services: Values = table(
                &OF_SERVICES,
                UNLIMITED,
                "Limits the traffic to each destination, protocol and port.",
            ),
            tenant: Values = table(
                &OF_TENANT,
                "each tenant has its own",
                "Limits each tenant without a rate or burst of its own, and sets the unit for all tenants.",
            ),
            tenants: Vec<NamedValues> = Setting {
                kind: Kind::Named {
                    section: TENANT.section(),
                    most: 1_024,
                },
                default: Default::Is("{}"),
                meaning: "A table for each tenant: its networks, and its rate and burst where they differ from those of `tenant`.",
            },
        },
    };
}
