//! `limiter.exact`, `limiter.approximate`: what eight instances let through together beyond a limit.
//!
//! Whole hosts in virtual time, 50 ms apart, are offered packets of one source: unevenly, and after pauses in which its bucket
//! fills, so that all of them spend from a full one at once, which is the worst that there is. Overshoot is what passed in any interval
//! of any length beyond burst + rate × its length: the fill of a bucket of unlimited depth that drains at the rate, less the burst.

use std::sync::Arc;
use std::time::Duration;

use asterism_function::{Reason, Spending, TokenRate};
use asterism_functions::limiter::{Limit, Limiter, LimiterConfig, Unit};
use asterism_io::link::{LinkConditions, Network};
use asterism_io::ring::RingWriter;
use asterism_state::ObjectSettings;

use super::replication_hosts::{Hosts, Start, fed_ports, feed};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::traffic::frames::frame_between;
use crate::traffic::{Endpoint, Protocol, Random, SmallFrame};

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "limiter.exact",
        make: |context| overshoot(context, Spending::Escrow),
    },
    Measure {
        name: "limiter.approximate",
        make: |context| overshoot(context, Spending::Approximate),
    },
];

const INSTANCES: usize = 8;
const DELAY: Duration = Duration::from_millis(50);
/// Virtual time of a pass of all loops.
const PASS: Duration = Duration::from_millis(1);
/// Packets a second that pass, and packets at once.
const RATE: TokenRate = TokenRate {
    tokens_per_second: 8_000,
    burst_tokens: 40,
};
/// Packets that are offered in a pass, from the instance with most to the one with least: from 8 times the rate to the whole rate.
const OFFERED: [u64; INSTANCES] = [64, 32, 16, 12, 10, 9, 8, 8];
/// Passes in which packets are offered, and in which none are.
const LOAD_PASSES: u64 = 400;
const PAUSE_PASSES: u64 = 300;

/// What passed, over intervals of any length.
#[derive(Default)]
struct Level {
    fill: f64,
    most: f64,
    passed: u64,
}

impl Level {
    /// So many packets passed in a pass.
    fn pass(&mut self, packets: u64) {
        let drained = RATE.tokens_per_second as f64 * PASS.as_secs_f64();
        self.fill = (self.fill - drained).max(0.0) + packets as f64;
        self.most = self.most.max(self.fill);
        self.passed += packets;
    }

    fn overshoot(&self) -> f64 {
        (self.most - RATE.burst_tokens as f64).max(0.0)
    }
}

fn frame() -> SmallFrame {
    let end = |address, port| Endpoint { address, port };
    frame_between(
        Protocol::Udp,
        end(0x0a00_0001, 4_000),
        end(0xc633_6402, 9_999),
    )
}

/// Hosts that limit one source, and what is offered to them.
struct Cluster {
    hosts: Hosts<Limiter>,
    network: Network,
    feeds: Vec<RingWriter>,
    forwarded: u64,
}

impl Cluster {
    fn new(spending: Spending, seed: u64) -> Result<Self, Failure> {
        let config = LimiterConfig {
            spending,
            sources: Some(Limit {
                unit: Unit::Packets,
                rate: RATE,
            }),
            keys_max: 1_024,
            ..LimiterConfig::default()
        };
        let (mut starts, mut feeds) = (Vec::new(), Vec::new());
        for _ in 0..INSTANCES {
            let (ports, ring) = fed_ports();
            feeds.push(ring);
            starts.push(Start {
                function: Arc::new(Limiter::new(config.clone())),
                ports,
            });
        }
        let mut network = Network::new(seed);
        network.set_defaults(LinkConditions::with_delay(DELAY));
        let settings = |_: &str| ObjectSettings::REPLICATED;
        let hosts = Hosts::through(&mut network, starts, |_| {}, settings)?;
        Ok(Self {
            hosts,
            network,
            feeds,
            forwarded: 0,
        })
    }

    /// One pass, in which the instances are offered so many packets; how many passed.
    fn pass(&mut self, offered: [u64; INSTANCES]) -> Result<u64, Failure> {
        let frame = frame();
        self.hosts.now = self.hosts.now + PASS;
        for (ring, offered) in self.feeds.iter_mut().zip(offered) {
            for _ in 0..offered {
                feed(ring, &frame)?;
            }
            ring.publish();
        }
        let now = self.hosts.now;
        for host in &mut self.hosts.members {
            let wanted = host.instance.tally().received;
            host.pass(now, usize::MAX);
            // A turn takes a burst: the rest of what came by now is taken in further turns of the same moment.
            let mut before = wanted;
            while host.instance.tally().received != before {
                before = host.instance.tally().received;
                host.pass(now, usize::MAX);
            }
        }
        self.hosts.deliver_through(&mut self.network);
        let forwarded = self
            .hosts
            .members
            .iter()
            .map(|host| host.instance.tally().forwarded);
        let forwarded: u64 = forwarded.sum();
        let passed = forwarded - self.forwarded;
        self.forwarded = forwarded;
        Ok(passed)
    }

    /// That nothing but the limit dropped packets, and that the instances agree in the end.
    fn check(&mut self, offered: u64) -> Result<(), Failure> {
        for _ in 0..1_000 {
            self.pass([0; INSTANCES])?;
        }
        let (mut received, mut limited) = (0, 0);
        for host in &self.hosts.members {
            let tally = host.instance.tally();
            received += tally.received;
            limited += tally.dropped(Reason::RateLimited);
            if tally.dropped_total() != tally.dropped(Reason::RateLimited) || tally.groups_bad > 0 {
                return Err(Failure::Unsound(format!(
                    "packets were dropped for other reasons: {:?}",
                    tally.drops().collect::<Vec<_>>()
                )));
            }
        }
        if received != offered || received != self.forwarded + limited {
            return Err(Failure::Unsound(format!(
                "{offered} packets were offered, {received} taken, {limited} limited, {} passed",
                self.forwarded
            )));
        }
        let digests = self.hosts.members[0].instance.digests();
        let others = &self.hosts.members[1..];
        if others.iter().any(|host| host.instance.digests() != digests) {
            return Err(Failure::Unsound("the instances' states differ".into()));
        }
        Ok(())
    }
}

fn overshoot(context: &Context, spending: Spending) -> Result<Outcome, Failure> {
    let runs = if context.full { 10 } else { 3 };
    let mut random = Random::new(context.seed);
    let denominator = INSTANCES as f64 * DELAY.as_secs_f64() * RATE.tokens_per_second as f64;
    let (mut values, mut tokens, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        let mut cluster = Cluster::new(spending, random.bits())?;
        // A bucket that begins empty is full by then.
        for _ in 0..PAUSE_PASSES {
            cluster.pass([0; INSTANCES])?;
        }
        let (mut level, mut offered, mut loaded) = (Level::default(), 0, 0);
        for round in 0..4 {
            // The first round is the worst: all at once. In the others instances come and go.
            for _ in 0..LOAD_PASSES {
                let mut of_pass = OFFERED;
                if round > 0 {
                    for packets in &mut of_pass {
                        *packets = random.below(2 * *packets + 1);
                    }
                }
                of_pass.rotate_left(round);
                offered += of_pass.iter().sum::<u64>();
                let passed = cluster.pass(of_pass)?;
                level.pass(passed);
                loaded += 1;
            }
            for _ in 0..PAUSE_PASSES {
                let passed = cluster.pass([0; INSTANCES])?;
                level.pass(passed);
            }
        }
        let allowed = RATE.tokens_per_second as f64 * (loaded as f64 * PASS.as_secs_f64());
        shares.push(level.passed as f64 / allowed);
        tokens.push(level.overshoot());
        values.push(match spending {
            Spending::Escrow => level.overshoot(),
            Spending::Approximate => level.overshoot() / denominator,
        });
        cluster.check(offered)?;
    }
    let worst = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    let least_share = shares.iter().copied().fold(f64::INFINITY, f64::min);
    context.say(&format!(
        "at most {:.0} tokens too many; passed over rate × time under load {least_share:.3}",
        worst(&tokens)
    ));
    Ok(Outcome::new(worst(&values), runs)
        .variant("overshoot-tokens", worst(&tokens))
        .variant("members-delay-rate-tokens", denominator)
        .variant("passed-over-rate", least_share)
        .samples("overshoot-tokens", tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overshoot_is_what_any_interval_has_too_much() {
        let mut level = Level::default();
        // 8 packets drain in a pass.
        for packets in [40, 8, 8, 0, 0, 13, 8] {
            level.pass(packets);
        }
        assert_eq!(level.overshoot(), 0.0);
        level.pass(60);
        // 29 were in it before.
        assert_eq!(level.overshoot(), 60.0 + 29.0 - 8.0 - 40.0);
    }
}
