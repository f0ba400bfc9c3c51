//! A whole cluster in memory, on a virtual clock, held against brute-force checkers after every step.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use asterism_placement::replicated::{Config, Delivery, Destination};
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId, Time};

use crate::replicated::host::{Host, Table, key, name};
use crate::replicated::network::{Random, Schedule};

/// How long after the storm everything must be equal, in seconds of the virtual clock.
const HEAL_SECONDS_MAX: u64 = 30;
/// Steps after which a run counts as hanging.
const STEPS_MAX: u64 = 2_000_000;

enum Happening {
    Arrive {
        from: usize,
        to: usize,
        incarnation: Incarnation,
        bytes: Vec<u8>,
    },
    Wake(usize),
    Commit(usize),
}

/// What a run was, for tests that look at more than whether it passed.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) steps: u64,
    pub(crate) scans: u64,
    pub(crate) snapshots_joined: u64,
    pub(crate) retransmitted: u64,
    pub(crate) refused: u64,
    pub(crate) heal_us: u64,
    /// A digest of everything that was delivered, in order, for determinism.
    pub(crate) trace: u64,
}

pub(crate) struct World {
    schedule: Schedule,
    random: Random,
    now: Time,
    hosts: Vec<Host>,
    /// For each host its clock: an offset, and a rate in millionths.
    clocks: Vec<(u64, i64)>,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    happenings: Vec<Option<Happening>>,
    free: Vec<usize>,
    order: u64,
    wakes: Vec<Time>,
    left: Vec<u64>,
    report: Report,
    message: Vec<u8>,
    scratch: Vec<u8>,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let schedule = Schedule::from_seed(&mut random);
        World::with(schedule, random)
    }

    pub(crate) fn with(schedule: Schedule, mut random: Random) -> World {
        let members: Vec<MemberId> = (0..schedule.members).map(name).collect();
        let clocks: Vec<(u64, i64)> = (0..schedule.members)
            .map(|_| {
                (
                    random.below(1_000_000_000),
                    random.range(0, 600) as i64 - 300,
                )
            })
            .collect();
        let host = |place: usize| {
            let incarnation = Incarnation(place as u64 + 100);
            let mut config = Config::new(
                ClusterId(5),
                Epoch(2),
                name(place),
                incarnation,
                members.clone(),
            );
            config.payload_bytes_max = schedule.payload_bytes_max;
            config.log_groups_max = schedule.log_groups_max;
            config.log_bytes_max = 16 << 10;
            config.reorder_groups_max = schedule.reorder_groups_max;
            config.unapplied_groups_max = schedule.unapplied_groups_max;
            config.lookahead = Duration::from_micros(schedule.lookahead_us);
            config.acknowledge_delay = Duration::from_micros(schedule.acknowledge_delay_us);
            config.keep_alive = Duration::from_millis(10);
            config.retransmit_max = Duration::from_millis(200);
            config.silent_after = Duration::from_millis(60);
            config.delivery = if schedule.ordered {
                Delivery::Ordered
            } else {
                Delivery::Unordered
            };
            Host::new(config, Time(clocks[place].0))
        };
        let hosts: Vec<Host> = (0..schedule.members).map(host).collect();
        let mut world = World {
            random,
            now: Time::ZERO,
            clocks,
            queue: BinaryHeap::new(),
            happenings: Vec::new(),
            free: Vec::new(),
            order: 0,
            wakes: vec![Time::MAX; hosts.len()],
            left: vec![schedule.groups_each; hosts.len()],
            hosts,
            schedule,
            report: Report::default(),
            message: Vec::new(),
            scratch: Vec::new(),
        };
        for place in 0..world.hosts.len() {
            world.wake(place, Time::ZERO);
            let first = Time(world.random.below(5_000));
            world.happens(first, Happening::Commit(place));
        }
        world
    }

    fn local(&self, place: usize, world: Time) -> Time {
        let (offset, rate) = self.clocks[place];
        Time((offset as i64 + world.0 as i64 + world.0 as i64 * rate / 1_000_000) as u64)
    }

    /// The world's time of a host's, rounded up.
    fn world(&self, place: usize, local: Time) -> Time {
        let (offset, rate) = self.clocks[place];
        let elapsed = local.0.saturating_sub(offset) as i64;
        Time((elapsed - elapsed * rate / 1_000_000 + 2).max(0) as u64)
    }

    fn happens(&mut self, at: Time, happening: Happening) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.happenings.push(None);
            self.happenings.len() - 1
        });
        self.happenings[slot] = Some(happening);
        self.order += 1;
        self.queue
            .push(Reverse((at, self.order << 20 | slot as u64)));
    }

    fn wake(&mut self, place: usize, at: Time) {
        if at < self.wakes[place] {
            self.wakes[place] = at;
            self.happens(at, Happening::Wake(place));
        }
    }

    fn is_storm(&self) -> bool {
        self.now.0 < self.schedule.storm_us
    }

    /// Runs the storm, then the heal phase, which must finish.
    pub(crate) fn run(mut self) -> Result<(Report, World), String> {
        let storm_end = self.schedule.storm_us;
        loop {
            let Some(Reverse((at, tag))) = self.queue.pop() else {
                return Err("nothing left to happen".into());
            };
            self.report.steps += 1;
            if self.report.steps > STEPS_MAX {
                return Err("too many steps: a storm of messages".into());
            }
            self.now = self.now.max(at);
            if self.now.0 > storm_end + HEAL_SECONDS_MAX * 1_000_000 {
                return Err(format!(
                    "not equal {HEAL_SECONDS_MAX} s after the storm: {}",
                    self.describe()
                ));
            }
            let slot = (tag & 0xf_ffff) as usize;
            let happening = self.happenings[slot].take().ok_or("a happening twice")?;
            self.free.push(slot);
            let place = match happening {
                Happening::Arrive { to, .. } => to,
                Happening::Wake(place) | Happening::Commit(place) => place,
            };
            if let Some(until) = self.schedule.is_paused(place, self.now) {
                // A paused host's socket holds little; what it would have done itself waits.
                if !matches!(happening, Happening::Arrive { .. }) || self.random.chance(10) {
                    self.happens(Time(until), happening);
                }
                continue;
            }
            self.happened(happening)?;
            self.turn(place)?;
            self.check(place)?;
            if !self.is_storm() && self.is_quiet() {
                self.converged()?;
                self.report.heal_us = self.now.0 - storm_end;
                for host in &self.hosts {
                    let counters = host.replicator.counters();
                    self.report.scans += host.scans_begun;
                    self.report.snapshots_joined += counters.snapshots_joined;
                    self.report.retransmitted += counters.groups_retransmitted;
                    counters.each(|_, reason, value| {
                        if reason.is_some() {
                            self.report.refused += value;
                        }
                    });
                }
                return Ok((std::mem::take(&mut self.report), self));
            }
        }
    }

    fn happened(&mut self, happening: Happening) -> Result<(), String> {
        match happening {
            Happening::Wake(place) => self.wakes[place] = Time::MAX,
            Happening::Commit(place) => {
                let local = self.local(place, self.now);
                for _ in 0..self.random.range(1, 6).min(self.left[place]) {
                    if self.hosts[place].commit(local, self.now, &mut self.scratch) {
                        self.left[place] -= 1;
                    } else if self.hosts[place].replicator.log_room().groups > 0
                        && self.hosts[place].replicator.log_room().bytes > 1_300
                    {
                        return Err("refused a group although there was room".into());
                    }
                }
                if self.left[place] > 0 {
                    let pace = self.schedule.storm_us * 3 / self.schedule.groups_each;
                    let next = self.now + Duration::from_micros(self.random.range(1, 2 * pace));
                    self.happens(next, Happening::Commit(place));
                }
            }
            Happening::Arrive {
                from,
                to,
                incarnation,
                bytes,
            } => {
                let local = self.local(to, self.now);
                let host = &mut self.hosts[to];
                let result =
                    host.replicator
                        .handle(local, name(from), incarnation, &bytes, &mut host.inbox);
                self.report.trace =
                    self.report.trace.rotate_left(5) ^ self.now.0 ^ bytes.len() as u64;
                let strange = incarnation.0 < 100 || bytes.len() > 1_400 || bytes[2] != 2;
                if let Err(reason) = result
                    && !strange
                {
                    return Err(format!(
                        "{} refused an honest message of {}: {reason}",
                        name(to),
                        name(from)
                    ));
                }
            }
        }
        Ok(())
    }

    /// One turn of a host's loop.
    fn turn(&mut self, place: usize) -> Result<(), String> {
        let local = self.local(place, self.now);
        let budget = self.schedule.apply_budget;
        let host = &mut self.hosts[place];
        let mut busy = host.apply(local, budget);
        host.serve(local);
        busy |= host.is_scanning();
        host.replicator.handle_timeout(local);
        let mut message = std::mem::take(&mut self.message);
        let mut messages = 0;
        while let Some(destination) = self.hosts[place]
            .replicator
            .poll_transmit(local, &mut message)
        {
            if message.len() > self.schedule.payload_bytes_max {
                return Err(format!("a message of {} bytes", message.len()));
            }
            messages += 1;
            if messages > 10_000 {
                return Err("poll_transmit does not end".into());
            }
            for to in 0..self.hosts.len() {
                if to != place
                    && (destination == Destination::All
                        || destination == Destination::One(name(to)))
                {
                    self.send(place, to, &message);
                }
            }
        }
        self.message = message;
        let timeout = self.hosts[place]
            .replicator
            .poll_timeout()
            .ok_or("a cluster without a timeout")?;
        if timeout <= local {
            return Err(format!(
                "{} has something to do at once after it did all",
                name(place)
            ));
        }
        let at = self
            .world(place, timeout)
            .max(self.now + Duration::from_micros(1));
        let soon = self.now + Duration::from_micros(200);
        self.wake(place, if busy { at.min(soon) } else { at });
        if let Some(fault) = &self.hosts[place].inbox.fault {
            return Err(fault.clone());
        }
        let waiting = self.hosts[place].inbox.waiting_max;
        // Twice, because what waits when a snapshot is joined waits on.
        if waiting > 2 * self.schedule.unapplied_groups_max as u64 {
            return Err(format!(
                "{waiting} groups of one origin waited to be applied"
            ));
        }
        Ok(())
    }

    fn send(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let incarnation = Incarnation(from as u64 + 100);
        if self.is_storm() {
            self.send_strange(from, to, bytes);
            if self.schedule.is_cut(from, to, self.now)
                || self.random.chance(self.schedule.loss_percent)
            {
                return;
            }
        }
        let copies =
            1 + u64::from(self.is_storm() && self.random.chance(self.schedule.duplicate_percent));
        for _ in 0..copies {
            let delay = self.schedule.delay_us + self.random.below(self.schedule.jitter_us + 1);
            let at = self.now + Duration::from_micros(delay);
            self.happens(
                at,
                Happening::Arrive {
                    from,
                    to,
                    incarnation,
                    bytes: bytes.to_vec(),
                },
            );
        }
    }

    /// What is not of this epoch, this incarnation or this build.
    fn send_strange(&mut self, from: usize, to: usize, bytes: &[u8]) {
        if self.random.below(1_000) >= self.schedule.strange_permille {
            return;
        }
        let mut bytes = bytes.to_vec();
        let mut incarnation = Incarnation(from as u64 + 100);
        match self.random.below(3) {
            // Another incarnation, which counted otherwise: nothing it says may be believed.
            0 => {
                incarnation = Incarnation(1);
                self.corrupt_records(&mut bytes);
            }
            1 => {
                bytes[2] = 1;
                self.corrupt_records(&mut bytes);
            }
            // A later build's frame that may be skipped, before the frames that this build knows.
            _ => {
                let at = self.first_frame(&bytes);
                let length = self.random.range(1, 60) as u8;
                let mut frame = vec![0xc0, length];
                frame.extend((0..length).map(|byte| byte.wrapping_mul(37)));
                bytes.splice(at..at, frame);
                if bytes.len() > 1_400 {
                    return;
                }
            }
        }
        // Only a sender that was heard has an incarnation to differ from.
        if self.hosts[to]
            .replicator
            .progress()
            .member(name(from))
            .is_some_and(|known| known.heard.is_some())
        {
            let at = self.now + Duration::from_micros(self.schedule.delay_us);
            self.happens(
                at,
                Happening::Arrive {
                    from,
                    to,
                    incarnation,
                    bytes,
                },
            );
        }
    }

    fn corrupt_records(&mut self, bytes: &mut [u8]) {
        let last = bytes.len() - 1;
        bytes[last] ^= 0x55;
    }

    /// Where the frames begin: version, cluster, epoch, timestamp, head, echoes.
    fn first_frame(&self, bytes: &[u8]) -> usize {
        let varint = |mut at: usize| {
            while bytes[at] & 0x80 != 0 {
                at += 1;
            }
            at + 1
        };
        let mut at = varint(3 + 8);
        let echoes = bytes[at];
        at += 1;
        for _ in 0..echoes {
            at = varint(varint(at) + 8);
        }
        at
    }

    /// What must hold at every moment, as far as this host knows and says.
    fn check(&self, place: usize) -> Result<(), String> {
        let host = &self.hosts[place];
        let me = name(place);
        let progress = host.replicator.progress();
        for (other, peer) in self.hosts.iter().enumerate() {
            let member = name(other);
            if progress.applied(member) > host.applied[other] {
                return Err(format!(
                    "{me} would acknowledge {member} beyond what it applied"
                ));
            }
            if progress.acknowledged(member) > peer.applied[place] {
                return Err(format!(
                    "{me} believes that {member} applied more than it did"
                ));
            }
            // Nobody needs what was pruned, unless a snapshot is to bring it.
            let stable = progress.stable(member);
            for (third, witness) in self.hosts.iter().enumerate() {
                if third == other || stable == 0 {
                    continue;
                }
                if witness.applied[other] < stable {
                    return Err(format!(
                        "{me} calls {member}:{stable} stable; {} lacks it",
                        name(third)
                    ));
                }
                let head = witness.head_when_applied[other][stable as usize];
                if third != place && host.applied[third] < head {
                    let witness = name(third);
                    return Err(format!(
                        "{me} calls {member}:{stable} stable, but {witness}:{head} is concurrent and not here"
                    ));
                }
            }
            if other != place {
                let until = progress.covered_until(member);
                let until = self.world(place, until).0.saturating_sub(4);
                let by_then = peer.committed_at.partition_point(|at| at.0 < until) as u64;
                if host.applied[other] < by_then {
                    return Err(format!(
                        "{me} calls {member} covered until {until} us, has {} of {by_then}",
                        host.applied[other]
                    ));
                }
            }
        }
        Ok(())
    }

    /// Everything was committed, sent, applied, acknowledged, pruned and stable.
    fn is_quiet(&self) -> bool {
        self.left.iter().all(|&left| left == 0)
            && self.hosts.iter().all(|host| {
                let progress = host.replicator.progress();
                host.replicator.log_room().groups == self.schedule.log_groups_max
                    && self.hosts.iter().enumerate().all(|(place, peer)| {
                        let head = peer.head();
                        host.applied[place] == head && progress.stable(name(place)) == head
                    })
            })
    }

    /// What must hold in the end.
    fn converged(&self) -> Result<(), String> {
        let mut expected = Table::new();
        for (place, host) in self.hosts.iter().enumerate() {
            for sequence in 1..=host.head() {
                let entry = expected.entry(key(name(place).0, sequence)).or_default();
                *entry = (*entry).max((sequence, name(place).0));
            }
        }
        for (place, host) in self.hosts.iter().enumerate() {
            if host.table != expected {
                return Err(format!("the table of {} differs in the end", name(place)));
            }
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let mut text = format!("{:?}\n", self.schedule);
        for (place, host) in self.hosts.iter().enumerate() {
            let room = host.replicator.log_room();
            text += &format!(
                "{} head {} left {} room {room:?}\n",
                name(place),
                host.head(),
                self.left[place]
            );
            for member in host.replicator.progress().members() {
                text += &format!("   {member:?}\n");
            }
        }
        text
    }
}
