//! Starts that must not go on, or must not use up what the next start needs: with the epoch of an old image, and where an address or a
//! file is not there yet.

use std::fs;
use std::time::Duration;

use crate::run::epochs::{agree, of_epochs, written};
use crate::run::host::{Cluster, Host, wait};

/// Gives host `c` a configuration and a file of epochs of its own, as it has on a machine of its own.
fn part(cluster: &mut Cluster) {
    cluster.part();
    let config = cluster.path("c.toml");
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace("epoch.toml", "epoch-of-c.toml");
    // What it does later than that is not long waited for.
    let hurried = text.replace("join_wait = \"2s\"", "join_wait = \"400ms\"");
    assert_ne!(hurried, text);
    fs::write(&config, hurried).unwrap();
    fs::copy(cluster.path("epoch.toml"), cluster.path("epoch-of-c.toml")).unwrap();
}

/// Starts of a host at most until others answer it in time.
const STARTS_MAX: usize = 5;

/// Begins host `c` with an old epoch and without a note of its incarnation, and waits until it has received the later one. It listens for
/// so long as it must and no longer: where a busy machine kept the others from answering meanwhile, it is begun again.
fn begin_outdated(cluster: &Cluster) -> Host {
    for _ in 0..STARTS_MAX {
        // The image knows nothing of the incarnation that it was in.
        let _ = fs::remove_file(cluster.path("epoch-of-c.toml.c.incarnation"));
        let c = cluster.begin(2, &[]);
        let has_waited = wait("the later epoch to be received", || {
            let log = c.log();
            let [outdated, runs] =
                ["event=epoch-outdated", "event=running"].map(|event| log.find(event));
            match (outdated, runs) {
                (None, None) => None,
                (Some(outdated), Some(runs)) => Some(outdated < runs),
                (outdated, _) => Some(outdated.is_some()),
            }
        });
        if has_waited {
            return c;
        }
    }
    panic!("it began to run with an old epoch {STARTS_MAX} times");
}

/// A host whose disk was restored from an image has the epoch of that day. It reads no packets in it, however long it waits, while others
/// have a later one in force.
#[test]
fn a_host_with_an_old_epoch_waits_while_others_have_a_later_one() {
    let mut cluster = of_epochs(3);
    written(&cluster, &["--first"]);
    part(&mut cluster);
    let mut hosts = [0, 1, 2].map(|place| cluster.begin(place, &[]));
    hosts.iter_mut().for_each(|host| host.wait_for("READY=1"));
    let [a, b, mut c] = hosts;
    agree(&[&a, &b, &c], 1);
    c.child.kill().unwrap();
    c.child.wait().unwrap();
    written(&cluster, &["--without", "c", "--fenced"]);
    agree(&[&a, &b], 2);

    assert!(cluster.path("epoch-of-c.toml.c.incarnation").exists());
    let mut c = begin_outdated(&cluster);
    // Ten times `join_wait` is four seconds, which a busy machine may take to let hosts hear of each other.
    std::thread::park_timeout(Duration::from_secs(5));
    let status = c.ask(&["status"]);
    assert_eq!(
        (&status["phase"], &status["epoch"], &status["later_epoch"]),
        (&"listening".into(), &1.into(), &2.into())
    );
    assert!(!c.log().contains("event=running"), "{}", c.log());
    // The present file leaves it out: it stops.
    fs::copy(cluster.path("epoch.toml"), cluster.path("epoch-of-c.toml")).unwrap();
    assert_eq!(c.ended(), Some(1));
    assert!(c.log().contains("epoch 2 ends this host"), "{}", c.log());
}

/// The same of an epoch that names the host alone, which needs nobody to begin.
#[test]
fn a_host_that_an_old_epoch_names_alone_waits_too() {
    let mut cluster = of_epochs(3);
    written(&cluster, &["--first"]);
    part(&mut cluster);
    let alone = "epoch = 2\n[members]\nc = 2\n[left]\na = 1\nb = 1\n";
    fs::write(cluster.path("epoch-of-c.toml"), alone).unwrap();
    let now = "epoch = 3\nfounding = true\n[members]\na = 2\nb = 2\n[left]\nc = 2\n";
    fs::write(cluster.path("epoch.toml"), now).unwrap();
    let mut hosts = [0, 1].map(|place| cluster.begin(place, &[]));
    hosts.iter_mut().for_each(|host| host.wait_for("READY=1"));
    let c = begin_outdated(&cluster);
    std::thread::park_timeout(Duration::from_secs(1));
    assert!(!c.log().contains("event=running"), "{}", c.log());
    assert_eq!(c.ask(&["status"])["phase"], "listening");
}

/// A host that runs and does not get the file grants nothing from then on, and reads no packets five seconds later; once it has the file
/// it goes on.
#[test]
fn a_running_host_stands_still_until_it_has_the_later_epoch() {
    let mut cluster = of_epochs(3);
    written(&cluster, &["--first"]);
    part(&mut cluster);
    let mut hosts = [0, 1, 2].map(|place| cluster.begin(place, &[]));
    hosts.iter_mut().for_each(|host| host.wait_for("READY=1"));
    let [mut a, b, c] = hosts;
    written(&cluster, &["--again", "a"]);
    a.child.kill().unwrap();
    a.child.wait().unwrap();
    let held = || {
        let instance = &c.ask(&["status"])["instances"][0];
        instance["counts"]["turns_held_by_lease"].as_u64().unwrap()
    };
    wait("the later epoch to be received", || {
        let status = c.ask(&["status"]);
        (status["later_epoch"] == 2).then_some(())
    });
    assert_eq!(held(), 0);
    wait("the host to stand still", || (held() > 0).then_some(()));
    fs::copy(cluster.path("epoch.toml"), cluster.path("epoch-of-c.toml")).unwrap();
    let a = cluster.start(0);
    agree(&[&a, &b, &c], 2);
    let before = held();
    std::thread::park_timeout(Duration::from_millis(300));
    assert_eq!(held(), before);
    assert!(c.ask(&["status"]).get("later_epoch").is_none());
}

/// What is not there at boot and comes a little later keeps one start from going on, and takes nothing from the next.
#[test]
fn a_start_that_fails_leaves_its_incarnation_to_the_next() {
    let cluster = of_epochs(1);
    written(&cluster, &["--first"]);
    let text = fs::read_to_string(cluster.path("asterism.toml")).unwrap();
    let address = text
        .lines()
        .find_map(|line| line.strip_prefix("address = "))
        .unwrap()
        .trim_matches('"')
        .to_owned();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap();
    let faults = [
        // An address that no interface has yet (RFC 5737).
        text.replace(&address, "192.0.2.77:7400"),
        text.replace("[host]\n", &format!("[host]\nmetrics = \"{port}\"\n")),
        text.replace("[host]\n", "[host]\neve = { file = \"absent/eve.json\" }\n"),
        text.replace(
            "[function.nat]\n",
            "[function.nat]\nlog = { file = \"absent/ports.log\" }\n",
        ),
    ];
    let mut failed = 0;
    for fault in faults {
        assert_ne!(fault, text);
        fs::write(cluster.path("asterism.toml"), &fault).unwrap();
        let mut host = cluster.begin(0, &[]);
        let code = host.ended();
        assert!(matches!(code, Some(1..)), "{code:?}: {}", host.log());
        failed += u32::from(host.log().contains("not started") || host.log().contains("metrics"));
        assert!(
            !cluster.path("epoch.toml.a.incarnation").exists(),
            "{}",
            host.log()
        );
    }
    assert_eq!(failed, 4);
    fs::write(cluster.path("asterism.toml"), &text).unwrap();
    let mut host = cluster.start(0);
    assert!(cluster.path("epoch.toml.a.incarnation").exists());
    host.stop();
}
