//! The fields of the NAT, and its state objects.

use super::NatSettings;
use super::carrier::FIELDS as CARRIER;
use super::exempt::FIELD as UNTRANSLATED;
use crate::functions::described::{
    DROP, Description, LOCAL, ObjectKind, REPLICATED, TCP, Together, UDP, WAIT, absent, allocation,
    capacity, delay, described, flow_capacity, object, placement, router_objects, seconds,
};
use crate::kind::{Kind, Word};
use crate::section::{Default, Field, Section};

object!(
    SESSIONS,
    "function.nat.state.sessions",
    "The sessions of hosts, and their outside ports.",
    [
        placement(REPLICATED),
        delay(),
        absent(DROP),
        flow_capacity("65_536")
    ]
);
object!(
    PORTS,
    "function.nat.state.ports",
    "The outside ports that sessions use.",
    [placement(REPLICATED), delay(), absent(WAIT), allocation()]
);
object!(
    MAPPINGS,
    "function.nat.state.mappings",
    "The right to change each mapping that inside hosts requested.",
    [
        placement(REPLICATED),
        delay(),
        absent(DROP),
        capacity("4_096")
    ]
);
router_objects!("nat");

pub(in super::super) const NAT: Description<NatSettings> = Description {
    name: "nat",
    settings: &SETTINGS,
    objects: &[
        described("sessions", ObjectKind::Table, &SESSIONS),
        described("ports", ObjectKind::Pool, &PORTS),
        described("mappings", ObjectKind::Table, &MAPPINGS),
        described("fragments", ObjectKind::Table, &FRAGMENTS),
        described("neighbours", ObjectKind::Table, &NEIGHBOURS),
        described("errors", ObjectKind::Table, &ERRORS),
    ],
    together: &[Together {
        objects: &["sessions", "ports"],
        otherwise: "two hosts could give the same outside port to different flows",
    }],
    build: super::build,
};

/// What is asked for in the place of a protocol.
pub(in super::super) const NOT_PROTOCOLS: [Word; 4] = [
    Word {
        word: "both",
        meaning: "write the entry twice, once with \"tcp\" and once with \"udp\"",
    },
    Word {
        word: "any",
        meaning: "write the entry twice, once with \"tcp\" and once with \"udp\"",
    },
    Word {
        word: "sctp",
        meaning: "write \"tcp\" or \"udp\": packets of SCTP are dropped, as `unsupported-protocol`",
    },
    Word {
        word: "icmp",
        meaning: "write \"tcp\" or \"udp\": ICMP needs no entry, errors follow their flows",
    },
];

static SETTINGS: Section = Section {
    path: "function.nat",
    meaning: "NAT44: inside addresses share the outside ones (RFC 4787, 5382, 5508, 7857).",
    fields: &[
        Field {
            name: "outside",
            kind: Kind::List {
                of: &Kind::Address,
                most: 255,
            },
            default: Default::Required("[\"203.0.113.1\"]"),
            meaning: "The outside addresses that inside hosts share.",
        },
        Field {
            name: "inside",
            kind: Kind::List {
                of: &Kind::Prefix,
                most: 60,
            },
            default: Default::Is("[\"10.0.0.0/8\"]"),
            meaning: "The networks whose addresses are translated. Packets of other inside sources are dropped.",
        },
        Field {
            name: "ports",
            kind: Kind::Ports,
            default: Default::Is("\"1024-65535\""),
            meaning: "The ports of each outside address that are granted.",
        },
        Field {
            name: "filtering",
            kind: Kind::Choice {
                allowed: &[
                    Word {
                        word: "endpoint-independent",
                        meaning: "Any outside host may send to an open port (most applications work).",
                    },
                    Word {
                        word: "address-dependent",
                        meaning: "Only addresses to which the inside host sent may send.",
                    },
                    Word {
                        word: "address-and-port-dependent",
                        meaning: "Only endpoints to which the inside host sent may send (strictest).",
                    },
                ],
                refused: &[],
            },
            default: Default::Is("\"endpoint-independent\""),
            meaning: "The filtering of packets to an outside port in use (RFC 4787, section 5).",
        },
        Field {
            name: "hairpinning",
            kind: Kind::Flag,
            default: Default::Is("true"),
            meaning: "Whether inside hosts reach each other by their outside ports (RFC 4787, REQ-9).",
        },
        Field {
            name: "answers_echo",
            kind: Kind::Flag,
            default: Default::Is("true"),
            meaning: "Whether the NAT answers echo requests (ping) to its own addresses.",
        },
        Field {
            name: "forwards",
            kind: Kind::List {
                of: &Kind::Table(&FORWARD),
                most: 1024,
            },
            default: Default::Is("[]"),
            meaning: "Outside ports that always lead to an inside server.",
        },
        Field {
            name: "one_to_one",
            kind: Kind::List {
                of: &Kind::Table(&ONE_TO_ONE),
                most: 1024,
            },
            default: Default::Is("[]"),
            meaning: "Outside addresses that belong to one inside host each, with all ports of TCP and UDP and pings.",
        },
        UNTRANSLATED,
        Field {
            name: "idle",
            kind: Kind::Table(&IDLE),
            default: Default::Is("{}"),
            meaning: "Idle times of sessions.",
        },
        Field {
            name: "short_idle",
            kind: Kind::Flag,
            default: Default::Is("false"),
            meaning: "Whether idle times below the minimum of the RFCs are accepted: for tests and demonstrations.",
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
        CARRIER[0],
        CARRIER[1],
        CARRIER[2],
        CARRIER[3],
        CARRIER[4],
        CARRIER[5],
        Field {
            name: "inside_link",
            kind: Kind::Table(&INSIDE_LINK),
            default: Default::Is("{}"),
            meaning: "The link to the inside.",
        },
        Field {
            name: "outside_link",
            kind: Kind::Table(&OUTSIDE_LINK),
            default: Default::Is("{}"),
            meaning: "The link to the outside.",
        },
    ],
};

static ONE_TO_ONE: Section = Section {
    path: "function.nat.one_to_one",
    meaning: "An outside address that belongs to one inside host.",
    fields: &[
        Field {
            name: "outside",
            kind: Kind::Address,
            default: Default::Required("\"203.0.113.5\""),
            meaning: "The outside address; not one of the NAT's `outside`, which hosts share.",
        },
        Field {
            name: "inside",
            kind: Kind::Address,
            default: Default::Required("\"10.0.0.5\""),
            meaning: "The inside host's address, in one of the networks `inside`.",
        },
    ],
};

static FORWARD: Section = Section {
    path: "function.nat.forwards",
    meaning: "An outside port that always leads to an inside server.",
    fields: &[
        Field {
            name: "protocol",
            kind: Kind::Choice {
                allowed: &[TCP, UDP],
                refused: &NOT_PROTOCOLS,
            },
            default: Default::Is("\"tcp\""),
            meaning: "The protocol.",
        },
        Field {
            name: "outside",
            kind: Kind::Endpoint,
            default: Default::Required("\"203.0.113.1:80\""),
            meaning: "The outside endpoint; its address is one of the NAT's `outside`.",
        },
        Field {
            name: "last_port",
            kind: Kind::Count {
                least: 1,
                most: 65_535,
            },
            default: Default::Unset("one port"),
            meaning: "The last of a range of outside ports that begins with the port of `outside`; as many ports, from that of `inside` on, receive the packets. All forwards together have 4,096 ports at most.",
        },
        Field {
            name: "inside",
            kind: Kind::Endpoint,
            default: Default::Required("\"10.0.0.5:8080\""),
            meaning: "The inside server; its address is in one of the networks `inside`.",
        },
    ],
};

pub(super) static IDLE: Section = Section {
    path: "function.nat.idle",
    meaning: "Idle times after which a session ends, in whole seconds.",
    fields: &[
        seconds(
            "tcp_transitory",
            1,
            "\"4m\"",
            "TCP before its handshake is complete (RFC 5382, REQ-5: at least 4m).",
        ),
        seconds(
            "tcp_established",
            1,
            "\"2h4m\"",
            "TCP (RFC 5382, REQ-5: at least 2h4m).",
        ),
        seconds(
            "tcp_closing",
            1,
            "\"4m\"",
            "TCP after a reset or both FINs (RFC 7857, section 2.2: at least 4m).",
        ),
        seconds(
            "udp",
            1,
            "\"5m\"",
            "UDP (RFC 4787, REQ-5: at least 2m, 5m recommended).",
        ),
        seconds(
            "udp_dns",
            1,
            "\"1m\"",
            "UDP to port 53; may be shorter (RFC 4787, REQ-5a).",
        ),
        seconds(
            "icmp_query",
            1,
            "\"1m\"",
            "ICMP queries (RFC 5508, REQ-2: at least 1m).",
        ),
    ],
};

pub(in super::super) const fn link(
    address: &'static str,
    mac: &'static str,
    next_hop: &'static str,
    next_hop_mac: &'static str,
) -> [Field; 6] {
    [
        Field {
            name: "address",
            kind: Kind::Interface,
            default: Default::Is(address),
            meaning: "The function's own address on the link, with the link's prefix length.",
        },
        Field {
            name: "mac",
            kind: Kind::Mac,
            default: Default::Is(mac),
            meaning: "The function's Ethernet address on the link; the same on all hosts.",
        },
        Field {
            name: "mtu",
            kind: Kind::Size {
                least: 68,
                most: 65_535,
            },
            default: Default::Is("\"1500B\""),
            meaning: "The largest IP packet sent on the link.",
        },
        Field {
            name: "next_hop",
            kind: Kind::Address,
            default: Default::Is(next_hop),
            meaning: "The router for destinations that are not on the link.",
        },
        Field {
            name: "next_hop_mac",
            kind: Kind::Mac,
            default: Default::Is(next_hop_mac),
            meaning: "The router's Ethernet address. With [port] it is learnt by ARP by default.",
        },
        Field {
            name: "promiscuous",
            kind: Kind::Flag,
            default: Default::Is("true"),
            meaning: "Whether frames to other Ethernet addresses are accepted too, as needed for a replayed capture. With [port] the default is false.",
        },
    ]
}

static INSIDE_LINK: Section = Section {
    path: "function.nat.inside_link",
    meaning: "The link to the inside. The defaults suit replays, in which no router answers.",
    fields: &link(
        "\"192.0.2.1/30\"",
        "\"02:00:00:00:01:01\"",
        "\"192.0.2.2\"",
        "\"02:00:00:00:01:02\"",
    ),
};

static OUTSIDE_LINK: Section = Section {
    path: "function.nat.outside_link",
    meaning: "The link to the outside. The defaults suit replays, in which no router answers.",
    fields: &link(
        "\"192.0.2.5/30\"",
        "\"02:00:00:00:02:01\"",
        "\"192.0.2.6\"",
        "\"02:00:00:00:02:02\"",
    ),
};
