//! The thread of a network: rounds while there are packets, and sleep on the hosts' links while there are none.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use asterism_director::Director;
use asterism_io::clock::MonotonicClock;
use asterism_io::port::{LinkState, Port};
use asterism_io::seqlock::{Seqlock, WORDS_MAX};
use asterism_placement::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::DIRECTORS_MAX;
use crate::addresses::{HOSTS_MAX, LinkSide};
use crate::cable::CablePort;
use crate::segment::{PORTS_MAX, PortNumber, Segment};
use crate::traffic::PUBLISH_INTERVAL;

/// Rounds without a packet before the thread sleeps.
const IDLE_ROUNDS: u32 = 32;
/// The longest sleep: how long a command for a director, or a change of the network, waits at most.
const SLEEP_MAX: Duration = Duration::from_millis(1);
/// Words that are published for each host.
pub(super) const HOST_WORDS: usize = 7;

/// A change of the network.
pub(super) enum Order {
    /// The links of a host with this number.
    AddHost(u8, [Box<dyn Port>; 2]),
    /// The host goes.
    RemoveHost(u8),
    /// The director goes.
    EndDirector(usize),
    /// A director, and the segments' ends of its cables.
    StartDirector(usize, Box<Director>, Box<[CablePort; 2]>),
}

/// A director and its ports of the segments.
struct Placed {
    director: Director,
    ports: [Option<PortNumber>; 2],
}

/// What the thread has.
pub(super) struct Turning {
    segments: [Segment; 2],
    directors: [Option<Placed>; DIRECTORS_MAX],
    hosts: [[Option<PortNumber>; 2]; HOSTS_MAX],
    clock: MonotonicClock,
    orders: Receiver<Order>,
    published: Arc<Seqlock>,
    words: Vec<u64>,
    publish_due: Time,
}

impl Turning {
    pub(super) fn new(
        segments: [Segment; 2],
        clock: MonotonicClock,
        orders: Receiver<Order>,
        published: Arc<Seqlock>,
    ) -> Turning {
        Turning {
            segments,
            directors: [const { None }; DIRECTORS_MAX],
            hosts: [[None; 2]; HOSTS_MAX],
            clock,
            orders,
            published,
            words: Vec::with_capacity(WORDS_MAX),
            publish_due: Time::ZERO,
        }
    }

    /// Attaches a host's links. There is a port for each of so many hosts, and a place for each of their addresses.
    pub(super) fn add_host(&mut self, number: u8, links: [Box<dyn Port>; 2]) {
        self.remove_host(number);
        let placed = self.segments.iter_mut().zip(links).zip(LinkSide::BOTH);
        let ports = placed.map(|((segment, link), side)| {
            let port = segment.add_port(link).ok()?;
            segment.add_station(side.host_mac(number), port).ok()?;
            Some(port)
        });
        if let Some(place) = self.hosts.get_mut(usize::from(number)) {
            for (place, port) in place.iter_mut().zip(ports) {
                *place = port;
            }
        }
    }

    fn remove_host(&mut self, number: u8) {
        let Some(place) = self.hosts.get_mut(usize::from(number)) else {
            return;
        };
        remove_ports(&mut self.segments, core::mem::take(place));
    }

    /// Attaches a director, in the place of one with this number.
    pub(super) fn add_director(
        &mut self,
        number: usize,
        director: Director,
        cables: [CablePort; 2],
    ) {
        self.end_director(number);
        let mut ports = [None; 2];
        let placed = self.segments.iter_mut().zip(cables).zip(LinkSide::BOTH);
        for (place, ((segment, cable), side)) in ports.iter_mut().zip(placed) {
            let port = segment.add_port(Box::new(cable)).ok();
            *place = port.filter(|port| {
                let mac = side.director_mac(number as u8);
                segment.add_station(mac, *port).is_ok()
            });
        }
        if let Some(place) = self.directors.get_mut(number) {
            *place = Some(Placed { director, ports });
        }
    }

    fn end_director(&mut self, number: usize) {
        let placed = self.directors.get_mut(number).and_then(Option::take);
        if let Some(placed) = placed {
            remove_ports(&mut self.segments, placed.ports);
        }
    }

    /// Turns until `stop` is set.
    pub(super) fn run(mut self, stop: &AtomicBool) {
        let mut idle = 0;
        while !stop.load(Ordering::Relaxed) {
            let now = self.clock.now();
            if self.turn(now) > 0 {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle < IDLE_ROUNDS {
                continue;
            }
            self.take_orders();
            if now >= self.publish_due {
                self.publish(now);
            }
            self.sleep();
        }
    }

    /// One round; how many frames were received.
    fn turn(&mut self, now: Time) -> usize {
        let mut received = 0;
        for segment in &mut self.segments {
            received += segment.turn(now);
        }
        for placed in self.directors.iter_mut().flatten() {
            received += placed.director.turn(now);
        }
        // A busy network publishes and changes too.
        if received > 0 && now >= self.publish_due {
            self.take_orders();
            self.publish(now);
        }
        received
    }

    fn take_orders(&mut self) {
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::AddHost(number, links) => self.add_host(number, links),
                Order::RemoveHost(number) => self.remove_host(number),
                Order::EndDirector(number) => self.end_director(number),
                Order::StartDirector(number, director, cables) => {
                    self.add_director(number, *director, *cables);
                }
            }
        }
    }

    fn sleep(&mut self) {
        for segment in &mut self.segments {
            segment.flush();
        }
        let now = self.clock.now();
        let segments = self.segments.iter().filter_map(Segment::next_due);
        let directors = self.directors.iter().flatten();
        let due = segments
            .chain(directors.map(|placed| placed.director.next_due()))
            .fold(now.saturating_add(SLEEP_MAX), Time::min);
        let until_due = due.since(now);
        if until_due.is_zero() {
            return;
        }
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: until_due.subsec_nanos().into(),
        };
        let mut waited = Vec::with_capacity(2 * PORTS_MAX);
        for segment in &self.segments {
            let descriptors = segment.wait_descriptors();
            waited.extend(
                descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)),
            );
        }
        // Interrupted or failed, the thread turns and looks again.
        let _ = poll(&mut waited, Some(&timeout));
    }

    fn publish(&mut self, now: Time) {
        self.publish_due = now.saturating_add(PUBLISH_INTERVAL);
        self.words.clear();
        self.words.push(now.as_micros());
        for segment in &self.segments {
            segment.statistics().write(&mut self.words);
        }
        for ports in &self.hosts {
            let mut fields = [0; HOST_WORDS];
            for (side, port) in ports.iter().enumerate() {
                let Some((counts, link)) = port.and_then(|port| self.segments[side].port(port))
                else {
                    continue;
                };
                fields[0] |= u64::from(link == LinkState::Up) << side;
                fields[1 + side] = counts.sent_packets;
                fields[3 + side] = counts.received_packets;
                fields[5 + side] = counts.dropped_total();
            }
            self.words.extend(fields);
        }
        self.published.publish(&self.words);
    }
}

fn remove_ports(segments: &mut [Segment; 2], ports: [Option<PortNumber>; 2]) {
    for (segment, port) in segments.iter_mut().zip(ports) {
        if let Some(port) = port {
            // It was added.
            let _ = segment.remove_port(port);
        }
    }
}
