//! The fields of the NAT, and its state objects.

use core::net::{Ipv4Addr, SocketAddrV4};

use asterism_functions::nat;

use super::{Filtering, NatSettings, carrier, exempt};
use crate::described::{
    DROP, Description, LOCAL, REPLICATED, TCP, Together, UDP, WAIT, absent, allocation, capacity,
    delay, flow_capacity, objects, placement, release, times,
};
use asterism_notation::network::{Ports, Prefix};
use asterism_toml_schema::kind::{Kind, Word};
use asterism_toml_schema::section::{
    ChosenWord, Default, Field, List, Section, Setting, Values, keys, section,
};

objects! {
    @router "nat":
    sessions: Table = "The sessions of hosts, and their outside ports.",
        [placement(REPLICATED), delay(), absent(DROP), release(), flow_capacity("65_536")];
    ports: Pool = "The outside ports that sessions use.",
        [placement(REPLICATED), delay(), absent(WAIT), allocation()];
    mappings: Table = "The right to change each mapping that inside hosts requested.",
        [placement(REPLICATED), delay(), absent(DROP), release(), capacity("4_096")];
}

pub(in super::super) const NAT: Description<NatSettings> = Description {
    name: "nat",
    settings: SETTINGS.section(),
    objects: OBJECTS,
    together: &[Together {
        objects: &[OBJECT.sessions, OBJECT.ports],
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

section! {
    pub(super) static SETTINGS: SettingsKeys = {
        path: "function.nat",
        meaning: "NAT44: inside addresses share the outside ones (RFC 4787, 5382, 5508, 7857).",
        fields: {
            outside: List<Ipv4Addr> = Setting {
                kind: Kind::List {
                    of: &Kind::Address,
                    most: 255,
                },
                default: Default::Required("[\"203.0.113.1\"]"),
                meaning: "The outside addresses that inside hosts share.",
            },
            inside: List<Prefix> = Setting {
                kind: Kind::List {
                    of: &Kind::Prefix,
                    most: 60,
                },
                default: Default::Is("[\"10.0.0.0/8\"]"),
                meaning: "The networks whose addresses are translated. Packets of other inside sources are dropped.",
            },
            ports: Ports = Setting {
                kind: Kind::Ports,
                default: Default::Is("\"1024-65535\""),
                meaning: "The ports of each outside address that are granted.",
            },
            filtering: Filtering = Setting {
                kind: Kind::Choice {
                    allowed: Filtering::WORDS,
                    refused: &[],
                },
                default: Default::Is("\"endpoint-independent\""),
                meaning: "The filtering of packets to an outside port in use (RFC 4787, section 5).",
            },
            hairpinning: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("true"),
                meaning: "Whether inside hosts reach each other by their outside ports (RFC 4787, REQ-9).",
            },
            answers_echo: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("true"),
                meaning: "Whether the NAT answers echo requests (ping) to its own addresses.",
            },
            forwards: List<Values> = Setting {
                kind: Kind::List {
                    of: &Kind::Table(FORWARD.section()),
                    most: 1024,
                },
                default: Default::Is("[]"),
                meaning: "Outside ports that always lead to an inside server.",
            },
            one_to_one: List<Values> = Setting {
                kind: Kind::List {
                    of: &Kind::Table(ONE_TO_ONE.section()),
                    most: 1024,
                },
                default: Default::Is("[]"),
                meaning: "Outside addresses that belong to one inside host each, with all ports of TCP and UDP and pings.",
            },
            exempt: List<Values> = Setting {
                kind: Kind::List {
                    of: &Kind::Table(exempt::DESTINATION.section()),
                    most: nat::EXEMPT_MAX,
                },
                default: Default::Is("[]"),
                meaning: "Outside destinations to which packets are routed without translation, in both directions (RFC 6888, REQ-6).",
            },
            idle: Values = Setting {
                kind: Kind::Table(IDLE.section()),
                default: Default::Is("{}"),
                meaning: "Idle times of sessions.",
            },
            short_idle: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("false"),
                meaning: "Whether idle times below the minimum of the RFCs are accepted: for tests and demonstrations.",
            },
            icmp_errors: u64 = Setting {
                kind: Kind::Rate {
                    least: 1,
                    most: 65_535,
                },
                default: Default::Is("\"100/s\""),
                meaning: "The most ICMP errors sent, for each side separately (RFC 1812, section 4.3.2.8).",
            },
            pools: List<Values> = Setting {
                kind: Kind::List {
                    of: &Kind::Table(carrier::POOL.section()),
                    most: nat::POOLS_MAX,
                },
                default: Default::Is("[]"),
                meaning: "Outside addresses, besides `outside`, for some of the inside networks.",
            },
            subscribers: Values = Setting {
                kind: Kind::Table(carrier::SUBSCRIBERS.section()),
                default: Default::Is("{}"),
                meaning: "The limits of each subscriber, over all hosts together (RFC 6888, REQ-4 and REQ-5).",
            },
            blocks: Values = Setting {
                kind: Kind::Table(carrier::BLOCKS.section()),
                default: Default::Unset("ports are granted one by one"),
                meaning: "Ports are granted to subscribers in blocks; the log names blocks instead of ports.",
            },
            port_quarantine: Values = Setting {
                kind: Kind::Table(carrier::PORT_REST.section()),
                default: Default::Is("{}"),
                meaning: "The quarantine of ports of UDP and ICMP, and of blocks, before they are granted again (RFC 6888, REQ-8).",
            },
            log: Values = Setting {
                kind: Kind::Table(carrier::LOG.section()),
                default: Default::Is("{}"),
                meaning: "Where `asterism run` logs the subscriber of each port block, or else of each port. Destinations are never logged (RFC 6888, REQ-12).",
            },
            port_control: Values = Setting {
                kind: Kind::Table(carrier::PORT_CONTROL.section()),
                default: Default::Unset("no request is answered"),
                meaning: "Inside hosts may request outside ports by PCP, at the address of `inside_link` (RFC 6887; RFC 6888, REQ-9).",
            },
            inside_link: Values = Setting {
                kind: Kind::Table(&INSIDE_LINK),
                default: Default::Is("{}"),
                meaning: "The link to the inside.",
            },
            outside_link: Values = Setting {
                kind: Kind::Table(&OUTSIDE_LINK),
                default: Default::Is("{}"),
                meaning: "The link to the outside.",
            },
        },
    };
}

section! {
    pub(super) static ONE_TO_ONE: OneToOneKeys = {
        path: "function.nat.one_to_one",
        meaning: "An outside address that belongs to one inside host.",
        fields: {
            outside: Ipv4Addr = Setting {
                kind: Kind::Address,
                default: Default::Required("\"203.0.113.5\""),
                meaning: "The outside address; not one of the NAT's `outside`, which hosts share.",
            },
            inside: Ipv4Addr = Setting {
                kind: Kind::Address,
                default: Default::Required("\"10.0.0.5\""),
                meaning: "The inside host's address, in one of the networks `inside`.",
            },
        },
    };
}

section! {
    pub(super) static FORWARD: ForwardKeys = {
        path: "function.nat.forwards",
        meaning: "An outside port that always leads to an inside server.",
        fields: {
            protocol: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[TCP, UDP],
                    refused: &NOT_PROTOCOLS,
                },
                default: Default::Is("\"tcp\""),
                meaning: "The protocol.",
            },
            outside: SocketAddrV4 = Setting {
                kind: Kind::Endpoint,
                default: Default::Required("\"203.0.113.1:80\""),
                meaning: "The outside endpoint; its address is one of the NAT's `outside`.",
            },
            last_port: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 65_535,
                },
                default: Default::Unset("one port"),
                meaning: "The last of a range of outside ports that begins with the port of `outside`; as many ports, from that of `inside` on, receive the packets. All forwards together have 4,096 ports at most.",
            },
            inside: SocketAddrV4 = Setting {
                kind: Kind::Endpoint,
                default: Default::Required("\"10.0.0.5:8080\""),
                meaning: "The inside server; its address is in one of the networks `inside`.",
            },
        },
    };
}

times! {
    /// When sessions end.
    pub struct IdleTimes;
    static IDLE: IdleKeys = {
        path: "function.nat.idle",
        meaning: "Idle times after which a session ends, in whole seconds.",
        fields: {
            tcp_transitory = (1, "\"4m\"", "TCP before its handshake is complete (RFC 5382, REQ-5: at least 4m)."),
            tcp_established = (1, "\"2h4m\"", "TCP (RFC 5382, REQ-5: at least 2h4m)."),
            tcp_closing = (1, "\"4m\"", "TCP after a reset or both FINs (RFC 7857, section 2.2: at least 4m)."),
            udp = (1, "\"5m\"", "UDP (RFC 4787, REQ-5: at least 2m, 5m recommended)."),
            udp_dns = (1, "\"1m\"", "UDP to port 53; may be shorter (RFC 4787, REQ-5a)."),
            icmp_query = (1, "\"1m\"", "ICMP queries (RFC 5508, REQ-2: at least 1m)."),
        },
    };
}

keys! {
    /// The fields of a link.
    pub(super) const LINK: LinkKeys {
        address: Prefix,
        mac: [u8; 6],
        mtu: u64,
        next_hop: Ipv4Addr,
        next_hop_mac: [u8; 6],
        promiscuous: bool,
    }
}

pub(in super::super) const fn link(
    address: &'static str,
    mac: &'static str,
    next_hop: &'static str,
    next_hop_mac: &'static str,
) -> [Field; 6] {
    [
        LINK.address.field(Setting {
            kind: Kind::Interface,
            default: Default::Is(address),
            meaning: "The function's own address on the link, with the link's prefix length.",
        }),
        LINK.mac.field(Setting {
            kind: Kind::Mac,
            default: Default::Is(mac),
            meaning: "The function's Ethernet address on the link; the same on all hosts.",
        }),
        LINK.mtu.field(Setting {
            kind: Kind::Size {
                least: 68,
                most: 65_535,
            },
            default: Default::Is("\"1500B\""),
            meaning: "The largest IP packet sent on the link.",
        }),
        LINK.next_hop.field(Setting {
            kind: Kind::Address,
            default: Default::Is(next_hop),
            meaning: "The router for destinations that are not on the link.",
        }),
        LINK.next_hop_mac.field(Setting {
            kind: Kind::Mac,
            default: Default::Is(next_hop_mac),
            meaning: "The router's Ethernet address. With [port] it is learnt by ARP by default.",
        }),
        LINK.promiscuous.field(Setting {
            kind: Kind::Flag,
            default: Default::Is("true"),
            meaning: "Whether frames to other Ethernet addresses are accepted too, as needed for a replayed capture. With [port] the default is false.",
        }),
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
