//! The limiter: what passes of each source and destination is held against its bucket, as one box would have it, and against what
//! may pass too much where all instances spend from the whole bucket. In every other seed each source is a tenant, too, at a rate of
//! its own.

use core::array::from_fn;
use core::net::Ipv4Addr;
use std::collections::BTreeMap;
use std::time::Duration;

use asterism_function::build::Segment;
use asterism_function::{Endpoint, IpPrefix, Packet, Protocol, Spending, TcpFlags, TokenRate};
use asterism_functions::limiter::{From, Limit, Limiter, LimiterConfig, Tenants, Unit};
use asterism_placement::Time;

use super::drive::World;
use super::hosts::{Arrival, Hosts, Left, PORTS};
use super::plan::Plan;
use super::talks::frame;
use crate::report::Failure;
use crate::scenario::Draws;

/// Sources and destinations.
const ENDS: usize = 3;
/// Of every service: a bucket that is never half empty, so that what is spent from it may wait before others are reported.
const CALM: TokenRate = TokenRate {
    tokens_per_second: 1_000,
    burst_tokens: 1_000_000,
};
/// After a death, and after links are good, load goes on for so long.
const IN_CALM: Duration = Duration::from_millis(150);

/// What passed of one key: the most that was in any time beyond the rate.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    at: Option<Time>,
    /// Packets beyond the rate, by now.
    excess: f64,
    most: f64,
    count: u64,
}

impl Passed {
    fn pass(&mut self, now: Time, rate: f64) {
        if let Some(at) = self.at {
            self.excess = (self.excess - now.since(at).as_secs_f64() * rate).max(0.0);
        }
        self.at = Some(now);
        self.excess += 1.0;
        self.most = self.most.max(self.excess);
        self.count += 1;
    }
}

/// Packets between few ends, more than may pass.
pub(crate) struct Limited {
    draws: Draws,
    spending: Spending,
    /// Of sources, destinations and, if there are any, tenants.
    rates: [Option<[TokenRate; ENDS]>; 3],
    instances: f64,
    /// How many incarnations of a host end.
    deaths: f64,
    lanes: f64,
    step: Duration,
    /// Of each source, then of each destination, then of each tenant.
    passed: [[Passed; ENDS]; 3],
    /// How often each way comes in a step, in hundredths.
    weights: [[u64; ENDS]; ENDS],
    until: Option<Time>,
    now: Time,
    offered: u64,
}

/// The first sells most; it has what tenants have that say nothing.
fn sold(plan: &Plan, instances: u64) -> Option<[TokenRate; ENDS]> {
    let mut draws = Draws::new(plan.seed, 48);
    draws.percent(50).then(|| {
        from_fn(|number| match number {
            0 => TokenRate {
                tokens_per_second: draws.within(600, 900),
                burst_tokens: draws.within(40, 60),
            },
            _ => TokenRate {
                tokens_per_second: draws.within(100, 180),
                burst_tokens: draws.within(instances, instances + 4),
            },
        })
    })
}

fn address(side: usize, number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, side as u8, 0, number as u8 + 1)
}

impl Limited {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut draws = Draws::new(plan.seed, 43);
        let spending = draws.one_of(&[Spending::Escrow, Spending::Approximate]);
        let instances = plan.hosts as u64 * u64::from(plan.lanes);
        let rate = |draws: &mut Draws| TokenRate {
            tokens_per_second: draws.within(200, 600),
            burst_tokens: draws.within(instances, 30),
        };
        let [sources, destinations] = [rate(&mut draws), rate(&mut draws)];
        let rates = [
            Some([sources; ENDS]),
            Some([destinations; ENDS]),
            sold(plan, instances),
        ];
        let weights = [(); ENDS].map(|()| [(); ENDS].map(|()| draws.within(20, 120)));
        Self {
            spending,
            rates,
            instances: instances as f64,
            deaths: f64::from(u8::from(plan.death.is_some())),
            lanes: plan.lanes.into(),
            step: plan.step,
            passed: [[Passed::default(); ENDS]; 3],
            weights,
            until: None,
            now: Time::ZERO,
            offered: 0,
            draws,
        }
    }

    /// What may pass of a key in any time beyond its rate.
    fn bound(&self, rate: TokenRate, lag: Duration) -> f64 {
        let burst = rate.burst_tokens as f64;
        match self.spending {
            Spending::Escrow => burst,
            Spending::Approximate => {
                // A new incarnation begins with full buckets and what it is reported: as one instance more.
                let others = self.instances - 1.0 + self.deaths * self.lanes;
                let unknown = burst + rate.tokens_per_second as f64 * lag.as_secs_f64();
                burst + others * unknown
            }
        }
    }
}

impl World for Limited {
    type Function = Limiter;

    fn function(&mut self) -> Limiter {
        let limit = |rate| {
            Some(Limit {
                unit: Unit::Packets,
                rate,
            })
        };
        let [sources, destinations, tenants] = self.rates.map(|rates| limit(rates?[0]));
        let own = self.rates[2].into_iter().flat_map(|rates| (0..).zip(rates));
        let networks: [_; ENDS] =
            from_fn(|number| [IpPrefix::new(address(1, number).into(), 32).expect("an address")]);
        let networks = networks.iter().map(<[IpPrefix; 1]>::as_slice);
        Limiter::new(LimiterConfig {
            from: From::Inside,
            spending: self.spending,
            sources,
            destinations,
            services: limit(CALM),
            tenant: tenants,
            tenant_rates: own.skip(1).collect(),
            tenants: Tenants::new(networks).expect("few"),
            keys_max: 1 << 6,
        })
    }

    fn due(&mut self, now: Time, out: &mut Vec<Arrival>) {
        self.now = now;
        if self.until.is_some_and(|until| now >= until) {
            return;
        }
        for source in 0..ENDS {
            for destination in 0..ENDS {
                let weight = self.weights[source][destination];
                for _ in 0..weight / 100 + u64::from(self.draws.percent(weight % 100)) {
                    let end = |address, port| Endpoint::new(address, port, Protocol::UDP);
                    let from = end(address(1, source), self.draws.within(1_000, 1_003) as u16);
                    let to = end(address(2, destination), 53);
                    let segment = Segment::with_flags(TcpFlags::default());
                    self.offered += 1;
                    out.push(Arrival {
                        port: PORTS[0],
                        path: from.to_bits() ^ to.to_bits() << 8,
                        host: None,
                        frame: frame((from, to), &segment, &[0; 8]),
                    });
                }
            }
        }
    }

    fn leaves(&mut self, mut left: Left, _: &Hosts<Limiter>) -> Result<(), Failure> {
        let packet = Packet::parse(&mut left.frame).ok();
        let Some(flow) = packet.as_ref().and_then(Packet::flow4) else {
            return Ok(());
        };
        let ends = [flow.source, flow.destination, flow.source];
        for (side, end) in ends.into_iter().enumerate() {
            let number = usize::from(end.octets()[3]) - 1;
            if let Some(rates) = self.rates[side] {
                let rate = rates[number].tokens_per_second as f64;
                // A limiter holds no packets back: what left came in now.
                self.passed[side][number].pass(self.now, rate);
            }
        }
        Ok(())
    }

    fn died(&mut self, _: usize, _: Time, _: &Hosts<Limiter>) {}

    fn calms(&mut self, now: Time) {
        self.until = Some(now + IN_CALM);
    }

    fn unfinished(&self) -> Option<String> {
        let until = self.until?;
        (self.now < until).then(|| format!("there is load until {until}"))
    }

    fn roll_call(&mut self, _: usize, _: usize, _: Time, _: &mut Vec<Arrival>) {}

    fn called(&mut self, _: usize) -> Result<(), Failure> {
        Ok(())
    }

    fn judge(&mut self, hosts: &Hosts<Limiter>) -> Result<(), Failure> {
        // From spending to being reported, from there to being known, and the step within which both are seen.
        let lag = hosts.lag_most + hosts.reported_within() + self.step;
        for (side, rates) in self.rates.into_iter().enumerate() {
            let judged = rates.into_iter().flatten().zip(&self.passed[side]);
            for (number, (rate, passed)) in judged.enumerate() {
                let of = match side {
                    2 => format!("tenant {number}"),
                    _ => address(side + 1, number).to_string(),
                };
                let bound = self.bound(rate, lag);
                if passed.most > bound + 1e-6 {
                    return Err(Failure::new(
                        "no more passes than may",
                        format!(
                            "{:?}: {:.3} packets of {of} beyond {} a second, which may be {bound:.3} after {lag:?}",
                            self.spending, passed.most, rate.tokens_per_second
                        ),
                    ));
                }
                if passed.count == 0 {
                    return Err(Failure::new(
                        "what may pass does",
                        format!("nothing passed of {of}"),
                    ));
                }
            }
        }
        Ok(())
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let passed = self.passed[0].iter().map(|passed| passed.count).sum();
        let of_tenants = self.passed[2].iter().map(|passed| passed.count).sum();
        BTreeMap::from([
            ("offered to limits", self.offered),
            ("passed limits", passed),
            ("passed limits of tenants", of_tenants),
        ])
    }
}
