//! What each function promises, and packets that make it do all that it does.

use std::sync::Arc;

use asterism_function::chain::{Chain, Stage};
use asterism_function::testkit::{Contract, Reached, Step};
use asterism_function::{PortNumber, Reason, TcpFlags, TokenRate, build};
use asterism_functions::balancer::Balancer;
use asterism_functions::cache_digests::{CONTROL, CacheDigests};
use asterism_functions::firewall::{self, Firewall};
use asterism_functions::limiter::{Limit, Limiter, LimiterConfig, Unit};
use asterism_functions::monitor::{self, Monitor, MonitorConfig};
use asterism_functions::nat::Nat;
use asterism_functions::pass_through::{Access, PassThrough};
use asterism_functions::port_scan::{self, FloodPolicy, PortScan, PortScanConfig, VolumePolicy};
use asterism_functions::span::{Copied, Span};

use crate::contract::{balanced, digested, filtered, made, translated};
use Reached::{ByPackets, Otherwise};

/// A page of the project's documents, or several.
macro_rules! page {
    ($($name:literal),+) => {
        concat!($(include_str!(concat!("../../../../../docs/src/", $name))),+)
    };
}

const IN: PortNumber = PortNumber(0);
const OUT: PortNumber = PortNumber(1);

const SUMS: &str = "sums of packets have no end";
const PLACES: &str =
    "a sketch has a place for all that ever came; what is older than an interval counts no more";
const CELLS: &str =
    "a sketch has all its cells from the start; what is older than its window counts no more";

fn now(port: PortNumber, packet: Vec<u8>) -> Step {
    (0, port, packet)
}

pub(crate) fn nat() -> Contract<Nat> {
    use translated::*;
    fn steps() -> Vec<Step> {
        let mut kit = kit();
        let mut steps = Vec::new();
        let remote = |protocol: fn([u8; 4], u16) -> _, n: u8| protocol([198, 51, 100, n], 443);
        for number in 0..12u8 {
            let protocol = if number % 2 == 0 { udp } else { tcp };
            let inside = protocol([10, 0, 0, 5 + number], 40_000);
            let remote = remote(protocol, number);
            let opens = frame(INSIDE, inside, remote, flagged(SYN));
            let out = kit.packet(INSIDE, &opens);
            let outside = left_by(&out, OUTSIDE).source();
            steps.push(now(INSIDE, opens));
            steps.push(now(
                OUTSIDE,
                frame(OUTSIDE, remote, outside, flagged(SYN_ACK)),
            ));
            steps.push(now(INSIDE, frame(INSIDE, inside, remote, flagged(ACK))));
            // About what went out: the NAT knows whose it was.
            let quoted = &out.packet[14..];
            let error = icmp(
                OUTSIDE,
                [192, 0, 2, 1].into(),
                outside.address,
                3,
                3,
                [0; 4],
                quoted,
            );
            steps.push(now(OUTSIDE, error));
        }
        let inside = udp([10, 0, 0, 5], 40_000);
        let dying = Wish {
            ttl: 1,
            ..Wish::default()
        };
        let large = Wish {
            payload: &[7; 1_600],
            ..Wish::default()
        };
        let stranger = udp([203, 0, 113, 2], 60_001);
        let to_own = udp([203, 0, 113, 1], 9);
        for packet in [
            frame(INSIDE, inside, remote(udp, 0), dying),
            frame(INSIDE, inside, remote(udp, 0), large),
            frame(
                INSIDE,
                udp([172, 16, 0, 1], 7),
                remote(udp, 0),
                Wish::default(),
            ),
            frame(INSIDE, inside, to_own, Wish::default()),
        ] {
            steps.push(now(INSIDE, packet));
        }
        for packet in [
            frame(OUTSIDE, remote(udp, 0), stranger, Wish::default()),
            frame(OUTSIDE, inside, stranger, Wish::default()),
            frame(
                OUTSIDE,
                remote(udp, 0),
                udp([8, 8, 8, 8], 53),
                Wish::default(),
            ),
        ] {
            steps.push(now(OUTSIDE, packet));
        }
        let error = icmp(
            OUTSIDE,
            [192, 0, 2, 1].into(),
            [203, 0, 113, 2].into(),
            3,
            3,
            [0; 4],
            &[0x45; 40],
        );
        steps.push(now(OUTSIDE, error));
        for _ in 0..60 {
            steps.push(now(INSIDE, frame(INSIDE, inside, remote(udp, 0), dying)));
        }
        steps
    }
    Contract {
        make: || translated::nat(config()),
        steps,
        reasons: &[
            (Reason::FragmentUnmatched, ByPackets),
            (
                Reason::IcmpLimited,
                Otherwise("errors enough for no limit; tests/nat/icmp.rs"),
            ),
            (Reason::IcmpUnmatched, ByPackets),
            (Reason::NoBinding, ByPackets),
            (Reason::NotForUs, ByPackets),
            (Reason::PacketTooBig, ByPackets),
            (Reason::SpoofedSource, ByPackets),
            (Reason::TtlExceeded, ByPackets),
            (Reason::UnsupportedProtocol, ByPackets),
            (Reason::NoRoute, ByPackets),
            (
                Reason::Filtered,
                Otherwise("filtering is endpoint-independent by default; tests/nat/mapping.rs"),
            ),
            (
                Reason::PortsExhausted,
                Otherwise("two addresses have more ports; tests/nat/mapping.rs"),
            ),
            (
                Reason::TableFull,
                Otherwise("the table has more room; tests/nat/settings.rs"),
            ),
        ],
        events: &[],
        keeps: &[],
        shares: Some("ports are leased to members in blocks, so each grants others"),
        page: page!("functions.md", "carrier-nat.md"),
    }
}

pub(crate) fn firewall() -> Contract<Firewall> {
    use filtered::*;
    fn steps() -> Vec<Step> {
        let mut steps = Vec::new();
        for number in 0..8u16 {
            let (client, server) = ((5, 40_000 + number), (2_000_000, 80));
            steps.extend([
                now(INSIDE, tcp(client, server, SYN, (1, 0), 0)),
                now(OUTSIDE, tcp(server, client, SYN_ACK, (7, 2), 0)),
                now(INSIDE, tcp(client, server, ACK, (2, 8), 100)),
                now(OUTSIDE, tcp(server, client, ACK, (8, 102), 50)),
                now(INSIDE, tcp(client, server, ACK, (900_000, 58), 10)),
                now(INSIDE, to_ipv6(&tcp(client, server, SYN, (1, 0), 0))),
                now(INSIDE, udp((6, 1_000 + number), (2_000_001, 53))),
                now(OUTSIDE, udp((2_000_001, 53), (6, 1_000 + number))),
                now(INSIDE, echo(8, 7, 2_000_002)),
                now(OUTSIDE, echo(0, 2_000_002, 7)),
            ]);
        }
        let large = tcp((5, 50_000), (2_000_000, 80), SYN, (1, 0), 64);
        let strange = udp((9, 9), (2_000_009, 9));
        let about = build::Header4::between(host(2_000_009), host(9));
        let error = filtered::frame(|out| build::icmp4(&about, 3, 3, [0; 4], &strange[14..], out));
        steps.extend([
            now(OUTSIDE, tcp((2_000_003, 9), (9, 23), SYN, (1, 0), 0)),
            now(OUTSIDE, tcp((2_000_003, 9), (9, 80), SYN, (1, 0), 0)),
            now(OUTSIDE, tcp((2_000_004, 9), (9, 22), SYN, (1, 0), 0)),
            now(OUTSIDE, tcp((2_000_004, 9), (9, 80), ACK, (1, 1), 0)),
            now(
                OUTSIDE,
                tcp((2_000_004, 9), (9, 80), TcpFlags(SYN.0 | RST.0), (1, 1), 0),
            ),
            now(OUTSIDE, echo(0, 2_000_005, 7)),
            now(OUTSIDE, error),
            now(INSIDE, part(&large, 0, 8, true)),
            now(INSIDE, part(&large, 0, 40, true)),
            now(INSIDE, part(&large, 40, 40, false)),
        ]);
        for port in 0..200u16 {
            steps.push(now(
                OUTSIDE,
                tcp((2_000_006, port), (9, 80), SYN, (1, 0), 0),
            ));
        }
        steps
    }
    Contract {
        make: || {
            Firewall::new(asterism_functions::firewall::FirewallConfig {
                half_open_per_source: 100,
                ..config()
            })
        },
        steps,
        reasons: &[
            (Reason::BadTcpFlags, ByPackets),
            (Reason::Blocked, ByPackets),
            (Reason::Denied, ByPackets),
            (Reason::FragmentTiny, ByPackets),
            (Reason::FragmentUnmatched, ByPackets),
            (Reason::HalfOpenLimit, ByPackets),
            (Reason::IcmpUnmatched, ByPackets),
            (Reason::NoConnection, ByPackets),
            (Reason::NotForUs, ByPackets),
            (Reason::OutOfWindow, ByPackets),
            (Reason::UnsupportedProtocol, ByPackets),
            (
                Reason::TableFull,
                Otherwise("the table has more room; tests/firewall/hostile.rs"),
            ),
        ],
        events: &[
            (
                firewall::EVENTS[0],
                Otherwise("no rule that allows has `log`; tests/firewall/blocks.rs"),
            ),
            (firewall::EVENTS[1], ByPackets),
            (firewall::EVENTS[2], ByPackets),
            (
                firewall::EVENTS[3],
                Otherwise("no limit of a link; tests/firewall/floods.rs"),
            ),
            (
                firewall::EVENTS[4],
                Otherwise("no limit of a destination; tests/firewall/floods.rs"),
            ),
        ],
        keeps: &[
            ("hits", SUMS),
            ("blocks_without_room", SUMS),
            ("events_without_room", SUMS),
        ],
        shares: None,
        page: page!("firewall.md"),
    }
}

pub(crate) fn balancer() -> Contract<Balancer> {
    use balanced::*;
    fn steps() -> Vec<Step> {
        let mut kit = kit(vec![service(3)]);
        let mut steps = Vec::new();
        for number in 0..20 {
            let opens = frame(CLIENTS, client(number), asked(), SYN);
            let server = endpoint_of(
                left_by(&kit.packet(CLIENTS, &opens), BACKENDS)
                    .destination
                    .octets()[3]
                    - 10,
            );
            steps.extend([
                now(CLIENTS, opens),
                now(BACKENDS, frame(BACKENDS, server, client(number), SYN_ACK)),
                now(CLIENTS, frame(CLIENTS, client(number), asked(), ACK)),
                now(BACKENDS, frame(BACKENDS, server, client(number), ACK)),
            ]);
        }
        let elsewhere = asterism_function::Endpoint {
            port: 81,
            ..asked()
        };
        steps.push(now(CLIENTS, frame(CLIENTS, client(1), elsewhere, SYN)));
        let dying = build::Header4 {
            ttl: 1,
            ..header(CLIENTS, client(1).address, SERVICE)
        };
        steps.push(now(
            CLIENTS,
            frame_of(&dying, (client(1), asked()), ACK, b""),
        ));
        // About an answer that the service never gave.
        let ends = (asked(), client(5_000));
        let answer = build::Header4::between(SERVICE, ends.1.address);
        let quoted = frame_of(&answer, ends, ACK, b"");
        let mut error = vec![0; 256];
        let to_service = header(CLIENTS, ends.1.address, SERVICE);
        let length = build::icmp4(&to_service, 3, 3, [0; 4], &quoted[14..], &mut error);
        error.truncate(length.expect("room for the frame"));
        steps.push(now(CLIENTS, error));
        steps.push(now(
            BACKENDS,
            frame(BACKENDS, endpoint_of(0), client(9_999), ACK),
        ));
        steps
    }
    Contract {
        make: || balanced::balancer(config(vec![service(3)])),
        steps,
        reasons: &[
            (Reason::IcmpUnmatched, ByPackets),
            (Reason::NoBinding, ByPackets),
            (Reason::NotForUs, ByPackets),
            (Reason::TtlExceeded, ByPackets),
            (Reason::UnsupportedProtocol, ByPackets),
            (Reason::FragmentUnmatched, ByPackets),
            (Reason::SpoofedSource, ByPackets),
            (
                Reason::IcmpLimited,
                Otherwise("not so many errors are due; tests/balancer/hostile.rs"),
            ),
            (
                Reason::NoBackend,
                Otherwise("the backends are up; tests/balancer/choices.rs"),
            ),
            (
                Reason::NoRoute,
                Otherwise("the configuration routes everything; tests/balancer/modes.rs"),
            ),
            (
                Reason::PacketTooBig,
                Otherwise("no packet is so long; tests/balancer/modes.rs"),
            ),
            (
                Reason::TableFull,
                Otherwise("the table has more room; tests/balancer/hostile.rs"),
            ),
        ],
        events: &[],
        keeps: &[("usage", "each backend has its count, also of none")],
        shares: None,
        page: page!("balancer.md"),
    }
}

pub(crate) fn port_scan() -> Contract<PortScan> {
    /// The frame as a packet of another protocol over IPv4.
    fn of_protocol(protocol: u8, mut frame: Vec<u8>) -> Vec<u8> {
        frame[23] = protocol;
        frame[24..26].fill(0);
        let words = frame[14..34].chunks(2);
        let sum: u32 = words
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    }
    fn steps() -> Vec<Step> {
        let mut steps = Vec::new();
        for number in 0..30u16 {
            steps.extend([
                now(IN, made::syn(1, (100, 1_000 + number))),
                now(
                    OUT,
                    made::tcp(
                        (100 + number, 80),
                        (2, 40_000),
                        TcpFlags::RST | TcpFlags::ACK,
                        b"",
                    ),
                ),
                now(IN, made::syn(2, (100 + number, 80))),
                now(IN, made::udp((3, number), (4, 5_353), &[0; 1_000])),
                now(IN, made::udp((9, 4_000), (300, 2_000 + number), b"x")),
                now(IN, made::udp((10, 4_000), (301 + number, 161), b"x")),
                now(IN, made::udp((10, 4_000), (401 + number, 161), b"x")),
                now(
                    IN,
                    of_protocol(100 + number as u8, made::udp((11, 1), (12, 1), b"")),
                ),
                now(IN, made::ping(5, number)),
                now(IN, made::syn6(6, (7, number))),
            ]);
        }
        // A service that is looked at, two thirds of whose handshakes stay open, and is judged in the next window.
        for number in 0..90u16 {
            let client = (1_000 + number, 40_000);
            steps.push(now(IN, made::tcp(client, (8, 443), TcpFlags::SYN, b"")));
            if number % 3 == 0 {
                steps.push(now(IN, made::tcp(client, (8, 443), TcpFlags::ACK, b"")));
            }
        }
        for number in 0..10u16 {
            let wait = if number == 0 { 4 } else { 0 };
            steps.push((wait, IN, made::syn(2_000 + number, (8, 443))));
        }
        steps
    }
    Contract {
        make: || {
            PortScan::new(PortScanConfig {
                volume: Some(VolumePolicy {
                    bits: 200_000,
                    window_s: 10,
                    block_s: 60,
                }),
                flood: Some(FloodPolicy {
                    handshakes: 16,
                    window_s: 3,
                }),
                ..PortScanConfig::default()
            })
        },
        steps,
        reasons: &[
            (Reason::Blocked, ByPackets),
            (Reason::PortBlocked, ByPackets),
        ],
        events: &[
            (port_scan::EVENTS[0], ByPackets),
            (port_scan::EVENTS[1], ByPackets),
            (port_scan::EVENTS[2], ByPackets),
            (port_scan::EVENTS[3], ByPackets),
            (port_scan::EVENTS[4], ByPackets),
            (port_scan::EVENTS[5], ByPackets),
            (port_scan::EVENTS[6], ByPackets),
            (port_scan::EVENTS[7], ByPackets),
        ],
        keeps: &[("volume", SUMS), ("syns", CELLS), ("unrecorded", SUMS)],
        shares: None,
        page: page!("idps.md"),
    }
}

pub(crate) fn monitor() -> Contract<Monitor> {
    fn steps() -> Vec<Step> {
        let mut steps = Vec::new();
        for number in 0..60u16 {
            steps.extend([
                now(IN, made::syn(1, (100 + number, 80))),
                now(OUT, made::udp((2, number), (3, 53), b"x")),
                now(IN, made::ping(4, number)),
                now(IN, made::syn6(5, (6, number))),
            ]);
        }
        steps
    }
    Contract {
        make: || {
            Monitor::new(MonitorConfig {
                out_degree: 20,
                edges_max: 500,
                flows_max: 400,
                places: 32,
                cells: 64,
                ..MonitorConfig::default()
            })
        },
        steps,
        reasons: &[],
        events: &[
            (monitor::EVENTS[0], ByPackets),
            (
                monitor::EVENTS[1],
                Otherwise("no limit of the in-degree; tests/monitor/exact.rs"),
            ),
        ],
        keeps: &[
            ("protocols", SUMS),
            ("heavy_bytes", PLACES),
            ("heavy_packets", PLACES),
            ("volumes", PLACES),
            ("unrecorded", SUMS),
        ],
        shares: None,
        page: page!("monitor.md"),
    }
}

pub(crate) fn limiter() -> Contract<Limiter> {
    const LIMIT: Option<Limit> = Some(Limit {
        unit: Unit::Packets,
        rate: TokenRate {
            tokens_per_second: 5,
            burst_tokens: 8,
        },
    });
    fn steps() -> Vec<Step> {
        let packet = |number: u16| made::udp((number % 6, 1), (number % 4, 7), b"");
        let known = (0..200).map(|number| now(IN, packet(number)));
        // More sources than keys.
        let more =
            (0..400).map(|number| now(IN, made::udp((1_000 + number, 1), (50 + number, 7), b"")));
        // In a minute all buckets are full, and forgotten wherever they are.
        let last = (60, IN, packet(0));
        known.chain(more).chain([last]).collect()
    }
    Contract {
        make: || {
            Limiter::new(LimiterConfig {
                sources: LIMIT,
                services: LIMIT,
                keys_max: 300,
                ..LimiterConfig::default()
            })
        },
        steps,
        reasons: &[
            (Reason::RateLimited, ByPackets),
            (Reason::TableFull, ByPackets),
        ],
        events: &[],
        keeps: &[("without_room", SUMS)],
        shares: Some("each member spends its share of a limit"),
        page: page!("limiter.md"),
    }
}

pub(crate) fn span() -> Contract<Span> {
    Contract {
        make: || Span {
            copied: Copied::Inward,
        },
        steps: || vec![now(IN, made::ping(1, 2)), now(OUT, made::ping(2, 1))],
        reasons: &[],
        events: &[],
        keeps: &[("copies", SUMS)],
        shares: None,
        page: page!("functions.md"),
    }
}

pub(crate) fn cache_digests() -> Contract<CacheDigests> {
    use digested::*;
    fn steps() -> Vec<Step> {
        let mut steps = Vec::new();
        let known = digest(0..20, 1_000);
        steps.push(now(IN, query(FETCHED.1, 1)));
        steps.extend(
            fetched_frames(FETCHED.0, &known, 7)
                .into_iter()
                .map(|frame| now(CONTROL, frame)),
        );
        for number in 0..40 {
            steps.extend([
                now(IN, query(FETCHED.1, number)),
                now(OUT, report(&line("SWAPOUT", number))),
                now(IN, query(REPORTS.1, number)),
                now(OUT, report(&line("RELEASE", number / 2))),
            ]);
        }
        let other = digest(0..20, 4_000);
        steps.extend(
            fetched_frames(FETCHED.0, &other, 8)
                .into_iter()
                .map(|frame| now(CONTROL, frame)),
        );
        steps
    }
    Contract {
        make: digested::function,
        steps,
        reasons: &[
            (Reason::UnsupportedProtocol, ByPackets),
            (
                Reason::TableFull,
                Otherwise("the table has more room; tests/cache_digests/packets.rs"),
            ),
        ],
        events: &[],
        keeps: &[
            (
                "stored",
                "what a cache said that it stores, it stores until it says otherwise",
            ),
            ("counts", SUMS),
        ],
        shares: None,
        page: page!("cache-digests.md"),
    }
}

pub(crate) fn pass_through() -> Contract<PassThrough> {
    Contract {
        make: || PassThrough {
            access: Access::ReadWrite,
        },
        steps: || vec![now(IN, made::ping(1, 2)), now(OUT, made::ping(2, 1))],
        reasons: &[(
            Reason::Filtered,
            Otherwise("only after more packets than a cluster's lifetime has"),
        )],
        events: &[],
        keeps: &[("packets", SUMS)],
        shares: None,
        page: page!("functions.md"),
    }
}

/// Two of the library in a row: a chain is a function, and meets the contract.
pub(crate) fn chain() -> Contract<Chain> {
    Contract {
        make: || {
            let watch = Stage::new("watch", Arc::new((port_scan().make)()));
            let count = PassThrough {
                access: Access::ReadWrite,
            };
            let stages = vec![watch, Stage::new("count", Arc::new(count))];
            Chain::new(stages).expect("a sound chain")
        },
        steps: || (port_scan().steps)(),
        reasons: &[
            (Reason::Blocked, ByPackets),
            (Reason::PortBlocked, ByPackets),
        ],
        events: port_scan().events,
        keeps: &[
            ("watch.volume", SUMS),
            ("watch.syns", CELLS),
            ("watch.unrecorded", SUMS),
            ("count.packets", SUMS),
        ],
        shares: None,
        page: page!("idps.md", "functions.md"),
    }
}
