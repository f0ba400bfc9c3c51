//! Parking by itself: who is called, when and in which order, against a list that is searched.

use asterism_state::{Identity, OriginName, Sequencer};

use super::*;
use asterism_io::frame::FramePool;

fn context() -> Context {
    let identity = Identity {
        own: OriginName {
            member: 1,
            incarnation: 1,
        },
        members: vec![1, 7, 9],
        lane: (0, 1),
    };
    let sequencer = Sequencer::Own(core::cell::Cell::new(0));
    Context::new(identity, sequencer, 5, Vec::new())
}

struct Lot {
    context: Context,
    pool: FramePool,
    parking: Parking,
}

impl Lot {
    fn new() -> Self {
        let context = context();
        Self {
            pool: FramePool::new(2 * PLACES).expect("memory for frames"),
            parking: Parking::new(&context, false),
            context,
        }
    }

    /// Parks a packet that bears a number. Gives those that are too many back by their numbers.
    fn park(&mut self, number: u32, flow: u64, until: Until) -> Option<(u32, Reason)> {
        self.park_of(number, (flow, false), (1_000, 1_000), until)
    }

    fn park_of(
        &mut self,
        number: u32,
        (flow, is_fragment): (u64, bool),
        (since_us, arrived_us): (u64, u64),
        until: Until,
    ) -> Option<(u32, Reason)> {
        let frame = self.pool.allocate_copy(&number.to_be_bytes());
        let parked = Parked {
            frame: frame.expect("a frame"),
            call: Call::default(),
            flow,
            digest: flow,
            is_fragment,
            since_us,
            arrived_us,
            until,
        };
        let refused = self.parking.park(parked, &self.context);
        refused.map(|(parked, reason)| (self.number(parked), reason))
    }

    fn number(&mut self, parked: Parked) -> u32 {
        let bytes = self.pool.bytes(&parked.frame).try_into();
        self.pool.release(parked.frame);
        u32::from_be_bytes(bytes.expect("four bytes"))
    }

    fn due(&mut self, now_us: u64) -> Vec<u32> {
        let mut given_up = Vec::new();
        while let Some(parked) = self.parking.take_due(now_us, &self.context) {
            let number = self.number(parked);
            given_up.push(number);
        }
        given_up
    }

    /// All that are ready, each of which leaves when it is called.
    fn called(&mut self) -> Vec<u32> {
        self.parking.take_woken(&self.context);
        let mut called = Vec::new();
        while let Some(parked) = self.parking.next_ready() {
            let number = self.number(parked);
            called.push(number);
            self.parking.was_called();
        }
        called
    }

    fn covers(&mut self, member: u16, until_us: u64) {
        self.context.set_covered(member, until_us);
        self.parking.take_covered(member, &self.context);
    }
}

const TURN: Until = Until::Turn { serial: 3 };

fn absent(member: Option<u16>, until_us: u64) -> Until {
    Until::Absent { member, until_us }
}

#[test]
fn reads_under_way_are_ready_in_order_of_their_times() {
    let mut partition = Lot::new();
    for (number, at_us) in [(0, 500), (1, 300), (2, 400), (3, 300)] {
        assert_eq!(
            partition.park(number, number.into(), Until::Fetched { at_us }),
            None
        );
    }
    assert_eq!(partition.parking.next_due_us(), Some(300));
    assert_eq!(partition.due(299), [] as [u32; 0]);
    assert!(!partition.parking.has_ready() && partition.called().is_empty());
    partition.due(400);
    assert_eq!(
        partition.called(),
        [1, 3, 2],
        "two of one time as they came"
    );
    partition.due(500);
    assert_eq!(partition.called(), [0]);
    assert!(partition.parking.is_empty());
    assert_eq!(partition.parking.next_due_us(), None);
}

#[test]
fn one_of_a_flow_is_called_after_the_other() {
    let mut partition = Lot::new();
    partition.park(0, 8, Until::Fetched { at_us: 500 });
    for number in 1..4 {
        assert!(partition.parking.must_follow(8) && !partition.parking.must_follow(9));
        partition.park(number, 8, TURN);
    }
    partition.park(4, 9, Until::Fetched { at_us: 100 });
    partition.due(100);
    assert_eq!(partition.called(), [4], "another flow overtakes");
    partition.due(500);
    // The first is late again: it stays the first, whatever was behind it.
    let first = partition.parking.next_ready().expect("the first");
    assert!(!partition.parking.must_follow(8), "nobody is before it");
    partition.number(first);
    partition.park(0, 8, Until::Fetched { at_us: 900 });
    partition.parking.was_called();
    assert_eq!(partition.called(), [] as [u32; 0]);
    partition.due(900);
    assert_eq!(partition.called(), [0, 1, 2, 3]);
    assert!(partition.parking.is_empty() && !partition.parking.must_follow(8));
}

#[test]
fn fragments_wait_for_nobody_and_nobody_for_them() {
    let mut partition = Lot::new();
    let fragment = |partition: &mut Lot, number, at_us| {
        partition.park_of(number, (8, true), (0, 0), Until::Fetched { at_us })
    };
    fragment(&mut partition, 0, 900);
    assert!(!partition.parking.must_follow(8));
    fragment(&mut partition, 1, 100);
    partition.due(100);
    assert_eq!(partition.called(), [1]);
    partition.due(900);
    assert_eq!(partition.called(), [0]);
}

#[test]
fn who_waits_for_a_member_is_woken_by_what_that_one_says() {
    let mut partition = Lot::new();
    for (number, member, arrived_us) in [
        (0, Some(1), 1_000),
        (1, Some(2), 1_000),
        (2, None, 1_000),
        (3, Some(1), 2_000),
        (4, Some(1), 1_500),
    ] {
        let until = absent(member, 90_000);
        partition.park_of(
            number,
            (number.into(), false),
            (arrived_us, arrived_us),
            until,
        );
    }
    partition.covers(1, 999);
    assert_eq!(partition.called(), [] as [u32; 0]);
    partition.covers(1, 1_500);
    assert_eq!(
        partition.called(),
        [0, 4],
        "not those that wait for the other member"
    );
    partition.covers(2, 1_000);
    assert_eq!(
        partition.called(),
        [1, 2],
        "of all others this was the last"
    );
    partition.due(90_000);
    assert_eq!(partition.called(), [3], "in time");
    // One that arrived before it was covered does not wait.
    partition.park(5, 5, absent(None, 90_000));
    assert_eq!(partition.called(), [5]);
    partition.park_of(6, (6, false), (8_000, 8_000), absent(None, 90_000));
    partition.parking.wake_absent(&partition.context);
    assert_eq!(partition.called(), [6]);
}

#[test]
fn each_is_given_up_at_its_time_and_the_next_of_its_flow_goes_on() {
    let mut partition = Lot::new();
    partition.park_of(0, (8, false), (0, 0), absent(None, u64::MAX));
    partition.park_of(1, (8, false), (700, 700), TURN);
    partition.park_of(2, (9, false), (700, 700), absent(Some(1), u64::MAX));
    assert_eq!(partition.due(PARKED_US_MAX), [] as [u32; 0]);
    assert_eq!(partition.due(PARKED_US_MAX + 1), [0]);
    assert_eq!(partition.called(), [1]);
    partition.park_of(3, (9, false), (900, 900), TURN);
    assert_eq!(partition.due(PARKED_US_MAX + 700), [] as [u32; 0]);
    assert_eq!(partition.due(PARKED_US_MAX + 901), [2, 3], "ready or not");
    assert!(partition.called().is_empty() && partition.parking.is_empty());
    assert_eq!(partition.pool.in_use(), 0);
}

#[test]
fn what_is_too_much_is_given_back() {
    let mut partition = Lot::new();
    for number in 0..PARKED_ABSENT_MAX as u32 {
        // The later ones arrived earlier.
        let since_us = 10_000 - u64::from(number);
        let flow = u64::from(number);
        let until = absent(None, u64::MAX);
        assert_eq!(
            partition.park_of(number, (flow, false), (since_us, 9_000), until),
            None
        );
    }
    partition.park(5_000, 255, TURN);
    let refused = partition.park(300, 300, absent(None, u64::MAX));
    assert_eq!(refused, Some((300, Reason::ParkedOverflow)), "the oldest");
    let written = Until::Written { until_us: u64::MAX };
    let refused = partition.park_of(301, (301, false), (20_000, 9_000), written);
    assert_eq!(refused, Some((255, Reason::ParkedOverflow)), "the oldest");
    assert_eq!(partition.called(), [5_000], "which was behind it");
    for number in 0..PARKED_FLOW_MAX as u32 - 1 {
        assert_eq!(partition.park(number, 301, TURN), None);
    }
    let refused = partition.park(9, 301, TURN);
    assert_eq!(refused, Some((9, Reason::ParkedFlow)));
}

/// Random packets and events, against a list that is searched from its front: the same packets are called, those of a flow in
/// order, and the filter misses none.
#[test]
fn it_does_what_a_list_would() {
    let mut random = 0x1234_5678_9abc_def1_u64;
    let mut draw = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for _ in 0..60 {
        let mut partition = Lot::new();
        // (number, flow, ready at, member, arrived)
        let mut list: Vec<(u32, u64, u64, Option<u16>, u64)> = Vec::new();
        let (mut covered, mut now) = ([0_u64; 3], 0);
        for number in 0..600 {
            now += draw(20);
            let flow = draw(40);
            let behind = list.iter().any(|one| one.1 == flow);
            assert_eq!(partition.parking.must_follow(flow), behind);
            let (until, one) = match draw(3) {
                _ if behind => (TURN, (number, flow, 0, None, 0)),
                0 => {
                    let at_us = now + draw(300);
                    (Until::Fetched { at_us }, (number, flow, at_us, None, 0))
                }
                kind => {
                    let member = (kind == 1).then(|| 1 + draw(2) as u16);
                    let until_us = now + 100 + draw(900);
                    let one = (number, flow, until_us, member.or(Some(0)), now);
                    (absent(member, until_us), one)
                }
            };
            assert_eq!(
                partition.park_of(number, (flow, false), (now, now), until),
                None
            );
            list.push(one);
            if draw(4) == 0 {
                let member = 1 + draw(2) as u16;
                covered[usize::from(member)] = now.saturating_sub(draw(200));
                partition.covers(member, covered[usize::from(member)]);
            }
            partition.due(now);
            let mut expected = Vec::new();
            let mut held = Vec::new();
            list.retain(|&(number, flow, at_us, member, arrived)| {
                let is_covered = match member {
                    None => false,
                    Some(0) => covered[1].min(covered[2]) >= arrived,
                    Some(member) => covered[usize::from(member)] >= arrived,
                };
                let goes = !held.contains(&flow) && (at_us <= now || is_covered);
                if goes {
                    expected.push(number);
                } else {
                    held.push(flow);
                }
                !goes
            });
            let mut called = partition.called();
            for flow in 0..40 {
                for one in &list {
                    if one.1 == flow {
                        assert!(partition.parking.must_follow(flow));
                    }
                }
            }
            called.sort_unstable();
            assert_eq!(called, expected);
        }
    }
}

#[cfg(asterism_mutants)]
#[test]
fn planted_bugs_of_order_are_found() {
    use crate::mutant::select;
    for mutant in [Mutant::LateAgainIsLast, Mutant::NextOfFlowForgotten] {
        select(Some(mutant));
        let result = std::panic::catch_unwind(one_of_a_flow_is_called_after_the_other);
        select(None);
        assert!(result.is_err(), "{mutant:?} survived");
    }
}
