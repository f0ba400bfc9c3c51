//! `remote.functions`: flows of 1,000 packets each, the first one included, through a NAT, a firewall and a balancer, whose flows are in the
//! instance's own memory, in the store, and there with a cache and its filter.
//!
//! The flows of a round are new ones. One half of them begins with the round and ends at a random time in its second half, the other half begins
//! at a random time in its first half and ends with it. A flow's packets come at random times meanwhile, so that those of at least 500 flows are mixed:
//! of one flow no more than some may wait for the store. Rounds of the homes alternate, and the value is the cached rate over the
//! local one in the same round. Rates are by the on-CPU time of the packet loop, which polls: waiting for the store is in it.

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

/// Flows of a round, and packets of each.
const FLOWS: usize = 1_000;
const PACKETS: usize = 1_000;
/// Flows that are open before the first round.
const FIRST: usize = 1_000;
/// Rounds, and each how many-th one is played without a cache too, which takes by far the longest.
const ROUNDS: usize = PAIRS_MIN as usize;
const ROUNDS_FULL: usize = 21;
const UNCACHED_EACH: usize = 4;
/// Sessions of all rounds.
const SESSIONS: u32 = (FIRST + (ROUNDS_FULL + 1) * FLOWS) as u32;

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

/// Packets of a round's flows by the number of the flow, as they come.
fn order(random: &mut Random) -> Vec<u32> {
    let mut packets: Vec<(f64, u32)> = Vec::with_capacity(FLOWS * PACKETS);
    for flow in 0..FLOWS as u32 {
        let (begins, ends) = match flow % 2 {
            0 => (0.0, 0.5 + random.unit() / 2.0),
            _ => (random.unit() / 2.0, 1.0),
        };
        let mut at = || begins + (ends - begins) * random.unit();
        packets.extend((0..PACKETS).map(|_| (at(), flow)));
    }
    packets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    packets.into_iter().map(|(_, flow)| flow).collect()
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
    let mut random = Random::new(1);
    let first: Vec<SmallFrame> = (0..FIRST).map(frame).collect();
    let once: Vec<u32> = (0..FIRST as u32).collect();
    let rounds = if context.full { ROUNDS_FULL } else { ROUNDS };
    let mut rates = Rates::default();
    // The first one is not counted.
    for round in 0..=rounds {
        let from = FIRST + round * FLOWS;
        let frames: Vec<SmallFrame> = (from..from + FLOWS).map(frame).collect();
        let packets = order(&mut random);
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
            // Since its last round it had no turn.
            player.play(&first, &once)?;
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
        "{:.0} packets/s local, {:.0} without a cache, {:.0} cached: {:.3}; {:.3} once flows are known",
        median(&rates.local),
        median(&rates.uncached),
        median(&rates.cached),
        rates.cached_over_local().median,
        over(&rates.cached_known, &rates.local_known).median,
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
            .variant(format!("{name}-remote-over-local"), uncached / local);
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
    fn flows_of_a_round_are_whole_and_mixed() {
        let order = order(&mut Random::new(7));
        let mut of_flow = vec![0; FLOWS];
        order.iter().for_each(|flow| of_flow[*flow as usize] += 1);
        assert!(of_flow.iter().all(|packets| *packets == PACKETS));
        // In the middle packets of most flows come, and seldom two of one in turn.
        let middle = &order[order.len() / 2..][..10 * FLOWS];
        let pairs = middle.windows(2).filter(|two| two[0] == two[1]);
        assert!(pairs.count() < 10 * 5);
        let mut flows = middle.to_vec();
        flows.sort_unstable();
        flows.dedup();
        assert!(flows.len() > FLOWS * 9 / 10);
    }
}
