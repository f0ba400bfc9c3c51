//! Epochs handed to running hosts over their control sockets, without a file that anybody copies: each host has one of its own,
//! which nobody but the host writes.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use asterism_epochs::{EPOCH_BYTES_MAX, InForce, Refusal, Standing};
use asterism_io::clock::MonotonicClock;
use asterism_orchestrator::epochs::{HandError, hand};
use asterism_output::End;
use serde_json::Value;

use crate::run::epochs::{agree, epoch, of_epochs, written};
use crate::run::host::{Cluster, Host, wait};

const WITHIN: Duration = Duration::from_secs(30);

/// Hosts whose file of epochs is their own, `a.epoch` and so on; anyone who runs the cluster has `epoch.toml` and `asterism.toml`.
fn parted(hosts: usize) -> Cluster {
    let mut cluster = of_epochs(hosts);
    cluster.part();
    written(&cluster, &["--first"]);
    for name in ('a'..).take(hosts) {
        let config = cluster.path(&format!("{name}.toml"));
        let text = std::fs::read_to_string(&config).unwrap();
        let text = text.replace("\"epoch.toml\"", &format!("\"{name}.epoch\""));
        std::fs::write(config, text).unwrap();
        std::fs::copy(cluster.path("epoch.toml"), own(&cluster, name)).unwrap();
    }
    cluster
}

/// A host's own file.
fn own(cluster: &Cluster, name: char) -> std::path::PathBuf {
    cluster.path(&format!("{name}.epoch"))
}

/// The epoch that anyone who runs the cluster has.
fn latest(cluster: &Cluster) -> String {
    std::fs::read_to_string(cluster.path("epoch.toml")).unwrap()
}

fn hand_to(host: &Host, text: &str) -> Result<InForce, HandError> {
    hand(&host.socket, Some("asterism"), text, WITHIN)
}

fn refused(host: &Host, text: &str) -> (Refusal, String) {
    match hand_to(host, text) {
        Err(HandError::Refused { reason, why }) => (reason, why),
        other => panic!("not refused: {other:?}"),
    }
}

/// What the command says of a host, by its name.
fn said_of(text: &str, name: &str) -> Value {
    let document: Value = serde_json::from_str(text).unwrap();
    crate::validator::validate(&document);
    let hosts = document["hosts"].as_array().unwrap();
    let of = |host: &&Value| host["member"] == name;
    hosts.iter().find(of).unwrap().clone()
}

#[test]
fn a_member_dies_and_its_epoch_is_handed_to_the_survivors() {
    let cluster = parted(3);
    let mut hosts = [0, 1, 2].map(|place| cluster.begin(place, &[]));
    hosts.iter_mut().for_each(|host| host.wait_for("READY=1"));
    let [a, b, c] = &mut hosts;
    c.child.kill().unwrap();
    c.child.wait().unwrap();

    let json = ["--without", "c", "--hand", "--format", "json"];
    let (end, text) = epoch(&cluster, &json);
    assert_eq!(end, End::Done, "{text}");
    for name in ["a", "b"] {
        let host = said_of(&text, name);
        assert_eq!(
            (&host["outcome"], &host["epoch"]),
            (&"in-force".into(), &2.into())
        );
        assert_eq!(host["changed"], true);
    }
    assert_eq!(said_of(&text, "c")["outcome"], "absent");
    // It was in force when the answer came.
    assert_eq!(a.ask(&["status"])["epoch"], 2);
    for name in ['a', 'b'] {
        let text = std::fs::read_to_string(own(&cluster, name)).unwrap();
        assert_eq!(text, latest(&cluster), "on the disk of {name}");
    }
    assert!(a.log().contains("event=epoch-received"), "{}", a.log());
    agree(&[a, b], 2);
    // Once more is as once.
    let (end, text) = epoch(&cluster, &["--hand"]);
    assert_eq!(end, End::Done, "{text}");
    assert!(
        text.contains("Host a: epoch 2 was in force already"),
        "{text}"
    );
    assert!(text.contains("Host c: none runs here"), "{text}");

    // A number of epochs, one after another: the time until each is in force.
    let clock = MonotonicClock::new();
    let mut took = Vec::new();
    for number in 3..13 {
        let change = match number % 2 {
            1 => "--again",
            _ => "--without",
        };
        written(&cluster, &[change, "c"]);
        for host in [&*a, &*b] {
            let start = clock.now();
            let in_force = hand_to(host, &latest(&cluster)).unwrap();
            took.push(clock.now().since(start));
            assert_eq!((in_force.epoch, in_force.changed), (number, true));
            assert_eq!(in_force.standing, Standing::TakesPart);
            assert_eq!(host.ask(&["status"])["epoch"], number);
        }
    }
    took.sort();
    println!(
        "from handing to in force: {:?} to {:?}, the median {:?}",
        took[0],
        took[took.len() - 1],
        took[took.len() / 2]
    );
    // Most of it is the disk's, and a busy machine's.
    assert!(
        took[took.len() / 2] < Duration::from_millis(400),
        "{took:?}"
    );

    // A survivor that is started again has it from its own file, and waits there for the epoch that names it.
    agree(&[a, b], 12);
    b.child.kill().unwrap();
    b.child.wait().unwrap();
    let mut again = cluster.begin(1, &[]);
    wait("the host to wait", || {
        again.log().contains("awaiting-epoch").then_some(())
    });
    assert!(
        again.log().contains("epoch 12 names incarnation 1 of b"),
        "{}",
        again.log()
    );
    let (end, text) = again.command(&["status"]);
    assert!(
        end == End::File && text.contains("waits for an epoch that names it"),
        "{text}"
    );
    assert_eq!(
        hand_to(&again, &latest(&cluster)).unwrap().standing,
        Standing::Waits
    );
    let (end, text) = epoch(&cluster, &["--again", "b", "--hand"]);
    assert_eq!(end, End::Done, "{text}");
    assert!(
        text.contains("Host b: it begins with epoch 13, which names it"),
        "{text}"
    );
    again.wait_for("READY=1");
    agree(&[a, &again], 13);

    // The host that is left out gets the epoch, ends, and finds it in its file.
    written(&cluster, &["--without", "b"]);
    let ended = hand_to(&again, &latest(&cluster)).unwrap();
    assert_eq!(ended.standing, Standing::Ends);
    assert_eq!(again.ended(), Some(1));
    assert!(
        again.log().contains("epoch 14 ends this host"),
        "{}",
        again.log()
    );
    let again = cluster.begin(1, &[]);
    wait("the host to wait", || {
        again.log().contains("does not name b").then_some(())
    });
    // It can be stopped while it waits.
    let mut again = again;
    assert_eq!(again.command(&["stop"]).0, End::Done);
    assert_eq!(again.ended(), Some(1));
}

/// The most memory that a host had so far, in KiB.
fn most_memory(host: &Host) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let mut words = line.unwrap().split_whitespace();
    words.nth(1).unwrap().parse().unwrap()
}

/// What a host answers to these bytes; whether they end, it learns at once.
fn raw(host: &Host, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(&host.socket).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    // It need not take all of what it refuses.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    // After its answer the end may be a reset, since it closed with something unread.
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer
}

#[test]
fn what_is_no_later_epoch_of_this_cluster_is_refused_and_changes_nothing() {
    let cluster = parted(3);
    let first = latest(&cluster);
    let mut a = cluster.begin(0, &[]);
    written(&cluster, &["--without", "b"]);
    let second = latest(&cluster);
    // A host that waits for others takes epochs too.
    wait("the socket", || UnixStream::connect(&a.socket).ok());
    assert!(hand_to(&a, &second).unwrap().changed);
    written(&cluster, &["--without", "c"]);
    let third = latest(&cluster);
    assert_eq!(hand_to(&a, &third).unwrap().epoch, 3);
    a.wait_for("READY=1");

    assert_eq!(refused(&a, &second).0, Refusal::Older);
    assert_eq!(refused(&a, &first).0, Refusal::Older);
    let other = third.replace("[left]\n", "[fenced]\nb = 1\n[left]\n");
    assert_eq!(refused(&a, &other).0, Refusal::Contradicts);
    let later = third.replace("epoch = 3", "epoch = 4");
    let (reason, why) = refused(&a, &later[..later.find("[ports.c]").unwrap()]);
    assert_eq!(reason, Refusal::Forgets);
    assert!(why.contains("ports of c"), "{why}");
    let cut = later.find("past").unwrap();
    let (reason, why) = refused(&a, &later[..cut - 3]);
    assert_eq!(reason, Refusal::Malformed);
    let line = later[..cut].matches('\n').count();
    assert!(why.contains(&format!("handed:{line}: ")), "{why}");
    let (reason, why) = refused(&a, &later.replace("a = 1", "z = 1"));
    assert!(
        reason == Refusal::OtherCluster && why.contains("z is not a member"),
        "{why}"
    );
    let elsewhere = hand(&a.socket, Some("elsewhere"), &later, WITHIN).unwrap_err();
    let reason = Refusal::OtherCluster;
    assert!(matches!(elsewhere, HandError::Refused { reason: other, .. } if other == reason));
    for text in [
        "",
        "\u{0}\u{1}",
        "epoch = 4\n",
        "epoch = 99999999999999999999\n[members]\na = 1\n",
    ] {
        assert_eq!(refused(&a, text).0, Refusal::Malformed, "{text:?}");
    }
    // As much as there may be, of what costs a parser most.
    let before = most_memory(&a);
    for piece in ["[", "a.", "\"", "a = [1]\n", "\u{e9}", "[[a]]\n"] {
        let text = piece.repeat(EPOCH_BYTES_MAX / piece.len());
        assert_eq!(refused(&a, &text).0, Refusal::Malformed, "{piece:?}");
    }
    for (bytes, said) in [
        (vec![b'x'; 8 << 20], "at most"),
        (b"{\"do\":\"epoch\",\"text\":\"epoch".to_vec(), "cut short"),
        (b"{\"do\":\"epoch\"}\n".to_vec(), "malformed request"),
        (
            b"{\"do\":\"epoch\",\"text\":7}\n".to_vec(),
            "malformed request",
        ),
        (
            b"{\"do\":\"epoch\",\"text\":\"\xFF\"}\n".to_vec(),
            "malformed request",
        ),
        (
            [vec![b'['; 5_000], b"\n".to_vec()].concat(),
            "hands an epoch",
        ),
        (
            [&[b' '; 5_000][..], b"{\"do\":\"status\"}\n"].concat(),
            "hands an epoch",
        ),
    ] {
        let answer = raw(&a, &bytes);
        assert!(
            answer.contains(said) && answer.contains("error"),
            "{said}: {answer}"
        );
    }
    let grown = most_memory(&a) - before;
    println!("the host grew by {grown} KiB for what it refused");
    assert!(grown < 64 << 10, "{grown} KiB");
    // What cannot be kept is not put in force.
    let beside = cluster.path("a.epoch.a.new");
    std::fs::create_dir(&beside).unwrap();
    assert_eq!(refused(&a, &later).0, Refusal::NotWritten);
    assert_eq!(a.ask(&["status"])["epoch"], 3);
    assert_eq!(std::fs::read_to_string(own(&cluster, 'a')).unwrap(), third);
    assert!(a.log().contains("event=epoch-rejected"), "{}", a.log());
    std::fs::remove_dir(beside).unwrap();

    // By the command, from a file: an exit code of its own, and the reason.
    std::fs::write(cluster.path("old"), &second).unwrap();
    let old = cluster.path("old");
    let old = ["--hand", "--member", "a", "--file", old.to_str().unwrap()];
    let (end, text) = epoch(&cluster, &old);
    assert_eq!(end, End::DoesNotHold, "{text}");
    assert!(text.contains("Host a: refused (older): "), "{text}");
    let (end, text) = epoch(&cluster, &["--hand", "--member", "b"]);
    assert_eq!(end, End::File, "{text}");
    assert!(text.contains("not handed to any host"), "{text}");
    let (end, text) = epoch(&cluster, &["--without", "a", "--hand", "--member", "z"]);
    assert!(
        end == End::File && text.contains("z is not a member"),
        "{text}"
    );
    assert_eq!(latest(&cluster), third, "nothing was written");

    // What somebody put into its file, wrongly, is written over by what is handed again.
    std::fs::write(own(&cluster, 'a'), "nonsense").unwrap();
    assert!(!hand_to(&a, &third).unwrap().changed);
    assert_eq!(std::fs::read_to_string(own(&cluster, 'a')).unwrap(), third);
    // And what is later there, and not looked at yet, counts.
    std::fs::write(own(&cluster, 'a'), &later).unwrap();
    assert_eq!(refused(&a, &third).0, Refusal::Older);
    assert_eq!(hand_to(&a, &later).unwrap().epoch, 4);
    a.stop();
}

#[test]
fn a_host_without_epochs_says_so() {
    let cluster = Cluster::new(1, "");
    let mut a = cluster.start(0);
    let (reason, why) = refused(&a, "epoch = 1\n[members]\na = 1\n");
    assert!(
        reason == Refusal::NoEpochs && why.contains("epochs"),
        "{why}"
    );
    a.stop();
}
