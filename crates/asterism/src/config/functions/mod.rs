//! The network functions that a configuration can name: their settings, their state objects, and what can be chosen for
//! each object.

mod limiter;
mod monitor;
mod nat;
mod pass_through;
mod port_scan;

use core::time::Duration;

pub use limiter::{LimitSettings, LimiterSettings};
pub use monitor::MonitorSettings;
pub use nat::{Filtering, Forward, IdleTimes, Link, NatSettings};
pub use pass_through::{Access, PassThroughSettings};
pub use port_scan::{PortScanSettings, Volume};

use super::diagnostic::Report;
use super::kind::{Kind, Word};
use super::section::{Default, Field, Section, Values};

/// A network function that a configuration can name.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// The name, as in `[function.nat]`.
    pub name: &'static str,
    /// Its settings.
    pub settings: &'static Section,
    /// Its state objects, by the names that the function gives them.
    pub objects: &'static [DescribedObject],
    /// Objects that keep a promise together and so must be placed alike.
    pub together: &'static [Together],
    /// Builds the settings from what was read, and says what contradicts. `None` if anything is wrong.
    pub build: fn(&Values, &mut Report) -> Option<Settings>,
}

/// The settings of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settings {
    /// A NAT44.
    Nat(NatSettings),
    /// A port-scan detector.
    PortScan(PortScanSettings),
    /// A network monitor.
    Monitor(MonitorSettings),
    /// A rate limiter.
    Limiter(LimiterSettings),
    /// A function that changes nothing.
    PassThrough(PassThroughSettings),
}

/// A state object of a function.
#[derive(Clone, Copy, Debug)]
pub struct DescribedObject {
    /// Its name.
    pub name: &'static str,
    /// What kind of object it is.
    pub kind: ObjectKind,
    /// What can be chosen for it.
    pub section: &'static Section,
}

/// What kind of object it is, as far as placements care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A map, a set or a two-way map.
    Table,
    /// Things that can run out, dealt to hosts in blocks.
    Pool,
    /// A counter, or one for each key.
    Counter,
    /// A token bucket.
    TokenBucket,
}

/// Objects that keep a promise together.
#[derive(Clone, Copy, Debug)]
pub struct Together {
    /// Their names.
    pub objects: &'static [&'static str],
    /// What happens if they are placed apart, or each host keeps its own.
    pub otherwise: &'static str,
}

/// All functions.
pub static ALL: &[Described] = &[
    nat::NAT,
    port_scan::PORT_SCAN,
    monitor::MONITOR,
    limiter::LIMITER,
    pass_through::PASS_THROUGH,
];

const fn placement(default: &'static str) -> Field {
    Field {
        name: "placement",
        kind: Kind::Choice {
            allowed: &[
                Word {
                    word: "local",
                    meaning: "Each instance has its own, and nobody else sees it. Costs a memory access.",
                },
                Word {
                    word: "replicated",
                    meaning: "Every instance has a replica; they converge. Costs a memory access; changes travel behind the packets.",
                },
                Word {
                    word: "late",
                    meaning: "For tests: as `local`, but each read comes late by `delay`, so that packets park.",
                },
            ],
            refused: &[
                Word {
                    word: "owned",
                    meaning: "choose \"replicated\" when several hosts need the object, \"local\" when each host's own will do",
                },
                Word {
                    word: "remote",
                    meaning: "choose \"replicated\" when several hosts need the object; nothing is kept in a data store yet",
                },
                Word {
                    word: "partitioned",
                    meaning: "choose \"local\" when all packets of a flow reach one instance, else \"replicated\"",
                },
            ],
        },
        default: Default::Is(default),
        meaning: "Where the object lives.",
    }
}

const fn delay() -> Field {
    Field {
        name: "delay",
        kind: Kind::Duration {
            least: Duration::from_micros(1),
            most: Duration::from_secs(1),
        },
        default: Default::Unset("needed with the placement `late`, and refused with others"),
        meaning: "How late each read is, with the placement `late`.",
    }
}

const fn absent(default: &'static str) -> Field {
    Field {
        name: "absent",
        kind: Kind::Absent {
            most: Duration::from_secs(1),
        },
        default: Default::Is(default),
        meaning: "What an absent entry means: `drop` takes it for absent; `wait` lets a packet wait so long for an entry that another host may have made.",
    }
}

const fn capacity(default: &'static str) -> Field {
    Field {
        name: "capacity",
        kind: Kind::Count {
            least: 64,
            most: 1 << 22,
        },
        default: Default::Is(default),
        meaning: "The most entries over the whole cluster; hosts share it out before they insert. Every instance reserves memory for all.",
    }
}

const fn allocation() -> Field {
    Field {
        name: "allocation",
        kind: Kind::Choice {
            allowed: &[Word {
                word: "leased",
                meaning: "Items are leased to hosts in blocks of 64, so that no two hosts ever give out the same one.",
            }],
            refused: &[Word {
                word: "collide",
                meaning: "choose \"leased\"",
            }],
        },
        default: Default::Is("\"leased\""),
        meaning: "How hosts share what can run out.",
    }
}

const LOCAL: &str = "\"local\"";
const REPLICATED: &str = "\"replicated\"";
const DROP: &str = "\"drop\"";
const WAIT: &str = "\"wait 20ms\"";

/// What can be chosen for one object of a function.
macro_rules! object {
    ($name:ident, $path:literal, $meaning:literal, [$($field:expr),*]) => {
        static $name: $crate::config::section::Section = $crate::config::section::Section {
            path: $path,
            meaning: $meaning,
            fields: &[$($field),*],
        };
    };
}
use object;
