//! A firewall, a NAT, a port-scan detector and a monitor in a row in one instance, under the conversations of `talks.rs`, beside a
//! scanner outside.
//!
//! Of the NAT and the firewall that holds what holds of each alone, and one more thing: anyone who the NAT lets in because somebody inside
//! has the port, the firewall stops. The detector finds the scanner and takes nobody behind the NAT for one. The monitor stands
//! outermost: in the end it counted each packet that came by that side, and each that left by it, once, however often a
//! later stage was late.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use asterism_function::build::Segment;
use asterism_function::chain::{Chain, ChainState, Stage};
use asterism_function::{Endpoint, Packet, PortNumber, Protocol, Reason, TcpFlags, Transport};
use asterism_functions::monitor::MonitorState;
use asterism_functions::port_scan::{PortScan, PortScanConfig, PortScanState, Response};
use asterism_placement::Time;

use super::counts::{Handled, LAZINESS, Sums, before, bytes_of, monitor, said_of_protocol};
use super::drive::World;
use super::hosts::{Arrival, Hosts, Left, PORTS, Place};
use super::plan::Plan;
use super::services::{Translated, Walled, client, server, stray};
use super::talks::{NOBODY, Service, Talk, Talks, frame};
use crate::report::Failure;
use crate::scenario::Draws;

/// The stages, by their places.
const DETECTOR: usize = 2;
const MONITOR: usize = 3;
/// Who scans, and a port that nobody has: those that are given lie below.
const SCANNER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 250);
const UNUSED_PORTS: u16 = 9_000;
/// Probes that must have been handled: with room for those that only the dead host saw.
const PROBES_LEAST: u64 = 24;
/// What the monitor distinguishes.
const PROTOCOLS: [Protocol; 3] = [Protocol::ICMP, Protocol::TCP, Protocol::UDP];

/// The chain, to those who talk through it.
pub(crate) struct Row {
    translated: Translated,
    blocks: bool,
}

impl Row {
    fn new(plan: &Plan) -> Self {
        Self {
            translated: Translated::new(plan),
            blocks: Draws::new(plan.seed, 44).percent(50),
        }
    }

    fn outside(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.translated.outside()
    }
}

impl Service for Row {
    type Function = Chain;
    const CLIENTS: PortNumber = PORTS[0];
    const SERVERS: PortNumber = PORTS[1];
    const MAY_LOSE: bool = true;
    const EXCLUSIVE: bool = true;

    fn function(&mut self) -> Chain {
        let detector = PortScan::new(PortScanConfig {
            response: match self.blocks {
                true => Response::Block { block_s: 600 },
                false => Response::Detect,
            },
            histories_max: 1 << 10,
            alerts_max: 1 << 6,
            ..PortScanConfig::default()
        });
        Chain::new(vec![
            Stage::new("firewall", Arc::new(Walled.function())),
            Stage::new("nat", Arc::new(self.translated.function())),
            Stage::new("port-scan", Arc::new(detector)),
            Stage::new("monitor", Arc::new(monitor())),
        ])
        .expect("four stages of different names")
    }

    fn ends(&self, number: u16, draws: &mut Draws) -> (Endpoint, Endpoint) {
        let (address, port, protocol) = client(draws, 5);
        (
            Endpoint::new(address, port, protocol),
            server(number, protocol),
        )
    }

    fn given(&self, talk: &Talk, source: Endpoint, to: Endpoint) -> Option<(u64, u64)> {
        self.translated.given(talk, source, to)
    }

    fn flow(&self, talk: &Talk) -> u64 {
        self.translated.flow(talk)
    }

    fn attack(&mut self, draws: &mut Draws, talks: &[Talk]) -> Option<(PortNumber, Vec<u8>)> {
        match draws.within(0, 2) {
            0 => self.translated.attack(draws, talks),
            1 => Walled.attack(draws, talks),
            // To a port that somebody inside may have: the NAT may let it in, the firewall does not.
            _ => {
                let protocol = draws.one_of(&[Protocol::TCP, Protocol::UDP]);
                let port = 1_024 + draws.within(0, 400) as u16;
                let to = Endpoint::new(Ipv4Addr::new(203, 0, 113, 1), port, protocol);
                Some((PORTS[1], stray(draws, to)))
            }
        }
    }
}

/// Conversations through the chain, and a scanner.
pub(crate) struct Chained {
    talks: Talks<Row>,
    outside: Vec<Ipv4Addr>,
    blocks: bool,
    /// What passed the monitor.
    handled: Handled,
    now: Time,
    /// The scanner's next probe, and when it comes.
    probe: (u16, Time),
    every: Duration,
    probes_handled: u64,
    calls: bool,
}

impl Chained {
    pub(crate) fn new(plan: &Plan) -> Self {
        let row = Row::new(plan);
        let mut draws = Draws::new(plan.seed, 45);
        let load = plan.load.as_micros() as u64;
        Self {
            outside: row.outside().collect(),
            blocks: row.blocks,
            talks: Talks::new(row, plan),
            handled: Handled::default(),
            now: Time::ZERO,
            probe: (0, Time::from_micros(60_000) + draws.micros(0, load / 2)),
            every: draws.micros(2_000, 9_000),
            probes_handled: 0,
            calls: false,
        }
    }

    fn next_probe(&mut self, host: Option<usize>) -> Arrival {
        let to = Endpoint::new(self.outside[0], UNUSED_PORTS + self.probe.0, Protocol::TCP);
        self.probe.0 += 1;
        let segment = Segment {
            sequence: u32::from(NOBODY) << 16,
            ..Segment::with_flags(TcpFlags::SYN)
        };
        Arrival {
            port: PORTS[1],
            path: u64::from(self.probe.0) << 32,
            host,
            frame: frame(
                (Endpoint::new(SCANNER, 40_000, Protocol::TCP), to),
                &segment,
                &[],
            ),
        }
    }

    /// A packet passes the monitor.
    fn passes(&mut self, frame: &[u8], at: Place) {
        let mut frame = frame.to_vec();
        let Ok(packet) = Packet::parse(&mut frame) else {
            return;
        };
        let protocol = match packet.layout().transport() {
            Transport::Icmp => Protocol::ICMP,
            Transport::Tcp => Protocol::TCP,
            Transport::Udp => Protocol::UDP,
            // An ARP request, say.
            _ => return,
        };
        let bytes = bytes_of(&packet);
        self.handled
            .add(protocol.0.into(), at.host, self.now, bytes);
    }

    fn protocols() -> impl Iterator<Item = u16> {
        PROTOCOLS.iter().map(|protocol| protocol.0.into())
    }

    fn said(state: &ChainState, protocol: u16) -> Option<Sums> {
        let state: &MonitorState = state.stage(MONITOR)?;
        Some(said_of_protocol(state, protocol as u8))
    }

    fn judge_alerts(&self, hosts: &Hosts<Chain>) -> Result<(), Failure> {
        for (at, instance) in hosts.instances() {
            let state: Option<&PortScanState> = instance.state().stage(DETECTOR);
            let alerts = state.map(PortScanState::alerts).unwrap_or_default();
            let is_found = |host: Ipv4Addr| {
                let host = host.into();
                alerts.iter().any(|(subject, _)| subject.source == host)
            };
            if !is_found(SCANNER) {
                return Err(Failure::new(
                    "who scans is found",
                    format!("{at:?} knows nothing of {} probes", self.probes_handled),
                ));
            }
            if let Some(address) = self.outside.iter().find(|address| is_found(**address)) {
                return Err(Failure::new(
                    "who does not scan is not found",
                    format!("{at:?} has an alert of {address}: {alerts:?}"),
                ));
            }
        }
        Ok(())
    }

    /// In the roll call each host was sent a probe, which must have come no further than the detector.
    fn judge_blocks(&self, hosts: &Hosts<Chain>) -> Result<(), Failure> {
        for host in hosts.living().filter(|_| self.blocks) {
            let of_host = hosts.instances().filter(|(at, _)| at.host == host);
            let blocked = |(_, instance): (Place, &asterism_engine::Instance<Chain>)| {
                let mut tallies = instance.stage_tallies();
                tallies
                    .nth(DETECTOR)
                    .map_or(0, |tally| tally.dropped(Reason::Blocked))
            };
            if of_host.map(blocked).sum::<u64>() == 0 {
                return Err(Failure::new(
                    "who is found is blocked by all",
                    format!("m{host} let the last probe through to the NAT"),
                ));
            }
        }
        Ok(())
    }
}

impl World for Chained {
    type Function = Chain;

    fn function(&mut self) -> Chain {
        self.talks.function()
    }

    fn due(&mut self, now: Time, out: &mut Vec<Arrival>) {
        self.now = now;
        if !self.calls && self.probe.1 <= now {
            self.probe.1 = now + self.every;
            let probe = self.next_probe(None);
            out.push(probe);
        }
        self.talks.due(now, out);
    }

    fn arrives(&mut self, arrival: &Arrival, at: Place, hosts: &Hosts<Chain>) {
        self.talks.arrives(arrival, at, hosts);
    }

    fn taken(&mut self, arrival: &Arrival, at: Place, taken: bool) {
        if taken && arrival.port == PORTS[1] {
            self.passes(&arrival.frame, at);
            let mut frame = arrival.frame.clone();
            let packet = Packet::parse(&mut frame).ok();
            let source = packet.and_then(|packet| packet.ipv4_source());
            self.probes_handled += u64::from(source == Some(SCANNER));
        }
    }

    fn leaves(&mut self, left: Left, hosts: &Hosts<Chain>) -> Result<(), Failure> {
        if left.port == PORTS[1] {
            self.passes(&left.frame, left.at);
        }
        self.talks.leaves(left, hosts)
    }

    fn died(&mut self, victim: usize, reported: Time, hosts: &Hosts<Chain>) {
        self.talks.died(victim, reported, hosts);
        let died = (victim, before(reported, LAZINESS));
        self.handled
            .died(died, Self::protocols(), hosts, Self::said);
    }

    fn calms(&mut self, now: Time) {
        self.talks.calms(now);
    }

    fn unfinished(&self) -> Option<String> {
        let probes = self.probes_handled;
        let lacks = probes < PROBES_LEAST;
        let probes = lacks.then(|| format!("only {probes} probes were handled"));
        self.talks.unfinished().or(probes)
    }

    fn begins_again(&mut self, now: Time) -> bool {
        self.talks.begins_again(now)
    }

    fn settles(&mut self, hosts: &Hosts<Chain>) -> Result<(), Failure> {
        self.calls = true;
        self.talks.settles(hosts)
    }

    fn roll_call(&mut self, host: usize, next: usize, now: Time, out: &mut Vec<Arrival>) {
        let probe = self.next_probe(Some(host));
        out.push(probe);
        self.talks.roll_call(host, next, now, out);
    }

    fn called(&mut self, host: usize) -> Result<(), Failure> {
        self.talks.called(host)
    }

    fn judge(&mut self, hosts: &Hosts<Chain>) -> Result<(), Failure> {
        self.judge_alerts(hosts)?;
        self.judge_blocks(hosts)?;
        self.handled.judge(Self::protocols(), hosts, Self::said)
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = self.talks.counts();
        counts.extend(self.handled.counts());
        counts.insert("probes", self.probes_handled);
        counts
    }
}
