//! Hosts that leave: drained, without packets, withdrawn from the steering, and only then stopped, so that no packet is lost. Each step
//! is seen in what the controller and the steering report, so that another leader goes on with the next one.

use asterism_elasticity::{Span, UnixMs};

use super::record::{LaunchRecord, Place, Wanted};
use super::runner::{Runner, Seen, Turn, is_heard};
use super::supervise::report_end;
use super::world::World;
use crate::controller::Order;
use crate::launch::{FencingEvidence, LaunchError, StopMode};
use crate::run::view::{HostView, Logged};

/// Packets a second that mean nothing: address resolution, and what a segment floods.
const QUIET_RATE: u64 = 20;
/// A draining host without packets for so long has no flows.
const QUIET: Span = Span::seconds(1);
/// Packets that were on their way when the steering left a host have arrived after this time.
const ARRIVED: Span = Span(300);
/// So long is waited at most for packets that still come, though nothing steers them there.
const ARRIVED_MAX: Span = Span::seconds(2);
/// A host that still takes packets so long after it was withdrawn is the last one, and stays.
const WITHDRAWN_MAX: Span = Span::seconds(10);
/// A host that was asked to end is killed after this time; its own bound, `drain_max`, is shorter by default.
const STOP_MAX: Span = Span::seconds(60);
/// An order that the record does not show is given again after this time.
const ORDER_AGAIN: Span = Span(300);

/// What became of a host that leaves, in one turn.
enum Step {
    Waits,
    /// Its process has ended.
    Stopped(String),
    /// It stays.
    Stays(String),
}

impl Runner {
    /// Brings every host that leaves a step on.
    pub(super) fn leave(
        &mut self,
        world: &mut impl World,
        turn: Turn<'_>,
        next: &mut LaunchRecord,
    ) {
        for (name, place) in &mut next.places {
            let Wanted::Leaves { until, .. } = place.wanted else {
                continue;
            };
            let Some(host) = turn.host(name) else {
                continue;
            };
            let is_gone = self.has_ended(name, place.launch)
                || (place.by != self.name && !is_heard(host) && host.incarnation.is_none());
            let mut seen = self.seen.remove(name).unwrap_or_default();
            let step = match is_gone {
                true => Step::Stopped(self.gone(world, name, place, &seen)),
                false => step(world, turn.now, host, &mut seen, until),
            };
            let step = match step {
                Step::Waits if seen.unsteered_since.is_some() => {
                    self.stop(world, turn.now, (name, place), host, &mut seen)
                }
                step => step,
            };
            match step {
                Step::Waits => {}
                Step::Stopped(text) => {
                    if seen.ended < place.launch {
                        report_end(world, turn, name, place.launch);
                    }
                    place.wanted = Wanted::Off;
                    seen.ended = place.launch;
                    forget_leaving(&mut seen);
                    seen.must_restore = true;
                    world.order(Order::Restore(name.clone()));
                    world.log(line("host-stopped", name, text));
                }
                Step::Stays(text) => {
                    place.wanted = Wanted::Runs;
                    forget_leaving(&mut seen);
                    world.order(Order::Restore(name.clone()));
                    world.log(line("leave-cancelled", name, text));
                }
            }
            self.seen.insert(name.clone(), seen);
        }
    }

    /// What is known of the end of a host that has ended, with the launcher's evidence if there is some.
    fn gone(&self, world: &impl World, name: &str, place: &Place, seen: &Seen) -> String {
        let mode = StopMode::Drain {
            within: std::time::Duration::ZERO,
        };
        let evidence = world.launcher().stop(name, place.launch, mode);
        match (evidence, seen.stopping_since) {
            (Ok(evidence), Some(_)) => stopped(&evidence, mode),
            (Ok(evidence), None) => format!("{name} ended by itself while it left: {evidence}"),
            (Err(_), _) => format!("{name} ended by itself while it left"),
        }
    }

    /// Has the process of a host that gets no packets end.
    fn stop(
        &mut self,
        world: &mut impl World,
        now: UnixMs,
        (name, place): (&str, &Place),
        host: &HostView,
        seen: &mut Seen,
    ) -> Step {
        let unsteered = seen
            .unsteered_since
            .map_or(Span(0), |since| now.since(since));
        let is_quiet = host.packets_per_s <= QUIET_RATE || !is_heard(host);
        if unsteered < ARRIVED || (!is_quiet && unsteered < ARRIVED_MAX) {
            return Step::Waits;
        }
        let since = *seen.stopping_since.get_or_insert(now);
        let launcher = world.launcher();
        let drain = StopMode::Drain {
            within: std::time::Duration::ZERO,
        };
        let mode = match now.since(since) >= STOP_MAX {
            true => StopMode::Kill,
            false => drain,
        };
        self.find_at = UnixMs(0);
        let topic = format!("stop {name}");
        match launcher.stop(name, place.launch, mode) {
            Ok(evidence) => {
                self.forget(&topic);
                Step::Stopped(stopped(&evidence, mode))
            }
            Err(LaunchError::StillRuns { .. }) => Step::Waits,
            Err(error) => {
                let text = format!("{name} gets no packets, and is not stopped: {error}");
                self.report_of(world, &topic, "launching-failed", Some(name), text);
                Step::Waits
            }
        }
    }
}

/// Drains, waits for the last packets, and withdraws.
fn step(
    world: &mut impl World,
    now: UnixMs,
    host: &HostView,
    seen: &mut Seen,
    until: UnixMs,
) -> Step {
    let name = &host.name;
    if !host.drained && !host.withdrawn {
        if seen.was_drained {
            return Step::Stays(format!("{name} stays: an operator restored it"));
        }
        order(world, now, seen, Order::Drain(name.clone()));
        return Step::Waits;
    }
    seen.was_drained = true;
    if host.packets_per_s > QUIET_RATE {
        seen.quiet_since = None;
    }
    let quiet = now.since(*seen.quiet_since.get_or_insert(now));
    if !host.withdrawn {
        if quiet >= QUIET || now >= until {
            order(world, now, seen, Order::Withdraw(name.clone()));
        }
        return Step::Waits;
    }
    let withdrawn = now.since(*seen.withdrawn_since.get_or_insert(now));
    if host.takes && withdrawn >= WITHDRAWN_MAX {
        return Step::Stays(format!("{name} stays: no other host takes packets"));
    }
    let is_steered_to = host.takes || host.is_steered_to;
    seen.unsteered_since = match is_steered_to {
        true => None,
        false => seen.unsteered_since.or(Some(now)),
    };
    Step::Waits
}

/// Gives an order, and again if it does not show.
fn order(world: &mut impl World, now: UnixMs, seen: &mut Seen, order: Order) {
    if now.since(seen.ordered_at) >= ORDER_AGAIN {
        seen.ordered_at = now;
        world.order(order);
    }
}

fn forget_leaving(seen: &mut Seen) {
    *seen = Seen {
        ran: seen.ran,
        ran_since: seen.ran_since,
        ended: seen.ended,
        tried: seen.tried,
        pause: seen.pause,
        not_before: seen.not_before,
        ..Seen::default()
    };
}

fn stopped(evidence: &FencingEvidence, mode: StopMode) -> String {
    let name = evidence.name();
    match mode {
        StopMode::Kill => format!("{name} did not end in time, and was killed: {evidence}"),
        StopMode::Drain { .. } => format!("{name} is stopped: {evidence}"),
    }
}

fn line(kind: &'static str, host: &str, text: String) -> Logged {
    Logged {
        kind,
        host: Some(host.to_owned()),
        is_warning: false,
        text,
    }
}
