//! Sources that an operator manual blocks, and blocks for signatures that he lifts.

use asterism_blocking::blocked::{BLOCKED_QUESTION, BlockedRecord, SECONDS_MAX};
use asterism_blocking::manual::{BY_HAND, Order};
use asterism_function::notice::End;
use asterism_function::objects::hash;
use asterism_function::records::read_records;
use asterism_function::testkit::{ClusterKit, Testkit, late_everywhere};
use asterism_function::{CONTROL, Observable, PortNumber, Reason, Tick, Verdict};
use asterism_functions::signature::{Response, SignatureConfig, Signatures};

use crate::signature::cluster::PASSES;
use crate::signature::packets::{first_fragment, host, list, made, tcp, tcp6, udp};

const IN: PortNumber = PortNumber(0);
const CLIENT: (u16, u16) = (1, 1_025);
const SERVER: (u16, u16) = (2, 80);
const BLOCKED: Verdict = Verdict::Drop(Reason::Blocked);
const OF_CONNECTION: Verdict = Verdict::Drop(Reason::ConnectionBlocked);
const CONNECTION: Response = Response::BlockConnection { block_s: 600 };
const SOURCE: Response = Response::BlockSource { block_s: 600 };

fn function(response: Response) -> Signatures {
    made(&SignatureConfig {
        response,
        alerts_max: 1 << 4,
        ..SignatureConfig::new(list(&[b"EVIL-stuf7+X"]))
    })
}

fn evil() -> Vec<u8> {
    tcp(CLIENT, SERVER, 1, b"EVIL-stuf7+X")
}

fn block(seconds: Tick) -> Vec<u8> {
    let source = host(CLIENT.0).into();
    Order::Block { source, seconds }.frame()
}

fn unblock() -> Vec<u8> {
    Order::Unblock(host(CLIENT.0).into()).frame()
}

/// Of the connection, as it is reported: from either end.
fn unblock_connection() -> Vec<u8> {
    let ends = [SERVER, CLIENT].map(|(number, port)| (host(number).into(), port));
    Order::UnblockConnection(ends).frame()
}

fn reported(kit: &Testkit<Signatures>) -> Vec<BlockedRecord> {
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        cursor = kit
            .function()
            .report(kit.state(), BLOCKED_QUESTION, (from, 8), &mut bytes);
    }
    assert!(read_records(&bytes, |record: BlockedRecord| records.push(record)));
    records
}

/// Whatever the response is to signatures: TCP, UDP, fragments and all else of the source, of either IP version; nobody else's.
#[test]
fn a_manual_block_is_by_all_for_the_asked_time() {
    for response in [Response::Detect, CONNECTION, SOURCE] {
        let mut cluster = ClusterKit::new(function(response), 3, 7);
        let six = core::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5);
        let order = Order::Block {
            source: six.into(),
            seconds: 1_000,
        };
        for order in [block(1_000), order.frame()] {
            assert_eq!(
                cluster.packet(2, CONTROL, &order).verdict,
                Verdict::Consumed
            );
        }
        cluster.exchange();
        let frames = [
            tcp(CLIENT, SERVER, 1, b"hello"),
            udp(CLIENT, SERVER, b"hello"),
            first_fragment(udp(CLIENT, SERVER, b"hello")),
            tcp6((5, 9), (6, 80), 1, b"hello"),
        ];
        for passed_s in (0..1_000).step_by(111) {
            for member in 0..3 {
                for frame in &frames {
                    let verdict = cluster.packet(member, IN, frame).verdict;
                    assert_eq!(verdict, BLOCKED, "{response:?} {passed_s} {member}");
                }
                let back = tcp(SERVER, CLIENT, 1, b"hello");
                assert_eq!(cluster.packet(member, IN, &back).verdict, PASSES);
            }
            cluster.advance(111);
            cluster.idle_out();
        }
        cluster.advance(1);
        assert_eq!(cluster.packet(0, IN, &frames[0]).verdict, PASSES);
        cluster.advance(1_800);
        cluster.idle_out();
        cluster.idle_out();
        assert_eq!(cluster.state(0).manual.held(), 0, "{response:?}");
    }
}

/// What two instances blocked for a signature is lifted at every one; what is found afterwards blocks again.
#[test]
fn a_block_for_a_signature_is_lifted_and_does_not_come_back() {
    let found = Verdict::Drop(Reason::SignatureFound);
    for (response, lifts, blocked) in [
        (SOURCE, unblock(), BLOCKED),
        (CONNECTION, unblock_connection(), OF_CONNECTION),
    ] {
        let mut cluster = ClusterKit::new(function(response), 3, 7);
        for member in [0, 1] {
            assert_eq!(cluster.packet(member, IN, &evil()).verdict, found);
        }
        let hello = tcp(CLIENT, SERVER, 100, b"hello");
        assert_eq!(cluster.packet(1, IN, &hello).verdict, blocked);
        // Who is blocked manually meanwhile is not any more either.
        cluster.packet(0, CONTROL, &block(60));
        cluster.packet(0, CONTROL, &unblock());
        cluster.packet(0, CONTROL, &lifts);
        cluster.tell(0, 2);
        cluster.exchange();
        cluster.agree();
        for member in 0..3 {
            let verdict = cluster.packet(member, IN, &hello).verdict;
            assert_eq!(verdict, PASSES, "{response:?} {member}");
        }
        assert_eq!(cluster.packet(2, IN, &evil()).verdict, found);
        cluster.exchange();
        assert_eq!(cluster.packet(0, IN, &hello).verdict, blocked);
    }
}

/// A source's end leaves connections blocked: each is lifted by its own ends, and with it no other. What each is by is reported.
#[test]
fn connections_are_lifted_one_by_one_and_reported_apart() {
    let mut kit = Testkit::new(function(CONNECTION));
    kit.packet(IN, &evil());
    let other = (CLIENT.0, CLIENT.1 + 1);
    kit.packet(IN, &udp(other, SERVER, b"EVIL-stuf7+X"));
    kit.packet(CONTROL, &block(60));
    let mut by: Vec<_> = reported(&kit)
        .into_iter()
        .map(|record| (record.source.port, record.destination.port, record.by))
        .collect();
    by.sort();
    let found = "a signature was found".to_owned();
    let server = Some(SERVER.1);
    assert_eq!(
        by,
        [
            (None, None, BY_HAND.to_owned()),
            (Some(CLIENT.1), server, found.clone()),
            (Some(other.1), server, found),
        ]
    );
    kit.packet(CONTROL, &unblock());
    assert_eq!(reported(&kit).len(), 2);
    let hello = |from| tcp(from, SERVER, 100, b"hello");
    assert_eq!(kit.packet(IN, &hello(CLIENT)).verdict, OF_CONNECTION);
    kit.packet(CONTROL, &unblock_connection());
    assert_eq!(kit.packet(IN, &hello(CLIENT)).verdict, PASSES);
    let left = reported(&kit);
    assert_eq!(left.len(), 1);
    assert_eq!(
        left[0].source,
        End::endpoint((host(other.0).into(), other.1))
    );
    assert_eq!(
        kit.packet(IN, &udp(other, SERVER, b"hello")).verdict,
        OF_CONNECTION
    );
}

#[test]
fn frames_that_lie_block_nobody() {
    let orders = [block(60), unblock(), unblock_connection()];
    let mut kit = Testkit::new(function(CONNECTION));
    for order in &orders {
        assert_eq!(kit.packet(IN, order).verdict, PASSES, "as any other frame");
    }
    assert_eq!(kit.state().manual.len_now(), 0);
    let refused = Verdict::Drop(Reason::UnsupportedProtocol);
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
    assert!(
        taken > 1_000 && full > 0,
        "{taken} taken, {full} without room"
    );
    let now = kit.state().manual.now();
    kit.state().manual.for_each(|_, block| {
        assert!(block.is_manual() && block.until <= now + SECONDS_MAX);
    });
    assert_eq!(kit.state().unrecorded.get(), Ok(0), "of signatures");
}

#[test]
fn orders_fare_alike_when_every_read_is_late() {
    let hello = tcp(CLIENT, SERVER, 100, b"hello");
    let orders = [
        block(60),
        block(90),
        unblock(),
        unblock_connection(),
        unblock(),
    ];
    for response in [Response::Detect, CONNECTION, SOURCE] {
        let mut steps = vec![(0, IN, evil())];
        for order in &orders {
            steps.push((1, CONTROL, order.clone()));
            steps.push((0, IN, hello.clone()));
        }
        late_everywhere(|| function(response), &steps);
    }
}
