//! The thread of the controller: heartbeats in, commands out.

use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use asterism_heartbeat::{
    DATAGRAM_BYTES_MAX, Heartbeat, Load, NAMES_MAX, Names, OrchestratorEvent, OrchestratorLink,
    OrchestratorLinkConfig,
};
use asterism_placement::{ClusterId, Time};
use asterism_secure_channel::KeyRing;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::asked::Asked;
use super::steer::{SteeringCommand, SteeringHandle};
use super::store::{StoreCommand, StoreHandle};
use super::view::{ClusterView, HostView, Logged, Request, SteeringView, StoreView, Taken};
use super::{newest, offer};
use crate::clock;
use crate::controller::{self, Command, Controller, Input, Order, TICK};
use crate::steering::{Desired, DirectorReport};
use crate::usage::UsageKeeper;

/// Datagrams that are taken at a time.
const DATAGRAMS_AT_ONCE: usize = 256;
/// Rates are of at least so long a time.
const RATE_INTERVAL: Duration = Duration::from_millis(500);

/// What the thread is made of.
pub(super) struct Parts {
    pub(super) cluster: String,
    pub(super) cluster_id: ClusterId,
    pub(super) name: String,
    pub(super) keys: KeyRing,
    pub(super) places: Vec<String>,
    pub(super) is_open: bool,
    pub(super) random: [u8; 48],
    pub(super) socket: UdpSocket,
}

/// The last heartbeat of a host, whatever process sent it.
#[derive(Debug)]
struct Latest {
    heartbeat: Heartbeat,
    heard: Time,
    /// The load from which rates are taken, and when it was.
    before: (Load, Time),
    packets_per_s: u64,
    bytes_per_s: u64,
}

pub(super) struct Decide {
    cluster: String,
    name: String,
    places: Vec<String>,
    socket: UdpSocket,
    link: OrchestratorLink,
    asked: Asked,
    pub(super) controller: Controller,
    pub(super) store: StoreHandle,
    steering: SteeringHandle,
    log: SyncSender<Logged>,
    latest: BTreeMap<String, Latest>,
    store_view: StoreView,
    steering_view: Option<SteeringView>,
    directors: Vec<DirectorReport>,
    /// The desired state that the steering was commanded last.
    steered: Option<Desired>,
    pub(super) term: Option<u64>,
    pub(super) usage: UsageKeeper,
}

impl Decide {
    pub(super) fn new(
        parts: Parts,
        controller: Controller,
        store: StoreHandle,
        steering: SteeringHandle,
        log: SyncSender<Logged>,
    ) -> Decide {
        let (mut salt, mut secret) = ([0; 16], [0; 32]);
        salt.copy_from_slice(&parts.random[..16]);
        secret.copy_from_slice(&parts.random[16..]);
        let link = OrchestratorLink::new(OrchestratorLinkConfig {
            cluster: parts.cluster_id,
            keys: parts.keys,
            salt,
            secret,
            names: match parts.is_open {
                true => Names::Any,
                false => Names::Listed(parts.places.clone()),
            },
        });
        Decide {
            cluster: parts.cluster,
            name: parts.name,
            places: parts.places,
            socket: parts.socket,
            link,
            asked: Asked::default(),
            controller,
            store,
            steering,
            log,
            latest: BTreeMap::new(),
            store_view: StoreView::default(),
            steering_view: None,
            directors: Vec::new(),
            steered: None,
            term: None,
            usage: UsageKeeper::default(),
        }
    }

    pub(super) fn run(mut self, inputs: &Receiver<Input>, requests: &Receiver<Request>) {
        let mut due = clock::time();
        loop {
            self.receive();
            // A bounded part of each queue, so that none keeps the others waiting.
            for input in inputs.try_iter().take(DATAGRAMS_AT_ONCE) {
                self.note_term(&input);
                self.controller.handle(clock::time(), input);
            }
            for request in requests.try_iter().take(DATAGRAMS_AT_ONCE) {
                if matches!(request, Request::Stop) {
                    // The other threads end with their queues.
                    return;
                }
                self.answer(request);
            }
            let now = clock::time();
            if now >= due {
                self.controller.handle_timeout(now);
                due = self.controller.poll_timeout(now);
            }
            self.note_views();
            self.keep_usage();
            self.obey();
            let now = clock::time();
            self.link.set_leads(self.leads_in(now));
            self.link.handle_timeout(now);
            self.transmit();
            self.report();
            self.sleep(due);
        }
    }

    /// Takes what the hosts sent.
    fn receive(&mut self) {
        let mut buffer = [0; DATAGRAM_BYTES_MAX + 1];
        for _ in 0..DATAGRAMS_AT_ONCE {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    self.link.handle(clock::time(), from, &mut buffer[..length]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // A host that ended comes back as an error, once.
                Err(_) => {}
            }
        }
        let now = clock::time();
        while let Some(event) = self.link.poll_event() {
            match event {
                OrchestratorEvent::Heartbeat(heartbeat, leader) => {
                    let known = controller::Heartbeat::of(&heartbeat, leader, &self.places);
                    if let Some(place) = self.controller.place_of(&heartbeat.host) {
                        self.usage.heartbeat(clock::wall_ms(), &place, &heartbeat);
                    }
                    self.note(now, heartbeat);
                    self.controller.handle(now, Input::Heartbeat(known));
                }
                OrchestratorEvent::Answer(number, answer) => self.asked.answered(number, answer),
            }
        }
    }

    /// Keeps a heartbeat for those who ask.
    fn note(&mut self, now: Time, heartbeat: Heartbeat) {
        match self.controller.registered() {
            None if !self.places.contains(&heartbeat.host) => return,
            // As many as the link knows; what is shown is of those that register.
            Some(names) if self.latest.len() >= NAMES_MAX => {
                self.latest.retain(|name, _| names.contains(name));
            }
            None | Some(_) => {}
        }
        let load = heartbeat.load;
        let latest = self
            .latest
            .entry(heartbeat.host.clone())
            .and_modify(|latest| {
                let (before, at) = latest.before;
                let time = now.since(at);
                if latest.heartbeat.process != heartbeat.process {
                    (latest.before, latest.packets_per_s, latest.bytes_per_s) = ((load, now), 0, 0);
                } else if time >= RATE_INTERVAL {
                    latest.packets_per_s = rate(before.packets, load.packets, time);
                    latest.bytes_per_s = rate(before.bytes, load.bytes, time);
                    latest.before = (load, now);
                }
            })
            .or_insert_with(|| Latest {
                heartbeat: heartbeat.clone(),
                heard: now,
                before: (load, now),
                packets_per_s: 0,
                bytes_per_s: 0,
            });
        (latest.heartbeat, latest.heard) = (heartbeat, now);
    }

    fn note_term(&mut self, input: &Input) {
        match input {
            Input::Leads { term, .. } => self.term = Some(*term),
            Input::Follows { .. } => self.term = None,
            _ => {}
        }
    }

    fn note_views(&mut self) {
        if let Ok(first) = self.store.views.try_recv() {
            let view = newest(&self.store.views, first);
            if view.error != self.store_view.error {
                self.log_line(match &view.error {
                    Some(error) => Logged {
                        kind: "store-failed",
                        host: None,
                        is_warning: true,
                        text: format!("{error}; everything stays as it is"),
                    },
                    None => Logged {
                        kind: "store-answers",
                        host: None,
                        is_warning: false,
                        text: "the truth store answers".to_owned(),
                    },
                });
            }
            self.store_view = view;
        }
        if let Some(directors) = self.steering.directors.try_iter().last() {
            self.directors = directors;
        }
        if let Ok(first) = self.steering.views.try_recv() {
            let mut view = newest(&self.steering.views, first);
            let before = self.steering_view.as_ref();
            let is_news = before.is_none_or(|before| {
                (before.generation, &before.error) != (view.generation, &view.error)
            });
            if is_news {
                self.log_line(match &view.error {
                    Some(error) => Logged {
                        kind: "steering-failed",
                        host: None,
                        is_warning: true,
                        text: format!("{error}; it is applied again"),
                    },
                    None => Logged {
                        kind: "steered",
                        host: None,
                        is_warning: false,
                        text: format!(
                            "the steering is in force after {} us; {} routes or rules changed",
                            view.took_us, view.changed
                        ),
                    },
                });
            }
            view.in_force = match (view.applied, &self.steering_view) {
                (true, _) => view.generation,
                (false, Some(before)) => before.in_force,
                (false, None) => 0,
            };
            self.steering_view = Some(view);
        }
    }

    /// The term, while this orchestrator leads.
    pub(super) fn leads_in(&self, now: Time) -> Option<u64> {
        self.term.filter(|_| self.controller.leads(now))
    }

    /// Carries out what the controller wants.
    fn obey(&mut self) {
        while let Some(command) = self.controller.poll_command() {
            match command {
                Command::Read => {
                    offer(&self.store.commands, StoreCommand::Read);
                }
                Command::Store {
                    record,
                    replaces,
                    term,
                } => {
                    let command = StoreCommand::Store {
                        record,
                        replaces,
                        term,
                    };
                    if !offer(&self.store.commands, command) {
                        self.controller.handle(clock::time(), Input::NotStored);
                    }
                }
                Command::Hand {
                    host,
                    process,
                    epoch,
                } => {
                    // One that was not heard is handed it once it is.
                    let _ =
                        self.link
                            .offer(clock::time(), &host, process, epoch.epoch, &epoch.text());
                }
                Command::Refuse { host, process, why } => self.link.refuse(&host, process, why),
                Command::Depose { term } => {
                    // What is not ended now ends by time.
                    offer(&self.store.commands, StoreCommand::Depose { term });
                }
                Command::Steer(desired) => {
                    let generation = desired.generation().0;
                    self.steered = Some(desired.clone());
                    if !offer(&self.steering.commands, SteeringCommand::Apply(desired)) {
                        let input = Input::NotSteered { generation };
                        self.controller.handle(clock::time(), input);
                    }
                }
            }
        }
    }

    fn transmit(&mut self) {
        while let Some((to, datagram)) = self.link.poll_transmit() {
            // Lost, as on any network: the host asks again.
            let _ = self.socket.send_to(&datagram, to);
        }
    }

    fn report(&mut self) {
        while let Some(event) = self.controller.poll_event() {
            self.log_line(Logged {
                kind: event.kind(),
                host: event.host().map(str::to_owned),
                is_warning: event.is_warning(),
                text: event.to_string(),
            });
        }
    }

    pub(super) fn log_line(&self, line: Logged) {
        offer(&self.log, line);
    }

    fn answer(&mut self, request: Request) {
        let now = clock::time();
        match request {
            // Who asked may have gone.
            Request::View(reply) => {
                let _ = reply.try_send(self.view(now));
            }
            Request::Order(order, reply) => {
                let _ = reply.try_send(self.take(now, order));
            }
            Request::Ask(question) => self.asked.ask(&mut self.link, now, question),
            Request::Ended { host, process } => {
                self.controller.handle(now, Input::Ended { host, process });
            }
            Request::Keys(keys) => self.link.set_keys(keys),
            Request::Stop => {}
        }
    }

    fn take(&mut self, now: Time, order: Order) -> Taken {
        if self.controller.place_of(order.host()).is_none() {
            return Taken::NoSuchHost;
        }
        if !self.controller.leads(now) {
            return Taken::DoesNotLead(self.store_view.led_by.clone());
        }
        if let Order::Forget(host) = &order
            && let Err(why) = self.controller.may_forget(host)
        {
            return Taken::NotForgotten(why);
        }
        self.controller.handle(now, Input::Order(order));
        Taken::Yes
    }

    /// Whether the steering may send packets to a host, as far as this orchestrator knows.
    fn is_steered_to(&self, host: &str) -> bool {
        let in_force = self.steering_view.as_ref().map(|view| view.in_force);
        let newest = self.steered.as_ref();
        newest.is_none_or(|desired| {
            in_force != Some(desired.generation().0)
                || desired.targets().any(|(name, _)| name == host)
        })
    }

    fn view(&self, now: Time) -> ClusterView {
        let record = self.controller.record();
        let takers: Vec<&str> = self.controller.takers().collect();
        let names = self.controller.registered();
        let is_open = names.is_some();
        let host = |name: &String| {
            let place = self.controller.place_of(name);
            let of_place = place.as_deref().unwrap_or_default();
            let entry = record.and_then(|record| record.hosts.get(name));
            let mut view = HostView {
                name: name.clone(),
                place: place.clone().filter(|_| is_open),
                address: entry.map(|entry| entry.address),
                incarnation: record.and_then(|record| record.member(of_place)),
                drained: record.is_some_and(|record| record.drained.contains(of_place)),
                withdrawn: record.is_some_and(|record| record.withdrawn.contains(of_place)),
                is_steered_to: self.is_steered_to(name),
                takes: takers.contains(&of_place),
                suspected: self.controller.is_suspected(name),
                ..HostView::default()
            };
            if let Some(latest) = self.latest.get(name) {
                let heartbeat = &latest.heartbeat;
                view = HostView {
                    stage: Some(heartbeat.stage),
                    process: heartbeat.process,
                    silent_ms: now.since(latest.heard).as_millis() as u64,
                    epoch: heartbeat.epoch,
                    digests_agree: heartbeat.digests_agree,
                    misses: controller::silent(heartbeat, &self.places)
                        .map(|place| self.controller.name_of(&place))
                        .collect(),
                    launch: heartbeat.launch,
                    load: heartbeat.load,
                    packets_per_s: latest.packets_per_s,
                    bytes_per_s: latest.bytes_per_s,
                    ..view
                };
            }
            view
        };
        ClusterView {
            cluster: self.cluster.clone(),
            orchestrator: self.name.clone(),
            term: self.leads_in(now),
            epoch: record.map_or(0, controller::Record::epoch_number),
            store: self.store_view.clone(),
            steering: self.steering_view.clone(),
            directors: self.directors.clone(),
            hosts: names
                .as_ref()
                .unwrap_or(&self.places)
                .iter()
                .map(host)
                .collect(),
            traffic: self.link.traffic(),
            usage: self.usage.view().clone(),
        }
    }

    fn sleep(&self, due: Time) {
        let sleep = due.since(clock::time()).min(TICK);
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: sleep.subsec_nanos().into(),
        };
        let mut waited = [PollFd::new(&self.socket, PollFlags::IN)];
        // Interrupted or failed, the loop turns and looks again.
        let _ = poll(&mut waited, Some(&timeout));
    }
}

/// How many a second.
fn rate(before: u64, after: u64, time: Duration) -> u64 {
    let micros = time.as_micros().max(1);
    let rate = u128::from(after.saturating_sub(before)) * 1_000_000 / micros;
    rate.min(u128::from(u64::MAX)) as u64
}
