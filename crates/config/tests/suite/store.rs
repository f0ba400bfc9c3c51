//! `[store]`: a store by its address, of shards, and the embedded one, as files write them.

use core::time::Duration;

use asterism_config::functions::{Functions, Settings};
use asterism_config::{Config, Purpose, Store, StoreSync};
use asterism_function::chain::OnFailure;
use asterism_state::Home;

const CHAIN: &str = "chain = [\"watch\", \"nat\"]\n\
    [cluster]\nname = \"edge\"\n\
    [stage.watch]\nfunction = \"port-scan\"\n\
    [store]\naddress = \"[2001:db8::7]:6379\"\n\
    [function.nat]\noutside = [\"203.0.113.1\"]\n\
    [function.nat.state]\nfragments = { placement = \"remote\" }\n\
    [function.watch.state]\nhistories.placement = \"remote\"\n";

fn read(text: &str, purpose: Purpose) -> (Option<Config>, String) {
    let functions = Functions::default();
    let (config, report) = Config::read_as("test.toml", text, purpose, None, functions);
    (config, report.render(false))
}

#[test]
fn stages_say_each_for_themselves_what_is_in_the_store() {
    let (config, report) = read(CHAIN, Purpose::Host);
    let config = config.unwrap_or_else(|| panic!("{report}"));
    let store = config.store.expect("it has one");
    assert_eq!(store.place(), "[2001:db8::7]:6379");
    assert_eq!((store.name.as_str(), store.connections), ("edge", 8));
    assert_eq!((store.user, store.password), (None, None));
    assert_eq!(store.timeout, Duration::from_secs(1));
    let objects = ["watch.histories", "watch.blocked", "nat.fragments"];
    assert_eq!(config.function.remote(&objects), 0b101);
    let Settings::Chain(chain) = &config.function.settings else {
        panic!("no chain");
    };
    let of_stage = |stage: usize, name: &str| {
        let mut objects = chain.stages[stage].objects.iter();
        objects.find(|object| object.name == name).copied()
    };
    let histories = of_stage(0, "histories").expect("it has them");
    assert_eq!(histories.settings().home, Home::Remote);
    assert_eq!((histories.movable, histories.holds_output), (None, false));
    let blocked = of_stage(0, "blocked").expect("it has them");
    assert_ne!(blocked.settings().home, Home::Remote);
    // It is neither taken there nor from there while a host runs.
    for (one, other) in [(histories, blocked), (blocked, histories)] {
        assert!(one.stays_because(&other).contains("stay behind"));
    }
}

#[test]
fn known_flows_are_served_before_their_packets_are_dropped() {
    let with = |timeout: &str, when_down: &str| {
        let address = "address = \"[2001:db8::7]:6379\"\n";
        let more = format!(
            "{address}timeout = \"{timeout}\"\nwhen_down = \"{when_down}\"\n\
             cache = {{ entries = 4_096 }}\n"
        );
        let (config, report) = read(&CHAIN.replace(address, &more), Purpose::Host);
        (config.is_some(), report)
    };
    let (is_read, report) = with("2s", "serve-known");
    assert!(!is_read, "two seconds");
    let error = "packets of known flows would be dropped before the store counts as away";
    assert!(report.contains(error), "{report}");
    for (timeout, when_down) in [("1999ms", "serve-known"), ("60s", "drop")] {
        let (is_read, report) = with(timeout, when_down);
        assert!(is_read, "{timeout}: {report}");
    }
}

#[test]
fn a_store_has_an_address_or_several() {
    let with = |address: &str| {
        let text = CHAIN.replace("\"[2001:db8::7]:6379\"", address);
        let (config, report) = read(&text, Purpose::Host);
        (config.and_then(|config| config.store), report)
    };
    let (store, report) = with("[\"192.0.2.8:1\", \"192.0.2.7:6379\"]");
    let store = store.unwrap_or_else(|| panic!("{report}"));
    assert_eq!(store.place(), "192.0.2.8:1, 192.0.2.7:6379");
    for (wrong, expected) in [
        ("[]", "a store has an address"),
        ("[\"192.0.2.8:1\", \"192.0.2.8:1\"]", "is there twice"),
        (
            "[\"192.0.2.8:1\", \"0.0.0.0:1\"]",
            "no store can be reached",
        ),
        ("[\"192.0.2.8:1\", 7]", "this is a whole number"),
    ] {
        let (store, report) = with(wrong);
        assert!(store.is_none() && report.contains(expected), "{report}");
    }
    let many: Vec<String> = (1..18)
        .map(|port| format!("\"192.0.2.8:{port}\""))
        .collect();
    let (store, report) = with(&format!("[{}]", many.join(", ")));
    assert!(store.is_none() && report.contains("at most 16"), "{report}");
}

#[test]
fn one_process_has_no_store_and_one_instance_needs_none() {
    for purpose in [Purpose::Scenario, Purpose::Replay] {
        let (config, report) = read(CHAIN, purpose);
        let config = config.unwrap_or_else(|| panic!("{report}"));
        assert_eq!(
            config
                .function
                .remote(&["watch.histories", "nat.fragments"]),
            0
        );
        let several = CHAIN.replace("name =", "members = [\"a\", \"b\"]\nname =");
        let (config, report) = read(&several, purpose);
        assert!(config.is_none());
        assert!(report.contains("several instances cannot share `watch.histories` here"));
        assert!(report.contains("test.toml:14:"), "{report}");
    }
}

#[test]
fn a_password_in_the_clear_is_warned_of() {
    let with = |address: &str| {
        let password = format!("address = \"{address}\"\npassword_file = \"x\"");
        let text = CHAIN.replace("address = \"[2001:db8::7]:6379\"", &password);
        let (config, report) = read(&text, Purpose::Host);
        assert!(config.is_some(), "{report}");
        report
    };
    assert!(with("192.0.2.7:6379").contains("warning: the password crosses the network"));
    assert_eq!(with("127.0.0.1:6379"), "");
    assert_eq!(with("[::1]:6379"), "");
}

const FIREWALL: &str = "[cluster]\nname = \"edge\"\n\
    [store.shards]\n\
    b = { address = \"192.0.2.2:6379\" }\n\
    a = { address = [\"192.0.2.1:6379\", \"192.0.2.2:6380\"] }\n\
    [function.firewall]\nrules = \"none.rules\"\n\
    [function.firewall.state]\n\
    flows = { placement = \"remote\" }\nfragments = { placement = \"remote\" }\n";

const FLOWS: &str = "flows = { placement = \"remote\" }\nfragments = { placement = \"remote\" }";

#[test]
fn shards_are_read_in_the_order_of_their_names() {
    let (config, report) = read(FIREWALL, Purpose::Host);
    let config = config.unwrap_or_else(|| panic!("{report}"));
    let store = config.store.expect("it has one");
    assert_eq!(
        store.place(),
        "a at 192.0.2.1:6379, 192.0.2.2:6380; b at 192.0.2.2:6379"
    );
    let shards = store.shards.expect("it has some");
    assert_eq!(shards.names(), ["a", "b"]);
    assert_eq!((shards.buckets, shards.seed), (16_384, 0));
    let identity = |from: &str, to: &str| {
        let (config, report) = read(&FIREWALL.replace(from, to), Purpose::Host);
        let config = config.unwrap_or_else(|| panic!("{report}"));
        config.store.expect("it has one").identity()
    };
    let written = identity("", "");
    let in_order = "\"192.0.2.1:6379\", \"192.0.2.2:6380\"";
    let otherwise = "\"192.0.2.2:6380\", \"192.0.2.1:6379\"";
    assert_eq!(identity(in_order, otherwise), written);
    for (from, to) in [
        ("a = {", "c = {"),
        ("192.0.2.2:6380", "192.0.2.2:6381"),
        ("[store.shards]", "[store]\nseed = 7\n[store.shards]"),
    ] {
        assert_ne!(identity(from, to), written, "{to}");
    }
}

#[test]
fn what_cannot_be_in_shards_is_refused_with_its_place() {
    for (change, expected) in [
        (
            (FLOWS, "blocked = { placement = \"remote\" }"),
            "`blocked` cannot be in shards",
        ),
        (
            (FLOWS, "hits = { placement = \"remote\" }"),
            "shards can have `flows`, `fragments`",
        ),
        (
            (
                "[store.shards]",
                "[store]\naddress = \"192.0.2.9:1\"\n[store.shards]",
            ),
            "an address or shards",
        ),
        (("b = {", "\"b}\" = {"), "is no name of a shard"),
        (
            ("[store.shards]", "[store]\nbuckets = 1_000\n[store.shards]"),
            "write buckets = 1024",
        ),
        (("192.0.2.2:6380", "192.0.2.1:6379"), "is there twice"),
        (
            ("192.0.2.2:6379", "0.0.0.0:6379"),
            "no store can be reached",
        ),
        (
            ("b = { address = \"192.0.2.2:6379\" }\n", ""),
            "one shard is no part",
        ),
    ] {
        let (config, report) = read(&FIREWALL.replace(change.0, change.1), Purpose::Host);
        assert!(
            config.is_none() && report.contains(expected),
            "{expected}: {report}"
        );
    }
}

const TWO: &str = "[cluster]\nname = \"edge\"\nmembers = [\"b\", \"a\"]\nkey = \"k\"\n\
    member.a.address = \"192.0.2.1:7400\"\nmember.b.address = \"192.0.2.2:7400\"\n\
    [function.firewall]\nrules = \"none.rules\"\n\
    [function.firewall.state]\n\
    flows = { placement = \"remote\" }\nfragments = { placement = \"remote\" }\n";

fn store_of(text: &str) -> Store {
    let (config, report) = read(text, Purpose::Host);
    let config = config.unwrap_or_else(|| panic!("{report}"));
    config.store.expect("it has one")
}

#[test]
fn a_file_without_a_store_has_the_embedded_one_at_its_first_host() {
    let store = store_of(TWO);
    assert_eq!(store.place(), "the embedded store of b");
    assert_eq!(store.addresses, ["192.0.2.2:7400".parse().unwrap()]);
    let embedded = store.embedded.expect("hosts run it");
    assert_eq!((embedded.folder, embedded.memory_max), (None, 1 << 30));
    // A host alone needs no address: whichever port is free.
    let alone = TWO.split_once("[function").unwrap().1;
    let store = store_of(&format!("[function{alone}"));
    assert_eq!(store.addresses, ["127.0.0.1:0".parse().unwrap()]);
    // Hosts that differ in who runs it have no store in common.
    let of_other = TWO.replace("[\"b\", \"a\"]", "[\"a\", \"b\"]");
    assert_ne!(store_of(&of_other).identity(), store_of(TWO).identity());
}

#[test]
fn several_members_run_a_shard_each() {
    let table = "[store]\nseed = 7\n[store.embedded]\nmembers = [\"b\", \"a\"]\nfolder = \"kept\"\n\
        sync = \"always\"\nmemory_max = \"1MiB\"\n";
    let store = store_of(&format!("{table}{TWO}"));
    assert_eq!(store.place(), "a at 192.0.2.1:7400; b at 192.0.2.2:7400");
    assert_eq!(store.shards.map(|shards| shards.seed), Some(7));
    let embedded = store.embedded.expect("hosts run it");
    assert_eq!(embedded.members, ["a", "b"]);
    assert_eq!(embedded.folder.as_deref(), Some("kept".as_ref()));
    assert_eq!(
        (embedded.sync, embedded.memory_max),
        (StoreSync::Always, 1 << 20)
    );
    // What is of no conversation one host has for all.
    let counted = TWO.replace("flows =", "hits = { placement = \"remote\" }\nflows =");
    let (config, report) = read(&format!("{table}{counted}"), Purpose::Host);
    assert!(config.is_none());
    assert!(
        report.contains("one member in [store.embedded]"),
        "{report}"
    );
}

#[test]
fn what_hosts_cannot_run_is_refused_with_its_place() {
    for (table, (from, to), expected) in [
        ("[store]\nack = \"replica\"", ("", ""), "has no replicas"),
        (
            "[store]\nuser = \"x\"\npassword_file = \"x\"",
            ("", ""),
            "has one user",
        ),
        (
            "[store.embedded]\nsync = \"always\"",
            ("", ""),
            "nothing is written",
        ),
        (
            "[store.embedded]\nmembers = [\"aa\"]",
            ("", ""),
            "name members of the cluster",
        ),
        (
            "[store.embedded]\nmembers = [\"a\", \"a\"]",
            ("", ""),
            "is there twice",
        ),
        (
            "[store]\naddress = \"192.0.2.9:1\"\n[store.embedded]\nmembers = [\"a\"]",
            ("", ""),
            "an address, or hosts run it",
        ),
        ("[store]\nbuckets = 256", ("", ""), "has one part"),
        (
            "[store]\naddress = \"192.0.2.9:1\"\nseed = 1",
            ("", ""),
            "has one part",
        ),
        (
            "[store.embedded]\nmembers = [\"a\", \"b\"]\n[store]\nbuckets = 300",
            ("", ""),
            "write buckets = 512",
        ),
        (
            "",
            (
                "member.a.address = \"192.0.2.1:7400\"\nmember.b.address = \"192.0.2.2:7400\"\n",
                "",
            ),
            "`b` runs the store at no address",
        ),
        (
            "",
            (
                "members = [\"b\", \"a\"]\nkey = \"k\"\nmember.a.address = \"192.0.2.1:7400\"\nmember.b.address = \"192.0.2.2:7400\"",
                "places = 2\nkey = \"k\"\nepochs = \"epoch.toml\"\norchestrators = [\"192.0.2.9:1\"]",
            ),
            "no host of this cluster is listed to run a store",
        ),
        (
            "[policy.edge]\nhosts = { min = 1, max = 2 }",
            (
                "key = \"k\"\n",
                "key = \"k\"\nepochs = \"epoch.toml\"\norchestrators = [\"192.0.2.9:1\"]\n",
            ),
            "this policy may stop \"b\", with the embedded store",
        ),
    ] {
        let text = format!("{table}\n{}", TWO.replace(from, to));
        let (config, report) = read(&text, Purpose::Host);
        assert!(
            config.is_none() && report.contains(expected),
            "{expected}: {report}"
        );
    }
}

#[test]
fn hosts_of_one_process_do_without_the_embedded_store_too() {
    let text = "[function.firewall]\nrules = \"none.rules\"\nstate.flows.placement = \"remote\"\n\
        state.fragments.placement = \"remote\"\n";
    for purpose in [Purpose::Scenario, Purpose::Replay] {
        let (config, report) = read(text, purpose);
        let config = config.unwrap_or_else(|| panic!("{report}"));
        assert_eq!(config.function.remote(&["flows", "fragments"]), 0);
    }
}

#[test]
fn packets_go_past_what_they_may_go_past_while_the_store_is_away() {
    let store = "[store]\naddress = \"192.0.2.9:1\"\nwhen_down = \"bypass\"\n";
    let limiter = "[function.limiter]\nsources = { rate = 10, burst = 10 }\n\
        state.sources = { placement = \"remote\" }\n";
    let stages = |text: &str| {
        let (config, report) = read(text, Purpose::Host);
        let config = config.unwrap_or_else(|| panic!("{report}"));
        let remote = config.function.objects.iter();
        let remote = remote.filter(|object| object.settings().home == Home::Remote);
        let remote: Vec<&str> = remote.map(|object| object.name).collect();
        let Settings::Chain(chain) = &config.function.settings else {
            panic!("it is no stage");
        };
        let stages = chain.stages.iter();
        let stages = stages.map(|stage| (stage.name, stage.on_failure, stage.wait));
        (stages.collect::<Vec<_>>(), remote.join(" "))
    };
    let waits = Duration::from_millis;
    // A function alone becomes a stage.
    assert_eq!(
        stages(&format!("{store}{limiter}")),
        (
            vec![("limiter", OnFailure::Bypass, waits(50))],
            "limiter.sources".to_owned()
        )
    );
    // Of a chain those stages whose objects are there, unless they say for themselves what they do.
    let chain = "chain = [\"own\", \"limiter\", \"nat\"]\n[stage.own]\nfunction = \"limiter\"\n\
        on_failure = \"drop\"\n[function.nat]\noutside = [\"203.0.113.1\"]\n";
    let own = limiter.replace("function.limiter", "function.own");
    let (stages, remote) = stages(&format!(
        "{chain}{own}{limiter}{store}bypass_after = \"7ms\"\n"
    ));
    assert_eq!(remote, "own.sources limiter.sources");
    assert_eq!(
        stages,
        [
            ("own", OnFailure::Drop, waits(2_000)),
            ("limiter", OnFailure::Bypass, waits(7)),
            ("nat", OnFailure::Drop, waits(2_000))
        ]
    );
    for (text, expected) in [
        (
            FIREWALL.replace(
                "[store.shards]",
                "[store]\nwhen_down = \"bypass\"\n[store.shards]",
            ),
            "packets cannot go past `firewall`",
        ),
        (
            format!("{store}known_for = \"1s\"\n{limiter}"),
            "when_down = \"serve-known\" alone",
        ),
        (
            format!("[store]\naddress = \"192.0.2.9:1\"\nbypass_after = \"1s\"\n{limiter}"),
            "when_down = \"bypass\" alone",
        ),
    ] {
        let (config, report) = read(&text, Purpose::Host);
        assert!(
            config.is_none() && report.contains(expected),
            "{expected}: {report}"
        );
    }
}

#[test]
fn a_host_alone_needs_a_key_where_its_store_outlives_it() {
    let with = |cluster: &str, store: &str| {
        let ports = "[port.inside]\ninterface = \"eth0\"\n[port.outside]\ninterface = \"eth1\"\n";
        let function = format!(
            "[function.firewall]\nrules = \"none.rules\"\n[function.firewall.state]\n{FLOWS}\n"
        );
        let text = format!("{cluster}{store}{function}{ports}");
        let (config, report) = read(&text, Purpose::Host);
        (config.is_some(), report)
    };
    let error = "what is in the store is found by a key, and this host has none";
    let outliving = [
        "[store]\naddress = \"192.0.2.9:6379\"\n",
        "[store.shards.a]\naddress = \"192.0.2.9:6379\"\n[store.shards.b]\naddress = \"192.0.2.8:6379\"\n",
        "[store.embedded]\nfolder = \"store\"\n",
    ];
    for store in outliving {
        let (is_read, report) = with("", store);
        assert!(!is_read && report.contains(error), "{store}: {report}");
        let (is_read, report) = with("[cluster]\nkey = \"cluster.key\"\n", store);
        assert!(is_read, "{store}: {report}");
    }
    // It begins empty at each start.
    let (is_read, report) = with("", "");
    assert!(is_read, "{report}");
}
