//! Single cases: bad input, bounds, and the exported forms.

use std::collections::BTreeMap;

use asterism_elasticity::usage::{
    ACCOUNTS_MAX, Counts, Meter, Report, TENANTS_MAX, UsageError, json_lines, prometheus,
};

const NOW_MS: u64 = 1_800_000_000_000;

fn members(all: &[(&str, u64)]) -> BTreeMap<String, u64> {
    all.iter()
        .map(|(host, incarnation)| ((*host).to_owned(), *incarnation))
        .collect()
}

fn report(host: &str, incarnation: u64, tenant: &str, packets: u64) -> Report {
    let counts = Counts {
        packets,
        bytes: packets.saturating_mul(100),
        flows: packets / 10,
        instance_ms: 1_234,
    };
    Report {
        host: host.to_owned(),
        incarnation,
        tenants: [(tenant.to_owned(), counts)].into(),
    }
}

#[test]
fn what_cannot_be_right_is_refused_and_counted() {
    let mut meter = Meter::default();
    meter.members(1, NOW_MS, &members(&[("a", 1)])).unwrap();
    for (refused, part) in [
        (report("b", 1, "blue", 1), "no account"),
        (report("a", 2, "blue", 1), "incarnation 2 of a"),
        (report("a", 1, "", 1), "1 to 64 bytes"),
        (report("a", 1, &"x".repeat(65), 1), "1 to 64 bytes"),
        (
            report("a", 1, "blue", 0_u64.wrapping_sub(9)),
            "packets of tenant blue at a",
        ),
    ] {
        let error = meter.report(NOW_MS, &refused).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let many = (0..=TENANTS_MAX).map(|tenant| (tenant.to_string(), Counts::default()));
    let many = Report {
        tenants: many.collect(),
        ..report("a", 1, "blue", 1)
    };
    let refused = meter.report(NOW_MS, &many);
    assert_eq!(
        refused,
        Err(UsageError::TooManyTenants {
            tenants: TENANTS_MAX + 1
        })
    );
    assert_eq!((meter.totals().len(), meter.state().refused), (0, 6));
    let old = meter.members(1, NOW_MS, &members(&[]));
    assert_eq!(
        old,
        Err(UsageError::OldMembers {
            offered: 1,
            known: 1
        })
    );
}

#[test]
fn accounts_are_bounded_and_settling_loses_nothing() {
    let mut meter = Meter::default();
    for epoch in 1..=3 * ACCOUNTS_MAX as u64 {
        meter
            .members(epoch, NOW_MS + epoch, &members(&[("a", epoch)]))
            .unwrap();
        meter
            .report(NOW_MS + epoch, &report("a", epoch, "blue", 10))
            .unwrap();
    }
    let accounts: usize = meter.state().accounts.values().map(BTreeMap::len).sum();
    assert_eq!(accounts, ACCOUNTS_MAX);
    assert_eq!(meter.totals()["blue"].packets, 30 * ACCOUNTS_MAX as u128);
}

#[test]
fn totals_are_lines_of_json_and_counters() {
    let mut meter = Meter::default();
    meter
        .members(1, NOW_MS, &members(&[("a", 1), ("b", 2)]))
        .unwrap();
    meter
        .report(NOW_MS, &report("a", 1, "blue", 1_000))
        .unwrap();
    meter.report(NOW_MS, &report("b", 2, "blue", 500)).unwrap();
    meter.report(NOW_MS, &report("b", 2, "a\"b\\", 5)).unwrap();
    let lines = json_lines(&meter.totals(), "edge", NOW_MS);
    let (first, second) = lines.trim_end().split_once('\n').unwrap();
    assert_eq!(
        second,
        r#"{"cluster":"edge","tenant":"blue","at_ms":1800000000000,"packets":1500,"bytes":150000,"flows":150,"instance_seconds":2.468}"#
    );
    let first: serde_json::Value = serde_json::from_str(first).unwrap();
    assert_eq!(first["tenant"], "a\"b\\");
    let text = prometheus(&meter.totals(), "edge");
    for line in [
        "# TYPE asterism_tenant_packets_total counter",
        "asterism_tenant_packets_total{cluster=\"edge\",tenant=\"blue\"} 1500",
        "asterism_tenant_instance_seconds_total{cluster=\"edge\",tenant=\"blue\"} 2.468",
        "asterism_tenant_flows_total{cluster=\"edge\",tenant=\"a\\\"b\\\\\"} 0",
    ] {
        assert!(
            text.lines().any(|one| one == line),
            "{line} is not in:\n{text}"
        );
    }
}
