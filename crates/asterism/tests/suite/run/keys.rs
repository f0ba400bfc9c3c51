//! The cluster's key is changed while hosts run and packets come, as an operator does it: with `asterism key` and copies.

use std::collections::HashSet;

use asterism::command_line;
use asterism_output::End;
use serde_json::Value;

use crate::run::host::{Cluster, Host, PortEnd, outbound, wait};

/// `asterism key` on a host's configuration.
pub(super) fn key(cluster: &Cluster, host: &str, step: &[&str]) -> (End, String) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let config = cluster.config(host);
    let all = [
        "asterism",
        "key",
        config.to_str().unwrap(),
        "--member",
        host,
    ];
    let all = all.iter().chain(step);
    let end = command_line::run(all.map(Into::into), &mut stdout, &mut stderr, false);
    (end, String::from_utf8([stdout, stderr].concat()).unwrap())
}

/// A cluster whose hosts have files of their own, and packets that come at one of them.
struct Scene {
    cluster: Cluster,
    hosts: Vec<Host>,
    inside: PortEnd,
    outside: PortEnd,
    flows: u16,
    ports: HashSet<u16>,
}

impl Scene {
    fn new(count: usize) -> Scene {
        let mut cluster = Cluster::new(count, "");
        cluster.part();
        let mut hosts: Vec<Host> = (0..count).map(|place| cluster.begin(place, &[])).collect();
        hosts.iter_mut().for_each(|host| host.wait_for("READY=1"));
        let (inside, outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
        Scene {
            cluster,
            hosts,
            inside,
            outside,
            flows: 0,
            ports: HashSet::new(),
        }
    }

    /// A packet of a new flow, which must come out.
    fn load(&mut self) {
        self.inside.send(&outbound(10_000 + self.flows));
        assert!(self.ports.insert(self.outside.next().source_port));
        self.flows += 1;
    }

    /// Has packets come until it is so.
    fn load_until(&mut self, what: &str, mut is_so: impl FnMut(&Scene) -> bool) {
        wait(what, || {
            (0..20).for_each(|_| self.load());
            is_so(self).then_some(())
        });
    }

    fn status(&self, place: usize) -> Value {
        self.hosts[place].ask(&["status"])
    }

    /// Copies the file of the first host to the others, one after the other while packets come; each takes it up by itself.
    fn distribute(&mut self, sends_with: u8, accepts: &[u8]) {
        for place in 0..self.hosts.len() {
            if place > 0 {
                let name = self.hosts[place].name.clone();
                self.cluster.copy_key("a.key", &name);
            }
            self.load_until("the keys to be taken up", |scene| {
                let channel = &scene.status(place)["channel"];
                channel["sends_with"] == sends_with
                    && channel["accepts"] == serde_json::json!(accepts)
            });
        }
    }

    fn step(&self, step: &[&str]) {
        let (end, text) = key(&self.cluster, "a", step);
        assert!(end == End::Done && text.contains("Written."), "{text}");
    }

    /// What each host refused, and what it said of admitting another or of losing sight of it.
    fn troubles(&self) -> Vec<(Value, Vec<String>, u64)> {
        let each = (0..self.hosts.len()).map(|place| {
            let channel = &self.status(place)["channel"];
            let log = self.hosts[place].log();
            let reported = [
                "event=member-admitted",
                "event=member-lagging",
                "event=key-missing",
                "event=keys-refused",
            ];
            let reported = log
                .lines()
                .filter(|line| reported.iter().any(|kind| line.contains(kind)));
            let reported = reported.map(str::to_string).collect();
            let given_up = channel["transport"]["given_up"].as_u64().unwrap();
            (channel["refused"].clone(), reported, given_up)
        });
        each.collect()
    }

    fn heard_by_all_with(&self, id: u8) -> bool {
        (0..self.hosts.len()).all(|place| {
            let peers = self.status(place)["peers"].clone();
            peers
                .as_array()
                .unwrap()
                .iter()
                .all(|peer| peer["heard_with"] == id)
        })
    }

    fn accepted_by_all(&self, ids: &[u8]) -> bool {
        (0..self.hosts.len()).all(|place| {
            let peers = self.status(place)["peers"].clone();
            let accepts = |peer: &Value| {
                peer["accepts"] == serde_json::json!(ids)
                    && peer["differing_keys"] == serde_json::json!([])
            };
            peers.as_array().unwrap().iter().all(accepts)
        })
    }

    /// Waits until all hosts have all flows, and the same.
    fn agree(&self) {
        let digests = |host: &Host| {
            let status = host.ask(&["status", "--digests"]);
            status["instances"][0]["objects"][0]["digest"].to_string()
        };
        wait("all to agree", || {
            let first = digests(&self.hosts[0]);
            let same = |host: &Host| {
                host.live("sessions") == u64::from(self.flows) && digests(host) == first
            };
            self.hosts.iter().all(same).then_some(())
        });
    }
}

#[test]
fn three_steps_under_load_lose_and_refuse_nothing() {
    let mut scene = Scene::new(3);
    scene.load_until("the hosts to hear each other", |scene| {
        scene.heard_by_all_with(1)
    });
    scene.agree();
    let before = scene.troubles();

    scene.step(&["--new"]);
    scene.load_until("a to accept it", |scene| {
        scene.status(0)["channel"]["accepts"] == serde_json::json!([1, 2])
    });
    scene.load_until("the others to say what they accept", |scene| {
        let status = scene.status(0);
        let mut peers = status["peers"].as_array().unwrap().iter();
        peers.all(|peer| peer["accepts"] == serde_json::json!([1]))
    });
    let (end, text) = key(&scene.cluster, "a", &["--use", "2"]);
    assert!(
        end == End::File && text.contains("b, c would no longer accept a's datagrams"),
        "{text}"
    );
    scene.distribute(1, &[1, 2]);
    scene.load_until("all to have said that they accept it", |scene| {
        scene.accepted_by_all(&[1, 2])
    });
    assert_eq!(scene.troubles(), before, "a key more to accept");

    let (end, text) = key(&scene.cluster, "a", &["--drop", "1"]);
    assert!(
        end == End::File && text.contains("so it was kept"),
        "{text}"
    );
    scene.step(&["--use", "2"]);
    // Between two copies hosts send with different keys; the step after is refused until all send with the new one.
    scene.load_until("a to send with the new key", |scene| {
        scene.status(0)["channel"]["sends_with"] == 2
    });
    let (end, text) = key(&scene.cluster, "a", &["--drop", "1"]);
    assert!(
        end == End::File && text.contains("b, c still sends with key 1"),
        "{text}"
    );
    scene.distribute(2, &[1, 2]);
    scene.load_until("all to be heard with the new key", |scene| {
        scene.heard_by_all_with(2)
    });
    assert_eq!(scene.troubles(), before, "another key to send with");

    scene.step(&["--drop", "1"]);
    scene.distribute(2, &[2]);
    (0..100).for_each(|_| scene.load());
    scene.agree();
    assert_eq!(scene.troubles(), before, "the old key dropped");
    assert!(scene.flows > 300, "{} flows", scene.flows);

    let a = &scene.hosts[0];
    let text = a.command(&["status"]).1;
    assert!(
        text.contains("sends with key 2, accepts 2") && text.contains("ago with key 2"),
        "{text}"
    );
    assert!(
        a.command(&["top", "--once"])
            .1
            .contains("received with key 2")
    );
    let (end, text) = key(&scene.cluster, "a", &[]);
    assert!(
        end == End::Done && text.contains("b            last received with key 2"),
        "{text}"
    );
    let (_, text) = key(&scene.cluster, "a", &["--format", "json"]);
    crate::validator::validate(&serde_json::from_str(&text).unwrap());
    scene.hosts.iter_mut().for_each(Host::stop);
}

#[test]
fn a_host_without_the_key_is_reported_and_heals() {
    let mut scene = Scene::new(2);
    scene.load_until("the hosts to hear each other", |scene| {
        scene.heard_by_all_with(1)
    });
    scene.agree();
    // The operator forgets b, and does not listen.
    scene.step(&["--new"]);
    scene.load_until("a to accept it", |scene| {
        scene.status(0)["channel"]["accepts"] == serde_json::json!([1, 2])
    });
    scene.step(&["--use", "2", "--force"]);
    scene.load_until("b to miss it", |scene| {
        scene.hosts[1].log().contains("event=key-missing")
    });
    let log = scene.hosts[1].log();
    let line = log
        .lines()
        .find(|line| line.contains("event=key-missing"))
        .unwrap();
    for said in [
        "member=a",
        "key=2",
        "copy the cluster's key file to this host",
    ] {
        assert!(line.contains(said), "{line}");
    }
    let status = wait("b's status to say so", || {
        let status = scene.status(1);
        let missing = &status["peers"][0]["missing_key"];
        let refused = &status["channel"]["refused"]["unknown_key_id"];
        (!missing.is_null() && missing["datagrams"] == *refused).then_some(status)
    });
    assert_eq!(status["peers"][0]["missing_key"]["id"], 2, "{status}");
    assert_eq!(status["peers"][0]["heard_with"], 1);
    let text = scene.hosts[1].command(&["status"]).1;
    assert!(
        text.contains("under keys that this host lacks, the last under key 2"),
        "{text}"
    );
    // Packets go on meanwhile, and a hears b.
    (0..50).for_each(|_| scene.load());
    assert!(scene.hosts[1].live("sessions") < u64::from(scene.flows));

    // First a copy that others can read, then a damaged one: reported, and nothing changes.
    let path = scene.cluster.path("b.key");
    let whole = std::fs::read_to_string(scene.cluster.path("a.key")).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    scene.load_until("the mistake to be reported", |scene| {
        let log = scene.hosts[1].log();
        log.contains("event=keys-refused") && log.contains("b.key:1: the heading announces 2 keys")
            || log.contains("b.key:2: ")
    });
    assert_eq!(
        scene.status(1)["channel"]["accepts"],
        serde_json::json!([1])
    );
    let admitted = scene.hosts[1]
        .log()
        .matches("event=member-admitted")
        .count();
    scene.cluster.copy_key("a.key", "b");
    scene.agree();
    scene.load_until("both to be heard with the new key", |scene| {
        scene.heard_by_all_with(2)
    });
    scene.agree();
    assert_eq!(
        scene.hosts[1]
            .log()
            .matches("event=member-admitted")
            .count(),
        admitted,
        "in the same session"
    );

    // The next key is drawn at both, instead of being copied.
    scene.step(&["--new"]);
    assert_eq!(key(&scene.cluster, "b", &["--new"]).0, End::Done);
    scene.load_until("both to hear of it", |scene| {
        (0..2).all(|place| {
            scene.status(place)["peers"][0]["differing_keys"] == serde_json::json!([3])
        })
    });
    let (end, text) = key(&scene.cluster, "a", &["--use", "3"]);
    assert!(
        end == End::File && text.contains("b would no longer accept a's datagrams"),
        "{text}"
    );
    let text = scene.hosts[0].command(&["status"]).1;
    assert!(
        text.contains("has a key 3 that differs from this host"),
        "{text}"
    );
    scene.cluster.copy_key("a.key", "b");
    scene.load_until("both to have the same", |scene| {
        scene.accepted_by_all(&[1, 2, 3])
    });

    // Another cluster's key is not taken up, whatever its number.
    std::fs::remove_file(&path).unwrap();
    asterism_config::key_file::write_new(&path, 4).unwrap();
    wait("the other cluster's key to be refused", || {
        scene.hosts[1]
            .log()
            .contains("another hash seed")
            .then_some(())
    });
    assert_eq!(
        scene.status(1)["channel"]["accepts"],
        serde_json::json!([1, 2, 3])
    );
    scene.load();
    scene.agree();
    scene.hosts.iter_mut().for_each(Host::stop);
}
