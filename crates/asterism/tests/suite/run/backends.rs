//! `asterism backends`: the services of a balancer as they are configured, and what has none says so. With real backends that die:
//! `../balancer.rs`.

use asterism_output::End;
use serde_json::Value;

use crate::run::host::Cluster;

const BALANCER: &str = "[function.balancer.services.web]
address = \"203.0.113.10:80\"
passive = 3
backends = [{ address = \"10.0.0.10\", port = 8080, weight = 7 }, { address = \"10.0.0.11\", port = 8080, drain = true }]
[function.balancer.services.dns]
address = \"203.0.113.10:53\"
protocol = \"udp\"
mode = \"direct\"
backends = [{ address = \"10.0.0.20\" }]
[function.balancer.clients_link]
address = \"203.0.113.2/24\"
mac = \"02:00:00:00:02:01\"
next_hop = \"203.0.113.1\"
[function.balancer.backends_link]
address = \"10.0.0.1/24\"
mac = \"02:00:00:00:01:01\"
next_hop = \"10.0.0.254\"
";

#[test]
fn services_and_their_backends_are_reported() {
    let cluster = Cluster::new(1, "");
    let path = cluster.path("asterism.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let nat = text.find("[function.nat]").unwrap();
    std::fs::write(&path, format!("{}{BALANCER}", &text[..nat])).unwrap();
    let mut host = cluster.begin(0, &[]);
    host.wait_for("READY=1");
    let reported = host.ask(&["backends"]);
    let services = reported["services"].as_array().unwrap();
    let named = |name: &str| -> &Value {
        let of = services.iter().find(|service| service["service"] == name);
        of.unwrap_or_else(|| panic!("no {name} in {reported}"))
    };
    assert_eq!(services.len(), 2);
    let (web, dns) = (named("203.0.113.10:80/tcp"), named("203.0.113.10:53/udp"));
    assert_eq!(
        (&web["mode"], &dns["mode"]),
        (&"nat".into(), &"direct".into())
    );
    let backends = web["backends"].as_array().unwrap();
    assert_eq!(backends.len(), 2);
    assert_eq!(
        (&backends[0]["weight"], &backends[0]["failures"]),
        (&7.into(), &0.into())
    );
    assert_eq!(backends[0].get("votes"), None, "nobody checks");
    let drains: Vec<&Value> = backends.iter().map(|one| &one["drains"]).collect();
    assert_eq!(drains, [false, true]);
    assert_eq!(dns["backends"][0]["backend"], "10.0.0.20:0/udp");
    let (end, text) = host.command(&["backends"]);
    assert_eq!(end, End::Done);
    assert!(text.contains("alive, drains"), "{text}");
}

#[test]
fn what_has_no_backends_says_so() {
    let cluster = Cluster::new(1, "");
    let mut host = cluster.begin(0, &[]);
    host.wait_for("READY=1");
    let (end, text) = host.command(&["backends"]);
    assert_eq!(end, End::File);
    assert!(text.contains("needs [function.balancer]"), "{text}");
}
