//! Floods, recordings played again, and bytes of any kind.

use super::hosts::Hosts;
use super::*;
use crate::{Epoch, Time};

/// Everything that was ever sent, played to everyone, in order and in disorder, while both live and after restarts.
#[test]
fn recordings_admit_nobody_and_displace_nobody() {
    let mut hosts = Hosts::pair(1);
    hosts.run_ms(1_500);
    hosts.restart(0, 201, 21);
    // Ends between two beats: nothing is under way.
    hosts.run_ms(5_050);
    assert_eq!(hosts.admitted(1, 1), Some(201));
    let mut recorded = hosts.recorded.clone();
    let mut random = Random::new(9);
    for round in 0..6 {
        let opened = hosts.hosts[1].opened.clone();
        for (from, to, datagram) in recorded.clone() {
            hosts.deliver(from, to, datagram);
        }
        assert_eq!(
            hosts.hosts[1].opened, opened,
            "a replay opened in round {round}"
        );
        assert_eq!(hosts.admitted(1, 1), Some(201));
        hosts.run_ms(1_000);
        for at in (1..recorded.len()).rev() {
            recorded.swap(at, random.below(at as u64 + 1) as usize);
        }
    }
    assert_eq!(hosts.admissions(1), [101, 201]);
    assert_eq!(hosts.duplicates(1), [], "a recording is no second host");
    // The sender dies; its recordings do not bring it back to a receiver that restarts.
    hosts.hosts[0].alive = false;
    hosts.restart(1, 202, 22);
    for _ in 0..20 {
        for (from, to, datagram) in recorded.clone() {
            hosts.deliver(from, to, datagram);
        }
        hosts.run_ms(500);
    }
    assert_eq!(hosts.admissions(1), []);
    assert_eq!(hosts.hosts[1].opened, []);
    assert!(
        hosts.refused(1, Refusal::HandshakeBudget) > 0,
        "the recordings outran the budget"
    );
    // The budget is the flood's harm, and ends with it.
    hosts.hosts[0].alive = true;
    hosts.run_ms(2_000);
    assert_eq!(hosts.admissions(1), [201]);
}

/// An echo is good for one admission only: revoked, a session does not come back by the echo it was admitted with.
#[test]
fn an_echo_serves_once() {
    let mut hosts = Hosts::pair(2);
    hosts.run_ms(10);
    assert_eq!(hosts.admitted(1, 1), Some(101));
    hosts.hosts[0].alive = false;
    hosts.hosts[1].channel.revoke(MemberId(1));
    for (from, to, datagram) in hosts.recorded.clone() {
        if to == 1 {
            hosts.deliver(from, to, datagram);
        }
    }
    assert_eq!(hosts.admitted(1, 1), None);
    assert!(hosts.refused(1, Refusal::StaleEcho) > 0);
    hosts.hosts[0].alive = true;
    hosts.run_ms(1_000);
    assert_eq!(
        hosts.admitted(1, 1),
        Some(101),
        "alive, it proves itself again"
    );
}

/// An echo that was under way when its member was closed comes too late.
#[test]
fn closing_voids_the_challenges_handed_out() {
    let mut hosts = Hosts::pair(7);
    let echo = echo_of(&mut hosts, 0, 1);
    hosts.hosts[1].channel.revoke(MemberId(1));
    let handled = hosts.hosts[1]
        .channel
        .handle(hosts.now, 0, &mut echo.clone());
    assert_eq!(handled, Err(Refusal::StaleEcho));
    let mut echo = echo_of(&mut hosts, 0, 1);
    assert_eq!(
        hosts.hosts[1].channel.handle(hosts.now, 0, &mut echo),
        Ok(None)
    );
    assert_eq!(hosts.admitted(1, 1), Some(101));
}

/// A contender's echo that was refused is spent: played again, it does not stand for a contender that is alive.
#[test]
fn a_refused_echo_is_spent() {
    let mut hosts = Hosts::pair(8);
    hosts.run_ms(10);
    let copy = hosts.start(1, 101, 77);
    let echo = echo_of(&mut hosts, copy, 1);
    for expected in [Refusal::DuplicateIdentity, Refusal::StaleEcho] {
        let handled = hosts.hosts[1]
            .channel
            .handle(hosts.now, 0, &mut echo.clone());
        assert_eq!(handled, Err(expected));
    }
}

/// Two salts that share the four bytes of their short name are two sessions all the same.
#[test]
fn a_shared_short_name_is_no_shared_session() {
    let mut hosts = Hosts::pair(9);
    hosts.run_ms(10);
    let mut salt = [1; 16];
    salt[15] = 2;
    let identity = Session {
        member: MemberId(1),
        incarnation: Incarnation(101),
        salt: Salt(salt),
    };
    let to = handshake::Addressee {
        member: MemberId(2),
        session: 0,
        incarnation: Incarnation(0),
    };
    let hello = handshake::Message {
        kind: handshake::Kind::Hello,
        to,
        nonce: [0; 16],
    };
    let mut sealer = Sealer::new(&key(1), CLUSTER, identity, 1);
    sealer.set_counter(1_000);
    let mut datagram = Vec::new();
    sealer
        .seal_handshake(Epoch(0), 1, &hello.encode(ONE), &mut datagram)
        .unwrap();
    let receiver = &mut hosts.hosts[1].channel;
    assert_eq!(receiver.handle(hosts.now, 9, &mut datagram), Ok(None));
    assert_eq!(
        receiver.poll_transmit(&mut datagram),
        Some(Destination::Source(9))
    );
    sealer.seal(Epoch(0), b"data", &mut datagram).unwrap();
    assert_eq!(
        receiver.handle(hosts.now, 9, &mut datagram),
        Err(Refusal::Forged)
    );
}

/// Lets one host say Hello to another and answer its challenge; the echo is not delivered.
fn echo_of(hosts: &mut Hosts, newcomer: usize, receiver: usize) -> Vec<u8> {
    let now = hosts.now;
    let (mut datagram, mut other) = (Vec::new(), Vec::new());
    let addressed = Destination::Member(hosts.hosts[receiver].member);
    let channel = &mut hosts.hosts[newcomer].channel;
    channel.handle_timeout(Time::MAX);
    let sent = core::iter::from_fn(|| {
        channel
            .poll_transmit(&mut datagram)
            .map(|to| (to, datagram.clone()))
    });
    let hello = sent.into_iter().find(|(to, _)| *to == addressed);
    let (_, mut datagram) =
        hello.expect("a peer that has not welcomed the newcomer is due a Hello");
    while channel.poll_transmit(&mut other).is_some() {}
    let channel = &mut hosts.hosts[receiver].channel;
    while channel.poll_transmit(&mut other).is_some() {}
    assert_eq!(channel.handle(now, 0, &mut datagram), Ok(None));
    channel.poll_transmit(&mut datagram).unwrap();
    let channel = &mut hosts.hosts[newcomer].channel;
    assert_eq!(channel.handle(now, 1, &mut datagram), Ok(None));
    assert_eq!(
        channel.poll_transmit(&mut datagram),
        Some(Destination::Source(1))
    );
    datagram
}

/// Named with its salt by the epoch, a session that was closed comes back above all that was opened of it.
#[test]
fn the_epoch_reopens_no_recording() {
    let mut hosts = Hosts::pair(6);
    hosts.run_ms(1_050);
    let opened = hosts.hosts[1].opened.clone();
    assert!(!opened.is_empty());
    hosts.hosts[1].channel.revoke(MemberId(1));
    hosts.hosts[1]
        .channel
        .admit_by_epoch(hosts.now, MemberId(1), Incarnation(101), Some([1; 16]));
    for (from, to, datagram) in hosts.recorded.clone() {
        if to == 1 {
            hosts.deliver(from, to, datagram);
        }
    }
    assert_eq!(hosts.hosts[1].opened, opened);
    hosts.run_ms(1_000);
    assert_eq!(hosts.hosts[1].opened.len(), opened.len() + 10);
    assert_eq!(hosts.duplicates(1), []);
}

/// Hellos of a hundred thousand sessions under the right key, as from a host gone mad: bounded work and memory, and
/// the member whose name they bear stays admitted.
#[test]
fn a_flood_of_hellos_is_bounded() {
    let mut hosts = Hosts::pair(3);
    hosts.run_ms(1_000);
    let mut datagram = Vec::new();
    let message = handshake::Message {
        kind: handshake::Kind::Hello,
        to: handshake::Addressee {
            member: MemberId(2),
            session: 0,
            incarnation: Incarnation(0),
        },
        nonce: [0; 16],
    };
    for number in 0..100_000_u64 {
        let mut salt = [0; 16];
        salt[..8].copy_from_slice(&number.to_le_bytes());
        let identity = Session {
            salt: Salt(salt),
            ..session(1 + (number % 3) as u16, 0)
        };
        if number < 2_000 {
            let mut sealer = Sealer::new(&key(1), CLUSTER, identity, 1);
            sealer
                .seal_handshake(Epoch(0), 1, &message.encode(ONE), &mut datagram)
                .unwrap();
        } else {
            // Past the budget nothing is decrypted: any bytes do.
            datagram[12..16].copy_from_slice(&salt[..4]);
            datagram[32..48].copy_from_slice(&salt);
        }
        let receiver = &mut hosts.hosts[1].channel;
        let handled = receiver.handle(hosts.now, 9, &mut datagram.clone());
        assert!(matches!(
            handled,
            Ok(None) | Err(Refusal::HandshakeBudget | Refusal::Forged)
        ));
        assert!(receiver.waiting() <= 2 * TRANSMITS_WAITING_MAX + 3 + EVENTS_WAITING_MAX);
    }
    assert!(hosts.refused(1, Refusal::HandshakeBudget) > 99_000);
    assert_eq!(hosts.admitted(1, 1), Some(101));
    // What waits to be sent is bounded too when nobody takes it away.
    let mut waiting = 0;
    for step in 0..2_000 {
        let receiver = &mut hosts.hosts[1].channel;
        receiver.handle_timeout(hosts.now + core::time::Duration::from_secs(step));
        waiting = receiver.waiting();
    }
    // As many Retries as handshakes.
    assert_eq!(waiting, 2 * TRANSMITS_WAITING_MAX + 3);
    assert!(hosts.hosts[1].channel.dropped().0 > 1_000);
}

#[test]
fn forged_headers_draw_few_challenges() {
    let mut hosts = Hosts::pair(4);
    let header = Header {
        version: 1,
        handshake: false,
        key_id: 1,
        member: MemberId(1),
        cluster: CLUSTER,
        epoch: Epoch(0),
        session: 1,
        incarnation: Incarnation(1),
        counter: 1,
    };
    let mut datagram = header.encode().to_vec();
    datagram.resize(200, 0xaa);
    for _ in 0..1_000 {
        let handled = hosts.hosts[1]
            .channel
            .handle(hosts.now, 0, &mut datagram.clone());
        assert_eq!(handled, Err(Refusal::NotAdmitted));
    }
    assert_eq!(
        hosts.hosts[1].channel.waiting() as u64,
        CHALLENGES_BURST_MAX
    );
}

#[test]
fn handshakes_from_outside_are_refused_each_for_its_reason() {
    let mut hosts = Hosts::pair(5);
    let receiver = &mut hosts.hosts[1].channel;
    let now = hosts.now;
    let to = handshake::Addressee {
        member: MemberId(2),
        session: 0x0202_0202,
        incarnation: Incarnation(102),
    };
    let echo = handshake::Message {
        kind: handshake::Kind::Echo,
        to,
        nonce: [1; 16],
    };
    let hello = handshake::Message {
        kind: handshake::Kind::Hello,
        to,
        nonce: [0; 16],
    };
    let send = |receiver: &mut SecureChannel, key: &ClusterKey, message: &[u8]| {
        let mut out = Vec::new();
        let mut sealer = Sealer::new(key, CLUSTER, session(1, 66), 1);
        sealer
            .seal_handshake(Epoch(0), 1, message, &mut out)
            .unwrap();
        receiver.handle(now, 0, &mut out)
    };
    let wrong = ClusterKey::from_random(1, [9; 32]);
    assert_eq!(
        send(receiver, &wrong, &hello.encode(ONE)),
        Err(Refusal::Forged)
    );
    assert_eq!(
        send(receiver, &key(1), &echo.encode(ONE)),
        Err(Refusal::StaleEcho)
    );
    assert_eq!(
        send(receiver, &key(1), b""),
        Err(Refusal::MalformedHandshake)
    );
    assert_eq!(
        send(receiver, &key(1), &[9; 32]),
        Err(Refusal::MalformedHandshake)
    );
    for other in [
        handshake::Addressee {
            member: MemberId(3),
            ..to
        },
        handshake::Addressee { session: 1, ..to },
        handshake::Addressee {
            incarnation: Incarnation(1),
            ..to
        },
    ] {
        for kind in [
            handshake::Kind::Challenge,
            handshake::Kind::Echo,
            handshake::Kind::Welcome,
        ] {
            let message = handshake::Message {
                kind,
                to: other,
                nonce: [0; 16],
            };
            assert_eq!(
                send(receiver, &key(1), &message.encode(ONE)),
                Err(Refusal::NotForUs)
            );
        }
    }
    assert_eq!(receiver.waiting(), 0);
    assert_eq!(send(receiver, &key(1), &hello.encode(ONE)), Ok(None));
    assert_eq!(receiver.waiting(), 1);
    let mut own = Vec::new();
    receiver.seal(b"to myself", &mut own).unwrap();
    assert_eq!(receiver.handle(now, 0, &mut own), Err(Refusal::OwnDatagram));
    let total: u64 = receiver.refusals().iter().map(|(_, count)| count).sum();
    assert_eq!(total, 14);
}

/// Seeded bytes of every length into the fuzz target; the target itself asserts.
#[test]
fn seeded_random_bytes() {
    let mut random = Random::new(0xf022);
    for round in 0..30_000 {
        let length = random.below(if round % 10 == 0 { 1_500 } else { 120 }) as usize;
        let sparse = random.percent(50);
        let mut data: Vec<u8> = (0..length)
            .map(|_| {
                if sparse && !random.percent(3) {
                    0
                } else {
                    random.next() as u8
                }
            })
            .collect();
        if let Some(choice) = data.first_mut() {
            *choice = random.next() as u8;
        }
        fuzz_open(&data);
    }
}

/// The target must be able to fail and to pass: no damage opens, one bit of damage does not.
#[test]
fn the_fuzz_target_reaches_a_genuine_datagram() {
    fuzz_open(&[1]);
    fuzz_open(&[5]);
    for bit in 0..8 * 72_usize {
        let mut data = vec![0; 100];
        data[0] = 1;
        data[1 + bit / 8] = 1 << (bit % 8);
        fuzz_open(&data);
    }
}
