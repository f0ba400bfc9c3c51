//! The processes of hosts: found and taken over, found ended, started, and started again.

use asterism_elasticity::{Span, UnixMs};

use super::record::{LaunchRecord, Place, Wanted};
use super::runner::{Failed, Runner, Turn, is_heard};
use super::world::World;
use crate::controller::{Order, Stage};
use crate::launch::{Aftermath, Exit, Found, FoundState, HostSpec, LaunchError, Readiness};
use crate::run::view::{HostView, Logged};

/// A host that ended is started again after this time, which doubles each time.
const PAUSE: Span = Span(200);
const PAUSE_MAX: Span = Span::seconds(30);
/// A host that ran for so long begins again with the shortest pause.
const STEADY: Span = Span::seconds(30);
/// A new leader starts no host of another orchestrator before so long a time: its heartbeats may be on their way.
const TAKE_OVER_AFTER: Span = Span::seconds(3);
/// A process that somebody else started and that is not heard for so long is forgotten, in milliseconds.
const FORGET_MS: u64 = 10_000;

impl Runner {
    /// Takes over the processes that run and of which the record does not know.
    pub(super) fn adopt(
        &mut self,
        world: &mut impl World,
        turn: Turn<'_>,
        next: &mut LaunchRecord,
    ) {
        for found in self.found.clone() {
            if !self.places.contains(&found.name) || found.state != FoundState::Runs {
                continue;
            }
            let launch = found.incarnation;
            let seen = self.seen.entry(found.name.clone()).or_default();
            if seen.ran != launch {
                (seen.ran, seen.ran_since) = (launch, turn.now);
            }
            let place = next.places.entry(found.name.clone()).or_insert(OFF);
            if launch < place.launch {
                continue;
            }
            if !place.is_on() {
                place.wanted = Wanted::Runs;
                place.is_new = false;
                world.log(Logged {
                    kind: "host-found",
                    host: Some(found.name.clone()),
                    is_warning: false,
                    text: format!("{} runs already, and is taken over", found.name),
                });
            }
            (place.launch, place.by) = (launch, self.name.clone());
        }
        for host in &turn.view.hosts {
            let place = next.places.entry(host.name.clone()).or_insert(OFF);
            let is_old = host.launch > 0 && host.launch <= place.launch;
            if is_heard(host) && !place.is_on() && !is_old {
                *place = Place {
                    launch: host.launch.max(place.launch),
                    by: String::new(),
                    wanted: Wanted::Runs,
                    is_new: false,
                };
            }
            let is_gone =
                host.incarnation.is_none() && (host.stage.is_none() || host.silent_ms >= FORGET_MS);
            if place.is_on() && place.by.is_empty() && is_gone {
                place.wanted = Wanted::Off;
            }
        }
        next.places
            .retain(|_, place| place.is_on() || place.launch > 0);
    }

    /// Notes the processes that have ended, and hosts that serve for the first time.
    pub(super) fn note_ends(
        &mut self,
        world: &mut impl World,
        turn: Turn<'_>,
        next: &mut LaunchRecord,
    ) {
        for (name, place) in &mut next.places {
            if place.is_new
                && turn
                    .host(name)
                    .is_some_and(|host| serves(host, place.launch))
            {
                place.is_new = false;
                self.elasticity.launch_succeeded();
            }
            let found = self.found.iter().find(|found| found.name == *name);
            let Some(found) = found.filter(|found| found.incarnation == place.launch) else {
                continue;
            };
            let seen = self.seen.entry(name.clone()).or_default();
            let FoundState::Ended(exit) = found.state else {
                continue;
            };
            if !place.is_on() || seen.ended >= place.launch {
                continue;
            }
            seen.ended = place.launch;
            report_end(world, turn, name, place.launch);
            if place.wanted != Wanted::Runs {
                continue;
            }
            if place.is_new {
                self.elasticity.launch_failed(turn.now);
                (place.wanted, place.is_new) = (Wanted::Off, false);
                world.log(failed(name, &ended_at_once(found, exit)));
                continue;
            }
            if turn.now.since(seen.ran_since) >= STEADY {
                seen.pause = Span(0);
            }
            if seen.ran == place.launch {
                pause(seen, turn.now);
                let last = found.last_lines.last().map_or("", String::as_str);
                world.log(Logged {
                    kind: "host-ended",
                    host: Some(name.clone()),
                    is_warning: true,
                    text: format!("{name} has ended with {exit}; its last line: {last}"),
                });
            }
        }
    }

    /// Gives hosts that have ended, and shall run, their next launch. Without the store nothing is started: nobody could admit it.
    pub(super) fn restart(
        &mut self,
        world: &mut impl World,
        turn: Turn<'_>,
        next: &mut LaunchRecord,
    ) {
        if turn.view.store.error.is_some() {
            return;
        }
        let is_settled = turn.now.since(self.led_since) >= TAKE_OVER_AFTER;
        for (name, place) in &mut next.places {
            let Some(host) = turn.host(name) else {
                continue;
            };
            let has_ended = self.has_ended(name, place.launch);
            let seen = self.seen.entry(name.clone()).or_default();
            if seen.must_restore && !place.is_on() {
                seen.must_restore = host.drained || host.withdrawn;
                if seen.must_restore {
                    world.order(Order::Restore(name.clone()));
                }
            }
            if place.wanted != Wanted::Runs {
                seen.failed = None;
                continue;
            }
            match seen.failed.take() {
                Some(Failed::Off) => {
                    (place.wanted, place.is_new) = (Wanted::Off, false);
                    continue;
                }
                Some(Failed::Again) => place.launch += 1,
                None => {}
            }
            let is_own = place.by == self.name;
            let is_lost = !is_own
                && !place.by.is_empty()
                && is_settled
                && !is_heard(host)
                && host.incarnation.is_none();
            if (is_own && has_ended && turn.now >= seen.not_before) || is_lost {
                place.launch += 1;
                place.by.clone_from(&self.name);
            }
        }
    }

    /// Starts what the store says shall run, and what the launcher does not know.
    pub(super) fn launch_due(&mut self, world: &mut impl World, turn: Turn<'_>) {
        let Some(record) = self.stored().cloned() else {
            return;
        };
        let launcher = world.launcher();
        if !launcher.abilities().launches || turn.view.store.error.is_some() {
            return;
        }
        for (name, place) in &record.places {
            let known = self.found(name).map_or(0, |found| found.incarnation);
            let seen = self.seen.entry(name.clone()).or_default();
            let is_due = place.wanted == Wanted::Runs
                && place.by == self.name
                && known < place.launch
                && turn.now >= seen.not_before
                && seen.failed.is_none();
            if !is_due {
                continue;
            }
            // Orders to drain were of the process before, or of the place while it was empty.
            let host = turn.host(name);
            if place.is_new && host.is_some_and(|host| host.drained || host.withdrawn) {
                world.order(Order::Restore(name.clone()));
            }
            let spec = HostSpec {
                arguments: self.host.arguments.clone(),
                environment: self.host.environment.clone(),
                readiness: Readiness::Unawaited,
                ..HostSpec::new(name, place.launch, &self.host.configuration)
            };
            seen.tried = place.launch;
            self.find_at = UnixMs(0);
            match launcher.launch(&spec) {
                Ok(launched) => {
                    (seen.ran, seen.ran_since) = (place.launch, turn.now);
                    let process = match (launched.process, launched.container) {
                        (Some(process), _) => format!("process {}", process.pid),
                        (None, Some(container)) => format!("container {container}"),
                        (None, None) => format!("launch {}", place.launch),
                    };
                    let verb = if launched.already {
                        "runs"
                    } else {
                        "is started"
                    };
                    world.log(Logged {
                        kind: "host-started",
                        host: Some(name.clone()),
                        is_warning: false,
                        text: format!("{name} {verb} as {process}"),
                    });
                }
                Err(error) => {
                    pause(seen, turn.now);
                    seen.failed = after(&error, place.is_new);
                    self.elasticity.launch_failed(turn.now);
                    world.log(failed(name, &error.to_string()));
                }
            }
        }
    }
}

/// Whether a launch has come so far that its end is no failure of the launch.
fn serves(host: &HostView, launch: u64) -> bool {
    host.takes || host.launch == launch && matches!(host.stage, Some(Stage::Serving(_)))
}

const OFF: Place = Place {
    launch: 0,
    by: String::new(),
    wanted: Wanted::Off,
    is_new: false,
};

fn pause(seen: &mut super::runner::Seen, now: UnixMs) {
    seen.pause = Span((seen.pause.0 * 2).clamp(PAUSE.0, PAUSE_MAX.0));
    seen.not_before = now.after(seen.pause);
}

/// What becomes of a place after its launch failed.
fn after(error: &LaunchError, is_new: bool) -> Option<Failed> {
    match (error.aftermath(), error) {
        (Aftermath::Runs | Aftermath::Unknown, _) | (_, LaunchError::Busy { .. }) => None,
        _ if is_new => Some(Failed::Off),
        (_, LaunchError::Ended { .. } | LaunchError::Stale { .. })
        | (Aftermath::NothingRuns, _) => Some(Failed::Again),
        _ => None,
    }
}

fn failed(name: &str, why: &str) -> Logged {
    Logged {
        kind: "launch-failed",
        host: Some(name.to_owned()),
        is_warning: true,
        text: format!("the launch of {name} failed: {why}"),
    }
}

/// Why a process that ended before it served did, as far as its log tells.
fn ended_at_once(found: &Found, exit: Exit) -> String {
    let log = match found.last_lines.is_empty() {
        true => "its log is empty".to_owned(),
        false => format!("the end of its log:\n  {}", found.last_lines.join("\n  ")),
    };
    format!("it ended with {exit} before it served; {log}")
}

/// Reports to the controller that a launch of a host has ended, if the controller has heard that launch.
pub(super) fn report_end(world: &mut impl World, turn: Turn<'_>, name: &str, launch: u64) {
    if let Some(host) = turn.host(name).filter(|host| host.launch == launch) {
        world.ended(name, host.process);
    }
}
