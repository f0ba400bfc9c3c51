//! How a host ends: parked packets end, the others acknowledge, the state is saved, what was noted last is written, and the
//! threads stop, each step within its time.

use std::time::Duration;

use asterism_placement::Time;

use super::{Interrupted, LAST_WORD, Service, handing, others};
use crate::run::event_log::Event;
use crate::run::worker::Phase;

/// How long what was noted last may take to be handed to who writes it and sent. That thread then has its own time for the last lines.
pub const TELL_LAST: Duration = Duration::from_secs(2);
/// How long it may take to count what was not taken within that time.
const COUNT_LAST: Duration = Duration::from_millis(200);
/// How often it is looked whether more of it came.
const LOOK_LAST: Duration = Duration::from_millis(1);

impl Service<'_, '_> {
    /// Ends the host, whether it was asked to stop or cannot go on.
    ///
    /// # Errors
    /// Why it could not go on.
    pub(super) fn end(mut self, ended: Result<(), Interrupted>) -> Result<(), String> {
        let mut failed = match ended {
            Ok(()) | Err(Interrupted::Stop) => None,
            Err(Interrupted::Failed(error)) => Some(error),
        };
        let ran = matches!(self.view.phase(), Phase::Running | Phase::Draining);
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
        self.end_exports();
        self.end_eve();
        let member = self.member;
        let Service {
            channel,
            mut event_log,
            clock,
            stopping,
            epochs,
            handed,
            ..
        } = self;
        let stopped = channel.stop();
        handing::answer_last(handed, epochs.as_ref());
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
        event_log.write(clock.now(), clock.wall(), &event);
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
    fn drain(&mut self) -> Result<(), String> {
        self.set_phase(Phase::Draining);
        let until = self.clock.now() + self.config.host.drain_max;
        self.wait(until, |service| {
            service
                .view
                .snapshots()
                .iter()
                .flatten()
                .all(|instance| instance.parked == 0)
        })?;
        self.hurry_eve();
        self.wait(until, Self::is_eve_reported)?;
        let is_acknowledged = |service: &Self| {
            let snapshot = service.channel.snapshot();
            // What only this host has of an incarnation that ended goes to the others first, if nobody keeps that incarnation open.
            let is_alike = snapshot.ended.iter().all(|incarnation| incarnation.closed)
                || !others(&snapshot, service.member).all(|other| other.is_alive);
            is_alike
                && others(&snapshot, service.member)
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
    fn wait(&mut self, until: Time, there: impl Fn(&Self) -> bool) -> Result<bool, String> {
        // What was published before the phase changed says nothing.
        let start = self.clock.now();
        loop {
            let shown = self.view.snapshots();
            let fresh = shown.iter().flatten().all(|instance| instance.at > start)
                && self.channel.snapshot().at > start;
            if fresh && there(self) {
                return Ok(true);
            }
            if self.clock.now() >= until {
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
        self.hurry_eve();
        self.hurry_port_log();
        if !self.are_reported_within(TELL_LAST) {
            self.give_up_port_file();
            self.are_reported_within(COUNT_LAST);
        }
    }

    fn are_reported_within(&mut self, time: Duration) -> bool {
        let until = self.clock.now() + time;
        while !(self.is_eve_reported() && self.are_exports_reported()) {
            if self.clock.now() >= until {
                return false;
            }
            if let Ok(event) = self.events.recv_timeout(LOOK_LAST) {
                self.log(&event);
            }
            self.watch_exports();
            self.watch_eve();
        }
        true
    }
}
