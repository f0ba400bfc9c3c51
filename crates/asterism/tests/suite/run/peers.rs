//! What hosts say of each other's reachability and clocks: `status`, the log and metrics of real processes.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::run::host::{Cluster, Host, wait};

/// How long a thread of a path waits for a datagram before it looks whether the path has ended.
const LOOK: Duration = Duration::from_millis(20);

/// A path between two hosts, each of which has one of its ends as the other's address.
struct Path {
    is_cut: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Path {
    /// Puts a path between hosts `a` and `b` of a cluster, whose datagrams from `a` to `b` it can lose.
    fn between(cluster: &Cluster) -> Path {
        let text = std::fs::read_to_string(cluster.config("a")).unwrap();
        let mut addresses = text.lines().filter_map(|line| {
            let address = line.strip_prefix("address = \"127.")?;
            let address = format!("127.{}", address.trim_end_matches('"'));
            address.parse::<SocketAddr>().ok()
        });
        let (a, b) = (addresses.next().unwrap(), addresses.next().unwrap());
        let open = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(LOOK)).unwrap();
            (socket.try_clone().unwrap(), socket)
        };
        let ((at_a, to_a), (at_b, to_b)) = (open(), open());
        for (host, other, end) in [("a", b, &at_a), ("b", a, &at_b)] {
            let path = cluster.config(host);
            let text = std::fs::read_to_string(&path).unwrap();
            let end = end.local_addr().unwrap().to_string();
            std::fs::write(path, text.replace(&other.to_string(), &end)).unwrap();
        }
        let (is_cut, has_ended) = (Arc::default(), Arc::default());
        let carry = |from: UdpSocket, through: UdpSocket, to: SocketAddr, cut: &Arc<AtomicBool>| {
            let (cut, ended) = (cut.clone(), Arc::<AtomicBool>::clone(&has_ended));
            std::thread::spawn(move || {
                let mut datagram = vec![0; 65_536];
                while !ended.load(Ordering::Relaxed) {
                    if let Ok(length) = from.recv(&mut datagram)
                        && !cut.load(Ordering::Relaxed)
                    {
                        let _ = through.send_to(&datagram[..length], to);
                    }
                }
            })
        };
        let threads = vec![
            carry(at_a, to_b, b, &is_cut),
            carry(at_b, to_a, a, &Arc::default()),
        ];
        Path {
            is_cut,
            has_ended,
            threads,
        }
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The health items of a host: which, and of which member.
fn items(host: &Host) -> Vec<(String, String)> {
    let status = host.ask(&["status"]);
    let items = status["health"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    items
        .map(|item| (text(&item["item"]), text(&item["member"])))
        .collect()
}

fn is_joined(host: &Host) -> bool {
    let status = host.ask(&["status"]);
    let peer = &status["peers"][0];
    peer["admitted"] == true && peer["welcomes"] == true && peer["clock"].is_object()
}

#[test]
fn a_path_that_carries_one_direction_only_is_named_at_both_ends() {
    let mut cluster = Cluster::new(2, "");
    cluster.part();
    let path = Path::between(&cluster);
    let hosts = [cluster.begin(0, &[]), cluster.begin(1, &[])];
    let hosts = hosts.map(|mut host| {
        host.wait_for("READY=1");
        host
    });
    // A host that was begun later may be an item of the other one's until then.
    wait("both hosts", || {
        let is_well = |host: &Host| is_joined(host) && items(host).is_empty();
        hosts.iter().all(is_well).then_some(())
    });
    path.is_cut.store(true, Ordering::Relaxed);
    for (host, other, fault, event, sentence) in [
        (
            0,
            "b",
            "not-receiving",
            "member-not-receiving",
            "reports that it receives nothing from this host",
        ),
        (
            1,
            "a",
            "silent",
            "member-silent",
            "nothing is received from a",
        ),
    ] {
        let host = &hosts[host];
        let expected = [(fault.to_owned(), other.to_owned())];
        wait("the fault", || (items(host) == expected).then_some(()));
        let (_, text) = host.command(&["status"]);
        let line = text.lines().find(|line| line.starts_with("needs a look: "));
        let line = line.unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains(&format!("{other} {fault} for ")), "{line}");
        assert!(line.contains(sentence), "{line}");
        let peer = text
            .lines()
            .find(|line| line.starts_with(&format!("  {other} ")));
        assert!(peer.is_some_and(|line| line.contains(fault)), "{text}");
        let line = wait("a line in the log", || {
            let log = host.log();
            let line = log.lines().find(|line| line.contains(event));
            line.map(str::to_owned)
        });
        assert!(line.contains(sentence), "{line}");
    }
    path.is_cut.store(false, Ordering::Relaxed);
    for host in &hosts {
        wait("no fault", || items(host).is_empty().then_some(()));
        let is_logged = || host.log().contains("member-recovered").then_some(());
        wait("its end in the log", is_logged);
    }
}

/// Both hosts have this machine's date, whatever it is.
#[test]
fn hosts_show_each_others_clocks() {
    let cluster = Cluster::new(2, "");
    let hosts = [cluster.begin(0, &[]), cluster.begin(1, &[])];
    let hosts = hosts.map(|mut host| {
        host.wait_for("READY=1");
        host
    });
    wait("both hosts", || hosts.iter().all(is_joined).then_some(()));
    let is_settled = |host: &Host| host.ask(&["status"])["time"]["settled"] == true;
    wait("both serve", || hosts.iter().all(is_settled).then_some(()));
    for (host, other) in hosts.iter().zip(["b", "a"]) {
        wait("a measured date", || {
            let status = host.ask(&["status"]);
            let clock = &status["peers"][0]["clock"];
            // Half of a second is more than any machine under load makes of a message's way.
            let is_near = |us: &Value| us.as_i64().is_some_and(|us| us.abs() < 500_000);
            let all = is_near(&clock["date_ahead_us"]) && is_near(&clock["cluster_ahead_us"]);
            (all && clock["refused"] == false).then_some(())
        });
        let (_, text) = host.command(&["status"]);
        let peer = text
            .lines()
            .find(|line| line.starts_with(&format!("  {other} ")));
        assert!(peer.is_some_and(|line| line.contains(", date ")), "{text}");
    }
}
