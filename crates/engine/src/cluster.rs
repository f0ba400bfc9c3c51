//! A whole cluster in one process, on a clock that the caller sets: what the demo, `replay` and the
//! simulator run. The parts are the shipped ones; only time, threads and the network are replaced.

use asterism_function::{NetworkFunction, PortNumber};
use asterism_placement::membership::{InstallError, Roster};
use asterism_placement::{MemberId, Time};
use std::collections::VecDeque;
use std::time::Duration;

use crate::channel::{Destination, StateChannel};
use crate::instance::Instance;
use asterism_io::link::Network;

/// A member: a state channel and its instances.
#[derive(Debug)]
pub struct Member<F: NetworkFunction> {
    /// Its name.
    pub name: MemberId,
    /// Its state channel.
    pub channel: StateChannel,
    /// Its instances.
    pub instances: Vec<Instance<F>>,
    /// How far its clock is ahead of the cluster's.
    pub skew: Duration,
    paused: bool,
    /// Instances that stand still while their host goes on.
    stalled: Vec<bool>,
    /// What arrived while the member was paused, and from where: its socket's buffer.
    inbox: VecDeque<(u16, Vec<u8>)>,
    inbox_overflows: u64,
    moves: u64,
    /// When it has something to do, by the cluster's clock.
    due: Time,
}

impl<F: NetworkFunction> Member<F> {
    /// Datagrams that arrived while the member was paused and found its socket's buffer full.
    pub fn inbox_overflows(&self) -> u64 {
        self.inbox_overflows
    }
    /// How often it was handed something or had a turn: as long as that stands still, so does everything in it.
    pub fn moves(&self) -> u64 {
        self.moves
    }
    /// Datagrams that wait in its socket's buffer while it is paused.
    pub fn inbox(&self) -> usize {
        self.inbox.len()
    }

    fn find_due(&self, now: Time) -> Time {
        let mut local = self.channel.poll_timeout().unwrap_or(Time::MAX);
        for (instance, _) in self.running() {
            local = local.min(instance.next_due());
            if instance.is_behind() {
                local = Time::ZERO;
            }
        }
        Time::from_micros(
            local
                .as_micros()
                .saturating_sub(self.skew.as_micros() as u64),
        )
        .max(now)
    }

    fn running(&self) -> impl Iterator<Item = (&Instance<F>, &bool)> {
        self.instances
            .iter()
            .zip(&self.stalled)
            .filter(|(_, stalled)| !**stalled)
    }
}

/// Members and the network between them.
#[derive(Debug)]
pub struct Cluster<F: NetworkFunction> {
    members: Vec<Member<F>>,
    network: Network,
    now: Time,
    turn: Duration,
    datagram: Vec<u8>,
    strays: VecDeque<(u16, u16, Vec<u8>)>,
}

/// How long a turn of a member's loop takes unless [`Cluster::set_turn`] says otherwise.
const TURN: Duration = Duration::from_micros(1);
/// Datagrams that wait for a paused member at most: what a socket's buffer holds.
pub const INBOX_DATAGRAMS_MAX: usize = 512;
/// Datagrams for places without a member that are kept for [`Cluster::take_stray`] at most.
const STRAYS_MAX: usize = 256;

impl<F: NetworkFunction> Cluster<F> {
    /// A cluster over `network`, in which members are known by their places.
    pub fn new(members: Vec<(MemberId, StateChannel, Vec<Instance<F>>)>, network: Network) -> Self {
        let members = members
            .into_iter()
            .map(|(name, channel, instances)| Member {
                name,
                channel,
                stalled: vec![false; instances.len()],
                instances,
                skew: Duration::ZERO,
                paused: false,
                inbox: VecDeque::new(),
                inbox_overflows: 0,
                moves: 0,
                due: Time::ZERO,
            })
            .collect();
        Self {
            members,
            network,
            now: Time::ZERO,
            turn: TURN,
            datagram: Vec::with_capacity(2048),
            strays: VecDeque::new(),
        }
    }

    /// How long one turn of a member's loop takes at least. A longer one makes virtual time pass in fewer
    /// steps where a member has work at once again and again (a full log, a ring to be emptied).
    pub fn set_turn(&mut self, turn: Duration) {
        self.turn = turn.max(TURN);
    }

    /// The cluster's time.
    pub fn now(&self) -> Time {
        self.now
    }
    /// The members.
    pub fn members(&self) -> &[Member<F>] {
        &self.members
    }
    /// The members, to steer.
    pub fn members_mut(&mut self) -> &mut [Member<F>] {
        let now = self.now;
        for member in &mut self.members {
            member.due = now;
            member.moves += 1;
        }
        &mut self.members
    }
    /// The network between them.
    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }
    /// The network, for its counts.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Puts another host in a member's place: the one there ends at once, and what it sent is still on its way.
    pub fn replace(&mut self, place: usize, host: (MemberId, StateChannel, Vec<Instance<F>>)) {
        let now = self.now;
        let member = &mut self.members[place];
        (member.name, member.channel, member.instances) = host;
        member.stalled = vec![false; member.instances.len()];
        member.inbox.clear();
        member.due = now;
        member.moves += 1;
    }
    /// Hands a member a roster, now.
    ///
    /// # Errors
    /// See [`InstallError`]; nothing changed.
    pub fn install(&mut self, place: usize, roster: &Roster) -> Result<(), InstallError> {
        let now = self.now;
        let member = &mut self.members[place];
        member.due = now;
        member.moves += 1;
        member.channel.install(now + member.skew, roster)
    }
    /// Stops a member's loop, or lets it go on. What arrives meanwhile waits in its socket's buffer
    /// ([`INBOX_DATAGRAMS_MAX`]).
    pub fn set_paused(&mut self, member: usize, paused: bool) {
        let now = self.now;
        let member = &mut self.members[member];
        member.paused = paused;
        member.due = now;
    }
    /// Stops one instance's loop while its host's state channel goes on, or lets it go on.
    pub fn set_stalled(&mut self, member: usize, lane: usize, stalled: bool) {
        let now = self.now;
        let member = &mut self.members[member];
        member.stalled[lane] = stalled;
        member.due = now;
    }
    /// Whether the member is paused.
    pub fn is_paused(&self, member: usize) -> bool {
        self.members[member].paused
    }

    /// Hands a packet to an instance of a member, now. False if it could not be taken.
    pub fn inject(&mut self, member: usize, lane: usize, port: PortNumber, bytes: &[u8]) -> bool {
        self.inject_burst(member, lane, port, [bytes]) == 1
    }

    /// Hands packets to an instance of a member, now, as one burst. Tells how many were taken.
    pub fn inject_burst<'p>(
        &mut self,
        member: usize,
        lane: usize,
        port: PortNumber,
        packets: impl IntoIterator<Item = &'p [u8]>,
    ) -> usize {
        let now = self.now;
        let member = &mut self.members[member];
        if member.paused || member.stalled[lane] {
            return 0;
        }
        member.due = now;
        member.moves += 1;
        member.instances[lane].inject_burst(now + member.skew, port, packets)
    }

    /// Moves the clock to `until`, doing everything that is due on the way.
    pub fn run_until(&mut self, until: Time) {
        while self.advance(until) {}
    }

    /// Does what is due now, then moves the clock to the next moment at which something is due, at most to
    /// `until`. False once everything due at `until` is done.
    pub fn advance(&mut self, until: Time) -> bool {
        self.step();
        if self.now >= until {
            return false;
        }
        self.now = self.next_due().max(self.now).min(until);
        true
    }

    /// Runs until every member has applied what all others wrote, or `limit` is reached. Tells how long it
    /// took, `None` if it did not happen.
    pub fn run_until_quiet(&mut self, limit: Duration) -> Option<Duration> {
        let start = self.now;
        while self.now < start + limit {
            if self.is_quiet() {
                return Some(Duration::from_micros(
                    self.now.as_micros() - start.as_micros(),
                ));
            }
            self.run_until(self.now + Duration::from_millis(1));
        }
        None
    }

    /// Whether every member has applied what all others wrote.
    pub fn is_quiet(&self) -> bool {
        self.members.iter().all(|member| {
            member.channel.is_quiet()
                && member
                    .instances
                    .iter()
                    .all(|instance| !instance.is_behind())
        })
    }

    /// Everything that is due now: datagrams, then the turns of members that have something to do.
    pub fn step(&mut self) {
        let now = self.now;
        while let Some((from, to, mut bytes)) = self.network.receive(now) {
            let Some(member) = self.members.get_mut(usize::from(to)) else {
                if self.strays.len() < STRAYS_MAX {
                    self.strays.push_back((from, to, bytes));
                }
                continue;
            };
            member.moves += 1;
            if member.paused {
                if member.inbox.len() < INBOX_DATAGRAMS_MAX {
                    member.inbox.push_back((from, bytes));
                } else {
                    member.inbox_overflows += 1;
                    self.network.recycle(bytes);
                }
                continue;
            }
            member.due = now;
            // Refusals are counted by the channel.
            let _ = member
                .channel
                .handle(now + member.skew, u64::from(from), &mut bytes);
            self.network.recycle(bytes);
        }
        for place in 0..self.members.len() {
            let member = &mut self.members[place];
            if member.paused || member.due > now {
                continue;
            }
            member.moves += 1;
            let local = now + member.skew;
            while let Some((from, mut bytes)) = member.inbox.pop_front() {
                let _ = member.channel.handle(local, u64::from(from), &mut bytes);
                self.network.recycle(bytes);
            }
            member.channel.turn(local);
            for (instance, stalled) in member.instances.iter_mut().zip(&member.stalled) {
                if !stalled {
                    instance.turn(local);
                }
            }
            member.channel.turn(local);
            self.transmit(place, local);
            let member = &mut self.members[place];
            member.due = member.find_due(now + self.turn);
        }
    }

    /// The next datagram that arrived at a place without a member: from, to, bytes.
    pub fn take_stray(&mut self) -> Option<(u16, u16, Vec<u8>)> {
        self.strays.pop_front()
    }

    fn transmit(&mut self, place: usize, local: Time) {
        let count = self.members.len() as u16;
        while let Some(destination) = self.members[place]
            .channel
            .poll_transmit(local, &mut self.datagram)
        {
            let from = place as u16;
            match destination {
                Destination::All => {
                    for to in (0..count).filter(|&to| to != from) {
                        self.network.send(self.now, from, to, &self.datagram);
                    }
                }
                Destination::Near => {
                    for to in (0..count).filter(|&to| to != from) {
                        let name = self.members[usize::from(to)].name;
                        if self.members[place].channel.is_near(name) {
                            self.network.send(self.now, from, to, &self.datagram);
                        }
                    }
                }
                Destination::Member(name) => {
                    if let Some(to) = self.members.iter().position(|member| member.name == name) {
                        self.network.send(self.now, from, to as u16, &self.datagram);
                    }
                }
                Destination::Source(to) => {
                    self.network.send(self.now, from, to as u16, &self.datagram);
                }
            }
        }
    }

    fn next_due(&self) -> Time {
        let network = self.network.next_delivery().unwrap_or(Time::MAX);
        let running = self.members.iter().filter(|member| !member.paused);
        running.map(|member| member.due).fold(network, Time::min)
    }
}
