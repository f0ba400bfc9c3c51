//! `asterism run`: a host as a service.
//!
//! One thread runs each instance (`worker.rs`), one the state channel (the engine's), one the control socket and one metrics.
//! The main thread (`service.rs`, read it first) starts them, handles signals, writes the log (`asterism_event_log`), gives its jobs
//! their turns (`jobs/`) and ends everything in order.
//!
//! - The host itself: `saved.rs` (the state's file), `reload.rs` (changes while the host runs),
//!   `epochs.rs`, `heartbeats/` (to the orchestrators), `others.rs` (the other members), `metering/` (what it does for tenants),
//!   `stores.rs` and `embedded_store.rs` (of remote objects), `environment.rs` (signals, cores, clocks, addresses).
//! - Functions: `health.rs` (checks of backends), `backends.rs`, `caches/` (digests of web caches), `traffic.rs` (the
//!   monitor), `rules.rs`, `blocked.rs` and `manual.rs` (blocks), `flows.rs` (ends flows early),
//!   `choice.rs` (which function an operator means).

pub mod backends;
pub mod blocked;
pub mod caches;
pub mod choice;
pub(crate) mod collector;
pub mod embedded_store;
pub mod entries;
mod environment;
mod epochs;
pub mod error;
pub mod flows;
mod health;
pub mod heartbeats;
pub mod jobs;
pub mod key_watch;
pub mod manual;
pub mod metering;
mod notices;
mod others;
pub mod ports;
pub mod prepared;
pub mod reload;
mod reported;
pub mod rules;
pub mod saved;
pub mod service;
mod store_passwords;
pub mod stores;
pub mod traffic;
pub mod worker;

use std::path::Path;
use std::sync::Arc;

use asterism_config::functions::{FunctionSettings, Outside, OutsideFunction, WithFunction};
use asterism_config::{Config, Purpose};
use asterism_config::{files, key_file};
use asterism_output::End;
use asterism_output::Output;
use asterism_secure_channel::{ClusterKey, KeyRing};

use crate::control::place::Place;

pub use asterism_event_log as event_log;
pub use environment::signals;
use error::RunError;
pub use prepared::{Arguments, Prepared, control_path};
use service::Service;

/// `asterism run CONFIG`.
pub fn command(arguments: &Arguments, output: &mut Output<'_>) -> End {
    let (file, member) = (&arguments.config, arguments.member.as_deref());
    let (config, report) = match files::load(file, Purpose::Host, member, output.functions()) {
        Ok(read) => read,
        Err(error) => return output.fail(End::File, &error),
    };
    output.report(&report);
    let Some(config) = config else {
        return End::Configuration;
    };
    if let Some(fault) = arguments.address_fault(&config) {
        return output.fail(End::Configuration, &fault);
    }
    let config = arguments.apply(config);
    if config.ports.is_empty() {
        let error = format!(
            "{} has no ports, so there is nothing to run: add [port.inside] and [port.outside]",
            arguments.config.display()
        );
        return output.fail(End::Configuration, &error);
    }
    let keys = match keys_of(&arguments.config, &config) {
        Ok(keys) => keys,
        Err(error) => return output.fail(End::File, &error),
    };
    // Before anything else is opened: two processes of one member would take each other's packets.
    let place = match Place::take(&control_path(&arguments.config, &config)) {
        Ok(place) => place,
        Err(error) => return output.fail(End::File, &RunError::from(error)),
    };
    let prepared = Prepared {
        arguments: arguments.clone(),
        functions: output.functions(),
        config,
        text: report.text,
        keys,
    };
    let run = Run {
        prepared: &prepared,
        place,
        output,
    };
    match prepared.config.function.settings.with(run) {
        Ok(()) => End::Done,
        Err(error) => output.fail(error.end(), &error),
    }
}

/// Runs the function that is configured.
pub(crate) struct Run<'a, 'o> {
    prepared: &'a Prepared,
    place: Place,
    output: &'a mut Output<'o>,
}

impl WithFunction for Run<'_, '_> {
    type Output = Result<(), RunError>;

    fn with<S: FunctionSettings>(self, settings: &S) -> Self::Output {
        let objects = &self.prepared.config.function.objects;
        let function = settings.function(objects);
        let function = Arc::new(function?);
        Service::run(self.prepared, &function, self.place, self.output)
    }

    fn with_outside(self, settings: &Outside) -> Self::Output {
        (settings.job::<RunJob>().0)(settings, self)
    }
}

/// `asterism run` for an outside function, compiled for its type.
pub struct RunJob(for<'a, 'o> fn(&Outside, Run<'a, 'o>) -> <Run<'a, 'o> as WithFunction>::Output);

impl RunJob {
    /// The job of the function with these settings.
    #[must_use]
    pub const fn new<S: OutsideFunction>() -> RunJob {
        RunJob(|settings, run| run.with(settings.settings::<S>()))
    }
}

/// The cluster's keys; a host alone needs none and draws one.
/// The keys of a cluster: those of its key file, or a key for this run if it names none.
///
/// # Errors
/// The file cannot be read, or there is no randomness.
pub fn keys_of(file: &Path, config: &Config) -> Result<KeyRing, RunError> {
    if let Some(key) = &config.cluster.key {
        return Ok(key_file::read(&files::key_path(file, key))?);
    }
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)?;
    Ok(ClusterKey::from_random(1, secret).into())
}
