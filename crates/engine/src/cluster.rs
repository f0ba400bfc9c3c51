//! A whole cluster in one process, on a clock that the caller sets: what the demo, `replay` and the
//! simulator run. The parts are the shipped ones; only time, threads and the network are replaced.

use asterism_function::{NetworkFunction, PortNumber};
use asterism_placement::{MemberId, Time};
use std::time::Duration;

use crate::channel::{Destination, StateChannel};
use crate::instance::Instance;
use crate::link::Network;

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
}

/// Members and the network between them.
#[derive(Debug)]
pub struct Cluster<F: NetworkFunction> {
    members: Vec<Member<F>>,
    network: Network,
    now: Time,
    datagram: Vec<u8>,
}

/// Steps that [`Cluster::run_until`] takes at one moment before it moves the clock on regardless.
const STEPS_PER_MOMENT: u32 = 64;

impl<F: NetworkFunction> Cluster<F> {
    /// A cluster over `network`, in which members are known by their places.
    pub fn new(members: Vec<(MemberId, StateChannel, Vec<Instance<F>>)>, network: Network) -> Self {
        let members = members
            .into_iter()
            .map(|(name, channel, instances)| Member {
                name,
                channel,
                instances,
                skew: Duration::ZERO,
                paused: false,
            })
            .collect();
        Self {
            members,
            network,
            now: Time::ZERO,
            datagram: Vec::with_capacity(2048),
        }
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

    /// Stops a member's clock and loop, or lets it go on. What arrives meanwhile waits.
    pub fn set_paused(&mut self, member: usize, paused: bool) {
        self.members[member].paused = paused;
    }
    /// Whether the member is paused.
    pub fn is_paused(&self, member: usize) -> bool {
        self.members[member].paused
    }

    /// Hands a packet to an instance of a member, now. False if it could not be taken.
    pub fn inject(&mut self, member: usize, lane: usize, port: PortNumber, bytes: &[u8]) -> bool {
        let now = self.now;
        let member = &mut self.members[member];
        if member.paused {
            return false;
        }
        let now = now + member.skew;
        member.instances[lane].inject(now, port, bytes)
    }

    /// Moves the clock to `until`, doing everything that is due on the way.
    pub fn run_until(&mut self, until: Time) {
        let mut steps = 0;
        loop {
            self.step();
            let next = self.next_due().min(until);
            if next > self.now {
                self.now = next;
                steps = 0;
                if next == until {
                    self.step();
                    return;
                }
            } else if self.now >= until {
                return;
            } else {
                steps += 1;
                if steps > STEPS_PER_MOMENT {
                    self.now = self.now + Duration::from_micros(1);
                    steps = 0;
                }
            }
        }
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

    /// Everything that is due now: datagrams, then each member's channel and instances.
    pub fn step(&mut self) {
        let now = self.now;
        while let Some((from, to, mut bytes)) = self.network.receive(now) {
            let member = &mut self.members[usize::from(to)];
            let local = now + member.skew;
            // Refusals are counted by the channel.
            let _ = member.channel.handle(local, u64::from(from), &mut bytes);
            self.network.recycle(bytes);
        }
        for place in 0..self.members.len() {
            let member = &mut self.members[place];
            if member.paused {
                continue;
            }
            let local = now + member.skew;
            member.channel.turn(local);
            for instance in &mut member.instances {
                instance.turn(local);
            }
            member.channel.turn(local);
            self.transmit(place, local);
        }
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
        let mut due = self.network.next_delivery().unwrap_or(Time::MAX);
        for member in self.members.iter().filter(|member| !member.paused) {
            let mut local = member.channel.poll_timeout().unwrap_or(Time::MAX);
            for instance in &member.instances {
                local = local.min(instance.next_due());
                if instance.is_behind() {
                    local = Time::ZERO;
                }
            }
            due = due.min(Time::from_micros(
                local
                    .as_micros()
                    .saturating_sub(member.skew.as_micros() as u64),
            ));
        }
        due
    }
}
