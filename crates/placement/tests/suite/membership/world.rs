//! A cluster whose members die, return, join and leave while it is under load, and the truth about its epochs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use asterism_placement::membership::{InstallError, Roster};
use asterism_placement::replicated::{Config, Delivery, Destination, Standing};
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId, Time};

use crate::membership::host::{Host, Origin, SnapshotScans, groups_of};
use crate::random::Random;

mod leaving;

/// How long after the storm everything must be equal.
const HEAL_SECONDS_MAX: u64 = 30;
/// Steps after which a run counts as hanging.
const STEPS_MAX: u64 = 1_000_000;
/// How long groups are committed and members come and go.
const STORM_US: u64 = 1_500_000;

enum Happening {
    Arrive {
        from: Origin,
        to: usize,
        bytes: Vec<u8>,
    },
    Wake(usize),
    Commit(usize),
    /// The next change of membership.
    Change,
    /// A host dies, if another has what it had.
    Die(usize),
    /// A host is handed a roster.
    Install(usize, Roster),
    /// A host starts in a new incarnation.
    Start(usize),
    /// The next epoch leaves out who left, or names its next incarnation.
    LeaveOut(Origin),
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) epochs: u64,
    pub(crate) deaths: u64,
    /// Members that left gracefully.
    pub(crate) left: u64,
    pub(crate) returns: u64,
    pub(crate) closed: u64,
    pub(crate) skipped: u64,
    pub(crate) scans: u64,
    pub(crate) heal_us: u64,
    pub(crate) trace: u64,
    /// Times that nothing could be changed, because too few members had joined.
    pub(crate) waits: u64,
}

pub(crate) struct World {
    random: Random,
    now: Time,
    hosts: Vec<Option<Host>>,
    incarnations: Vec<u64>,
    /// The latest roster, and who takes part in it.
    roster: Roster,
    scans: SnapshotScans,
    /// Hosts that died or were evicted, as they were.
    dead: Vec<Host>,
    /// Incarnations that left gracefully, with all that they wrote.
    left: Vec<(Origin, u64)>,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    order: u64,
    wakes: Vec<Time>,
    loss_percent: u64,
    delay_us: u64,
    jitter_us: u64,
    ordered: bool,
    log_groups: usize,
    budget: usize,
    report: Report,
}

fn name(place: usize) -> MemberId {
    MemberId([7, 3, 300, 1, 9][place])
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut random = Random(seed ^ 0x00EB_0C45);
        let count = random.range(2, 5) as usize;
        let members = (0..count)
            .map(|place| (name(place), Some(Incarnation(1))))
            .collect();
        let mut world = World {
            now: Time::ZERO,
            incarnations: vec![0; count],
            roster: Roster {
                epoch: Epoch(1),
                members,
                assignment: Vec::new(),
            },
            scans: SnapshotScans::new(),
            dead: Vec::new(),
            left: Vec::new(),
            queue: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            order: 0,
            wakes: vec![Time::MAX; count],
            loss_percent: [0, 2, 15, 30][random.below(4) as usize],
            delay_us: random.range(20, 3_000),
            jitter_us: random.below(4_000),
            ordered: random.chance(60),
            log_groups: [32, 128, 1_024][random.below(3) as usize],
            budget: random.range(1, 20) as usize,
            report: Report::default(),
            hosts: (0..count).map(|_| None).collect(),
            random,
        };
        for place in 0..count {
            world.start(place, false);
            let at = Time(world.random.below(5_000));
            world.happens(at, Happening::Commit(place));
        }
        let first = Time(world.random.range(50_000, 200_000));
        world.happens(first, Happening::Change);
        world
    }

    fn start(&mut self, place: usize, joins: bool) {
        self.incarnations[place] += 1;
        let members = (0..self.hosts.len()).map(name).collect();
        let incarnation = Incarnation(self.incarnations[place]);
        let epoch = Epoch(u32::from(!joins));
        let mut config = Config::new(ClusterId(5), epoch, name(place), incarnation, members);
        config.joins = joins;
        config.log_groups_max = self.log_groups;
        config.log_bytes_max = 16 << 10;
        config.reorder_groups_max = 64;
        config.unapplied_groups_max = 128;
        config.keep_alive = Duration::from_millis(10);
        config.retransmit_max = Duration::from_millis(100);
        config.silent_after = Duration::from_millis(60);
        config.delivery = match self.ordered {
            true => Delivery::Ordered,
            false => Delivery::Unordered,
        };
        self.hosts[place] = Some(Host::new(config, self.now));
        self.wake(place, self.now);
    }

    fn happens(&mut self, at: Time, happening: Happening) {
        self.order += 1;
        self.happenings.insert(self.order, happening);
        self.queue.push(Reverse((at, self.order)));
    }

    fn wake(&mut self, place: usize, at: Time) {
        if at < self.wakes[place] {
            self.wakes[place] = at;
            self.happens(at, Happening::Wake(place));
        }
    }

    fn is_storm(&self) -> bool {
        self.now.0 < STORM_US
    }

    pub(crate) fn run(mut self) -> Result<Report, String> {
        for _ in 0..STEPS_MAX {
            let Some(Reverse((at, order))) = self.queue.pop() else {
                return Err("nothing left to happen".into());
            };
            let Some(happening) = self.happenings.remove(&order) else {
                return Err("a happening twice".into());
            };
            self.now = self.now.max(at);
            if self.now.0 > STORM_US + HEAL_SECONDS_MAX * 1_000_000 {
                let why = self.why_not_quiet().unwrap_or_default();
                return Err(format!(
                    "not equal {HEAL_SECONDS_MAX} s after the storm: {why}\n{}",
                    self.describe()
                ));
            }
            // An earlier wake came after this one was set down: it does nothing, or they would become ever more.
            if matches!(happening, Happening::Wake(place) if self.wakes[place] != self.now) {
                continue;
            }
            let place = match happening {
                Happening::Arrive { to, .. } => Some(to),
                Happening::Wake(place)
                | Happening::Commit(place)
                | Happening::Install(place, _)
                | Happening::Start(place) => Some(place),
                Happening::Change | Happening::Die(_) | Happening::LeaveOut(_) => None,
            };
            self.happened(happening)?;
            let Some(place) = place.filter(|&place| self.hosts[place].is_some()) else {
                continue;
            };
            self.turn(place)?;
            self.check(place)?;
            self.goes(place)?;
            if !self.is_storm() && self.why_not_quiet().is_none() {
                self.converged()?;
                self.report.heal_us = self.now.0 - STORM_US;
                return Ok(self.report);
            }
        }
        Err(format!(
            "too many steps: {}\n{}",
            self.why_not_quiet().unwrap_or_default(),
            self.describe()
        ))
    }

    fn happened(&mut self, happening: Happening) -> Result<(), String> {
        match happening {
            Happening::Wake(place) => self.wakes[place] = Time::MAX,
            Happening::Commit(place) => {
                for _ in 0..self.random.range(1, 4) {
                    if let Some(host) = &mut self.hosts[place] {
                        host.commit(self.now);
                    }
                }
                if self.is_storm() {
                    let at = self.now + Duration::from_micros(self.random.range(500, 12_000));
                    self.happens(at, Happening::Commit(place));
                }
            }
            Happening::Arrive { from, to, bytes } => {
                self.report.trace =
                    self.report.trace.rotate_left(5) ^ self.now.0 ^ bytes.len() as u64;
                if let Some(host) = &mut self.hosts[to] {
                    let (member, incarnation) = from;
                    let _ = host.replicator.handle(
                        self.now,
                        member,
                        incarnation,
                        &bytes,
                        &mut host.inbox,
                    );
                }
            }
            Happening::Change => self.change(),
            Happening::Die(place) => {
                if self.is_storm() && self.joined().iter().any(|&other| other != place) {
                    self.report.deaths += u64::from(self.hosts[place].is_some());
                    self.bury(place);
                }
            }
            Happening::LeaveOut(incarnation) => self.leave_out(incarnation),
            Happening::Start(place) => {
                self.start(place, true);
                self.report.returns += 1;
                let named = self.roster.clone();
                self.hand_to(place, named);
            }
            Happening::Install(place, roster) => self.install(place, &roster)?,
        }
        Ok(())
    }

    fn install(&mut self, place: usize, roster: &Roster) -> Result<(), String> {
        let Some(host) = &mut self.hosts[place] else {
            return Ok(());
        };
        // Only for the incarnation that it was meant for: another was handed its own.
        match host.replicator.install(self.now, roster, &mut host.inbox) {
            Ok(()) => {
                let members = host.replicator.progress().members().iter();
                host.stable_at_install = members
                    .filter_map(|known| Some(((known.member, known.incarnation?), known.stable)))
                    .collect();
                Ok(())
            }
            Err(InstallError::NotNewer { .. }) => Ok(()),
            Err(InstallError::OtherIncarnation { named }) if named < host.incarnation.1 => Ok(()),
            Err(why) if why.is_end() => {
                self.bury(place);
                Ok(())
            }
            Err(why) => Err(format!("{:?} refused a roster: {why}", host.incarnation)),
        }
    }

    fn bury(&mut self, place: usize) {
        self.dead.extend(self.hosts[place].take());
    }

    // --- the truth about epochs

    fn is_member(&self, place: usize) -> bool {
        self.roster.named(name(place)) == Some(Some(Incarnation(self.incarnations[place])))
    }

    /// Members of the latest roster that run, have joined and stay.
    fn joined(&self) -> Vec<usize> {
        (0..self.hosts.len())
            .filter(|&place| self.is_member(place))
            .filter(|&place| {
                let host = self.hosts[place].as_ref();
                host.is_some_and(|host| host.replicator.is_ready() && !host.leaves)
            })
            .collect()
    }

    fn hand_to(&mut self, place: usize, roster: Roster) {
        let at = self.now + Duration::from_micros(self.random.below(30_000));
        self.happens(at, Happening::Install(place, roster));
    }

    fn publish(&mut self, members: Vec<(MemberId, Option<Incarnation>)>) {
        let epoch = Epoch(self.roster.epoch.0 + 1);
        self.roster = Roster {
            epoch,
            members,
            assignment: Vec::new(),
        };
        self.report.epochs += 1;
        for place in 0..self.hosts.len() {
            let roster = self.roster.clone();
            self.hand_to(place, roster);
        }
    }

    /// One change of membership: a death, a leave, an eviction, a return, or several at once.
    fn change(&mut self) {
        if !self.is_storm() {
            return self.restore();
        }
        let next = self.now + Duration::from_micros(self.random.range(5_000, 250_000));
        self.happens(next, Happening::Change);
        let joined = self.joined();
        let place = self.random.below(self.hosts.len() as u64) as usize;
        let mut members = self.roster.members.clone();
        let listed = self.is_member(place);
        let others = joined.iter().filter(|&&other| other != place).count();
        match (listed, self.hosts[place].is_some()) {
            // A member leaves: it stops writing, and goes once all have what it wrote.
            (true, true) if others > 0 && joined.contains(&place) && self.random.chance(30) => {
                if let Some(host) = &mut self.hosts[place] {
                    host.leave(self.now);
                    self.wake(place, self.now);
                }
            }
            // A member dies, if another has what it had; nobody was informed yet.
            (true, true) if others > 0 && self.random.chance(60) => {
                self.report.deaths += 1;
                self.bury(place);
            }
            // It is evicted though it lives.
            (true, true) if others > 0 && self.random.chance(30) => {
                members.retain(|(member, _)| *member != name(place));
                self.publish(members);
            }
            (true, true) => self.report.waits += 1,
            // The dead are evicted, or return at once.
            (true, false) if others > 0 => {
                members.retain(|(member, _)| *member != name(place));
                if self.random.chance(50) {
                    members.push((name(place), Some(Incarnation(self.incarnations[place] + 1))));
                    self.happens(self.now, Happening::Start(place));
                }
                self.publish(members);
            }
            (false, false) if others > 0 => {
                members.push((name(place), Some(Incarnation(self.incarnations[place] + 1))));
                self.happens(self.now, Happening::Start(place));
                self.publish(members);
            }
            _ => self.report.waits += 1,
        }
    }

    /// After the storm anyone who is dead is evicted, so that the rest can agree.
    fn restore(&mut self) {
        let members: Vec<_> = (0..self.hosts.len())
            .filter(|&place| self.hosts[place].is_some() && self.is_member(place))
            .map(|place| (name(place), Some(Incarnation(self.incarnations[place]))))
            .collect();
        if members.len() < self.roster.members.len() {
            self.publish(members);
        }
    }

    // --- one turn of a host's loop

    fn turn(&mut self, place: usize) -> Result<(), String> {
        let (now, budget) = (self.now, self.budget);
        let Some(host) = &mut self.hosts[place] else {
            return Ok(());
        };
        let busy = host.apply(now, budget, &self.scans);
        let scans_begun = host.scans_begun;
        host.serve(now, &mut self.scans);
        if host.scans_begun > scans_begun && self.random.chance(8) {
            // Who scans dies in the middle of it.
            let soon = now + Duration::from_micros(self.random.below(8_000));
            self.happens(soon, Happening::Die(place));
        }
        let Some(host) = &mut self.hosts[place] else {
            return Ok(());
        };
        host.replicator.handle_timeout(now);
        let mut messages = Vec::new();
        let mut message = Vec::new();
        while let Some(destination) = host.replicator.poll_transmit(now, &mut message) {
            messages.push((destination, message.clone()));
            if messages.len() > 10_000 {
                return Err("poll_transmit does not end".into());
            }
        }
        if let Some(fault) = &host.inbox.fault {
            return Err(format!("{:?}: {fault}", host.incarnation));
        }
        let from = host.incarnation;
        let scanning = host.is_scanning();
        let timeout = host.replicator.poll_timeout();
        for (destination, bytes) in messages {
            for to in (0..self.hosts.len()).filter(|&to| to != place) {
                let meant =
                    destination == Destination::All || destination == Destination::One(name(to));
                let lost = self.is_storm() && self.random.chance(self.loss_percent);
                if !meant || lost {
                    continue;
                }
                let copies = 1 + u64::from(self.is_storm() && self.random.chance(5));
                for _ in 0..copies {
                    let delay = self.delay_us + self.random.below(self.jitter_us + 1);
                    let bytes = bytes.clone();
                    let at = now + Duration::from_micros(delay);
                    self.happens(at, Happening::Arrive { from, to, bytes });
                }
            }
        }
        let soon = now + Duration::from_micros(200);
        let timeout = timeout
            .unwrap_or(Time::MAX)
            .max(now + Duration::from_micros(1));
        if timeout < Time::MAX || busy {
            self.wake(
                place,
                if busy || scanning {
                    timeout.min(soon)
                } else {
                    timeout
                },
            );
        }
        Ok(())
    }

    // --- what must hold

    /// What a host says of the others, held against the truth.
    fn check(&mut self, place: usize) -> Result<(), String> {
        let Some(host) = &mut self.hosts[place] else {
            return Ok(());
        };
        let closed = std::mem::take(&mut host.closed);
        let has_joined = std::mem::take(&mut host.has_joined);
        let Some(host) = &self.hosts[place] else {
            return Ok(());
        };
        let progress = host.replicator.progress();
        let present = progress
            .members()
            .iter()
            .filter(|member| member.standing != Standing::Out);
        let mut stable = host.stable_checked.clone();
        for member in present {
            let Some(incarnation) = member.incarnation else {
                continue;
            };
            let incarnation = (member.member, incarnation);
            self.check_stable(host, incarnation, member.stable)?;
            stable.insert(incarnation, member.stable);
        }
        self.check_closed(host, closed)?;
        if has_joined {
            self.check_predecessors(host)?;
        }
        if let Some(host) = &mut self.hosts[place] {
            host.stable_checked = stable;
        }
        Ok(())
    }

    /// What a host calls closed is the same at all.
    fn check_closed(&self, host: &Host, closed: BTreeSet<Origin>) -> Result<(), String> {
        for incarnation in closed {
            let own = groups_of(&host.known, incarnation);
            if host.replicator.epoch() == self.roster.epoch {
                for witness in self.living(host) {
                    // Who joins now is brought it by its snapshot.
                    if witness.replicator.is_ready()
                        && groups_of(&witness.known, incarnation) != own
                    {
                        return Err(format!(
                            "{:?} calls {incarnation:?} closed; {:?} has other groups of it: {:?}",
                            host.incarnation,
                            witness.incarnation,
                            difference(&own, &groups_of(&witness.known, incarnation)),
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Who has joined has all that anybody has of its own earlier incarnations: it goes on from there.
    fn check_predecessors(&self, host: &Host) -> Result<(), String> {
        let (member, incarnation) = host.incarnation;
        let earlier = |group: &&(Origin, u64)| group.0.0 == member && group.0.1 < incarnation;
        for witness in self.living(host) {
            let mut groups = witness.known.iter().filter(earlier);
            if let Some(missing) = groups.find(|group| !host.known.contains(group)) {
                return Err(format!(
                    "{:?} joined without {missing:?} of its earlier incarnation, which {:?} has",
                    host.incarnation, witness.incarnation,
                ));
            }
        }
        Ok(())
    }

    /// The running members of the epoch that a host is in, itself included.
    fn living<'a>(&'a self, host: &'a Host) -> impl Iterator<Item = &'a Host> {
        let progress = host.replicator.progress();
        self.hosts.iter().flatten().filter(move |other| {
            let known = progress.member(other.incarnation.0);
            known.is_some_and(|known| {
                known.standing != Standing::Out && known.incarnation == Some(other.incarnation.1)
            })
        })
    }

    fn check_stable(&self, host: &Host, incarnation: Origin, stable: u64) -> Result<(), String> {
        if host.stable_checked.get(&incarnation).copied().unwrap_or(0) >= stable {
            return Ok(());
        }
        for witness in self.living(host) {
            // Who joins is known to lack what was stable before it came, and no more than that.
            let before = host
                .stable_at_install
                .get(&incarnation)
                .copied()
                .unwrap_or(0);
            if !witness.replicator.is_ready() && stable <= before {
                continue;
            }
            if witness.prefix(incarnation) < stable {
                return Err(format!(
                    "{:?} calls {incarnation:?}:{stable} stable; {:?} lacks it",
                    host.incarnation, witness.incarnation
                ));
            }
            // What the dead wrote before they knew it, and somebody has, is here.
            for dead in &self.dead {
                let known = dead.head_when_known.get(&(incarnation, stable));
                let before = known.copied().unwrap_or(dead.head);
                let groups = witness
                    .known
                    .range((dead.incarnation, 0)..=(dead.incarnation, before));
                if let Some(missing) = groups.clone().find(|group| !host.known.contains(group)) {
                    return Err(format!(
                        "{:?} calls {incarnation:?}:{stable} stable; {missing:?}, written before it was known there, is not here",
                        host.incarnation
                    ));
                }
            }
            let head = witness.head_when_known[&(incarnation, stable)];
            if host.prefix(witness.incarnation) < head {
                return Err(format!(
                    "{:?} calls {incarnation:?}:{stable} stable; what {:?} wrote before it knew is not all there",
                    host.incarnation, witness.incarnation
                ));
            }
        }
        Ok(())
    }

    fn members(&self) -> impl Iterator<Item = (usize, Option<&Host>)> {
        (0..self.hosts.len())
            .filter(|&place| self.is_member(place))
            .map(|place| (place, self.hosts[place].as_ref()))
    }

    fn why_not_quiet(&self) -> Option<String> {
        let heads: BTreeMap<MemberId, u64> = self
            .members()
            .filter_map(|(place, host)| Some((name(place), host?.head)))
            .collect();
        for (place, host) in self.members() {
            let Some(host) = host else {
                return Some(format!("{} is dead", name(place)));
            };
            let replicator = &host.replicator;
            if host.leaves {
                return Some(format!("{:?} has not left yet", host.incarnation));
            }
            if replicator.epoch() != self.roster.epoch {
                return Some(format!("{:?} is in another epoch", host.incarnation));
            }
            if !replicator.is_ready() {
                return Some(format!("{:?} has not joined", host.incarnation));
            }
            if let Some(ended) = replicator.ended().find(|ended| !ended.closed) {
                return Some(format!("{:?}: {ended:?}", host.incarnation));
            }
            if replicator.log_room().groups != self.log_groups {
                return Some(format!("{:?} keeps groups", host.incarnation));
            }
            for (&member, &head) in &heads {
                if replicator.progress().stable(member) != head {
                    return Some(format!(
                        "{member}:{head} is not stable to {:?}",
                        host.incarnation
                    ));
                }
            }
        }
        None
    }

    fn converged(&mut self) -> Result<(), String> {
        let members: Vec<&Host> = self.members().filter_map(|(_, host)| host).collect();
        let Some(first) = members.first() else {
            return Err("nobody is left".into());
        };
        for host in &members {
            for &(incarnation, head) in &self.left {
                if host.prefix(incarnation) < head {
                    return Err(format!(
                        "{:?} left at {head}; {:?} has {} of it",
                        incarnation,
                        host.incarnation,
                        host.prefix(incarnation)
                    ));
                }
            }
            host.check_table()?;
            if host.table != first.table {
                return Err(format!(
                    "the tables of {:?} and {:?} differ",
                    host.incarnation, first.incarnation
                ));
            }
            if host.known != first.known {
                let missing = first.known.symmetric_difference(&host.known).next();
                return Err(format!(
                    "{:?} and {:?} differ, in {missing:?} for one",
                    host.incarnation, first.incarnation
                ));
            }
        }
        let mut total = (0, 0, 0);
        for host in members {
            let counters = host.replicator.counters();
            total.0 += counters.incarnations_closed;
            total.1 += counters.groups_skipped;
            total.2 += host.scans_begun;
        }
        (self.report.closed, self.report.skipped, self.report.scans) = total;
        Ok(())
    }

    fn describe(&self) -> String {
        let mut text = format!("{:?}\n", self.roster);
        for host in self.hosts.iter().flatten() {
            let (epoch, ready) = (host.replicator.epoch(), host.replicator.is_ready());
            text += &format!(
                "{:?} head {} {epoch} ready {ready}\n",
                host.incarnation, host.head
            );
            for ended in host.replicator.ended() {
                text += &format!("   {ended:?}\n");
            }
            for member in host.replicator.progress().members() {
                text += &format!("   {member:?}\n");
            }
        }
        text
    }
}

/// What one has and the other has not, either way.
fn difference(left: &[u64], right: &[u64]) -> Vec<u64> {
    let only = |some: &[u64], others: &[u64]| -> Vec<u64> {
        let mut only = some.to_vec();
        only.retain(|sequence| !others.contains(sequence));
        only
    };
    [only(left, right), only(right, left)].concat()
}
