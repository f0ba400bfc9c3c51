//! Captures: what opens with a key and the handshakes, what does not and why, and what the kernel had joined.

use super::super::handshake::{Addressee, Kind, Message};
use super::*;
use crate::Epoch;

fn opener() -> RecordedOpener {
    let mut opener = RecordedOpener::new(1);
    opener.add_key(key(1)).unwrap();
    opener
}

fn hello(sealer: &mut Sealer) -> Vec<u8> {
    let message = Message {
        kind: Kind::Hello,
        to: Addressee {
            member: MemberId(9),
            session: 0,
            incarnation: Incarnation(0),
        },
        nonce: [0; 16],
    };
    let mut out = Vec::new();
    sealer
        .seal_handshake(Epoch(3), 1, &message.encode(ONE), &mut out)
        .unwrap();
    out
}

fn sealed(sealer: &mut Sealer, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    sealer.seal(Epoch(3), payload, &mut out).unwrap();
    out
}

fn sealer(member: u16, salt: u8) -> Sealer {
    Sealer::new(&key(1), CLUSTER, session(member, salt), 1)
}

#[test]
fn what_came_before_its_handshake_opens_too_and_more_than_once() {
    let (mut opener, mut sealer) = (opener(), sealer(1, 5));
    let before = sealed(&mut sealer, b"before");
    let handshake = hello(&mut sealer);
    let mut copy = before.clone();
    assert_eq!(opener.open(&mut copy), Err(Unopened::NoSalt));
    assert_eq!(copy, before);
    assert_eq!(opener.learn(&before), Ok(false));
    assert_eq!(opener.learn(&handshake), Ok(true));
    assert_eq!(opener.learn(&handshake), Ok(false));
    assert_eq!(opener.sessions(), 1);
    for _ in 0..2 {
        let mut copy = before.clone();
        let recorded = opener.open(&mut copy).unwrap();
        assert_eq!(recorded.header.counter, 1);
        assert_eq!(&copy[recorded.payload.clone()], b"before");
        assert_eq!(copy.len(), before.len());
        assert_eq!(copy[..HEADER_BYTES], before[..HEADER_BYTES]);
        assert_eq!(copy[recorded.payload.end..], OPENED_MARK[..]);
    }
    let mut copy = handshake.clone();
    let recorded = opener.open(&mut copy).unwrap();
    assert!(recorded.header.handshake);
    assert_eq!(copy[recorded.payload][..4], [1, 0, 9, 0]);
}

#[test]
fn salts_that_begin_alike_are_reported_apart() {
    let mut opener = opener();
    let mut sealers = [sealer(1, 5), sealer(1, 5)];
    let mut salt = [5; 16];
    salt[15] = 6;
    let other = Session {
        salt: Salt(salt),
        ..session(1, 5)
    };
    sealers[1] = Sealer::new(&key(1), CLUSTER, other, 1);
    for sealer in &mut sealers {
        assert_eq!(opener.learn(&hello(sealer)), Ok(true));
    }
    for (sealer, text) in sealers.iter_mut().zip([b"one", b"two"]) {
        let mut datagram = sealed(sealer, text);
        let recorded = opener.open(&mut datagram).unwrap();
        assert_eq!(&datagram[recorded.payload], text);
    }
}

#[test]
fn what_does_not_open_says_why_and_stays() {
    let mut opener = opener();
    let mut ours = sealer(1, 5);
    opener.learn(&hello(&mut ours)).unwrap();
    let mut damaged = sealed(&mut ours, b"payload");
    *damaged.last_mut().unwrap() ^= 1;
    let mut other_id = Sealer::new(&key(2), CLUSTER, session(1, 5), 1);
    let other_key = ClusterKey::from_random(1, [7; 32]);
    let mut other_key = Sealer::new(&other_key, CLUSTER, session(1, 5), 1);
    let mut version = Sealer::new(&key(1), CLUSTER, session(1, 5), 2);
    let cases = [
        (damaged, Unopened::Forged),
        (sealed(&mut other_id, b"payload"), Unopened::Foreign),
        (sealed(&mut other_key, b"payload"), Unopened::Forged),
        (hello(&mut other_key), Unopened::Forged),
        (sealed(&mut version, b"payload"), Unopened::Foreign),
        (sealed(&mut sealer(2, 5), b"payload"), Unopened::NoSalt),
        (vec![1; 47], Unopened::Foreign),
        (vec![0x81; 63], Unopened::Foreign),
        (Vec::new(), Unopened::Foreign),
    ];
    for (datagram, why) in cases {
        let mut copy = datagram.clone();
        assert_eq!(opener.open(&mut copy), Err(why));
        assert_eq!(copy, datagram);
    }
    assert_eq!(opener.sessions(), 1);
}

#[test]
fn forged_handshakes_take_no_memory_and_sessions_are_bounded() {
    let mut opener = opener();
    for incarnation in 0..=RECORDED_SESSIONS_MAX as u64 {
        let session = Session {
            incarnation: Incarnation(incarnation),
            ..session(1, 5)
        };
        let mut handshake = hello(&mut Sealer::new(&key(1), CLUSTER, session, 1));
        let expected = if incarnation < RECORDED_SESSIONS_MAX as u64 {
            Ok(true)
        } else {
            Err(Unopened::TooManySessions)
        };
        assert_eq!(opener.learn(&handshake), expected);
        handshake[40] ^= 1;
        assert_eq!(opener.learn(&handshake), Err(Unopened::Forged));
    }
    assert_eq!(opener.sessions(), RECORDED_SESSIONS_MAX);
}

#[test]
fn keys_are_reported_by_their_numbers() {
    let mut opener = opener();
    assert_eq!(opener.add_key(key(1)), Ok(()));
    let other = ClusterKey::from_random(1, [7; 32]);
    assert_eq!(opener.add_key(other), Err(AddKeyError::NumberTaken(1)));
    for id in 2..=KEYS_MAX as u8 {
        opener.add_key(key(id)).unwrap();
    }
    assert_eq!(opener.add_key(key(9)), Err(AddKeyError::TooMany));
    let mut sealer = Sealer::new(&key(2), CLUSTER, session(1, 5), 1);
    opener.learn(&hello(&mut sealer)).unwrap();
    let mut datagram = sealed(&mut sealer, b"under the second key");
    assert!(opener.open(&mut datagram).is_ok());
}

/// Nobody shakes hands when the key changes: the salt of before serves.
#[test]
fn a_session_goes_on_under_another_key() {
    let mut opener = opener();
    opener.add_key(key(2)).unwrap();
    let mut sealer = sealer(1, 5);
    opener.learn(&hello(&mut sealer)).unwrap();
    let mut before = sealed(&mut sealer, b"under the first key");
    sealer.use_key(&key(2));
    let mut after = sealed(&mut sealer, b"under the second key");
    let mut joined = [&before[..], &after[..before.len() - 1]].concat();
    assert_eq!(segments(&joined).count(), 2, "cut where the key changed");
    joined[before.len() + 1] = 1;
    assert_eq!(opener.open(&mut before).unwrap().header.key_id, 1);
    assert_eq!(opener.open(&mut after).unwrap().header.key_id, 2);
    assert_eq!(opener.sessions(), 1);
    sealer.use_key(&key(3));
    let mut unknown = sealed(&mut sealer, b"under a third");
    assert_eq!(opener.open(&mut unknown), Err(Unopened::Foreign));
}

#[test]
fn joined_datagrams_are_cut_where_the_kernel_would() {
    let mut sealer = sealer(1, 5);
    let handshake = hello(&mut sealer);
    let mut joined = Vec::new();
    let mut lengths = vec![100, 100, 100, 37];
    for length in &lengths {
        joined.extend(sealed(&mut sealer, &vec![0; *length]));
        // Others may have been sealed between them.
        sealed(&mut sealer, b"to somebody else");
    }
    let found: Vec<usize> = segments(&joined).map(|range| range.len()).collect();
    lengths
        .iter_mut()
        .for_each(|length| *length += OVERHEAD_BYTES);
    assert_eq!(found, lengths);
    let mut opener = opener();
    opener.learn(&handshake).unwrap();
    for range in segments(&joined) {
        opener.open(&mut joined[range]).unwrap();
    }
    let after: Vec<usize> = segments(&joined).map(|range| range.len()).collect();
    assert_eq!(after, lengths, "opened ones are cut alike");
}

#[test]
fn what_was_not_joined_is_not_cut() {
    let mut sealer = sealer(1, 5);
    let one = sealed(&mut sealer, &[0; 200]);
    let two = sealed(&mut sealer, &[0; 150]);
    let longer_last = [&two[..], &one[..]].concat();
    let backwards = [&two[..], &one[..198]].concat();
    let cut = [&one[..], &sealed(&mut sealer, &[0; 200])[..40]].concat();
    for bytes in [
        &one,
        &longer_last,
        &backwards,
        &cut,
        &vec![0; 31],
        &vec![1; 400],
    ] {
        let found: Vec<_> = segments(bytes)
            .map(|range| (range.start, range.end))
            .collect();
        assert_eq!(found, [(0, bytes.len())]);
    }
    assert_eq!(segments(&[]).count(), 0);
}
