//! Both ends in memory, with everything that a network does to datagrams.

use asterism_secure_channel::{ClusterId, ClusterKey, DATAGRAM_BYTES_MAX, KeyRing};
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
        status: Status {
            generation: Some(generation),
            ..Status::default()
        },
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
    // An end does not take its own kind's datagrams.
    assert_eq!(friend.handle(&mut datagram.clone()), Handled::Ignored);
    // Another key is for both.
    friend.set_keys(ring(2));
    let mut datagram = friend.request(apply(1)).to_vec();
    assert_eq!(director.handle(&mut datagram.clone()), Received::Refused);
    director.set_keys(ring(2));
    assert!(matches!(director.handle(&mut datagram), Received::Reply(_)));
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
        status: Status {
            targets: (0..100).map(status).collect(),
            ..Status::default()
        },
    };
    let mut datagram = receiver.answer(from, long);
    assert!(datagram.len() <= DATAGRAM_BYTES_MAX);
    let Handled::Answer(read) = commander.handle(&mut datagram) else {
        panic!("it is read");
    };
    assert_eq!(read.status.targets.len(), TARGETS_MAX);
    let reason = RefusedCommand::Failed("ä".repeat(100));
    assert_eq!(read.outcome, Outcome::Refused(reason));
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
        "[a-z ]{0,200}".prop_map(|why| Outcome::Refused(RefusedCommand::Failed(why))),
    ]
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        challenge: [u8; 16], sequence: u64, outcome in outcomes(), generation: Option<u64>,
        flags: (bool, bool), numbers: (u64, u16, u64, u64),
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
            targets: targets.iter().map(|(host, share_permille, is_reachable)| TargetStatus {
                host: HostNumber(*host), share_permille: *share_permille, is_reachable: *is_reachable,
            }).collect(),
        };
        let answer = (!is_stale).then_some(Answer { outcome, status });
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
        for cut in 17..bytes.len() {
            prop_assert_eq!(Command::decode(&bytes[..cut]), None);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Command::decode(&bytes);
        let _ = Reply::decode(&bytes);
    }
}
