//! The auditor alone.

use super::super::{Config, Deliver};
use super::*;
use crate::membership::Roster;
use crate::{ClusterId, Epoch, Incarnation};

#[test]
fn instances_that_do_not_answer_stop_nothing_and_cost_no_memory() {
    let name = MemberId(1);
    let config = Config::new(ClusterId(1), Epoch(1), name, Incarnation(1), vec![name]);
    let replicator = Replicator::new(config, Time::ZERO).expect("a good configuration");
    let mut auditor = Auditor::new(&replicator, 2, 3, Time::ZERO);
    let mut now = Time::ZERO;
    let mut asked = 0;
    for _ in 0..20_000 {
        now = now + Duration::from_millis(1);
        auditor.turn(now, &replicator);
        asked += core::iter::from_fn(|| auditor.poll_ask()).count();
    }
    assert!(asked > 4 * UNDER_WAY_MAX, "{asked}");
    assert!(auditor.asked.len() <= UNDER_WAY_MAX && auditor.closing.len() <= UNDER_WAY_MAX);

    // Once they answer, they are compared.
    for _ in 0..2_000 {
        now = now + Duration::from_millis(1);
        auditor.turn(now, &replicator);
        while let Some(ask) = auditor.poll_ask() {
            for lane in 0..2 {
                let leaves = [Leaf::default(); SEGMENT_LEAVES];
                auditor.read(now, lane, ask.ticket, 0, Some(&leaves));
            }
        }
    }
    assert!(auditor.tally().equal > LEAVES as u64);
    assert_eq!(auditor.tally().different, 0);
}

#[test]
fn anyone_who_is_alone_sleeps() {
    let name = MemberId(1);
    let config = Config::new(ClusterId(1), Epoch(1), name, Incarnation(1), vec![name]);
    let replicator = Replicator::new(config, Time::ZERO).expect("a good configuration");
    let mut auditor = Auditor::new(&replicator, 1, 3, Time::ZERO);
    sleeps(&mut auditor, &replicator, Time::from_micros(1));
    assert!(auditor.poll_ask().is_none());
}

/// Whether there is a frame to send.
fn has_frame(auditor: &Auditor) -> bool {
    !auditor.outgoing.is_empty() || auditor.telling.is_due
}

/// Anyone who asks the auditor when it is due does so rarely.
fn sleeps(auditor: &mut Auditor, replicator: &Replicator, from: Time) {
    let (mut now, mut turns) = (from, 0);
    while now < from + Duration::from_secs(10) {
        auditor.turn(now, replicator);
        now = auditor.poll_timeout().unwrap_or(Time::MAX).max(now);
        turns += 1;
        assert!(
            turns < 100,
            "nothing is due, and it is asked again at {now:?}"
        );
    }
}

struct Nowhere;

impl Deliver for Nowhere {
    fn group(&mut self, _: MemberId, _: Incarnation, _: u64, _: &[u8]) {}
}

#[test]
fn anyone_who_becomes_alone_sleeps() {
    let names = [MemberId(1), MemberId(2)];
    let config = Config::new(
        ClusterId(1),
        Epoch(1),
        names[0],
        Incarnation(1),
        names.into(),
    );
    let mut replicator = Replicator::new(config, Time::ZERO).expect("a good configuration");
    let mut auditor = Auditor::new(&replicator, 1, 3, Time::ZERO);
    // It has something to tell of its stream, a moment later.
    let now = Time::from_micros(1_000);
    replicator.submit(now, 1, b"group").expect("room");
    let mut message = Vec::new();
    while replicator.poll_transmit(now, &mut message).is_some() {}
    auditor.turn(now, &replicator);
    assert!(auditor.telling.at.is_some() && !has_frame(&auditor));
    // The other dies, and an epoch leaves it out.
    let alone = Roster {
        epoch: Epoch(2),
        members: vec![(names[0], Some(Incarnation(1)))],
        assignment: Vec::new(),
    };
    let now = now + Duration::from_millis(1);
    replicator
        .install(now, &alone, &mut Nowhere)
        .expect("a good roster");
    auditor.begin_again(now);
    sleeps(&mut auditor, &replicator, now);
    assert!(!has_frame(&auditor), "there is nobody to be reported");
}
