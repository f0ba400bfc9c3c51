//! Everything that is known of a host before its first thread starts.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use asterism_config::diagnostic::Report;
use asterism_config::files::{self, FileError};
use asterism_config::functions::Functions;
use asterism_config::{Config, Purpose};
use asterism_secure_channel::KeyRing;
use clap::Args;

use asterism_event_log::Style;

/// The arguments of `asterism run`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The configuration file; the same for all hosts of the cluster
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// Which member this host is, if the configuration does not say
    #[arg(long, value_name = "NAME")]
    pub member: Option<String>,
    /// Where its state channel is, if hosts register and the configuration does not say
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub address: Option<SocketAddr>,
    /// Do not start if the whole cluster restarts and there is no saved state that can be used
    #[arg(long)]
    pub require_state: bool,
    /// How the log on standard error is written
    #[arg(long, value_enum, default_value_t = Style::Text)]
    pub log: Style,
}

impl Arguments {
    /// A configuration with what the command line says of it.
    pub(crate) fn apply(&self, mut config: Config) -> Config {
        config.host.address = self.address.or(config.host.address);
        config
    }

    /// Whether the address of the command line is one that this configuration can use; if not, why.
    pub(crate) fn address_fault(&self, config: &Config) -> Option<String> {
        let address = self.address?;
        if !config.cluster.is_open {
            return Some("--address is for clusters with [cluster] places: here the configuration lists all addresses".to_owned());
        }
        let is_usable = asterism_epochs::is_host_address(address);
        (!is_usable).then(|| format!("other hosts cannot send to {address}"))
    }
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
        let read = files::load(config, Purpose::Host, member.as_deref(), self.functions);
        read.map(|(config, report)| (config.map(|config| self.arguments.apply(config)), report))
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
