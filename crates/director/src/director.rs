//! The loop: takes bursts from the arms' ports, finds the target of each packet, and sends it on.
//!
//! `turn` is one round: a command, what is due by time, packets that were resumed, then a burst of each arm. Nearly every
//! packet takes the short path ([`steer_plain`]): whole TCP or UDP over IPv4 to the arm's own Ethernet address, in a bucket with one
//! target. `uncommon.rs` has all others.

mod commands;
mod uncommon;

use std::os::fd::BorrowedFd;

use asterism_io::frame::{BURST, Burst, Frame, FramePool};
use asterism_io::port::Port;
use asterism_memory::hash;
use asterism_packet::{MacAddress, Packet};
use asterism_placement::Time;
use core::time::Duration;

use crate::addresses::{Addresses, FRAME_BYTES_MAX};
use crate::bounded::FlowTable;
use crate::config::{ARMS_MAX, DirectorConfig, DirectorConfigError};
use crate::control::{self, Commands, Control};
use crate::drop::DirectorDrop;
use crate::exceptions::{Exceptions, Place};
use crate::flow::{self, FRAGMENTS_MAX, FlowHash};
use crate::hosts::Hosts;
use crate::pair::{HEARTBEAT_BYTES, Pair, PairEvent, Role};
use crate::statistics::{DirectorStatistics, PUBLISH_INTERVAL, TargetCount};
use crate::suspended::{Suspend, Suspended};
use crate::table::{Slot, TARGETS_MAX, Table};

/// Packets of resumed buckets and flows that a turn sends at most. More than the arms receive in a turn, so that a queue ends.
pub const RESUMED_PER_TURN: usize = 2 * ARMS_MAX * BURST;
/// Frames of the director's own that a turn sends at most for each purpose.
const OWN_FRAMES_PER_TURN: usize = BURST;
/// How often idle exceptions are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_millis(10);
/// IEEE 802's first Ethernet type for local experiments: heartbeats.
const ETHERTYPE_HEARTBEAT: u16 = 0x88b5;
/// The group to which heartbeats are sent.
const HEARTBEAT_GROUP: MacAddress = MacAddress([0x03, 0x41, 0x44, 0x48, 0x00, 0x01]);
/// Bytes before a heartbeat in its frame.
const ETHERNET: usize = 14;

/// A port and what is done with what arrives there.
struct Arm {
    port: Box<dyn Port>,
    mac: MacAddress,
    hash: FlowHash,
    sends_to: Option<usize>,
    addresses: Addresses,
}

/// A director. One thread has it.
pub struct Director {
    arms: Vec<Arm>,
    pool: FramePool,
    burst: Burst,
    /// Frames of a burst that need the long path.
    others: Burst,
    /// Frames on their way out after the burst that they came with.
    out: Burst,
    table: Box<Table>,
    hosts: Hosts,
    exceptions: Exceptions,
    fragments: FlowTable<u64>,
    suspended: Suspended,
    pair: Option<(usize, Pair)>,
    commands: Commands,
    tally: DirectorStatistics,
    /// Packets sent to each target.
    sent: [u64; TARGETS_MAX],
    /// Packets of each bucket, estimated, since they were taken last.
    counts: Box<[u32]>,
    words: Vec<u64>,
    is_active: bool,
    due: Time,
    sweep_due: Time,
    publish_due: Time,
}

impl core::fmt::Debug for Director {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Director")
            .field("arms", &self.arms.len())
            .field("is_active", &self.is_active)
            .finish_non_exhaustive()
    }
}

/// The target of a plain packet whose bucket has one, with its Ethernet addresses written. `None`: the packet is unchanged and
/// needs the long path.
#[inline(always)]
fn steer_plain(
    bytes: &mut [u8],
    (mac, hash, to): (MacAddress, &FlowHash, usize),
    table: &Table,
    hosts: &Hosts,
    exceptions: &mut Exceptions,
    now: Time,
) -> Option<Slot> {
    let packet = Packet::parse_plain(bytes)?;
    if packet.ethernet_destination() != mac {
        return None;
    }
    let byte = table.byte(hash.of_plain(&packet.plain4()?));
    let mut slot = Slot::of_bits(byte);
    let mut is_plain = usize::from(byte) < TARGETS_MAX;
    if !exceptions.is_empty()
        && let Some(place) = exceptions.find(&flow::key_of(&packet), now)
    {
        (slot, is_plain) = match place {
            Place::Target(slot) if table.serves(slot) => (slot, true),
            // Its target is out.
            Place::Target(_) => (slot, is_plain),
            Place::Suspended(_) => (slot, false),
        };
    }
    let addressed = hosts.addressed(to, slot);
    if !is_plain || !addressed.is_known {
        return None;
    }
    *bytes.first_chunk_mut::<12>()? = addressed.ethernet;
    Some(slot)
}

impl Director {
    /// A director with a port for each arm, and the other end of its commands. It steers nothing until a table arrives;
    /// without a pair it is active and announces the shared addresses in its first turn.
    ///
    /// # Errors
    /// The configuration says something that cannot be.
    pub fn new(
        config: DirectorConfig,
        ports: Vec<Box<dyn Port>>,
        pool: FramePool,
        now: Time,
    ) -> Result<(Director, Control), DirectorConfigError> {
        config.check(ports.len(), pool.count())?;
        let (control, commands) = control::ends();
        let seed = config.space.seed();
        let stations: Vec<_> = config
            .arms
            .iter()
            .map(|arm| (arm.mac, arm.own_address))
            .collect();
        let pair = match config.pair {
            Some((arm, pair)) => Some((arm, Pair::new(pair, now)?)),
            None => None,
        };
        let arms = config.arms.iter().zip(ports).map(|(arm, port)| Arm {
            port,
            mac: arm.mac,
            hash: FlowHash::new(arm.by, arm.side, config.fragments, seed),
            sends_to: arm.sends_to,
            addresses: Addresses::new(arm.mac, &arm.shared),
        });
        let mut director = Director {
            arms: arms.collect(),
            pool,
            burst: Burst::new(),
            others: Burst::new(),
            out: Burst::new(),
            table: Box::new(Table::empty(config.space)),
            hosts: Hosts::new(&stations),
            exceptions: Exceptions::new(config.exceptions_max, hash::word(1, seed)),
            fragments: FlowTable::new(FRAGMENTS_MAX, hash::word(2, seed)),
            suspended: Suspended::new(config.suspended),
            is_active: false,
            pair,
            commands,
            tally: DirectorStatistics::default(),
            sent: [0; TARGETS_MAX],
            counts: vec![0; config.space.buckets() as usize].into(),
            words: Vec::with_capacity(asterism_io::seqlock::WORDS_MAX),
            due: now,
            sweep_due: now,
            publish_due: now,
        };
        if director.pair.is_none() {
            director.become_active(now);
        }
        Ok((director, control))
    }

    /// One round; returns how many frames were received. `now` never goes back.
    pub fn turn(&mut self, now: Time) -> usize {
        self.tally.turns += 1;
        self.take_command(now);
        if now >= self.due {
            self.do_what_is_due(now);
        }
        if !self.suspended.is_empty() {
            self.send_resumed();
        }
        let mut received = 0;
        for number in 0..self.arms.len() {
            received += self.turn_arm(number, now);
        }
        received
    }

    /// Whether this director has the shared addresses.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.is_active
    }

    /// Until when a loop without packets may sleep; commands arrive meanwhile.
    #[must_use]
    pub fn next_due(&self) -> Time {
        let ports = self.arms.iter().filter_map(|arm| arm.port.next_due());
        ports.fold(self.due, Time::min)
    }

    /// What a loop without packets may sleep on.
    pub(crate) fn wait_descriptors<'a>(
        &'a self,
        descriptors: &mut [Option<BorrowedFd<'a>>; ARMS_MAX],
    ) {
        for (place, arm) in descriptors.iter_mut().zip(&self.arms) {
            *place = arm.port.wait_descriptor();
        }
    }

    /// Sends on what ports still hold, before a sleep.
    pub(crate) fn flush(&mut self) {
        for arm in &mut self.arms {
            // A port counts its failures; what it could not send is dropped there with a reason.
            let _ = arm.port.flush(&mut self.pool);
        }
    }

    /// The counts as they are now. For tests and for the loop's own thread; others read [`Control::statistics`].
    #[must_use]
    pub fn statistics(&self) -> DirectorStatistics {
        let mut statistics = self.tally.clone();
        self.complete(&mut statistics);
        statistics
    }

    /// The ports, for their statistics, in the order of the arms.
    pub fn ports(&self) -> impl Iterator<Item = &dyn Port> {
        self.arms.iter().map(|arm| arm.port.as_ref())
    }

    /// Frames that are neither free nor with a port.
    #[must_use]
    pub fn frames_in_use(&self) -> usize {
        self.pool.in_use()
    }

    fn turn_arm(&mut self, number: usize, now: Time) -> usize {
        let Some(arm) = self.arms.get_mut(number) else {
            return 0;
        };
        arm.port.advance(now);
        let received = arm.port.receive(&mut self.pool, &mut self.burst);
        if received == 0 {
            return 0;
        }
        self.tally.received += received as u64;
        let Some(to) = arm.sends_to else {
            while let Some(frame) = self.burst.pop() {
                // The order does not matter: none of them is steered.
                self.handle_other(number, frame, now);
            }
            self.send_out(number);
            return received;
        };
        let others = self.steer_burst(number, to, now);
        if others != 0 {
            self.separate(others);
        }
        let forwarded = self.burst.len() as u64;
        self.tally.forwarded += forwarded;
        if let Some(arm) = self.arms.get_mut(to) {
            arm.port.send(&mut self.pool, &mut self.burst);
        }
        if others != 0 {
            self.handle_others(number, to, now);
        }
        received
    }

    /// Writes the addresses of all plain packets of the burst; the bits of the others.
    #[inline(always)]
    fn steer_burst(&mut self, number: usize, to: usize, now: Time) -> u32 {
        let Some(arm) = self.arms.get(number) else {
            return 0;
        };
        let (mac, hash) = (arm.mac, arm.hash);
        for frame in self.burst.iter() {
            self.pool.prefetch(frame);
        }
        let mut others = 0;
        for (place, frame) in self.burst.as_mut_slice().iter_mut().enumerate() {
            let bytes = self.pool.bytes_mut(frame);
            let steered = steer_plain(
                bytes,
                (mac, &hash, to),
                &self.table,
                &self.hosts,
                &mut self.exceptions,
                now,
            );
            match steered {
                Some(slot) => self.sent[slot.number() % TARGETS_MAX] += 1,
                None => others |= 1 << place,
            }
        }
        self.count_burst(&hash, others);
        others
    }

    /// Counts one packet of the burst, another one each turn, for all of them: over many bursts each bucket gets its share, at the cost
    /// of one packet a burst. Packets that take the long path are counted there, each for itself.
    #[inline(always)]
    fn count_burst(&mut self, hash: &FlowHash, others: u32) {
        let frames = self.burst.as_mut_slice();
        let packets = frames.len();
        let place = self.tally.turns as usize % packets.max(1);
        let Some(frame) = frames.get_mut(place) else {
            return;
        };
        if others >> place & 1 == 1 {
            return;
        }
        let bytes = self.pool.bytes_mut(frame);
        let packet = Packet::parse_plain(bytes);
        let plain = packet.as_ref().and_then(|packet| packet.plain4());
        let bucket = plain.map(|plain| self.table.space().bucket(hash.of_plain(&plain)));
        if let Some(count) = bucket.and_then(|bucket| self.counts.get_mut(bucket as usize)) {
            *count = count.saturating_add(packets as u32);
        }
    }

    /// Takes the frames with these bits out of the burst, in order.
    #[cold]
    fn separate(&mut self, others: u32) {
        let mut place = 0;
        let is_other = |_: &Frame| {
            let is_other = others >> place & 1 == 1;
            place += 1;
            is_other
        };
        let (burst, out) = (&mut self.burst, &mut self.others);
        // As many fit as the burst has.
        burst.extract(is_other, |frame| drop(out.push(frame)));
    }

    #[cold]
    fn handle_others(&mut self, number: usize, to: usize, now: Time) {
        let mut others = core::mem::take(&mut self.others);
        for frame in others.drain() {
            self.handle_other(number, frame, now);
        }
        self.others = others;
        self.send_out(to);
    }

    /// Sends what is on its way out by an arm.
    fn send_out(&mut self, number: usize) {
        if self.out.is_empty() {
            return;
        }
        if let Some(arm) = self.arms.get_mut(number) {
            arm.port.send(&mut self.pool, &mut self.out);
        }
        self.pool.release_all(&mut self.out);
    }

    /// Sends one frame by an arm.
    fn send_one(&mut self, number: usize, frame: Frame) {
        let mut one = Burst::new();
        if let Err(frame) = one.push(frame) {
            self.pool.release(frame);
        }
        if let Some(arm) = self.arms.get_mut(number) {
            arm.port.send(&mut self.pool, &mut one);
        }
        self.pool.release_all(&mut one);
    }

    /// Sends a frame of the director's own.
    fn send_own(&mut self, number: usize, bytes: &[u8]) -> bool {
        match self.pool.allocate_copy(bytes) {
            Some(frame) => {
                self.send_one(number, frame);
                true
            }
            None => {
                self.tally.own_frames_lost += 1;
                false
            }
        }
    }

    fn drop_frame(&mut self, frame: Frame, reason: DirectorDrop) {
        self.tally.dropped[reason as usize] += 1;
        self.pool.release(frame);
    }

    /// Writes the Ethernet addresses of a frame to a host; false if they are not known.
    fn address(&mut self, frame: &mut Frame, arm: usize, slot: Slot) -> bool {
        let addressed = self.hosts.addressed(arm, slot);
        let bytes = self.pool.bytes_mut(frame).first_chunk_mut::<12>();
        match bytes {
            Some(bytes) if addressed.is_known => {
                *bytes = addressed.ethernet;
                true
            }
            _ => false,
        }
    }

    /// Sends packets of resumed buckets and flows, and ends the suspensions whose packets have left.
    #[cold]
    fn send_resumed(&mut self) {
        for _ in 0..RESUMED_PER_TURN {
            let Some(mut leaving) = self.suspended.next_leaving() else {
                break;
            };
            if !self.address(&mut leaving.frame, leaving.arm, leaving.to) {
                self.drop_frame(leaving.frame, DirectorDrop::TargetUnresolved);
                continue;
            }
            self.tally.resumed += 1;
            self.tally.forwarded += 1;
            self.sent[leaving.to.number() % TARGETS_MAX] += 1;
            self.send_one(leaving.arm, leaving.frame);
        }
        while let Some((what, to)) = self.suspended.end_resumed() {
            match what {
                Suspend::Bucket(bucket) => {
                    self.table.set_suspended(bucket, false);
                }
                Suspend::Flow(key) => self.exceptions.replace(&key, Place::Target(to)),
            }
        }
    }

    /// What is due by time. Sets when to come again.
    #[cold]
    fn do_what_is_due(&mut self, now: Time) {
        self.do_heartbeats(now);
        let mut out = [0; FRAME_BYTES_MAX];
        for number in 0..self.arms.len() {
            for _ in 0..OWN_FRAMES_PER_TURN {
                let arm = &mut self.arms[number];
                let Some(length) = arm.addresses.next_announcement(now, &mut out) else {
                    break;
                };
                let is_sent = self.send_own(number, &out[..length]);
                self.tally.announced += u64::from(is_sent);
            }
        }
        for _ in 0..OWN_FRAMES_PER_TURN {
            let Some((number, length)) = self.hosts.next_probe(now, &mut out) else {
                break;
            };
            let is_sent = number < self.arms.len() && self.send_own(number, &out[..length]);
            self.tally.probes += u64::from(is_sent);
        }
        self.end_old_suspensions(now);
        if now >= self.sweep_due {
            self.sweep_due = now.saturating_add(SWEEP_INTERVAL);
            self.tally.exceptions_ended += self.exceptions.sweep(now) as u64;
            self.fragments.sweep(now, |_| false);
        }
        if now >= self.publish_due {
            self.publish(now);
        }
        self.reckon_due();
    }

    fn reckon_due(&mut self) {
        let mut due = self.publish_due;
        if !self.exceptions.is_empty() || !self.fragments.is_empty() {
            due = due.min(self.sweep_due);
        }
        let announcements = self.arms.iter().filter_map(|arm| arm.addresses.next_due());
        let others = [
            self.hosts.next_due(),
            self.suspended.next_due(),
            self.pair.as_ref().map(|(_, pair)| pair.poll_timeout()),
        ];
        self.due = announcements
            .chain(others.into_iter().flatten())
            .fold(due, Time::min);
    }

    fn end_old_suspensions(&mut self, now: Time) {
        loop {
            let (pool, tally) = (&mut self.pool, &mut self.tally);
            let ended = self.suspended.end_old(now, |frame| {
                tally.dropped[DirectorDrop::SuspendedTooLong as usize] += 1;
                pool.release(frame);
            });
            let Some(what) = ended else {
                return;
            };
            self.tally.suspensions_ended += 1;
            match what {
                Suspend::Bucket(bucket) => {
                    self.table.set_suspended(bucket, false);
                }
                Suspend::Flow(key) => {
                    self.exceptions.remove(&key);
                }
            }
        }
    }

    fn do_heartbeats(&mut self, now: Time) {
        let Some((number, pair)) = &mut self.pair else {
            return;
        };
        let number = *number;
        pair.handle_timeout(now);
        let mut frame = [0; ETHERNET + HEARTBEAT_BYTES];
        frame[..6].copy_from_slice(&HEARTBEAT_GROUP.0);
        frame[12..ETHERNET].copy_from_slice(&ETHERTYPE_HEARTBEAT.to_be_bytes());
        let is_due = pair.poll_transmit(now, &mut frame[ETHERNET..]).is_some();
        if let Some(arm) = self.arms.get(number)
            && is_due
        {
            frame[6..12].copy_from_slice(&arm.mac.0);
            let is_sent = self.send_own(number, &frame);
            self.tally.heartbeats_sent += u64::from(is_sent);
        }
        self.follow_pair(now);
    }

    /// Does what the pair has decided.
    fn follow_pair(&mut self, now: Time) {
        let Some((_, pair)) = &mut self.pair else {
            return;
        };
        match (pair.poll_event(), pair.role()) {
            (Some(PairEvent::Announce), Role::Active) => self.become_active(now),
            (Some(_), _) => {
                self.is_active = false;
                for arm in &mut self.arms {
                    arm.addresses.be_silent();
                }
            }
            (None, _) => {}
        }
    }

    fn become_active(&mut self, now: Time) {
        self.tally.activations += u64::from(!self.is_active);
        self.is_active = true;
        for arm in &mut self.arms {
            arm.addresses.announce(now);
        }
        self.due = now;
    }

    fn publish(&mut self, now: Time) {
        self.publish_due = now.saturating_add(PUBLISH_INTERVAL);
        self.tally.at_us = now.as_micros();
        let mut statistics = self.tally.clone();
        self.complete(&mut statistics);
        self.words.clear();
        statistics.write(&mut self.words);
        self.commands.statistics.publish(&self.words);
    }

    /// Adds what is kept elsewhere.
    fn complete(&self, statistics: &mut DirectorStatistics) {
        let (suspensions, packets, bytes) = self.suspended.counts();
        statistics.table_digest_now = self.table.digest();
        statistics.active_now = u64::from(self.is_active);
        statistics.exceptions_now = self.exceptions.len() as u64;
        statistics.suspensions_now = suspensions as u64;
        statistics.waiting_packets_now = u64::from(packets);
        statistics.waiting_bytes_now = bytes;
        for (number, target) in statistics.targets.iter_mut().enumerate() {
            let Some(slot) = Slot::new(number) else {
                continue;
            };
            let mut arms = self.arms.iter().filter_map(|arm| arm.sends_to);
            *target = TargetCount {
                packets: self.sent[number],
                buckets: u64::from(self.table.buckets_of(slot)),
                is_reachable: self.hosts.has(slot) && arms.all(|to| self.hosts.is_known(to, slot)),
            };
        }
    }
}
