//! What instances let through together is never more than what is promised, whatever the delay and wherever the packets come.

use asterism_function::{PortNumber, Spending, Verdict};
use asterism_functions::limiter::{Limiter, LimiterConfig};
use proptest::prelude::*;

use crate::cluster::Cluster;
use crate::packets::udp;
use crate::rules::packets;

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
}
