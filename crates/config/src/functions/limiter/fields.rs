//! The fields of the rate limiter, and its objects.

use super::LimiterSettings;
use crate::functions::described::{
    Description, ObjectKind, REPLICATED, delay, described, object, placement,
};
use crate::kind::{Kind, Word};
use crate::section::{Default, Field, Section};

/// Keys of one kind.
const fn keys() -> Field {
    Field {
        name: "capacity",
        kind: Kind::Count {
            least: 64,
            most: 1 << 17,
        },
        default: Default::Is("16_384"),
        meaning: "The most buckets over the whole cluster, shared out to hosts. Packets of further keys are dropped (`table-full`).",
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
    "Packets whose bucket found no room.",
    [placement(REPLICATED), delay()]
);

pub(in crate::functions) const LIMITER: Description<LimiterSettings> = Description {
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
    build: super::build,
};

const fn rate(default: Default) -> Field {
    Field {
        name: "rate",
        kind: Kind::Count {
            least: 1,
            most: 1_000_000_000_000,
        },
        default,
        meaning: "The rate a second that passes, over all hosts.",
    }
}

const fn burst(default: Default) -> Field {
    Field {
        name: "burst",
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

macro_rules! limit {
    ($name:ident, $path:literal, $meaning:literal, $rate:expr, $burst:expr) => {
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
                    meaning: "The unit of the limit.",
                },
                rate($rate),
                burst($burst),
            ],
        };
    };
}

limit!(
    OF_SOURCES,
    "function.limiter.sources",
    "The limit on traffic of each source.",
    Default::Required(RATE),
    Default::Required(BURST)
);
limit!(
    OF_DESTINATIONS,
    "function.limiter.destinations",
    "The limit on traffic to each destination.",
    Default::Required(RATE),
    Default::Required(BURST)
);
limit!(
    OF_SERVICES,
    "function.limiter.services",
    "The limit on traffic to each destination, protocol and port.",
    Default::Required(RATE),
    Default::Required(BURST)
);
limit!(
    OF_TENANT,
    "function.limiter.tenant",
    "The limit on traffic of each tenant, sent and received together, unless the tenant has its own.",
    EACH_ITS_OWN,
    EACH_ITS_OWN
);

const EACH_ITS_OWN: Default = Default::Unset("each tenant has its own");
const OF_ALL: Default = Default::Unset("that of `tenant`");

static TENANT: Section = Section {
    path: "function.limiter.tenants.NAME",
    meaning: "A tenant. A packet counts for its sender's tenant, or else its receiver's.",
    fields: &[
        Field {
            name: "networks",
            kind: Kind::List {
                of: &Kind::IpPrefix,
                most: 1_024,
            },
            default: Default::Required("[\"10.1.0.0/16\"]"),
            meaning: "The tenant's IPv4 and IPv6 networks; if several hold an address, the longest decides.",
        },
        rate(OF_ALL),
        burst(OF_ALL),
    ],
};

const fn table(
    name: &'static str,
    section: &'static Section,
    default: &'static str,
    meaning: &'static str,
) -> Field {
    Field {
        name,
        kind: Kind::Table(section),
        default: Default::Unset(default),
        meaning,
    }
}

/// What it means that there is no such table.
const UNLIMITED: &str = "they are not limited";

static SETTINGS: Section = Section {
    path: "function.limiter",
    meaning: "Limits the traffic of sources, destinations, services and tenants, over all hosts together.",
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
        Field {
            name: "accuracy",
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
        table(
            "sources",
            &OF_SOURCES,
            UNLIMITED,
            "Limits the traffic of each source.",
        ),
        table(
            "destinations",
            &OF_DESTINATIONS,
            UNLIMITED,
            "Limits the traffic to each destination.",
        ),
        table(
            "services",
            &OF_SERVICES,
            UNLIMITED,
            "Limits the traffic to each destination, protocol and port.",
        ),
        table(
            "tenant",
            &OF_TENANT,
            "each tenant has its own",
            "Limits each tenant without a rate or burst of its own, and sets the unit for all tenants.",
        ),
        Field {
            name: "tenants",
            kind: Kind::Named {
                section: &TENANT,
                most: 1_024,
            },
            default: Default::Is("{}"),
            meaning: "A table for each tenant: its networks, and its rate and burst where they differ from those of `tenant`.",
        },
    ],
};
