//! A host that reads its configuration again while it runs: all that is wanted, or nothing, and an answer once it is in force.

use std::any::Any;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use asterism_config::functions::FunctionError;
use asterism_config::{Config, Idle};

use super::Service;
use crate::run::environment::monotonic_us;
use crate::run::flows;
use crate::run::jobs::Jobs;
use crate::run::reload::{self, ReloadError, Written};
use asterism_event_log::Event;
use asterism_host_view::phase::Phase;
use asterism_host_view::requests::Request;

/// How long instances may take to go on with another function: they look for requests once a turn, or every few.
const TAKEN_UP_MAX: Duration = Duration::from_secs(2);

impl Service<'_, '_> {
    pub(super) fn reload(&mut self) -> Result<String, ReloadError> {
        let is_ready = self.host.view.phase() != Phase::Listening;
        if is_ready {
            self.manager.reloading(monotonic_us());
        }
        let result = self.try_reload();
        match &result {
            Ok(changes) => self.log(&Event::info("reloaded").with("changed", changes)),
            Err(error) => self.log(
                &Event::warning("reload-refused")
                    .with("why", error)
                    .effect(error.effect())
                    .cure("correct the file, or do as the reason says"),
            ),
        }
        if is_ready {
            self.manager.ready("running");
        }
        result
    }

    fn try_reload(&mut self) -> Result<String, ReloadError> {
        let (wanted, report) = self.prepared.read_again()?;
        let wanted = wanted.ok_or_else(|| reload::first_mistake(&report))?;
        let now = Written {
            config: &self.host.config,
            text: &self.text,
        };
        let then = Written {
            config: &wanted,
            text: &report.text,
        };
        let changes = reload::changes(now, then, &report.file, &|name| self.host.is_movable(name))
            .map_err(ReloadError::Unchangeable)?;
        let opened = Jobs::prepare(&wanted, &self.host)?;
        let (now, then) = (&self.host.config.function, &wanted.function);
        let is_other = now.settings.change_to(&then.settings, now.name) != Some(Vec::new());
        let functions = match is_other {
            true => Some(self.make_functions(&wanted)?),
            false => None,
        };
        self.place_objects(&wanted)?;
        let taken = match functions {
            Some(mut functions) => {
                let of_listing = functions.pop();
                let taken = self.replace_function(functions)?;
                if let Some(function) = of_listing {
                    self.host.view.store.set_function(function);
                }
                Some(taken)
            }
            None => None,
        };
        let spins = wanted.host.idle == Idle::Spin;
        for shared in &self.shared {
            shared.spins.store(spins, Ordering::Relaxed);
        }
        self.host.config = wanted;
        self.text = report.text;
        self.jobs.reload(opened, is_other, &self.host)?;
        let is_taken_up = taken.as_ref().map(|taken| self.is_taken_up(taken));
        if is_taken_up.is_some() {
            self.end_denied();
        }
        if is_taken_up == Some(false) {
            self.log(
                &Event::warning("reload-slow")
                    .effect("an instance has not yet gone on with what was reloaded; it does before its next requests")
                    .cure("see in `asterism top` whether it turns"),
            );
        }
        Ok(if changes.is_empty() {
            "nothing".to_owned()
        } else {
            changes.join(", ")
        })
    }

    /// Has the state channel place objects as the configuration does. It waits for no other member: `asterism status` shows how far it is.
    fn place_objects(&self, wanted: &Config) -> Result<(), ReloadError> {
        let objects = wanted.function.replicated(self.host.view.names.objects);
        let until = self.host.clock.now() + TAKEN_UP_MAX;
        while !self.host.channel.set_replicated(objects) {
            if self.host.clock.now() >= until {
                return Err(ReloadError::ChannelBehind);
            }
            // The state channel's thread takes its orders at its next turn.
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Ends flows that the new rules deny, where that is chosen, beside the main thread: there may be many.
    fn end_denied(&mut self) {
        let firewalls = flows::ending_on_reload(&self.host.config.function);
        if firewalls.is_empty() {
            return;
        }
        let (view, events) = (self.host.view.clone(), self.host.events.clone());
        let begun = std::thread::Builder::new()
            .name("flows-end".into())
            .spawn(move || flows::end_denied(&view, &events, &firewalls));
        if let Err(error) = begun {
            self.log(
                &Event::warning("flows-not-ended")
                    .with("why", error)
                    .effect("flows that the new rules deny may go on")
                    .cure("`asterism flows end --denied`"),
            );
        }
    }

    /// The function that is wanted, once for each instance, and once for what shows the entries of a store.
    fn make_functions(&self, wanted: &Config) -> Result<Vec<Box<dyn Any + Send>>, FunctionError> {
        let copies = reload::Copies(&wanted.function.objects, self.host.requests.len() + 1);
        wanted.function.settings.with(copies)
    }

    /// Has all instances go on with it. Each says once that it does.
    fn replace_function(
        &self,
        functions: Vec<Box<dyn Any + Send>>,
    ) -> Result<Receiver<()>, ReloadError> {
        let (taken, answers) = sync_channel(self.host.requests.len());
        for (requests, function) in self.host.requests.iter().zip(functions) {
            let taken = taken.clone();
            requests
                .send(Request::Replace { function, taken })
                .map_err(|_| ReloadError::InstanceEnded)?;
        }
        Ok(answers)
    }

    /// Whether all instances have said so, within [`TAKEN_UP_MAX`].
    fn is_taken_up(&self, taken: &Receiver<()>) -> bool {
        let until = self.host.clock.now() + TAKEN_UP_MAX;
        (0..self.host.requests.len()).all(|_| {
            let left = until
                .as_micros()
                .saturating_sub(self.host.clock.now().as_micros());
            taken.recv_timeout(Duration::from_micros(left)).is_ok()
        })
    }
}
