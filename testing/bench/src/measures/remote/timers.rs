//! `remote.timers`: a balancer's flows in the real Redis, whose idle time is over. Clients commit their ends; each takes the flow from the
//! count of its backend.
//!
//! First one client ends all. Then four do by turns, and the one that is at it is killed, eight times, or twenty in the long form: each costs
//! the seconds for which it had the store's word. Connections end in the middle of what is under way. What is left in the store in the end was
//! ended never, and a count below zero twice.

use std::sync::Arc;

use asterism_engine::{InstanceParts, Store};
use asterism_function::{PortNumber, objects_of};
use asterism_functions::balancer::Balancer;
use asterism_io::frame::FramePool;
use asterism_lab::outside;
use asterism_lab::redis::Redis;
use asterism_placement::Time;
use asterism_remote_store::{ClientConfig, RemoteConfig, RemoteStore, StoreStatistics};
use asterism_state::{ObjectSettings, Tick};

use super::super::Context;
use super::super::functions_cost::balancer;
use super::to_service;
use crate::contract::{Failure, Outcome};
use crate::timing::wall_ns;

const FLOWS: &str = "flows";
const TOGETHER: u32 = 448;
const BURST: u32 = 32;
const CLIENTS: usize = 4;
const KILLS: u32 = 8;
const KILLS_FULL: u32 = 20;
/// A second of the cluster's time in which all flows have idled out.
const LATER: Tick = 1_000_000;
/// Nothing takes longer.
const PATIENCE_NS: u64 = 120_000_000_000;

/// A balancer whose flows are in a store.
struct Balanced {
    redis: Redis,
    function: Arc<Balancer>,
    clients: u32,
}

/// One that commits ends, and how many it has.
struct Client {
    store: RemoteStore<Balancer>,
    ended: u64,
}

impl Balanced {
    fn config(&mut self) -> RemoteConfig {
        self.clients += 1;
        let objects = objects_of(&*self.function).iter().zip(0..);
        let objects = objects.filter(|(name, _)| **name == FLOWS);
        let client = ClientConfig {
            function: "bench".to_owned(),
            client: format!("timers-{}", self.clients),
            seed: 1,
            objects: objects.fold(0, |bits, (_, number)| bits | 1 << number),
            commit_pipes: 2,
            cache: None,
        };
        RemoteConfig::new(self.redis.address(), client)
    }

    /// Opens so many flows, by an instance that is gone then.
    fn fill(&mut self, flows: u32) -> Result<(), Failure> {
        let (config, of_store) = (self.config(), self.function.clone());
        let make = move || {
            Box::new(RemoteStore::new(&*of_store, &config, Arc::default())) as Box<dyn Store>
        };
        let (to, left) = std::sync::mpsc::channel();
        // Nobody listens in the end.
        let sees = move |_: &[u8]| _ = to.send(());
        let ports = vec![outside::port(|_| {}), outside::port(sees)];
        let pool = FramePool::new(4_096).map_err(|error| Failure::Absent(error.to_string()))?;
        let settings = |name: &str| match name {
            FLOWS => ObjectSettings::REMOTE,
            _ => ObjectSettings::LOCAL,
        };
        let parts = InstanceParts::alone(1).with_store(make);
        let mut instance = parts.start(self.function.clone(), settings, pool, ports);
        let begun = wall_ns();
        let (mut sent, mut back) = (0, 0);
        while back < flows {
            let now = Time::from_micros(1 + (wall_ns() - begun) / 1_000);
            let room = TOGETHER.saturating_sub(sent - back).min(flows - sent);
            for _ in 0..room.min(BURST) {
                sent += u32::from(instance.inject(now, PortNumber(0), &to_service(sent as usize)));
            }
            instance.turn(now);
            back += left.try_iter().count() as u32;
            if wall_ns() - begun > PATIENCE_NS {
                let drops: Vec<_> = instance.tally().drops().collect();
                let why = format!("{back} of {sent} flows were opened: {drops:?}");
                return Err(Failure::Unsound(why));
            }
        }
        Ok(())
    }

    fn client(&mut self) -> Client {
        let config = self.config();
        let statistics: Arc<StoreStatistics> = Arc::default();
        let mut store = RemoteStore::new(&*self.function, &config, statistics);
        store.set_tick(LATER);
        Client { store, ended: 0 }
    }

    fn ask(&self, words: &[&str]) -> Result<String, Failure> {
        let reply = self.redis.command(words);
        reply.map_err(|error| Failure::Unsound(error.to_string()))
    }

    /// Flows that were ended never, and counts that are not what they should be: of flows that were ended twice, or not with their count.
    fn faults(&self) -> Result<u64, Failure> {
        let number = |text: &str| text.trim().parse::<i64>().ok();
        let left = number(&self.ask(&["ZCARD", "{bench}0:ends"])?);
        let left = left.ok_or_else(|| Failure::Unsound("the store counts nothing".into()))?;
        let counts = self.ask(&["HVALS", "{bench}2:sums"])?;
        let wrong: u64 = counts
            .lines()
            .filter_map(number)
            .map(i64::unsigned_abs)
            .sum();
        Ok(left.unsigned_abs() + wrong)
    }
}

impl Client {
    fn turn(&mut self, begun: u64) {
        let now = Time::from_micros(1 + (wall_ns() - begun) / 1_000);
        while self.store.next_event(now).is_some() {}
        self.store.send(now);
        self.ended = self.store.tally().ends_committed;
    }
}

/// Ends of flows a second, one client.
fn speed(balanced: &mut Balanced, flows: u32) -> Result<f64, Failure> {
    balanced.fill(flows)?;
    let mut client = balanced.client();
    let begun = wall_ns();
    let mut first = None;
    while client.ended < flows.into() {
        client.turn(begun);
        if client.ended > 0 {
            first.get_or_insert((wall_ns(), client.ended));
        }
        if wall_ns() - begun > PATIENCE_NS {
            let why = format!("{} of {flows} flows were ended", client.ended);
            return Err(Failure::Unsound(why));
        }
    }
    let (at, before) = first.unwrap_or((begun, 0));
    Ok((client.ended - before) as f64 * 1e9 / (wall_ns() - at) as f64)
}

/// Kills the one that ends flows, again and again; how many kills, and how many flows were ended by those who lived to say so.
fn kills(balanced: &mut Balanced, flows: u32, most: u32) -> Result<(u32, u64), Failure> {
    balanced.fill(flows)?;
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| balanced.client()).collect();
    let begun = wall_ns();
    let (mut kills, mut ended, mut quiet_since) = (0, 0, wall_ns());
    // Some are ended between two kills, and the last ones when all are over.
    let each = u64::from(flows) / u64::from(most + 1);
    while wall_ns() - quiet_since < 6_000_000_000 {
        for client in &mut clients {
            let before = client.ended;
            client.turn(begun);
            ended += client.ended - before;
            if client.ended > before {
                quiet_since = wall_ns();
            }
            if kills < most && client.ended > before && client.ended >= each / 2 {
                // What it has sent is under way, or was made and is not known to be.
                *client = balanced.client();
                kills += 1;
            }
        }
        if wall_ns() - begun > PATIENCE_NS {
            break;
        }
    }
    Ok((kills, ended))
}

pub(super) fn measure(context: &Context) -> Result<Outcome, Failure> {
    let (flows, most) = match context.full {
        true => (200_000, KILLS_FULL),
        false => (40_000, KILLS),
    };
    let redis = Redis::start();
    let redis = redis.ok_or_else(|| Failure::Absent("redis-server is not installed".into()))?;
    let mut balanced = Balanced {
        redis,
        function: Arc::new(balancer()),
        clients: 0,
    };
    let rate = speed(&mut balanced, flows)?;
    context.say(&format!("{rate:.0} flows ended/s by one client"));
    let faults = balanced.faults()?;
    let (killed, known) = kills(&mut balanced, flows, most)?;
    context.say(&format!(
        "{killed} kills, {known} ends known to those who lived"
    ));
    let faults = faults + balanced.faults()?;
    Ok(Outcome::new(rate, 1)
        .variant("twice-or-never", faults as f64)
        .variant("kills", killed.into()))
}
