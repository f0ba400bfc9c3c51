//! The client of the control socket: finds a running host's socket, sends a request and reads the answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use asterism_config::Purpose;
use asterism_config::files::{self, FileError};
use asterism_config::functions::Functions;
use asterism_host::control::place::FOLDER;
use asterism_host::control::{ANSWER_BYTES_MAX, Answer, Ask};
use asterism_host::run;
use clap::Args;
use serde::de::DeserializeOwned;

/// The running host to ask.
#[derive(Args, Clone, Debug, Default)]
pub struct Which {
    /// The configuration that the host runs with
    #[arg(long, value_name = "CONFIG")]
    pub config: Option<PathBuf>,
    /// The member of that configuration
    #[arg(long, value_name = "NAME", requires = "config")]
    pub member: Option<String>,
    /// The host's control socket, instead of a configuration
    #[arg(long, value_name = "SOCKET", conflicts_with = "config")]
    pub socket: Option<PathBuf>,
}

/// Why a host was not found, or gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The configuration could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The configuration has mistakes.
    #[error("{} is refused: {mistakes} mistakes; see `asterism check`", file.display())]
    Refused {
        /// The configuration.
        file: PathBuf,
        /// How many it has.
        mistakes: usize,
    },
    /// No host has its socket where sockets are looked for.
    #[error(
        "no host runs here with its control socket in {FOLDER}: name the host with --socket or --config"
    )]
    NoHostHere,
    /// More than one host has; this is the first socket.
    #[error(
        "several hosts run here: name the socket of one host with --socket, such as {}",
        .0.display()
    )]
    SeveralHosts(PathBuf),
    /// Nobody listens at the socket.
    #[error(
        "no host runs at {}: start the host with `asterism run`, or name another socket",
        .0.display()
    )]
    NoHostAt(PathBuf),
    /// The socket is for others.
    #[error("only the host's own user and root may open {}: use `sudo`", .0.display())]
    NotAllowed(PathBuf),
    /// The socket could not be connected to.
    #[error("{} cannot be reached: {error}", socket.display())]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The host took the connection, and the request or its answer did not get through; what the host did is not known.
    #[error("the host at {} does not answer: {error}", socket.display())]
    NoAnswer {
        /// The socket.
        socket: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The request could not be written as JSON; nothing was sent.
    #[error(transparent)]
    Unwritable(serde_json::Error),
    /// The host closed the connection; what it did is not known.
    #[error("the host at {} ended before it answered; see its log", .0.display())]
    Ended(PathBuf),
    /// The host refused the request, in its words.
    #[error("{0}")]
    Host(String),
    /// The host's answer is not the one that this version knows.
    #[error("the host at {} is of another version: {error}", socket.display())]
    OtherVersion {
        /// The socket.
        socket: PathBuf,
        /// Why.
        error: serde_json::Error,
    },
    /// The answer says nothing.
    #[error("the host at {} sent an empty answer", .0.display())]
    Empty(PathBuf),
}

impl Which {
    /// The socket of the host: the one named, the configured one, or the only one on this machine.
    ///
    /// # Errors
    /// There is no socket, or more than one.
    pub fn socket(&self, functions: Functions) -> Result<PathBuf, ClientError> {
        if let Some(socket) = &self.socket {
            return Ok(socket.clone());
        }
        if let Some(file) = &self.config {
            let (config, report) =
                files::load(file, Purpose::Host, self.member.as_deref(), functions)?;
            let config = config.ok_or_else(|| ClientError::Refused {
                file: file.clone(),
                mistakes: report.errors(),
            })?;
            return Ok(run::control_path(file, &config));
        }
        let listed = std::fs::read_dir(FOLDER).map(|entries| {
            let sockets = entries.filter_map(|entry| Some(entry.ok()?.path()));
            sockets
                .filter(|path| {
                    path.extension()
                        .is_some_and(|extension| extension == "sock")
                })
                .collect()
        });
        let mut sockets: Vec<PathBuf> = listed.unwrap_or_default();
        sockets.sort();
        match sockets.as_slice() {
            [only] => Ok(only.clone()),
            [] => Err(ClientError::NoHostHere),
            [first, ..] => Err(ClientError::SeveralHosts(first.clone())),
        }
    }
}

/// Sends a request and waits for the answer.
///
/// # Errors
/// No host answers, or the host refuses.
pub fn ask<T: DeserializeOwned>(
    socket: &Path,
    ask: &Ask,
    within: Duration,
) -> Result<T, ClientError> {
    let socket = || socket.to_owned();
    let mut stream = UnixStream::connect(socket()).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
            ClientError::NoHostAt(socket())
        }
        std::io::ErrorKind::PermissionDenied => ClientError::NotAllowed(socket()),
        _ => ClientError::Unreachable {
            socket: socket(),
            error,
        },
    })?;
    let failed = |error| ClientError::NoAnswer {
        socket: socket(),
        error,
    };
    stream.set_read_timeout(Some(within)).map_err(failed)?;
    stream.set_write_timeout(Some(within)).map_err(failed)?;
    let request = serde_json::to_string(ask).map_err(ClientError::Unwritable)? + "\n";
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut line = String::new();
    BufReader::new(stream.take(ANSWER_BYTES_MAX))
        .read_line(&mut line)
        .map_err(failed)?;
    let answer: Answer = serde_json::from_str(&line).map_err(|_| ClientError::Ended(socket()))?;
    match (answer.result, answer.error) {
        (_, Some(why)) => Err(ClientError::Host(why)),
        (Some(result), None) => {
            serde_json::from_value(result).map_err(|error| ClientError::OtherVersion {
                socket: socket(),
                error,
            })
        }
        (None, None) => Err(ClientError::Empty(socket())),
    }
}
