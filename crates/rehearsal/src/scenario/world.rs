//! A scenario that runs: a cluster on virtual time, what was sent to it, what left it and was not expected yet. What is done to hosts and
//! asked of them is in `hosts.rs`.
//!
//! The clock stands at the time of the last `at` or `wait`, and steps behind it may take until the next one: who expects a packet gives
//! it that time, [`PATIENCE`] at most.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use asterism_config::Config;
use asterism_config::diagnostic::Diagnostic;
use asterism_config::functions::Functions;
use asterism_config::wiring::{INSIDE, OUTSIDE};
use asterism_epochs::EpochFile;
use asterism_function::{FlowKey, MacAddress, NetworkFunction, Packet, PortNumber, reasons_of};
use asterism_host::stations;
use asterism_packet::{ArpOperation, build};
use asterism_placement::Time;

use super::PATIENCE;
use super::frame::Fields;
use super::part::Names;
use super::pattern::Pattern;
use super::step::{More, Step, What};
use crate::fleet::Fleet;

/// How far the clock goes between two looks at whether something has come.
const LOOK: Duration = Duration::from_millis(1);
/// Packets that left and were not expected yet, at most; more are a failure.
pub const UNEXPECTED_MAX: usize = 20_000;
/// What a failure shows of each kind, at most.
const SHOWN_MAX: usize = 6;

/// A packet that left and was not expected yet.
#[derive(Clone, Debug)]
pub(super) struct Departed {
    host: usize,
    side: PortNumber,
    /// `None` of what is not IP.
    fields: Option<Fields>,
    is_intact: bool,
}

/// A scenario that runs.
pub(super) struct World<'a, F: NetworkFunction> {
    pub(super) fleet: Fleet<F>,
    pub(super) config: Config,
    /// The text that the configuration was read from.
    pub(super) text: String,
    /// The file of the scenario, beside which others lie.
    pub(super) path: &'a Path,
    pub(super) functions: Functions,
    pub(super) epochs: EpochFile,
    pub(super) alive: Vec<bool>,
    started: Time,
    /// When the last `at` was, since `started`.
    clock: Duration,
    names: Names,
    unexpected: Vec<Departed>,
    is_overrun: bool,
    /// What was sent since the clock went on last and did not leave unchanged yet, with the side that it came by.
    sent: Vec<(PortNumber, Fields)>,
    sent_last: u64,
    sent_by: Option<Step>,
    /// Drops that steps reported, by host and reason.
    pub(super) reported: BTreeMap<(usize, &'static str), u64>,
    /// The function's Ethernet addresses inside and outside, as far as they were seen.
    stations: [MacAddress; 2],
    pub(super) packets: u64,
    /// When hosts request the stations of a balancer's backends next.
    stations_due: Time,
}

impl<'a, F: NetworkFunction> World<'a, F> {
    pub(super) fn new(
        fleet: Fleet<F>,
        config: &Config,
        text: &str,
        path: &'a Path,
        functions: Functions,
    ) -> World<'a, F> {
        World {
            started: fleet.now(),
            alive: vec![true; fleet.hosts()],
            fleet,
            epochs: EpochFile::first(&config.cluster.members),
            config: config.clone(),
            text: text.to_owned(),
            path,
            functions,
            clock: Duration::ZERO,
            names: Names::new(),
            unexpected: Vec::new(),
            is_overrun: false,
            sent: Vec::new(),
            sent_last: 0,
            sent_by: None,
            reported: BTreeMap::new(),
            stations: [MacAddress([2, 0, 0, 0, 0, 2]); 2],
            packets: 0,
            stations_due: Time::ZERO,
        }
    }

    /// How long the scenario has run.
    pub(super) fn elapsed(&self) -> Duration {
        self.fleet.now() - self.started
    }

    /// Does all steps, until one does not hold. `Ok` tells that all do.
    pub(super) fn run(&mut self, steps: &[Step]) -> Result<(), Diagnostic> {
        self.request_stations();
        for (place, step) in steps.iter().enumerate() {
            let until = self.deadline(&steps[place + 1..]);
            self.step(step, until)?;
        }
        let end = self.started + self.clock + PATIENCE;
        self.run_until(end.max(self.fleet.now()));
        match steps.last() {
            Some(last) => self.settle(last),
            None => Ok(()),
        }
    }

    /// Until when what a step waits for may come.
    fn deadline(&self, later: &[Step]) -> Time {
        let most = self.started + self.clock + PATIENCE;
        let next = later.iter().find_map(|step| match step.what {
            What::At(time) => Some(self.started + time),
            _ => None,
        });
        next.map_or(most, |next| next.min(most))
            .max(self.fleet.now())
    }

    fn step(&mut self, step: &Step, until: Time) -> Result<(), Diagnostic> {
        match &step.what {
            What::At(time) => {
                let to = self.started + *time;
                if to > self.fleet.now() {
                    self.run_until(to);
                }
                self.settle(step)?;
                self.clock = *time;
                Ok(())
            }
            What::Send {
                hosts,
                side,
                pattern,
                times,
            } => self.send(step, hosts, *side, pattern, *times),
            What::Expect {
                side,
                pattern,
                more,
            } => self.expect(step, until, *side, pattern, *more),
            What::Nothing => self.nothing(step, until),
            What::Pass(more) => self.pass(step, until, *more),
            What::Drop { reason, more } => self.dropped(step, until, reason, *more),
            What::Ignore => {
                self.collect();
                self.unexpected.clear();
                self.sent.clear();
                self.reported = self.drops();
                Ok(())
            }
            _ => self.other(step, until),
        }
    }

    /// An error about a step.
    pub(super) fn failure(&self, step: &Step, title: impl Into<String>) -> Diagnostic {
        Diagnostic::error(title, step.span.clone())
    }

    /// Goes on until something holds, at most until a moment: what it gives then, else what it says last.
    pub(super) fn until<T, E>(
        &mut self,
        until: Time,
        mut look: impl FnMut(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        loop {
            self.collect();
            let found = look(self);
            let now = self.fleet.now();
            if found.is_ok() || now >= until {
                return found;
            }
            self.run_until((now + LOOK).min(until));
        }
    }

    /// Moves the clock. As hosts that run do, these request stations now and then.
    fn run_until(&mut self, until: Time) {
        while self.stations_due < until {
            self.fleet
                .run_until(self.stations_due.max(self.fleet.now()));
            self.request_stations();
        }
        self.fleet.run_until(until);
    }

    /// Has all hosts ask for the stations that packets to backends leave to, which answer at once.
    pub(super) fn request_stations(&mut self) {
        self.stations_due = self.fleet.now() + stations::ROUND;
        let requests = stations::requests(&self.config.function);
        if requests.is_empty() {
            return;
        }
        for host in self.asked(None) {
            for (port, request) in &requests {
                // A host that has not joined yet takes nothing, and is sent all of it in the next round.
                self.fleet.inject(host, 0, *port, &request.frame());
            }
        }
        self.fleet.run_until(self.fleet.now());
        self.collect();
        self.fleet.run_until(self.fleet.now());
    }

    // --- packets in

    fn send(
        &mut self,
        step: &Step,
        hosts: &[usize],
        side: PortNumber,
        pattern: &Pattern,
        times: u64,
    ) -> Result<(), Diagnostic> {
        self.sent_last = 0;
        self.sent_by = Some(step.clone());
        let mut turns = hosts.iter().cycle();
        for _ in 0..times {
            for number in 0..pattern.count() {
                if let Some(&host) = turns.next() {
                    self.send_one(step, host, side, pattern, number)?;
                }
            }
        }
        Ok(())
    }

    fn send_one(
        &mut self,
        step: &Step,
        host: usize,
        side: PortNumber,
        pattern: &Pattern,
        number: u64,
    ) -> Result<(), Diagnostic> {
        let name = self.config.cluster.members[host].clone();
        if !self.alive[host] {
            return Err(self
                .failure(step, format!("{name} is dead and takes no packets"))
                .help(format!(
                    "send it to another host, or let it `return {name}` before"
                )));
        }
        let packet = pattern.packet(number, &self.names);
        let mut packet = packet.map_err(|why| self.failure(step, why.to_string()))?;
        if packet.station == MacAddress::default() {
            packet.station = self.stations[usize::from(side.0)];
        }
        let mut frame = packet.frame();
        let lanes = self.config.host.instances as u64;
        let flow = Packet::parse(&mut frame).map_or(0, |parsed| FlowKey::of(&parsed).hash(0));
        if !self
            .fleet
            .inject(host, (flow % lanes) as usize, side, &frame)
        {
            let joined = self.fleet.cluster().members()[host].channel.is_ready();
            let failure = self.failure(step, format!("{name} takes no packets now"));
            return Err(match joined {
                true => failure.help("its log is full, or too many packets are parked: send fewer at once, with `wait` between"),
                false => failure
                    .label("it has not joined yet")
                    .help("`wait` longer after its `return`; a dead host that the epoch names keeps others from joining: leave it out by `without`"),
            });
        }
        self.packets += 1;
        self.sent_last += 1;
        // As it is read: of what an error is about, that is less than what was written.
        self.sent
            .push((side, Fields::read(&mut frame).unwrap_or(packet)));
        Ok(())
    }

    // --- packets out

    /// Takes what left. Questions by ARP are answered, as stations on a link do.
    fn collect(&mut self) {
        let left: Vec<_> = self.fleet.take_left().collect();
        for mut one in left {
            let side = usize::from(one.port.0);
            if let (Some(station), Some(known)) =
                (one.bytes.get(6..12), self.stations.get_mut(side))
            {
                known.0.copy_from_slice(station);
            }
            let arp = Packet::parse(&mut one.bytes)
                .ok()
                .and_then(|packet| packet.arp());
            if let Some(arp) = arp {
                if arp.operation == ArpOperation::Request && self.alive[one.host] {
                    let [a, b, c, d] = arp.target.octets();
                    let mut frame = [0; 64];
                    if let Some(length) =
                        build::arp_reply(&arp, MacAddress([2, 0, a, b, c, d]), &mut frame)
                    {
                        self.fleet.inject(one.host, 0, one.port, &frame[..length]);
                    }
                }
                continue;
            }
            if self.unexpected.len() >= UNEXPECTED_MAX {
                self.is_overrun = true;
                continue;
            }
            self.unexpected.push(Departed {
                host: one.host,
                side: one.port,
                fields: Fields::read(&mut one.bytes),
                is_intact: Fields::is_intact(&mut one.bytes),
            });
        }
    }

    fn expect(
        &mut self,
        step: &Step,
        until: Time,
        side: Option<PortNumber>,
        pattern: &Pattern,
        more: More,
    ) -> Result<(), Diagnostic> {
        let times = more.times.unwrap_or(1);
        for number in 0..times {
            let wanted = |one: &Departed| {
                side.is_none_or(|side| one.side == side)
                    && more.host.is_none_or(|host| one.host == host)
            };
            let found = self.until(until, |world| {
                let names = &mut world.names;
                let found = world.unexpected.iter().position(|one| {
                    let fields = one.fields.as_ref().filter(|_| wanted(one));
                    fields.is_some_and(|fields| pattern.matches(fields, names).is_ok())
                });
                found.ok_or(())
            });
            match found {
                Ok(place) => {
                    let one = self.unexpected.remove(place);
                    if !one.is_intact {
                        return Err(self
                            .failure(step, "this packet left with a wrong checksum")
                            .label(self.show(&one)));
                    }
                }
                Err(()) => {
                    let where_to =
                        side.map_or(String::new(), |side| format!(" {}", side_word(side)));
                    let title = match number {
                        0 => format!("no such packet left{where_to}"),
                        some => format!("such a packet left{where_to} {some} times only"),
                    };
                    return Err(self.with_news(self.failure(step, title), Some((pattern, side))));
                }
            }
        }
        Ok(())
    }

    fn nothing(&mut self, step: &Step, until: Time) -> Result<(), Diagnostic> {
        self.run_until(until);
        self.collect();
        match self.unexpected.is_empty() {
            true => Ok(()),
            false => Err(self.with_news(self.failure(step, "a packet left"), None)),
        }
    }

    fn pass(&mut self, step: &Step, until: Time, more: More) -> Result<(), Diagnostic> {
        let times = more.times.unwrap_or(self.sent_last);
        for number in 0..times {
            let found = self.until(until, |world| {
                let places = world
                    .sent
                    .iter()
                    .enumerate()
                    .find_map(|(sent, (side, fields))| {
                        let left = world.unexpected.iter().position(|one| {
                            one.side != *side
                                && more.host.is_none_or(|host| one.host == host)
                                && one
                                    .fields
                                    .as_ref()
                                    .is_some_and(|left| fields.is_passed(left))
                        });
                        left.map(|left| (sent, left))
                    });
                places.ok_or(())
            });
            let Ok((sent, left)) = found else {
                let failure = match (number, times) {
                    (0, 1) => self.failure(step, "the packet did not pass"),
                    (0, _) => self.failure(step, format!("none of {times} packets passed")),
                    _ => self.failure(step, format!("{number} of {times} packets passed")),
                };
                return Err(self.with_news(failure, None));
            };
            self.sent.remove(sent);
            let one = self.unexpected.remove(left);
            if !one.is_intact {
                return Err(self
                    .failure(step, "this packet left with a wrong checksum")
                    .label(self.show(&one)));
            }
        }
        Ok(())
    }

    // --- drops

    /// Packets dropped so far, by host and reason.
    fn drops(&self) -> BTreeMap<(usize, &'static str), u64> {
        let mut drops = BTreeMap::new();
        for (host, member) in self.fleet.cluster().members().iter().enumerate() {
            for instance in &member.instances {
                for (reason, count) in instance.tally().drops() {
                    let label = reason.label_among(reasons_of(instance.function()));
                    let label = label.unwrap_or_else(|| reason.label());
                    *drops.entry((host, label)).or_default() += count;
                }
            }
        }
        drops
    }

    /// Those that no step reported yet.
    fn unreported(&self) -> Vec<((usize, &'static str), u64)> {
        let drops = self.drops().into_iter();
        drops
            .map(|(key, count)| {
                (
                    key,
                    count - self.reported.get(&key).copied().unwrap_or(0).min(count),
                )
            })
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    fn dropped(
        &mut self,
        step: &Step,
        until: Time,
        reason: &str,
        more: More,
    ) -> Result<(), Diagnostic> {
        let times = more.times.unwrap_or(1);
        let of_these = |world: &Self| {
            let mut unreported = world.unreported();
            unreported.retain(|((host, label), _)| {
                *label == reason && more.host.is_none_or(|wanted| wanted == *host)
            });
            unreported
        };
        let found = self.until(until, |world| {
            let sum: u64 = of_these(world).iter().map(|(_, count)| count).sum();
            if sum >= times { Ok(()) } else { Err(sum) }
        });
        if let Err(sum) = found {
            let failure = match (sum, times) {
                (0, 1) => self.failure(step, format!("no packet was dropped as `{reason}`")),
                _ => self.failure(
                    step,
                    format!("{sum} of {times} packets were dropped as `{reason}`"),
                ),
            };
            return Err(self.with_news(failure, None));
        }
        let mut left = times;
        for (key, count) in of_these(self) {
            let taken = count.min(left);
            left -= taken;
            *self.reported.entry(key).or_default() += taken;
        }
        Ok(())
    }

    // --- what must have been reported

    /// The clock goes on: all that came until now was expected.
    fn settle(&mut self, step: &Step) -> Result<(), Diagnostic> {
        self.collect();
        self.sent.clear();
        let blamed = self.sent_by.take();
        let blamed = blamed.as_ref().unwrap_or(step);
        let title = match (self.is_overrun, self.unexpected.first()) {
            (true, _) => {
                format!("more than {UNEXPECTED_MAX} packets left, and no step expects them")
            }
            (_, Some(one)) => {
                format!("what left {} is expected by no step", side_word(one.side))
            }
            _ if !self.unreported().is_empty() => {
                "a packet was dropped, and no step says so".to_owned()
            }
            _ => return Ok(()),
        };
        let failure = self.with_news(self.failure(blamed, title), None);
        Err(failure.help("say behind this step what comes of it, with `expect`, `pass` or `drop REASON`; or that it does not matter, with `ignore`"))
    }

    /// A failure with what left and was dropped, and was not reported by steps. Of what left, in what it differs from a packet that was
    /// expected.
    fn with_news(
        &self,
        mut failure: Diagnostic,
        wanted: Option<(&Pattern, Option<PortNumber>)>,
    ) -> Diagnostic {
        for one in self.unexpected.iter().take(SHOWN_MAX) {
            let why = match (wanted, &one.fields) {
                (Some((_, Some(side))), _) if side != one.side => {
                    format!(": not {}", side_word(side))
                }
                (Some((pattern, _)), Some(fields)) => pattern
                    .matches(fields, &mut self.names.clone())
                    .err()
                    .map_or(String::new(), |why| format!(": {why}")),
                _ => String::new(),
            };
            failure = failure.help(format!("this left: {}{why}", self.show(one)));
        }
        if self.unexpected.len() > SHOWN_MAX {
            let more = self.unexpected.len() - SHOWN_MAX;
            failure = failure.help(format!("and {more} more left"));
        }
        let unreported = self.unreported();
        for ((host, reason), count) in unreported.iter().take(SHOWN_MAX) {
            let name = &self.config.cluster.members[*host];
            failure = failure.help(format!("{name} dropped {count} as `{reason}`"));
        }
        let parked = self.fleet.cluster().members().iter().enumerate();
        for (host, member) in parked {
            let count: usize = member.instances.iter().map(|one| one.tally().parked).sum();
            if count > 0 {
                let name = &self.config.cluster.members[host];
                failure = failure.help(format!("at {name} {count} wait for what others may know"));
            }
        }
        if failure.help.is_empty() {
            failure = failure.help("nothing more left, and nothing more was dropped");
        }
        failure
    }

    fn show(&self, one: &Departed) -> String {
        let packet = match &one.fields {
            Some(fields) => fields.to_string(),
            None => "what is no IP packet".to_owned(),
        };
        let name = &self.config.cluster.members[one.host];
        format!("{} {packet} on {name}", side_word(one.side))
    }

    /// Hosts that a step is about: the one that it names, or all that live.
    pub(super) fn asked(&self, host: Option<usize>) -> Vec<usize> {
        match host {
            Some(host) => vec![host],
            None => (0..self.alive.len())
                .filter(|host| self.alive[*host])
                .collect(),
        }
    }
}

/// The word of a port.
pub(super) fn side_word(side: PortNumber) -> &'static str {
    match side {
        INSIDE => "inside",
        OUTSIDE => "outside",
        _ => "by a third port",
    }
}
