//! What instances let through together is never more than what is promised, whatever the delay and wherever the packets come.

use asterism_function::{PortNumber, Spending, Verdict};
use asterism_functions::limiter::{Limiter, LimiterConfig, Tenants};
use proptest::prelude::*;

use crate::limiter::packets::{network, udp};
use crate::limiter::rules::{packets, rate};
use crate::monitor::cluster::Cluster;

/// How often instances tell what they spent.
pub(crate) const FLUSH_US: u64 = 1_000;

/// By how much what passed exceeds a burst and a rate over the worst interval of any length.
#[derive(Debug, Default)]
pub(crate) struct Worst {
    level: f64,
    most: f64,
    last_us: u64,
    pub(crate) passed: u64,
}

impl Worst {
    /// A packet passed. What a bucket of unlimited depth that drains at the rate holds is the most that any interval that ends
    /// now has beyond the rate.
    pub(crate) fn pass(&mut self, now_us: u64, rate: u64) {
        let drained = (now_us - self.last_us) as f64 * rate as f64 / 1e6;
        self.level = (self.level - drained).max(0.0) + 1.0;
        self.most = self.most.max(self.level);
        self.last_us = now_us;
        self.passed += 1;
    }

    pub(crate) fn overshoot(&self, burst: u64) -> f64 {
        (self.most - burst as f64).max(0.0)
    }
}

#[derive(Clone, Debug)]
struct Plan {
    instances: u16,
    delay_ms: u64,
    rate: u64,
    burst: u64,
    /// Which instance gets a packet in each millisecond, drawn so often; and pauses in milliseconds.
    turns: Vec<(u64, u16, u8)>,
}

fn plans() -> impl Strategy<Value = Plan> {
    let turns = prop::collection::vec((0u64..60, any::<u16>(), 0u8..40), 20..120);
    (2u16..=8, 0u64..150, 1u64..2_000, 8u64..100, turns).prop_map(
        |(instances, delay_ms, rate, burst, turns)| Plan {
            instances,
            delay_ms,
            rate,
            burst,
            turns,
        },
    )
}

fn run(plan: &Plan, spending: Spending) -> (f64, u64) {
    let config = LimiterConfig {
        spending,
        sources: packets(plan.rate, plan.burst),
        ..LimiterConfig::default()
    };
    let mut cluster = Cluster::new(
        Limiter::new(config),
        plan.instances,
        plan.delay_ms * 1_000,
        17,
    );
    let frame = udp((1, 1), (2, 2), 60);
    let mut worst = Worst::default();
    for &(pause_ms, favourite, count) in &plan.turns {
        for _ in 0..pause_ms {
            cluster.run_to(cluster.now_us + FLUSH_US);
            cluster.flush();
        }
        for number in 0..u16::from(count) {
            // Two of three come to the favourite of the moment.
            let member = match number % 3 {
                0 => favourite.wrapping_add(number) % plan.instances,
                _ => favourite % plan.instances,
            };
            if cluster.packet(member.into(), 0, &frame) == Verdict::Forward(PortNumber(1)) {
                worst.pass(cluster.now_us, plan.rate);
            }
        }
        cluster.run_to(cluster.now_us + FLUSH_US);
        cluster.flush();
    }
    (worst.overshoot(plan.burst), worst.passed)
}

/// Tenants with rates of their own, the first with that of `tenant`: (rate, burst) of each.
#[derive(Clone, Debug)]
struct Sold {
    instances: u16,
    delay_ms: u64,
    rates: Vec<(u64, u64)>,
    /// After a pause in milliseconds packets of a tenant, so many, of which two of three come to an instance.
    turns: Vec<(u64, u16, u8, usize)>,
}

fn sold() -> impl Strategy<Value = Sold> {
    let rates = prop::collection::vec((1u64..2_000, 8u64..100), 2..5);
    let turns = prop::collection::vec((0u64..60, any::<u16>(), 0u8..60, any::<usize>()), 20..150);
    (2u16..=8, 0u64..150, rates, turns).prop_map(|(instances, delay_ms, rates, turns)| Sold {
        instances,
        delay_ms,
        rates,
        turns,
    })
}

/// What passed of each tenant.
fn run_tenants(sold: &Sold, spending: Spending) -> Vec<Worst> {
    let networks: Vec<_> = (0..sold.rates.len() as u16)
        .map(|tenant| vec![network(tenant << 8)])
        .collect();
    let own = sold.rates.iter().enumerate().skip(1);
    let (first_rate, first_burst) = sold.rates[0];
    let config = LimiterConfig {
        spending,
        tenant: packets(first_rate, first_burst),
        tenant_rates: own
            .map(|(tenant, &(second, burst))| (tenant as u16, rate(second, burst)))
            .collect(),
        tenants: Tenants::new(networks.iter().map(Vec::as_slice)).expect("few"),
        ..LimiterConfig::default()
    };
    let delay_us = sold.delay_ms * 1_000;
    let mut cluster = Cluster::new(Limiter::new(config), sold.instances, delay_us, 17);
    let mut passed: Vec<Worst> = sold.rates.iter().map(|_| Worst::default()).collect();
    for &(pause_ms, favourite, count, tenant) in &sold.turns {
        for _ in 0..pause_ms {
            cluster.run_to(cluster.now_us + FLUSH_US);
            cluster.flush();
        }
        let tenant = tenant % sold.rates.len();
        let (there, back) = ((tenant as u16) << 8, 0x900);
        for number in 0..u16::from(count) {
            let member = match number % 3 {
                0 => favourite.wrapping_add(number) % sold.instances,
                _ => favourite % sold.instances,
            };
            // What it sends, and what is sent to it.
            let frame = match number % 2 {
                0 => udp((there + number % 7, 1), (back, 2), 60),
                _ => udp((back, 2), (there + number % 5, 1), 60),
            };
            if cluster.packet(member.into(), 0, &frame) == Verdict::Forward(PortNumber(1)) {
                passed[tenant].pass(cluster.now_us, sold.rates[tenant].0);
            }
        }
        cluster.run_to(cluster.now_us + FLUSH_US);
        cluster.flush();
    }
    passed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exact_limits_are_never_overshot(plan in plans()) {
        let (overshoot, _) = run(&plan, Spending::Escrow);
        prop_assert!(overshoot < 1e-6, "{overshoot} tokens");
    }

    #[test]
    fn approximate_limits_are_overshot_by_the_stated_bound_at_most(plan in plans()) {
        let (overshoot, passed) = run(&plan, Spending::Approximate);
        // A flush, the delay, and the step of the clock in which it is looked at.
        let delay_s = (plan.delay_ms * 1_000 + 2 * FLUSH_US) as f64 / 1e6;
        let others = f64::from(plan.instances - 1);
        let bound = others * (plan.burst as f64 + plan.rate as f64 * delay_s);
        prop_assert!(overshoot <= bound + 1e-6, "{overshoot} of {bound} tokens");
        prop_assert!(passed > 0);
    }

    #[test]
    fn exact_limits_of_tenants_are_never_overshot_at_their_own_rates(sold in sold()) {
        let passed = run_tenants(&sold, Spending::Escrow);
        for (worst, &(_, burst)) in passed.iter().zip(&sold.rates) {
            let overshoot = worst.overshoot(burst);
            prop_assert!(overshoot < 1e-6, "{overshoot} tokens");
        }
    }

    #[test]
    fn approximate_limits_of_tenants_are_overshot_by_the_bound_of_their_own_rates(sold in sold()) {
        let passed = run_tenants(&sold, Spending::Approximate);
        let delay_s = (sold.delay_ms * 1_000 + 2 * FLUSH_US) as f64 / 1e6;
        let others = f64::from(sold.instances - 1);
        for (worst, &(second, burst)) in passed.iter().zip(&sold.rates) {
            let bound = others * (burst as f64 + second as f64 * delay_s);
            let overshoot = worst.overshoot(burst);
            prop_assert!(overshoot <= bound + 1e-6, "{overshoot} of {bound} tokens");
        }
    }
}
