//! Both ends in memory, with everything that a network does to datagrams.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use asterism_secure_channel::{ClusterId, ClusterKey, DATAGRAM_BYTES_MAX, Envelope, KeyRing};
use proptest::prelude::*;

use super::message::{Command, Reply};
use super::*;

const CLUSTER: ClusterId = ClusterId(7);

fn ring(id: u8) -> KeyRing {
    ClusterKey::from_random(id, [id; 32]).into()
}

fn commander(start: u8) -> Commander {
    Commander::new(CLUSTER, ring(1), [start; 16])
}

fn receiver(start: u8) -> Receiver {
    Receiver::new(CLUSTER, ring(1), [start; 16], [start; 16])
}

fn apply(generation: u64) -> Request {
    let target = |name: &str| DesiredTarget {
        host: HostNumber::of(name),
        weight: 256,
        drains: name == "b",
    };
    Request::Apply {
        generation,
        targets: ["a", "b"].map(target).to_vec(),
    }
}

fn answer(generation: u64) -> Answer {
    Answer {
        outcome: Outcome::Done {
            changed: 1,
            moved_permille: 2,
        },
        status: Some(Status {
            generation: Some(generation),
            ..Status::default()
        }),
    }
}

/// Delivers a request until the receiver counts it.
fn deliver(commander: &mut Commander, receiver: &mut Receiver, request: Request) -> CommandId {
    let mut datagram = commander.request(request.clone()).to_vec();
    loop {
        match receiver.handle(&mut datagram) {
            Received::Request(from, received) => {
                assert_eq!(received, request);
                return from;
            }
            Received::Reply(mut stale) => {
                assert_eq!(commander.handle(&mut stale), Handled::SendAgain);
                datagram = commander.waiting().unwrap().to_vec();
            }
            Received::Refused => panic!("it was refused"),
        }
    }
}

#[test]
fn a_command_is_done_once_and_answered_as_often_as_it_comes() {
    let (mut commander, mut receiver) = (commander(1), receiver(2));
    let from = deliver(&mut commander, &mut receiver, apply(5));
    let again = commander.waiting().unwrap().to_vec();
    // While it is being done, it is not begun again.
    assert_eq!(receiver.handle(&mut again.clone()), Received::Refused);
    let mut answered = receiver.answer(from, answer(5));
    let Received::Reply(mut repeated) = receiver.handle(&mut again.clone()) else {
        panic!("the answer comes again");
    };
    assert_eq!(commander.handle(&mut repeated), Handled::Answer(answer(5)));
    assert_eq!(commander.handle(&mut answered), Handled::Ignored);
    assert!(commander.waiting().is_none());
    // The next one needs no further challenge.
    let mut next = commander.request(Request::Query).to_vec();
    assert!(matches!(
        receiver.handle(&mut next),
        Received::Request(_, Request::Query)
    ));
    // One before it does not count any more.
    assert_eq!(receiver.handle(&mut again.clone()), Received::Refused);
}

#[test]
fn recorded_datagrams_change_nothing() {
    let (mut first, mut director) = (commander(1), receiver(2));
    let from = deliver(&mut first, &mut director, apply(5));
    let recorded = first.waiting().unwrap().to_vec();
    let mut recorded_answer = director.answer(from, answer(5));

    // After a restart of the director: it asks for its own challenge, and does nothing.
    let mut restarted = receiver(3);
    assert!(matches!(
        restarted.handle(&mut recorded.clone()),
        Received::Reply(_)
    ));
    // After a restart of the orchestrator: the answer is to somebody else.
    let mut other = commander(4);
    other.request(apply(6));
    assert_eq!(other.handle(&mut recorded_answer), Handled::Ignored);
    // After so many orchestrators that the director has forgotten the first one.
    for start in 0..SENDERS_MAX as u8 + 1 {
        deliver(&mut commander(100 + start), &mut director, Request::Query);
    }
    assert!(matches!(
        director.handle(&mut recorded.clone()),
        Received::Reply(_)
    ));
}

#[test]
fn strangers_and_damage_are_refused() {
    let mut director = receiver(2);
    let mut stranger = Commander::new(CLUSTER, ring(9), [1; 16]);
    let mut neighbour = Commander::new(ClusterId(8), ring(1), [1; 16]);
    for other in [&mut stranger, &mut neighbour] {
        let mut datagram = other.request(Request::Query).to_vec();
        assert_eq!(director.handle(&mut datagram), Received::Refused);
    }
    let mut friend = commander(1);
    let datagram = friend.request(apply(1)).to_vec();
    for place in 0..datagram.len() {
        let mut damaged = datagram.clone();
        damaged[place] ^= 1;
        assert_eq!(director.handle(&mut damaged), Received::Refused, "{place}");
    }
    assert_eq!(director.handle(&mut []), Received::Refused);
    let refused = director.refused();
    let sealed_wrongly = 2 + datagram.len() as u64 + 1;
    assert_eq!(refused.not_sealed, sealed_wrongly, "each is counted");
    assert_eq!((refused.malformed, refused.repeated), (0, 0));
    // An end does not take its own kind's datagrams.
    assert_eq!(friend.handle(&mut datagram.clone()), Handled::Ignored);
    // Another key is for both.
    friend.set_keys(ring(2));
    let mut datagram = friend.request(apply(1)).to_vec();
    assert_eq!(director.handle(&mut datagram.clone()), Received::Refused);
    director.set_keys(ring(2));
    assert!(matches!(director.handle(&mut datagram), Received::Reply(_)));
}

/// Sealed well, and no command: what another version would send, or a program with an error.
#[test]
fn sealed_nonsense_and_other_versions_are_refused_and_counted() {
    let mut director = receiver(2);
    let mut sender = Envelope::new(CLUSTER, ring(1), (COMMANDER, &[RECEIVER]), [1; 16]);
    let mut bytes = Vec::new();
    let command = Command {
        challenge: [0; 16],
        request: Request::Query,
    };
    command.encode(&mut bytes);
    assert!(matches!(
        director.handle(&mut sender.seal(|out| out.extend(&bytes))),
        Received::Reply(_)
    ));
    let mut refused = 0;
    let mut refuse = |bytes: &[u8]| {
        let mut datagram = sender.seal(|out| out.extend(bytes));
        assert_eq!(director.handle(&mut datagram), Received::Refused);
        refused += 1;
        assert_eq!(director.refused().malformed, refused);
    };
    for version in [0, VERSION - 1, VERSION + 1] {
        let mut other = bytes.clone();
        other[0] = version;
        refuse(&other);
    }
    // As version 1 began: with the challenge.
    refuse(&bytes[1..]);
    refuse(&[]);
    let mut long = bytes.clone();
    long.push(0);
    refuse(&long);
    let mut unknown = bytes.clone();
    unknown[17] = 8;
    refuse(&unknown);
    let datagram = director.handle(&mut sender.seal(|out| out.extend(&bytes)));
    assert!(matches!(datagram, Received::Reply(_)), "it goes on");
}

#[test]
fn a_late_command_is_refused_and_counted() {
    let (mut commander, mut receiver) = (commander(1), receiver(2));
    let moves = |host| {
        let mut moves = Moves::default();
        moves.insert(7, HostNumber(host));
        Request::Move {
            generation: 5,
            part: moves.parts().unwrap().remove(0),
        }
    };
    deliver(&mut commander, &mut receiver, moves(1));
    let mut late = commander.waiting().unwrap().to_vec();
    deliver(&mut commander, &mut receiver, moves(2));
    assert_eq!(receiver.handle(&mut late), Received::Refused);
    assert_eq!(receiver.refused().repeated, 1);
}

#[test]
fn the_longest_messages_fit_a_datagram() {
    let target = |number| DesiredTarget {
        host: HostNumber(number),
        weight: 1,
        drains: false,
    };
    let request = Request::Apply {
        generation: u64::MAX,
        targets: (0..100).map(target).collect(),
    };
    assert!(commander(1).request(request).len() <= DATAGRAM_BYTES_MAX);
    let (mut commander, mut receiver) = (commander(1), receiver(2));
    let from = deliver(&mut commander, &mut receiver, Request::Query);
    let status = |number| TargetStatus {
        host: HostNumber(number),
        share_permille: 1,
        is_reachable: true,
    };
    let long = Answer {
        outcome: Outcome::Refused(RefusedCommand::Failed("ä".repeat(200))),
        status: Some(Status {
            targets: (0..100).map(status).collect(),
            ..Status::default()
        }),
    };
    let mut datagram = receiver.answer(from, long);
    assert!(datagram.len() <= DATAGRAM_BYTES_MAX);
    let Handled::Answer(read) = commander.handle(&mut datagram) else {
        panic!("it is read");
    };
    assert_eq!(read.status.unwrap().targets.len(), TARGETS_MAX);
    let reason = RefusedCommand::Failed("ä".repeat(100));
    assert_eq!(read.outcome, Outcome::Refused(reason));

    // The most hosts and ranges that a part can have, in either direction; and the longest counts.
    let mut moves = Moves::default();
    for bucket in (0..60_000).step_by(2) {
        moves.insert(bucket, HostNumber(u64::from(bucket) % 64));
    }
    let part = moves.parts().unwrap().remove(0);
    assert_eq!(part.ranges.len(), PART_RANGES_MAX);
    let request = Request::Move {
        generation: u64::MAX,
        part: part.clone(),
    };
    assert!(commander.request(request).len() <= DATAGRAM_BYTES_MAX);
    let counts = CountsPart::of(u64::MAX, &[u32::MAX; 1_000], 0).unwrap();
    for outcome in [Outcome::Moved(part), Outcome::Counts(counts)] {
        let from = deliver(&mut commander, &mut receiver, Request::Query);
        let answer = Answer {
            outcome,
            status: None,
        };
        let mut datagram = receiver.answer(from, answer.clone());
        assert!(datagram.len() <= DATAGRAM_BYTES_MAX);
        assert_eq!(commander.handle(&mut datagram), Handled::Answer(answer));
    }
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        (any::<u32>(), any::<u16>()).prop_map(|(changed, moved_permille)| Outcome::Done {
            changed,
            moved_permille
        }),
        any::<u64>().prop_map(|known| Outcome::Refused(RefusedCommand::Stale { known })),
        Just(Outcome::Refused(RefusedCommand::Contradicts)),
        any::<u64>()
            .prop_map(|host| Outcome::Refused(RefusedCommand::UnknownTarget(HostNumber(host)))),
        any::<Option<u64>>()
            .prop_map(|known| Outcome::Refused(RefusedCommand::LacksState { known })),
        any::<u32>().prop_map(|buckets| Outcome::Refused(RefusedCommand::NoBucket { buckets })),
        Just(Outcome::Refused(RefusedCommand::OutOfOrder)),
        "[a-z ]{0,200}".prop_map(|why| Outcome::Refused(RefusedCommand::Failed(why))),
    ]
}

fn flows() -> impl Strategy<Value = Flow> {
    let four = any::<[(Ipv4Addr, u16); 2]>().prop_map(|ends| ends.map(SocketAddr::from));
    let six = any::<[(Ipv6Addr, u16); 2]>().prop_map(|ends| ends.map(SocketAddr::from));
    (prop_oneof![four, six], any::<u8>()).prop_map(|([one, other], protocol)| Flow {
        one,
        other,
        protocol,
    })
}

fn requests() -> impl Strategy<Value = Request> {
    let what = prop_oneof![
        any::<u32>().prop_map(Suspended::Bucket),
        flows().prop_map(Suspended::Flow)
    ];
    let part = prop::collection::btree_map(any::<u16>(), 0_u64..5, 1..300).prop_map(|pairs| {
        let mut moves = Moves::default();
        for (bucket, host) in pairs {
            moves.insert(bucket, HostNumber(host));
        }
        moves.parts().and_then(|mut parts| parts.pop()).unwrap()
    });
    let numbers = any::<(u64, u64, u32)>();
    prop_oneof![
        Just(Request::Query),
        any::<u16>().prop_map(|part| Request::Moved { part }),
        (any::<u64>(), part).prop_map(|(generation, part)| Request::Move { generation, part }),
        (flows(), numbers).prop_map(|(flow, (generation, to, idle_ms))| Request::MoveFlow {
            generation,
            flow,
            to: HostNumber(to),
            idle_ms,
        }),
        (what.clone(), any::<u64>())
            .prop_map(|(what, generation)| Request::Suspend { generation, what }),
        (what, any::<(u64, Option<u64>)>()).prop_map(|(what, (generation, to))| {
            Request::Resume {
                generation,
                what,
                to: to.map(HostNumber),
            }
        }),
        any::<(u64, u32)>().prop_map(|(number, from)| Request::Counts { number, from }),
    ]
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        challenge: [u8; 16], sequence: u64, outcome in outcomes(), generation: Option<u64>,
        flags: (bool, bool), numbers: (u64, u16, u64, u64), more: [u64; 4],
        targets in prop::collection::vec((any::<u64>(), any::<u16>(), any::<bool>()), 0..=64),
        is_stale: bool,
    ) {
        let status = Status {
            generation,
            is_active: flags.0,
            hears_other: flags.1,
            table: numbers.0,
            elsewhere_permille: numbers.1,
            forwarded: numbers.2,
            dropped: numbers.3,
            moves: more[0],
            refused: RefusedDatagrams { not_sealed: more[1], malformed: more[2], repeated: more[3] },
            targets: targets.iter().map(|(host, share_permille, is_reachable)| TargetStatus {
                host: HostNumber(*host), share_permille: *share_permille, is_reachable: *is_reachable,
            }).collect(),
        };
        let answer = (!is_stale).then_some(Answer { outcome, status: Some(status) });
        let reply = Reply { salt: challenge, sequence, challenge, answer };
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        prop_assert_eq!(Reply::decode(&bytes), Some(reply));
        for cut in 0..bytes.len() {
            prop_assert_eq!(Reply::decode(&bytes[..cut]), None);
        }
        bytes.push(0);
        prop_assert_eq!(Reply::decode(&bytes), None);
        let targets = targets.iter().map(|(host, weight, drains)| DesiredTarget {
            host: HostNumber(*host), weight: *weight, drains: *drains,
        }).collect();
        let command = Command { challenge, request: Request::Apply { generation: sequence, targets } };
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        prop_assert_eq!(Command::decode(&bytes), Some(command));
        for cut in 0..bytes.len() {
            prop_assert_eq!(Command::decode(&bytes[..cut]), None);
        }
    }

    #[test]
    fn every_request_is_read_and_no_part_of_one(challenge: [u8; 16], request in requests()) {
        let command = Command { challenge, request };
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        for cut in 0..bytes.len() {
            prop_assert_eq!(Command::decode(&bytes[..cut]), None);
        }
        bytes.push(0);
        prop_assert_eq!(Command::decode(&bytes), None);
        bytes.pop();
        prop_assert_eq!(Command::decode(&bytes), Some(command));
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200), code in 0_u8..20,
    ) {
        let _ = Command::decode(&bytes);
        let _ = Reply::decode(&bytes);
        // Those that are looked into: the version and a code are right.
        for place in [17, 41] {
            let mut bytes = bytes.clone();
            bytes.resize(bytes.len().max(place + 1), 0);
            (bytes[0], bytes[place]) = (VERSION, code);
            let _ = Command::decode(&bytes);
            let _ = Reply::decode(&bytes);
        }
    }
}
