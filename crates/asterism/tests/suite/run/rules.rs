//! `asterism rules`: any host tells on how many new flows each rule decided at all of them, by the rules that hold now.

use asterism_output::End;
use serde_json::Value;

use crate::run::host::{Cluster, FIREWALL, outbound, wait};

#[test]
fn rules_tell_what_they_decided_on_at_all_hosts() {
    let (cluster, [a, b]) = Cluster::of_rules(
        "",
        FIREWALL,
        "# Nobody.\ndrop tcp on inside\nallow udp on inside to any port 7\ndefault drop\n",
    );
    let mut ends = [cluster.end("a", "inside"), cluster.end("b", "inside")];
    let mut outsides = [cluster.end("a", "outside"), cluster.end("b", "outside")];
    for number in 0..6u16 {
        let place = usize::from(number) % 2;
        ends[place].send(&outbound(4_000 + number));
        assert_eq!(outsides[place].next(), outbound(4_000 + number));
    }
    let reported = |rules: &Value| -> Vec<(Option<u64>, u64, String)> {
        let rules = rules["rules"].as_array().unwrap().iter();
        let row = |rule: &Value| {
            let text = rule["rule"].as_str().unwrap().to_owned();
            (rule["line"].as_u64(), rule["hits"].as_u64().unwrap(), text)
        };
        rules.map(row).collect()
    };
    let rule = |line, hits, text: &str| (line, hits, text.to_owned());
    let allow = "allow udp on inside to any port 7";
    for host in [&a, &b] {
        let rows = wait("both hosts' flows", || {
            let rows = reported(&host.ask(&["rules"]));
            (rows[1].1 == 6).then_some(rows)
        });
        let expected = [
            rule(Some(2), 0, "drop tcp on inside"),
            rule(Some(3), 6, allow),
            rule(None, 0, "default drop"),
        ];
        assert_eq!(rows, expected);
        let unused = reported(&host.ask(&["rules", "--unused"]));
        assert_eq!(unused.len(), 2);
    }
    // What a rule that is still there decided on is not forgotten when others come before it.
    let rules = cluster.path("some.rules");
    std::fs::write(rules, format!("allow icmp\n\n\n{allow}\n")).unwrap();
    let (end, text) = a.command(&["reload"]);
    assert_eq!(end, End::Done, "{text}");
    let rows = reported(&a.ask(&["rules"]));
    assert_eq!(
        rows[..2],
        [rule(Some(1), 0, "allow icmp"), rule(Some(4), 6, allow)]
    );
    let (end, text) = b.command(&["rules"]);
    assert_eq!(end, End::Done);
    assert!(text.contains(allow), "{text}");
}

#[test]
fn what_has_no_rules_says_so() {
    let cluster = Cluster::new(1, "");
    let mut host = cluster.begin(0, &[]);
    host.wait_for("READY=1");
    let (end, text) = host.command(&["rules"]);
    assert_eq!(end, End::File);
    assert!(text.contains("needs [function.firewall]"), "{text}");
}
