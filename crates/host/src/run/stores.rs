//! The store of remote objects as this host uses it: how its instances reach it, and what they show of it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use asterism_config::key_file::SecretFileError;
use asterism_config::{Config, Store, StoreAck, StoreShard};
use asterism_embedded_store::{RunningServer, ServerError};
use asterism_engine::{InstanceParts, MisplacedError, check_in_shards, check_placed, hash_seed};
use asterism_function::{NetworkFunction, objects_of};
use asterism_placement::Incarnation;
use asterism_remote_store::{
    CacheConfig, ClientConfig, Listing, Login, RemoteConfig, RemoteStore, Shard, ShardedStore,
    Shards, StoreListing, StoreStatistics,
};
use asterism_secure_channel::KeyRing;
use thiserror::Error;

use super::embedded_store;
use super::store_passwords::StorePasswords;
use asterism_event_log::Event;
use asterism_host_view::store::ByShard;

/// Why a host that has remote objects does not start.
#[derive(Debug, Error)]
pub enum StoreError {
    /// An object cannot live there.
    #[error("{0}: choose placement = \"replicated\" for it")]
    Misplaced(#[from] MisplacedError),
    /// The password cannot be read.
    #[error(transparent)]
    Password(#[from] SecretFileError),
    /// This host is to run the store, and its address is taken.
    #[error(
        "the embedded store cannot listen at {address}: {error}; stop what listens there, or name another server of the Redis protocol by `address` in [store]"
    )]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// What it has cannot be kept.
    #[error("`folder` of [store.embedded], {folder}, cannot be made: {error}", folder = .folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It does not start.
    #[error("the embedded store: {0}")]
    Embedded(ServerError),
    /// It has no thread.
    #[error("the embedded store does not start: {0}")]
    Thread(#[from] io::Error),
}

/// A host's ends of its store.
#[derive(Debug)]
pub(super) struct Stores {
    /// How an instance reaches it, but for what is its own: of several shards each.
    remotes: Vec<RemoteConfig>,
    shards: Option<Arc<Shards>>,
    host: String,
    incarnation: Incarnation,
    /// What each instance shows.
    pub(super) statistics: ByShard,
    /// The store as it is configured, with the address that it has.
    pub(super) store: Store,
    /// What it is shown.
    pub(super) passwords: StorePasswords,
    /// The part of it that this host runs, and what is to be said of that.
    pub(super) own: Option<(RunningServer, Vec<Event>)>,
}

impl Stores {
    /// The store of a host; `None` if it has none. It need not answer yet.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(super) fn of<F: NetworkFunction>(
        (config, file): (&Config, &Path),
        keys: &KeyRing,
        function: &F,
        incarnation: Incarnation,
        layout: u64,
    ) -> Result<Option<Stores>, StoreError> {
        let Some(store) = &config.store else {
            return Ok(None);
        };
        let settings = config.function.clone();
        let settings = move |name: &str| settings.object_settings(name);
        match store.shards.is_some() {
            true => check_in_shards(function, settings)?,
            false => check_placed(function, settings)?,
        }
        let passwords = StorePasswords::of(config, (store, file), keys)?;
        let own = embedded_store::start(config, file, passwords.accepted.clone())?;
        let mut store = store.clone();
        if let (Some((own, _)), None) = (&own, &store.shards) {
            // Of a host alone it is any that was free.
            store.addresses = vec![own.address()];
        }
        let whole = RemoteConfig {
            addresses: store.addresses.clone(),
            login: Login {
                user: store.user.clone(),
                password: passwords.shown.clone(),
            },
            waits_for_replica: store.ack == StoreAck::Replica,
            timeout: store.timeout,
            layout,
            client: ClientConfig {
                function: store.name.clone(),
                client: String::new(),
                seed: hash_seed(keys.sending()),
                objects: config.function.remote(objects_of(function)),
                commit_pipes: store.connections,
                cache: store.cache.map(|cache| CacheConfig {
                    entries: cache.entries,
                    staleness: cache.staleness,
                    staleness_away: cache.known_for,
                    has_filter: cache.filter,
                }),
                shard: None,
            },
        };
        let shards = store.shards.as_ref();
        let spread = shards.map(|shards| {
            // As directors of the cluster divide the flow space.
            let seed = shards.seed ^ u64::from(config.cluster.id().0) << 32;
            let spread = Shards::new(&shards.names(), (shards.buckets, seed));
            Arc::new(spread.expect("the configuration has as many as there may be"))
        });
        let remotes = match shards.zip(spread.as_ref()) {
            Some((shards, spread)) => {
                let each = shards.each.iter().enumerate();
                each.map(|(place, shard)| of_shard(&whole, shard, (spread, place)))
                    .collect()
            }
            None => vec![whole],
        };
        let of_instances = |_: &RemoteConfig| {
            let instances = 0..config.host.instances;
            instances.map(|_| Arc::default()).collect()
        };
        Ok(Some(Stores {
            host: config.host.name.clone(),
            incarnation,
            statistics: remotes.iter().map(of_instances).collect(),
            shards: spread,
            remotes,
            store,
            passwords,
            own,
        }))
    }

    /// What shows its entries to people.
    pub(super) fn listing<F: NetworkFunction + Send + Sync>(
        &self,
        function: &Arc<F>,
    ) -> Arc<dyn Listing> {
        Arc::new(StoreListing::new(function.clone(), self.remotes.clone()))
    }

    /// Has an instance use it, under a name that no other has, nor has had.
    pub(super) fn give<F: NetworkFunction + Send + Sync>(
        &self,
        parts: InstanceParts,
        function: &Arc<F>,
        instance: usize,
    ) -> InstanceParts {
        let incarnation = self.incarnation.0;
        let own = |remote: &RemoteConfig| {
            let mut own = remote.clone();
            own.client.client = format!("{}:{incarnation:016x}:{instance}", self.host);
            own
        };
        let statistics = |shard: &Vec<Arc<StoreStatistics>>| {
            let own = shard.get(instance);
            own.cloned().unwrap_or_default()
        };
        let statistics = self.statistics.iter().map(statistics);
        let each: Vec<_> = self.remotes.iter().map(own).zip(statistics).collect();
        let (function, shards) = (function.clone(), self.shards.clone());
        parts.with_store(move || match (shards, each) {
            (Some(shards), each) => Box::new(ShardedStore::new(&*function, shards, each)),
            (None, each) => {
                let mut each = each.into_iter();
                let (remote, statistics) = each.next().expect("a store without shards is one");
                Box::new(RemoteStore::new(&*function, &remote, statistics))
            }
        })
    }
}

/// How a shard is reached: keys begin with its name too, and hosts that know of other shards have another layout.
fn of_shard(
    whole: &RemoteConfig,
    shard: &StoreShard,
    (shards, place): (&Arc<Shards>, usize),
) -> RemoteConfig {
    let mut remote = whole.clone();
    remote.addresses = shard.addresses.clone();
    remote.layout = shards.digest(whole.layout);
    remote.client.function = format!("{}/{}", whole.client.function, shard.name);
    remote.client.shard = Some(Shard {
        all: shards.clone(),
        place,
    });
    remote
}
