//! What the main thread sees to beside the packets: a balancer's backends are checked, digests of web caches are fetched and served.

use super::Service;
use crate::config::Settings;
use crate::run::caches::{Fetching, serve};
use crate::run::health::Checking;

/// What goes on until this is dropped.
#[derive(Debug)]
pub(super) enum Aside {
    /// Backends are checked.
    #[expect(dead_code, reason = "held until it is dropped")]
    Backends(Checking),
    /// Digests are fetched.
    #[expect(dead_code, reason = "held until it is dropped")]
    Caches(Fetching),
}

impl Service<'_, '_> {
    /// Begins to check the backends that the configuration names, instead of those that were checked so far; or to fetch digests.
    pub(super) fn check_backends(&mut self) -> Result<(), String> {
        self.aside = None;
        match &self.config.function.settings {
            Settings::Balancer(settings) => {
                self.aside = Some(Aside::Backends(Checking::start(settings, &self.teller)?));
            }
            Settings::CacheDigests(settings) => {
                if let Some(address) = settings.serve {
                    serve::start(address, self.view.clone())?;
                }
                let fetching = Fetching::start(settings, &self.teller, self.view.clone())?;
                self.aside = Some(Aside::Caches(fetching));
            }
            _ => {}
        }
        Ok(())
    }
}
