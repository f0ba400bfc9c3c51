//! Hosts whose configurations differ in what they must share: none is admitted, each says what differs, and no two of them read packets
//! beside each other that did not before.

use std::fs;
use std::time::Duration;

use crate::run::host::{Cluster, Host, wait};

/// What a host tells the service manager while it waits for the others' settings to be its own, or the other way round.
const REFUSED: &str = "STATUS=refused: other members have other settings of the cluster";

/// Gives the last host another configuration.
fn differ(cluster: &mut Cluster, name: &str, change: impl Fn(&str) -> String) {
    cluster.part();
    let config = cluster.path(&format!("{name}.toml"));
    let text = fs::read_to_string(&config).unwrap();
    let changed = change(&text);
    assert_ne!(changed, text);
    fs::write(config, changed).unwrap();
}

fn says(host: &Host, words: &[&str]) {
    wait("what differs to be said", || {
        let log = host.log();
        let mut lines = log.lines();
        let found = lines.any(|line| {
            line.contains("event=member-differs") && words.iter().all(|word| line.contains(word))
        });
        found.then_some(())
    });
}

/// The same list with one member more.
fn one_more(text: &str) -> String {
    text.replace(
        "members = [\"a\", \"b\"]",
        "members = [\"a\", \"b\", \"z\"]",
    )
    .replace(
        "[cluster.member.b]",
        "[cluster.member.z]\naddress = \"127.0.0.1:9\"\n[cluster.member.b]",
    )
}

/// The same members in another order: by each list the other host has the number of this one.
fn other_order(text: &str) -> String {
    text.replace("members = [\"a\", \"b\"]", "members = [\"b\", \"a\"]")
}

#[test]
fn two_hosts_with_two_lists_of_members_do_not_work_beside_each_other() {
    for change in [one_more, other_order] {
        let mut cluster = Cluster::new(2, "");
        differ(&mut cluster, "b", change);
        let mut hosts = [cluster.begin(0, &[]), cluster.begin(1, &[])];
        let lists = if change("members = [\"a\", \"b\"]").contains('z') {
            ["a, b", "a, b, z"]
        } else {
            ["a, b", "b, a"]
        };
        for host in &hosts {
            says(host, &["setting=members", lists[0], lists[1]]);
        }
        for host in &mut hosts {
            host.wait_for(REFUSED);
        }
        // Longer than `join_wait`.
        std::thread::park_timeout(Duration::from_secs(3));
        for host in &hosts {
            assert!(!host.log().contains("event=running"), "{}", host.log());
            assert_eq!(host.ask(&["status"])["phase"], "listening");
        }
        let peer = &hosts[0].ask(&["status"])["peers"][0];
        if lists[1].contains('z') {
            let setting = &peer["differing_settings"][0];
            assert_eq!(
                (&setting["name"], &setting["ours"], &setting["theirs"]),
                (&"members".into(), &"a, b".into(), &"a, b, z".into())
            );
            assert_eq!(peer["admitted"], false);
        }
    }
}

/// A host that runs goes on, and the one that comes with another list does not begin.
#[test]
fn a_host_with_another_list_does_not_join_those_that_run() {
    let mut cluster = Cluster::new(3, "");
    differ(&mut cluster, "c", |text| {
        text.replace("[\"a\", \"b\", \"c\"]", "[\"b\", \"a\", \"c\"]")
    });
    let mut right = [0, 1].map(|place| cluster.begin(place, &[]));
    right.iter_mut().for_each(|host| host.wait_for("READY=1"));
    let mut c = cluster.begin(2, &[]);
    says(&c, &["setting=members", "a, b, c", "b, a, c"]);
    for host in &right {
        says(host, &["setting=members", "a, b, c", "b, a, c"]);
    }
    c.wait_for(REFUSED);
    std::thread::park_timeout(Duration::from_secs(3));
    assert!(!c.log().contains("event=running"), "{}", c.log());
}

/// Others that hosts must share: who receives what, and from when on the other counts as silent.
#[test]
fn every_other_setting_that_hosts_share_is_compared() {
    for (name, ours, theirs, change) in [
        (
            "epochs",
            "none",
            "a file",
            "[cluster]\nepochs = \"epoch.toml\"\n",
        ),
        (
            "multicast",
            "none",
            "239.255.74.0:7401",
            "[cluster]\nchannel = { multicast = \"239.255.74.0:7401\", interface = \"lo\" }\n",
        ),
        ("copies", "none", "1", "[cluster]\nrelease = \"acked\"\n"),
        (
            "timers",
            "keep_alive",
            "keep_alive 5s",
            "[cluster]\nchannel = { keep_alive = \"5s\", silent_after = \"10s\" }\n",
        ),
    ] {
        let mut cluster = Cluster::new(2, "");
        fs::write(
            cluster.path("epoch.toml"),
            "epoch = 1\n[members]\na = 1\nb = 1\n",
        )
        .unwrap();
        differ(&mut cluster, "b", |text| {
            text.replace("[cluster]\n", change)
        });
        let mut hosts = [cluster.begin(0, &[]), cluster.begin(1, &[])];
        let setting = format!("setting={name}");
        says(&hosts[0], &[&setting, ours, theirs]);
        for host in &mut hosts {
            host.wait_for(REFUSED);
            assert!(!host.log().contains("event=running"), "{}", host.log());
        }
    }
}
