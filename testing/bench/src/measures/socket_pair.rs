//! Two whole hosts on sockets of the kernel on loopback, driven by the measure on one thread, so that the time of each
//! is known by itself: what the measures against other programs hold beside those.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use asterism_engine::transport::{UdpConfig, UdpTransport};
use asterism_engine::{Instance, StateChannel, host};
use asterism_function::NetworkFunction;
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::FramePool;
use asterism_io::ring::RingWriter;
use asterism_placement::{MemberId, Time};
use asterism_state::ObjectSettings;

use super::host_process::two_addresses;
use super::replication_hosts::{configuration, fed_ports, feed, refused};
use crate::contract::Failure;
use crate::timing::{LostTime, Stopwatch};
use crate::traffic::SmallFrame;

/// How packets come.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// Packets between two turns of the receiver.
    pub(super) packets: usize,
    /// How long after those before they come, by the clock.
    pub(super) every: Duration,
}

impl Pace {
    /// As fast as they are taken.
    pub(super) const FLOOD: Self = Self {
        packets: 512,
        every: Duration::ZERO,
    };
}

/// Waits on the core, since a thread that sleeps is woken late.
pub(super) fn wait_until(clock: MonotonicClock, due: Time) {
    while clock.now() < due {
        std::hint::spin_loop();
    }
}

/// Packets of a turn: one burst.
const BURST: usize = 32;
/// Between two turns, while no packets come.
const REST: Duration = Duration::from_micros(200);
/// How long hosts may take until all has arrived.
pub(super) const ARRIVES_WITHIN: Duration = Duration::from_secs(10);

/// A host on sockets of the kernel, driven manually.
struct SocketHost<F: NetworkFunction> {
    channel: StateChannel,
    instance: Instance<F>,
    transport: UdpTransport,
    watch: Stopwatch,
}

impl<F: NetworkFunction> SocketHost<F> {
    fn turn(&mut self, clock: MonotonicClock) {
        let Self {
            channel,
            instance,
            transport,
            watch,
        } = self;
        watch.window(|| {
            let now = clock.now();
            let came = transport.receive(now, |from, datagram| {
                // Refusals are counted, and looked at when all is over.
                let _ = channel.handle(now, from, datagram);
            });
            channel.set_datagram_bytes(transport.datagram_bytes());
            channel.set_padding(transport.is_segmenting());
            if came > 0 {
                // A host's thread for the state channel turns once in each of its loops, and has handed on what came before
                // the instance turns. Where nothing came the turn below is that one.
                channel.turn(now);
            }
            instance.turn(now);
            while instance.is_behind() {
                instance.turn(now);
            }
            channel.turn(now);
            while let Some(buffer) = transport.buffer(now)
                && let Some(destination) = channel.poll_transmit(now, buffer)
            {
                transport.queue(destination);
            }
            transport.flush(now);
        });
    }
}

/// Two hosts, the first of which is fed with packets.
pub(super) struct SocketPair<F: NetworkFunction> {
    hosts: [SocketHost<F>; 2],
    feed: RingWriter,
    clock: MonotonicClock,
}

impl<F: NetworkFunction> SocketPair<F> {
    /// Two hosts that know each other.
    pub(super) fn start(
        function: &Arc<F>,
        settings: impl Fn(&str) -> ObjectSettings + Copy + 'static,
    ) -> Result<Self, Failure> {
        let clock = MonotonicClock::new();
        let addresses = two_addresses()?.map(|address| address.parse::<SocketAddr>().ok());
        let [Some(first), Some(second)] = addresses else {
            return Err(Failure::Absent("no addresses on loopback".into()));
        };
        let (ports, feed) = fed_ports();
        let mut ports = [Some(ports), Some(fed_ports().0)];
        let mut made = Vec::new();
        for (place, (own, other)) in (0..).zip([(first, second), (second, first)]) {
            let (channel, mut parts) = host(configuration(place, 2), clock.now())
                .map_err(|error| Failure::Unsound(error.to_string()))?;
            let udp = UdpConfig::new(own, [(MemberId(2 - place), other)]);
            let transport = UdpTransport::open(&udp, channel.datagram_bytes_max(), clock.now())
                .map_err(|error| Failure::Absent(error.to_string()))?;
            let pool = FramePool::new(512)
                .map_err(|error| Failure::Absent(format!("no memory for frames: {error}")))?;
            let ports = ports[usize::from(place)].take().unwrap_or_default();
            made.push(SocketHost {
                channel,
                instance: parts
                    .remove(0)
                    .start(function.clone(), settings, pool, ports),
                transport,
                watch: Stopwatch::default(),
            });
        }
        let hosts = <[SocketHost<F>; 2]>::try_from(made)
            .map_err(|_| Failure::Unsound("two hosts were to be made".into()))?;
        let mut pair = Self { hosts, feed, clock };
        pair.settle()?;
        Ok(pair)
    }

    /// Feeds the first host with packets until the other has what `arrived` asks for, and all is acknowledged; on-CPU ns of
    /// both.
    pub(super) fn round(
        &mut self,
        frames: &[SmallFrame],
        pace: Pace,
        arrived: impl Fn(&F::State) -> Result<(), String>,
    ) -> Result<[f64; 2], Failure> {
        self.hosts.iter_mut().for_each(|host| {
            host.watch.take_cpu_ns();
            // Turns take some µs, and hosts do not read this clock.
            host.watch.calibrate();
        });
        let mut due = self.clock.now();
        for frames in frames.chunks(pace.packets) {
            wait_until(self.clock, due);
            due = due + pace.every;
            for frame in frames {
                feed(&mut self.feed, frame)?;
            }
            self.feed.publish();
            for _ in 0..frames.len().div_ceil(BURST) {
                self.hosts[0].turn(self.clock);
            }
            self.hosts[1].turn(self.clock);
        }
        let until = self.clock.now() + ARRIVES_WITHIN;
        while let Err(missing) = arrived(self.hosts[1].instance.state()) {
            if self.clock.now() > until {
                return Err(Failure::Unsound(missing));
            }
            self.turn();
            std::thread::park_timeout(REST);
        }
        // Acknowledging is a part of it.
        self.settle()?;
        Ok(self
            .hosts
            .each_mut()
            .map(|host| host.watch.take_cpu_ns() as f64))
    }

    /// Feeds the first host with one packet and turns both, as hosts do that never sleep, until the other has what `arrived` asks
    /// for; how long that took by the clock.
    pub(super) fn propagate(
        &mut self,
        frame: &SmallFrame,
        arrived: impl Fn(&F::State) -> bool,
    ) -> Result<Duration, Failure> {
        feed(&mut self.feed, frame)?;
        self.feed.publish();
        let began = self.clock.now();
        while !arrived(self.hosts[1].instance.state()) {
            if self.clock.now() > began + ARRIVES_WITHIN {
                return Err(Failure::Unsound("a packet's update did not arrive".into()));
            }
            self.turn();
        }
        Ok(self.clock.now() - began)
    }

    /// That every packet was forwarded, nothing refused, and that both have the same.
    pub(super) fn check(&self, packets: u64) -> Result<(), Failure> {
        let [first, second] = &self.hosts;
        let tally = first.instance.tally();
        if tally.received != packets || tally.forwarded != packets {
            return Err(Failure::Unsound(format!(
                "of {packets} packets {} were taken and {} forwarded: {:?}",
                tally.received,
                tally.forwarded,
                tally.drops().collect::<Vec<_>>()
            )));
        }
        let bad: u64 = self
            .hosts
            .iter()
            .map(|host| host.instance.tally().groups_bad)
            .sum();
        if bad > 0 || first.instance.digests() != second.instance.digests() {
            return Err(Failure::Unsound(format!(
                "our hosts differ after all was applied; groups bad {bad}, datagrams refused {}",
                refused(&first.channel) + refused(&second.channel)
            )));
        }
        Ok(())
    }

    fn turn(&mut self) {
        self.hosts.iter_mut().for_each(|host| host.turn(self.clock));
    }

    fn settle(&mut self) -> Result<(), Failure> {
        let until = self.clock.now() + ARRIVES_WITHIN;
        loop {
            self.turn();
            if self.hosts.iter().all(|host| host.channel.is_quiet()) {
                return Ok(());
            }
            if self.clock.now() > until {
                return Err(Failure::Unsound("our hosts did not come to agree".into()));
            }
            std::thread::park_timeout(REST);
        }
    }

    /// What reading the thread's clock takes, which is taken off each turn.
    pub(super) fn clock_ns(&self) -> f64 {
        self.hosts[0].watch.empty_ns() as f64
    }

    /// What was lost while their time was taken.
    pub(super) fn lost(&self) -> LostTime {
        let [one, two] = &self.hosts;
        one.watch.lost().and(two.watch.lost())
    }
}
