//! Stores over TCP: the embedded store's server, and the real Redis, alone, with replicas, and as a cluster.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use asterism_embedded_store::{RunningServer, Server, ServerConfig};
use asterism_lab::KeptPort;
use asterism_lab::redis::{Redis, RedisCluster};
use asterism_remote_store::{CacheConfig, ClientConfig, RemoteConfig};

use crate::over_wires::config;

const CACHE: CacheConfig = CacheConfig {
    entries: 1_024,
    staleness: Duration::from_millis(500),
    staleness_away: Duration::ZERO,
    has_filter: false,
};

/// The embedded store on a thread, until it is dropped.
pub(crate) struct Embedded {
    server: Option<RunningServer>,
    pub(crate) address: SocketAddr,
    /// Its port, if it has one of its own: another one may listen there later.
    port: Option<KeptPort>,
}

impl Embedded {
    pub(crate) fn start(listen: SocketAddr) -> Self {
        Self::start_with(ServerConfig::new(listen))
    }

    pub(crate) fn start_with(mut config: ServerConfig) -> Self {
        let is_any = config.listen == any_port();
        let port = is_any.then(|| KeptPort::new().expect("a port is free"));
        if let Some(port) = &port {
            config.listen = port.address();
        }
        let begun = Instant::now();
        let now_ms = move || 1_000_000 + begun.elapsed().as_millis() as u64;
        let server = Server::bind(config, now_ms).expect("a free port");
        let server = RunningServer::start(server).expect("it has a thread");
        Self {
            address: server.address(),
            server: Some(server),
            port,
        }
    }

    /// Ends it. What listens there next holds the port.
    pub(crate) fn end(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().expect("it serves");
        }
    }
}

pub(crate) fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A store of some kind.
pub(crate) enum Stores {
    Embedded(Embedded),
    /// Where the embedded store was, nobody says anything.
    Silent(TcpListener, Option<KeptPort>),
    Redis(Redis),
    /// A primary and two replicas; packets leave when a replica has their writes.
    Replicated(Vec<Redis>),
    /// Three members.
    Cluster(RedisCluster),
}

/// What stores are tested.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Embedded,
    Redis,
    Replicated,
    Cluster,
}

/// The key that each client reads first.
pub(crate) const LAYOUT: &str = "{tills}layout";

impl Stores {
    fn start(kind: Kind) -> Option<Stores> {
        Some(match kind {
            Kind::Embedded => Stores::Embedded(Embedded::start(any_port())),
            Kind::Redis => Stores::Redis(Redis::start()?),
            Kind::Replicated => Stores::Replicated(Redis::start_replicated(2)?),
            Kind::Cluster => Stores::Cluster(RedisCluster::start(3)?),
        })
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        let of = |all: &[Redis]| all.iter().rev().map(Redis::address).collect();
        match self {
            Stores::Embedded(embedded) => vec![embedded.address],
            Stores::Silent(listener, _) => vec![listener.local_addr().expect("its port")],
            Stores::Redis(redis) => vec![redis.address()],
            // The primary is the last one.
            Stores::Replicated(all) => of(all),
            // The member that has the keys is found by the others.
            Stores::Cluster(cluster) => {
                let mut members: Vec<_> = of(&cluster.members);
                let holder = cluster.members[cluster.holder(LAYOUT)].address();
                members.retain(|member| *member != holder);
                members
            }
        }
    }

    /// Where this key is.
    pub(crate) fn address_of(&self, key: &str) -> SocketAddr {
        match self {
            Stores::Cluster(cluster) => cluster.members[cluster.holder(key)].address(),
            Stores::Replicated(all) => all[0].address(),
            _ => self.addresses()[0],
        }
    }

    /// The server that has the keys, and its place.
    pub(crate) fn holder(&self) -> Option<(usize, &Redis)> {
        match self {
            Stores::Embedded(_) | Stores::Silent(..) => None,
            Stores::Redis(redis) => Some((0, redis)),
            Stores::Replicated(all) => Some((0, all.first()?)),
            Stores::Cluster(cluster) => {
                let place = cluster.holder(LAYOUT);
                Some((place, cluster.members.get(place)?))
            }
        }
    }

    /// The server that has the keys takes connections and says nothing, from now on; and which one that is.
    pub(crate) fn silence(&mut self) -> usize {
        if let Stores::Embedded(embedded) = self {
            let address = embedded.address;
            embedded.end();
            let listener = TcpListener::bind(address).expect("the port is free");
            *self = Stores::Silent(listener, embedded.port.take());
            return 0;
        }
        let (place, redis) = self.holder().expect("it has the keys");
        redis.pause();
        place
    }

    /// That server speaks again.
    pub(crate) fn speak(&mut self, place: usize) {
        match self {
            Stores::Silent(listener, port) => {
                let address = listener.local_addr().expect("its port");
                let port = port.take();
                // The listener goes: another one may be there.
                *listener = TcpListener::bind(any_port()).expect("a port is free");
                let embedded = Embedded::start(address);
                *self = Stores::Embedded(Embedded { port, ..embedded });
            }
            Stores::Embedded(_) => {}
            Stores::Redis(redis) => redis.go_on(),
            Stores::Replicated(all) => all[place].go_on(),
            Stores::Cluster(cluster) => cluster.members[place].go_on(),
        }
    }

    /// How the client of this number uses it: the first of three keeps nothing, the last one has a filter.
    pub(crate) fn remote(&self, number: u32) -> RemoteConfig {
        let kind = number % 3;
        let client = ClientConfig {
            cache: (kind > 0).then_some(CacheConfig {
                has_filter: kind == 2,
                ..CACHE
            }),
            ..config(number as usize, 1)
        };
        RemoteConfig {
            addresses: self.addresses(),
            waits_for_replica: matches!(self, Stores::Replicated(_)),
            ..RemoteConfig::new(any_port(), client)
        }
    }
}

/// Does it with a store of this kind, where there is one.
pub(crate) fn on(kind: Kind, test: impl FnOnce(Stores)) {
    match Stores::start(kind) {
        Some(stores) => test(stores),
        None => println!("SKIPPED {kind:?}: redis-server is not installed"),
    }
}
