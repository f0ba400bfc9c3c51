//! What runs in threads of its own beside the packets: a balancer's backends are checked, digests of web caches are fetched and served.

use asterism_config::Settings;

use super::job::HostContext;
use crate::run::caches::Fetching;
use crate::run::caches::serve::{self, ServeError};
use crate::run::error::BackgroundError;
use crate::run::health::{Checking, HealthReporter};

/// Threads that run until this is dropped.
#[derive(Debug)]
pub(super) enum BackgroundTask {
    /// Backends are checked.
    #[expect(dead_code, reason = "held until it is dropped")]
    Backends(Checking),
    /// Digests are fetched.
    #[expect(dead_code, reason = "held until it is dropped")]
    Caches(Fetching),
}

impl BackgroundTask {
    /// Begins to check the backends that the configuration names, or to fetch digests; nothing for other functions.
    ///
    /// # Errors
    /// There is no thread for it: nothing is checked or fetched.
    pub(super) fn start(host: &HostContext) -> Result<Option<BackgroundTask>, BackgroundError> {
        let reporter = HealthReporter {
            member: host.member.0,
            clock: host.clock,
            requests: host.requests[0].clone(),
            events: host.events.clone(),
        };
        Ok(match &host.config.function.settings {
            Settings::Balancer(settings) => {
                let checking = Checking::start(settings, &reporter);
                let checking = checking.map_err(BackgroundError::Backends)?;
                Some(BackgroundTask::Backends(checking))
            }
            Settings::CacheDigests(settings) => {
                let fetching = Fetching::start(settings, &reporter, host.view.clone());
                let fetching = fetching.map_err(BackgroundError::Digests)?;
                Some(BackgroundTask::Caches(fetching))
            }
            _ => None,
        })
    }
}

/// Begins to serve digests, if the configuration says where: an address that is not there yet keeps the host from starting.
pub(super) fn serve(host: &HostContext) -> Result<(), ServeError> {
    match &host.config.function.settings {
        Settings::CacheDigests(settings) => match settings.serve {
            Some(address) => serve::start(address, host.view.clone()),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}
