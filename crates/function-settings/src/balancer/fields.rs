//! The fields of the balancer, and its state objects.

use core::net::{Ipv4Addr, SocketAddrV4};
use core::time::Duration;

use super::{BalancerMode, BalancerSettings};
use crate::described::{
    CHOICE, DROP, Description, LOCAL, REPLICATED, TCP, Together, UDP, WAIT, absent, capacity,
    delay, flow_capacity, objects, placement, release, times,
};
use crate::nat::fields::{NOT_PROTOCOLS, link};
use asterism_toml_schema::kind::{Kind, NamedValues, Word};
use asterism_toml_schema::section::{
    ChosenWord, Default, Field, List, Section, Setting, Values, section,
};

/// Where an object lives that each instance makes of `flows` for itself.
const FOLLOWS: Field = CHOICE.placement.field(Setting {
    kind: Kind::Choice {
        allowed: &[
            Word {
                word: "local",
                meaning: "Each instance counts the entries of its `flows`; a replica has those of all hosts. Where `flows` are in the store, so is this.",
            },
            Word {
                word: "late",
                meaning: "For tests: the same, but each read is late by `delay`.",
            },
        ],
        refused: &[
            Word {
                word: "replicated",
                meaning: "choose \"local\": it follows from `flows`, which is shared",
            },
            Word {
                word: "remote",
                meaning: "leave it out: `usage` is in the store where `flows` are; alone it cannot be, since it counts the entries of a table, and is where that is",
            },
        ],
    },
    default: Default::Is(LOCAL),
    meaning: "Where the object is kept.",
});

objects! {
    @router "balancer":
    flows: Table = "The backend of each flow.",
        [placement(REPLICATED), delay(), absent(DROP), release(), flow_capacity("262_144")];
    affinity: Table = "The backend that a client keeps, for services with `persistent`.",
        [placement(REPLICATED), delay(), absent(DROP), release(), flow_capacity("65_536")];
    usage: Derived = "The flows of each backend, as each instance counts them in `flows`.",
        [FOLLOWS, delay()];
    health: Table = "The hosts' health votes on backends; and flows that backends refused or did not answer.",
        [placement(REPLICATED), delay(), absent(DROP), release()];
}

pub(in super::super) const BALANCER: Description<BalancerSettings> = Description {
    name: "balancer",
    settings: SETTINGS.section(),
    objects: OBJECTS,
    together: &[Together {
        objects: &[OBJECT.flows],
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

section! {
    pub(super) static SETTINGS: SettingsKeys = {
        path: "function.balancer",
        meaning: "Load balancer of TCP and UDP: flows to services go to the backends of their pools. Services can change by `asterism reload`.",
        fields: {
            services: Vec<NamedValues> = Setting {
                kind: Kind::Named {
                    section: SERVICE.section(),
                    most: 256,
                },
                default: Default::Required(
                    "{ web = { address = \"203.0.113.10:80\", backends = [{ address = \"10.0.0.10\" }] } }",
                ),
                meaning: "The services, by name.",
            },
            checks: Values = Setting {
                kind: Kind::Table(CHECKS.section()),
                default: Default::Is("{}"),
                meaning: "How hosts check the backends of services with `check`.",
            },
            persistence: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::from_secs(1),
                    most: Duration::from_secs(7 * 24 * 3600),
                },
                default: Default::Is("\"5m\""),
                meaning: "How long a client keeps its backend after its last new flow, for services with `persistent`.",
            },
            known_wait: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::ZERO,
                    most: Duration::from_secs(1),
                },
                default: Default::Is("\"20ms\""),
                meaning: "How long a packet of an unknown flow waits for an update from another host: a backend's answer, or a TCP segment that opens no connection.",
            },
            idle: Values = Setting {
                kind: Kind::Table(IDLE.section()),
                default: Default::Is("{}"),
                meaning: "Idle times of flows.",
            },
            answers_echo: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("true"),
                meaning: "Whether echo requests (ping) to services are answered.",
            },
            icmp_errors: u64 = Setting {
                kind: Kind::Rate {
                    least: 1,
                    most: 65_535,
                },
                default: Default::Is("\"100/s\""),
                meaning: "The most ICMP errors sent, for each side separately (RFC 1812, section 4.3.2.8).",
            },
            clients_link: Values = Setting {
                kind: Kind::Table(&CLIENTS_LINK),
                default: Default::Is("{}"),
                meaning: "The link to the clients: the port `outside`.",
            },
            backends_link: Values = Setting {
                kind: Kind::Table(&BACKENDS_LINK),
                default: Default::Is("{}"),
                meaning: "The link to the backends: the port `inside`. Destinations beyond it are reached by the clients' link, except backends.",
            },
        },
    };
}

const PROTOCOL: Setting = Setting {
    kind: Kind::Choice {
        allowed: &[TCP, UDP],
        refused: &NOT_PROTOCOLS,
    },
    default: Default::Is("\"tcp\""),
    meaning: "The protocol.",
};

section! {
    pub(super) static SERVICE: ServiceKeys = {
        path: "function.balancer.services.NAME",
        meaning: "A service and its pool.",
        fields: {
            address: SocketAddrV4 = Setting {
                kind: Kind::Endpoint,
                default: Default::Required("\"203.0.113.10:80\""),
                meaning: "The address and port that clients use.",
            },
            last_port: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 65_535,
                },
                default: Default::Unset("one port"),
                meaning: "The last of a range of ports that begins with the port of `address`.",
            },
            protocol: ChosenWord = PROTOCOL,
            mode: BalancerMode = Setting {
                kind: Kind::Choice {
                    allowed: BalancerMode::WORDS,
                    refused: &NOT_MODES,
                },
                default: Default::Is("\"nat\""),
                meaning: "How packets reach the backends.",
            },
            choice: ChosenWord = Setting {
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
            persistent: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("false"),
                meaning: "Whether all flows of a client's address go to its last backend, for the time `persistence`.",
            },
            check: ChosenWord = Setting {
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
            check_path: String = Setting {
                kind: Kind::File,
                default: Default::Is("\"/\""),
                meaning: "The page that is requested, with check = \"http\".",
            },
            check_port: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 65_535,
                },
                default: Default::Unset("the backend's port"),
                meaning: "Another TCP port to check, as UDP services need.",
            },
            passive: u64 = Setting {
                kind: Kind::Count { least: 1, most: 5 },
                default: Default::Unset("flows are no health source"),
                meaning: "How many failed flows within 30 s make a backend count as dead, until it answers a flow or for 30 s. A flow fails if the backend refuses it (RST), or leaves a SYN and its retransmission unanswered for one more second. For TCP with mode = \"nat\".",
            },
            backends: List<Values> = Setting {
                kind: Kind::List {
                    of: &Kind::Table(BACKEND.section()),
                    most: 512,
                },
                default: Default::Required("[{ address = \"10.0.0.10\", port = 8080 }]"),
                meaning: "The pool.",
            },
        },
    };
}

section! {
    pub(super) static BACKEND: BackendKeys = {
        path: "function.balancer.services.NAME.backends",
        meaning: "A backend.",
        fields: {
            address: Ipv4Addr = Setting {
                kind: Kind::Address,
                default: Default::Required("\"10.0.0.10\""),
                meaning: "Its address.",
            },
            port: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 65_535,
                },
                default: Default::Unset("the port of the client's request"),
                meaning: "The backend's port, with mode = \"nat\".",
            },
            weight: u64 = Setting {
                kind: Kind::Count {
                    least: 0,
                    most: 1_000,
                },
                default: Default::Is("1"),
                meaning: "The backend's share of new flows; 0: none.",
            },
            drain: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("false"),
                meaning: "Whether the backend gets no new flows; its existing flows go on.",
            },
        },
    };
}

section! {
    pub(super) static CHECKS: ChecksKeys = {
        path: "function.balancer.checks",
        meaning: "How hosts check backends. The votes of most hosts decide; a host that is silent for 30s has no vote.",
        fields: {
            interval: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::from_millis(100),
                    most: Duration::from_secs(20),
                },
                default: Default::Is("\"2s\""),
                meaning: "How often each host checks each backend.",
            },
            timeout: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::from_millis(10),
                    most: Duration::from_secs(10),
                },
                default: Default::Is("\"1s\""),
                meaning: "The time without an answer after which a check fails.",
            },
            fall: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 100,
                },
                default: Default::Is("3"),
                meaning: "The failed checks in a row after which a backend counts as dead.",
            },
            rise: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 100,
                },
                default: Default::Is("2"),
                meaning: "The successful checks in a row after which a backend counts as alive again.",
            },
        },
    };
}

times! {
    /// When flows end.
    pub struct BalancerIdle;
    static IDLE: IdleKeys = {
        path: "function.balancer.idle",
        meaning: "Idle times after which a flow ends, in whole seconds.",
        fields: {
            tcp_transitory = (1, "\"1m\"", "TCP before its handshake is complete."),
            tcp_established = (1, "\"2h4m\"", "TCP."),
            tcp_half_closed = (1, "\"2m\"", "TCP whose client has finished, in the modes direct and tunnel, where the backend's FIN is not seen."),
            tcp_closing = (1, "\"10s\"", "TCP after a reset or both FINs. Such a flow still counts for least-connections."),
            udp = (1, "\"5m\"", "UDP."),
        },
    };
}

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
