//! The clients: a station of the inside segment that begins flows, answers for their state machines, and checks all that arrives.
//!
//! `udp.rs` has a flow's requests, `tcp.rs` a connection's script; this file has the station, its clock and its counts.

mod tcp;
mod udp;

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{Port, PortStatistics};
use asterism_io::seqlock::{Seqlock, WORDS_MAX};
use asterism_memory::hash;
use asterism_packet::build;
use asterism_placement::Time;

use super::endpoints::{self, ENDPOINTS};
use super::histogram::RoundTrips;
use super::payload::{self, Datagram, Direction};
use super::received::{self, Ends, PAYLOAD_MAX, Received};
use super::router::Router;
use super::statistics::{self, ClientCounts, PUBLISH_INTERVAL};
use super::wheel::Wheel;
use super::{Asked, TrafficConfig};
use crate::addresses::LinkSide;

use tcp::TcpFlow;
use udp::{Answer, Ended, UdpFlow};

/// Time between two probes, until one was answered.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);
/// The number of the flow that probes are of.
pub(super) const PROBE: u64 = u64::MAX;
/// Flows that begin in one round at most, and timers that are looked at.
const PER_ROUND: usize = 64;
/// Endpoints that are looked at for a free one when a flow begins.
const TRIES_MAX: u32 = 16;
/// Frames for which a station keeps place in its queue while it begins and continues flows: those for answers.
const PLACES_KEPT: usize = 128;

/// When flows of a protocol begin.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    interval_us: u64,
    due: Time,
    next_endpoint: u32,
}

impl Beginning {
    fn new(per_second: u32, first: u32) -> Beginning {
        Beginning {
            interval_us: 1_000_000_u64
                .checked_div(u64::from(per_second))
                .unwrap_or(0),
            due: Time::ZERO,
            next_endpoint: first,
        }
    }

    /// Whether a flow is to begin now. Those that were due long ago are left out.
    fn is_due(&mut self, now: Time) -> bool {
        if self.interval_us == 0 || now < self.due {
            return false;
        }
        let interval = Duration::from_micros(self.interval_us);
        let behind = now.since(self.due) > Duration::from_millis(100);
        let from = if behind { now } else { self.due };
        self.due = from.saturating_add(interval);
        true
    }

    fn next_due(&self) -> Option<Time> {
        (self.interval_us > 0).then_some(self.due)
    }
}

/// The station.
pub(super) struct Clients {
    config: TrafficConfig,
    asked: Arc<Asked>,
    published: Arc<Seqlock>,
    words: Vec<u64>,
    counts: ClientCounts,
    trips: RoundTrips,
    router: Router,
    now: Time,
    publish_due: Time,
    probe_due: Time,
    udp_begins: Beginning,
    tcp_begins: Beginning,
    /// The number of the next flow.
    next_flow: u64,
    /// By endpoint number; timers of TCP follow those of UDP.
    udp: Box<[Option<UdpFlow>]>,
    tcp: Box<[Option<TcpFlow>]>,
    wheel: Wheel,
    incoming: Box<[u8; PAYLOAD_MAX]>,
    outgoing: Box<[u8; PAYLOAD_MAX]>,
    port: PortStatistics,
}

impl Clients {
    pub(super) fn new(
        config: TrafficConfig,
        asked: Arc<Asked>,
        published: Arc<Seqlock>,
    ) -> Clients {
        Clients {
            udp_begins: Beginning::new(config.udp_flows_per_second, 0),
            tcp_begins: Beginning::new(config.tcp_connections_per_second, 0),
            config,
            asked,
            published,
            words: Vec::with_capacity(WORDS_MAX),
            counts: ClientCounts::default(),
            trips: RoundTrips::default(),
            router: Router::new(LinkSide::Inside),
            now: Time::ZERO,
            publish_due: Time::ZERO,
            probe_due: Time::ZERO,
            next_flow: 1,
            udp: vec![None; ENDPOINTS as usize].into(),
            tcp: vec![None; ENDPOINTS as usize].into(),
            wheel: Wheel::new(2 * ENDPOINTS as usize),
            incoming: Box::new([0; PAYLOAD_MAX]),
            outgoing: Box::new([0; PAYLOAD_MAX]),
            port: PortStatistics::default(),
        }
    }

    fn has_begun(&self) -> bool {
        self.counts.first_answer_us > 0
    }

    fn count_silence(&mut self, silence: Duration) {
        let us = silence.as_micros() as u64;
        if us > self.counts.longest_silence_us {
            self.counts.longest_silence_us = us;
            self.counts.longest_silence_at_us = self.now.as_micros();
        }
    }

    fn publish(&mut self) {
        self.publish_due = self.now.saturating_add(PUBLISH_INTERVAL);
        let marks = self.asked.marks.load(Ordering::Relaxed);
        if marks != self.counts.marks {
            self.counts.marks = marks;
            self.counts.first_lost_us = 0;
            self.counts.last_lost_us = 0;
            self.counts.last_retransmission_us = 0;
            self.counts.longest_silence_us = 0;
            self.counts.longest_silence_at_us = 0;
            self.trips.clear();
        }
        self.counts.at_us = self.now.as_micros();
        self.counts.sent = self.router.sent;
        self.counts.not_sent = self.router.not_sent;
        statistics::write_client(&self.counts, &self.trips, &mut self.words);
        self.published.publish(&self.words);
    }

    // --- sending

    fn probe(&mut self, pool: &mut FramePool) {
        self.probe_due = self.now.saturating_add(PROBE_INTERVAL);
        let sequence = self.counts.probes as u32;
        if self.send_request(pool, sequence % ENDPOINTS, PROBE, sequence, 0) {
            self.counts.probes += 1;
        }
    }

    fn send_request(
        &mut self,
        pool: &mut FramePool,
        endpoint: u32,
        flow: u64,
        sequence: u32,
        answered: u32,
    ) -> bool {
        let (from, to) = (endpoints::client(endpoint), endpoints::server(endpoint));
        let Some(header) = self.router.header(from.address, to.address) else {
            return false;
        };
        let datagram = Datagram {
            flow,
            sequence,
            total: self.config.udp_requests,
            answered,
        };
        let length = usize::from(self.config.udp_bytes);
        let payload = &mut self.outgoing[..length];
        write_datagram(&datagram, Direction::Up, self.config.seed, payload);
        let payload = &self.outgoing[..length];
        self.router.emit(pool, |out| {
            build::udp4(&header, from.port, to.port, payload, out)
        })
    }

    fn begin_flows(&mut self, pool: &mut FramePool) {
        if !self.has_begun() || !self.asked.begins_flows.load(Ordering::Relaxed) {
            return;
        }
        let flows_max = u64::from(self.config.flows_max);
        for _ in 0..PER_ROUND {
            if self.router.room() < PLACES_KEPT || !self.udp_begins.is_due(self.now) {
                break;
            }
            let endpoint = free_endpoint(&mut self.udp_begins, &self.udp);
            let Some(endpoint) = endpoint.filter(|_| self.counts.udp_now < flows_max) else {
                self.counts.postponed += 1;
                continue;
            };
            let flow = self.number_flow();
            self.counts.udp_begun += 1;
            self.counts.udp_now += 1;
            let requests = self.config.udp_requests;
            self.udp[endpoint as usize] = Some(UdpFlow::new(flow, requests, self.now));
            self.continue_udp(pool, endpoint);
        }
        for _ in 0..PER_ROUND {
            if self.router.room() < PLACES_KEPT || !self.tcp_begins.is_due(self.now) {
                break;
            }
            let endpoint = free_tcp(&mut self.tcp_begins, &self.tcp);
            let Some(endpoint) = endpoint.filter(|_| self.counts.tcp_now < flows_max) else {
                self.counts.postponed += 1;
                continue;
            };
            let flow = self.number_flow();
            self.counts.tcp_begun += 1;
            self.counts.tcp_now += 1;
            let initial = hash::word(flow, self.config.seed) as u32;
            self.tcp[endpoint as usize] = Some(TcpFlow::new(flow, initial, &self.config, self.now));
            self.continue_tcp(pool, endpoint);
        }
    }

    fn number_flow(&mut self) -> u64 {
        self.next_flow += 1;
        self.next_flow - 1
    }

    /// Does what is due of a UDP flow, and sets its timer.
    fn continue_udp(&mut self, pool: &mut FramePool, endpoint: u32) {
        let place = endpoint as usize;
        let Some(mut flow) = self.udp[place].take() else {
            return;
        };
        while let Some(sent) = flow.poll_lost(self.now) {
            let sent_us = sent.as_micros();
            self.counts.lost += 1;
            self.counts.last_lost_us = self.counts.last_lost_us.max(sent_us);
            if self.counts.first_lost_us == 0 || sent_us < self.counts.first_lost_us {
                self.counts.first_lost_us = sent_us;
            }
        }
        if let Some(sequence) = flow.poll_transmit(self.config.udp_interval, self.now) {
            self.counts.requests += 1;
            // One that is not sent counts as lost, and in `not_sent`.
            self.send_request(pool, endpoint, flow.flow, sequence, flow.answers);
        }
        match flow.ended() {
            Some(ended) => {
                self.counts.udp_now -= 1;
                match ended {
                    Ended::Well => self.counts.udp_ended += 1,
                    Ended::Failed => {
                        self.counts.udp_failed += 1;
                        self.count_silence(flow.silence(self.now));
                    }
                }
                self.wheel.cancel(endpoint);
            }
            None => {
                if let Some(due) = flow.poll_timeout() {
                    self.wheel.set(endpoint, due);
                }
                self.udp[place] = Some(flow);
            }
        }
    }

    /// Does what is due of a connection, and sets its timer.
    fn continue_tcp(&mut self, pool: &mut FramePool, endpoint: u32) {
        let place = endpoint as usize;
        let Some(mut flow) = self.tcp[place].take() else {
            return;
        };
        if !flow.is_ended && !flow.connection.handle_timeout(self.now) {
            self.counts.tcp_failed += 1;
            self.end_tcp(&mut flow);
        }
        let (from, to) = (endpoints::client(endpoint), endpoints::server(endpoint));
        while self.router.room() > 0
            && let Some(segment) = flow.connection.poll_transmit(self.now)
        {
            flow.waits_since.get_or_insert(self.now);
            if segment.is_retransmission {
                self.counts.retransmissions += 1;
                self.counts.last_retransmission_us = self.now.as_micros();
            }
            let payload = &mut self.outgoing[..segment.bytes as usize];
            flow.write(self.config.seed, segment.offset, payload);
            let payload = &self.outgoing[..segment.bytes as usize];
            let Some(header) = self.router.header(from.address, to.address) else {
                break;
            };
            let fields = segment.fields();
            self.router.emit(pool, |out| {
                build::tcp4(&header, from.port, to.port, &fields, payload, out)
            });
        }
        if flow.is_complete() && !flow.is_ended {
            self.counts.tcp_complete += 1;
            self.end_tcp(&mut flow);
        }
        let timer = ENDPOINTS + endpoint;
        match flow.connection.poll_timeout().filter(|_| !flow.is_ended) {
            Some(due) => self.wheel.set(timer, due),
            None => self.wheel.cancel(timer),
        }
        self.tcp[place] = Some(flow);
    }

    /// Ends a connection, which stays to answer what its server sends again, until its endpoint is another's.
    fn end_tcp(&mut self, flow: &mut TcpFlow) {
        self.count_silence(flow.silence(self.now));
        flow.is_ended = true;
        self.counts.tcp_now -= 1;
    }

    // --- receiving

    fn take(&mut self, bytes: &mut [u8]) -> Received {
        self.counts.received += 1;
        let received = received::take_apart(bytes, LinkSide::Inside, &mut self.incoming);
        match received {
            Received::NotForUs => self.counts.not_for_us += 1,
            Received::Unexpected => self.counts.wrong_bytes += 1,
            Received::Refusal => self.counts.refusals += 1,
            Received::WrongChecksum => self.counts.wrong_checksum += 1,
            Received::Arp(_) | Received::Udp(..) | Received::Tcp(..) => {}
        }
        received
    }

    /// The endpoint number of a packet that is from the server of its client's flow.
    fn endpoint_of(&mut self, ends: &Ends) -> Option<u32> {
        let endpoint = endpoints::of_client(ends.destination);
        let endpoint = endpoint.filter(|one| endpoints::server(*one) == ends.source);
        self.counts.wrong_flow += u64::from(endpoint.is_none());
        endpoint
    }

    fn take_answer(&mut self, pool: &mut FramePool, ends: &Ends, length: usize) {
        let Some(endpoint) = self.endpoint_of(ends) else {
            return;
        };
        let payload = &self.incoming[..length];
        let Some(datagram) = right_datagram(Direction::Down, self.config.seed, payload) else {
            self.counts.wrong_bytes += 1;
            return;
        };
        if datagram.flow == PROBE {
            if !self.has_begun() {
                self.counts.first_answer_us = self.now.as_micros().max(1);
                (self.udp_begins.due, self.tcp_begins.due) = (self.now, self.now);
            }
            return;
        }
        let flow = self.udp[endpoint as usize].as_mut();
        let Some(flow) = flow.filter(|flow| flow.flow == datagram.flow) else {
            // Of a flow that has ended: its last requests were lost, or this is a duplicate.
            self.counts.late += 1;
            return;
        };
        let (answer, silence) = flow.take(datagram.sequence, self.now);
        match answer {
            Answer::Taken(trip) => {
                self.counts.answers += 1;
                self.trips.count(trip.as_micros() as u64);
            }
            Answer::Late => self.counts.late += 1,
            Answer::Duplicate => self.counts.duplicated += 1,
            Answer::Unknown => self.counts.wrong_flow += 1,
        }
        self.count_silence(silence);
        self.continue_udp(pool, endpoint);
    }

    fn take_segment(&mut self, pool: &mut FramePool, ends: &Ends, segment: &super::tcp::Arrived) {
        let Some(endpoint) = self.endpoint_of(ends) else {
            return;
        };
        let Some(flow) = &mut self.tcp[endpoint as usize] else {
            self.counts.wrong_flow += 1;
            return;
        };
        let silence = flow.end_silence(self.now);
        let payload = &self.incoming[..segment.bytes as usize];
        match flow.take(segment, self.config.seed, payload, self.now) {
            tcp::Outcome::Right { bytes } => self.counts.downloaded_bytes += u64::from(bytes),
            tcp::Outcome::Wrong => self.counts.wrong_bytes += 1,
            tcp::Outcome::Reset if !flow.is_ended => {
                self.counts.tcp_failed += 1;
                self.counts.tcp_reset += 1;
                flow.is_ended = true;
                self.counts.tcp_now -= 1;
            }
            tcp::Outcome::Reset => {}
        }
        self.count_silence(silence);
        self.continue_tcp(pool, endpoint);
    }
}

/// The next endpoint that no flow has, if one of the next few has none.
fn free_endpoint(begins: &mut Beginning, flows: &[Option<UdpFlow>]) -> Option<u32> {
    next_free(begins, |endpoint| {
        flows.get(endpoint as usize).is_some_and(Option::is_none)
    })
}

/// The same of TCP, whose ended connections stay.
fn free_tcp(begins: &mut Beginning, flows: &[Option<TcpFlow>]) -> Option<u32> {
    next_free(begins, |endpoint| {
        let flow = flows.get(endpoint as usize).and_then(Option::as_ref);
        flow.is_none_or(|flow| flow.is_ended)
    })
}

fn next_free(begins: &mut Beginning, is_free: impl Fn(u32) -> bool) -> Option<u32> {
    for _ in 0..TRIES_MAX {
        let endpoint = begins.next_endpoint;
        begins.next_endpoint = (endpoint + 1) % ENDPOINTS;
        if is_free(endpoint) {
            return Some(endpoint);
        }
    }
    None
}

fn datagram_key(seed: u64, datagram: &Datagram, direction: Direction) -> u64 {
    let key = payload::key(seed, datagram.flow, direction);
    hash::word(u64::from(datagram.sequence), key)
}

/// Writes a datagram's payload, which is at least a header long.
pub(super) fn write_datagram(
    datagram: &Datagram,
    direction: Direction,
    seed: u64,
    payload: &mut [u8],
) {
    if let Some((header, pattern)) = payload.split_first_chunk_mut() {
        datagram.write(direction, header);
        payload::fill(pattern, datagram_key(seed, datagram, direction), 0);
    }
}

/// The header of a payload, all of whose bytes are right.
pub(super) fn right_datagram(direction: Direction, seed: u64, payload: &[u8]) -> Option<Datagram> {
    let datagram = Datagram::read(direction, payload)?;
    let key = datagram_key(seed, &datagram, direction);
    payload::is_right(&payload[Datagram::BYTES..], key, 0).then_some(datagram)
}

impl Port for Clients {
    fn name(&self) -> &str {
        "clients"
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
        if self.router.knows_gateway() {
            if !self.has_begun() && self.now >= self.probe_due {
                self.probe(pool);
            }
            self.begin_flows(pool);
        }
        for _ in 0..PER_ROUND {
            if self.router.room() < PLACES_KEPT {
                break;
            }
            let Some(timer) = self.wheel.expire(self.now) else {
                break;
            };
            if timer < ENDPOINTS {
                self.continue_udp(pool, timer);
            } else {
                self.continue_tcp(pool, timer - ENDPOINTS);
            }
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
                Received::Udp(ends, length) => self.take_answer(pool, &ends, length),
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
        let begins = self.asked.begins_flows.load(Ordering::Relaxed) && self.has_begun();
        let flows = [self.udp_begins.next_due(), self.tcp_begins.next_due()];
        let probe = (!self.has_begun() && self.router.knows_gateway()).then_some(self.probe_due);
        let others = [
            Some(self.publish_due),
            Some(self.router.ask_due()),
            self.wheel.next_due(),
            probe,
        ];
        let flows = flows.into_iter().flatten().filter(|_| begins);
        flows.chain(others.into_iter().flatten()).min()
    }
}
