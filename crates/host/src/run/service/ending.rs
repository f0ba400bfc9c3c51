//! How a host ends: parked packets end, the others acknowledge, the state is saved, what was noted last is written, and the
//! threads stop, each step within its time.

use std::time::Duration;

use asterism_placement::Time;

use super::{Interrupted, Service};
use crate::control::request_handler::LAST_WORD;
use crate::run::error::RunError;
use crate::run::jobs::TELL_LAST;
use crate::run::others::others;
use asterism_event_log::Event;
use asterism_host_view::phase::Phase;

/// How long it may take to count what was not taken within that time.
const COUNT_LAST: Duration = Duration::from_millis(200);
/// How often it is looked whether more of it came.
const LOOK_LAST: Duration = Duration::from_millis(1);

impl Service<'_, '_> {
    /// Ends the host, whether it was asked to stop or cannot go on.
    ///
    /// # Errors
    /// Why it could not go on.
    pub(super) fn end(mut self, ended: Result<(), Interrupted>) -> Result<(), RunError> {
        let mut failed = match ended {
            Ok(()) | Err(Interrupted::Stop) => None,
            Err(Interrupted::Failed(error)) => Some(error),
        };
        let ran = matches!(self.host.view.phase(), Phase::Running | Phase::Draining);
        if failed.is_none() {
            self.manager.stopping("draining");
            self.log(&Event::info("stopping"));
            if ran {
                failed = self.drain().err();
            }
        }
        self.tell_last();
        self.set_phase(Phase::Ended);
        for worker in self.workers.drain(..) {
            // A panic was said on standard error when it happened.
            let _ = worker.join();
        }
        while let Ok(event) = self.events.try_recv() {
            self.log(&event);
        }
        let Service {
            host,
            jobs,
            mut log,
            stopping,
            heartbeats,
            ..
        } = self;
        let epochs = jobs.end(&host, &mut log);
        let member = host.member;
        let incarnation = host.view.names.incarnation.0;
        let metering = host.metering;
        let stopped = host.channel.stop();
        if let Some(heartbeats) = heartbeats {
            heartbeats.end(host.clock.now(), incarnation, metering.as_deref());
        }
        epochs.answer_last();
        if let Some(error) = failed {
            return Err(error);
        }
        let missing = match &stopped {
            Ok(stopped) => others(&stopped.snapshot, member)
                .filter(|other| other.heard && other.acknowledged < stopped.snapshot.head)
                .count(),
            Err(_) => 0,
        };
        let mut event = Event::info("stopped");
        if missing > 0 {
            event = Event::warning("stopped")
                .with("members_behind", missing)
                .effect("they have not acknowledged all that this host wrote");
        }
        log.write(&event);
        let is_awaited = !stopping.is_empty();
        for command in stopping {
            command.answer(Ok("the host has stopped".into()));
        }
        if is_awaited {
            std::thread::park_timeout(LAST_WORD);
        }
        Ok(())
    }

    /// Lets parked packets end, the others acknowledge, and saves the state; within the time for it.
    ///
    /// # Errors
    /// A thread ended meanwhile that must not: nothing was saved.
    fn drain(&mut self) -> Result<(), RunError> {
        self.set_phase(Phase::Draining);
        let until = self.host.clock.now() + self.host.config.host.drain_max;
        self.wait(until, |service| {
            service
                .host
                .view
                .snapshots()
                .iter()
                .flatten()
                .all(|instance| instance.parked == 0)
        })?;
        self.jobs.hurry_alerts();
        self.wait(until, |service| service.jobs.are_alerts_reported())?;
        let is_acknowledged = |service: &Self| {
            let snapshot = service.host.channel.snapshot();
            // What only this host has of an incarnation that ended goes to the others first, if nobody keeps that incarnation open.
            let is_alike = snapshot.ended.iter().all(|incarnation| incarnation.closed)
                || !others(&snapshot, service.host.member).all(|other| other.is_alive);
            is_alike
                && others(&snapshot, service.host.member)
                    .filter(|other| other.heard && other.is_alive)
                    .all(|other| other.acknowledged >= snapshot.head)
        };
        if !self.wait(until, is_acknowledged)? {
            self.log(
                &Event::warning("drain-not-complete")
                    .effect("within drain_max members have not acknowledged everything, or have not the same of an incarnation that ended")
                    .cure("a longer drain_max, if the network is slow"),
            );
        }
        self.save();
        Ok(())
    }

    /// Waits for something, at most until then, whatever else happens. Whether it came.
    ///
    /// # Errors
    /// A thread ended meanwhile that must not.
    fn wait(&mut self, until: Time, there: impl Fn(&Self) -> bool) -> Result<bool, RunError> {
        // What was published before the phase changed says nothing.
        let start = self.host.clock.now();
        loop {
            let shown = self.host.view.snapshots();
            let fresh = shown.iter().flatten().all(|instance| instance.at > start)
                && self.host.channel.snapshot().at > start;
            if fresh && there(self) {
                return Ok(true);
            }
            if self.host.clock.now() >= until {
                return Ok(false);
            }
            if let Err(Interrupted::Failed(error)) = self.query() {
                return Err(error);
            }
        }
    }

    /// Has the instances stand still, and writes and sends what they noted until then: ports of a NAT, alerts, flows whose export
    /// has begun.
    fn tell_last(&mut self) {
        self.set_phase(Phase::Telling);
        self.jobs.hurry();
        if !self.are_reported_within(TELL_LAST) {
            self.jobs.give_up_files();
            self.are_reported_within(COUNT_LAST);
        }
    }

    fn are_reported_within(&mut self, time: Duration) -> bool {
        let until = self.host.clock.now() + time;
        while !self.jobs.are_reported() {
            if self.host.clock.now() >= until {
                return false;
            }
            if let Ok(event) = self.events.recv_timeout(LOOK_LAST) {
                self.log(&event);
            }
            self.give_turns();
        }
        true
    }
}
