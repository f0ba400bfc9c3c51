//! Whole hosts driven manually, so that the time of each can be distinguished: an instance and its state channel on one
//! thread, and a link that carries sealed datagrams from outbox to inbox.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Destination, HostConfig, Instance, StateChannel, host};
use asterism_function::NetworkFunction;
use asterism_io::frame::{Burst, FramePool};
use asterism_io::link::Network;
use asterism_io::port::{Port, PortStatistics};
use asterism_io::ring::{ByteRing, RingReader, RingWriter};
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::ObjectSettings;

use crate::contract::Failure;
use crate::memory::HugeSlice;
use crate::traffic::SmallFrame;

/// Bytes that Ethernet, IPv4 and UDP put around a datagram, the frame check sequence included.
const AROUND_DATAGRAM_BYTES: u64 = 14 + 4 + 20 + 8;
/// Bytes of the ring that feeds a port: some thousand frames.
const FEED_BYTES: usize = 1 << 20;
/// Buffers of an instance: a burst in and a burst out, and some to spare.
const BUFFERS: usize = 512;
/// Datagram buffers kept at each host for what it sends between two deliveries.
const SPARE_DATAGRAMS: usize = 512;
/// Bytes of a datagram buffer.
const DATAGRAM_BYTES: usize = 2_048;
/// After the last packet the last flush comes within that: a patient one leaves out for 50 ms what nobody decides by.
const LAST_FLUSH: Duration = Duration::from_millis(55);

/// A port that gives the frames put into its ring, and counts and releases what is sent. Allocates nothing.
#[derive(Debug)]
pub(super) struct FedPort {
    feed: RingReader,
    statistics: PortStatistics,
}

impl FedPort {
    /// A port and the end to feed it by.
    pub(super) fn new() -> (Self, RingWriter) {
        let (writer, feed) = ByteRing::new(FEED_BYTES).expect("memory for a ring");
        (
            Self {
                feed,
                statistics: PortStatistics::default(),
            },
            writer,
        )
    }
}

/// Puts a frame into a port's ring; it is seen after [`RingWriter::publish`].
pub(super) fn feed(ring: &mut RingWriter, frame: &SmallFrame) -> Result<(), Failure> {
    ring.try_push(frame)
        .map_err(|_| Failure::Unsound("packets were made faster than they were taken".into()))
}

impl Port for FedPort {
    fn name(&self) -> &str {
        "fed"
    }
    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let before = burst.len();
        while burst.room() > 0 && pool.available() > 0 {
            let Some(frame) = self.feed.next().and_then(|bytes| pool.allocate_copy(bytes)) else {
                break;
            };
            // There is room.
            let _ = burst.push(frame);
        }
        burst.len() - before
    }
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let count = burst.len();
        self.statistics.sent_packets += count as u64;
        pool.release_all(burst);
        count
    }
    fn statistics(&self) -> PortStatistics {
        self.statistics
    }
}

/// The ports of an instance whose first port is fed, and the end to feed it by.
pub(super) fn fed_ports() -> (Vec<Box<dyn Port>>, RingWriter) {
    let (inside, feed) = FedPort::new();
    let (outside, _) = FedPort::new();
    (vec![Box::new(inside), Box::new(outside)], feed)
}

/// What a host is given at its start.
pub(super) struct Start<F> {
    /// The function.
    pub(super) function: Arc<F>,
    /// The ports.
    pub(super) ports: Vec<Box<dyn Port>>,
}

/// A host: everything that its threads would do, done when it is asked to.
pub(super) struct Host<F: NetworkFunction> {
    pub(super) instance: Instance<F>,
    pub(super) mail: Mail,
    /// Datagrams refused while the hosts got to know each other, as a first greeting may be.
    refused_before: u64,
}

/// What a host's state-channel thread has: the channel, and datagrams on their way.
pub(super) struct Mail {
    channel: StateChannel,
    inbox: VecDeque<(u64, Vec<u8>)>,
    outbox: Vec<(Destination, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    sent: Sent,
}

/// What a host sent, in all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    /// Datagrams.
    pub(super) datagrams: u64,
    /// Bytes of their Ethernet frames.
    pub(super) ethernet_bytes: u64,
}

impl Sent {
    /// What came after `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            datagrams: self.datagrams - before.datagrams,
            ethernet_bytes: self.ethernet_bytes - before.ethernet_bytes,
        }
    }
}

impl Mail {
    /// The state channel, for its counts.
    pub(super) fn channel(&self) -> &StateChannel {
        &self.channel
    }

    /// The same, to put a roster in force.
    pub(super) fn channel_mut(&mut self) -> &mut StateChannel {
        &mut self.channel
    }

    /// Datagrams that arrived and were not taken.
    pub(super) fn waiting(&self) -> usize {
        self.inbox.len()
    }

    /// The state channel's share of a pass.
    pub(super) fn pass(&mut self, now: Time, datagrams_max: usize) {
        self.take(now, datagrams_max);
        self.give(now);
    }

    fn take(&mut self, now: Time, datagrams_max: usize) {
        for _ in 0..datagrams_max {
            let Some((from, mut datagram)) = self.inbox.pop_front() else {
                break;
            };
            // Refusals are counted, and looked at when all is over.
            let _ = self.channel.handle(now, from, &mut datagram);
            self.spare.push(datagram);
        }
    }

    fn give(&mut self, now: Time) {
        self.channel.turn(now);
        loop {
            let mut datagram = self.spare.pop().unwrap_or_default();
            let Some(destination) = self.channel.poll_transmit(now, &mut datagram) else {
                self.spare.push(datagram);
                break;
            };
            self.sent.datagrams += 1;
            self.sent.ethernet_bytes += datagram.len() as u64 + AROUND_DATAGRAM_BYTES;
            self.outbox.push((destination, datagram));
        }
    }
}

impl<F: NetworkFunction> Host<F> {
    /// Starts a host.
    pub(super) fn start(
        config: HostConfig,
        now: Time,
        start: Start<F>,
        settings: impl Fn(&str) -> ObjectSettings + 'static,
    ) -> Self {
        let (channel, mut parts) = host(config, now).expect("a sound configuration");
        let pool = FramePool::new(BUFFERS).expect("memory for frames");
        Self {
            instance: parts
                .remove(0)
                .start(start.function, settings, pool, start.ports),
            mail: Mail {
                channel,
                inbox: VecDeque::with_capacity(2 * SPARE_DATAGRAMS),
                outbox: Vec::with_capacity(SPARE_DATAGRAMS),
                spare: Vec::with_capacity(4 * SPARE_DATAGRAMS),
                sent: Sent::default(),
            },
            refused_before: 0,
        }
    }

    /// Datagrams refused so far are as they may be: hosts got to know each other.
    pub(super) fn forgive_refused(&mut self) {
        self.refused_before = refused(&self.mail.channel);
    }

    /// One pass of the host's loop: up to `datagrams_max` datagrams are taken, the instance and the channel have a
    /// turn each, and what is to be sent is sealed.
    pub(super) fn pass(&mut self, now: Time, datagrams_max: usize) {
        self.mail.take(now, datagrams_max);
        self.instance.turn(now);
        self.mail.give(now);
    }

    /// Whether datagrams, or groups of others, wait here.
    pub(super) fn has_work(&self) -> bool {
        !self.mail.inbox.is_empty() || self.instance.is_behind()
    }

    /// What was sent so far.
    pub(super) fn sent(&self) -> Sent {
        self.mail.sent
    }

    /// Datagrams refused since the hosts know each other.
    pub(super) fn refused(&self) -> u64 {
        refused(&self.mail.channel) - self.refused_before
    }

    /// That nothing went wrong.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let tally = self.instance.tally();
        let refused = self.refused();
        if tally.dropped_total() > 0 || tally.groups_bad > 0 || refused > 0 {
            let drops: Vec<_> = tally.drops().collect();
            return Err(Failure::Unsound(format!(
                "packets dropped {drops:?}, groups bad {}, datagrams refused {refused}",
                tally.groups_bad
            )));
        }
        if tally.received != tally.forwarded {
            return Err(Failure::Unsound(format!(
                "{} packets were received and {} forwarded",
                tally.received, tally.forwarded
            )));
        }
        Ok(())
    }
}

/// Datagrams that a channel refused, for any reason.
pub(super) fn refused(channel: &StateChannel) -> u64 {
    let tally = channel.tally();
    tally.refused_sealed + tally.refused_opened + tally.refused_backlog
}

/// Has the machine provide memory for tables beforehand: a virtual machine's host gives a page at its first use, at a
/// twentieth of the speed at which the kernel clears one later, which is still paid within a measure.
pub(super) fn provide_memory(bytes: usize) {
    let mut memory = HugeSlice::<u32>::new(bytes / size_of::<u32>());
    memory.iter_mut().step_by(1_024).for_each(|word| *word = 1);
    std::hint::black_box(&memory);
}

/// The configuration of member `place` of `count`.
pub(super) fn configuration(place: u16, count: u16) -> HostConfig {
    let names: Vec<_> = (1..=count).map(MemberId).collect();
    HostConfig::new(
        ClusterId(1),
        names[usize::from(place)],
        Incarnation(u64::from(place) + 1),
        names,
        ClusterKey::from_random(1, [1; 32]),
        [place as u8 + 1; 48],
    )
}

/// Hosts and what is between them: nothing but the way.
pub(super) struct Hosts<F: NetworkFunction> {
    pub(super) members: Vec<Host<F>>,
    pub(super) now: Time,
}

impl<F: NetworkFunction> Hosts<F> {
    /// Hosts that know each other. `configure` may change what [`configuration`] says.
    pub(super) fn new(
        starts: Vec<Start<F>>,
        configure: impl Fn(&mut HostConfig),
        settings: impl Fn(&str) -> ObjectSettings + Copy + 'static,
    ) -> Result<Self, Failure> {
        let mut hosts = Self::apart(starts, configure, settings);
        hosts.deliver();
        hosts.rest(Duration::from_millis(300));
        hosts.settle()?;
        hosts.forget_refused();
        Ok(hosts)
    }

    /// Hosts that know each other by a network, and have never known a shorter way.
    pub(super) fn through(
        network: &mut Network,
        starts: Vec<Start<F>>,
        configure: impl Fn(&mut HostConfig),
        settings: impl Fn(&str) -> ObjectSettings + Copy + 'static,
    ) -> Result<Self, Failure> {
        let mut hosts = Self::apart(starts, configure, settings);
        for _ in 0..20_000 {
            hosts.now = hosts.now + Duration::from_micros(100);
            for member in &mut hosts.members {
                member.pass(hosts.now, usize::MAX);
            }
            hosts.deliver_through(network);
        }
        if hosts
            .members
            .iter()
            .all(|member| member.mail.channel.is_quiet())
        {
            hosts.forget_refused();
            return Ok(hosts);
        }
        Err(Failure::Unsound(
            "hosts did not come to know each other in 2 s".into(),
        ))
    }

    fn forget_refused(&mut self) {
        for member in &mut self.members {
            member.forgive_refused();
        }
    }

    fn apart(
        starts: Vec<Start<F>>,
        configure: impl Fn(&mut HostConfig),
        settings: impl Fn(&str) -> ObjectSettings + Copy + 'static,
    ) -> Self {
        let count = starts.len() as u16;
        let mut members = Vec::new();
        for (place, start) in (0..).zip(starts) {
            let mut config = configuration(place, count);
            configure(&mut config);
            members.push(Host::start(config, Time::ZERO, start, settings));
        }
        Self {
            members,
            now: Time::ZERO,
        }
    }

    /// Carries what was sent to where it goes, and lays out buffers for what will be.
    pub(super) fn deliver(&mut self) {
        for from in 0..self.members.len() {
            let mut outbox = std::mem::take(&mut self.members[from].mail.outbox);
            for (destination, datagram) in outbox.drain(..) {
                let to = match destination {
                    Destination::All | Destination::Near => None,
                    Destination::Member(name) => Some(usize::from(name.0) - 1),
                    Destination::Source(place) => Some(place as usize),
                };
                for (place, member) in self.members.iter_mut().enumerate() {
                    if place != from && to.is_none_or(|to| to == place) {
                        let mut copy = member.mail.spare.pop().unwrap_or_default();
                        copy.clear();
                        copy.extend_from_slice(&datagram);
                        member.mail.inbox.push_back((from as u64, copy));
                    }
                }
                self.members[from].mail.spare.push(datagram);
            }
            self.members[from].mail.outbox = outbox;
        }
        for member in &mut self.members {
            member.mail.spare.truncate(2 * SPARE_DATAGRAMS);
            while member.mail.spare.len() < SPARE_DATAGRAMS {
                member.mail.spare.push(Vec::with_capacity(DATAGRAM_BYTES));
            }
        }
    }

    /// Hands what was sent to `network`, and what arrived from it by now to the members.
    pub(super) fn deliver_through(&mut self, network: &mut Network) {
        self.send_through(network);
        self.receive_through(network);
    }

    /// Hands what was sent to `network`.
    pub(super) fn send_through(&mut self, network: &mut Network) {
        let count = self.members.len() as u16;
        for (from, member) in (0..).zip(&mut self.members) {
            let mail = &mut member.mail;
            for (destination, datagram) in mail.outbox.drain(..) {
                match destination {
                    Destination::All | Destination::Near => {
                        network.multicast(self.now, from, 0..count, &datagram);
                    }
                    Destination::Member(name) => {
                        network.send(self.now, from, name.0 - 1, &datagram);
                    }
                    Destination::Source(place) => {
                        network.send(self.now, from, place as u16, &datagram);
                    }
                }
                mail.spare.push(datagram);
            }
            mail.spare.truncate(2 * SPARE_DATAGRAMS);
        }
    }

    /// Hands what arrived from `network` by now to the members.
    pub(super) fn receive_through(&mut self, network: &mut Network) {
        while let Some((from, to, datagram)) = network.receive(self.now) {
            let mail = &mut self.members[usize::from(to)].mail;
            let mut copy = mail
                .spare
                .pop()
                .unwrap_or_else(|| Vec::with_capacity(DATAGRAM_BYTES));
            copy.clear();
            copy.extend_from_slice(&datagram);
            mail.inbox.push_back((u64::from(from), copy));
            network.recycle(datagram);
        }
        for member in &mut self.members {
            while member.mail.spare.len() < SPARE_DATAGRAMS {
                member.mail.spare.push(Vec::with_capacity(DATAGRAM_BYTES));
            }
        }
    }

    /// Lets time pass without packets.
    pub(super) fn rest(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = self.now + Duration::from_micros(100);
            for member in &mut self.members {
                member.pass(self.now, usize::MAX);
            }
            self.deliver();
        }
    }

    /// Lets time pass until every host has applied what all others wrote.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        for _ in 0..10_000 {
            self.rest(LAST_FLUSH);
            if self
                .members
                .iter()
                .all(|member| member.mail.channel.is_quiet() && !member.has_work())
            {
                return Ok(());
            }
        }
        Err(Failure::Unsound(
            "hosts did not come to agree in 20 s".into(),
        ))
    }

    /// That nothing went wrong anywhere and that all states are equal.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.members.iter().try_for_each(Host::check)?;
        let first = self.members[0].instance.digests();
        if self
            .members
            .iter()
            .any(|member| member.instance.digests() != first)
        {
            return Err(Failure::Unsound(
                "the hosts' states differ after all was applied".into(),
            ));
        }
        Ok(())
    }
}
