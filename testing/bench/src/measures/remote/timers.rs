//! `remote.timers`: a balancer's flows in the real Redis, whose idle time is over. Clients commit their ends; each takes the flow from the
//! count of its backend.
//!
//! First one client ends all. Then four do by turns, and the one that is at it is killed, eight times, or twenty in the long form: each costs
//! the seconds for which it had the store's word. Connections end in the middle of what is under way. What is left in the store in the end was
//! ended never, and a count below zero twice.

use std::sync::Arc;

use asterism_engine::Store;
use asterism_functions::balancer::Balancer;
use asterism_lab::redis::Redis;
use asterism_placement::Time;
use asterism_remote_store::RemoteStore;
use asterism_state::Tick;

use super::super::Context;
use super::super::functions_cost::balancer;
use super::wire::Asking;
use super::{BALANCER, Home, Remote, config, to_service};
use crate::contract::{Failure, Outcome};
use crate::timing::wall_ns;

const CLIENTS: usize = 4;
const KILLS: u32 = 8;
const KILLS_FULL: u32 = 20;
/// From one kill to the next one dies so much later after the ends that it had: some have ends under way then.
const STAGE_NS: u64 = 1_300_000;
/// A second of the cluster's time in which all flows have idled out.
const LATER: Tick = 1_000_000;
/// All are ended when nothing was ended for so long: longer than a dead client has the store's word.
const QUIET_NS: u64 = 6_000_000_000;
/// Nothing takes longer.
const PATIENCE_NS: u64 = 120_000_000_000;

/// A balancer's flows in a store, and nobody who uses them.
struct Flows {
    redis: Redis,
    function: Balancer,
    begun_ns: u64,
    clients: u32,
}

/// One that commits ends, and how many it has.
struct Client {
    store: RemoteStore<Balancer>,
    ended: u64,
}

impl Flows {
    fn open(flows: u32) -> Result<Self, Failure> {
        let opened = Remote::open(
            flows as usize,
            (balancer(), to_service),
            BALANCER,
            Home::Store,
            Asking::Batched,
        )?;
        let opened = Self {
            redis: opened.redis,
            function: balancer(),
            begun_ns: wall_ns(),
            clients: 0,
        };
        let (there, counts) = opened.counts()?;
        let counted: i64 = counts.iter().sum();
        if (there, counted) != (flows.into(), flows.into()) {
            let why = format!("of {flows} flows {there} are there, {counted} counted");
            return Err(Failure::Unsound(why));
        }
        Ok(opened)
    }

    fn client(&mut self) -> Client {
        self.clients += 1;
        let mut config = config(&self.function, BALANCER, &self.redis);
        config.client.client = format!("timers-{}", self.clients);
        let mut store = RemoteStore::new(&self.function, &config, Arc::default());
        store.set_tick(LATER);
        Client { store, ended: 0 }
    }

    fn elapsed_ns(&self) -> u64 {
        wall_ns() - self.begun_ns
    }

    /// Looks for replies of a client, and has it ask on.
    fn turn(&self, client: &mut Client) {
        let now = Time::from_micros(1 + self.elapsed_ns() / 1_000);
        while client.store.next_event(now).is_some() {}
        client.store.send(now);
        client.ended = client.store.tally().ends_committed;
    }

    /// Flows that are there, and how many are counted for each backend.
    fn counts(&self) -> Result<(i64, Vec<i64>), Failure> {
        let ask = |words: &[&str]| -> Result<Vec<i64>, Failure> {
            let reply = self.redis.command(words);
            let reply = reply.map_err(|error| Failure::Unsound(error.to_string()))?;
            Ok(reply
                .lines()
                .filter_map(|line| line.trim().parse().ok())
                .collect())
        };
        let there = ask(&["ZCARD", "{bench}0:ends"])?;
        let counted = ask(&["HVALS", "{bench}2:sums"])?;
        Ok((there.iter().sum(), counted))
    }

    /// Flows that are left when all are to have ended, and what backends are counted to have: less than nothing of one that was ended twice.
    fn faults(&self) -> Result<u64, Failure> {
        let (there, counts) = self.counts()?;
        let wrong: u64 = counts.into_iter().map(i64::unsigned_abs).sum();
        Ok(there.unsigned_abs() + wrong)
    }
}

/// Ends of flows a second by one client, and how many flows were ended never or twice.
fn speed(flows: u32) -> Result<(f64, u64), Failure> {
    let mut opened = Flows::open(flows)?;
    let mut client = opened.client();
    let mut first = None;
    while client.ended < flows.into() {
        opened.turn(&mut client);
        if client.ended > 0 {
            first.get_or_insert((wall_ns(), client.ended));
        }
        if opened.elapsed_ns() > PATIENCE_NS {
            let why = format!("{} of {flows} flows were ended", client.ended);
            return Err(Failure::Unsound(why));
        }
    }
    let (at, before) = first.unwrap_or((opened.begun_ns, 0));
    let rate = (client.ended - before) as f64 * 1e9 / (wall_ns() - at) as f64;
    Ok((rate, opened.faults()?))
}

/// What became of flows while those who end them were killed.
struct Killed {
    kills: u32,
    /// Ends of which those who committed them lived to hear.
    heard: u64,
    faults: u64,
}

/// Kills the one that ends flows, again and again.
fn kills(flows: u32, most: u32) -> Result<Killed, Failure> {
    let mut opened = Flows::open(flows)?;
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| opened.client()).collect();
    let (mut kills, mut heard, mut quiet_since) = (0, 0, wall_ns());
    // Some are ended between two kills, and the last ones when all are over.
    let each = u64::from(flows) / u64::from(most + 1);
    // Which client is to die, and when: in another stage of what it does each time.
    let mut dies: Option<(usize, u64)> = None;
    while wall_ns() - quiet_since < QUIET_NS && opened.elapsed_ns() < PATIENCE_NS {
        for (place, client) in clients.iter_mut().enumerate() {
            let before = client.ended;
            opened.turn(client);
            heard += client.ended - before;
            if client.ended > before {
                quiet_since = wall_ns();
            }
            if kills < most && dies.is_none() && client.ended >= each / 2 {
                dies = Some((place, wall_ns() + STAGE_NS * u64::from(kills)));
            }
            if dies.is_some_and(|(of, at)| of == place && wall_ns() >= at) {
                *client = opened.client();
                (dies, kills) = (None, kills + 1);
            }
        }
    }
    if kills < most {
        return Err(Failure::Unsound(format!(
            "{kills} clients were killed where {most} were to be: of {flows} flows {heard} were heard to have ended"
        )));
    }
    let faults = opened.faults()?;
    Ok(Killed {
        kills,
        heard,
        faults,
    })
}

pub(super) fn measure(context: &Context) -> Result<Outcome, Failure> {
    let (flows, most) = match context.full {
        true => (200_000, KILLS_FULL),
        false => (40_000, KILLS),
    };
    let (rate, faults) = speed(flows)?;
    context.say(&format!("{rate:.0} flows ended/s by one client"));
    let killed = kills(flows, most)?;
    let unheard = u64::from(flows).saturating_sub(killed.heard);
    context.say(&format!(
        "{} kills; of {unheard} ends nobody heard that they were committed",
        killed.kills
    ));
    Ok(Outcome::new(rate, 1)
        .variant("twice-or-never", (faults + killed.faults) as f64)
        .variant("kills", killed.kills.into())
        .variant("unheard", unheard as f64))
}
