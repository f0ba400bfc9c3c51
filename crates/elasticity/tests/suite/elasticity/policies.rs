//! Policies as operators write them: read, joined, and refused with a sentence that names both sides.

use asterism_elasticity::{Metric, Policies, PolicyError, Span, Thresholds};

const WHOLE: &str = r#"
[function.nat]
outside = ["203.0.113.1"]

[policy.edge]
hosts = { min = 2, max = 8, step = 2 }
packets_per_second = { out = 800_000, in = 400_000 }
cpu_permille = { out = 750, in = 350 }
flows = { out = 60_000, in = 40_000 }
latency_99_us = { out = 2_000, in = 500 }
lag_us = { out = 50_000, in = 10_000 }
out_for = "20s"
in_for = "10m"
cool_down = "2m"
hysteresis_permille = 250
drain = "45s"
launch_within = "30s"
stale_after = "5s"
back_off = { first = "5s", most = "5m" }
hot_spot = { factor_permille = 1_200, for = "20s" }
consolidation = { head_room_permille = 300, for = "30m" }
utc_offset = "+01:00"

[policy.mornings]
cluster = "edge"
hosts = { max = 6 }
schedule = [{ days = ["mon", "tue"], from = "07:30", to = "11:00", min = 4 }]
"#;

#[test]
fn a_whole_policy_is_read_and_joined_with_the_schedule_of_another() {
    let policies = Policies::read(WHOLE).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        policies
            .clusters()
            .map(|(name, _)| name)
            .collect::<Vec<_>>(),
        ["edge"]
    );
    let rules = policies.rules("edge").unwrap();
    assert_eq!((rules.min, rules.max, rules.step), (2, 6, 2));
    let thresholds = Thresholds {
        out: 800_000,
        within: 400_000,
    };
    assert_eq!(rules.thresholds[&Metric::PacketsPerSecond], thresholds);
    assert_eq!(rules.thresholds.len(), Metric::ALL.len());
    assert_eq!(rules.ceiling(thresholds), 600_000);
    assert_eq!(rules.cool_down, Span::minutes(2));
    assert_eq!(rules.schedule.len(), 1);
    let hot_spot = rules.hot_spot.unwrap();
    assert_eq!(
        (hot_spot.buckets_max, hot_spot.cool_down),
        (64, Span::seconds(30))
    );
    assert_eq!(
        [1, 2, 3, 99].map(|failures| rules.pause(failures).0 / 1_000),
        [5, 10, 20, 300]
    );
}

#[test]
fn what_is_not_written_has_its_default() {
    let text = "[policy.a]\nhosts = { min = 1, max = 2 }";
    let rules = Policies::read(text).unwrap().rules("a").unwrap().clone();
    assert_eq!((rules.step, rules.hysteresis_permille), (1, 200));
    assert_eq!(
        [rules.out_for, rules.in_for].map(|span| span.to_string()),
        ["30s", "5m"]
    );
    assert!(rules.thresholds.is_empty() && rules.hot_spot.is_none() && rules.schedule.is_empty());
    assert!(Policies::read("").unwrap().clusters().next().is_none());
    assert!(Policies::read("").unwrap().rules("a").is_none());
}

/// The sentences that refuse a policy.
fn refused(text: &str) -> String {
    match Policies::read(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn contradictions_are_refused_by_sentences_that_name_both_sides() {
    let base = "[policy.a]\nhosts = { min = 2, max = 8 }\n";
    for (more, parts) in [
        (
            "flows = { out = 100, in = 100 }",
            &[
                "\"a\"",
                "flows.in = 100",
                "flows.out = 100",
                "in = 80 or less",
            ][..],
        ),
        (
            "flows = { out = 100, in = 90 }",
            &[
                "flows.in = 90",
                "hysteresis_permille = 200",
                "in = 80 or less",
            ],
        ),
        (
            "flows = { out = 0, in = 0 }",
            &["flows = { out = 0 }", "must be 1 to"],
        ),
        (
            "cpu_permille = { out = 5_000, in = 1 }",
            &["cpu_permille", "1100"],
        ),
        (
            "schedule = [{ days = [\"mon\"], from = \"08:00\", to = \"09:00\", min = 9 }]",
            &["mon 08:00-09:00", "9 hosts", "hosts.max = 8"],
        ),
        (
            "schedule = [{ days = [], from = \"08:00\", to = \"09:00\", min = 3 }]",
            &["each of its days once"],
        ),
        (
            "schedule = [{ days = [\"mon\", \"mon\"], from = \"08:00\", to = \"09:00\", min = 3 }]",
            &["each of its days once"],
        ),
        (
            "consolidation = { head_room_permille = 300, for = \"5m\" }",
            &["consolidation", "write one too"],
        ),
        (
            "back_off = { first = \"5m\", most = \"1m\" }",
            &["back_off.first = 5m", "back_off.most = 1m"],
        ),
        (
            "cool_down = \"0s\"",
            &["cool_down = \"0s\"", "\"1s\" to \"1d\""],
        ),
        ("stale_after = \"1h\"", &["stale_after = \"1h\"", "\"5m\""]),
        (
            "hysteresis_permille = 10",
            &["hysteresis_permille = 10", "50 to 900"],
        ),
        (
            "hot_spot = { factor_permille = 1_000, for = \"5s\" }",
            &["hot_spot.factor_permille = 1000", "1100"],
        ),
        (
            "[policy.b]\ncluster = \"a\"\nhosts = { min = 9 }",
            &[
                "policy \"b\"",
                "hosts.min = 9",
                "hosts.max = 8 of policy \"a\"",
            ],
        ),
        (
            "[policy.b]\ncluster = \"a\"\nhosts = { step = 2 }\n[policy.c]\ncluster = \"a\"\nhosts = { step = 3 }",
            &["\"b\" and \"c\"", "cluster \"a\"", "hosts.step"],
        ),
        (
            "flows = { out = 100, in = 50 }\n[policy.b]\ncluster = \"a\"\nflows = { out = 200, in = 50 }",
            &["\"a\" and \"b\"", "flows"],
        ),
    ] {
        let sentence = refused(&format!("{base}{more}"));
        for part in parts {
            assert!(sentence.contains(part), "`{part}` is not in: {sentence}");
        }
    }
    for (text, parts) in [
        (
            "[policy.a]\nhosts = { min = 5, max = 4 }",
            &["hosts.min = 5", "hosts.max = 4", "5 or more"][..],
        ),
        (
            "[policy.a]\nhosts = { min = 0, max = 99 }",
            &["hosts.min = 0", "hosts.max = 99", "1 to 64"],
        ),
        (
            "[policy.a]\ncool_down = \"5m\"",
            &["hosts.min is missing", "hosts.max is missing", "min = 2"],
        ),
        (
            "[policy.\"\"]\nhosts = { min = 1, max = 1 }",
            &["1 to 64 bytes"],
        ),
    ] {
        let sentence = refused(text);
        for part in parts {
            assert!(sentence.contains(part), "`{part}` is not in: {sentence}");
        }
    }
}

#[test]
fn unknown_fields_and_wrong_types_are_refused_by_name() {
    let base = "[policy.a]\nhosts = { min = 2, max = 8 }\n";
    for (more, part) in [
        ("colldown = \"5m\"", "colldown"),
        ("cool_down = 5", "cool_down"),
        ("cool_down = \"5 minutes\"", "\"90s\""),
        ("flows = { out = 5 }", "in"),
        ("flows = { out = 5, in = 2, for = 3 }", "for"),
        ("flows = { out = -5, in = 2 }", "-5"),
        ("flows = { out = nan, in = 2 }", "flows"),
        ("utc_offset = \"CET\"", "+01:00"),
        (
            "schedule = [{ days = [\"someday\"], from = \"08:00\", to = \"09:00\", min = 2 }]",
            "someday",
        ),
        (
            "schedule = [{ days = [\"mon\"], from = \"8\", to = \"09:00\", min = 2 }]",
            "08:30",
        ),
        ("[[[", "TOML parse error"),
    ] {
        let sentence = refused(&format!("{base}{more}"));
        assert!(sentence.contains(part), "`{part}` is not in: {sentence}");
    }
}

#[test]
fn many_policies_and_windows_are_refused() {
    let many: String = (0..65)
        .map(|one| format!("[policy.p{one}]\nhosts = {{ min = 1, max = 2 }}\n"))
        .collect();
    assert!(refused(&many).contains("65 policies"));
    let window = "{ days = [\"mon\"], from = \"08:00\", to = \"09:00\", min = 2 }, ";
    let many = format!(
        "[policy.a]\nhosts = {{ min = 1, max = 2 }}\nschedule = [{}]",
        window.repeat(65)
    );
    assert!(refused(&many).contains("65 windows"));
    let Err(error) =
        Policies::read("[policy.a]\nhosts = { min = 3, max = 2 }\nflows = { out = 1, in = 2 }")
    else {
        panic!("accepted");
    };
    assert!(matches!(
        error.0[..],
        [
            PolicyError::MinAboveMax { .. },
            PolicyError::InAboveOut { .. }
        ]
    ));
}
