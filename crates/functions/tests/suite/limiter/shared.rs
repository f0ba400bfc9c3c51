//! Three instances and more that limit together: uneven load, asymmetric ways, and a death.

use asterism_function::{PortNumber, Spending, Verdict};
use asterism_functions::limiter::{Limiter, LimiterConfig, Tenants};

use crate::limiter::bound::{FLUSH_US, Worst};
use crate::limiter::packets::{network, udp};
use crate::limiter::rules::packets;
use crate::monitor::cluster::Cluster;

const RATE: u64 = 1_000;
const BURST: u64 = 60;
const DELAY_US: u64 = 20_000;

/// Offers each source packets by weights of instances, for so many seconds; what passed of each source.
///
/// In each millisecond an instance is offered its weight in packets of every source; `dies` says who dies at half-time.
fn offer(
    spending: Spending,
    weights: &[&[u64]],
    seconds: u64,
    dies: Option<usize>,
) -> Vec<[Worst; 2]> {
    let config = LimiterConfig {
        spending,
        sources: packets(RATE, BURST),
        ..LimiterConfig::default()
    };
    let instances = weights[0].len();
    let mut cluster = Cluster::new(Limiter::new(config), instances as u16, DELAY_US, 5);
    let frames: Vec<_> = (0..weights.len() as u16)
        .map(|source| udp((source, 1), (100, 2), 60))
        .collect();
    let mut passed: Vec<[Worst; 2]> = frames.iter().map(|_| Default::default()).collect();
    for step in 0..seconds * 1_000 {
        let half = usize::from(step >= seconds * 500);
        if half == 1
            && let Some(dies) = dies
        {
            cluster.kill(dies);
        }
        for (source, frame) in frames.iter().enumerate() {
            for (member, weight) in weights[source].iter().enumerate() {
                // What would have come to the dead one comes to the next.
                let member = match cluster.is_alive(member) {
                    true => member,
                    false => (member + 1) % instances,
                };
                for _ in 0..*weight {
                    if cluster.packet(member, 0, frame) == Verdict::Forward(PortNumber(1)) {
                        passed[source][half].pass(cluster.now_us, RATE);
                    }
                }
            }
        }
        cluster.flush();
        cluster.run_to(cluster.now_us + FLUSH_US);
    }
    cluster.agree();
    passed
}

#[test]
fn an_approximate_limit_is_the_same_for_all_however_uneven_their_load() {
    // One source comes to all instances, one to one alone, one mostly to another.
    let weights: [&[u64]; 3] = [&[2, 2, 2], &[6, 0, 0], &[1, 9, 0]];
    let passed = offer(Spending::Approximate, &weights, 10, None);
    for (source, halves) in passed.iter().enumerate() {
        let total: u64 = halves.iter().map(|half| half.passed).sum();
        let fair = (10 * RATE + BURST) as f64;
        let share = total as f64 / fair;
        assert!(
            (0.97..=1.03).contains(&share),
            "source {source} got {share} of the rate"
        );
    }
}

#[test]
fn an_exact_limit_is_kept_and_costs_who_comes_to_few_instances() {
    let weights: [&[u64]; 2] = [&[2, 2, 2], &[6, 0, 0]];
    let passed = offer(Spending::Escrow, &weights, 10, None);
    let share = |source: usize| {
        let total: u64 = passed[source].iter().map(|half| half.passed).sum();
        total as f64 / (10 * RATE) as f64
    };
    assert!((0.97..=1.0).contains(&share(0)), "{}", share(0));
    assert!((0.32..=0.34).contains(&share(1)), "a third: {}", share(1));
    for halves in &passed {
        assert!(halves.iter().all(|half| half.overshoot(BURST) < 1e-6));
    }
}

#[test]
fn after_a_death_the_survivors_give_the_whole_rate_or_their_exact_shares() {
    let weights: [&[u64]; 1] = [&[3, 3, 3]];
    let second_half = |spending| offer(spending, &weights, 10, Some(2))[0][1].passed as f64;
    let approximate = second_half(Spending::Approximate) / (5 * RATE) as f64;
    assert!((0.95..=1.05).contains(&approximate), "{approximate}");
    let exact = second_half(Spending::Escrow) / (5 * RATE) as f64;
    assert!(
        (0.65..=0.68).contains(&exact),
        "two of three shares: {exact}"
    );
}

#[test]
fn both_ways_of_a_conversation_spend_from_one_bucket_wherever_they_pass() {
    let networks = [vec![network(0)]];
    let config = LimiterConfig {
        tenant: packets(RATE, BURST),
        tenants: Tenants::new(networks.iter().map(Vec::as_slice)).unwrap(),
        ..LimiterConfig::default()
    };
    let mut cluster = Cluster::new(Limiter::new(config), 3, DELAY_US, 5);
    let (there, back) = (udp((1, 1), (0x900, 2), 60), udp((0x900, 2), (1, 1), 60));
    let mut passed = 0;
    for step in 0..5_000 {
        // Questions through the first instance, answers through the second, at three times the rate together.
        for (member, port, frame) in [(0, 0, &there), (1, 1, &back), (1, 1, &back)] {
            let verdict = cluster.packet(member, port, frame);
            passed += u64::from(verdict == Verdict::Forward(PortNumber(port ^ 1)));
        }
        if step % 20 == 19 {
            cluster.sweep();
        }
        cluster.flush();
        cluster.run_to(cluster.now_us + FLUSH_US);
    }
    cluster.agree();
    let share = passed as f64 / (5 * RATE + BURST) as f64;
    assert!((0.97..=1.03).contains(&share), "{share}");
    assert_eq!(cluster.state(2).tenants.tally().written_off, 0);
}
