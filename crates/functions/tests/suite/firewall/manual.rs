//! Sources that an operator manual blocks, and blocks that he lifts: for how long, on which instances, and what brings none back.

use asterism_blocking::blocked::{BLOCKED_QUESTION, BlockedRecord, SECONDS_MAX};
use asterism_blocking::manual::{BY_HAND, Order};
use asterism_function::notice::End;
use asterism_function::objects::hash;
use asterism_function::records::read_records;
use asterism_function::testkit::{ClusterKit, Testkit, late_everywhere};
use asterism_function::{CONTROL, Observable, PortNumber, Reason, Tick, Verdict};
use asterism_functions::firewall::{Firewall, FirewallConfig, read_rules};

use crate::firewall::packets::*;

const SOURCE: u32 = 2_000_000;
const MEMBERS: usize = 3;
const BLOCKED: Verdict = Verdict::Drop(Reason::Blocked);

/// Ports 23 and 25 are traps, of ten minutes and of an hour; what else comes in may pass.
fn firewall() -> Firewall {
    let rules = "block 10m tcp on outside to any port 23\n\
                 block 1h tcp on outside to any port 25\n\
                 default allow\n";
    Firewall::new(FirewallConfig {
        rules: read_rules(rules).expect("good rules"),
        ..config()
    })
}

fn syn(port: u16) -> Vec<u8> {
    tcp((SOURCE, 9), (9, port), SYN, (1, 0), 0)
}

fn block(seconds: Tick) -> Vec<u8> {
    let source = host(SOURCE).into();
    Order::Block { source, seconds }.frame()
}

fn unblock() -> Vec<u8> {
    Order::Unblock(host(SOURCE).into()).frame()
}

/// What the control side tells an instance is taken.
fn tell(cluster: &mut ClusterKit<Firewall>, member: usize, frame: &[u8]) {
    let verdict = cluster.packet(member, CONTROL, frame).verdict;
    assert_eq!(verdict, Verdict::Consumed);
}

/// What becomes of a packet of the source at each instance.
fn verdicts(cluster: &mut ClusterKit<Firewall>) -> [Verdict; MEMBERS] {
    [0, 1, 2].map(|member| cluster.packet(member, OUTSIDE, &syn(80)).verdict)
}

const PASSES: [Verdict; MEMBERS] = [Verdict::Forward(INSIDE); MEMBERS];

fn reported(kit: &Testkit<Firewall>) -> Vec<BlockedRecord> {
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    let all = (0, u32::MAX);
    assert_eq!(
        kit.function()
            .report(kit.state(), BLOCKED_QUESTION, all, &mut bytes),
        None
    );
    assert!(read_records(&bytes, |record: BlockedRecord| records.push(record)));
    records
}

/// From any instance a block manually holds at all of them, its known flows included, for the time that was asked; then its place is free.
#[test]
fn a_manual_block_is_by_all_for_the_asked_time() {
    let mut cluster = ClusterKit::new(firewall(), MEMBERS as u16, 7);
    assert_eq!(verdicts(&mut cluster), PASSES);
    tell(&mut cluster, 1, &block(100));
    assert_eq!(cluster.packet(1, OUTSIDE, &syn(80)).verdict, BLOCKED);
    cluster.exchange();
    assert_eq!(verdicts(&mut cluster), [BLOCKED; MEMBERS]);
    let other = tcp((SOURCE + 1, 9), (9, 80), SYN, (1, 0), 0);
    assert_eq!(cluster.packet(0, OUTSIDE, &other).verdict, PASSES[0]);
    cluster.advance(99);
    cluster.idle_out();
    assert_eq!(verdicts(&mut cluster), [BLOCKED; MEMBERS]);
    cluster.advance(1);
    assert_eq!(verdicts(&mut cluster), PASSES);
    // Its class is of 300 s.
    cluster.advance(300);
    cluster.idle_out();
    cluster.idle_out();
    for member in 0..MEMBERS {
        assert_eq!(cluster.state(member).blocked.held(), 0);
    }
}

/// It is reported as such; what a rule blocked for longer stays the rule's, and a longer manual block is reported as manual.
#[test]
fn a_manual_block_is_reported_and_the_later_end_holds() {
    let mut kit = Testkit::new(firewall());
    kit.packet(CONTROL, &block(600));
    let [record] = &reported(&kit)[..] else {
        panic!("one is blocked");
    };
    assert_eq!(record.source, End::host(host(SOURCE).into()));
    assert_eq!(
        (record.destination, record.by.as_str()),
        (End::default(), BY_HAND)
    );
    let manual = record.until;
    kit.packet(CONTROL, &block(60));
    assert_eq!(reported(&kit)[0].until, manual, "it is not shortened");
    // To shorten one: lift it, and block again.
    kit.packet(CONTROL, &unblock());
    assert_eq!(reported(&kit), []);
    kit.packet(CONTROL, &block(60));
    assert_eq!(reported(&kit)[0].until, manual - 540);
    kit.packet(CONTROL, &unblock());
    kit.packet(OUTSIDE, &syn(25));
    kit.packet(CONTROL, &block(600));
    let of_rule = reported(&kit);
    assert_eq!(of_rule[0].until, manual + 3_000);
    assert!(of_rule[0].by.starts_with("line 2: block 1h"), "{of_rule:?}");
    kit.packet(CONTROL, &block(SECONDS_MAX));
    assert_eq!(reported(&kit)[0].by, BY_HAND);
}

/// A wrong block is lifted at every instance, no matter which instance sent it to which, and no late copy of it brings it back; what the rule finds
/// afterwards blocks again.
#[test]
fn a_block_that_is_lifted_does_not_come_back() {
    // Who of the three saw the trap before anybody heard of it, in bits; who lifts it then; who hears of that first.
    for saw in 1..1 << MEMBERS {
        for lifts in (0..MEMBERS).filter(|member| saw >> member & 1 == 1) {
            for first in 0..MEMBERS {
                let what = format!("seen by {saw:03b}, lifted by {lifts}, heard by {first}");
                let mut cluster = ClusterKit::new(firewall(), MEMBERS as u16, 7);
                for member in (0..MEMBERS).filter(|member| saw >> member & 1 == 1) {
                    cluster.packet(member, OUTSIDE, &syn(23));
                }
                tell(&mut cluster, lifts, &unblock());
                assert_eq!(cluster.packet(lifts, OUTSIDE, &syn(80)).verdict, PASSES[0]);
                if first != lifts {
                    cluster.tell(lifts, first);
                }
                // What the others wrote before comes after.
                cluster.exchange();
                cluster.agree();
                assert_eq!(verdicts(&mut cluster), PASSES, "{what}");
                for _ in 0..3 {
                    cluster.advance(1);
                    cluster.idle_out();
                }
                for member in 0..MEMBERS {
                    assert_eq!(cluster.state(member).blocked.held(), 0, "{what}");
                }
                cluster.packet(first, OUTSIDE, &syn(23));
                cluster.exchange();
                assert_eq!(verdicts(&mut cluster), [BLOCKED; MEMBERS], "{what}");
            }
        }
    }
}

/// The instance that lifted it dies: those that heard of it tell the others.
#[test]
fn a_lifted_block_stays_lifted_though_who_lifted_it_dies() {
    let mut cluster = ClusterKit::new(firewall(), MEMBERS as u16, 7);
    tell(&mut cluster, 1, &block(600));
    cluster.exchange();
    tell(&mut cluster, 0, &unblock());
    cluster.tell(0, 2);
    cluster.kill(0);
    cluster.agree();
    for member in [1, 2] {
        assert_eq!(cluster.packet(member, OUTSIDE, &syn(80)).verdict, PASSES[0]);
    }
}

/// Of a block and its end that two instances are ordered at the same moment, the end holds if the source was blocked before, at all alike.
#[test]
fn instances_agree_on_what_they_are_reported_at_once() {
    for (was_blocked, expected) in [(true, PASSES), (false, [BLOCKED; MEMBERS])] {
        let mut cluster = ClusterKit::new(firewall(), MEMBERS as u16, 7);
        if was_blocked {
            tell(&mut cluster, 2, &block(60));
            cluster.exchange();
        }
        tell(&mut cluster, 0, &block(600));
        tell(&mut cluster, 1, &unblock());
        cluster.exchange();
        cluster.agree();
        assert_eq!(verdicts(&mut cluster), expected, "{was_blocked}");
    }
}

#[test]
fn a_full_table_takes_no_manual_block_and_what_is_not_blocked_is_not_lifted() {
    let mut kit = Testkit::new(Firewall::new(FirewallConfig {
        blocked_max: 1,
        ..config()
    }));
    let reported = |kit: &mut Testkit<Firewall>, order: Order| kit.packet(CONTROL, &order.frame());
    let of = |source| Order::Block {
        source: host(source).into(),
        seconds: 60,
    };
    assert_eq!(reported(&mut kit, of(1)).verdict, Verdict::Consumed);
    let full = Verdict::Drop(Reason::TableFull);
    assert_eq!(reported(&mut kit, of(2)).verdict, full);
    let lifted = reported(&mut kit, Order::Unblock(host(2).into()));
    assert_eq!(lifted.verdict, Verdict::Consumed);
    assert_eq!(kit.state().blocked.len_now(), 1);
    assert_eq!(kit.state().blocks_without_room.get(), Ok(0), "of rules");
}

/// Frames that are none, and packets by the control port, get a counted drop and write nothing; orders by a port of the world are no orders.
#[test]
fn frames_that_lie_block_nobody() {
    let refused = Verdict::Drop(Reason::UnsupportedProtocol);
    let ends = [(host(1).into(), 1), (host(2).into(), 2)];
    let orders = [block(60), unblock(), Order::UnblockConnection(ends).frame()];
    let mut kit = Testkit::new(firewall());
    for port in [INSIDE, OUTSIDE] {
        for order in &orders {
            let verdict = kit.packet(port, order).verdict;
            assert_eq!(verdict, refused);
        }
    }
    assert_eq!(kit.packet(CONTROL, &orders[2]).verdict, refused);
    assert_eq!(kit.packet(CONTROL, &syn(23)).verdict, refused);
    let unknown = kit.packet(PortNumber(2), &orders[0]).verdict;
    assert_eq!(unknown, Verdict::Drop(Reason::NotForUs));
    assert_eq!(kit.state().blocked.len_now(), 0);
    let mut taken = 0;
    for draw in 0..20_000u64 {
        let number = |place: u64, below: usize| hash::words(draw, place, 3) as usize % below;
        let mut frame = orders[number(0, orders.len())].clone();
        for change in 0..1 + number(1, 3) as u64 {
            let place = 12 + number(10 + change, frame.len() - 12);
            match number(20 + change, 3) {
                0 => frame[place] ^= 1 << number(30 + change, 8),
                1 => frame.truncate(place.max(14)),
                _ => frame.push(number(40 + change, 256) as u8),
            }
        }
        match kit.packet(CONTROL, &frame).verdict {
            Verdict::Consumed => taken += 1,
            verdict => assert!(matches!(verdict, Verdict::Drop(_)), "{verdict:?}"),
        }
    }
    // Other addresses and times are orders as good.
    assert!(taken > 500, "{taken}");
    let now = kit.state().blocked.now();
    for (_, block) in kit.state().blocked(0) {
        assert!((1..=SECONDS_MAX).contains(&block.seconds));
        assert!(block.until <= now + SECONDS_MAX);
    }
}

#[test]
fn orders_fare_alike_when_every_read_is_late() {
    let steps = vec![
        (0, OUTSIDE, syn(23)),
        (1, CONTROL, unblock()),
        (0, OUTSIDE, syn(80)),
        (1, CONTROL, block(60)),
        (0, OUTSIDE, syn(80)),
        (1, CONTROL, block(600)),
        (1, CONTROL, unblock()),
        (0, CONTROL, unblock()),
        (0, OUTSIDE, syn(80)),
    ];
    late_everywhere(firewall, &steps);
}
