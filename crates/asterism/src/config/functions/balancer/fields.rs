//! The fields of the balancer, and its state objects.

use core::time::Duration;

use crate::config::functions::nat::fields::{NOT_PROTOCOLS, link};
use crate::config::functions::{
    DROP, Described, LOCAL, ObjectKind, REPLICATED, TCP, Together, UDP, WAIT, absent, capacity,
    delay, described, flow_capacity, object, placement, router_objects, seconds,
};
use crate::config::kind::{Kind, Word};
use crate::config::section::{Default, Field, Section};

/// Where an object lives that each instance makes of `flows` for itself.
const FOLLOWS: Field = Field {
    name: "placement",
    kind: Kind::Choice {
        allowed: &[
            Word {
                word: "local",
                meaning: "Each instance counts what its `flows` holds; of replicas that is what all have together.",
            },
            Word {
                word: "late",
                meaning: "For tests: the same, but each read comes late by `delay`.",
            },
        ],
        refused: &[Word {
            word: "replicated",
            meaning: "choose \"local\": it follows from `flows`, which is shared",
        }],
    },
    default: Default::Is(LOCAL),
    meaning: "Where the object lives.",
};

object!(
    FLOWS,
    "function.balancer.state.flows",
    "Which backend each flow has.",
    [
        placement(REPLICATED),
        delay(),
        absent(DROP),
        flow_capacity("262_144")
    ]
);
object!(
    AFFINITY,
    "function.balancer.state.affinity",
    "Which backend a client keeps, for services with `persistent`.",
    [
        placement(REPLICATED),
        delay(),
        absent(DROP),
        flow_capacity("65_536")
    ]
);
object!(
    USAGE,
    "function.balancer.state.usage",
    "How many flows each backend has, as each instance counts of `flows`.",
    [FOLLOWS, delay()]
);
object!(
    HEALTH,
    "function.balancer.state.health",
    "What hosts say of backends, a vote each; and which flows these refused or did not answer.",
    [placement(REPLICATED), delay(), absent(DROP)]
);
router_objects!("balancer");

pub(in super::super) const BALANCER: Described = Described {
    name: "balancer",
    settings: &SETTINGS,
    objects: &[
        described("flows", ObjectKind::Table, &FLOWS),
        described("affinity", ObjectKind::Table, &AFFINITY),
        described("usage", ObjectKind::Derived, &USAGE),
        described("health", ObjectKind::Table, &HEALTH),
        described("fragments", ObjectKind::Table, &FRAGMENTS),
        described("neighbours", ObjectKind::Table, &NEIGHBOURS),
        described("errors", ObjectKind::Table, &ERRORS),
    ],
    together: &[Together {
        objects: &["flows"],
        otherwise: "each host would deal a flow by itself, and answers would be of no flow",
    }],
    build: super::build,
};

/// Names that modes have elsewhere, and such as there are none of.
const NOT_MODES: [Word; 4] = [
    Word {
        word: "snat",
        meaning: "choose \"nat\": backends see the client's own address, and their way to clients leads through these hosts; clients on the backends' own link are masqueraded without a setting",
    },
    Word {
        word: "masquerade",
        meaning: "choose \"nat\": backends see the client's own address, and their way to clients leads through these hosts; clients on the backends' own link are masqueraded without a setting",
    },
    Word {
        word: "dsr",
        meaning: "choose \"direct\" for backends on the link, or \"tunnel\" for those beyond it",
    },
    Word {
        word: "gre",
        meaning: "choose \"tunnel\", which is IP in IP (RFC 2003)",
    },
];

static SETTINGS: Section = Section {
    path: "function.balancer",
    meaning: "Load balancer of TCP and UDP: flows to services go to the backends of their pools. Services can change by `asterism reload`.",
    fields: &[
        Field {
            name: "services",
            kind: Kind::Named {
                section: &SERVICE,
                most: 256,
            },
            default: Default::Required(
                "{ web = { address = \"203.0.113.10:80\", backends = [{ address = \"10.0.0.10\" }] } }",
            ),
            meaning: "What clients ask for, each by a name.",
        },
        Field {
            name: "checks",
            kind: Kind::Table(&CHECKS),
            default: Default::Is("{}"),
            meaning: "How often hosts check the backends of services with `check`.",
        },
        Field {
            name: "persistence",
            kind: Kind::Duration {
                least: Duration::from_secs(1),
                most: Duration::from_secs(7 * 24 * 3600),
            },
            default: Default::Is("\"5m\""),
            meaning: "How long a client keeps its backend after its last new flow, for services with `persistent`.",
        },
        Field {
            name: "known_wait",
            kind: Kind::Duration {
                least: Duration::ZERO,
                most: Duration::from_secs(1),
            },
            default: Default::Is("\"20ms\""),
            meaning: "How long a packet of a flow that is not known waits for word of it from another host: a backend's answer, or a TCP segment that opens nothing.",
        },
        Field {
            name: "idle",
            kind: Kind::Table(&IDLE),
            default: Default::Is("{}"),
            meaning: "After how long without packets a flow ends.",
        },
        Field {
            name: "answers_echo",
            kind: Kind::Flag,
            default: Default::Is("true"),
            meaning: "Whether echo requests (ping) to services are answered.",
        },
        Field {
            name: "icmp_errors",
            kind: Kind::Rate {
                least: 1,
                most: 65_535,
            },
            default: Default::Is("\"100/s\""),
            meaning: "The most ICMP errors that are sent, on each side on its own (RFC 1812, section 4.3.2.8).",
        },
        Field {
            name: "clients_link",
            kind: Kind::Table(&CLIENTS_LINK),
            default: Default::Is("{}"),
            meaning: "The link that clients come by: the port `outside`.",
        },
        Field {
            name: "backends_link",
            kind: Kind::Table(&BACKENDS_LINK),
            default: Default::Is("{}"),
            meaning: "The link to the backends: the port `inside`. What is not on it goes to the clients' link, but for backends.",
        },
    ],
};

const PROTOCOL: Field = Field {
    name: "protocol",
    kind: Kind::Choice {
        allowed: &[TCP, UDP],
        refused: &NOT_PROTOCOLS,
    },
    default: Default::Is("\"tcp\""),
    meaning: "The protocol.",
};

static SERVICE: Section = Section {
    path: "function.balancer.services.NAME",
    meaning: "A service and its pool.",
    fields: &[
        Field {
            name: "address",
            kind: Kind::Endpoint,
            default: Default::Required("\"203.0.113.10:80\""),
            meaning: "The address and port that clients know.",
        },
        Field {
            name: "last_port",
            kind: Kind::Count {
                least: 1,
                most: 65_535,
            },
            default: Default::Unset("one port"),
            meaning: "The last of a range of ports that begins with that of `address`.",
        },
        PROTOCOL,
        Field {
            name: "mode",
            kind: Kind::Choice {
                allowed: &[
                    Word {
                        word: "nat",
                        meaning: "The destination is rewritten, and the source of what comes back: backends reach clients through these hosts.",
                    },
                    Word {
                        word: "direct",
                        meaning: "Only the frame's address changes: backends are on the link, have the service's address themselves (without answering ARP for it), and answer clients directly.",
                    },
                    Word {
                        word: "tunnel",
                        meaning: "Packets go inside others (IP in IP, RFC 2003): backends have the service's address themselves, and answer clients directly.",
                    },
                ],
                refused: &NOT_MODES,
            },
            default: Default::Is("\"nat\""),
            meaning: "How packets reach the backends.",
        },
        Field {
            name: "choice",
            kind: Kind::Choice {
                allowed: &[
                    Word {
                        word: "hash",
                        meaning: "By a hash of the flow, in Maglev's table: hosts choose alike without asking.",
                    },
                    Word {
                        word: "least-connections",
                        meaning: "The backend with the fewest flows for its weight.",
                    },
                ],
                refused: &[
                    Word {
                        word: "round-robin",
                        meaning: "choose \"hash\", which spreads flows as evenly, or \"least-connections\"",
                    },
                    Word {
                        word: "source",
                        meaning: "choose \"hash\", and write persistent = true, which keeps all flows of a client's address together",
                    },
                ],
            },
            default: Default::Is("\"hash\""),
            meaning: "Which backend gets a new flow.",
        },
        Field {
            name: "persistent",
            kind: Kind::Flag,
            default: Default::Is("false"),
            meaning: "Whether all flows of a client's address go to the backend that it had last, for the time `persistence`.",
        },
        Field {
            name: "check",
            kind: Kind::Choice {
                allowed: &[
                    Word {
                        word: "none",
                        meaning: "All backends count as alive.",
                    },
                    Word {
                        word: "tcp",
                        meaning: "A TCP connection to the backend's port is opened.",
                    },
                    Word {
                        word: "http",
                        meaning: "A page is asked for by HTTP; a status from 200 to 399 is good.",
                    },
                ],
                refused: &[],
            },
            default: Default::Is("\"none\""),
            meaning: "How every host checks the backends, by its operating system's own network: it needs an address that reaches them.",
        },
        Field {
            name: "check_path",
            kind: Kind::File,
            default: Default::Is("\"/\""),
            meaning: "The page that is asked for, with check = \"http\".",
        },
        Field {
            name: "check_port",
            kind: Kind::Count {
                least: 1,
                most: 65_535,
            },
            default: Default::Unset("the backend's port"),
            meaning: "Another TCP port to check, as UDP services need.",
        },
        Field {
            name: "passive",
            kind: Kind::Count { least: 1, most: 5 },
            default: Default::Unset("flows say nothing of backends"),
            meaning: "Flows that a backend refuses (RST), or whose SYN is sent again because it did not answer, and which it lets wait for a second more, within 30 s, after which it counts as dead, until it answers one or for 30 s. For TCP with mode = \"nat\".",
        },
        Field {
            name: "backends",
            kind: Kind::List {
                of: &Kind::Table(&BACKEND),
                most: 512,
            },
            default: Default::Required("[{ address = \"10.0.0.10\", port = 8080 }]"),
            meaning: "The pool.",
        },
    ],
};

static BACKEND: Section = Section {
    path: "function.balancer.services.NAME.backends",
    meaning: "A backend.",
    fields: &[
        Field {
            name: "address",
            kind: Kind::Address,
            default: Default::Required("\"10.0.0.10\""),
            meaning: "Its address.",
        },
        Field {
            name: "port",
            kind: Kind::Count {
                least: 1,
                most: 65_535,
            },
            default: Default::Unset("the port that the client asks for"),
            meaning: "The port that it answers at, with mode = \"nat\".",
        },
        Field {
            name: "weight",
            kind: Kind::Count {
                least: 0,
                most: 1_000,
            },
            default: Default::Is("1"),
            meaning: "Its share of new flows; 0: none.",
        },
        Field {
            name: "drain",
            kind: Kind::Flag,
            default: Default::Is("false"),
            meaning: "Whether it gets no new flows; those that it has go on.",
        },
    ],
};

static CHECKS: Section = Section {
    path: "function.balancer.checks",
    meaning: "How hosts check backends. The votes of most hosts decide; one that is silent for 30s has none.",
    fields: &[
        Field {
            name: "interval",
            kind: Kind::Duration {
                least: Duration::from_millis(100),
                most: Duration::from_secs(20),
            },
            default: Default::Is("\"2s\""),
            meaning: "How often each host checks each backend.",
        },
        Field {
            name: "timeout",
            kind: Kind::Duration {
                least: Duration::from_millis(10),
                most: Duration::from_secs(10),
            },
            default: Default::Is("\"1s\""),
            meaning: "After how long without an answer a check has failed.",
        },
        Field {
            name: "fall",
            kind: Kind::Count {
                least: 1,
                most: 100,
            },
            default: Default::Is("3"),
            meaning: "How many checks in a row must fail for a backend to count as dead.",
        },
        Field {
            name: "rise",
            kind: Kind::Count {
                least: 1,
                most: 100,
            },
            default: Default::Is("2"),
            meaning: "How many checks in a row must succeed for it to count as alive again.",
        },
    ],
};

pub(super) static IDLE: Section = Section {
    path: "function.balancer.idle",
    meaning: "After how long without packets a flow ends, in whole seconds.",
    fields: &[
        seconds(
            "tcp_transitory",
            1,
            "\"1m\"",
            "TCP before its handshake is complete.",
        ),
        seconds("tcp_established", 1, "\"2h4m\"", "TCP."),
        seconds(
            "tcp_half_closed",
            1,
            "\"2m\"",
            "TCP whose client has finished, in the modes direct and tunnel, in which nobody sees its backend do so.",
        ),
        seconds(
            "tcp_closing",
            1,
            "\"10s\"",
            "TCP after a reset or both FINs; so long it counts for least-connections.",
        ),
        seconds("udp", 1, "\"5m\"", "UDP."),
    ],
};

static CLIENTS_LINK: Section = Section {
    path: "function.balancer.clients_link",
    meaning: "The link that clients come by. The defaults suit replays, in which no router answers.",
    fields: &link(
        "\"192.0.2.5/30\"",
        "\"02:00:00:00:02:01\"",
        "\"192.0.2.6\"",
        "\"02:00:00:00:02:02\"",
    ),
};

static BACKENDS_LINK: Section = Section {
    path: "function.balancer.backends_link",
    meaning: "The link to the backends. The defaults suit replays, in which no router answers.",
    fields: &link(
        "\"192.0.2.1/30\"",
        "\"02:00:00:00:01:01\"",
        "\"192.0.2.2\"",
        "\"02:00:00:00:01:02\"",
    ),
};
