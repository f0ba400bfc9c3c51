//! Sources that an operator manual blocks, and blocks of scanners that he lifts.

use asterism_blocking::blocked::{BLOCKED_QUESTION, BlockedRecord, SECONDS_MAX};
use asterism_blocking::manual::{BY_HAND, Order};
use asterism_function::notice::End;
use asterism_function::objects::hash;
use asterism_function::records::read_records;
use asterism_function::testkit::{ClusterKit, Testkit, late_everywhere};
use asterism_function::{CONTROL, Observable, PortNumber, Reason, Tick, Verdict};
use asterism_functions::port_scan::{PortScan, PortScanConfig, Response};

use crate::port_scan::ip::alone;
use crate::port_scan::packets::{host, ping, syn, syn6};

const IN: PortNumber = PortNumber(0);
const PASSES: Verdict = Verdict::Forward(PortNumber(1));
const BLOCKED: Verdict = Verdict::Drop(Reason::Blocked);
const SCANNER: u16 = 1;
const BLOCK_S: Tick = 30;

fn scan(response: Response) -> PortScan {
    PortScan::new(PortScanConfig {
        response,
        histories_max: 1 << 10,
        alerts_max: 1 << 6,
        flood: None,
        ..PortScanConfig::default()
    })
}

fn blocks() -> PortScan {
    scan(Response::Block { block_s: BLOCK_S })
}

fn block(source: u16, seconds: Tick) -> Vec<u8> {
    let source = host(source).into();
    Order::Block { source, seconds }.frame()
}

fn unblock(source: u16) -> Vec<u8> {
    Order::Unblock(host(source).into()).frame()
}

fn reported(function: &PortScan, kit: &Testkit<PortScan>) -> Vec<BlockedRecord> {
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        cursor = function.report(kit.state(), BLOCKED_QUESTION, (from, 8), &mut bytes);
    }
    assert!(read_records(&bytes, |record: BlockedRecord| records.push(record)));
    records
}

/// Whatever the response is to scans, and however short its blocks are; of either IP version, and of an exempt source too.
#[test]
fn a_manual_block_is_by_all_for_the_asked_time() {
    for response in [Response::Detect, Response::Block { block_s: BLOCK_S }] {
        let function = PortScan::new(PortScanConfig {
            exempt: vec![alone(host(SCANNER))],
            ..scan(response).config().clone()
        });
        let mut cluster = ClusterKit::new(function, 3, 7);
        let reported = cluster.packet(2, CONTROL, &block(SCANNER, 1_000)).verdict;
        assert_eq!(reported, Verdict::Consumed);
        let six = core::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5);
        let order = Order::Block {
            source: six.into(),
            seconds: 1_000,
        };
        cluster.packet(2, CONTROL, &order.frame());
        cluster.exchange();
        let frames = [syn(SCANNER, (2, 80)), ping(SCANNER, 2), syn6(5, (6, 80))];
        for passed_s in (0..1_000).step_by(111) {
            for member in 0..3 {
                for frame in &frames {
                    let verdict = cluster.packet(member, IN, frame).verdict;
                    assert_eq!(verdict, BLOCKED, "{response:?} {passed_s} {member}");
                }
                let other = cluster.packet(member, IN, &syn(9, (2, 80))).verdict;
                assert_eq!(other, PASSES);
            }
            cluster.advance(111);
            cluster.idle_out();
        }
        cluster.advance(1);
        assert_eq!(cluster.packet(0, IN, &frames[0]).verdict, PASSES);
        // The class of half an hour, and a quarter.
        cluster.advance(1_800);
        cluster.idle_out();
        cluster.idle_out();
        assert_eq!(cluster.state(0).blocked.held(), 0, "{response:?}");
    }
}

/// A scanner's block is lifted at every instance, though two of them found it at once; while its evidence is held the next probe blocks it
/// again, and afterwards it is judged again.
#[test]
fn a_scanners_block_is_lifted_and_does_not_come_back() {
    let mut cluster = ClusterKit::new(blocks(), 3, 7);
    let mut probe = 100;
    for member in [0, 1] {
        for _ in 0..40 {
            probe += 1;
            cluster.packet(member, IN, &syn(SCANNER, (2, probe)));
        }
        let verdict = cluster.packet(member, IN, &ping(SCANNER, 2)).verdict;
        assert_eq!(verdict, BLOCKED, "{member} finds it alone");
    }
    cluster.packet(0, CONTROL, &unblock(SCANNER));
    cluster.tell(0, 2);
    cluster.exchange();
    cluster.agree();
    for member in 0..3 {
        let verdict = cluster.packet(member, IN, &ping(SCANNER, 2)).verdict;
        assert_eq!(verdict, PASSES, "{member}");
    }
    let verdict = cluster.packet(2, IN, &syn(SCANNER, (2, 90))).verdict;
    assert_eq!(verdict, BLOCKED, "it goes on");
    cluster.packet(2, CONTROL, &unblock(SCANNER));
    cluster.exchange();
    cluster.advance(3 * blocks().config().window_s);
    let verdict = cluster.packet(2, IN, &syn(SCANNER, (2, 91))).verdict;
    assert_eq!(verdict, PASSES, "the evidence is old");
}

/// Who is blocked manually is reported as such; of two blocks the later end holds, with what it is by.
#[test]
fn what_a_block_is_by_is_reported() {
    let mut kit = Testkit::new(blocks());
    kit.packet(CONTROL, &block(SCANNER, 20));
    let [record] = &reported(&blocks(), &kit)[..] else {
        panic!("one is blocked");
    };
    assert_eq!(record.source, End::host(host(SCANNER).into()));
    assert_eq!(record.by, BY_HAND);
    let until = record.until;
    kit.advance(20);
    for port in 100..140 {
        kit.packet(IN, &syn(SCANNER, (2, port)));
    }
    let record = &reported(&blocks(), &kit)[0];
    assert_eq!(
        (record.until, record.by.as_str()),
        (until + BLOCK_S, "it scanned")
    );
    kit.packet(CONTROL, &block(SCANNER, BLOCK_S - 1));
    assert_eq!(reported(&blocks(), &kit)[0].by, "it scanned");
    kit.packet(CONTROL, &block(SCANNER, BLOCK_S));
    assert_eq!(reported(&blocks(), &kit)[0].by, BY_HAND);
    kit.packet(CONTROL, &unblock(SCANNER));
    assert_eq!(reported(&blocks(), &kit), []);
}

#[test]
fn frames_that_lie_block_nobody() {
    let orders = [
        block(SCANNER, 60),
        unblock(SCANNER),
        Order::UnblockConnection([(host(1).into(), 1), (host(2).into(), 2)]).frame(),
    ];
    let mut kit = Testkit::new(blocks());
    for order in &orders {
        assert_eq!(kit.packet(IN, order).verdict, PASSES, "as any other frame");
    }
    let refused = Verdict::Drop(Reason::UnsupportedProtocol);
    assert_eq!(kit.packet(CONTROL, &orders[2]).verdict, refused);
    assert_eq!(kit.state().blocked.len_now(), 0);
    let (mut taken, mut full) = (0, 0);
    for draw in 0..20_000u64 {
        let number = |place: u64, below: usize| hash::words(draw, place, 3) as usize % below;
        let mut frame = orders[number(0, orders.len())].clone();
        let place = 14 + number(1, frame.len() - 14);
        match number(2, 3) {
            0 => frame[place] ^= 1 << number(3, 8),
            1 => frame.truncate(place),
            _ => frame.push(0),
        }
        match kit.packet(CONTROL, &frame).verdict {
            Verdict::Consumed => taken += 1,
            Verdict::Drop(Reason::TableFull) => full += 1,
            verdict => assert_eq!(verdict, refused),
        }
    }
    assert!(taken > 1_000, "{taken} taken, {full} without room");
    let now = kit.state().blocked.now();
    for (_, block) in kit.state().blocked(0) {
        assert!(block.is_manual() && block.until <= now + SECONDS_MAX);
    }
}

#[test]
fn orders_fare_alike_when_every_read_is_late() {
    let mut steps: Vec<_> = (0..12)
        .map(|port| (0, IN, syn(SCANNER, (2, 100 + port))))
        .collect();
    for order in [
        unblock(SCANNER),
        block(SCANNER, 60),
        block(SCANNER, 90),
        unblock(SCANNER),
    ] {
        steps.push((1, CONTROL, order));
        steps.push((0, IN, ping(SCANNER, 2)));
    }
    late_everywhere(blocks, &steps);
}
