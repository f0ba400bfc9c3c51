//! Hosts: an instance of the ledger each, and its clients of the store.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Instance, InstanceParts, Store};
use asterism_function::Reason;
use asterism_function::testkit::{Recorded, RecordedCalls, SEED, START_TICK};
use asterism_io::frame::FramePool;
use asterism_placement::Time;
use asterism_remote_store::{
    CacheConfig, ClientConfig, RemoteConfig, RemoteStore, ShardedStore, StoreStatistics,
};

use super::division::Division;
use super::ends::{HostEnd, ShardEnd};
use super::ledger::{self, Ledger};
use super::links::Links;
use super::network::{Incarnation, Shared, addresses};
use super::plan::{Ack, Keeps, RemotePlan};
use crate::stores::Outside;

/// Buffers for frames of a host.
const FRAMES: usize = 2_048;
/// Ports that packets leave by.
const PORTS: u16 = 2;
/// Answers that a client keeps: fewer than there are keys, in some seeds.
const KEPT: [usize; 2] = [6, 256];

/// A host of one instance, with a client of each shard.
pub(super) struct Host {
    pub(super) incarnation: Incarnation,
    pub(super) instance: Option<Instance<Recorded<Ledger>>>,
    /// Routers send it packets.
    pub(super) is_routed: bool,
    pub(super) paused: Time,
    pub(super) calls: RecordedCalls,
    pub(super) outside: Outside,
    /// Of each shard.
    pub(super) statistics: Vec<Arc<StoreStatistics>>,
}

impl Host {
    /// One begins, with nothing of its own.
    pub(super) fn begin(
        (plan, division): (&RemotePlan, &Division),
        host: Incarnation,
        shared: &Shared,
        now: Time,
    ) -> Self {
        let (calls, outside) = (RecordedCalls::default(), Outside::default());
        let (of_host, shared) = (calls.clone(), shared.clone());
        let ledger = Ledger::new(plan);
        let places = 0..division.count();
        let statistics: Vec<Arc<StoreStatistics>> =
            places.clone().map(|_| Arc::default()).collect();
        let configs = places.map(|place| config((plan, division), host, place));
        let each: Vec<_> = configs.zip(statistics.iter().cloned()).collect();
        let shards = division.shards().cloned();
        let make = move || -> Box<dyn Store> {
            let end = |(shard, (config, statistics)): (usize, (RemoteConfig, _))| ShardEnd {
                host,
                client: {
                    let shared = shared.clone();
                    let links = Links {
                        shared,
                        host,
                        shard,
                    };
                    RemoteStore::over(links, &ledger, &config, statistics)
                },
                shared: shared.clone(),
            };
            let mut ends = each.into_iter().enumerate().map(end);
            let store: Box<dyn Store> = match (shards, ends.next()) {
                (Some(shards), first) => {
                    let ends = first.into_iter().chain(ends);
                    Box::new(ShardedStore::of(shards, ends.collect()))
                }
                (None, Some(only)) => Box::new(only),
                (None, None) => unreachable!("a store is at least one shard"),
            };
            Box::new(HostEnd {
                host,
                store,
                shared,
                calls: of_host,
                now,
            })
        };
        let parts = InstanceParts::alone(SEED)
            .with_tick_at_zero(START_TICK)
            .with_store(make);
        let pool = FramePool::new(FRAMES).expect("memory for frames");
        let ports = (0..PORTS).map(|port| outside.port(port)).collect();
        let recorded = Arc::new(Recorded::new(ledger, calls.clone()));
        let mut instance = parts.start(recorded, ledger::settings(plan), pool, ports);
        instance.turn(now);
        Self {
            incarnation: host,
            instance: Some(instance),
            is_routed: true,
            paused: Time::ZERO,
            calls,
            outside,
            statistics,
        }
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        let instance = self.instance.as_ref()?;
        Some(instance.next_due().max(self.paused))
    }

    pub(super) fn given_up(&self) -> u64 {
        let instance = self.instance.as_ref();
        instance.map_or(0, |instance| {
            instance.tally().dropped(Reason::ParkedTooLong)
        })
    }

    /// Reads and transactions of keys that another shard has.
    pub(super) fn misplaced(&self) -> u64 {
        let all = self.statistics.iter();
        all.map(|one| one.snapshot().tally.misplaced).sum()
    }
}

/// The client of a shard.
fn config(
    (plan, division): (&RemotePlan, &Division),
    host: Incarnation,
    place: usize,
) -> RemoteConfig {
    let cache = CacheConfig {
        entries: KEPT[(plan.seed / 3 % 2) as usize],
        staleness: plan.staleness,
        staleness_away: Duration::ZERO,
        has_filter: plan.keeps == Keeps::AnswersAndKeys,
    };
    let client = ClientConfig {
        function: division.function(place),
        client: format!("0.{}", host),
        seed: SEED,
        objects: ledger::objects(plan),
        commit_pipes: plan.commit_pipes,
        cache: (plan.keeps != Keeps::Nothing).then_some(cache),
        shard: division.shard(place),
    };
    let [first, ..] = addresses(place)[..] else {
        unreachable!("a shard has servers");
    };
    RemoteConfig {
        addresses: addresses(place),
        waits_for_replica: plan.ack == Ack::Replica,
        timeout: plan.timeout,
        ..RemoteConfig::new(first, client)
    }
}
