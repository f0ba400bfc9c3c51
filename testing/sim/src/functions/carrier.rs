//! A carrier's NAT: subscribers with a quota of ports and of new sessions, ports in blocks, two pools of outside addresses, and the
//! log of who had which block.
//!
//! Every instance counts what it hears of, so a quota may be passed by what was granted elsewhere and not yet heard of, and by no
//! more: a new binding or session must have been asked for at an instance that could not know of as many. Of blocks no lag
//! excuses anything: two subscribers never have one. All that was begun is left alone in the end, comes back within seconds, and
//! is given out again. Of each block the log then has one begin and one end, but for ends that only the host would tell that died
//! for good.

use core::net::Ipv4Addr;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use asterism_function::build::Segment;
use asterism_function::{Endpoint, Observable, Protocol, TcpFlags};
use asterism_functions::nat::{
    AddressPool, IdleTimes, NEWS_QUESTION, Nat, NatConfig, NatEvent, NatEventKind, NatReportPart,
    NatUse, PortBlocks, PortQuarantine, Prefix, SubscriberLimits,
};
use asterism_placement::Time;
use asterism_state::hash;

use super::bindings::Bindings;
use super::drive::World;
use super::granted::{Block, Era, Given};
use super::hosts::{Arrival, Hosts, Left, PORTS, Place};
use super::plan::Plan;
use super::services::nat_of;
use super::talks::{Message, frame};
use crate::report::Failure;
use crate::scenario::Draws;

/// Subscribers of each pool, and what each of them sends from: half as much again as the quota.
const SUBSCRIBERS: usize = 3;
const POOLS: usize = 2;
const FLOWS: usize = 9;
const QUOTA: usize = 6;
/// Remote endpoints that each of them sends to.
const REMOTES: u64 = 4;
/// Outside addresses of each pool, and blocks of each address.
const ADDRESSES: u8 = 2;
const BLOCKS: u16 = 32;
const FIRST_PORT: u16 = 1_024;
/// Seconds after which a session is forgotten, and for which a block then rests.
const IDLE_S: u32 = 2;
const REST_S: u32 = 2;
/// All blocks must have come back so long after the last packet.
const RETURNING: Duration = Duration::from_secs(20);
/// A packet is handled at most so long after it came: what it waits for, and a step.
const HANDLED_WITHIN: Duration = Duration::from_millis(60);
/// Each endpoint that has a port must be answered so often once links are good.
const ANSWERS_IN_CALM: u32 = 2;
/// Events that one part of a report has at most.
const EVENTS_PER_PART: u32 = 128;

/// What subscribers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// They send, for the first or for the second time.
    Sending,
    /// They are silent until all blocks are free.
    Silent,
    /// They are called up host by host.
    Called,
}

/// An inside endpoint.
#[derive(Debug)]
struct Flow {
    inside: Endpoint,
    subscriber: usize,
    due: Time,
    answers: u32,
}

#[derive(Debug, Default)]
struct Call {
    asked: BTreeSet<u16>,
    answered: BTreeSet<u16>,
    refused: BTreeSet<u16>,
}

/// Subscribers around a carrier's NAT.
pub(crate) struct Carrier {
    draws: Draws,
    plan: Plan,
    per_second: u32,
    burst: u32,
    flows: Vec<Flow>,
    phase: Phase,
    bindings: Bindings,
    era: Era,
    /// When a packet of a flow came last to an instance that might open a binding for it, or a session.
    may_bind: BTreeMap<(u16, Place), Time>,
    may_open: BTreeMap<(u16, Endpoint, Place), Time>,
    /// The address that each subscriber is seen by.
    paired: BTreeMap<usize, Ipv4Addr>,
    coming: BTreeMap<(Time, u64), Arrival>,
    sent: u64,
    is_calm: bool,
    /// Blocks that some instance knows as used or quarantined.
    held: u32,
    call: Option<Call>,
    judged: BTreeMap<&'static str, u64>,
}

impl Carrier {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut draws = super::drive::draws(plan);
        let load = plan.load.as_micros() as u64;
        let flows = (0..SUBSCRIBERS * POOLS * FLOWS).map(|number| {
            let subscriber = number / FLOWS;
            let address = Self::address(subscriber);
            let port = 2_000 + (number % FLOWS) as u16;
            Flow {
                inside: Endpoint::new(address, port, Protocol::UDP),
                subscriber,
                due: Time::from_micros(60_000) + draws.micros(0, load),
                answers: 0,
            }
        });
        let flows = flows.collect();
        Self {
            // Little is made up for while a packet waits, else the quota could not be judged.
            per_second: draws.within(5, 12) as u32,
            burst: draws.within(6, 16) as u32,
            plan: plan.clone(),
            flows,
            phase: Phase::Sending,
            bindings: Bindings::default(),
            era: Era::default(),
            may_bind: BTreeMap::new(),
            may_open: BTreeMap::new(),
            paired: BTreeMap::new(),
            coming: BTreeMap::new(),
            sent: 0,
            is_calm: false,
            held: 0,
            call: None,
            judged: BTreeMap::new(),
            draws,
        }
    }

    /// Of the first pool's networks, or of the second's.
    fn address(subscriber: usize) -> Ipv4Addr {
        let (pool, number) = (subscriber / SUBSCRIBERS, subscriber % SUBSCRIBERS);
        Ipv4Addr::new(10, 0, pool as u8, 1 + number as u8)
    }

    fn outside(pool: usize) -> impl Iterator<Item = Ipv4Addr> {
        let first = pool as u8 * ADDRESSES + 1;
        (first..first + ADDRESSES).map(|last| Ipv4Addr::new(203, 0, 113, last))
    }

    /// Ports of a block: 64 for each instance.
    fn block_ports(&self) -> u16 {
        64 * self.plan.hosts as u16 * self.plan.lanes
    }

    fn block_of(&self, outside: Endpoint) -> Block {
        let number = (outside.port - FIRST_PORT) / self.block_ports();
        (outside.address, number)
    }

    fn judged(&mut self, what: &'static str) {
        *self.judged.entry(what).or_default() += 1;
    }

    fn send(&mut self, at: Time, arrival: Arrival) {
        self.sent += 1;
        self.coming.insert((at, self.sent), arrival);
    }

    fn asks(&self, number: u16, remote: u16, host: Option<usize>) -> Arrival {
        let address = Ipv4Addr::new(198, 51, 100, 1 + remote as u8);
        let to = Endpoint::new(address, 4_000, Protocol::UDP);
        let from = self.flows[usize::from(number)].inside;
        Arrival {
            port: PORTS[0],
            path: hash::words(number.into(), remote.into(), 1),
            host,
            frame: datagram((from, to), number),
        }
    }

    /// How many of its subscriber's other endpoints an instance surely knows to have a port.
    fn known_ports(&self, number: u16, at: Place, hosts: &Hosts<Nat>) -> usize {
        let subscriber = self.flows[usize::from(number)].subscriber;
        let others = self.era.bound.iter().filter(|(other, given)| {
            **other != number && given.subscriber == subscriber && given.is_known(at, hosts)
        });
        others.count()
    }

    /// How much an instance surely knows to be spent of a subscriber's new sessions, at least.
    fn known_spent(&self, subscriber: usize, at: Place, hosts: &Hosts<Nat>) -> f64 {
        // Of what a dead host may have opened, and reported, it is not known when.
        let known = self.era.sessions.iter().filter(|(session, given)| {
            given.subscriber == subscriber
                && given.is_known(at, hosts)
                && !self.era.doubtful_sessions.contains(session)
        });
        let mut times: Vec<Time> = known.map(|(_, given)| given.since).collect();
        times.sort();
        let (mut spent, mut reckoned) = (0.0_f64, Time::ZERO);
        let makes_up = |passed: Duration| passed.as_secs_f64() * f64::from(self.per_second);
        for since in times {
            spent = (spent - makes_up(since.since(reckoned))).max(0.0) + 1.0;
            spent = spent.min(self.burst.into());
            reckoned = since;
        }
        // A session counts from when its packet came, which may have waited.
        let passed = hosts.now().since(reckoned) + HANDLED_WITHIN;
        (spent - makes_up(passed)).max(0.0)
    }

    fn comes(&mut self, said: &Message, at: Place, hosts: &Hosts<Nat>) {
        let (number, now) = (said.number, hosts.now());
        self.bindings.arrives(number.into(), at, hosts);
        if self.known_ports(number, at, hosts) < QUOTA {
            self.may_bind.insert((number, at), now);
        } else {
            self.judged("packets that may bind nothing");
        }
        let subscriber = self.flows[usize::from(number)].subscriber;
        if self.known_spent(subscriber, at, hosts) <= f64::from(self.burst) - 1.0 {
            let session = (number, said.destination, at);
            self.may_open.insert(session, now);
        } else {
            self.judged("packets that may open nothing");
        }
    }

    /// A packet left for outside.
    fn goes_out(&mut self, said: &Message, at: Place, now: Time) -> Result<(), Failure> {
        let (number, outside) = (said.number, said.source);
        let subscriber = self.flows[usize::from(number)].subscriber;
        self.judge_block(outside, subscriber, at, now)?;
        self.era.ports.insert(outside, subscriber);
        let given = self
            .bindings
            .leaves(number.into(), outside.to_bits(), at, now);
        given.map_err(|why| Failure::new("a flow keeps what it was given", why))?;
        if let Some(other) = self.bindings.others(number.into(), outside.to_bits()) {
            return Err(Failure::new(
                "no two flows have the same",
                format!("{at:?}: {outside} is of {number} and {other}"),
            ));
        }
        let fresh = Given {
            subscriber,
            by: at,
            since: now,
            shown: vec![at],
        };
        let could = |came: Option<&Time>| came.is_some_and(|came| now <= *came + HANDLED_WITHIN);
        let era = &mut self.era;
        match era.bound.get_mut(&number) {
            Some(given) => given.shows(at),
            None => {
                let may = could(self.may_bind.get(&(number, at)));
                if !may && !era.doubtful_flows.contains(&number) {
                    return Err(Failure::new(
                        "quotas of ports hold",
                        format!(
                            "{at:?} gave {outside} to {number} of subscriber {subscriber}, who has {:?}",
                            era.bound
                        ),
                    ));
                }
                era.bound.insert(number, fresh.clone());
            }
        }
        let session = (number, said.destination);
        match era.sessions.get_mut(&session) {
            Some(given) => given.shows(at),
            None => {
                let may = could(self.may_open.get(&(number, said.destination, at)));
                if !may && !era.doubtful_sessions.contains(&session) {
                    return Err(Failure::new(
                        "quotas of new sessions hold",
                        format!(
                            "{at:?} opened {session:?} of subscriber {subscriber}, who has {:?}",
                            era.sessions
                        ),
                    ));
                }
                era.sessions.insert(session, fresh);
            }
        }
        self.judged("given");
        let answer = Arrival {
            port: PORTS[1],
            path: hash::words(number.into(), 2, 2),
            host: None,
            frame: datagram((said.destination, outside), number),
        };
        let takes = self.draws.micros(50, 2_000);
        self.send(now + takes, answer);
        Ok(())
    }

    /// The block of a port is its subscriber's alone, of the subscriber's pool, on the subscriber's address.
    fn judge_block(
        &mut self,
        outside: Endpoint,
        subscriber: usize,
        at: Place,
        now: Time,
    ) -> Result<(), Failure> {
        if !Self::outside(subscriber / SUBSCRIBERS).any(|address| address == outside.address) {
            return Err(Failure::new(
                "subscribers are seen by addresses of their pool",
                format!("{at:?} gave {outside} to subscriber {subscriber}"),
            ));
        }
        let paired = *self.paired.entry(subscriber).or_insert(outside.address);
        if paired != outside.address {
            return Err(Failure::new(
                "a subscriber is seen by one address",
                format!("{at:?} gave {outside} to subscriber {subscriber}, who has {paired}"),
            ));
        }
        let block = self.block_of(outside);
        let given = self.era.blocks.entry(block).or_insert(Given {
            subscriber,
            by: at,
            since: now,
            shown: Vec::new(),
        });
        given.shows(at);
        if given.subscriber != subscriber {
            return Err(Failure::new(
                "a block is one subscriber's",
                format!("{at:?} gave {outside} to subscriber {subscriber}, of a block {given:?}"),
            ));
        }
        Ok(())
    }

    /// An answer came in.
    fn comes_in(&mut self, said: &Message, at: Place) -> Result<(), Failure> {
        let flow = &mut self.flows[usize::from(said.number)];
        if said.destination != flow.inside {
            return Err(Failure::new(
                "answers reach who asked",
                format!("{at:?} sent {} what is of {flow:?}", said.destination),
            ));
        }
        flow.answers += u32::from(self.is_calm);
        if let Some(call) = &mut self.call {
            call.answered.insert(said.number);
        }
        self.judged("answered");
        Ok(())
    }

    fn noted(&mut self, event: &NatEvent, host: usize) {
        let block = self.block_of(Endpoint::new(event.outside, event.ports.0, Protocol::UDP));
        match event.kind {
            NatEventKind::BlockAllocated => {
                let begun = self.era.begun.entry(block).or_default();
                begun.push((event.inside.address, host));
            }
            NatEventKind::BlockFreed => self.era.ended.entry(block).or_default().push(host),
            NatEventKind::BindingMade | NatEventKind::BindingEnded => {}
        }
        self.judged("events of the log");
    }

    fn judge_log(&mut self, all_ended: bool, hosts: &Hosts<Nat>) -> Result<(), Failure> {
        let blocks = self.era.judge_log(all_ended, hosts, Self::address)?;
        *self
            .judged
            .entry("blocks held against the log")
            .or_default() += blocks;
        Ok(())
    }

    /// Endpoints of a subscriber that have a port.
    fn bound(&self, subscriber: usize) -> usize {
        let all = self.era.bound.values();
        all.filter(|given| given.subscriber == subscriber).count()
    }
}

impl World for Carrier {
    type Function = Nat;

    fn function(&mut self) -> Nat {
        let ports = self.block_ports();
        let last = FIRST_PORT + ports * BLOCKS - 1;
        let idle = IdleTimes {
            udp: IDLE_S,
            ..IdleTimes::RFC
        };
        let second = AddressPool {
            inside: vec![Prefix::new(Self::address(SUBSCRIBERS), 24)],
            outside: Self::outside(1).collect(),
        };
        Nat::new(NatConfig {
            outside_ports: (FIRST_PORT, last),
            idle,
            short_idle: true,
            sessions_max: 1 << 11,
            pools: vec![second],
            subscribers: SubscriberLimits {
                ports_max: QUOTA as u32,
                sessions_per_second: self.per_second,
                sessions_burst: self.burst,
                count_max: 1 << 6,
                ..SubscriberLimits::NONE
            },
            blocks: Some(PortBlocks {
                ports,
                per_subscriber_max: 2,
            }),
            port_quarantine: PortQuarantine {
                seconds: REST_S,
                ..PortQuarantine::RFC
            },
            log: true,
            ..nat_of((0..POOLS).flat_map(Self::outside).collect())
        })
        .expect("a sound configuration")
    }

    fn due(&mut self, now: Time, out: &mut Vec<Arrival>) {
        if self.phase == Phase::Sending {
            for number in 0..self.flows.len() {
                if self.flows[number].due > now {
                    continue;
                }
                let wait = self.draws.micros(4_000, 20_000);
                self.flows[number].due = now + wait;
                let remote = self.draws.within(0, REMOTES - 1) as u16;
                let arrival = self.asks(number as u16, remote, None);
                self.send(now, arrival);
            }
        }
        while let Some(first) = self.coming.first_entry()
            && first.key().0 <= now
        {
            out.push(first.remove());
        }
    }

    fn arrives(&mut self, arrival: &Arrival, at: Place, hosts: &Hosts<Nat>) {
        if arrival.port == PORTS[0]
            && let Some(said) = Message::of(&arrival.frame)
        {
            self.comes(&said, at, hosts);
        }
    }

    fn leaves(&mut self, left: Left, hosts: &Hosts<Nat>) -> Result<(), Failure> {
        // By ICMP a subscriber is informed of what was refused.
        let said = Message::of(&left.frame).filter(|said| said.source.protocol == Protocol::UDP);
        let Some(said) = said else {
            return Ok(());
        };
        if left.port != PORTS[1] {
            return self.comes_in(&said, left.at);
        }
        if let Some(call) = &self.call
            && call.refused.contains(&said.number)
        {
            return Err(Failure::new(
                "quotas of ports hold",
                format!("{:?} gave {} to {}", left.at, said.source, said.number),
            ));
        }
        self.goes_out(&said, left.at, hosts.now())
    }

    /// What the control plane asks for.
    fn looks(&mut self, hosts: &Hosts<Nat>) -> Result<(), Failure> {
        self.held = 0;
        for (at, instance) in hosts.instances() {
            let mut cursor = Some(0);
            while let Some(from) = cursor {
                let mut bytes = Vec::new();
                let part = (from, EVENTS_PER_PART);
                cursor = hosts
                    .function()
                    .report(instance.state(), NEWS_QUESTION, part, &mut bytes);
                NatReportPart::read_all(&bytes, |news| match news {
                    NatReportPart::Use(NatUse {
                        blocks_used,
                        blocks_quarantined,
                        ..
                    }) => self.held = self.held.max(blocks_used + blocks_quarantined),
                    NatReportPart::Event(event) => self.noted(&event, at.host),
                });
            }
        }
        if self.phase == Phase::Silent && self.held == 0 {
            self.judge_log(true, hosts)?;
            self.era = Era::default();
            self.bindings = Bindings::default();
            (self.phase, self.is_calm) = (Phase::Sending, true);
            let now = hosts.now();
            for flow in &mut self.flows {
                flow.answers = 0;
                flow.due = now + self.draws.micros(0, 30_000);
            }
        }
        Ok(())
    }

    fn died(&mut self, victim: usize, reported: Time, _: &Hosts<Nat>) {
        self.bindings.died(victim, reported);
        self.era.died((victim, reported));
        self.era.perhaps_of(
            victim,
            (self.may_bind.keys().copied(), self.may_open.keys().copied()),
        );
    }

    fn calms(&mut self, _: Time) {
        self.is_calm = true;
    }

    fn unfinished(&self) -> Option<String> {
        if self.phase == Phase::Silent {
            return Some(format!("{} blocks are not free", self.held));
        }
        for subscriber in 0..SUBSCRIBERS * POOLS {
            let ports = self.era.ports.values().filter(|of| **of == subscriber);
            let ports = ports.count();
            if ports < QUOTA {
                return Some(format!(
                    "subscriber {subscriber} has {ports} of {QUOTA} ports"
                ));
            }
        }
        let mut bound = self.era.bound.keys();
        let lacks = |number: &&u16| self.flows[usize::from(**number)].answers < ANSWERS_IN_CALM;
        let number = bound.find(lacks)?;
        Some(format!("{:?}", self.flows[usize::from(*number)]))
    }

    fn ending(&self) -> Duration {
        RETURNING
    }

    /// Subscribers fall silent until all blocks are free, and send again.
    fn begins_again(&mut self, _: Time) -> bool {
        self.phase = Phase::Silent;
        self.coming.clear();
        true
    }

    fn settles(&mut self, _: &Hosts<Nat>) -> Result<(), Failure> {
        self.phase = Phase::Called;
        self.coming.clear();
        Ok(())
    }

    /// Who has a port keeps it at this host; who is beyond a quota gets none.
    fn roll_call(&mut self, host: usize, _: usize, _: Time, out: &mut Vec<Arrival>) {
        self.coming.clear();
        let mut call = Call::default();
        for number in 0..self.flows.len() as u16 {
            let sessions = self.era.sessions.range((number, Endpoint::from_bits(0))..);
            let known = sessions.map(|(session, _)| *session).next();
            match known.filter(|(of, _)| *of == number) {
                Some((_, remote)) => {
                    call.asked.insert(number);
                    let remote = u16::from(remote.address.octets()[3]) - 1;
                    out.push(self.asks(number, remote, Some(host)));
                }
                // One of its endpoints may have had two ports, of which one was given back.
                None if self.bound(self.flows[usize::from(number)].subscriber) < QUOTA => {}
                None => {
                    call.refused.insert(number);
                    out.push(self.asks(number, 0, Some(host)));
                }
            }
        }
        self.call = Some(call);
    }

    fn called(&mut self, host: usize) -> Result<(), Failure> {
        let Some(call) = self.call.take() else {
            return Ok(());
        };
        *self.judged.entry("roll calls").or_default() += call.asked.len() as u64;
        *self.judged.entry("refused in roll calls").or_default() += call.refused.len() as u64;
        match call.asked.difference(&call.answered).next() {
            Some(number) => Err(Failure::new(
                "established flows go on at every host",
                format!("m{host}: {:?}", self.flows[usize::from(*number)]),
            )),
            None => Ok(()),
        }
    }

    fn judge(&mut self, hosts: &Hosts<Nat>) -> Result<(), Failure> {
        self.looks(hosts)?;
        self.judge_log(false, hosts)
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = self.judged.clone();
        counts.insert("bindings given again", self.bindings.again);
        counts.insert("bindings lost with their host", self.bindings.lost);
        counts.insert("packets that had to keep a binding", self.bindings.kept);
        counts
    }
}

/// A datagram of a flow, either way.
fn datagram(ends: (Endpoint, Endpoint), number: u16) -> Vec<u8> {
    let segment = Segment::with_flags(TcpFlags::default());
    let mut payload = [0; 8];
    payload[..2].copy_from_slice(&number.to_be_bytes());
    frame(ends, &segment, &payload)
}
