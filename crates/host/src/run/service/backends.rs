//! What the main thread sees to beside the packets: a balancer's backends are checked, digests of web caches are fetched and served.

use asterism_config::Settings;

use super::Service;
use super::stations::Requesting;
use crate::run::caches::{Fetching, serve};
use crate::run::health::Checking;

/// What goes on until this is dropped.
#[derive(Debug)]
pub(super) enum BackgroundTask {
    /// Backends are checked.
    #[expect(dead_code, reason = "held until it is dropped")]
    Backends(Checking),
    /// Digests are fetched.
    #[expect(dead_code, reason = "held until it is dropped")]
    Caches(Fetching),
}

impl Service<'_, '_> {
    /// Begins to serve digests, if the configuration says where: an address that is not there yet keeps the host from starting.
    pub(super) fn begin_serving(&self) -> Result<(), String> {
        match &self.config.function.settings {
            Settings::CacheDigests(settings) => match settings.serve {
                Some(address) => serve::start(address, self.view.clone()),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Begins to check the backends that the configuration names, and to request their stations, instead of those of before; or to fetch
    /// digests.
    pub(super) fn check_backends(&mut self) -> Result<(), String> {
        self.background = None;
        self.requesting = Requesting::of(&self.config.function);
        match &self.config.function.settings {
            Settings::Balancer(settings) => {
                self.background = Some(BackgroundTask::Backends(Checking::start(
                    settings,
                    &self.reporter,
                )?));
            }
            Settings::CacheDigests(settings) => {
                let fetching = Fetching::start(settings, &self.reporter, self.view.clone())?;
                self.background = Some(BackgroundTask::Caches(fetching));
            }
            _ => {}
        }
        Ok(())
    }
}
