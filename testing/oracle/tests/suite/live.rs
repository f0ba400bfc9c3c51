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
    let mut attempt = 1;
    loop {
        let recording = record(scenario, None).expect("the scenario plays");
        let report = compare(&recording).expect("the comparison is made");
        let lines: Vec<String> = report
            .differences
            .iter()
            .map(|difference| format!("{} us: {}", difference.time_us, difference.sentence))
            .collect();
        // On a machine that stands still for a second in between, Linux may rightly have forgotten what the script
        // takes for alive. A fault of ours comes again.
        if !lines.is_empty() && name.ends_with("-times") && attempt < TIMED_ATTEMPTS_MAX {
            eprintln!("{name}, attempt {attempt}:\n{}", lines.join("\n"));
            attempt += 1;
            continue;
        }
        assert!(lines.is_empty(), "{name}:\n{}", lines.join("\n"));
        assert!(report.compared > 15, "{report:?}");
        return;
    }
}

/// How often a scenario of idle times is played before its differences count.
const TIMED_ATTEMPTS_MAX: u32 = 3;

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
