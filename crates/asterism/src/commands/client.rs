//! The client of the control socket: finds a running host's socket, sends a request and reads the answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use asterism_config::files;
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

impl Which {
    /// The socket of the host: the one named, the configured one, or the only one on this machine.
    ///
    /// # Errors
    /// There is no socket, or more than one.
    pub fn socket(&self, functions: Functions) -> Result<PathBuf, String> {
        if let Some(socket) = &self.socket {
            return Ok(socket.clone());
        }
        if let Some(file) = &self.config {
            let (config, report) = files::load_for(file, self.member.as_deref(), functions)?;
            let config = config.ok_or_else(|| {
                format!(
                    "{} is refused: {} mistakes; see `asterism check`",
                    file.display(),
                    report.errors()
                )
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
            [] => Err(format!(
                "no host runs here with its control socket in {FOLDER}: name the host with --socket or --config"
            )),
            several => Err(format!(
                "several hosts run here: name the socket of one host with --socket, such as {}",
                several[0].display()
            )),
        }
    }
}

/// Sends a request and waits for the answer.
///
/// # Errors
/// No host answers, or the host refuses.
pub fn ask<T: DeserializeOwned>(socket: &Path, ask: &Ask, within: Duration) -> Result<T, String> {
    let name = socket.display();
    let mut stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
            format!(
                "no host runs at {name}: start the host with `asterism run`, or name another socket"
            )
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("only the host's own user and root may open {name}: use `sudo`")
        }
        _ => format!("{name} cannot be reached: {error}"),
    })?;
    let failed = |error: std::io::Error| format!("the host at {name} does not answer: {error}");
    stream.set_read_timeout(Some(within)).map_err(failed)?;
    stream.set_write_timeout(Some(within)).map_err(failed)?;
    let request = serde_json::to_string(ask).map_err(|error| error.to_string())? + "\n";
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut line = String::new();
    BufReader::new(stream.take(ANSWER_BYTES_MAX))
        .read_line(&mut line)
        .map_err(failed)?;
    let answer: Answer = serde_json::from_str(&line)
        .map_err(|_| format!("the host at {name} ended before it answered; see its log"))?;
    match (answer.result, answer.error) {
        (_, Some(error)) => Err(error),
        (Some(result), None) => serde_json::from_value(result)
            .map_err(|error| format!("the host at {name} is of another version: {error}")),
        (None, None) => Err(format!("the host at {name} sent an empty answer")),
    }
}
