//! Members die, are started again, are evicted and come back, as an operator does it: with a file of epochs.

use std::collections::HashSet;

use asterism::command_line;
use asterism_output::End;

use crate::run::host::{Cluster, Host, answer, outbound, wait};

/// `asterism epoch` on the cluster's configuration.
pub(crate) fn epoch(cluster: &Cluster, changes: &[&str]) -> (End, String) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let config = cluster.path("asterism.toml");
    let config = config.to_str().unwrap();
    let all = ["asterism", "epoch", config];
    let all = all.iter().chain(changes);
    let end = command_line::run(all.map(Into::into), &mut stdout, &mut stderr, false);
    let text = [stdout, stderr].concat();
    (end, String::from_utf8(text).unwrap())
}

pub(crate) fn written(cluster: &Cluster, changes: &[&str]) {
    let (end, text) = epoch(cluster, changes);
    assert_eq!(end, End::Done, "{text}");
    assert!(text.contains("Written to"), "{text}");
}

pub(crate) fn of_epochs(hosts: usize) -> Cluster {
    let cluster = Cluster::new(hosts, "");
    cluster.edit("[cluster]\n", "[cluster]\nepochs = \"epoch.toml\"\n");
    cluster
}

fn digests(host: &Host) -> Vec<String> {
    let status = host.ask(&["status", "--digests"]);
    let objects = status["instances"][0]["objects"].as_array().unwrap();
    let digests = objects.iter().map(|object| object["digest"].to_string());
    digests.collect()
}

pub(crate) fn agree(hosts: &[&Host], epoch: u64) {
    wait("all to agree", || {
        let first = digests(hosts[0]);
        let settled = hosts.iter().all(|host| {
            let status = host.ask(&["status"]);
            status["epoch"] == epoch
                && status["joined"] == true
                && status["ended"].as_array().unwrap().is_empty()
                && digests(host) == first
        });
        settled.then_some(())
    });
}

#[test]
fn a_killed_member_is_started_again_while_the_others_run() {
    let cluster = of_epochs(3);
    let mut early = cluster.begin(0, &[]);
    assert_eq!(early.ended(), Some(1));
    assert!(early.log().contains("--first"), "{}", early.log());
    written(&cluster, &["--first"]);
    assert!(
        epoch(&cluster, &["--first"])
            .1
            .contains("written only once")
    );
    let mut hosts = [0, 1, 2].map(|place| cluster.begin(place, &[]));
    hosts.iter_mut().for_each(|host| host.wait_for("READY=1"));
    let [a, b, c] = &mut hosts;

    let (mut inside, mut outside) = (cluster.end("b", "inside"), cluster.end("b", "outside"));
    let mut ports = HashSet::new();
    let mut left = Vec::new();
    for port in 4_000..4_050 {
        inside.send(&outbound(port));
        let flow = outside.next();
        assert!(ports.insert(flow.source_port));
        left.push(flow);
    }
    wait("the sessions at a and c", || {
        (a.live("sessions") == 50 && c.live("sessions") == 50).then_some(())
    });
    drop((inside, outside));
    b.child.kill().unwrap();
    b.child.wait().unwrap();

    // Nobody guesses that it is gone: it waits until an epoch says so.
    let mut again = cluster.begin(1, &[]);
    wait("the host to wait", || {
        again.log().contains("awaiting-epoch").then_some(())
    });
    assert!(again.log().contains("--again b"), "{}", again.log());
    written(&cluster, &["--again", "b"]);
    again.wait_for("READY=1");
    wait("the sessions at b", || {
        (again.live("sessions") == 50).then_some(())
    });
    agree(&[a, &again, c], 2);
    wait("the log to say so", || {
        let log = a.log();
        let said = ["event=incarnation-ended", "event=incarnation-closed"];
        said.iter().all(|part| log.contains(part)).then_some(())
    });

    // It has what it had, and gives no port away that its earlier incarnation gave.
    let (mut inside, mut outside) = (cluster.end("b", "inside"), cluster.end("b", "outside"));
    for flow in left.iter().take(10) {
        outside.send(&answer(flow));
        assert_eq!(inside.next().source_port, answer(flow).source_port);
    }
    for port in 5_000..5_050 {
        inside.send(&outbound(port));
        assert!(
            ports.insert(outside.next().source_port),
            "a port was given twice"
        );
    }
    agree(&[a, &again, c], 2);
    wait("the sessions at a", || {
        (a.live("sessions") == 100).then_some(())
    });
}

#[test]
fn anyone_who_an_epoch_leaves_out_stops_and_comes_back_as_another() {
    let cluster = of_epochs(3);
    written(&cluster, &["--first"]);
    let mut hosts = [0, 1, 2].map(|place| cluster.begin(place, &[]));
    hosts.iter_mut().for_each(|host| host.wait_for("READY=1"));
    let [a, b, c] = &mut hosts;
    written(&cluster, &["--without", "c"]);
    assert_eq!(c.ended(), Some(1));
    assert!(c.log().contains("epoch 2 ends this host"), "{}", c.log());
    agree(&[a, b], 2);
    let text = a.command(&["status"]).1;
    assert!(text.contains("takes no part"), "{text}");

    // What is written meanwhile needs nobody who is not there.
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    inside.send(&outbound(4_000));
    outside.next();
    wait("all acknowledged", || {
        (a.ask(&["status"])["channel"]["is_quiet"] == true).then_some(())
    });
    let mut again = cluster.begin(2, &[]);
    wait("the host to wait", || {
        again.log().contains("does not name c").then_some(())
    });
    std::fs::write(cluster.path("epoch.toml"), "epoch = 3\nmembers = 7\n").unwrap();
    wait("the mistake to be reported", || {
        a.log().contains("event=epochs-unreadable").then_some(())
    });
    // Who starts with such a file does not start at all.
    assert_eq!(again.ended(), Some(1));
    std::fs::write(
        cluster.path("epoch.toml"),
        "epoch = 3\n[members]\na = 1\nb = 1\n[left]\nc = 1\n",
    )
    .unwrap();
    wait("the epoch", || {
        (a.ask(&["status"])["epoch"] == 3).then_some(())
    });
    written(&cluster, &["--again", "c"]);
    let mut again = cluster.begin(2, &[]);
    again.wait_for("READY=1");
    wait("the session at c", || {
        (again.live("sessions") == 1).then_some(())
    });
    agree(&[a, b, &again], 4);
    again.stop();
    wait("the word that it leaves", || {
        a.log().contains("event=member-leaves").then_some(())
    });
    assert!(!a.log().contains("event=member-lagging"), "{}", a.log());
    a.stop();
    b.stop();
}

/// As `scp` does it: the file is emptied, and what it says comes a moment later.
#[test]
fn a_file_of_epochs_that_is_being_copied_ends_nobody() {
    let cluster = of_epochs(2);
    written(&cluster, &["--first"]);
    let mut a = cluster.begin(0, &[]);
    let path = cluster.path("epoch.toml");
    let mut b = cluster.begin(1, &[]);
    a.wait_for("READY=1");
    b.wait_for("READY=1");
    b.child.kill().unwrap();
    b.child.wait().unwrap();
    let mut again = cluster.begin(1, &[]);
    wait("the host to wait", || {
        again.log().contains("awaiting-epoch").then_some(())
    });
    let first = std::fs::read_to_string(&path).unwrap();
    let epoch = first
        .replace("epoch = 1", "epoch = 2")
        .replace("b = 1", "b = 2");
    assert!(epoch.matches('2').count() >= 2, "{epoch}");
    std::fs::write(&path, "").unwrap();
    std::thread::park_timeout(std::time::Duration::from_millis(500));
    std::fs::write(&path, epoch).unwrap();
    again.wait_for("READY=1");
    agree(&[&a, &again], 2);
    assert!(!a.log().contains("epochs-unreadable"), "{}", a.log());
}

/// That who left earlier is dead may be said beside other news, and those are not lost.
#[test]
fn who_left_is_fenced_when_all_start_again() {
    let cluster = of_epochs(3);
    written(&cluster, &["--first"]);
    written(&cluster, &["--without", "b"]);
    let (end, text) = epoch(&cluster, &["--founding", "--without", "b", "--fenced"]);
    assert_eq!(end, End::Done, "{text}");
    assert!(
        text.contains("Epoch 3, in which all start with only their saved state"),
        "{text}"
    );
    assert!(text.contains("a            incarnation 2"), "{text}");
}

#[test]
fn a_cluster_that_stopped_is_founded_again() {
    let cluster = of_epochs(2);
    written(&cluster, &["--first"]);
    let mut hosts = [0, 1].map(|place| cluster.begin(place, &[]));
    hosts.iter_mut().for_each(|host| host.wait_for("READY=1"));
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    inside.send(&outbound(4_000));
    outside.next();
    wait("the session at b", || {
        (hosts[1].live("sessions") == 1).then_some(())
    });
    hosts.iter_mut().for_each(Host::stop);
    written(&cluster, &["--founding"]);
    let mut hosts = [0, 1].map(|place| cluster.begin(place, &[]));
    hosts.iter_mut().for_each(|host| host.wait_for("READY=1"));
    agree(&[&hosts[0], &hosts[1]], 2);
    wait("what was saved", || {
        (hosts[0].live("sessions") == 1).then_some(())
    });
}

#[test]
fn ports_of_the_dead_fall_to_the_others_and_anyone_who_is_alone_goes_on() {
    let cluster = of_epochs(2);
    written(&cluster, &["--first"]);
    let mut hosts = [0, 1].map(|place| cluster.begin(place, &[]));
    hosts.iter_mut().for_each(|host| host.wait_for("READY=1"));
    let [a, b] = &mut hosts;
    let ports = |host: &Host, field: &str| {
        let status = host.ask(&["status"]);
        let objects = status["instances"][0]["objects"].as_array().unwrap();
        let ports = objects.iter().find(|object| object["name"] == "ports");
        ports.unwrap()[field].as_u64().unwrap()
    };
    let before = ports(a, "capacity");
    assert_eq!(ports(a, "quarantined"), 0);
    b.child.kill().unwrap();
    b.child.wait().unwrap();
    assert!(!epoch(&cluster, &["--fenced"]).1.contains("Written to"));
    written(&cluster, &["--without", "b"]);
    agree(&[a], 2);
    let quarantined = wait("ports in quarantine", || {
        Some(ports(a, "quarantined")).filter(|&ports| ports > 0)
    });
    assert!(
        quarantined.abs_diff(before) <= 256,
        "{quarantined} {before}"
    );
    let text = a.command(&["status"]).1;
    assert!(
        text.contains(&format!("0 reclaimed, {quarantined} quarantined")),
        "{text}"
    );
    // The word may come later. An idle time of hours must pass still.
    written(&cluster, &["--without", "b", "--fenced"]);
    let text = epoch(&cluster, &[]).1;
    assert!(text.contains("known to have ended"), "{text}");
    assert!(
        text.contains("ports of b are held by a since epoch 2"),
        "{text}"
    );
    agree(&[a], 3);
    assert_eq!(
        (ports(a, "quarantined"), ports(a, "capacity")),
        (quarantined, before)
    );

    // It comes back when there is nobody left who would let it in.
    written(&cluster, &["--again", "b"]);
    a.child.kill().unwrap();
    a.child.wait().unwrap();
    let mut again = cluster.begin(1, &[]);
    wait("the host to join", || {
        again.log().contains("event=joining").then_some(())
    });
    assert_eq!(again.ask(&["status"])["joined"], false);
    written(&cluster, &["--without", "a", "--fenced"]);
    again.wait_for("READY=1");
    agree(&[&again], 5);
    // What the other may have granted that nobody knows of must go quiet first, also in what is its own by place.
    wait("ports in quarantine", || {
        (ports(&again, "quarantined") > before).then_some(())
    });
    assert_eq!(ports(&again, "capacity"), 0);
    again.stop();
}

#[test]
fn a_dead_member_for_which_the_table_fills_is_reported_until_an_epoch_leaves_it_out() {
    let cluster = of_epochs(3);
    cluster.edit(
        "outside = [\"203.0.113.1\"]\n",
        "outside = [\"203.0.113.1\"]\nshort_idle = true\nidle = { udp = \"1s\" }\n",
    );
    cluster.edit(
        "[function.nat.inside_link]\n",
        "[function.nat.state.sessions]\ncapacity = 64\n[function.nat.inside_link]\n",
    );
    written(&cluster, &["--first"]);
    let mut hosts = [0, 1, 2].map(|place| cluster.begin(place, &[]));
    hosts.iter_mut().for_each(|host| host.wait_for("READY=1"));
    let [a, b, c] = &mut hosts;
    c.child.kill().unwrap();
    c.child.wait().unwrap();

    let mut inside = cluster.end("a", "inside");
    for port in 4_000..4_020 {
        inside.send(&outbound(port));
    }
    for host in [&*a, &*b] {
        wait("the host to say who keeps the room", || {
            host.log().contains("event=tombstones-pinned").then_some(())
        });
        let log = host.log();
        let said = log
            .lines()
            .find(|line| line.contains("event=tombstones-pinned"));
        let said = said.unwrap();
        for part in [
            "object=sessions",
            "ended=20",
            "capacity=64",
            "member=c",
            "--without",
        ] {
            assert!(said.contains(part), "{said}");
        }
        assert_eq!(host.live("sessions"), 0, "all have ended");
    }
    written(&cluster, &["--without", "c", "--fenced"]);
    for host in [&*a, &*b] {
        wait("the room to be free", || {
            host.log()
                .contains("event=tombstones-released")
                .then_some(())
        });
    }
    assert_eq!(a.log().matches("event=tombstones-pinned").count(), 1);
}
