//! The fields of the balancer, and its state objects.

use core::time::Duration;

use super::BalancerSettings;
use crate::functions::described::{
    DROP, Description, LOCAL, ObjectKind, REPLICATED, TCP, Together, UDP, WAIT, absent, capacity,
    delay, described, flow_capacity, object, placement, router_objects, seconds,
};
use crate::functions::nat::fields::{NOT_PROTOCOLS, link};
use crate::kind::{Kind, Word};
use crate::section::{Default, Field, Section};

/// Where an object lives that each instance makes of `flows` for itself.
const FOLLOWS: Field = Field {
    name: "placement",
    kind: Kind::Choice {
        allowed: &[
            Word {
                word: "local",
                meaning: "Each instance counts the entries of its `flows`; a replica has those of all hosts.",
            },
            Word {
                word: "late",
                meaning: "For tests: the same, but each read is late by `delay`.",
            },
        ],
        refused: &[Word {
            word: "replicated",
            meaning: "choose \"local\": it follows from `flows`, which is shared",
        }],
    },
    default: Default::Is(LOCAL),
    meaning: "Where the object is kept.",
};

object!(
    FLOWS,
    "function.balancer.state.flows",
    "The backend of each flow.",
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
    "The backend that a client keeps, for services with `persistent`.",
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
    "The flows of each backend, as each instance counts them in `flows`.",
    [FOLLOWS, delay()]
);
object!(
    HEALTH,
    "function.balancer.state.health",
    "The hosts' health votes on backends; and flows that backends refused or did not answer.",
    [placement(REPLICATED), delay(), absent(DROP)]
);
router_objects!("balancer");

pub(in super::super) const BALANCER: Description<BalancerSettings> = Description {
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
        otherwise: "each host would choose a flow's backend alone, and answers would match no flow",
    }],
    build: super::build,
};

/// Names that modes have elsewhere, and such as there are none of.
const NOT_MODES: [Word; 4] = [
    Word {
        word: "snat",
        meaning: "choose \"nat\": backends see the client's own address, and their route to clients leads through these hosts; clients on the backends' own link are masqueraded without a setting",
    },
    Word {
        word: "masquerade",
        meaning: "choose \"nat\": backends see the client's own address, and their route to clients leads through these hosts; clients on the backends' own link are masqueraded without a setting",
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
            meaning: "The services, by name.",
        },
        Field {
            name: "checks",
            kind: Kind::Table(&CHECKS),
            default: Default::Is("{}"),
            meaning: "How hosts check the backends of services with `check`.",
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
            meaning: "How long a packet of an unknown flow waits for an update from another host: a backend's answer, or a TCP segment that opens no connection.",
        },
        Field {
            name: "idle",
            kind: Kind::Table(&IDLE),
            default: Default::Is("{}"),
            meaning: "Idle times of flows.",
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
            meaning: "The most ICMP errors sent, for each side separately (RFC 1812, section 4.3.2.8).",
        },
        Field {
            name: "clients_link",
            kind: Kind::Table(&CLIENTS_LINK),
            default: Default::Is("{}"),
            meaning: "The link to the clients: the port `outside`.",
        },
        Field {
            name: "backends_link",
            kind: Kind::Table(&BACKENDS_LINK),
            default: Default::Is("{}"),
            meaning: "The link to the backends: the port `inside`. Destinations beyond it are reached by the clients' link, except backends.",
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
            meaning: "The address and port that clients use.",
        },
        Field {
            name: "last_port",
            kind: Kind::Count {
                least: 1,
                most: 65_535,
            },
            default: Default::Unset("one port"),
            meaning: "The last of a range of ports that begins with the port of `address`.",
        },
        PROTOCOL,
        Field {
            name: "mode",
            kind: Kind::Choice {
                allowed: &[
                    Word {
                        word: "nat",
                        meaning: "The destination is rewritten, and the source of answers: backends reach clients through these hosts.",
                    },
                    Word {
                        word: "direct",
                        meaning: "Only the frame's address changes: backends are on the link, have the service's address themselves (without answering ARP for it), and answer clients directly.",
                    },
                    Word {
                        word: "tunnel",
                        meaning: "Packets are encapsulated (IP in IP, RFC 2003): backends have the service's address themselves, and answer clients directly.",
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
                        meaning: "A hash of the flow, in Maglev's table: hosts choose alike without communication.",
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
            meaning: "How the backend of a new flow is chosen.",
        },
        Field {
            name: "persistent",
            kind: Kind::Flag,
            default: Default::Is("false"),
            meaning: "Whether all flows of a client's address go to its last backend, for the time `persistence`.",
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
                        meaning: "A page is requested by HTTP; a status from 200 to 399 is good.",
                    },
                ],
                refused: &[],
            },
            default: Default::Is("\"none\""),
            meaning: "How every host checks the backends. The checks use the operating system's own network, which needs an address that reaches them.",
        },
        Field {
            name: "check_path",
            kind: Kind::File,
            default: Default::Is("\"/\""),
            meaning: "The page that is requested, with check = \"http\".",
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
            default: Default::Unset("flows are no health source"),
            meaning: "How many failed flows within 30 s make a backend count as dead, until it answers a flow or for 30 s. A flow fails if the backend refuses it (RST), or leaves a SYN and its retransmission unanswered for one more second. For TCP with mode = \"nat\".",
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
            default: Default::Unset("the port of the client's request"),
            meaning: "The backend's port, with mode = \"nat\".",
        },
        Field {
            name: "weight",
            kind: Kind::Count {
                least: 0,
                most: 1_000,
            },
            default: Default::Is("1"),
            meaning: "The backend's share of new flows; 0: none.",
        },
        Field {
            name: "drain",
            kind: Kind::Flag,
            default: Default::Is("false"),
            meaning: "Whether the backend gets no new flows; its existing flows go on.",
        },
    ],
};

static CHECKS: Section = Section {
    path: "function.balancer.checks",
    meaning: "How hosts check backends. The votes of most hosts decide; a host that is silent for 30s has no vote.",
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
            meaning: "The time without an answer after which a check fails.",
        },
        Field {
            name: "fall",
            kind: Kind::Count {
                least: 1,
                most: 100,
            },
            default: Default::Is("3"),
            meaning: "The failed checks in a row after which a backend counts as dead.",
        },
        Field {
            name: "rise",
            kind: Kind::Count {
                least: 1,
                most: 100,
            },
            default: Default::Is("2"),
            meaning: "The successful checks in a row after which a backend counts as alive again.",
        },
    ],
};

pub(super) static IDLE: Section = Section {
    path: "function.balancer.idle",
    meaning: "Idle times after which a flow ends, in whole seconds.",
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
            "TCP whose client has finished, in the modes direct and tunnel, where the backend's FIN is not seen.",
        ),
        seconds(
            "tcp_closing",
            1,
            "\"10s\"",
            "TCP after a reset or both FINs. Such a flow still counts for least-connections.",
        ),
        seconds("udp", 1, "\"5m\"", "UDP."),
    ],
};

static CLIENTS_LINK: Section = Section {
    path: "function.balancer.clients_link",
    meaning: "The link to the clients. The defaults suit replays, in which no router answers.",
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
