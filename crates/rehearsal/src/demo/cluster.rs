//! One run of the demo: NAT hosts over a WAN, the IDPS in front of them, and the ends of every conversation.
//!
//! The ends are driven as real ones are: who waits for a packet goes on when it has arrived, and sends again when nothing
//! came for a second. What an answer is addressed to is what was seen to leave the NAT, not what some table says.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use asterism_config::functions::FunctionSettings;
use asterism_config::functions::outside_of;
use asterism_config::wiring::{INSIDE, OUTSIDE};
use asterism_config::{Cluster, Config, Settings};
use asterism_function::{Endpoint, FlowKey, Packet, Reason};
use asterism_functions::nat::Nat;
use asterism_functions::port_scan::PortScan;
use asterism_io::link::LinkConditions;
use asterism_placement::Time;
use asterism_state::{Home, ObjectSettings};

use super::report::{Absent, HostRow, IdpsRow, RunRow, Sum};
use super::traffic::{Conversation, SCANNER, ScanPacket};
use super::view::{HostView, Snapshot, View};
use super::{DemoError, Plan};
use crate::fleet::{Fleet, FleetConfig, FleetError, Left};

/// Who got no packet for so long sends again.
const SEND_AGAIN: Duration = Duration::from_secs(1);
/// How often a packet is sent at most.
const SENDS_MAX: u32 = 4;
/// How often the view is reported.
const VIEW_STEP: Duration = Duration::from_millis(100);
/// How long hosts may take in the end until all have what others wrote.
const QUIET_LIMIT: Duration = Duration::from_secs(20);

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// This step of this conversation is sent.
    Send { conversation: usize, step: usize },
    /// If it has not arrived by now, it is sent again.
    Check {
        conversation: usize,
        step: usize,
        sends: u32,
    },
    /// This packet of the scans is sent.
    Scan { packet: usize },
    /// The view is reported.
    View,
}

/// How far a conversation is.
#[derive(Clone, Debug, Default)]
struct Ends {
    /// Steps that have arrived.
    arrived: usize,
    sends: u32,
    sent_at: Option<Time>,
    /// What the remote end saw the inside end as.
    seen_as: Option<Endpoint>,
}

/// One run.
pub(super) struct Run<'a> {
    plan: &'a Plan,
    absent: Absent,
    conversations: &'a [Conversation],
    scan: &'a [ScanPacket],
    members: Vec<String>,
    nat: Fleet<Nat>,
    idps: Fleet<PortScan>,
    /// Conversations by their remote endpoint.
    by_remote: BTreeMap<Endpoint, usize>,
    ends: Vec<Ends>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    events_made: u64,
    started: Time,
    /// Scan flows of which a probe was blocked: nobody answers what did not arrive.
    blocked_probes: BTreeSet<FlowKey>,
    opened: Vec<u64>,
    sum: Sum,
}

impl<'a> Run<'a> {
    /// Starts the hosts.
    pub(super) fn start(
        plan: &'a Plan,
        absent: Absent,
        conversations: &'a [Conversation],
        scan: &'a [ScanPacket],
    ) -> Result<Run<'a>, DemoError> {
        let config = read(include_str!("demo.toml"))?;
        let Settings::Nat(settings) = &config.function.settings else {
            return Err(DemoError::NoNat);
        };
        let nat = Arc::new(settings.function(&config.function.objects)?);
        let idps_config = read("[function.port-scan]")?;
        let Settings::PortScan(settings) = &idps_config.function.settings else {
            return Err(DemoError::NoIdps);
        };
        let idps = Arc::new(settings.function(&idps_config.function.objects)?);
        let (replication, wait) = (plan.replication, absent.wait());
        let function = config.function.clone();
        let objects = move |name: &str| {
            let chosen = function.object_settings(name);
            match (replication, name) {
                (false, _) => ObjectSettings {
                    home: Home::Local,
                    ..chosen
                },
                (true, "ports") => ObjectSettings {
                    absence: wait,
                    ..chosen
                },
                (true, _) => chosen,
            }
        };
        let members = config.cluster.members.clone();
        let nat = fleet(plan, config.cluster, plan.wan, &nat, objects)?;
        let function = idps_config.function.clone();
        let idps = fleet(
            plan,
            idps_config.cluster,
            Duration::ZERO,
            &idps,
            move |name: &str| function.object_settings(name),
        )?;
        let started = nat.now();
        let mut run = Run {
            plan,
            absent,
            conversations,
            scan,
            by_remote: conversations
                .iter()
                .enumerate()
                .map(|(number, one)| (one.remote, number))
                .collect(),
            ends: vec![Ends::default(); conversations.len()],
            events: BinaryHeap::new(),
            events_made: 0,
            started,
            blocked_probes: BTreeSet::new(),
            opened: vec![0; members.len()],
            sum: Sum::default(),
            members,
            nat,
            idps,
        };
        for (number, conversation) in conversations.iter().enumerate() {
            run.at(
                conversation.start,
                Event::Send {
                    conversation: number,
                    step: 0,
                },
            );
        }
        for (number, packet) in scan.iter().enumerate() {
            run.at(plan.span / 4 + packet.at, Event::Scan { packet: number });
        }
        run.at(Duration::ZERO, Event::View);
        Ok(run)
    }

    /// Runs to the end, and says what came of it.
    pub(super) fn finish(mut self, view: &mut dyn View) -> RunRow {
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            self.run_until(time);
            match event {
                Event::Send { conversation, step } => self.send(conversation, step),
                Event::Check {
                    conversation,
                    step,
                    sends,
                } => self.check(conversation, step, sends),
                Event::Scan { packet } => self.probe(packet),
                Event::View => {
                    view.show(&self.snapshot());
                    if self
                        .events
                        .iter()
                        .any(|Reverse((_, _, event))| *event != Event::View)
                    {
                        self.push(time + VIEW_STEP, Event::View);
                    }
                }
            }
            self.arrivals();
        }
        let quiet = self.nat.run_until_quiet(QUIET_LIMIT);
        self.arrivals();
        view.show(&self.snapshot());
        self.row(quiet)
    }

    // --- the ends of conversations

    fn send(&mut self, number: usize, step: usize) {
        let conversation = &self.conversations[number];
        let Some(Step { from_inside, bytes }) = conversation.steps.get(step).map(|step| Step {
            from_inside: step.from_inside,
            bytes: step.bytes.clone(),
        }) else {
            return;
        };
        let host = (number + step + self.ends[number].sends as usize) % self.members.len();
        let now = self.nat.now();
        let ends = &mut self.ends[number];
        ends.sent_at = Some(now);
        ends.sends += 1;
        let sends = ends.sends;
        self.push(
            now + SEND_AGAIN,
            Event::Check {
                conversation: number,
                step,
                sends,
            },
        );
        if let Some(next) = conversation
            .steps
            .get(step + 1)
            .filter(|next| next.together && sends == 1)
        {
            debug_assert!(next.from_inside);
            let other = (host + 1) % self.members.len();
            self.hand_to_nat(host, INSIDE, &bytes);
            self.hand_to_nat(other, INSIDE, &next.bytes.clone());
            self.sum.packets += 2;
            self.push(
                now + SEND_AGAIN,
                Event::Check {
                    conversation: number,
                    step: step + 1,
                    sends,
                },
            );
            if step == 0 {
                self.opened[host] += 1;
            }
            return;
        }
        self.sum.packets += 1;
        if from_inside {
            if step == 0 && sends == 1 {
                self.opened[host] += 1;
            }
            self.hand_to_nat(host, INSIDE, &bytes);
        } else {
            let Some(seen_as) = self.ends[number].seen_as else {
                return;
            };
            let mut bytes = bytes;
            if let Ok(mut packet) = Packet::parse(&mut bytes) {
                packet.set_destination(seen_as);
            }
            if let Some(bytes) = self.through_idps(false, &bytes) {
                self.hand_to_nat(host, OUTSIDE, &bytes);
            }
        }
    }

    fn check(&mut self, number: usize, step: usize, sends: u32) {
        let ends = &self.ends[number];
        if ends.arrived > step || ends.sends != sends {
            return;
        }
        self.sum.packets_lost += 1;
        if sends < SENDS_MAX {
            self.send(number, step);
        }
    }

    /// Everything that left the NATs arrives.
    fn arrivals(&mut self) {
        loop {
            let left: Vec<Left> = self.nat.take_left().collect();
            if left.is_empty() {
                return;
            }
            for left in left {
                self.arrive(left);
            }
        }
    }

    fn arrive(&mut self, left: Left) {
        let mut bytes = left.bytes;
        let Some(flow) = Packet::parse(&mut bytes)
            .ok()
            .and_then(|packet| packet.flow4())
        else {
            return;
        };
        let outbound = left.port == OUTSIDE;
        let remote = if outbound {
            flow.destination()
        } else {
            flow.source()
        };
        let Some(&number) = self.by_remote.get(&remote) else {
            return;
        };
        if outbound {
            if self.through_idps(true, &bytes).is_none() {
                return;
            }
            // A port of another conversation: two flows cannot be distinguished any more.
            let outside = flow.source();
            if self
                .sum
                .users
                .insert(outside, number)
                .is_some_and(|other| other != number)
            {
                self.sum.ports_shared.insert(outside);
            }
            let seen_as = self.ends[number].seen_as.get_or_insert(outside);
            if *seen_as != outside {
                self.sum.changed_midway += 1;
            }
        } else if flow.destination() != self.conversations[number].inside {
            self.sum.misdelivered += 1;
            return;
        }
        let steps = &self.conversations[number].steps;
        let ends = &mut self.ends[number];
        let Some(step) = steps
            .get(ends.arrived)
            .filter(|step| step.from_inside == outbound)
        else {
            return;
        };
        let now = left.time.max(self.started);
        if !step.from_inside && ends.sent_at.is_some_and(|sent| now > sent) {
            self.sum.answers_waited += 1;
        }
        ends.arrived += 1;
        if steps.get(ends.arrived).is_some_and(|next| next.together) {
            // It went with this one, and arrives by itself.
            return;
        }
        ends.sends = 0;
        let (next, now) = (ends.arrived, self.nat.now());
        match steps.get(next) {
            Some(step) => self.push(
                now + step.pause,
                Event::Send {
                    conversation: number,
                    step: next,
                },
            ),
            None => self.sum.completed += 1,
        }
    }

    // --- the network

    fn hand_to_nat(&mut self, host: usize, port: asterism_function::PortNumber, bytes: &[u8]) {
        if !self.nat.inject(host, 0, port, bytes) {
            self.sum.packets_refused += 1;
        }
    }

    /// A packet through the IDPS, which stands between the NATs and the world. `None` if it ends there.
    fn through_idps(&mut self, leaves: bool, bytes: &[u8]) -> Option<Vec<u8>> {
        let port = if leaves { INSIDE } else { OUTSIDE };
        self.idps.inject(0, 0, port, bytes);
        let through = self.idps.take_left().next();
        through.map(|left| left.bytes)
    }

    fn probe(&mut self, number: usize) {
        let packet = &self.scan[number];
        let mut bytes = packet.bytes.clone();
        let Ok(flow) = Packet::parse(&mut bytes).map(|packet| FlowKey::of(&packet)) else {
            return;
        };
        if packet.from_scanner {
            self.sum.probes += 1;
            if self.through_idps(false, &bytes).is_none() {
                self.sum.probes_blocked += 1;
                self.blocked_probes.insert(flow);
            }
        } else if !self.blocked_probes.contains(&flow) {
            self.through_idps(true, &bytes);
        }
    }

    // --- time

    fn at(&mut self, after: Duration, event: Event) {
        self.push(self.started + after, event);
    }

    fn push(&mut self, time: Time, event: Event) {
        self.events_made += 1;
        self.events.push(Reverse((time, self.events_made, event)));
    }

    /// Moves the clock, stopping where packets leave: what they start may be due before the next event.
    fn run_until(&mut self, time: Time) {
        self.nat.run_until(time);
        self.idps.run_until(time);
    }

    // --- what came of it

    fn snapshot(&self) -> Snapshot {
        let hosts = self
            .nat
            .cluster()
            .members()
            .iter()
            .zip(&self.members)
            .zip(&self.opened);
        Snapshot {
            setting: self.absent,
            elapsed: Duration::from_micros(self.nat.now().as_micros() - self.started.as_micros()),
            span: self.plan.span,
            conversations: self.conversations.len(),
            completed: self.sum.completed,
            lost: self.sum.packets_lost,
            waited: self.sum.answers_waited,
            scanners_blocked: self.sum.probes_blocked > 0,
            hosts: hosts
                .map(|((member, name), opened)| {
                    let instance = &member.instances[0];
                    HostView {
                        name: name.clone(),
                        packets: instance.tally().received,
                        opened: *opened,
                        known: instance.state().sessions.len_now() as u64,
                        parked: instance.tally().parked as u64,
                    }
                })
                .collect(),
        }
    }

    fn row(self, quiet: bool) -> RunRow {
        let members = self.nat.cluster().members();
        let (mut checked, mut agree) = (0, 0);
        for (conversation, ends) in self.conversations.iter().zip(&self.ends) {
            let Some(step) = conversation
                .steps
                .first()
                .filter(|_| ends.seen_as.is_some())
            else {
                continue;
            };
            let mut bytes = step.bytes.clone();
            let Some(flow) = Packet::parse(&mut bytes)
                .ok()
                .and_then(|packet| packet.flow4())
            else {
                continue;
            };
            let mut everywhere = members
                .iter()
                .flat_map(|member| &member.instances)
                .map(|instance| outside_of(instance.state(), flow));
            let first = everywhere.next().flatten();
            checked += 1;
            agree += u64::from(first.is_some() && everywhere.all(|other| other == first));
        }
        let digests = self.nat.digests();
        let rows = members
            .iter()
            .zip(&self.members)
            .zip(self.opened.iter().zip(&digests));
        let hosts: Vec<HostRow> = rows
            .map(|((member, name), (opened, digest))| {
                let instance = &member.instances[0];
                HostRow {
                    name: name.clone(),
                    packets: instance.tally().received,
                    flows_opened: *opened,
                    sessions_known: instance.state().sessions.len_now() as u64,
                    late_replies_dropped: instance.tally().dropped(Reason::NoBinding),
                    parked_most: instance.tally().parked_most as u64,
                    digest: format!("{digest:016x}"),
                }
            })
            .collect();
        let alerts = self.idps.cluster().members()[0].instances[0]
            .state()
            .alerts();
        let sources: BTreeSet<String> = alerts
            .iter()
            .map(|(subject, _)| subject.source.address().to_string())
            .collect();
        let tallies = || {
            members
                .iter()
                .flat_map(|member| &member.instances)
                .map(|instance| instance.tally())
        };
        let flows = self
            .ends
            .iter()
            .filter(|ends| ends.seen_as.is_some())
            .count() as u64;
        RunRow {
            absent: self.absent.words(),
            flows,
            completed: self.sum.completed,
            conversations: self.conversations.len() as u64,
            packets: self.sum.packets,
            packets_lost_to_lag: self.sum.packets_lost,
            packets_refused: self.sum.packets_refused,
            late_replies_waited: self.sum.answers_waited,
            late_replies_dropped: hosts.iter().map(|host| host.late_replies_dropped).sum(),
            translations_checked: checked,
            translations_agree: agree,
            collisions: members[0].instances[0].state().sessions.tally().shadowed,
            ports_shared: self.sum.ports_shared.len() as u64,
            misdelivered: self.sum.misdelivered,
            groups_bad: tallies().map(|tally| tally.groups_bad).sum(),
            lag: self.nat.lag(),
            log_bytes_per_flow: tallies()
                .map(|tally| tally.group_bytes_written)
                .sum::<u64>() as f64
                / flows.max(1) as f64,
            wire_bytes_per_flow: members
                .iter()
                .map(|member| member.channel.tally().bytes_sent)
                .sum::<u64>() as f64
                / flows.max(1) as f64,
            quiet,
            digests_equal: self.nat.shares() && digests.windows(2).all(|pair| pair[0] == pair[1]),
            idps: IdpsRow {
                packets: self.idps.cluster().members()[0].instances[0]
                    .tally()
                    .received,
                probes: self.sum.probes,
                probes_blocked: self.sum.probes_blocked,
                alerts: alerts.len() as u64,
                scanners: sources.iter().cloned().collect(),
                scanners_expected: vec![SCANNER.to_string()],
            },
            hosts,
        }
    }
}

/// A packet to be sent.
struct Step {
    from_inside: bool,
    bytes: Vec<u8>,
}

fn read(text: &str) -> Result<Config, DemoError> {
    let (config, report) = Config::read("demo.toml", text);
    config.ok_or_else(|| DemoError::Configuration(Box::new(report)))
}

fn fleet<F: asterism_function::NetworkFunction>(
    plan: &Plan,
    cluster: Cluster,
    delay: Duration,
    function: &Arc<F>,
    objects: impl Fn(&str) -> ObjectSettings + Clone + 'static,
) -> Result<Fleet<F>, FleetError> {
    let config = FleetConfig {
        cluster,
        instances: 1,
        link: LinkConditions {
            jitter: delay / 20,
            ..LinkConditions::with_delay(delay)
        },
        seed: plan.seed,
        jumbo: false,
        counted_incarnations: false,
    };
    Fleet::start(&config, function, objects)
}
