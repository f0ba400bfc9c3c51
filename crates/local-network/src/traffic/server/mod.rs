//! The servers: a station of the outside segment that answers requests, takes uploads and gives downloads, and checks how flows were
//! translated.
//!
//! A flow is known by its number, whatever its source is. `outside.rs` has the flow of each outside endpoint, `tcp.rs` a
//! connection.

mod outside;
mod tcp;

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{Port, PortStatistics};
use asterism_io::seqlock::{Seqlock, WORDS_MAX};
use asterism_memory::hash;
use asterism_packet::{Protocol, TcpFlags, build};
use asterism_placement::Time;

use super::client::{PROBE, right_datagram, write_datagram};
use super::endpoints::{self, ENDPOINTS, End};
use super::payload::{Datagram, Direction};
use super::received::{self, Ends, PAYLOAD_MAX, Received};
use super::router::Router;
use super::statistics::{self, PUBLISH_INTERVAL, ServerCounts};
use super::tcp::Arrived;
use super::wheel::Wheel;
use super::{Asked, TrafficConfig};
use crate::addresses::LinkSide;

use outside::OutsideEndpoints;
use tcp::{Outcome, ServerConnection};

/// A flow that was silent for so long uses its outside endpoint no more, whether or not its end was seen.
const SILENT_MAX: Duration = Duration::from_secs(5);
/// Timers that are looked at in a round.
const PER_ROUND: usize = 64;
/// Frames for which the station keeps place in its queue while timers fire: those for answers.
const PLACES_KEPT: usize = 128;

/// A UDP flow.
#[derive(Clone, Copy, Debug)]
struct UdpRecord {
    flow: u64,
    outside: End,
    /// The latest request, and which of the 64 up to it have arrived.
    latest: u32,
    arrived: u64,
    is_over: bool,
    has_moved: bool,
    seen: Time,
}

impl UdpRecord {
    /// Notes a request; false if it arrived before.
    fn note(&mut self, sequence: u32) -> bool {
        if sequence > self.latest {
            let ahead = sequence - self.latest;
            self.arrived = self.arrived.checked_shl(ahead).unwrap_or(0) | 1;
            self.latest = sequence;
            return true;
        }
        let behind = self.latest - sequence;
        let bit = 1_u64.checked_shl(behind).unwrap_or(0);
        let is_new = self.arrived & bit == 0 && bit != 0;
        self.arrived |= bit;
        is_new
    }
}

/// The station.
pub(super) struct Servers {
    seed: u64,
    pace_us: u64,
    asked: Arc<Asked>,
    published: Arc<Seqlock>,
    words: Vec<u64>,
    counts: ServerCounts,
    marks: u64,
    router: Router,
    now: Time,
    publish_due: Time,
    outside: OutsideEndpoints,
    /// By endpoint number.
    udp: Box<[Option<UdpRecord>]>,
    tcp: Box<[Option<ServerConnection>]>,
    wheel: Wheel,
    incoming: Box<[u8; PAYLOAD_MAX]>,
    outgoing: Box<[u8; PAYLOAD_MAX]>,
    port: PortStatistics,
}

impl Servers {
    pub(super) fn new(
        config: &TrafficConfig,
        outside_addresses: u8,
        asked: Arc<Asked>,
        published: Arc<Seqlock>,
    ) -> Servers {
        Servers {
            seed: config.seed,
            pace_us: config.tcp_pace.as_micros() as u64,
            asked,
            published,
            words: Vec::with_capacity(WORDS_MAX),
            counts: ServerCounts::default(),
            marks: 0,
            router: Router::new(LinkSide::Outside),
            now: Time::ZERO,
            publish_due: Time::ZERO,
            outside: OutsideEndpoints::new(outside_addresses),
            udp: vec![None; ENDPOINTS as usize].into(),
            tcp: vec![None; ENDPOINTS as usize].into(),
            wheel: Wheel::new(ENDPOINTS as usize),
            incoming: Box::new([0; PAYLOAD_MAX]),
            outgoing: Box::new([0; PAYLOAD_MAX]),
            port: PortStatistics::default(),
        }
    }

    fn publish(&mut self) {
        self.publish_due = self.now.saturating_add(PUBLISH_INTERVAL);
        let marks = self.asked.marks.load(Ordering::Relaxed);
        if marks != self.marks {
            self.marks = marks;
            self.counts.last_retransmission_us = 0;
        }
        self.counts.at_us = self.now.as_micros();
        self.counts.sent = self.router.sent;
        self.counts.not_sent = self.router.not_sent;
        statistics::write_server(&self.counts, &mut self.words);
        self.published.publish(&self.words);
    }

    fn take(&mut self, bytes: &mut [u8]) -> Received {
        self.counts.received += 1;
        let received = received::take_apart(bytes, LinkSide::Outside, &mut self.incoming);
        match received {
            Received::NotForUs => self.counts.not_for_us += 1,
            Received::Unexpected => self.counts.wrong_bytes += 1,
            Received::Refusal => self.counts.refusals += 1,
            Received::WrongChecksum => self.counts.wrong_checksum += 1,
            Received::Arp(_) | Received::Udp(..) | Received::Tcp(..) => {}
        }
        received
    }

    /// The endpoint number of a translated packet's flow, and the place of its outside endpoint.
    fn endpoint_of(&mut self, ends: &Ends) -> Option<(u32, usize)> {
        let Some(place) = self.outside.place(ends.source) else {
            self.counts.wrong_source += 1;
            return None;
        };
        let endpoint = endpoints::of_server(ends.destination);
        self.counts.wrong_flow += u64::from(endpoint.is_none());
        if endpoint.is_some() && self.counts.first_translated_us == 0 {
            self.counts.first_translated_us = self.now.as_micros().max(1);
        }
        Some((endpoint?, place))
    }

    // --- UDP

    fn take_request(&mut self, pool: &mut FramePool, ends: &Ends, length: usize) {
        let Some((endpoint, place)) = self.endpoint_of(ends) else {
            return;
        };
        let payload = &self.incoming[..length];
        let Some(datagram) = right_datagram(Direction::Up, self.seed, payload) else {
            self.counts.wrong_bytes += 1;
            return;
        };
        if datagram.flow != PROBE && !self.note_request(endpoint, place, ends.source, &datagram) {
            return;
        }
        let Some(header) = self
            .router
            .header(ends.destination.address, ends.source.address)
        else {
            return;
        };
        let payload = &mut self.outgoing[..length];
        write_datagram(&datagram, Direction::Down, self.seed, payload);
        let payload = &self.outgoing[..length];
        let (from, to) = (ends.destination.port, ends.source.port);
        self.router
            .emit(pool, |out| build::udp4(&header, from, to, payload, out));
    }

    /// Notes a request of a flow; whether it is answered.
    fn note_request(
        &mut self,
        endpoint: u32,
        place: usize,
        source: End,
        datagram: &Datagram,
    ) -> bool {
        let Some(slot) = self.udp.get_mut(endpoint as usize) else {
            return false;
        };
        let is_new = slot.is_none_or(|record| record.flow < datagram.flow);
        let mut record = match *slot {
            Some(record) if !is_new => record,
            _ => UdpRecord {
                flow: datagram.flow,
                outside: source,
                latest: datagram.sequence,
                arrived: 0,
                is_over: false,
                has_moved: false,
                seen: self.now,
            },
        };
        if record.flow != datagram.flow {
            // Of a flow before this one: it was on its way for long.
            self.counts.duplicated += 1;
            return false;
        }
        let has_moved = record.outside != source;
        if has_moved && datagram.answered == 0 {
            self.counts.moved_while_opening += 1;
        } else if has_moved && !record.has_moved {
            self.counts.moved += 1;
            record.has_moved = true;
        }
        record.outside = source;
        record.seen = self.now;
        record.is_over |= datagram.sequence.saturating_add(1) >= datagram.total;
        // A request that arrives again is answered again, as real servers do.
        if record.note(datagram.sequence) {
            self.counts.requests += 1;
        } else {
            self.counts.duplicated += 1;
        }
        *slot = Some(record);
        if (is_new || has_moved)
            && let Some(other) = self.outside.claim(Protocol::UDP, place, endpoint)
            && let Some(other) = self.udp.get(other as usize).copied().flatten()
            && other.outside == source
            && !other.is_over
            && self.now.since(other.seen) < SILENT_MAX
        {
            self.counts.shared += 1;
        }
        true
    }

    // --- TCP

    fn take_segment(&mut self, pool: &mut FramePool, ends: &Ends, segment: &Arrived) {
        let Some((endpoint, place)) = self.endpoint_of(ends) else {
            return;
        };
        let is_opening =
            segment.flags.contains(TcpFlags::SYN) && !segment.flags.contains(TcpFlags::ACK);
        let before = self.tcp.get(endpoint as usize).copied().flatten();
        let is_known =
            before.is_some_and(|one| !is_opening || one.connection.was_opened_by(segment.sequence));
        let mut is_claimed = false;
        let mut record = match before {
            Some(record) if is_known => record,
            _ if is_opening => {
                self.counts.tcp_opened += 1;
                is_claimed = true;
                let initial = hash::words(
                    u64::from(segment.sequence),
                    self.counts.tcp_opened,
                    self.seed,
                );
                ServerConnection::new(
                    ends.source,
                    initial as u32,
                    segment.sequence,
                    self.pace_us,
                    self.now,
                )
            }
            _ => {
                self.counts.wrong_flow += 1;
                return;
            }
        };
        if record.outside != ends.source {
            if is_opening && !record.connection.is_established() {
                self.counts.moved_while_opening += 1;
                record.outside = ends.source;
                is_claimed = true;
            } else {
                // A real server knows no such connection.
                self.counts.moved += u64::from(!record.has_moved);
                record.has_moved = true;
                self.tcp[endpoint as usize] = Some(record);
                return;
            }
        }
        record.seen = self.now;
        let payload = &self.incoming[..segment.bytes as usize];
        match record.take(segment, self.seed, payload, self.now) {
            Outcome::Right { bytes } => self.counts.uploaded_bytes += u64::from(bytes),
            Outcome::Wrong => self.counts.wrong_bytes += 1,
            Outcome::Reset => {
                self.counts.tcp_failed += u64::from(!record.is_over);
                record.is_over = true;
            }
        }
        self.tcp[endpoint as usize] = Some(record);
        if is_claimed
            && let Some(other) = self.outside.claim(Protocol::TCP, place, endpoint)
            && let Some(other) = self.tcp.get(other as usize).copied().flatten()
            && other.outside == ends.source
            && !other.is_over
            && self.now.since(other.seen) < SILENT_MAX
        {
            self.counts.shared += 1;
        }
        self.continue_tcp(pool, endpoint);
    }

    /// Does what is due of a connection, and sets its timer.
    fn continue_tcp(&mut self, pool: &mut FramePool, endpoint: u32) {
        let place = endpoint as usize;
        let Some(mut record) = self.tcp[place].take() else {
            return;
        };
        if !record.is_over && !record.connection.handle_timeout(self.now) {
            self.counts.tcp_failed += 1;
            record.is_over = true;
        }
        let from = endpoints::server(endpoint);
        while self.router.room() > 0
            && let Some(segment) = record.connection.poll_transmit(self.now)
        {
            if segment.is_retransmission {
                self.counts.retransmissions += 1;
                self.counts.last_retransmission_us = self.now.as_micros();
            }
            let payload = &mut self.outgoing[..segment.bytes as usize];
            record.write(self.seed, segment.offset, payload);
            let payload = &self.outgoing[..segment.bytes as usize];
            let Some(header) = self.router.header(from.address, record.outside.address) else {
                break;
            };
            let (fields, to) = (segment.fields(), record.outside.port);
            self.router.emit(pool, |out| {
                build::tcp4(&header, from.port, to, &fields, payload, out)
            });
        }
        if record.connection.is_over() && !record.is_over {
            self.counts.tcp_complete += 1;
            record.is_over = true;
        }
        match record.connection.poll_timeout().filter(|_| !record.is_over) {
            Some(due) => self.wheel.set(endpoint, due),
            None => self.wheel.cancel(endpoint),
        }
        self.tcp[place] = Some(record);
    }
}

impl Port for Servers {
    fn name(&self) -> &str {
        "servers"
    }

    fn advance(&mut self, now: Time) {
        self.now = now;
        if now >= self.publish_due {
            self.publish();
        }
    }

    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let before = burst.len();
        self.router.ask(pool, self.now);
        for _ in 0..PER_ROUND {
            if self.router.room() < PLACES_KEPT {
                break;
            }
            let Some(endpoint) = self.wheel.expire(self.now) else {
                break;
            };
            self.continue_tcp(pool, endpoint);
        }
        self.router.hand_out(burst);
        let added = burst.len() - before;
        self.port.received_packets += added as u64;
        added
    }

    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let count = burst.len();
        for mut frame in burst.drain() {
            match self.take(pool.bytes_mut(&mut frame)) {
                Received::Arp(arp) => self.router.take_arp(&arp, pool, self.now),
                Received::Udp(ends, length) => self.take_request(pool, &ends, length),
                Received::Tcp(ends, segment) => self.take_segment(pool, &ends, &segment),
                Received::Unexpected
                | Received::WrongChecksum
                | Received::Refusal
                | Received::NotForUs => {}
            }
            pool.release(frame);
        }
        self.port.sent_packets += count as u64;
        count
    }

    fn statistics(&self) -> PortStatistics {
        self.port
    }

    fn next_due(&self) -> Option<Time> {
        if self.router.has_frames() {
            return Some(self.now);
        }
        let others = [
            Some(self.publish_due),
            Some(self.router.ask_due()),
            self.wheel.next_due(),
        ];
        others.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_arrive_again_are_noticed() {
        let mut record = UdpRecord {
            flow: 1,
            outside: endpoints::server(1),
            latest: 0,
            arrived: 0,
            is_over: false,
            has_moved: false,
            seen: Time::ZERO,
        };
        assert!(record.note(0) && !record.note(0));
        assert!(record.note(5) && record.note(3) && !record.note(3) && !record.note(5));
        assert!(record.note(500) && !record.note(5), "too old to know");
        assert!(record.note(499) && !record.note(500));
    }
}
