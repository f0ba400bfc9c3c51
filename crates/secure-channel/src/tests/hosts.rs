//! Hosts in memory under a virtual clock: wires that lose, repeat, delay and reorder by a seed, and record all.

use std::collections::BTreeMap;

use super::*;
use crate::Time;

/// Every host says something so often.
pub(super) const BEAT_US: u64 = 100_000;

pub(super) struct Hosts {
    pub(super) now: Time,
    pub(super) hosts: Vec<Host>,
    pub(super) loss_percent: u64,
    pub(super) repeat_percent: u64,
    pub(super) delay_us_max: u64,
    /// All that was ever sent: source, destination, bytes.
    pub(super) recorded: Vec<(usize, usize, Vec<u8>)>,
    wires: BTreeMap<(u64, u64), (usize, usize, Vec<u8>)>,
    wired: u64,
    /// What hosts understand that are started from now on.
    pub(super) versions: Versions,
    /// What they have that hosts must share.
    pub(super) terms: Option<Terms>,
    sent: u64,
    random: Random,
}

pub(super) struct Host {
    pub(super) channel: SecureChannel,
    pub(super) member: MemberId,
    pub(super) alive: bool,
    pub(super) beats: bool,
    pub(super) events: Vec<Event>,
    /// Payloads that opened: the sender, and the number that the harness gave the payload.
    pub(super) opened: Vec<(MemberId, Incarnation, u64)>,
    next_beat_us: u64,
}

impl Hosts {
    /// Wires without faults and half a millisecond long.
    pub(super) fn new(seed: u64) -> Hosts {
        Hosts {
            now: Time::from_micros(1_000_000),
            hosts: Vec::new(),
            loss_percent: 0,
            repeat_percent: 0,
            delay_us_max: 500,
            recorded: Vec::new(),
            wires: BTreeMap::new(),
            wired: 0,
            versions: ONE,
            terms: None,
            sent: 0,
            random: Random::new(seed),
        }
    }

    /// Members 1 and 2 at addresses 0 and 1.
    pub(super) fn pair(seed: u64) -> Hosts {
        let mut hosts = Hosts::new(seed);
        hosts.start(1, 101, 1);
        hosts.start(2, 102, 2);
        hosts
    }

    /// Starts a host of members 1 to 3 with a salt; answers its address.
    pub(super) fn start(&mut self, member: u16, incarnation: u64, salt: u8) -> usize {
        let address = self.hosts.len();
        self.hosts.push(self.host(member, incarnation, salt));
        address
    }

    /// Stops what runs at an address and starts another incarnation of the same member there.
    pub(super) fn restart(&mut self, address: usize, incarnation: u64, salt: u8) {
        let member = self.hosts[address].member.0;
        self.hosts[address] = self.host(member, incarnation, salt);
    }

    fn host(&self, member: u16, incarnation: u64, salt: u8) -> Host {
        let members = (1..=3).map(MemberId).collect();
        let config = SecureConfig {
            wire_version: self.versions.newest,
            wire_version_oldest: self.versions.oldest,
            terms: self.terms.clone(),
            ..SecureConfig::new(
                key(1),
                CLUSTER,
                MemberId(member),
                Incarnation(incarnation),
                members,
            )
        };
        Host {
            // The random seed repeats, as in a restored snapshot.
            channel: SecureChannel::new(config, [salt; 16], [5; 32]).unwrap(),
            member: MemberId(member),
            alive: true,
            beats: true,
            events: Vec::new(),
            opened: Vec::new(),
            next_beat_us: self.now.as_micros(),
        }
    }

    pub(super) fn run_ms(&mut self, duration_ms: u64) {
        let end = self.now.as_micros() + duration_ms * 1_000;
        loop {
            for address in 0..self.hosts.len() {
                self.turn(address);
            }
            let wire = self.wires.keys().next().map_or(u64::MAX, |(at, _)| *at);
            let alive = self.hosts.iter().filter(|host| host.alive);
            let due = alive
                .map(|host| {
                    host.next_beat_us.min(
                        host.channel
                            .poll_timeout()
                            .map_or(u64::MAX, Time::as_micros),
                    )
                })
                .min()
                .unwrap_or(u64::MAX);
            let next = wire.min(due).max(self.now.as_micros());
            if next > end {
                self.now = Time::from_micros(end);
                return;
            }
            self.now = Time::from_micros(next);
            while let Some((&(at, number), _)) = self.wires.first_key_value()
                && at <= next
                && let Some((from, to, datagram)) = self.wires.remove(&(at, number))
            {
                self.deliver(from, to, datagram);
            }
        }
    }

    /// Hands a datagram to the host at an address, as if it came from another.
    pub(super) fn deliver(&mut self, from: usize, to: usize, mut datagram: Vec<u8>) {
        let host = &mut self.hosts[to];
        if !host.alive {
            return;
        }
        if let Ok(Some(opened)) = host.channel.handle(self.now, from as u64, &mut datagram) {
            let number = datagram[opened.payload]
                .try_into()
                .map(u64::from_le_bytes)
                .unwrap();
            host.opened
                .push((opened.member, opened.incarnation, number));
        }
    }

    /// What a host does whenever it is woken: timers, its beat, and what it has to send.
    fn turn(&mut self, address: usize) {
        let now = self.now;
        let host = &mut self.hosts[address];
        if !host.alive {
            return;
        }
        host.channel.handle_timeout(now);
        let mut out = Vec::new();
        let mut outgoing = Vec::new();
        while let Some(destination) = host.channel.poll_transmit(&mut out) {
            outgoing.push((Some(destination), out.clone()));
        }
        if host.next_beat_us <= now.as_micros() {
            host.next_beat_us = now.as_micros() + BEAT_US;
            if host.beats {
                self.sent += 1;
                host.channel
                    .seal(&self.sent.to_le_bytes(), &mut out)
                    .unwrap();
                outgoing.push((None, out.clone()));
            }
        }
        host.events
            .extend(core::iter::from_fn(|| host.channel.poll_event()));
        for (destination, datagram) in outgoing {
            for to in 0..self.hosts.len() {
                let goes = match destination {
                    Some(Destination::Source(from)) => to as u64 == from,
                    Some(Destination::Member(member)) => self.hosts[to].member == member,
                    None => to != address,
                };
                if goes {
                    self.send(address, to, &datagram);
                }
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, datagram: &[u8]) {
        self.recorded.push((from, to, datagram.to_vec()));
        let copies = 1 + u64::from(self.random.percent(self.repeat_percent));
        for _ in 0..copies {
            if self.random.percent(self.loss_percent) {
                continue;
            }
            let at = self.now.as_micros() + 1 + self.random.below(self.delay_us_max);
            self.wired += 1;
            self.wires
                .insert((at, self.wired), (from, to, datagram.to_vec()));
        }
    }

    pub(super) fn admitted(&self, at: usize, member: u16) -> Option<u64> {
        self.hosts[at]
            .channel
            .admitted(MemberId(member))
            .map(|incarnation| incarnation.0)
    }

    pub(super) fn duplicates(&self, at: usize) -> Vec<Event> {
        let events = self.hosts[at].events.iter().copied();
        events
            .filter(|event| matches!(event, Event::DuplicateIdentity { .. }))
            .collect()
    }

    pub(super) fn admissions(&self, at: usize) -> Vec<u64> {
        let events = self.hosts[at].events.iter();
        let admitted = |event: &Event| match event {
            Event::Admitted { incarnation, .. } => Some(incarnation.0),
            _ => None,
        };
        events.filter_map(admitted).collect()
    }

    pub(super) fn refused(&self, at: usize, reason: Refusal) -> u64 {
        self.hosts[at].channel.refusals().get(reason)
    }
}
