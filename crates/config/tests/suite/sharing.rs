//! How many share the state of a function: what the tables of the cluster and of the host say reaches the function's settings.

use std::time::Duration;

use asterism_config::{Config, Settings};

#[test]
fn a_packet_waits_for_other_instances_only_where_there_are_some() {
    let settle = |rest: &str| {
        let text = format!("{rest}\n[function.firewall]\nrules = \"none.rules\"");
        let (config, report) = Config::read("test.toml", &text);
        let config = config.unwrap_or_else(|| panic!("{}", report.render(false)));
        match config.function.settings {
            Settings::Firewall(settings) => settings.settle,
            _ => panic!("a firewall"),
        }
    };
    let wait = Duration::from_millis(20);
    assert_eq!(settle(""), Duration::ZERO);
    assert_eq!(settle("[cluster]\nmembers = [\"a\"]"), Duration::ZERO);
    assert_eq!(settle("[cluster]\nmembers = [\"a\", \"b\"]"), wait);
    assert_eq!(settle("[host]\ninstances = 2"), wait);
}
