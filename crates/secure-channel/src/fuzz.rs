//! The fuzz target of this module: any bytes, as a datagram, as damage to a genuine one, and as a key file.

use super::channel::SecureChannel;
use super::config::SecureConfig;
use super::handshake::{EVENTS_WAITING_MAX, TRANSMITS_WAITING_MAX};
use super::key::ClusterKey;
use super::key_ring::KeyRing;
use super::opener::Opened;
use super::recorded::{RecordedOpener, segments};
use super::refusal::Refusal;
use crate::{ClusterId, Incarnation, MemberId, Time};

/// Hands `data` to everything here that reads bytes from outside, and panics if anything was believed that should not
/// be. The first byte chooses how the rest is used.
///
/// # Panics
/// On a defect of this module only.
pub fn fuzz_open(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    if choice & 3 == 3 {
        if let Ok(text) = core::str::from_utf8(data) {
            let _ = ClusterKey::parse(text);
            if let Ok(ring) = KeyRing::parse(text) {
                assert_eq!(
                    KeyRing::parse(&ring.to_text()),
                    Ok(ring),
                    "a ring that does not read back"
                );
            }
        }
        return;
    }
    let mut sender = channel(1, 2);
    let mut receiver = channel(2, 1);
    receiver.admit_by_epoch(Time::ZERO, MemberId(1), Incarnation(11), Some([1; 16]));
    let mut genuine = Vec::new();
    if choice & 4 == 0 {
        sender
            .seal(b"a payload of some length", &mut genuine)
            .expect("a first datagram seals");
    } else {
        sender.handle_timeout(Time::ZERO);
        let _ = sender.poll_transmit(&mut genuine);
    }
    let mut datagram = match choice & 3 {
        // As it is.
        0 => data.to_vec(),
        // As damage: bits turned over.
        1 => genuine
            .iter()
            .enumerate()
            .map(|(at, byte)| byte ^ data.get(at).unwrap_or(&0))
            .collect(),
        // As a genuine header before foreign bytes.
        _ => genuine.iter().take(32).chain(data).copied().collect(),
    };
    let damaged = datagram != genuine;
    check_recorded(damaged, &genuine, &datagram);
    // Twice: the second time it can be no news.
    let first = receiver.handle(Time::ZERO, 7, &mut datagram.clone());
    let second = receiver.handle(Time::ZERO, 7, &mut datagram);
    check(damaged, &first);
    assert!(
        second.is_err(),
        "a repeated datagram was believed: {second:?}"
    );
    let (transmits, events) = drain(&mut receiver);
    assert!(transmits <= TRANSMITS_WAITING_MAX && events <= EVENTS_WAITING_MAX);
}

fn check(damaged: bool, handled: &Result<Option<Opened>, Refusal>) {
    assert_eq!(
        handled.is_ok(),
        !damaged,
        "damaged: {damaged}, but {handled:?}"
    );
}

/// A capture's reader, who learnt what the genuine datagram has to tell, opens it and nothing else.
fn check_recorded(damaged: bool, genuine: &[u8], datagram: &[u8]) {
    let mut recorded = RecordedOpener::new(1);
    recorded
        .add_key(key())
        .expect("the first key is not refused");
    let is_handshake = recorded.learn(genuine).expect("it is genuine");
    let mut opened = datagram.to_vec();
    let result = recorded.open(&mut opened);
    let lengths: usize = segments(datagram).map(|range| range.len()).sum();
    assert_eq!(lengths, datagram.len());
    match result {
        Ok(_) => assert!(is_handshake && !damaged, "damaged: {damaged}, but opened"),
        Err(why) => {
            assert!(damaged || !is_handshake, "genuine, but {why}");
            assert_eq!(opened, datagram, "changed, but not opened");
        }
    }
}

fn key() -> ClusterKey {
    ClusterKey::from_random(1, core::array::from_fn(|i| i as u8))
}

fn channel(member: u16, peer: u16) -> SecureChannel {
    let config = SecureConfig::new(
        key(),
        ClusterId(1),
        MemberId(member),
        Incarnation(10 + u64::from(member)),
        vec![MemberId(peer)],
    );
    SecureChannel::new(config, [member as u8; 16], [member as u8; 32])
        .expect("the configuration is valid")
}

fn drain(channel: &mut SecureChannel) -> (usize, usize) {
    let mut datagram = Vec::new();
    let transmits = core::iter::from_fn(|| channel.poll_transmit(&mut datagram)).count();
    let events = core::iter::from_fn(|| channel.poll_event()).count();
    (transmits, events)
}
