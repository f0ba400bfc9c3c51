//! Floods of forged flows, and packets that lie.

use asterism_function::objects::hash;
use asterism_function::records::{Record, read_records};
use asterism_function::testkit::{START_TICK, Testkit, late_everywhere};
use asterism_function::{PortNumber, TcpFlags, Verdict};
use asterism_functions::monitor::{
    AlarmRecord, CellRecord, Degree, FlowRecord, HeavyRecord, LinkRecord, Monitor, MonitorConfig,
    NodeRecord, ProtocolCount, Summary,
};

use crate::port_scan::packets::{host, ping, syn, syn6, tcp, udp};

const SMALL: MonitorConfig = MonitorConfig {
    interval_s: 60,
    out_degree: 20,
    in_degree: 50,
    edge_idle_s: 300,
    edges_max: 500,
    flows_max: 400,
    places: 32,
    cells: 64,
    alarms_max: 64,
    alarm_keep_s: 600,
};

#[test]
fn a_flood_of_flows_fills_the_tables_passes_and_is_counted() {
    let mut kit = Testkit::new(Monitor::new(SMALL));
    let heavy = udp((7, 7), (8, 8), &[0; 900]);
    kit.packet(PortNumber(0), &heavy);
    for source in 0..5_000 {
        let outcome = kit.packet(PortNumber(0), &syn(10_000 + source, (2, 80)));
        assert_eq!(outcome.verdict, Verdict::Forward(PortNumber(1)));
    }
    for _ in 0..500 {
        kit.packet(PortNumber(1), &heavy);
    }
    let state = kit.state();
    assert_eq!(state.links.edges(), 500);
    let mut flows = 0;
    state.flows_at(START_TICK, (0, u32::MAX), |_| flows += 1);
    assert_eq!(flows, 400);
    // Each of the others is without a flow, or an edge, or both.
    assert_eq!(state.unrecorded.get(), Ok((5_001 - 400) + (5_001 - 500)));
    assert_eq!(state.heavy_bytes.heaviest(1)[0].key.source, host(7).into());
    let raised = state.raised();
    assert_eq!(raised.len(), 1, "{raised:?}");
    assert_eq!(
        (raised[0].0.host, raised[0].0.degree),
        (host(2).into(), Degree::In)
    );
    assert!(raised[0].1.degree >= 250, "it is brought up to date");
    assert_eq!(
        state.sizes_at(START_TICK, 64).error(),
        None,
        "all cells are in use"
    );
    // Intervals and edges end, and with them what was full.
    for _ in 0..20 {
        kit.advance(60);
    }
    kit.packet(PortNumber(0), &syn(1, (2, 80)));
    assert_eq!(kit.state().links.edges(), 1);
    let mut flows = 0;
    let now = START_TICK + 20 * 60;
    kit.state().flows_at(now, (0, u32::MAX), |_| flows += 1);
    assert_eq!(flows, 1);
}

#[test]
fn who_sends_to_many_raises_an_alarm_at_the_threshold() {
    let mut kit = Testkit::new(Monitor::new(SMALL));
    for target in 0..20 {
        kit.packet(PortNumber(0), &ping(1, 100 + target));
    }
    assert_eq!(kit.state().raised(), []);
    kit.packet(PortNumber(0), &ping(1, 100));
    let raised = kit.state().raised();
    assert_eq!(raised.len(), 1);
    assert_eq!((raised[0].0.degree, raised[0].1.degree), (Degree::Out, 20));
}

/// Frames of every kind, some with bytes overwritten, cut or appended.
fn mangled(count: u64) -> Vec<Vec<u8>> {
    let draw = |number: u64, place: u64| hash::words(number, place, 99);
    let frame = |number: u64| {
        let small = |place: u64, below: u64| (draw(number, place) % below) as u16;
        let (a, b) = ((small(0, 40), small(1, 9)), (small(2, 40), small(3, 9)));
        let mut frame = match number % 5 {
            0 | 1 => tcp(a, b, TcpFlags(draw(number, 4) as u8), b"xy"),
            2 => udp(a, b, b"x"),
            3 => ping(a.0, b.0),
            _ => syn6(a.0, b),
        };
        for change in 0..draw(number, 5) % 4 {
            let at = draw(number, 10 + change) as usize % frame.len();
            frame[at] = draw(number, 20 + change) as u8;
        }
        frame.truncate((draw(number, 6) as usize % 200).max(frame.len() / 2));
        frame
    };
    (0..count).map(frame).collect()
}

#[test]
fn mangled_packets_neither_panic_nor_change_and_late_answers_change_nothing() {
    let steps: Vec<_> = mangled(2_000)
        .into_iter()
        .enumerate()
        .map(|(place, frame)| (u32::from(place % 50 == 49), PortNumber(0), frame))
        .collect();
    late_everywhere(|| Monitor::new(SMALL), &steps);
}

#[test]
fn any_bytes_after_the_ethernet_header_are_survived() {
    let mut kit = Testkit::new(Monitor::new(SMALL));
    for number in 0..20_000u64 {
        let mut frame = vec![0; 12];
        let ethertype: &[u8] = if number % 2 == 0 {
            &[8, 0, 0x45]
        } else {
            &[0x86, 0xdd, 0x60]
        };
        frame.extend_from_slice(ethertype);
        frame.extend((0..number % 90).map(|place| hash::words(number, place, 3) as u8));
        assert_eq!(kit.packet(PortNumber(0), &frame).packet, frame);
    }
}

#[test]
fn any_bytes_for_records_give_records_or_a_refusal() {
    for number in 0..5_000u64 {
        let bytes: Vec<u8> = (0..number % 120)
            .map(|place| hash::words(number, place, 5) as u8 % 7)
            .collect();
        let mut records = 0;
        let whole = read_records(&bytes, |_: FlowRecord| records += 1);
        assert!(records <= bytes.len() / 31 && (whole || records * 31 < bytes.len().max(1)));
        // The shortest of each: a host of IPv4 is 6 bytes.
        let any = [
            (records_in::<ProtocolCount>(&bytes), 17),
            (records_in::<NodeRecord>(&bytes), 14),
            (records_in::<LinkRecord>(&bytes), 20),
            (records_in::<HeavyRecord>(&bytes), 43),
            (records_in::<CellRecord>(&bytes), 12),
            (records_in::<AlarmRecord>(&bytes), 15),
            (records_in::<Summary>(&bytes), 28),
        ];
        for ((records, whole), shortest) in any {
            let room = bytes.len() / shortest;
            assert!(records <= room && (whole || records * shortest < bytes.len().max(1)));
        }
    }
}

/// How many records of a kind some bytes begin with, and whether there is nothing else.
fn records_in<R: Record>(bytes: &[u8]) -> (usize, bool) {
    let mut records = 0;
    let whole = read_records(bytes, |_: R| records += 1);
    (records, whole)
}
