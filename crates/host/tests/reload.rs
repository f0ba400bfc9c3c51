//! What of a configuration changes while a host runs, what does not, and which line the refusal names.

use asterism_config::diagnostic::Report;
use asterism_config::{Config, Settings};
use asterism_host::run::reload::{self, ReloadError, Written, first_mistake};

/// What is read, and from what.
#[derive(Debug)]
struct Source(Config, String);

fn read(text: &str) -> Source {
    let (config, report) = Config::read("test.toml", text);
    let config = config.unwrap_or_else(|| panic!("{}", report.render(false)));
    Source(config, text.to_owned())
}

fn changes(now: &Source, wanted: &Source) -> Result<Vec<String>, Vec<String>> {
    let [now, wanted] = [now, wanted].map(|Source(config, text)| Written { config, text });
    let changes = reload::changes(now, wanted, "test.toml", &|name| !name.ends_with("links"));
    changes.map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

#[test]
fn rules_of_a_firewall_may_change_and_nothing_else_of_it() {
    let text = "[function.firewall]\nrules = \"a.rules\"";
    let with = |text: &str, rules: &str| {
        let mut config = read(text);
        let Settings::Firewall(settings) = &mut config.0.function.settings else {
            panic!("a firewall")
        };
        settings.read_rules("a.rules", rules).unwrap();
        config
    };
    let now = with(text, "default drop");
    assert_eq!(changes(&now, &now), Ok(Vec::new()));
    let moved = with(&format!("# a comment\n{text}"), "default drop");
    assert_eq!(changes(&now, &moved), Ok(Vec::new()));
    let wanted = with(text, "allow tcp on inside");
    assert_eq!(
        changes(&now, &wanted),
        Ok(vec!["[function.firewall] rules".to_owned()])
    );
    let wanted = with(&format!("{text}\npick_up = true"), "allow tcp on inside");
    assert!(changes(&now, &wanted).unwrap_err()[0].contains("[function.firewall]"));
}

#[test]
fn what_of_the_cluster_cannot_change_is_pointed_at() {
    let text = |lease: &str, site: &str| {
        format!(
            "[function.nat]\nshort_idle = true\noutside = [\"203.0.113.1\"]\n[function.nat.inside_link]\naddress = \"10.0.0.1/24\"\nnext_hop = \"10.0.0.254\"\n\
             [function.nat.outside_link]\naddress = \"192.0.2.1/24\"\nnext_hop = \"192.0.2.254\"\n[cluster]\nepochs = \"epoch.toml\"\nmembers = [\"a\", \"b\", \"c\"]\nport_lease = \"{lease}\"\n\
             [cluster.member.a]\naddress = \"127.0.0.1:4001\"\nsite = \"{site}\"\n[cluster.member.b]\naddress = \"127.0.0.1:4002\"\nsite = \"east\"\n[cluster.member.c]\naddress = \"127.0.0.1:4003\"\nsite = \"east\"\n"
        )
    };
    let now = read(&text("3s", "east"));
    for (wanted, said) in [
        (text("4s", "east"), "[cluster] port_lease cannot"),
        (text("3s", "west"), "[cluster.member.a] site cannot"),
    ] {
        let refused = changes(&now, &read(&wanted)).unwrap_err();
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(
            refused[0].contains(said) && refused[0].starts_with("test.toml:1"),
            "{refused:?}"
        );
    }
}

/// With the rules of its firewall.
fn chained(text: &str, rules: &'static str) -> Source {
    let mut config = read(text);
    let mut report = Report::new("test.toml", text);
    let read = |_: &std::path::Path| Ok(("a.rules".to_owned(), rules.to_owned()));
    config.0.function.settings.read_files(&read, &mut report);
    assert_eq!(report.errors(), 0);
    config
}

#[test]
fn of_a_chains_stages_changes_what_changes_of_their_functions_alone() {
    let text = "chain = [\"guard\", \"monitor\", \"count\"]\n\
        [stage.guard]\nfunction = \"firewall\"\n[function.guard]\nrules = \"a.rules\"\n\
        [stage.count]\nfunction = \"pass-through\"\n";
    let now = chained(text, "default drop");
    let moved = chained(&format!("# a comment\n{text}"), "default drop");
    assert_eq!(changes(&now, &moved), Ok(Vec::new()));
    let wanted = chained(text, "allow tcp on inside");
    assert_eq!(
        changes(&now, &wanted),
        Ok(vec!["[function.guard] rules".to_owned()])
    );
    let more = "on_failure = \"bypass\"\nwait = \"5ms\"\n[stage.monitor]\nmirror = true\n[function.monitor]\nout_degree = 7\n";
    let wanted = chained(&format!("{text}{more}"), "default drop");
    assert_eq!(
        changes(&now, &wanted).unwrap(),
        [
            "[function.monitor] out_degree",
            "[stage.monitor] mirror",
            "[stage.count] on_failure",
            "[stage.count] wait",
        ]
    );
}

#[test]
fn what_of_a_chain_cannot_change_is_pointed_at() {
    let text = "chain = [\"firewall\", \"monitor\"]\n[function.firewall]\nrules = \"a.rules\"\n[function.monitor]\nout_degree = 9\n";
    let now = chained(text, "default drop");
    let refused = |wanted: &Source| changes(&now, wanted).unwrap_err();
    let more = "interval = \"70s\"\nin_degree = 5\n[function.monitor.state]\nlinks = { placement = \"local\" }\n";
    assert_eq!(
        refused(&chained(&format!("{text}{more}"), "allow tcp on inside")),
        [
            "test.toml:6: [function.monitor] interval cannot change while the host runs: stop all hosts, then start them with it",
            "test.toml:9: [function.monitor.state.links] placement cannot change while the host runs: one instance alone has the state, so it makes no difference; leave it as it is, or stop the host, then start it with it",
        ]
    );
    let turned = text.replace("\"firewall\", \"monitor\"", "\"monitor\", \"firewall\"");
    let said = refused(&chained(&turned, "default drop"));
    assert!(said[0].starts_with("test.toml:1: chain cannot"), "{said:?}");
    let alone = "\n[function.firewall]\nrules = \"a.rules\"\n";
    let alone = chained(alone, "default drop");
    let said = refused(&alone);
    assert!(
        said.len() == 1 && said[0].starts_with("test.toml: chain, which is not"),
        "{said:?}"
    );
    let said = changes(&alone, &now).unwrap_err();
    assert!(said[0].starts_with("test.toml:1: chain cannot"), "{said:?}");
    // What is no longer written has no line.
    let without = text.replace("[function.firewall]", "[function.firewall]\npick_up = true");
    let said = changes(&chained(&without, "default drop"), &now).unwrap_err();
    assert!(
        said[0].contains("test.toml: [function.firewall] pick_up, which is not"),
        "{said:?}"
    );
}

#[test]
fn a_mistake_is_reported_where_it_is() {
    let text = "[function.firewall]\nrules = \"a.rules\"";
    let (config, mut report) = Config::read("test.toml", text);
    let read =
        |_: &std::path::Path| Ok(("a.rules".to_owned(), "default drop\nalow tcp\n".to_owned()));
    let mut settings = config.unwrap().function.settings;
    settings.read_files(&read, &mut report);
    let said = first_mistake(&report).to_string();
    assert!(said.contains("a.rules:2: "), "{said}");
    let (_, report) = Config::read("test.toml", "\n[function.pass-through]\naccess = 3\nx = 1");
    let said = first_mistake(&report).to_string();
    assert!(
        said.contains("2 mistakes") && said.contains("test.toml:3: "),
        "{said}"
    );
}

#[test]
fn a_balancers_services_change_and_the_rest_of_it_does_not() {
    let with = |services: &str, rest: &str| {
        read(&format!(
            "[function.balancer]\n{rest}\nservices.web = {{ address = \"203.0.113.10:80\", backends = [{services}] }}"
        ))
    };
    let one = "{ address = \"10.0.0.10\" }";
    let now = with(one, "");
    let wanted = with("{ address = \"10.0.0.10\", drain = true }", "");
    assert_eq!(
        changes(&now, &wanted),
        Ok(vec!["[function.balancer] services".to_owned()])
    );
    let refused = changes(&now, &with(one, "persistence = \"1h\"")).unwrap_err();
    assert!(refused[0].contains("[function.balancer]"), "{refused:?}");
    assert!(changes(&now, &read("[function.pass-through]")).is_err());
}

#[test]
fn all_or_nothing_with_a_sentence_each() {
    let now = read("[host]\nidle = \"sleep\"\n[function.pass-through]");
    assert_eq!(changes(&now, &now), Ok(Vec::new()));
    let wanted = read("[host]\nidle = \"spin\"\nstate = \"state\"\n[function.pass-through]");
    assert_eq!(
        changes(&now, &wanted),
        Ok(vec!["[host] idle".to_owned(), "[host] state".to_owned()])
    );
    let wanted = read(
        "[cluster]\nname = \"other\"\n[host]\nidle = \"spin\"\ninstances = 2\n[function.pass-through]\naccess = \"read\"",
    );
    let refused = changes(&now, &wanted).unwrap_err();
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert!(
        refused[0].starts_with("test.toml:2: [cluster] name")
            && refused[2].starts_with("test.toml:7: [function.pass-through] access"),
        "{refused:?}"
    );
}

/// The log does not say that nothing changed where something did.
#[test]
fn a_refused_reload_says_what_it_leaves_behind() {
    let ended = ReloadError::InstanceEnded;
    assert!(ended.effect().contains("the other function"));
    assert_eq!(
        ReloadError::Unchangeable(Vec::new()).effect(),
        "nothing changed"
    );
}

#[test]
fn an_object_goes_over_to_another_placement_and_others_stay_where_they_are() {
    let with = |cluster: &str, state: &str| {
        read(&format!(
            "{cluster}\n[function.firewall]\nrules = \"a.rules\"\n[function.firewall.state]\n{state}\n"
        ))
    };
    let cluster = "[cluster]\nmembers = [\"a\", \"b\"]\nkey = \"k\"";
    let local = "blocked = { placement = \"local\" }";
    let (shared, now) = (with(cluster, ""), with(cluster, local));
    let said = |word: &str| {
        Ok(vec![format!(
            "[function.firewall.state.blocked] placement = \"{word}\""
        )])
    };
    assert_eq!(changes(&now, &shared), said("replicated"));
    assert_eq!(changes(&shared, &now), said("local"));
    assert_eq!(
        changes(
            &now,
            &with(cluster, "blocked = { placement = \"replicated\" }")
        ),
        said("replicated")
    );
    let refused = |now: &Source, wanted: &str, cure: &str| {
        let refused = changes(now, &with(cluster, wanted)).unwrap_err();
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(refused[0].contains(cure), "{refused:?}");
        assert!(
            refused[0].starts_with("test.toml:7: [function.firewall.state.blocked]"),
            "{refused:?}"
        );
    };
    refused(
        &shared,
        "blocked = { placement = \"late\", delay = \"5ms\" }",
        "for tests",
    );
    let larger = format!("blocked = {{ placement = \"local\", capacity = {} }}", 128);
    refused(&shared, &larger, "capacity cannot change");
    refused(
        &shared,
        "blocked = { absent = \"wait 7ms\" }",
        "absent cannot change",
    );
    let alone = changes(&with("", ""), &with("", local)).unwrap_err();
    assert!(
        alone[0].contains("one instance alone has the state"),
        "{alone:?}"
    );
}

#[test]
fn tables_that_routers_have_for_themselves_change_too() {
    let text = |state: &str| {
        format!(
            "[function.nat]\noutside = [\"203.0.113.1\"]\n[function.nat.inside_link]\naddress = \"10.0.0.1/24\"\nnext_hop = \"10.0.0.254\"\n\
             [function.nat.outside_link]\naddress = \"192.0.2.1/24\"\nnext_hop = \"192.0.2.254\"\n{state}"
        )
    };
    let cluster = "[host]\ninstances = 2\n";
    let local = "[function.nat.state]\nneighbours = { placement = \"local\" }\nerrors = { placement = \"replicated\" }\n";
    let (now, wanted) = (
        read(&text(cluster)),
        read(&text(&format!("{local}{cluster}"))),
    );
    assert_eq!(changes(&now, &wanted).map(|changes| changes.len()), Ok(2));
}
