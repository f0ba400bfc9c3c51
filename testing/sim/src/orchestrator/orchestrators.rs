//! The orchestrators of a run: each a controller and its link to the hosts.

use std::time::Duration;

use asterism_heartbeat::OrchestratorLink;
use asterism_orchestrator::controller::{Command, Controller, Event, Stage};
use asterism_placement::Time;

use super::claims::WELL_FOR;
use super::hosts::Proc;
use super::network;
use super::plan::{FaultKind, OrchestratorPlan};
use super::world::{Message, World};
use crate::report::Failure;
use crate::scenario::Draws;
use crate::trace::Trace;

/// How often an orchestrator asks to lead.
const CAMPAIGN: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(super) struct Orchestrator {
    pub(super) controller: Controller,
    pub(super) link: OrchestratorLink,
    /// Which start of it this is.
    pub(super) boot: u32,
    /// The term in which it led last.
    pub(super) term: Option<u64>,
    /// When it last stood still, or did not receive most hosts, or began.
    unwell_at: Time,
    asked: Time,
    pub(super) until: Time,
}

pub(super) fn orchestrator(
    names: &[String],
    plan: &OrchestratorPlan,
    (boot, now): (u32, Time),
    draws: &mut Draws,
) -> Orchestrator {
    Orchestrator {
        link: network::orchestrator_link(names, draws),
        controller: Controller::new(names.to_vec(), plan.times).expect("times that can be meant"),
        boot,
        term: None,
        unwell_at: now,
        asked: Time::ZERO,
        until: Time::ZERO,
    }
}

impl World<'_> {
    pub(super) fn orchestrator_goes_on(
        &mut self,
        number: usize,
        trace: &mut Trace,
    ) -> Result<(), Failure> {
        let now = self.now;
        let is_paused = self.is_on(FaultKind::PauseOrchestrator(number));
        if is_paused || self.is_on(FaultKind::DeafOrchestrator(number)) {
            self.orchestrators[number].unwell_at = now;
        }
        if is_paused {
            return Ok(());
        }
        let delay = self.draws.micros(500, 15_000);
        let boot = self.orchestrators[number].boot;
        if now.since(self.orchestrators[number].asked) >= CAMPAIGN {
            self.orchestrators[number].asked = now;
            self.send(delay, Message::Campaign(number, boot, now));
        }
        self.orchestrators[number].controller.handle_timeout(now);
        while let Some(event) = self.orchestrators[number].controller.poll_event() {
            trace.line(|| format!("{now} {number}: {event}"));
            if let Event::NoNextEpoch { why } = event {
                return Err(Failure::new("there is a next epoch", why));
            }
        }
        while let Some(command) = self.orchestrators[number].controller.poll_command() {
            self.claims.judged += 1;
            let is_harmless = matches!(
                command,
                Command::Read | Command::Refuse { .. } | Command::Depose { .. }
            );
            if now >= self.orchestrators[number].until && !is_harmless {
                return Err(Failure::new(
                    "a term ends",
                    format!("{number} at {now}: {command:?}"),
                ));
            }
            let message = match command {
                Command::Read => Message::Read(number, boot),
                Command::Store {
                    record,
                    replaces,
                    term,
                } => Message::Write(number, boot, record, replaces, term),
                Command::Refuse { .. } => continue,
                Command::Depose { term } => Message::Depose(number, boot, term),
                Command::Steer(desired) => Message::Steer(number, boot, desired),
                Command::Hand {
                    host,
                    process,
                    epoch,
                } => {
                    // One that was not heard is handed it once it is.
                    let _ = self.orchestrators[number].link.offer(
                        now,
                        &host,
                        process,
                        epoch.epoch,
                        &epoch.text(),
                    );
                    continue;
                }
            };
            let delay = self.draws.micros(500, 12_000);
            self.send(delay, message);
        }
        let orchestrator = &mut self.orchestrators[number];
        let leads = orchestrator.controller.leads(now);
        orchestrator
            .link
            .set_leads(orchestrator.term.filter(|_| leads));
        self.transmit(number);
        Ok(())
    }

    /// A leader was deposed: was it well, and did hosts hear it?
    pub(super) fn check_deposed(&mut self, (number, boot): (usize, u32)) -> Result<(), Failure> {
        let now = self.now;
        let leader = &self.orchestrators[number];
        let is_well = leader.boot == boot && now.since(leader.unwell_at) >= WELL_FOR;
        let hears_it = |process: &&Proc| {
            let is_reached = !self.stands_still(process) && !process.is_given_up;
            is_reached
                && matches!(process.stage, Stage::Serving(_))
                && now.since(process.unwell_at) >= WELL_FOR
        };
        let hearing = self.processes.iter().filter(hears_it).count();
        self.claims.deposed(number, is_well, hearing)
    }
}
