//! `asterism store`: the embedded store as a process of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use asterism_config::key_file::{SecretFileError, password as password_of};
use asterism_config::value::{self, Mistake};
use asterism_embedded_store::{
    EndedError, Passwords, RunningServer, Server, ServerConfig, ServerError, Sync, wall_ms,
};
use asterism_host::run::embedded_store::{growth_event, start_events};
use asterism_host::run::event_log::{Event, EventLog, Style};
use asterism_host::run::signals;
use asterism_io::clock::MonotonicClock;
use asterism_output::{End, Output};
use clap::{Args, ValueEnum};

/// The least memory that is of use.
const MEMORY_MIN: u64 = 1 << 20;

/// How often it is looked whether the store is to end, or has ended.
const LOOK: Duration = Duration::from_millis(20);

/// The arguments of `asterism store`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// Where connections are taken
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6379")]
    pub listen: SocketAddr,
    /// The file that keeps what the store holds; without one, that ends with the process
    #[arg(long, value_name = "FILE")]
    pub append: Option<PathBuf>,
    /// When the file is written to the disk
    #[arg(long, value_enum, default_value_t = Written::Second, requires = "append")]
    pub sync: Written,
    /// The file with the password that clients show, on its first line; its mode must be 0600
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Bytes that keys and values may take; what adds more is refused
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = memory)]
    pub memory_max: u64,
    /// Connections at a time, at most; each packet loop has as many as `connections` in the table `store`, and one more
    #[arg(long, value_name = "COUNT", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub clients_max: u16,
    /// How the log on standard error is written
    #[arg(long, value_enum, default_value_t = Style::Text)]
    pub log: Style,
}

/// When what was acknowledged is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Written {
    /// Before it is acknowledged
    Always,
    /// Within a second: the last one is lost if the machine fails, not if the process does
    Second,
    /// When the system writes it
    Never,
}

/// Why a store does not run, or not any more.
#[derive(Debug, thiserror::Error)]
enum RunStoreError {
    #[error(transparent)]
    Password(#[from] SecretFileError),
    #[error("signals cannot be heard: {0}")]
    Signals(std::io::Error),
    #[error("the store cannot listen at {address}: {error}; name another address by --listen")]
    Listen {
        address: SocketAddr,
        error: std::io::Error,
    },
    #[error("the store: {0}")]
    Server(ServerError),
    #[error("the store does not start: {0}")]
    Thread(std::io::Error),
    #[error("the store: {0}")]
    Ended(#[from] EndedError),
}

impl From<ServerError> for RunStoreError {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Listen { address, error } => Self::Listen { address, error },
            other => Self::Server(other),
        }
    }
}

fn memory(text: &str) -> Result<u64, Mistake> {
    match value::size(text)? {
        bytes if bytes < MEMORY_MIN => Err(Mistake::new(
            "a store needs more memory",
            "write 1MiB or more",
        )),
        bytes => Ok(bytes),
    }
}

/// `asterism store`.
pub fn command(arguments: &Arguments, output: &mut Output<'_>) -> End {
    match run(arguments, output) {
        Ok(()) => End::Done,
        Err(error) => output.fail(End::File, &error),
    }
}

fn run(arguments: &Arguments, output: &mut Output<'_>) -> Result<(), RunStoreError> {
    let password = arguments.password_file.as_deref();
    let password = password.map(|path| password_of(path, "the password file"));
    let password = password.transpose()?;
    let (stop, _hang_up) = signals().map_err(RunStoreError::Signals)?;
    let clock = MonotonicClock::new();
    let config = ServerConfig {
        clients_max: arguments.clients_max.into(),
        bytes_max: usize::try_from(arguments.memory_max).unwrap_or(usize::MAX),
        passwords: password.map(|password| Passwords::new([password])),
        append_file: arguments.append.clone().map(|file| {
            let sync = match arguments.sync {
                Written::Always => Sync::Always,
                Written::Second => Sync::EverySecond,
                Written::Never => Sync::Never,
            };
            (file, sync)
        }),
        ..ServerConfig::new(arguments.listen)
    };
    let server = Server::bind(config.clone(), wall_ms)?;
    let mut log = EventLog::new(output.progress(), arguments.log, "store");
    let mut write = |event: &Event| log.write(clock.now(), clock.wall(), event);
    start_events(Event::info("started"), &server, &config)
        .iter()
        .for_each(&mut write);
    let mut server = RunningServer::start(server).map_err(RunStoreError::Thread)?;
    let statistics = server.statistics();
    let mut not_rewritten = 0;
    while !stop.load(Ordering::Relaxed) {
        std::thread::park_timeout(LOOK);
        if let Some(why) = server.why_ended() {
            return Err(why.into());
        }
        let grows = growth_event(&statistics, &mut not_rewritten);
        grows.iter().for_each(&mut write);
    }
    server.stop()?;
    write(
        &Event::info("stopped")
            .with("bytes", statistics.bytes.load(Ordering::Relaxed))
            .with(
                "connections_refused",
                statistics.refused.load(Ordering::Relaxed),
            ),
    );
    Ok(())
}
