//! Floods of forged sources, and packets that lie.

use asterism_function::objects::hash;
use asterism_function::testkit::{Testkit, late_everywhere};
use asterism_function::{PortNumber, Reason, Verdict};
use asterism_functions::limiter::{Limiter, LimiterConfig};

use crate::limiter::packets::udp;
use crate::limiter::rules::packets;

fn config() -> LimiterConfig {
    LimiterConfig {
        sources: packets(5, 8),
        services: packets(50, 60),
        keys_max: 300,
        ..LimiterConfig::default()
    }
}

#[test]
fn a_flood_from_forged_sources_fills_the_table_and_those_that_are_in_it_go_on() {
    let mut kit = Testkit::new(Limiter::new(LimiterConfig {
        services: None,
        ..config()
    }));
    let known = udp((1, 1), (2, 2), 60);
    assert_eq!(
        kit.packet(PortNumber(0), &known).verdict,
        Verdict::Forward(PortNumber(1))
    );
    let mut full = 0;
    for source in 0..2_000 {
        let verdict = kit
            .packet(PortNumber(0), &udp((100 + source, 1), (2, 2), 60))
            .verdict;
        full += u64::from(verdict == Verdict::Drop(Reason::TableFull));
    }
    assert_eq!(full, 2_001 - 300);
    assert_eq!(kit.state().without_room.get(), Ok(full));
    assert_eq!(
        kit.packet(PortNumber(0), &known).verdict,
        Verdict::Forward(PortNumber(1))
    );
    // Buckets that are full again are forgotten, and there is room.
    for _ in 0..4 {
        kit.advance(30);
    }
    let newcomer = udp((9_000, 1), (2, 2), 60);
    assert_eq!(
        kit.packet(PortNumber(0), &newcomer).verdict,
        Verdict::Forward(PortNumber(1))
    );
}

/// Frames, some with bytes overwritten, cut or appended.
fn mangled(count: u64) -> Vec<Vec<u8>> {
    let draw = |number: u64, place: u64| hash::words(number, place, 41);
    let frame = |number: u64| {
        let small = |place: u64, below: u64| (draw(number, place) % below) as u16;
        let mut frame = udp((small(0, 30), 1), (small(1, 9), small(2, 5)), 60);
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
        .map(|(place, frame)| (u32::from(place % 90 == 89), PortNumber(0), frame))
        .collect();
    late_everywhere(|| Limiter::new(config()), &steps);
}
