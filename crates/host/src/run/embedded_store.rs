//! The embedded store, where this host runs it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use asterism_config::value::show_size;
use asterism_config::{Config, StoreSync, files};
use asterism_embedded_store::{
    Passwords, RunningServer, Server, ServerConfig, ServerError, ServerStatistics, Sync, wall_ms,
};
use asterism_event_log::Event;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::stores::StoreError;

/// Connections at a time, at most: of each packet loop of all hosts `connections` and one more, and those of people who look at entries.
const CLIENTS_MAX: u64 = 1_024;

/// The store of this host, or its shard; and what is to be said of it. `None` if the host runs none.
///
/// # Errors
/// The address is taken, the folder cannot be used, or what is in it is not a store's.
pub(super) fn start(
    config: &Config,
    file: &Path,
    passwords: Option<Passwords>,
) -> Result<Option<(RunningServer, Vec<Event>)>, StoreError> {
    let host = &config.host.name;
    let Some(store) = &config.store else {
        return Ok(None);
    };
    let embedded = store.embedded.as_ref();
    let Some(embedded) = embedded.filter(|embedded| embedded.members.contains(host)) else {
        return Ok(None);
    };
    let shards = store.shards.iter().flat_map(|shards| &shards.each);
    let mut own = shards.filter(|shard| shard.name == *host);
    let addresses = own
        .next()
        .map_or(&store.addresses, |shard| &shard.addresses);
    let Some(address) = addresses.first() else {
        return Ok(None);
    };
    let append_file = match &embedded.folder {
        None => None,
        Some(folder) => Some(append_file(&files::key_path(file, folder), host)?),
    };
    let sync = match embedded.sync {
        StoreSync::Always => Sync::Always,
        StoreSync::Second => Sync::EverySecond,
        StoreSync::Never => Sync::Never,
    };
    let settings = ServerConfig {
        clients_max: clients_max(),
        bytes_max: usize::try_from(embedded.memory_max).unwrap_or(usize::MAX),
        passwords,
        append_file: append_file.map(|file| (file, sync)),
        ..ServerConfig::new(*address)
    };
    let server = Server::bind(settings.clone(), wall_ms)?;
    let events = start_events(Event::info("store-started"), &server, &settings);
    Ok(Some((RunningServer::start(server)?, events)))
}

/// Half of the files that this process may open, so that the host is not kept from what it needs itself. Few systems let a process open
/// enough from the start, and all let it ask for more.
fn clients_max() -> usize {
    let mut files = getrlimit(Resource::Nofile);
    let enough = 2 * CLIENTS_MAX;
    if files.current.is_some_and(|current| current < enough) {
        files.current = Some(files.maximum.map_or(enough, |maximum| maximum.min(enough)));
        // Without them there are fewer connections.
        let _ = setrlimit(Resource::Nofile, files);
        files = getrlimit(Resource::Nofile);
    }
    let files = files.current.unwrap_or(enough);
    (files / 2).min(CLIENTS_MAX) as usize
}

fn append_file(folder: &Path, host: &str) -> Result<PathBuf, StoreError> {
    std::fs::create_dir_all(folder).map_err(|error| StoreError::Folder {
        folder: folder.to_owned(),
        error,
    })?;
    Ok(folder.join(format!("{host}.append")))
}

impl From<ServerError> for StoreError {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Listen { address, error } => Self::Listen { address, error },
            other => Self::Embedded(other),
        }
    }
}

/// What is to be said of an embedded store that begins: this event with what is known of it, then warnings.
#[must_use]
pub fn start_events(event: Event, server: &Server, config: &ServerConfig) -> Vec<Event> {
    let address: SocketAddr = server.address().unwrap_or(config.listen);
    let has_password = config.passwords.is_some();
    let kept = config.append_file.as_ref();
    let mut events = vec![
        event
            .with("address", address)
            .with("password", if has_password { "yes" } else { "no" })
            .with("memory_max", show_size(config.bytes_max as u64))
            .with(
                "kept",
                kept.map_or("no".into(), |(file, _)| file.display().to_string()),
            )
            .with("bytes", server.keyspace().bytes()),
    ];
    if !has_password && !address.ip().to_canonical().is_loopback() {
        events.push(
            Event::warning("store-open")
                .with("address", address)
                .effect("all that reach the address can read and change what the cluster's hosts share")
                .cure("name a --password-file of `asterism store`, and password_file in [store]; or let a network of its own lead there"),
        );
    }
    if server.cut() > 0 {
        events.push(
            Event::warning("append-file-cut")
                .with("bytes", server.cut())
                .effect("the last changes were not written whole when the store ended, and are left out: they were not acknowledged"),
        );
    }
    events
}

/// What is said of an append file that could not be rewritten, each time once: `said` counts.
#[must_use]
pub fn growth_event(statistics: &ServerStatistics, said: &mut u64) -> Option<Event> {
    let times = statistics.not_rewritten.load(Ordering::Relaxed);
    (times > core::mem::replace(said, times)).then(|| {
        let event = Event::warning("append-file-grows");
        let event = event.effect("the store goes on, and its file takes more and more of the disk");
        event.cure("free as much of that disk as the store holds: it is tried again")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_grows_is_said_once_each_time() {
        let (statistics, mut said) = (ServerStatistics::default(), 0);
        assert!(growth_event(&statistics, &mut said).is_none());
        for _ in 0..2 {
            statistics.not_rewritten.fetch_add(1, Ordering::Relaxed);
            assert!(growth_event(&statistics, &mut said).is_some());
            assert!(growth_event(&statistics, &mut said).is_none());
        }
    }
}
