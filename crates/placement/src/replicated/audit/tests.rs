//! The auditor alone.

use super::super::Config;
use super::*;
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
fn whoever_is_alone_sleeps() {
    let name = MemberId(1);
    let config = Config::new(ClusterId(1), Epoch(1), name, Incarnation(1), vec![name]);
    let replicator = Replicator::new(config, Time::ZERO).expect("a good configuration");
    let mut auditor = Auditor::new(&replicator, 1, 3, Time::ZERO);
    let (mut now, mut turns) = (Time::from_micros(1), 0);
    while now < Time::from_micros(10_000_000) {
        auditor.turn(now, &replicator);
        now = auditor.poll_timeout().unwrap_or(Time::MAX).max(now);
        turns += 1;
        assert!(
            turns < 100,
            "nothing is due, and it is asked again at {now:?}"
        );
    }
    assert!(auditor.poll_ask().is_none());
}
