//! Two ends in memory, with a clock and a link that loses.

use super::*;
use asterism_memory::hash;
use core::time::Duration;
use std::collections::VecDeque;

/// One way of the link, in microseconds.
const DELAY: Duration = Duration::from_micros(500);

struct Pair {
    now: Time,
    ends: [Option<Connection>; 2],
    lengths: [u32; 2],
    link: VecDeque<(Time, usize, Outgoing)>,
    loss_permille: u64,
    seed: u64,
    segments: u64,
    retransmissions: u64,
    /// The silence that ended last, of the end that receives more.
    failed: bool,
}

impl Pair {
    fn new(lengths: [u32; 2], loss_permille: u64, seed: u64) -> Pair {
        let mut client = Connection::open(u32::MAX - 100, 0, Time::ZERO);
        client.offer(lengths[0]);
        Pair {
            now: Time::ZERO,
            ends: [Some(client), None],
            lengths,
            link: VecDeque::new(),
            loss_permille,
            seed,
            segments: 0,
            retransmissions: 0,
            failed: false,
        }
    }

    fn transmit(&mut self) {
        for from in 0..2 {
            let Some(end) = &mut self.ends[from] else {
                continue;
            };
            self.failed |= !end.handle_timeout(self.now);
            for _ in 0..2 * WINDOW_MAX {
                let Some(segment) = end.poll_transmit(self.now) else {
                    break;
                };
                self.segments += 1;
                self.retransmissions += u64::from(segment.is_retransmission);
                let drawn = hash::word(self.segments, self.seed) % 1_000;
                if drawn >= self.loss_permille {
                    let due = self.now.saturating_add(DELAY);
                    self.link.push_back((due, 1 - from, segment));
                }
            }
        }
    }

    fn arrive(&mut self, to: usize, segment: Outgoing) {
        let arrived = Arrived {
            flags: segment.flags,
            sequence: segment.sequence,
            acknowledgement: segment.acknowledgement,
            bytes: segment.bytes,
        };
        let end = self.ends[to]
            .get_or_insert_with(|| Connection::accept(77, segment.sequence, 0, self.now));
        let before = end.received_bytes();
        match end.take(&arrived, self.now) {
            Taken::Data { offset } => {
                assert_eq!((offset, segment.offset), (before, before));
                assert_eq!(end.received_bytes(), before + segment.bytes);
            }
            _ => assert_eq!(end.received_bytes(), before),
        }
        let is_complete = end.received_bytes() == self.lengths[1 - to];
        match to {
            0 if is_complete => end.close(),
            1 if is_complete => {
                end.offer(self.lengths[1]);
                if end.has_fin() {
                    end.close();
                }
            }
            _ => {}
        }
    }

    /// Goes on until both ends are over, or one has failed; whether they are over.
    fn run(&mut self, until: Duration) -> bool {
        loop {
            self.transmit();
            let is_over = |end: &Option<Connection>| end.is_some_and(|end| end.is_over());
            if self.ends.iter().all(is_over) {
                return true;
            }
            let timeouts = self
                .ends
                .iter()
                .flatten()
                .filter_map(|end| end.poll_timeout());
            let arrival = self.link.front().map(|(due, ..)| *due);
            let Some(next) = timeouts.chain(arrival).min() else {
                return false;
            };
            if self.failed || next > Time::ZERO.saturating_add(until) {
                return false;
            }
            self.now = self.now.max(next);
            while let Some((due, to, segment)) = self.link.front().copied()
                && due <= self.now
            {
                self.link.pop_front();
                self.arrive(to, segment);
            }
        }
    }
}

#[test]
fn both_streams_arrive_and_close_without_loss() {
    let mut pair = Pair::new([5_000, 100_001], 0, 1);
    assert!(pair.run(Duration::from_secs(10)));
    assert_eq!(pair.retransmissions, 0);
    assert!(pair.now.since(Time::ZERO) < Duration::from_millis(50));
    assert!(pair.link.iter().all(|(_, _, segment)| segment.bytes == 0));
}

#[test]
fn loss_is_repaired_at_any_rate() {
    let mut repaired = 0;
    for seed in 0..200 {
        let mut pair = Pair::new([24, 30_000], 50, seed);
        assert!(pair.run(Duration::from_secs(600)), "seed {seed}");
        repaired += pair.retransmissions;
    }
    assert!(repaired > 200, "{repaired}");
}

#[test]
fn an_outage_is_bridged_and_a_long_one_fails_the_connection() {
    let mut pair = Pair::new([24, 300_000], 0, 1);
    assert!(!pair.run(Duration::from_millis(4)));
    let begun = pair.now;
    pair.loss_permille = 1_000;
    pair.link.clear();
    assert!(!pair.run(Duration::from_millis(104)));
    pair.loss_permille = 0;
    assert!(pair.run(Duration::from_secs(60)));
    let took = pair.now.since(begun);
    assert!(took < Duration::from_millis(500), "one timer: {took:?}");

    let mut pair = Pair::new([24, 300_000], 0, 1);
    assert!(!pair.run(Duration::from_millis(4)));
    pair.loss_permille = 1_000;
    assert!(!pair.run(Duration::from_secs(3_600)));
    assert!(pair.failed);
}

#[test]
fn a_reset_and_a_foreign_acknowledgement_are_seen() {
    let mut client = Connection::open(5, 0, Time::ZERO);
    assert_eq!(
        client.poll_transmit(Time::ZERO).unwrap().flags,
        TcpFlags::SYN
    );
    let mut segment = Arrived {
        flags: TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0),
        sequence: 9,
        acknowledgement: 99,
        bytes: 0,
    };
    assert_eq!(client.take(&segment, Time::ZERO), Taken::Nothing);
    assert!(
        !client.is_established(),
        "it acknowledges what was not sent"
    );
    segment.acknowledgement = 6;
    assert_eq!(client.take(&segment, Time::ZERO), Taken::Nothing);
    assert!(client.is_established() && !client.awaits());
    segment.flags = TcpFlags::RST;
    assert_eq!(client.take(&segment, Time::ZERO), Taken::Reset);
}

#[test]
fn data_is_paced() {
    let mut client = Connection::open(5, 10_000, Time::ZERO);
    client.offer(5 * SEGMENT_BYTES);
    let _ = client.poll_transmit(Time::ZERO);
    let answer = Arrived {
        flags: TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0),
        sequence: 9,
        acknowledgement: 6,
        bytes: 0,
    };
    client.take(&answer, Time::ZERO);
    let mut sent = Vec::new();
    for us in (0..100_000).step_by(1_000) {
        let now = Time::from_micros(us);
        while let Some(segment) = client.poll_transmit(now) {
            sent.push((us, segment.bytes));
        }
    }
    let each: Vec<_> = (0..5)
        .map(|place| (10_000 * place, SEGMENT_BYTES))
        .collect();
    assert_eq!(sent, each);
}
