//! A host or a cluster by the API of an orchestrator, as an alternative to a control socket of this machine.

use std::path::PathBuf;

use asterism_api::client::Client;
use asterism_config::functions::Functions;
use asterism_host::control::Ask;
use asterism_host_view::StatusDocument;
use clap::Args;

use super::WITHIN;
use super::client::{ClientError, Which, ask};
use super::cluster::{ClusterError, DEFAULT_ADDRESS, Where, client};

/// The variable with the address of the API.
const API_VARIABLE: &str = "ASTERISM_API";

/// Where to ask, if not at a control socket.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Remote {
    /// Ask an orchestrator by its API at this address, from any machine, instead of a control socket here
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "socket"])]
    pub api: Option<String>,
    /// Ask this host by the API of an orchestrator; without --api, at the address in ASTERISM_API, or on this machine
    #[arg(long, value_name = "NAME", conflicts_with_all = ["config", "socket"])]
    pub host: Option<String>,
    /// The file with the token for the API
    #[arg(long, value_name = "FILE", env = "ASTERISM_TOKEN_FILE")]
    pub token: Option<PathBuf>,
    /// The authorities that signed the API's certificate, in PEM
    #[arg(long, value_name = "FILE", env = "ASTERISM_CA")]
    pub ca: Option<PathBuf>,
}

impl Remote {
    /// The API to ask; `None`: a control socket.
    #[must_use]
    pub fn at(&self) -> Option<Where> {
        if self.api.is_none() && self.host.is_none() {
            return None;
        }
        Some(self.address())
    }

    /// The API to ask where nothing else is said.
    #[must_use]
    pub fn address(&self) -> Where {
        let address = self.api.clone();
        let address = address.or_else(|| std::env::var(API_VARIABLE).ok());
        Where {
            api: address.unwrap_or_else(|| DEFAULT_ADDRESS.to_owned()),
            token: self.token.clone(),
            ca: self.ca.clone(),
        }
    }
}

/// Why a host did not answer, wherever it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// At its control socket.
    #[error(transparent)]
    Socket(#[from] ClientError),
    /// By an orchestrator.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

/// A host that is asked again and again.
pub(super) enum Source {
    Socket(PathBuf),
    Api(Client, String),
}

impl Source {
    /// The control socket, or the host of this name by the API.
    pub(super) fn of(
        which: &Which,
        api: Option<(&Where, &str)>,
        functions: Functions,
    ) -> Result<Source, SourceError> {
        Ok(match api {
            Some((at, host)) => Source::Api(client(at)?, host.to_owned()),
            None => Source::Socket(which.socket(functions)?),
        })
    }

    /// The host's status.
    pub(super) fn status(&self, digests: bool) -> Result<StatusDocument, SourceError> {
        Ok(match self {
            Source::Socket(socket) => ask(socket, &Ask::Status { digests }, WITHIN)?,
            Source::Api(client, host) => client.host_status(host).map_err(ClusterError::from)?,
        })
    }
}
