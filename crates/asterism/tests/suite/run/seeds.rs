//! Two clusters, each with a key of its own, that name one store by one name: the second one is refused, and the first one keeps its access when
//! its key changes.

use asterism_output::End;

use crate::run::host::{Cluster, FIREWALL, Host, outbound, wait};
use crate::run::keys::key;
use crate::run::stores::{Ends, LONG, StoreProcess};

/// A cluster of one firewall whose flows are in this store, with a key of its own.
fn cluster(store: &StoreProcess) -> Cluster {
    let remote = "{ placement = \"remote\" }";
    let tables = format!(
        "[store]\naddress = \"{}\"\n{LONG}{FIREWALL}[function.firewall.state]\nflows = {remote}\nfragments = {remote}\n",
        store.address
    );
    let cluster = Cluster::of(1, "", &tables);
    std::fs::write(cluster.path("some.rules"), "allow udp on inside\n").unwrap();
    cluster
}

/// A packet passes, so the host uses the store.
fn passes(cluster: &Cluster, host: &Host, flow: u16) {
    let mut ends = Ends::of(cluster, &host.name);
    ends.inside.send(&outbound(flow));
    assert_eq!(ends.outside.next(), outbound(flow), "{}", host.log());
}

#[test]
fn a_cluster_with_another_key_is_refused_and_one_that_changes_its_key_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = StoreProcess::start(folder.path(), "127.0.0.1:0", &[]);
    let (first, second) = (cluster(&store), cluster(&store));
    let mut a = first.start(0);
    passes(&first, &a, 4_000);
    let mut other = second.start(0);
    wait("the store to refuse it", || {
        let store = &other.ask(&["status"])["store"];
        (store["away"] == "hash-seed").then_some(())
    });
    let cure = "give this host the key file of that cluster";
    other.says(&["status"], End::Done, &["away", "(hash-seed)", cure]);
    wait("its line", || {
        let log = other.log();
        let is_there = log.contains("event=store-away") && log.contains("why=hash-seed");
        (is_there && log.contains(cure)).then_some(())
    });
    let found = ["state", "get", "10.0.0.2:4000", "--object", "flows"];
    other.says(&found, End::DoesNotHold, &["hash-seed"]);
    a.says(&found, End::Done, &["10.0.0.2:4000"]);
    // With the first one's key file it is of that cluster.
    other.stop();
    std::fs::copy(first.path("cluster.key"), second.path("cluster.key")).unwrap();
    let mut other = second.start(0);
    passes(&second, &other, 4_001);
    a.says(&found, End::Done, &["10.0.0.2:4000"]);
    other.stop();
    a.stop();
    // All steps of a change, which keep the seed.
    for step in [&["--new"][..], &["--use", "2"], &["--drop", "1"]] {
        let (end, said) = key(&first, "a", &[step, &["--force"]].concat());
        assert_eq!(end, End::Done, "{step:?}: {said}");
    }
    let a = first.start(0);
    passes(&first, &a, 4_002);
}
