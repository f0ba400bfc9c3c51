//! A balancer's backends as the main thread sees to them: they are checked.

use super::Service;
use crate::config::Settings;
use crate::run::health::Checking;

impl Service<'_, '_> {
    /// Begins to check the backends that the configuration names, instead of those that were checked so far.
    pub(super) fn check_backends(&mut self) -> Result<(), String> {
        self.checking = None;
        if let Settings::Balancer(settings) = &self.config.function.settings {
            self.checking = Some(Checking::start(settings, &self.teller)?);
        }
        Ok(())
    }
}
