//! A chain and its stages, as files write them.

use core::time::Duration;

use asterism_config::functions::FunctionSettings;
use asterism_config::{Config, Settings};
use asterism_function::chain::OnFailure;
use asterism_function::{objects_of, stage_names};

const TEXT: &str = "chain = [\"watch\", \"nat\", \"count\"]\n\
    [stage.watch]\nfunction = \"port-scan\"\nmirror = true\n\
    [stage.count]\nfunction = \"pass-through\"\non_failure = \"bypass\"\nwait = \"5ms\"\n\
    [function.nat]\noutside = [\"203.0.113.1\"]\n\
    [function.watch]\nports = 9\n\
    [function.count.state]\npackets = { placement = \"local\" }\n";

#[test]
fn a_chain_is_made_of_its_stages() {
    let (config, report) = Config::read("test.toml", TEXT);
    let config = config.unwrap_or_else(|| panic!("{}", report.render(false)));
    let Settings::Chain(chain) = &config.function.settings else {
        panic!("no chain");
    };
    let made = chain.function(&config.function.objects).unwrap();
    assert_eq!(stage_names(&made), ["watch", "nat", "count"]);
    let names: Vec<_> = config
        .function
        .objects
        .iter()
        .map(|object| object.name)
        .collect();
    assert_eq!(objects_of(&made), names);
    assert!(
        config
            .function
            .object_settings("nat.sessions")
            .is_replicated()
    );
    assert!(
        !config
            .function
            .object_settings("count.packets")
            .is_replicated()
    );
    assert_eq!(chain.stages[2].on_failure, OnFailure::Bypass);
    assert_eq!(chain.stages[2].wait, Duration::from_millis(5));
    assert!(chain.stages[0].mirror && !chain.stages[1].mirror);
    let words = config.function.settings.words();
    for expected in [
        "watch (port-scan)",
        "gets copies",
        "bypassed when it is full, or late for 5ms",
    ] {
        assert!(words.contains(expected), "{expected} is not in {words}");
    }
    // Read once more, names are the same.
    let again = Config::read("test.toml", TEXT).0.unwrap();
    assert!(core::ptr::eq(
        again.function.objects[0].name,
        config.function.objects[0].name
    ));
}
