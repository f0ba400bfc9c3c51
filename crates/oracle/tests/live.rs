//! Every scenario played against the kernel's own NAT, now, and compared with ours as the recordings are.

use asterism_oracle::compare;
use asterism_oracle::live::{SCENARIOS, obstacle, record};

fn live(name: &str) {
    if let Some(obstacle) = obstacle() {
        assert!(
            std::env::var("CI").is_err(),
            "in CI everything must run: {obstacle}"
        );
        println!("SKIPPED oracle/live/{name}: {obstacle}");
        return;
    }
    let scenario = SCENARIOS
        .iter()
        .find(|scenario| scenario.name == name)
        .expect("a scenario");
    let recording = record(scenario, None).expect("the scenario plays");
    let report = compare(&recording).expect("the comparison is made");
    let lines: Vec<String> = report
        .differences
        .iter()
        .map(|difference| format!("{} us: {}", difference.time_us, difference.sentence))
        .collect();
    assert!(lines.is_empty(), "{name}:\n{}", lines.join("\n"));
    assert!(report.compared > 15, "{report:?}");
}

macro_rules! scenarios {
    ($($test:ident $name:literal;)*) => {
        $(#[test]
        fn $test() {
            live($name);
        })*

        #[test]
        fn every_scenario_is_played() {
            let played = [$($name),*];
            let all: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
            assert_eq!(all, played);
        }
    };
}

scenarios! {
    sessions "sessions";
    echo "echo";
    hairpin "hairpin";
    tcp "tcp";
    damage "damage";
    icmp_errors "icmp-errors";
    narrow_outside "narrow-outside";
    narrow_inside "narrow-inside";
    fragments "fragments";
    port_pressure "port-pressure";
    udp_times "udp-times";
    tcp_times "tcp-times";
}
