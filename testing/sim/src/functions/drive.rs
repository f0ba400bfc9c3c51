//! A run: load under faults, a death, a return, calm, and what must hold then. What is special to a function its [`World`] says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use asterism_function::NetworkFunction;
use asterism_placement::Time;
use asterism_state::hash;

use super::hosts::{Arrival, Hosts, Left, Place};
use super::plan::{Death, Plan};
use crate::healing::LOOK_OUT_OF_STEP;
use crate::report::{Failure, Report};
use crate::scenario::Draws;
use crate::trace::Trace;

/// Time for hosts to find each other before there is load.
const STARTING: Duration = Duration::from_millis(60);
/// After the last change of the cluster there is load for so long while links are bad.
const AFTER_CHANGES: Duration = Duration::from_millis(60);
/// An epoch reaches the last host at most so long after the first.
const SPREAD: Duration = Duration::from_millis(30);
/// A new incarnation must be ready within so long.
const JOINING: Duration = Duration::from_secs(6);
/// What was begun must come to its end within so long once links are good, where nothing waits for seconds.
const ENDING: Duration = Duration::from_secs(4);
/// All must know everything within so long once there is no load.
const HEALING: Duration = Duration::from_secs(6);
/// What is asked of one host in the roll call must have come back within so long.
const ROLL_CALL: Duration = Duration::from_millis(30);

/// A host whose death waits for a held packet to leave is looked at so often, and at most so many times.
const RELEASE_STEP: Duration = Duration::from_micros(50);
/// See [`RELEASE_STEP`].
const RELEASE_STEPS: u32 = 600;

/// What is around the hosts: who sends, what must come out, and what is expected of it.
pub(crate) trait World {
    /// What the hosts run.
    type Function: NetworkFunction;
    /// The function, configured.
    fn function(&mut self) -> Self::Function;
    /// Hosts that take up another configuration by `now`, with the function that they go on with.
    fn reloads(&mut self, _: Time) -> Vec<(usize, Arc<Self::Function>)> {
        Vec::new()
    }
    /// Packets that come to the cluster by `now`.
    fn due(&mut self, now: Time, out: &mut Vec<Arrival>);
    /// A packet is about to be handled by an instance.
    fn arrives(&mut self, _: &Arrival, _: Place, _: &Hosts<Self::Function>) {}
    /// The instance that it came to took it, or did not.
    fn taken(&mut self, _: &Arrival, _: Place, _: bool) {}
    /// A packet left.
    fn leaves(&mut self, left: Left, hosts: &Hosts<Self::Function>) -> Result<(), Failure>;
    /// What a control plane would ask of the hosts now.
    fn looks(&mut self, _: &Hosts<Self::Function>) -> Result<(), Failure> {
        Ok(())
    }
    /// A host has just died; all that it wrote by `reported` somebody alive knows.
    fn died(&mut self, victim: usize, reported: Time, hosts: &Hosts<Self::Function>);
    /// Links are good from now on.
    fn calms(&mut self, _: Time) {}
    /// What is still to come to its end; `None`: nothing, there need be no more load.
    fn unfinished(&self) -> Option<String>;
    /// What was begun must come to its end within so long once links are good.
    fn ending(&self) -> Duration {
        ENDING
    }
    /// All know everything: whether there is to be load once more.
    fn begins_again(&mut self, _: Time) -> bool {
        false
    }
    /// From now on everybody knows everything.
    fn settles(&mut self, _: &Hosts<Self::Function>) -> Result<(), Failure> {
        Ok(())
    }
    /// Packets that each show whether this host knows what it has to.
    fn roll_call(&mut self, host: usize, next: usize, now: Time, out: &mut Vec<Arrival>);
    /// What must have come of the roll call of that host.
    fn called(&mut self, host: usize) -> Result<(), Failure>;
    /// What must hold in the end.
    fn judge(&mut self, hosts: &Hosts<Self::Function>) -> Result<(), Failure>;
    /// How much was judged, by name.
    fn counts(&self) -> BTreeMap<&'static str, u64>;
}

/// Runs a plan.
///
/// # Errors
/// The first check that did not hold.
pub(crate) fn run<W: World>(
    plan: &Plan,
    world: &mut W,
    trace: &mut Trace,
) -> Result<Report, Failure> {
    let function = world.function();
    let mut run = Run {
        hosts: Hosts::new(function, plan),
        plan,
        world,
        trace,
        arrivals: Vec::new(),
        report: Report::default(),
    };
    run.hosts.run(STARTING)?;
    let changes = run.changes();
    run.load(changes)?;
    run.calm()?;
    run.agree()?;
    if run.world.begins_again(run.hosts.now()) {
        run.end()?;
        run.agree()?;
    }
    run.hosts.settled = true;
    run.world.settles(&run.hosts)?;
    let living: Vec<_> = run.hosts.living().collect();
    for (number, &host) in living.iter().enumerate() {
        let next = living[(number + 1) % living.len()];
        let now = run.hosts.now();
        run.world.roll_call(host, next, now, &mut run.arrivals);
        let until = now + ROLL_CALL;
        while run.hosts.now() < until {
            run.step(false)?;
        }
        run.world.called(host)?;
    }
    run.agree()?;
    run.world.judge(&run.hosts)?;
    run.reported()
}

/// A change of the cluster.
#[derive(Clone, Copy, Debug)]
enum Change {
    Death,
    Noticed,
    Epoch(u32),
    Return(u32),
}

struct Run<'a, W: World> {
    hosts: Hosts<W::Function>,
    plan: &'a Plan,
    world: &'a mut W,
    trace: &'a mut Trace,
    arrivals: Vec<Arrival>,
    report: Report,
}

impl<W: World> Run<'_, W> {
    /// What happens to the cluster, and when.
    fn changes(&self) -> Vec<(Time, Change)> {
        let mut changes = Vec::new();
        if let Some(death) = &self.plan.death {
            let died = self.hosts.now() + death.at;
            changes.push((died, Change::Death));
            changes.push((died + death.noticed, Change::Noticed));
            let reported = died + death.reported;
            let at_once = death.at_once && death.returns.is_some();
            if !at_once {
                changes.push((reported, Change::Epoch(2)));
            }
            if let Some(after) = death.returns {
                let epoch = if at_once { 2 } else { 3 };
                changes.push((reported + SPREAD + after, Change::Return(epoch)));
            }
        }
        changes.sort_by_key(|(at, _)| *at);
        changes
    }

    fn load(&mut self, changes: Vec<(Time, Change)>) -> Result<(), Failure> {
        let mut until = self.hosts.now() + self.plan.load;
        let mut changes = changes.into_iter().peekable();
        let mut joins_by = None;
        loop {
            while let Some((_, change)) = changes.next_if(|(at, _)| *at <= self.hosts.now()) {
                self.change(change)?;
                let now = self.hosts.now();
                until = until.max(now + AFTER_CHANGES);
                if matches!(change, Change::Return(_)) {
                    joins_by = Some(now + JOINING);
                }
            }
            self.step(true)?;
            let now = self.hosts.now();
            if let Some(by) = joins_by {
                if self.hosts.all_ready() {
                    self.line(|| "the new incarnation is ready".to_owned());
                    self.hosts.route();
                    until = until.max(now + AFTER_CHANGES);
                    joins_by = None;
                } else if now > by {
                    return Err(Failure::new(
                        "a new incarnation joins",
                        format!("not within {JOINING:?}"),
                    ));
                }
            }
            if now >= until && changes.peek().is_none() && joins_by.is_none() {
                return Ok(());
            }
        }
    }

    fn change(&mut self, change: Change) -> Result<(), Failure> {
        let Some(Death { victim, .. }) = self.plan.death else {
            return Ok(());
        };
        self.line(|| format!("{change:?} of m{victim}"));
        match change {
            Change::Death => {
                if self.plan.copies.is_some() {
                    self.await_release(victim)?;
                }
                // What left before it died was seen.
                self.drain()?;
                let reported = self.hosts.kill(victim);
                self.line(|| format!("known of it is all by {reported}"));
                self.world.died(victim, reported, &self.hosts);
                *self.report.faults.entry("death").or_default() += 1;
            }
            Change::Noticed => self.hosts.route(),
            Change::Epoch(epoch) => self.hosts.tell_epoch(epoch, SPREAD),
            Change::Return(epoch) => {
                self.hosts.revive(victim);
                self.hosts.tell_epoch(epoch, SPREAD);
                *self.report.faults.entry("return").or_default() += 1;
            }
        }
        Ok(())
    }

    /// Goes on until a held packet has left a host, for a while: the worst moment for the host to die.
    fn await_release(&mut self, victim: usize) -> Result<(), Failure> {
        let before = self.hosts.released(victim);
        for _ in 0..RELEASE_STEPS {
            if self.hosts.released(victim) > before {
                break;
            }
            self.step_for(RELEASE_STEP)?;
        }
        Ok(())
    }

    /// Packets that are due come in, and time passes.
    fn step(&mut self, has_load: bool) -> Result<(), Failure> {
        self.step_for(match has_load {
            true => self.plan.step,
            false => Duration::from_millis(1),
        })
    }

    fn step_for(&mut self, step: Duration) -> Result<(), Failure> {
        let now = self.hosts.now();
        for (host, function) in self.world.reloads(now) {
            self.hosts.reload(host, &function);
        }
        let mut arrivals = core::mem::take(&mut self.arrivals);
        self.world.due(now, &mut arrivals);
        for arrival in arrivals.drain(..) {
            let at = self.hosts.place_of(&arrival);
            self.world.arrives(&arrival, at, &self.hosts);
            let taken = self.hosts.inject(at, &arrival);
            self.world.taken(&arrival, at, taken);
            self.report.operations += 1;
            self.trace.line(|| {
                format!(
                    "{now} to {at:?} by {} {}",
                    arrival.port.0,
                    said(&arrival.frame)
                )
            });
        }
        self.arrivals = arrivals;
        self.hosts.run(step)?;
        self.drain()?;
        self.world.looks(&self.hosts)?;
        self.report.steps += 1;
        if self.report.steps.is_multiple_of(16) {
            self.hosts.no_alarm()?;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Failure> {
        let now = self.hosts.now();
        for left in self.hosts.take_left() {
            let frame = hash::bytes(&left.frame, 1);
            self.trace
                .note(&[now.as_micros(), left.at.host as u64, frame]);
            self.trace.line(|| {
                format!(
                    "{now} left {:?} by {} {}",
                    left.at,
                    left.port.0,
                    said(&left.frame)
                )
            });
            self.report.delivered += 1;
            self.world.leaves(left, &self.hosts)?;
        }
        Ok(())
    }

    fn calm(&mut self) -> Result<(), Failure> {
        self.hosts.calm();
        let calm = self.hosts.now();
        self.world.calms(calm);
        self.end()
    }

    /// What was begun comes to its end.
    fn end(&mut self) -> Result<(), Failure> {
        let begun = self.hosts.now();
        while let Some(unfinished) = self.world.unfinished() {
            let ending = self.world.ending();
            if self.hosts.now() > begun + ending {
                return Err(Failure::new(
                    "what was begun comes to its end",
                    format!(
                        "not {ending:?} after the last fault: {unfinished}; dropped were {}",
                        self.hosts.drops()
                    ),
                ));
            }
            self.step(true)?;
        }
        Ok(())
    }

    /// Waits until all know everything, and demands that they hold the same.
    fn agree(&mut self) -> Result<(), Failure> {
        let begun = self.hosts.now();
        loop {
            let difference = self.hosts.difference();
            if self.hosts.is_quiet() && difference.is_none() {
                break;
            }
            if self.hosts.now() > begun + HEALING {
                return Err(Failure::new(
                    "all hosts agree",
                    difference.unwrap_or_else(|| "some host is behind".to_owned()),
                ));
            }
            self.hosts.run(LOOK_OUT_OF_STEP)?;
            self.drain()?;
        }
        self.report.healed = self.hosts.now().since(begun);
        self.hosts.no_alarm()
    }

    fn line(&mut self, line: impl FnOnce() -> String) {
        let now = self.hosts.now();
        self.trace.line(|| format!("{now} {}", line()));
    }

    fn reported(mut self) -> Result<Report, Failure> {
        let total = self.hosts.cluster.network().statistics_total();
        for (kind, count) in [
            ("loss", total.lost),
            ("duplication", total.duplicated),
            ("reordering", total.reordered),
        ] {
            if count > 0 {
                self.report.faults.insert(kind, count);
            }
        }
        for (_, instance) in self.hosts.instances() {
            self.trace.note(&instance.digests());
            *self.report.branches.entry("late").or_default() += instance.tally().late;
        }
        for (name, count) in self.world.counts() {
            *self.report.branches.entry(name).or_default() += count;
        }
        self.report.bound = HEALING;
        self.report.trace = self.trace.hash();
        self.report.virtual_time = Duration::from_micros(self.hosts.now().as_micros());
        Ok(self.report)
    }
}

/// A frame in words: its ends and flags.
fn said(frame: &[u8]) -> String {
    let mut frame = frame.to_vec();
    let Ok(packet) = asterism_function::Packet::parse(&mut frame) else {
        return "a frame".to_owned();
    };
    let Some(flow) = packet.flow4() else {
        return "a packet".to_owned();
    };
    format!(
        "{} > {} {:?} seq {:x?}",
        flow.source(),
        flow.destination(),
        packet.tcp_flags(),
        packet.tcp_sequence()
    )
}

/// Draws of a run's world.
pub(crate) fn draws(plan: &Plan) -> Draws {
    Draws::new(plan.seed, 42)
}
