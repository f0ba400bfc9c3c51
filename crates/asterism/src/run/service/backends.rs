//! A balancer's backends as the main thread sees to them: they are checked, and their pools change by a reload.

use super::Service;
use crate::config::{Config, Settings};
use crate::run::health::Checking;
use crate::run::requests::Request;
use crate::wiring::{self, Configured};

impl Service<'_, '_> {
    /// Begins to check the backends that the configuration names, instead of those that were checked so far.
    pub(super) fn check_backends(&mut self) -> Result<(), String> {
        self.checking = None;
        if let Settings::Balancer(settings) = &self.config.function.settings {
            self.checking = Some(Checking::start(settings, &self.teller)?);
        }
        Ok(())
    }

    /// Has the instances go on with other services.
    pub(super) fn replace_services(&mut self, wanted: &Config) -> Result<(), String> {
        let Settings::Balancer(settings) = &wanted.function.settings else {
            return Ok(());
        };
        let Configured::Balancer(made) = wiring::function(&wanted.function)? else {
            return Err(format!(
                "the {} services are not a balancer's",
                settings.services.len()
            ));
        };
        for requests in &self.requests {
            // An instance takes a request within its next turns, so this waits no longer than others' requests take.
            requests
                .send(Request::Replace {
                    function: Box::new(made.clone()),
                })
                .map_err(|_| "an instance has ended".to_owned())?;
        }
        Ok(())
    }
}
