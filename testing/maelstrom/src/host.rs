//! One host of the cluster, driven manually: an instance of the [`Keeper`] and its state channel, as they are shipped.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{
    ChannelEvent, ChannelTally, Destination, HostConfig, HostError, Instance, StateChannel, host,
};
use asterism_function::objects::ObjectSettings;
use asterism_function::{Late, PortNumber};
use asterism_io::frame::FramePool;
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;

use crate::keeper::{Backlog, Command, Keeper};
use crate::workload::Workload;

/// The cluster's name as a number, the same in every test.
const CLUSTER: ClusterId = ClusterId(0x6D61_656C);
/// The secret of the cluster's key. It is no secret: every node must know it, and the referee hands out none.
const KEY: [u8; 32] = *b"known to all: for referees alone";
/// Buffers for packets: one is in use at a time.
const BUFFERS: usize = 32;

// The referee carries a message in some tenths of a millisecond, writes each to its journal, and reads it as JSON: timers
// are slower than between hosts, so that an idle cluster says little.

/// How often accumulators are flushed, in microseconds.
const FLUSH_US: u64 = 5_000;
/// The longest silence.
const KEEP_ALIVE: Duration = Duration::from_millis(100);
/// How long an acknowledgement waits for company.
const ACKNOWLEDGE_DELAY: Duration = Duration::from_millis(5);
/// The shortest retransmission timeout.
const RETRANSMIT_MIN: Duration = Duration::from_millis(20);

/// What a node is given at its start: all that it must not find out by itself.
#[derive(Clone, Debug)]
pub struct Start {
    /// What will be asked of it.
    pub workload: Workload,
    /// This start of it: random, never from a clock.
    pub incarnation: Incarnation,
    /// 48 bytes from a secure source, drawn again at each start.
    pub secrets: [u8; 48],
    /// Seconds since 1970 at time zero of the clock that the node is driven by.
    pub tick_at_zero: u32,
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is applied here, and on its way to the others.
    Done,
    /// It was refused, and has changed nothing.
    Refused,
    /// It waits; whether it will be done cannot be said.
    Waits,
}

/// A host. See the module.
#[derive(Debug)]
pub(crate) struct Host {
    instance: Instance<Keeper>,
    channel: StateChannel,
}

impl Host {
    /// The host at `place` of `count`, which are members by their places.
    pub(crate) fn new(start: &Start, place: u16, count: u16, now: Time) -> Result<Self, HostError> {
        let mut config = HostConfig::new(
            CLUSTER,
            member(place),
            start.incarnation,
            (0..count).map(member).collect(),
            ClusterKey::from_random(1, KEY),
            start.secrets,
        );
        config.tick_at_zero = start.tick_at_zero;
        config.flush_us = FLUSH_US;
        config.replica.keep_alive = KEEP_ALIVE;
        config.replica.acknowledge_delay = ACKNOWLEDGE_DELAY;
        config.replica.retransmit_min = RETRANSMIT_MIN;
        let (channel, mut parts) = host(config, now)?;
        let pool = FramePool::new(BUFFERS).map_err(HostError::Memory)?;
        let instance = parts.remove(0).start(
            Arc::new(Keeper),
            |_| ObjectSettings::REPLICATED,
            pool,
            Vec::new(),
        );
        Ok(Self { instance, channel })
    }

    /// Does what a client asked for.
    pub(crate) fn perform(&mut self, now: Time, command: Command) -> Outcome {
        let consumed = self.instance.tally().consumed;
        let dropped = self.instance.tally().dropped_total();
        let taken = self.instance.inject(now, PortNumber(0), &command.packet());
        let tally = self.instance.tally();
        if tally.consumed > consumed {
            Outcome::Done
        } else if !taken || tally.dropped_total() > dropped {
            Outcome::Refused
        } else {
            Outcome::Waits
        }
    }

    /// The elements that are known here, in their order.
    pub(crate) fn elements(&self) -> Vec<i64> {
        self.state().elements()
    }

    /// The sum, as far as it is known here.
    pub(crate) fn sum(&self) -> Result<i64, Late> {
        self.state().sum()
    }

    fn state(&self) -> &Backlog {
        self.instance.state()
    }

    /// Takes a datagram of the host at place `from`. What is refused is counted by the channel, and has no effect.
    pub(crate) fn handle(&mut self, now: Time, from: u16, datagram: &mut [u8]) {
        let _ = self.channel.handle(now, from.into(), datagram);
    }

    /// Applies what came, hands on what was written, and runs timers.
    pub(crate) fn turn(&mut self, now: Time) {
        // Before the instance, so that it finds what came; after it, so that what it answers leaves at once.
        self.channel.turn(now);
        self.instance.turn(now);
        self.channel.turn(now);
    }

    /// When the next turn is due, whatever arrives.
    pub(crate) fn next_due(&self) -> Time {
        if self.instance.is_behind() {
            return Time::ZERO;
        }
        let instance = self.instance.next_due();
        self.channel
            .poll_timeout()
            .map_or(instance, |channel| channel.min(instance))
    }

    /// Writes the next datagram to `out` and tells the places that it is for.
    pub(crate) fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Recipients> {
        Some(match self.channel.poll_transmit(now, out)? {
            Destination::All | Destination::Near => Recipients::Others,
            Destination::Member(name) => Recipients::One(usize::from(name.0.saturating_sub(1))),
            Destination::Source(place) => Recipients::One(place as usize),
        })
    }

    /// What happened, for the log.
    pub(crate) fn poll_event(&mut self) -> Option<ChannelEvent> {
        self.channel.poll_event()
    }

    /// What the channel counted.
    pub(crate) fn tally(&self) -> ChannelTally {
        self.channel.tally()
    }
}

/// The recipient of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recipients {
    /// All other hosts.
    Others,
    /// The host at this place.
    One(usize),
}

/// The member at a place: they count from one.
fn member(place: u16) -> MemberId {
    MemberId(place + 1)
}
