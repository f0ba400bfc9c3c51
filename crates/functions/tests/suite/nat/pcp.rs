//! Mappings that inside hosts ask for (RFC 6887): every answer, who gets in, and that they live on whichever instance is asked.

use core::net::Ipv4Addr;

use asterism_function::objects::{Absence, ObjectSettings};
use asterism_function::testkit::{ClusterKit, Outcome, late_everywhere};
use asterism_function::{Endpoint, Packet, PortNumber, Protocol, Reason, Verdict, build};
use asterism_functions::nat::pcp::{MESSAGE_BYTES_MAX, PORT};
use asterism_functions::nat::{Filtering, Forward, Nat, PortBlocks, PortControl, SubscriberLimits};

use crate::nat::network::{
    ACK, FIN_ACK, INSIDE, INSIDE_ADDRESS, INSIDE_MAC, INSIDE_ROUTER, Kit, OUTSIDE, OUTSIDE_ADDRESS,
    RST, RST_ACK, SYN, Wish, config, flagged, frame, kit_with, left_by, nat, send, tcp, udp,
};

pub(crate) const HOST: [u8; 4] = [10, 0, 0, 5];
const REMOTE: [u8; 4] = [198, 51, 100, 7];
const LIFETIME: u32 = 600;
const CONTROL: PortControl = PortControl {
    lifetime: LIFETIME,
    mappings_max: 64,
};

const SUCCESS: u8 = 0;
const UNSUPPORTED_VERSION: u8 = 1;
const NOT_AUTHORIZED: u8 = 2;
const MALFORMED: u8 = 3;
const UNSUPPORTED_OPCODE: u8 = 4;
const UNSUPPORTED_OPTION: u8 = 5;
const MALFORMED_OPTION: u8 = 6;
const NO_RESOURCES: u8 = 8;
const UNSUPPORTED_PROTOCOL: u8 = 9;
const QUOTA: u8 = 10;
const CANNOT_PROVIDE: u8 = 11;
const ADDRESS_MISMATCH: u8 = 12;

/// What a request says.
#[derive(Clone, Copy)]
pub(crate) struct Asks {
    pub(crate) client: [u8; 4],
    pub(crate) lifetime: u32,
    pub(crate) nonce: u8,
    pub(crate) protocol: u8,
    pub(crate) internal: u16,
    pub(crate) external: u16,
    pub(crate) insists: bool,
}

pub(crate) const MAP: Asks = Asks {
    client: HOST,
    lifetime: 3_600,
    nonce: 1,
    protocol: 6,
    internal: 8_080,
    external: 0,
    insists: false,
};

impl Asks {
    /// By the bytes of RFC 6887's figures 2, 9 and 11.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![2, 1, 0, 0];
        bytes.extend(self.lifetime.to_be_bytes());
        bytes.extend(Ipv4Addr::from(self.client).to_ipv6_mapped().octets());
        bytes.extend([self.nonce; 12]);
        bytes.extend([self.protocol, 0, 0, 0]);
        bytes.extend(self.internal.to_be_bytes());
        bytes.extend(self.external.to_be_bytes());
        bytes.extend(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().octets());
        if self.insists {
            bytes.extend([2, 0, 0, 0]);
        }
        bytes
    }
}

/// What an answer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answer {
    code: u8,
    lifetime: u32,
    epoch: u32,
    external: Option<Endpoint>,
}

pub(crate) fn datagram(client: [u8; 4], message: &[u8]) -> Vec<u8> {
    let header = build::Header4 {
        ethernet_source: INSIDE_ROUTER,
        ethernet_destination: INSIDE_MAC,
        ..build::Header4::between(client.into(), INSIDE_ADDRESS)
    };
    let mut out = vec![0; 2_048];
    let length = build::udp4(&header, 40_000, PORT, message, &mut out).expect("room");
    out.truncate(length);
    out
}

/// The one answer of an outcome, to the client that asked.
pub(crate) fn answer_of(outcome: &Outcome, client: [u8; 4]) -> Option<Vec<u8>> {
    let [(port, bytes)] = &outcome.emitted[..] else {
        assert!(outcome.emitted.is_empty());
        return None;
    };
    assert_eq!((*port, outcome.verdict), (INSIDE, Verdict::Consumed));
    let mut bytes = bytes.clone();
    let packet = Packet::parse(&mut bytes).expect("right checksums");
    assert_eq!(packet.verify_transport_checksum(), Some(true));
    assert_eq!(packet.ethernet_destination(), INSIDE_ROUTER);
    let flow = packet.flow4().unwrap();
    assert_eq!(flow.source(), udp(INSIDE_ADDRESS.octets(), PORT));
    assert_eq!(flow.destination(), udp(client, 40_000));
    Some(packet.payload().to_vec())
}

fn read(answer: &[u8]) -> Answer {
    assert!(answer.len() >= 24 && answer.len().is_multiple_of(4));
    assert_eq!((answer[0], answer[1] & 0x80, answer[2]), (2, 0x80, 0));
    let word = |at: usize| u32::from_be_bytes(answer[at..at + 4].try_into().unwrap());
    let external = answer.get(24..60).map(|map| {
        let address: [u8; 4] = map[32..36].try_into().unwrap();
        assert_eq!(map[20..32], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        let port = u16::from_be_bytes([map[18], map[19]]);
        Endpoint::new(address.into(), port, Protocol(map[12]))
    });
    Answer {
        code: answer[3],
        lifetime: word(4),
        epoch: word(8),
        external,
    }
}

fn ask(kit: &mut Kit, asks: Asks) -> Answer {
    let request = asks.bytes();
    let out = kit.packet(INSIDE, &datagram(asks.client, &request));
    let answer = answer_of(&out, asks.client).expect("an answer");
    // What was asked stands in it.
    assert_eq!(answer[24..42], request[24..42]);
    read(&answer)
}

fn mapped(kit: &mut Kit, asks: Asks) -> Endpoint {
    let said = ask(kit, asks);
    assert_eq!((said.code, said.lifetime), (SUCCESS, LIFETIME), "{said:?}");
    said.external.unwrap()
}

pub(crate) fn kit() -> Kit {
    kit_with(|config| config.port_control = Some(CONTROL))
}

/// Where a SYN from a remote host ends up.
fn reaches(kit: &mut Kit, outside: Endpoint, remote: [u8; 4]) -> Option<Endpoint> {
    let out = send(kit, OUTSIDE, tcp(remote, 999), outside, flagged(SYN));
    (out.verdict == Verdict::Forward(INSIDE)).then(|| left_by(&out, INSIDE).destination())
}

#[test]
fn a_mapping_lets_everybody_in_whatever_the_filtering() {
    for filtering in [
        Filtering::EndpointIndependent,
        Filtering::AddressDependent,
        Filtering::AddressAndPortDependent,
    ] {
        let mut kit = kit_with(|config| {
            config.port_control = Some(CONTROL);
            config.filtering = filtering;
        });
        let inside = tcp(HOST, 8_080);
        let outside = mapped(&mut kit, MAP);
        for last in 1..4 {
            assert_eq!(
                reaches(&mut kit, outside, [198, 51, 100, last]),
                Some(inside)
            );
        }
        // What the host sends leaves by it, and more than any look through sessions finds hides it not.
        for remote_port in 1..200 {
            let out = send(
                &mut kit,
                INSIDE,
                inside,
                tcp(REMOTE, remote_port),
                flagged(SYN),
            );
            assert_eq!(left_by(&out, OUTSIDE).source(), outside);
        }
        assert_eq!(reaches(&mut kit, outside, [198, 51, 100, 9]), Some(inside));
        // Another port of the host has none.
        let other = Endpoint {
            port: outside.port ^ 1,
            ..outside
        };
        assert_eq!(reaches(&mut kit, other, REMOTE), None);
    }
}

#[test]
fn who_asked_for_a_mapping_may_refuse() {
    let mut kit = kit_with(|config| {
        config.port_control = Some(CONTROL);
        config.filtering = Filtering::AddressAndPortDependent;
    });
    let (inside, client) = (tcp(HOST, 8_080), tcp(REMOTE, 999));
    let outside = mapped(&mut kit, MAP);
    assert_eq!(reaches(&mut kit, outside, REMOTE), Some(inside));
    let refused = send(&mut kit, INSIDE, inside, client, flagged(RST_ACK));
    let flow = left_by(&refused, OUTSIDE);
    assert_eq!((flow.source(), flow.destination()), (outside, client));
    assert_eq!(kit.state().sessions.len_now(), 1, "the mapping alone");
}

#[test]
fn a_host_that_talks_already_is_mapped_where_it_is_seen() {
    let mut kit = kit();
    let out = send(
        &mut kit,
        INSIDE,
        tcp(HOST, 8_080),
        tcp(REMOTE, 80),
        flagged(SYN),
    );
    let seen = left_by(&out, OUTSIDE).source();
    assert_eq!(mapped(&mut kit, MAP), seen);
    // UDP is another endpoint.
    let outside = mapped(
        &mut kit,
        Asks {
            protocol: 17,
            ..MAP
        },
    );
    assert_eq!(outside.protocol, Protocol::UDP);
    let out = send(&mut kit, OUTSIDE, udp(REMOTE, 53), outside, Wish::default());
    assert_eq!(left_by(&out, INSIDE).destination(), udp(HOST, 8_080));
}

#[test]
fn only_who_knows_the_nonce_prolongs_or_ends_it() {
    let mut kit = kit();
    let outside = mapped(&mut kit, MAP);
    for lifetime in [0, 3_600] {
        let said = ask(
            &mut kit,
            Asks {
                nonce: 2,
                lifetime,
                ..MAP
            },
        );
        assert_eq!(said.code, NOT_AUTHORIZED);
        assert!(reaches(&mut kit, outside, REMOTE).is_some());
    }
    assert_eq!(mapped(&mut kit, MAP), outside);
    // Of one that has ended there is nothing to know; ending it again is no mistake.
    for _ in 0..2 {
        let said = ask(&mut kit, Asks { lifetime: 0, ..MAP });
        assert_eq!((said.code, said.lifetime), (SUCCESS, 0));
        assert_eq!(reaches(&mut kit, outside, REMOTE), None);
    }
    mapped(&mut kit, Asks { nonce: 2, ..MAP });
}

#[test]
fn it_ends_unless_it_is_prolonged_and_its_port_comes_back() {
    let mut kit = kit();
    let outside = mapped(&mut kit, MAP);
    for _ in 0..5 {
        // What outsiders send keeps nothing alive.
        kit.advance(LIFETIME - 1);
        assert!(reaches(&mut kit, outside, REMOTE).is_some());
        assert_eq!(mapped(&mut kit, MAP), outside);
    }
    kit.advance(LIFETIME);
    assert!(reaches(&mut kit, outside, REMOTE).is_some());
    kit.advance(LIFETIME);
    assert_eq!(reaches(&mut kit, outside, REMOTE), None);
    // And who may change it is forgotten with it.
    let wish = Asks {
        nonce: 9,
        external: outside.port,
        insists: true,
        ..MAP
    };
    assert_eq!(mapped(&mut kit, wish), outside);
}

/// Nor does a sender with the address of no host, under which the NAT keeps mappings.
#[test]
fn packets_from_nobody_neither_shorten_nor_prolong_a_mapping() {
    let nobody = [0; 4];
    let mut kit = kit();
    let outside = mapped(&mut kit, MAP);
    for flags in [ACK, RST, FIN_ACK] {
        let out = send(&mut kit, OUTSIDE, tcp(nobody, 0), outside, flagged(flags));
        assert_eq!(out.verdict, Verdict::Drop(Reason::SpoofedSource));
        // To nobody, by a host inside.
        let out = send(
            &mut kit,
            INSIDE,
            tcp(HOST, 8_080),
            tcp(nobody, 0),
            flagged(flags),
        );
        assert_eq!(out.verdict, Verdict::Drop(Reason::NoRoute));
    }
    kit.advance(500);
    assert!(reaches(&mut kit, outside, REMOTE).is_some());

    let asks = Asks {
        protocol: 17,
        ..MAP
    };
    let outside = mapped(&mut kit, asks);
    for _ in 0..10 {
        kit.advance(200);
        let out = send(&mut kit, OUTSIDE, udp(nobody, 0), outside, Wish::default());
        assert!(matches!(out.verdict, Verdict::Drop(_)));
        let (from, to) = (udp(HOST, 8_080), udp(nobody, 0));
        let out = send(&mut kit, INSIDE, from, to, Wish::default());
        assert_eq!(out.verdict, Verdict::Drop(Reason::NoRoute));
    }
    assert_eq!(kit.state().sessions.len_now(), 0, "nobody prolonged it");
}

#[test]
fn the_epoch_is_since_when_hosts_ask_and_begins_again_when_no_mapping_can_live() {
    let mut kit = kit();
    let mut announce = MAP.bytes();
    announce.truncate(24);
    announce[1] = 0;
    let announced = |kit: &mut Kit| {
        let out = kit.packet(INSIDE, &datagram(HOST, &announce));
        let said = read(&answer_of(&out, HOST).unwrap());
        assert_eq!((said.code, said.lifetime), (SUCCESS, 0));
        said.epoch
    };
    assert_eq!(announced(&mut kit), 0);
    kit.advance(77);
    assert_eq!(ask(&mut kit, MAP).epoch, 77);
    for number in 1..10 {
        kit.advance(LIFETIME);
        assert_eq!(announced(&mut kit), 77 + number * LIFETIME);
    }
    kit.advance(2 * LIFETIME);
    assert_eq!(announced(&mut kit), 0, "every mapping has ended");
    // As after a restart.
    assert_eq!(announced(&mut self::kit()), 0);
}

#[test]
fn a_wish_is_granted_where_it_can_be() {
    let mut kit = kit();
    let wish = Asks {
        external: 20_000,
        insists: true,
        ..MAP
    };
    assert_eq!(mapped(&mut kit, wish).port, 20_000);
    // The same again; then another host wants it.
    assert_eq!(mapped(&mut kit, wish).port, 20_000);
    let other = Asks {
        client: [10, 0, 0, 6],
        ..wish
    };
    let mut refused = 0;
    for last in 6..40 {
        let said = ask(
            &mut kit,
            Asks {
                client: [10, 0, 0, last],
                ..wish
            },
        );
        refused += u32::from(said.code == CANNOT_PROVIDE);
        let port = said.external.unwrap().port;
        assert_eq!(port, 20_000);
    }
    // Each is paired with one of two addresses.
    assert_eq!(refused, 33, "the other address has such a port too");
    let out = ask(
        &mut kit,
        Asks {
            insists: false,
            internal: 81,
            ..other
        },
    );
    assert_eq!(out.code, SUCCESS);
    assert_ne!(out.external.unwrap().port, 20_000);
}

/// Which port of a block it is cannot be guessed, nor wished for.
#[test]
fn with_blocks_no_wish_is_looked_at() {
    let mut kit = kit_with(|config| {
        config.port_control = Some(CONTROL);
        config.blocks = Some(PortBlocks {
            ports: 512,
            per_subscriber_max: 1,
        });
    });
    let wish = Asks {
        external: 20_000,
        ..MAP
    };
    let insists = Asks {
        insists: true,
        ..wish
    };
    assert_eq!(ask(&mut kit, insists).code, CANNOT_PROVIDE);
    assert!(
        kit.state().sessions.is_empty_now(),
        "a refusal takes nothing"
    );
    let port = mapped(&mut kit, wish).port;
    assert_ne!(port, 20_000);
    assert_eq!(ask(&mut kit, insists).code, CANNOT_PROVIDE);
    // Where the host is seen already it may insist on that.
    let seen = Asks {
        external: port,
        ..insists
    };
    assert_eq!(mapped(&mut kit, seen).port, port);
}

#[test]
fn what_the_operator_forwards_is_reported_and_not_changed() {
    let mut kit = kit_with(|config| {
        config.port_control = Some(CONTROL);
        config.forwards = vec![Forward {
            outside: Endpoint::new(OUTSIDE_ADDRESS, 80, Protocol::TCP),
            inside: tcp(HOST, 8_080),
        }];
    });
    let said = ask(&mut kit, MAP);
    assert_eq!((said.code, said.lifetime), (SUCCESS, u32::MAX));
    assert_eq!(said.external, Some(tcp(OUTSIDE_ADDRESS.octets(), 80)));
    assert_eq!(
        ask(&mut kit, Asks { lifetime: 0, ..MAP }).code,
        NOT_AUTHORIZED
    );
    let insists = Asks {
        external: 81,
        insists: true,
        ..MAP
    };
    assert_eq!(ask(&mut kit, insists).code, CANNOT_PROVIDE);
    assert_eq!(kit.state().sessions.len_now(), 0);
}

#[test]
fn quotas_and_full_tables_refuse() {
    let mut kit = kit_with(|config| {
        config.port_control = Some(CONTROL);
        config.subscribers = SubscriberLimits {
            ports_max: 3,
            ..SubscriberLimits::NONE
        };
    });
    let codes: Vec<u8> = (0..5)
        .map(|number| {
            ask(
                &mut kit,
                Asks {
                    internal: 8_080 + number,
                    ..MAP
                },
            )
            .code
        })
        .collect();
    assert_eq!(codes, [SUCCESS, SUCCESS, SUCCESS, QUOTA, QUOTA]);

    let mut kit = self::kit();
    let codes: Vec<u8> = (0..100)
        .map(|number| {
            ask(
                &mut kit,
                Asks {
                    internal: 1_000 + number,
                    ..MAP
                },
            )
            .code
        })
        .collect();
    let made = codes.iter().filter(|code| **code == SUCCESS).count();
    assert!((1..=64).contains(&made), "{made}");
    assert!(codes[made..].iter().all(|code| *code == NO_RESOURCES));
    assert_eq!(
        kit.state().sessions.len_now(),
        made,
        "none was made for nothing"
    );
    // A mapping that is there is prolonged all the same, and one that ends makes room.
    mapped(
        &mut kit,
        Asks {
            internal: 1_000,
            ..MAP
        },
    );
    assert_eq!(
        ask(
            &mut kit,
            Asks {
                internal: 1_000,
                lifetime: 0,
                ..MAP
            }
        )
        .code,
        SUCCESS
    );
}

#[test]
fn every_mistake_is_answered_by_its_code() {
    let mut kit = kit();
    let good = MAP.bytes();
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let with = |option: &[u8]| [&good[..], option].concat();
    let cases: Vec<(Vec<u8>, u8)> = vec![
        (changed(0, 3), UNSUPPORTED_VERSION),
        (changed(1, 2), UNSUPPORTED_OPCODE),
        (changed(1, 127), UNSUPPORTED_OPCODE),
        (changed(23, 9), ADDRESS_MISMATCH),
        (changed(8, 1), ADDRESS_MISMATCH),
        (good[..59].to_vec(), MALFORMED),
        (good[..56].to_vec(), MALFORMED),
        (good[..20].to_vec(), MALFORMED),
        (vec![2, 1], MALFORMED),
        (changed(36, 0), MALFORMED),
        (changed(36, 1), UNSUPPORTED_PROTOCOL),
        (Asks { internal: 0, ..MAP }.bytes(), NO_RESOURCES),
        (
            Asks {
                internal: 0,
                protocol: 0,
                ..MAP
            }
            .bytes(),
            UNSUPPORTED_PROTOCOL,
        ),
        // THIRD_PARTY and FILTER must be heeded, 200 need not be.
        (with(&[1, 0, 0, 4, 1, 2, 3, 4]), UNSUPPORTED_OPTION),
        (with(&[3, 0, 0, 0]), UNSUPPORTED_OPTION),
        (with(&[200, 0, 0, 3, 1, 2, 3, 0]), SUCCESS),
        (with(&[200, 0, 0, 5, 1, 2, 3, 4]), MALFORMED_OPTION),
        (with(&[2, 0, 0, 4, 0, 0, 0, 0]), MALFORMED_OPTION),
        (
            Asks {
                insists: true,
                ..MAP
            }
            .bytes(),
            MALFORMED_OPTION,
        ),
        ([&good[..], &vec![0; MESSAGE_BYTES_MAX]].concat(), MALFORMED),
        // A question of NAT-PMP (RFC 6886) is one of another version.
        (vec![0, 0], UNSUPPORTED_VERSION),
    ];
    for (message, code) in cases {
        let out = kit.packet(INSIDE, &datagram(HOST, &message));
        let answer = answer_of(&out, HOST).expect("an answer");
        assert!(answer.len() <= MESSAGE_BYTES_MAX);
        assert_eq!(answer[1], 0x80 | message[1]);
        assert_eq!(answer[3], code, "{message:?}");
        let of_error = answer[4..8] != [0; 4];
        assert!(of_error, "how long it is so is reported");
    }
    assert_eq!(
        kit.state().sessions.len_now(),
        1,
        "by the one that succeeded"
    );
}

#[test]
fn what_is_no_request_is_not_answered() {
    let mut kit = kit();
    for message in [vec![], vec![2], vec![2, 0x81], {
        let mut answer = MAP.bytes();
        answer[1] |= 0x80;
        answer
    }] {
        let out = kit.packet(INSIDE, &datagram(HOST, &message));
        assert!(out.emitted.is_empty());
        assert_eq!(out.verdict, Verdict::Drop(Reason::NotForUs));
    }
    // A damaged one.
    let mut bytes = datagram(HOST, &MAP.bytes());
    *bytes.last_mut().unwrap() ^= 1;
    assert!(kit.packet(INSIDE, &bytes).emitted.is_empty());
    // From outside, and where nobody may ask.
    let to_us = udp(OUTSIDE_ADDRESS.octets(), PORT);
    let out = send(&mut kit, OUTSIDE, udp(REMOTE, 1), to_us, Wish::default());
    assert!(out.emitted.is_empty());
    let mut deaf = crate::nat::network::kit();
    let out = deaf.packet(INSIDE, &datagram(HOST, &MAP.bytes()));
    assert!(out.emitted.is_empty());
    assert_eq!(out.verdict, Verdict::Drop(Reason::NotForUs));
}

#[test]
fn any_bytes_are_answered_or_not_and_nothing_else() {
    let mut kit = kit();
    let mut draw = 1_u64;
    for _ in 0..20_000 {
        let mut next = || {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (draw >> 33) as usize
        };
        let mut message = MAP.bytes();
        message.extend([2, 0, 0, 0, 128, 0, 0, 2, 1, 1, 0, 0]);
        for _ in 0..next() % 4 {
            let at = next() % message.len();
            message[at] = next() as u8;
        }
        message.truncate(next() % (message.len() + 1));
        let out = kit.packet(INSIDE, &datagram(HOST, &message));
        if let Some(answer) = answer_of(&out, HOST) {
            assert_eq!(answer.len() % 4, 0);
        }
    }
    assert!(kit.state().sessions.len_now() <= 64);
}

/// Made at one instance, used and prolonged at another, after the first has died.
#[test]
fn it_outlives_the_instance_that_made_it() {
    let settings = |object: &str| ObjectSettings {
        absence: match object {
            "ports" => Absence::Wait { us: 20_000 },
            _ => Absence::Answer,
        },
        ..ObjectSettings::REPLICATED
    };
    let mut config = config();
    config.port_control = Some(CONTROL);
    config.filtering = Filtering::AddressAndPortDependent;
    let mut cluster: ClusterKit<Nat> = ClusterKit::with_settings(nat(config), 3, 7, settings);
    let map = datagram(HOST, &MAP.bytes());
    let at = |cluster: &mut ClusterKit<Nat>, member: usize, port: PortNumber, bytes: &[u8]| {
        let now = cluster.now_us();
        cluster.packet_since(member, now, port, bytes)
    };
    cluster.exchange();
    cluster.advance_us(30_000);
    // Nobody else has said yet that it made none.
    let arrived = cluster.now_us();
    assert!(at(&mut cluster, 0, INSIDE, &map).is_err());
    cluster.advance_us(25_000);
    let out = cluster.packet_since(0, arrived, INSIDE, &map).unwrap();
    let said = read(&answer_of(&out, HOST).unwrap());
    assert_eq!(said.code, SUCCESS);
    let outside = said.external.unwrap();
    cluster.exchange();

    let syn = frame(OUTSIDE, tcp(REMOTE, 999), outside, flagged(SYN));
    for member in [1, 2] {
        let out = at(&mut cluster, member, OUTSIDE, &syn).unwrap();
        assert_eq!(left_by(&out, INSIDE).destination(), tcp(HOST, 8_080));
    }
    cluster.kill(0);
    let stolen = datagram(
        HOST,
        &Asks {
            nonce: 2,
            lifetime: 0,
            ..MAP
        }
        .bytes(),
    );
    let out = at(&mut cluster, 1, INSIDE, &stolen).unwrap();
    assert_eq!(answer_of(&out, HOST).unwrap()[3], NOT_AUTHORIZED);
    let out = at(&mut cluster, 2, INSIDE, &map).unwrap();
    let again = read(&answer_of(&out, HOST).unwrap());
    assert_eq!((again.code, again.external), (SUCCESS, Some(outside)));
    assert!(again.epoch >= said.epoch);
    let out = at(&mut cluster, 1, OUTSIDE, &syn).unwrap();
    assert_eq!(left_by(&out, INSIDE).destination(), tcp(HOST, 8_080));
}

#[test]
fn late_answers_change_nothing() {
    let mut config = config();
    config.port_control = Some(CONTROL);
    config.filtering = Filtering::AddressAndPortDependent;
    let end = Asks { lifetime: 0, ..MAP };
    let steps = [MAP, MAP, end, end, MAP].map(|asks| (1, INSIDE, datagram(HOST, &asks.bytes())));
    late_everywhere(|| nat(config.clone()), &steps);
}
