//! One sealer, one opener.

use super::*;
use crate::Epoch;

fn sealer() -> Sealer {
    Sealer::new(&key(1), CLUSTER, session(3, 9), 2)
}

fn opener() -> Opener {
    let mut opener = stranger();
    assert!(opener.admit(session(3, 9), 0));
    opener
}

/// An opener that knows the sealer's member and has admitted nobody.
fn stranger() -> Opener {
    let mut opener = Opener::new(&OpenerConfig {
        cluster: CLUSTER,
        wire_version: 2,
        wire_version_oldest: 2,
        members: vec![MemberId(9), MemberId(3), MemberId(3)],
    });
    opener.add_key(key(1)).unwrap();
    opener
}

fn sealed(sealer: &mut Sealer, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    sealer.seal(Epoch(5), payload, &mut out).unwrap();
    out
}

/// Computed apart from this program, by Python's `hmac` and the AES-GCM of `cryptography`.
#[test]
fn golden_datagram() {
    let mut out = Vec::new();
    let sealer = &mut sealer();
    sealer.set_counter(0x0102_0304_0506);
    sealer
        .seal(
            Epoch(5),
            b"forty-two bytes of state, or nearly so...!",
            &mut out,
        )
        .unwrap();
    let text: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, GOLDEN);
}

const GOLDEN: &str = "02010300c1000000050000000909090903100000000000000705040302010000cc52b04ea9af7a68fabbbf60b2c6d1e07bcc1e2e264246449873d71840ce2ffe3e976c8378d7ac0c7844e4dbfe7c2907b109f242d82018fa7c06";

#[test]
fn round_trip_of_every_length() {
    let (mut sealer, mut opener) = (sealer(), opener());
    for length in (0..70).chain([255, 256, 1_352, 9_000, 65_000]) {
        let payload: Vec<u8> = (0..length).map(|i| i as u8).collect();
        let mut datagram = sealed(&mut sealer, &payload);
        assert_eq!(datagram.len(), length + OVERHEAD_BYTES);
        assert_eq!(Sealer::max_payload(datagram.len()), length);
        let opened = opener.open(&mut datagram).unwrap();
        assert_eq!(&datagram[opened.payload.clone()], payload);
        assert_eq!(
            (
                opened.member,
                opened.incarnation,
                opened.epoch,
                opened.version,
                opened.counter
            ),
            (
                MemberId(3),
                Incarnation(0x1003),
                Epoch(5),
                2,
                sealer.counter()
            )
        );
    }
    assert_eq!(Sealer::max_payload(OVERHEAD_BYTES - 1), 0);
    assert_eq!(opener.refusals().total(), 0);
}

#[test]
fn in_place_equals_copied() {
    let mut buffer = vec![0xee; HEADER_BYTES];
    buffer.extend_from_slice(b"payload");
    sealer().seal_in_place(Epoch(5), &mut buffer).unwrap();
    assert_eq!(buffer, sealed(&mut sealer(), b"payload"));
    let mut short = vec![0; HEADER_BYTES - 1];
    assert_eq!(
        sealer().seal_in_place(Epoch(5), &mut short),
        Err(SealError::NoRoomForHeader)
    );
}

/// A buffer with the capacity is filled, not replaced.
#[test]
fn sealing_into_a_buffer_with_room_keeps_it() {
    let mut sealer = sealer();
    let mut out = Vec::with_capacity(OVERHEAD_BYTES + 1_000);
    let before = (out.as_ptr(), out.capacity());
    for _ in 0..10 {
        sealer.seal(Epoch(5), &[7; 1_000], &mut out).unwrap();
        assert_eq!((out.as_ptr(), out.capacity()), before);
    }
}

#[test]
fn counters_end_and_never_wrap() {
    let mut sealer = sealer();
    sealer.set_counter(COUNTER_MAX - 1);
    let mut out = Vec::new();
    assert_eq!(sealer.seal(Epoch(5), b"last", &mut out), Ok(()));
    assert_eq!(
        sealer.seal(Epoch(5), b"none", &mut out),
        Err(SealError::CounterExhausted)
    );
    assert!(out.is_empty());
}

/// Each refusal of the cheap checks, in the order in which they are made, and the count of each.
#[test]
fn each_refusal_is_counted_once() {
    let good = sealed(&mut sealer(), b"payload");
    let with = |at: usize, bytes: &[u8]| {
        let mut datagram = good.clone();
        datagram[at..at + bytes.len()].copy_from_slice(bytes);
        datagram
    };
    let cases = [
        (good[..HEADER_BYTES - 1].to_vec(), Refusal::TooShort),
        (good[..OVERHEAD_BYTES - 1].to_vec(), Refusal::TooShort),
        (with(0, &[3]), Refusal::FutureVersion),
        (with(0, &[127]), Refusal::FutureVersion),
        (with(0, &[1]), Refusal::PastVersion),
        (with(4, &[0]), Refusal::WrongCluster),
        (with(1, &[2]), Refusal::UnknownKeyId),
        (with(2, &[4, 0]), Refusal::UnknownMember),
        (with(2, &[255, 255]), Refusal::UnknownMember),
        (with(2, &[9, 0]), Refusal::NotAdmitted),
        (with(12, &[8]), Refusal::NotAdmitted),
        (with(16, &[9]), Refusal::NotAdmitted),
        (with(24, &[0]), Refusal::TooOld),
        (with(24, &[2]), Refusal::Forged),
        (with(8, &[6]), Refusal::Forged),
        (with(40, b"x"), Refusal::Forged),
    ];
    let mut opener = opener();
    for (number, (mut datagram, reason)) in cases.into_iter().enumerate() {
        let before = opener.refusals().get(reason);
        assert_eq!(opener.open(&mut datagram), Err(reason), "case {number}");
        assert_eq!(opener.refusals().get(reason), before + 1);
        assert_eq!(opener.refusals().total(), number as u64 + 1);
    }
    assert!(
        opener.open(&mut good.clone()).is_ok(),
        "refusals change no state"
    );
    assert_eq!(opener.open(&mut good.clone()), Err(Refusal::Replayed));
}

#[test]
fn every_bit_of_a_datagram_is_held() {
    let good = sealed(&mut sealer(), b"sixteen bytes ..and some more");
    let mut opener = opener();
    for bit in 0..good.len() * 8 {
        let mut datagram = good.clone();
        datagram[bit / 8] ^= 1 << (bit % 8);
        assert!(opener.open(&mut datagram).is_err(), "bit {bit} is not held");
    }
    for length in 0..good.len() {
        assert!(
            opener.open(&mut good[..length].to_vec()).is_err(),
            "length {length} opened"
        );
    }
    let mut longer = good.clone();
    longer.push(0);
    assert_eq!(opener.open(&mut longer), Err(Refusal::Forged));
    assert!(opener.open(&mut good.clone()).is_ok());
}

#[test]
fn another_cluster_key_is_refused() {
    let wrong = ClusterKey::from_random(1, [0x77; 32]);
    let mut datagram = sealed(
        &mut Sealer::new(&wrong, CLUSTER, session(3, 9), 2),
        b"payload",
    );
    assert_eq!(opener().open(&mut datagram), Err(Refusal::Forged));
}

#[test]
fn not_admitted_until_admitted_and_never_below_the_floor() {
    let (mut sealer, mut opener) = (sealer(), stranger());
    let datagrams: Vec<_> = (0..4).map(|_| sealed(&mut sealer, b"p")).collect();
    assert_eq!(
        opener.open(&mut datagrams[3].clone()),
        Err(Refusal::NotAdmitted)
    );
    assert!(
        !opener.admit(session(4, 9), 0),
        "a stranger is not admitted"
    );
    opener.admit(session(3, 9), 2);
    assert_eq!(opener.open(&mut datagrams[1].clone()), Err(Refusal::TooOld));
    assert!(opener.open(&mut datagrams[2].clone()).is_ok());
    opener.revoke(MemberId(3));
    assert_eq!(
        opener.open(&mut datagrams[3].clone()),
        Err(Refusal::NotAdmitted)
    );
    assert_eq!(opener.admitted(MemberId(3)), None);
}

#[test]
fn replays_and_the_edges_of_the_window() {
    let (mut sealer, mut opener) = (sealer(), opener());
    let datagrams: Vec<_> = (0..=WINDOW_COUNTERS)
        .map(|_| sealed(&mut sealer, b"p"))
        .collect();
    let last = datagrams.len() - 1;
    // The last one first: all but the first are then inside the window, in whatever order they come.
    assert!(opener.open(&mut datagrams[last].clone()).is_ok());
    assert_eq!(opener.open(&mut datagrams[0].clone()), Err(Refusal::TooOld));
    for datagram in datagrams[1..last].iter().rev() {
        assert!(opener.open(&mut datagram.clone()).is_ok());
    }
    for datagram in &datagrams[1..] {
        assert_eq!(opener.open(&mut datagram.clone()), Err(Refusal::Replayed));
    }
    assert_eq!(opener.refusals().get(Refusal::Replayed), WINDOW_COUNTERS);
}

/// A forged datagram far ahead must not move the window.
#[test]
fn a_forged_counter_moves_nothing() {
    let (mut sealer, mut opener) = (sealer(), opener());
    let first = sealed(&mut sealer, b"p");
    let mut forged = first.clone();
    forged[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(opener.open(&mut forged), Err(Refusal::Forged));
    assert!(opener.open(&mut first.clone()).is_ok());
}

/// A restored snapshot starts over at counter 1 and at whatever its disk said; only the salt is fresh, and it suffices.
#[test]
fn a_fresh_salt_never_repeats_a_key_and_nonce() {
    let mut streams = std::collections::BTreeSet::new();
    for start in 0..200_u8 {
        let mut sealer = Sealer::new(&key(1), CLUSTER, session(3, start), 2);
        let datagram = sealed(&mut sealer, &[0; 32]);
        assert_eq!(sealer.counter(), 1);
        // Zeros sealed show the key stream: one (key, nonce) pair gives one stream.
        assert!(streams.insert(datagram[HEADER_BYTES..HEADER_BYTES + 32].to_vec()));
    }
}

#[test]
fn a_retransmission_is_sealed_again() {
    let mut sealer = sealer();
    let (one, two) = (
        sealed(&mut sealer, b"the same"),
        sealed(&mut sealer, b"the same"),
    );
    assert_ne!(one[HEADER_BYTES..], two[HEADER_BYTES..]);
    let mut opener = opener();
    assert!(opener.open(&mut one.clone()).is_ok() && opener.open(&mut two.clone()).is_ok());
}

#[test]
fn rotation_without_a_gap() {
    let (mut sealer, mut opener) = (sealer(), opener());
    assert!(opener.open(&mut sealed(&mut sealer, b"old")).is_ok());
    let late = sealed(&mut sealer, b"old, late");
    sealer.use_key(&key(2));
    assert_eq!(
        opener.open(&mut sealed(&mut sealer, b"early")),
        Err(Refusal::UnknownKeyId)
    );
    opener.add_key(key(2)).unwrap();
    assert!(opener.open(&mut sealed(&mut sealer, b"new")).is_ok());
    assert!(opener.open(&mut late.clone()).is_ok());
    let later = sealed(&mut Sealer::new(&key(1), CLUSTER, session(3, 9), 2), b"p");
    opener.retire_key(1);
    assert_eq!(opener.open(&mut later.clone()), Err(Refusal::DroppedKeyId));
    assert!(opener.open(&mut sealed(&mut sealer, b"new")).is_ok());
    assert_eq!(
        opener.add_key(ClusterKey::from_random(2, [1; 32])),
        Err(AddKeyError::NumberTaken(2))
    );
    for id in 3..6 {
        opener.add_key(key(id)).unwrap();
    }
    assert_eq!(opener.add_key(key(6)), Err(AddKeyError::TooMany));
    assert_eq!(
        opener.add_key(key(5)),
        Ok(()),
        "a key that is there may be added again"
    );
}
