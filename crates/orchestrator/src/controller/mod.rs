//! The controller: decides who takes part in a cluster and where packets go, from what it hears.
//!
//! Sans I/O, with the five verbs of every protocol core of this tree: [`Controller::handle`], [`Controller::handle_timeout`],
//! [`Controller::poll_timeout`], [`Controller::poll_command`], [`Controller::poll_event`]. It opens no socket, reads no clock, and
//! draws no randomness. Every orchestrator of a cluster runs one. All of them observe; the one that leads commands.
//!
//! # What it keeps
//!
//! 1. **A suspicion costs nothing.** Packets leave a silent host at once, and return when it is well. Only an epoch, which the store
//!    has before any host is handed it, leaves a host out.
//! 2. **No two lives in one place.** A place gets its next incarnation only with evidence that the process of the last one has ended:
//!    a launcher saw it end, a later process runs in the same locked folder, its own last message, or the operator's order.
//!    Silence is no evidence.
//! 3. **The observer may be the one that is cut off.** If more than half of the members are silent at once, only those count as
//!    silent that all hosts which are heard report as silent. If none is heard, nothing is decided.
//! 4. **A leader that was paused changes nothing.** It commands only within its term; the store refuses what it writes later, and
//!    desired states of the steering carry the term in their number. So another orchestrator may end its term early, when no host hears
//!    it (`leadership.rs`): should it live, it changes nothing either.
//! 5. **A host gets packets when it has the state**: it has joined, in the epoch that the store has, and its auditor finds no
//!    difference.
//!
//! Any error of the store, of the steering or of a host means: go on as before, and try again.
//!
//! Read `input.rs` (what it hears), `host.rs` (what it observes of one host), `health.rs` (who is well), `epochs.rs` (who takes
//! part), `leadership.rs` (who leads), then this file's [`Command`]; `times.rs` has the times, `event.rs` what it reports. Sources: StatelessNF §4.3.2 and §4.5,
//! Pico Replication §3.4, Split/Merge §3.4, Constellation §4.3.

mod epochs;
mod event;
mod health;
mod host;
mod input;
mod leadership;
pub mod mutant;
mod record;
mod registration;
#[cfg(test)]
mod tests;
mod times;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use asterism_epochs::EpochFile;
use asterism_heartbeat::RegistrationRefused;
use asterism_placement::Time;

use crate::steering::Desired;
use host::Host;
use mutant::Mutant;
use registration::Registrations;

pub use event::Event;
pub(crate) use input::silent;
pub use input::{Heartbeat, Input, LeaderHeard, Order, Process, Stage};
pub use record::{RECORD_BYTES_MAX, Record, RecordError};
pub use registration::{ForgetError, NEWCOMERS_MAX};
pub use times::{Times, TimesError};

/// How often a controller looks at its clock.
pub const TICK: Duration = Duration::from_millis(10);
/// Events that wait to be polled; beyond, the oldest is lost.
pub const EVENTS_MAX: usize = 1_024;
/// What a controller wants done. Each may be carried out late, twice, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read the record from the store, and hand it in as [`Input::Record`].
    Read,
    /// Write the record, if the store has this version of it and this orchestrator leads in this term; then hand in
    /// [`Input::Stored`] or [`Input::NotStored`]. The store checks both.
    Store {
        /// The record.
        record: Record,
        /// The version that it replaces; 0: none.
        replaces: u64,
        /// The leader's term.
        term: u64,
    },
    /// Hand an epoch to a host's process, and to no other process of that name. The host's heartbeats show that it has it.
    Hand {
        /// The host.
        host: String,
        /// The process.
        process: Process,
        /// The epoch.
        epoch: EpochFile,
    },
    /// Say to a host's process, in answers to its heartbeats, why it gets no place; `None`: it is not refused any more.
    Refuse {
        /// The host.
        host: String,
        /// The process.
        process: Process,
        /// Why.
        why: Option<RegistrationRefused>,
    },
    /// Apply a desired state of the steering; then hand in [`Input::Steered`] or [`Input::NotSteered`].
    Steer(Desired),
    /// End the leadership of this term, which no host hears any more, unless another one has followed it; then ask to lead, and hand
    /// in [`Input::Leads`] or [`Input::Follows`].
    Depose {
        /// The term.
        term: u64,
    },
}

/// A question whose answer is awaited, and since when.
#[derive(Clone, Debug)]
struct Awaited<T> {
    what: T,
    since: Time,
}

/// Decides over one cluster; see the module.
#[derive(Debug)]
pub struct Controller {
    places: Vec<String>,
    times: Times,
    /// By place.
    hosts: BTreeMap<String, Host>,
    /// `None` in a cluster that lists its members: there a host has the place of its name.
    registrations: Option<Registrations>,
    /// The hosts to which the steering can lead packets; `None`: to all.
    steered_only: Option<BTreeSet<String>>,
    began: Option<Time>,
    /// When most members were silent last, which was not believed.
    frozen_at: Option<Time>,
    /// The record as the store has it, and its version; `None` until it was read.
    record: Option<(Record, u64)>,
    /// The term in which this orchestrator leads, and when it ends.
    term: Option<(u64, Time)>,
    /// The term in which another orchestrator leads, as the store said last.
    led_in: Option<u64>,
    /// When the store was asked to end that term.
    deposing: Option<Time>,
    /// When the record is read next though it was read.
    read_at: Time,
    /// Since when a host has a later epoch than the record.
    outrun_since: Option<Time>,
    /// Whether the store may have another record than is known.
    must_read: bool,
    reading: Option<Time>,
    /// The record that the store was asked to take.
    storing: Option<Awaited<Record>>,
    epoch_not_before: Time,
    /// When the record's epoch was first known here.
    epoch_since: Time,
    /// Since when hosts wait for the first epoch, or for one that begins again with saved state.
    founding_since: Option<Time>,
    steering: SteeringState,
    /// Orders that the record does not have yet, one for each host at most.
    orders: Vec<Order>,
    commands: VecDeque<Command>,
    events: VecDeque<Event>,
    /// Events that were reported and whose reason goes on.
    reported: BTreeSet<(&'static str, String)>,
}

/// The last command to the steering.
#[derive(Debug, Default)]
struct SteeringState {
    /// The desired state that was commanded last in this term.
    desired: Option<Desired>,
    awaited: Option<Awaited<u64>>,
    /// When it is commanded again though nothing has changed.
    again_at: Time,
}

impl Controller {
    /// A controller of a cluster with these places, to which hosts come that register. It has heard nothing yet.
    ///
    /// # Errors
    /// The times cannot be meant.
    pub fn open(places: Vec<String>, times: Times) -> Result<Controller, TimesError> {
        let listed = Controller::new(places, times)?;
        Ok(Controller {
            registrations: Some(Registrations::default()),
            ..listed
        })
    }

    /// A controller of a cluster with these hosts, each in the place of its name. It has heard nothing yet.
    ///
    /// # Errors
    /// The times cannot be meant.
    pub fn new(places: Vec<String>, times: Times) -> Result<Controller, TimesError> {
        times.check()?;
        let hosts = places.iter().map(|name| (name.clone(), Host::default()));
        Ok(Controller {
            hosts: hosts.collect(),
            registrations: None,
            steered_only: None,
            places,
            times,
            began: None,
            frozen_at: None,
            record: None,
            term: None,
            led_in: None,
            deposing: None,
            read_at: Time::ZERO,
            outrun_since: None,
            must_read: true,
            reading: None,
            storing: None,
            epoch_not_before: Time::ZERO,
            epoch_since: Time::ZERO,
            founding_since: None,
            steering: SteeringState::default(),
            orders: Vec::new(),
            commands: VecDeque::new(),
            events: VecDeque::new(),
            reported: BTreeSet::new(),
        })
    }

    /// Where hosts register: those to which the steering can lead packets. To others none are sent, whatever else is well with them.
    #[must_use]
    pub fn steering_only(self, hosts: Option<BTreeSet<String>>) -> Controller {
        Controller {
            steered_only: hosts,
            ..self
        }
    }

    /// Takes what was heard.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.begin(now);
        match input {
            // Judged at the next tick, with all that came meanwhile.
            Input::Heartbeat(heartbeat) => return self.hear(now, heartbeat),
            Input::Link { host, is_down } => {
                if let Some(host) = self.host_mut(&host) {
                    host.is_link_down = is_down;
                }
            }
            Input::Ended { host, process } => {
                if let Some(host) = self.host_mut(&host) {
                    host.note_ended(process);
                }
            }
            Input::Order(order) => self.take_order(now, order),
            Input::Leads { term, until } => self.lead(now, term, until),
            Input::Follows { led_in } => self.follow(led_in),
            Input::Record { record, version } => self.adopt(now, record, version),
            Input::Stored { version } => {
                if let Some(stored) = self.storing.take() {
                    self.adopt(now, stored.what, version);
                }
            }
            Input::NotStored => self.not_stored(),
            Input::Steered { generation } => {
                self.note_steered(generation, now + self.times.repair_after);
            }
            Input::NotSteered { generation } => {
                self.note_steered(generation, now + self.times.retry_after);
            }
        }
        self.decide(now);
    }

    /// Decides by the time that has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.begin(now);
        self.decide(now);
    }

    /// When [`Controller::handle_timeout`] is to be called, at the latest.
    #[must_use]
    pub fn poll_timeout(&self, now: Time) -> Time {
        now + TICK
    }

    /// The next command, in order.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The record as the store has it, as far as is known here.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        self.record.as_ref().map(|(record, _)| record)
    }

    /// Whether this orchestrator leads.
    #[must_use]
    pub fn leads(&self, now: Time) -> bool {
        self.leading(now).is_some()
    }

    /// The places whose hosts take packets, as far as this controller decides.
    pub fn takers(&self) -> impl Iterator<Item = &str> {
        let takers = self.hosts.iter().filter(|(_, host)| host.health.takes);
        takers.map(|(name, _)| name.as_str())
    }

    fn host_mut(&mut self, host: &str) -> Option<&mut Host> {
        let place = self.place_of(host)?;
        self.hosts.get_mut(&place)
    }

    /// Whether packets are kept from this host since it is silent.
    #[must_use]
    pub fn is_suspected(&self, host: &str) -> bool {
        let host = self.place_of(host).and_then(|place| self.hosts.get(&place));
        host.is_some_and(|host| host.health.suspected_since.is_some())
    }

    /// The steering has answered.
    fn note_steered(&mut self, generation: u64, again_at: Time) {
        let awaited = self
            .steering
            .awaited
            .take_if(|awaited| awaited.what == generation);
        if awaited.is_some() {
            self.steering.again_at = again_at;
        }
    }

    fn begin(&mut self, now: Time) {
        if self.began.is_none() {
            self.began = Some(now);
            for host in self.hosts.values_mut() {
                host.watched_since = now;
            }
        }
    }

    fn hear(&mut self, now: Time, heartbeat: Heartbeat) {
        let name = heartbeat.host.clone();
        let Some(place) = self.place_of(&name) else {
            return match self.registrations {
                Some(_) => self.hear_newcomer(now, heartbeat),
                None => self.report_unknown(name),
            };
        };
        let named = self
            .record()
            .and_then(|record| record.named.get(&place).copied());
        let Some(host) = self.hosts.get_mut(&place) else {
            return;
        };
        if host.hear(heartbeat, named, now, &self.times) {
            self.report("two", name.clone(), Event::TwoProcesses { host: name });
        }
    }

    fn report_unknown(&mut self, mut shown: String) {
        shown.truncate(shown.floor_char_boundary(crate::steering::NAME_BYTES_MAX));
        self.report("unknown", String::new(), Event::UnknownHost { host: shown });
    }

    fn take_order(&mut self, now: Time, order: Order) {
        let name = order.host();
        let Some(place) = self.place_of(name) else {
            let host = name.to_owned();
            return self.events_push(Event::UnknownHost { host });
        };
        let last = self
            .record()
            .and_then(|record| record.last_incarnation(&place));
        let Some(host) = self.hosts.get_mut(&place) else {
            return;
        };
        match &order {
            // An incarnation that never was would count as ended as soon as it begins.
            Order::Fence(_, incarnation) if last.is_some_and(|last| *incarnation <= last) => {
                host.fenced = host.fenced.max(Some(*incarnation));
            }
            Order::Fence(..) => {}
            _ if self.leads(now) => {
                // A withdrawal adds to an order to drain; any other pair contradicts, and the later one holds.
                let is_kept = |other: &Order| {
                    other.host() != name
                        || matches!((other, &order), (Order::Drain(_), Order::Withdraw(_)))
                };
                self.orders.retain(is_kept);
                self.orders.push(order);
            }
            _ => {}
        }
    }

    fn adopt(&mut self, now: Time, record: Record, version: u64) {
        let is_stale = self
            .record
            .as_ref()
            .is_some_and(|(_, known)| version < *known);
        if is_stale {
            return;
        }
        (self.reading, self.must_read) = (None, false);
        let before = self.record.replace((record.clone(), version));
        self.note_hosts(now, before.as_ref().map(|(before, _)| before), &record);
        for (name, host) in &mut self.hosts {
            host.set_named(record.named.get(name).copied(), now);
        }
        let last = before
            .as_ref()
            .map_or(0, |(before, _)| before.epoch_number());
        if last != record.epoch_number() {
            self.epoch_since = now;
        }
        self.orders.retain(|order| !record.has(order));
        if let Some((before, _)) = before {
            self.note_changes(now, &before, &record);
        }
    }

    fn decide(&mut self, now: Time) {
        self.judge(now);
        let Some(term) = self.leading(now) else {
            self.read_now_and_then(now);
            return self.depose(now);
        };
        self.read(now);
        self.steer(now, term);
        if self
            .storing
            .as_ref()
            .is_some_and(|storing| self.is_overdue(now, storing.since))
        {
            self.not_stored();
        }
        if self.storing.is_none()
            && !self.must_read
            && let Some(next) = self.next_record(now)
        {
            let replaces = self.record.as_ref().map_or(0, |(_, version)| *version);
            if mutant::active(Mutant::HandedBeforeStored) {
                let version = replaces + 1;
                self.commands.push_back(Command::Store {
                    record: next.clone(),
                    replaces,
                    term,
                });
                self.adopt(now, next, version);
            } else {
                let record = next.clone();
                self.commands.push_back(Command::Store {
                    record,
                    replaces,
                    term,
                });
                self.storing = Some(Awaited {
                    what: next,
                    since: now,
                });
            }
        }
        self.hand(now);
    }

    /// The store has what it had, or what it was asked to take: it must be read.
    fn not_stored(&mut self) {
        (self.storing, self.reading, self.must_read) = (None, None, true);
    }

    /// An answer that did not come for so long does not come any more.
    fn is_overdue(&self, now: Time, since: Time) -> bool {
        now.since(since) >= 10 * self.times.retry_after && !mutant::active(Mutant::NoAnswerAwaited)
    }

    /// Asks for the record when what is known of it may not be what the store has.
    fn read(&mut self, now: Time) {
        let retry_after = self.times.retry_after;
        let is_asked = self.reading.is_some_and(|since| {
            now.since(since) < retry_after || mutant::active(Mutant::NoAnswerAwaited)
        });
        if self.must_read && !is_asked {
            self.reading = Some(now);
            self.commands.push_back(Command::Read);
        }
    }

    fn report(&mut self, kind: &'static str, of: String, event: Event) {
        if self.reported.insert((kind, of)) {
            self.events_push(event);
        }
    }

    fn forget_report(&mut self, kind: &'static str, of: &str) {
        if !self.reported.is_empty() {
            self.reported.remove(&(kind, of.to_owned()));
        }
    }

    fn events_push(&mut self, event: Event) {
        // One that follows moves no packets, whatever it would do.
        if event.is_of_packets() && self.term.is_none() {
            return;
        }
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        let event = event.of_host(|place| self.name_of(place));
        self.events.push_back(event);
    }
}
