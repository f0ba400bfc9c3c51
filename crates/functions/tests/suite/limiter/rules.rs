//! What is limited, and what is not.

use asterism_function::testkit::Testkit;
use asterism_function::{NetworkFunction, PortNumber, Reason, Spending, TokenRate, Verdict};
use asterism_functions::limiter::{From, Limit, Limiter, LimiterConfig, Tenants, Unit};

use crate::limiter::packets::{echo, network, udp};

const PASSED: Verdict = Verdict::Forward(PortNumber(1));
const LIMITED: Verdict = Verdict::Drop(Reason::RateLimited);

pub(crate) fn rate(tokens_per_second: u64, burst_tokens: u64) -> TokenRate {
    TokenRate {
        tokens_per_second,
        burst_tokens,
    }
}

/// So many packets a second, and at once.
pub(crate) fn packets(tokens_per_second: u64, burst_tokens: u64) -> Option<Limit> {
    Some(Limit {
        unit: Unit::Packets,
        rate: rate(tokens_per_second, burst_tokens),
    })
}

fn passed(kit: &mut Testkit<Limiter>, frame: &[u8], times: usize) -> usize {
    let verdicts = (0..times).map(|_| kit.packet(PortNumber(0), frame).verdict);
    verdicts.filter(|verdict| *verdict == PASSED).count()
}

/// An identifier is no port: anyone who asks with many is one who asks.
#[test]
fn echoes_with_different_identifiers_are_to_one_service() {
    let mut kit = Testkit::new(Limiter::new(LimiterConfig {
        services: packets(10, 20),
        ..LimiterConfig::default()
    }));
    let through = |identifier| passed(&mut kit, &echo(1, 9, identifier), 1);
    assert_eq!((0..50).map(through).sum::<usize>(), 20);
    assert_eq!(kit.state().services.in_use(), 1);
    assert_eq!(passed(&mut kit, &echo(1, 8, 0), 50), 20, "another host");
    assert_eq!(passed(&mut kit, &udp((1, 1), (9, 9), 60), 50), 20);
}

#[test]
fn each_source_destination_and_service_has_its_own_bucket() {
    let limit = packets(10, 20);
    let of = |config| Testkit::new(Limiter::new(config));
    let mut sources = of(LimiterConfig {
        sources: limit,
        ..LimiterConfig::default()
    });
    assert_eq!(passed(&mut sources, &udp((1, 1), (9, 9), 60), 50), 20);
    assert_eq!(
        passed(&mut sources, &udp((1, 2), (8, 8), 60), 50),
        0,
        "the same source"
    );
    assert_eq!(
        passed(&mut sources, &udp((2, 1), (9, 9), 60), 50),
        20,
        "another one"
    );
    sources.advance(1);
    assert_eq!(
        passed(&mut sources, &udp((1, 1), (9, 9), 60), 50),
        10,
        "a second later"
    );
    let mut destinations = of(LimiterConfig {
        destinations: limit,
        ..LimiterConfig::default()
    });
    assert_eq!(passed(&mut destinations, &udp((1, 1), (9, 9), 60), 50), 20);
    assert_eq!(passed(&mut destinations, &udp((2, 1), (9, 8), 60), 50), 0);
    assert_eq!(passed(&mut destinations, &udp((1, 1), (8, 9), 60), 50), 20);
    let mut services = of(LimiterConfig {
        services: limit,
        ..LimiterConfig::default()
    });
    assert_eq!(passed(&mut services, &udp((1, 1), (9, 9), 60), 50), 20);
    assert_eq!(passed(&mut services, &udp((2, 1), (9, 9), 60), 50), 0);
    assert_eq!(
        passed(&mut services, &udp((1, 1), (9, 8), 60), 50),
        20,
        "another port"
    );
}

#[test]
fn tenants_share_what_their_networks_have() {
    let tenants = [
        vec![network(0x0100), network(0x0200)],
        vec![network(0x0300)],
    ];
    let mut kit = Testkit::new(Limiter::new(LimiterConfig {
        tenant: packets(10, 20),
        tenants: Tenants::new(tenants.iter().map(Vec::as_slice)).unwrap(),
        ..LimiterConfig::default()
    }));
    assert_eq!(passed(&mut kit, &udp((0x0101, 1), (0x0900, 9), 60), 15), 15);
    assert_eq!(passed(&mut kit, &udp((0x0202, 1), (0x0900, 9), 60), 15), 5);
    assert_eq!(
        passed(&mut kit, &udp((0x0900, 9), (0x0102, 1), 60), 15),
        0,
        "answers too"
    );
    assert_eq!(passed(&mut kit, &udp((0x0301, 1), (0x0900, 9), 60), 25), 20);
    assert_eq!(
        passed(&mut kit, &udp((0x0900, 1), (0x0901, 9), 60), 99),
        99,
        "nobody's"
    );
}

#[test]
fn tenants_have_rates_of_their_own_or_that_of_all_the_others() {
    let tenants = [
        vec![network(0x0100)],
        vec![network(0x0200)],
        vec![network(0x0300)],
    ];
    let config = |tenant_rates| LimiterConfig {
        tenant: packets(10, 20),
        tenant_rates,
        tenants: Tenants::new(tenants.iter().map(Vec::as_slice)).unwrap(),
        ..LimiterConfig::default()
    };
    let own = vec![(2, rate(1, 5)), (0, rate(100, 60)), (7, rate(1, 1))];
    let mut kit = Testkit::new(Limiter::new(config(own.clone())));
    let of = |kit: &mut Testkit<Limiter>| {
        [0x0101, 0x0201, 0x0301].map(|source| passed(kit, &udp((source, 1), (0x0900, 9), 60), 90))
    };
    assert_eq!(of(&mut kit), [60, 20, 5]);
    assert_eq!(of(&mut kit), [0; 3]);
    kit.advance(1);
    assert_eq!(of(&mut kit), [60, 10, 1], "a second later; a burst at most");
    // Hosts of other rates refuse each other, and it is the rates that count, not how they are said.
    let schema = |own| Limiter::new(config(own)).schema();
    let mut again = own.clone();
    again.reverse();
    again.push((1, rate(10, 20)));
    assert_eq!(schema(own.clone()), schema(again));
    let fewer = own[..2].to_vec();
    let other = vec![own[0], (0, rate(100, 61)), own[2]];
    let swapped = vec![(0, own[0].1), (2, own[1].1), own[2]];
    for apart in [Vec::new(), fewer, other, swapped] {
        assert_ne!(schema(own.clone()), schema(apart));
    }
    // Without a limit for tenants they limit nobody.
    let mut kit = Testkit::new(Limiter::new(LimiterConfig {
        tenant: None,
        ..config(own)
    }));
    assert_eq!(of(&mut kit), [90; 3]);
}

#[test]
fn bytes_are_those_of_ip_packets_and_what_is_refused_costs_nothing() {
    let bytes = |burst_tokens| {
        Some(Limit {
            unit: Unit::Bytes,
            rate: rate(1_000, burst_tokens),
        })
    };
    let mut kit = Testkit::new(Limiter::new(LimiterConfig {
        sources: bytes(1_000),
        destinations: bytes(450),
        ..LimiterConfig::default()
    }));
    assert_eq!(
        passed(&mut kit, &udp((1, 1), (2, 2), 100), 9),
        4,
        "450 ÷ 100"
    );
    // Five were refused for their destination and took nothing from their source.
    assert_eq!(passed(&mut kit, &udp((1, 1), (3, 2), 100), 9), 4);
    assert_eq!(passed(&mut kit, &udp((1, 1), (4, 2), 100), 9), 2);
    assert_eq!(
        kit.packet(PortNumber(0), &udp((5, 1), (6, 2), 451)).verdict,
        LIMITED
    );
}

#[test]
fn only_the_chosen_side_is_limited_and_what_is_not_ip_never() {
    let mut kit = Testkit::new(Limiter::new(LimiterConfig {
        from: From::Outside,
        sources: packets(1, 1),
        spending: Spending::Escrow,
        ..LimiterConfig::default()
    }));
    let frame = udp((1, 1), (2, 2), 60);
    assert_eq!(passed(&mut kit, &frame, 9), 9);
    let verdicts: Vec<_> = (0..2)
        .map(|_| kit.packet(PortNumber(1), &frame).verdict)
        .collect();
    assert_eq!(verdicts, [Verdict::Forward(PortNumber(0)), LIMITED]);
    let mut other = vec![0; 60];
    other[12..14].copy_from_slice(&[0x88, 0xcc]);
    for _ in 0..9 {
        assert_eq!(
            kit.packet(PortNumber(1), &other).verdict,
            Verdict::Forward(PortNumber(0))
        );
    }
}
