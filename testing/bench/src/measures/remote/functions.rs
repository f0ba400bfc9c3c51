//! `remote.functions`: flows of 1,000 packets each, the first one included, through a NAT, a firewall and a balancer, whose flows are in the
//! instance's own memory, in the store, and there with a cache and its filter.
//!
//! Flows begin one after another, as many in each round as end in it, and each lives as long as a round does: some 1,000 are alive at a time, and
//! their packets come mixed. Rounds of the homes alternate, and the value is the cached rate over the local one in the same round. Rates are by the
//! on-CPU time of the packet loop, which polls: waiting for the store is in it.
//!
//! Beside that, how many flows a second are opened where no packet is of a known one (`…-opened`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use asterism_engine::Instance;
use asterism_function::NetworkFunction;
use asterism_lab::outside;
use asterism_lab::redis::Redis;
use asterism_placement::Time;

use super::wire::Asking;
use super::{
    BALANCER, BURST, Context, FIREWALL, Home, INSIDE, NAT, PATIENCE_NS, TOGETHER, capture,
    instance, nat, to_server, to_service,
};
use crate::contract::{Failure, Outcome};
use crate::cores::{keep_on_core, stay_on_core};
use crate::measures::functions_cost::{balancer, firewall};
use crate::timing::{PAIRS_MIN, Spread, thread_cpu_ns, wall_ns};
use crate::traffic::SmallFrame;
use crate::traffic::random::Random;

/// Flows that begin in a round, and packets of each.
const FLOWS: usize = 1_000;
const PACKETS: usize = 1_000;
/// Flows that are open before the first round.
const FIRST: usize = FLOWS;
/// Rounds at the end in which flows are opened alone.
const ROUNDS_OPENED: usize = 7;
/// Rounds, and each how many-th one is played without a cache too, which takes by far the longest.
const ROUNDS: usize = PAIRS_MIN as usize;
const ROUNDS_FULL: usize = 21;
const UNCACHED_EACH: usize = 4;
/// Sessions of all rounds.
const SESSIONS: u32 = (FIRST + (ROUNDS_FULL + 1 + ROUNDS_OPENED) * FLOWS) as u32;

/// A function in a home.
struct Player<F: NetworkFunction> {
    // It ends when this does.
    _redis: Redis,
    instance: Instance<F>,
    left: Arc<AtomicU64>,
    begun_ns: u64,
}

impl<F: NetworkFunction + Send + Sync> Player<F> {
    fn start(function: F, in_store: &'static [&'static str], home: Home) -> Result<Self, Failure> {
        let redis = Redis::start()
            .ok_or_else(|| Failure::Absent("redis-server is not installed".into()))?;
        stay_on_core(0);
        keep_on_core(redis.process(), 1);
        let left = Arc::new(AtomicU64::new(0));
        let count = left.clone();
        let counts = move |_: &[u8]| {
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        };
        let ports = vec![outside::port(|_| {}), outside::port(counts)];
        Ok(Self {
            instance: instance(function, in_store, home, &redis, ports, Asking::Batched)?,
            _redis: redis,
            left,
            begun_ns: wall_ns(),
        })
    }

    /// Packets of these flows, in this order; how long the packet loop was on its core, in ns.
    fn play(&mut self, frames: &[SmallFrame], order: &[u32]) -> Result<u64, Failure> {
        let (begun, cpu) = (wall_ns(), thread_cpu_ns());
        let before = self.left.load(Ordering::Relaxed);
        let (mut sent, mut back) = (0, 0);
        while back < order.len() {
            let room = TOGETHER as usize - (sent - back);
            let most = room.min(BURST as usize).min(order.len() - sent);
            let burst = order[sent..sent + most].iter();
            let burst = burst.map(|flow| &frames[*flow as usize][..]);
            let now_ns = wall_ns();
            let now = Time::from_micros(1 + (now_ns - self.begun_ns) / 1_000);
            sent += self.instance.inject_burst(now, INSIDE, burst);
            self.instance.turn(now);
            back = (self.left.load(Ordering::Relaxed) - before) as usize;
            if now_ns - begun > PATIENCE_NS {
                let drops: Vec<_> = self.instance.tally().drops().collect();
                return Err(Failure::Unsound(format!(
                    "{back} of {sent} packets came back: {drops:?}"
                )));
            }
        }
        Ok(thread_cpu_ns() - cpu)
    }
}

/// Flows that begin one after another.
struct Flows {
    random: Random,
    /// Packets that come in the next round: when, as a part of it, and the numbers of their flows, the first of that round being number 0.
    next: Vec<(f64, i32)>,
}

impl Flows {
    fn new(seed: u64) -> Self {
        let (random, next) = (Random::new(seed), Vec::new());
        Self { random, next }
    }

    /// The packets of the next round, in the order in which they come, by the numbers of their flows: those of the round before are from 0 on,
    /// those that begin in this one from `FLOWS` on.
    fn round(&mut self) -> Vec<u32> {
        let random = &mut self.random;
        let mut packets = core::mem::take(&mut self.next);
        for flow in 0..FLOWS as i32 {
            let begins = (f64::from(flow) + random.unit()) / FLOWS as f64;
            packets.extend((0..PACKETS).map(|_| (begins + random.unit(), flow)));
        }
        self.next = packets.extract_if(.., |(at, _)| *at >= 1.0).collect();
        for (at, flow) in &mut self.next {
            (*at, *flow) = (*at - 1.0, *flow - FLOWS as i32);
        }
        packets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let number = |(_, flow)| (flow + FLOWS as i32) as u32;
        packets.into_iter().map(number).collect()
    }
}

/// Packets a second of a function in each home, each round; those without a cache of some rounds.
#[derive(Default)]
struct Rates {
    local: Vec<f64>,
    uncached: Vec<f64>,
    cached: Vec<f64>,
    /// The same packets once more, whose flows are known by then.
    local_known: Vec<f64>,
    cached_known: Vec<f64>,
    /// Flows that are opened a second, cached.
    opened: Vec<f64>,
}

impl Rates {
    fn cached_over_local(&self) -> Spread {
        over(&self.cached, &self.local)
    }
}

fn over(cached: &[f64], local: &[f64]) -> Spread {
    let pairs = cached.iter().zip(local);
    Spread::of(
        &pairs
            .map(|(cached, local)| cached / local)
            .collect::<Vec<_>>(),
    )
}

fn homes<F: NetworkFunction + Send + Sync>(
    context: &Context,
    (function, frame): (impl Fn() -> F, fn(usize) -> SmallFrame),
    in_store: &'static [&'static str],
) -> Result<Rates, Failure> {
    let homes = [Home::Here, Home::Store, Home::Cached];
    let players = homes.map(|home| Player::start(function(), in_store, home));
    let [local, uncached, cached] = players;
    let mut players = [local?, uncached?, cached?];
    let mut flows = Flows::new(1);
    let once: Vec<u32> = (0..FLOWS as u32).collect();
    let rounds = if context.full { ROUNDS_FULL } else { ROUNDS };
    let mut rates = Rates::default();
    // The first one is not counted.
    for round in 0..=rounds {
        let frames: Vec<SmallFrame> = (round * FLOWS..(round + 2) * FLOWS).map(frame).collect();
        let packets = flows.round();
        let mut order = [0, 1, 2];
        if round % 2 == 1 {
            order.reverse();
        }
        for which in order {
            let is_uncached = homes[which] == Home::Store;
            if is_uncached && !context.full && (round == 0 || round % UNCACHED_EACH != 1) {
                continue;
            }
            let player = &mut players[which];
            // Since its last round it had no turn, or it was not played.
            player.play(&frames, &once)?;
            let rate = |took: u64| packets.len() as f64 * 1e9 / took as f64;
            let opened = rate(player.play(&frames, &packets)?);
            let (all, known) = match homes[which] {
                Home::Here => (&mut rates.local, Some(&mut rates.local_known)),
                Home::Store => (&mut rates.uncached, None),
                Home::Cached => (&mut rates.cached, Some(&mut rates.cached_known)),
            };
            if round > 0 {
                all.push(opened);
            }
            if let Some(known) = known.filter(|_| round > 0) {
                known.push(rate(player.play(&frames, &packets)?));
            }
        }
    }
    for round in 0..ROUNDS_OPENED {
        let from = FIRST + (rounds + 1 + round) * FLOWS;
        let frames: Vec<SmallFrame> = (from..from + FLOWS).map(frame).collect();
        let took = players[2].play(&frames, &once)?;
        rates.opened.push(FLOWS as f64 * 1e9 / took as f64);
    }
    for (home, player) in homes.iter().zip(&players) {
        let tally = player.instance.tally();
        let at_once = tally.answered_at_once as f64 / tally.received.max(1) as f64;
        if (*home == Home::Cached) != (at_once > 0.5) {
            return Err(Failure::Unsound(format!(
                "{at_once:.2} of the packets were answered at once: homes are not what they are to be"
            )));
        }
        if (*home == Home::Here) != (tally.store_reads == 0) {
            return Err(Failure::Unsound(format!(
                "{} reads of the store",
                tally.store_reads
            )));
        }
    }
    let median = |rates: &[f64]| Spread::of(rates).median;
    context.say(&format!(
        "{:.0} packets/s local, {:.0} without a cache, {:.0} cached: {:.3}; {:.3} once flows are known; {:.0} opened/s",
        median(&rates.local),
        median(&rates.uncached),
        median(&rates.cached),
        rates.cached_over_local().median,
        over(&rates.cached_known, &rates.local_known).median,
        median(&rates.opened),
    ));
    Ok(rates)
}

pub(super) fn measure(context: &Context) -> Result<Outcome, Failure> {
    let functions = [
        (
            "nat",
            homes(context, (|| nat(SESSIONS, 1), to_server), NAT)?,
        ),
        ("firewall", homes(context, (firewall, to_server), FIREWALL)?),
        (
            "balancer",
            homes(context, (balancer, to_service), BALANCER)?,
        ),
    ];
    let spreads = functions.each_ref();
    let spreads = spreads.map(|(_, rates)| rates.cached_over_local());
    let least = |one: Spread, other: Spread| match other.median < one.median {
        true => other,
        false => one,
    };
    let mut outcome = Outcome::of(&spreads.into_iter().fold(spreads[0], least));
    for ((name, rates), spread) in functions.iter().zip(spreads) {
        let uncached = Spread::of(&rates.uncached).median;
        let local = Spread::of(&rates.local).median;
        outcome = outcome
            .variant(format!("{name}-local"), local)
            .variant(format!("{name}-remote"), uncached)
            .variant(format!("{name}-cached"), Spread::of(&rates.cached).median)
            .variant(format!("{name}-cached-over-local"), spread.median)
            .variant(
                format!("{name}-known-cached-over-local"),
                over(&rates.cached_known, &rates.local_known).median,
            )
            .variant(format!("{name}-remote-over-local"), uncached / local)
            .variant(format!("{name}-opened"), Spread::of(&rates.opened).median);
    }
    for played in capture::play(context)? {
        let name = played.name;
        outcome = outcome
            .variant(format!("captures-{name}-mbps"), played.mbps)
            .variant(format!("captures-{name}"), played.packets_per_second);
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_whole_and_mixed() {
        let mut flows = Flows::new(7);
        let rounds: Vec<Vec<u32>> = (0..4).map(|_| flows.round()).collect();
        // Those that begin in the second round, and end in the third one.
        let mut of_flow = vec![0; FLOWS];
        let begun = rounds[1].iter().filter(|flow| **flow >= FLOWS as u32);
        begun.for_each(|flow| of_flow[*flow as usize - FLOWS] += 1);
        let ended = rounds[2].iter().filter(|flow| **flow < FLOWS as u32);
        ended.for_each(|flow| of_flow[*flow as usize] += 1);
        assert!(of_flow.iter().all(|packets| *packets == PACKETS));
        // From then on a round is about as long as the next one.
        assert!(rounds[2].len().abs_diff(FLOWS * PACKETS) < FLOWS * PACKETS / 50);
        // Packets of most flows that are alive come, and seldom two of one in turn.
        let middle = &rounds[2][rounds[2].len() / 2..][..10 * FLOWS];
        let pairs = middle.windows(2).filter(|two| two[0] == two[1]);
        assert!(pairs.count() < 10 * 5);
        let mut flows = middle.to_vec();
        flows.sort_unstable();
        flows.dedup();
        assert!(flows.len() > FLOWS * 9 / 10);
    }
}
