//! Everything that is known of a host before its first thread starts.

use std::path::{Path, PathBuf};

use asterism_config::diagnostic::Report;
use asterism_config::files::{self, FileError};
use asterism_config::functions::Functions;
use asterism_config::{Config, Purpose};
use asterism_secure_channel::KeyRing;
use clap::Args;

use super::event_log::Style;

/// The arguments of `asterism run`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The configuration file; the same for all hosts of the cluster
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// Which member this host is, if the configuration does not say
    #[arg(long, value_name = "NAME")]
    pub member: Option<String>,
    /// Do not start if the whole cluster restarts and there is no saved state that can be used
    #[arg(long)]
    pub require_state: bool,
    /// How the log on standard error is written
    #[arg(long, value_enum, default_value_t = Style::Text)]
    pub log: Style,
}

/// Everything that is known before the first thread starts.
#[derive(Debug)]
pub struct Prepared {
    /// What the command line says.
    pub arguments: Arguments,
    /// The functions that it may name.
    pub functions: Functions,
    /// The configuration.
    pub config: Config,
    /// The text that it was read from.
    pub text: String,
    /// The cluster's keys.
    pub keys: KeyRing,
}

impl Prepared {
    /// Reads the configuration's file again.
    ///
    /// # Errors
    /// The file could not be read; says why.
    pub(crate) fn read_again(&self) -> Result<(Option<Config>, Report), FileError> {
        let Arguments { config, member, .. } = &self.arguments;
        files::load(config, Purpose::Host, member.as_deref(), self.functions)
    }
}

/// Where a host's control socket is.
#[must_use]
pub fn control_path(file: &Path, config: &Config) -> PathBuf {
    match &config.host.control {
        Some(path) => files::key_path(file, path),
        None => PathBuf::from(format!(
            "/run/asterism/{}-{}.sock",
            config.cluster.name, config.host.name
        )),
    }
}
