//! Who is limited, and what the stages of a chain measure: asked of a host, and read from its metrics.

use std::net::SocketAddr;

use asterism_output::End;

use crate::run::host::{Cluster, outbound, own_loopback_socket, wait};
use crate::run::metrics::fetch;
use crate::run::stores::{Ends, LONG, hosts, on_a_redis, on_the_embedded_store};

const FUNCTIONS: &str = "[function.firewall]\nrules = \"some.rules\"\n\
     [function.limiter]\nsources = { unit = \"packets\", rate = 1, burst = 10 }\n\
     destinations = { unit = \"packets\", rate = 1_000, burst = 1_000 }\n";

#[test]
fn who_is_limited_is_found_and_stages_tell_their_metrics() {
    let cluster = Cluster::of(2, "chain = [\"firewall\", \"limiter\"]", FUNCTIONS);
    std::fs::write(cluster.path("some.rules"), "allow udp on inside\n").unwrap();
    let address = own_loopback_socket().to_string();
    let served = format!("[on.a]\nhost = {{ metrics = \"{address}\",");
    cluster.edit("[on.a]\nhost = {", &served);
    let (mut a, mut b) = (cluster.begin(0, &[]), cluster.begin(1, &[]));
    a.wait_for("READY=1");
    b.wait_for("READY=1");
    let mut inside = cluster.end("a", "inside");
    for number in 0..30u16 {
        inside.send(&outbound(4_000 + number));
    }
    let sources = "limiter.sources";
    let short = ["state", "get", "--value", "short", "--object", sources];
    // What one host let through the other knows too, a moment later.
    for host in [&a, &b] {
        let found = wait("the source that is limited", || {
            let found = host.ask(&short);
            let entries = found["entries"].as_array().unwrap();
            (!entries.is_empty()).then(|| entries.clone())
        });
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0]["object"], sources);
        assert_eq!(found[0]["key"], "10.0.0.2");
        let value = found[0]["value"].as_str().unwrap();
        assert!(value.ends_with(" of 10 tokens, short"), "{value}");
        assert_eq!(found[0].get("member"), None, "all spent from it");
    }
    let found = a.ask(&["state", "get", "198.51.100.2"]);
    let of_destination = found["entries"].as_array().unwrap().iter();
    let of_destination = of_destination
        .filter(|entry| entry["object"] == "limiter.destinations")
        .count();
    assert_eq!(of_destination, 1, "a bucket that is not short: {found}");
    let (end, text) = a.command(&["state", "get", "10.0.0.2", "--object", sources]);
    assert_eq!(end, End::Done);
    assert!(
        text.starts_with("limiter.sources 10.0.0.2\n  value "),
        "{text}"
    );
    assert_eq!(text.lines().count(), 2, "nobody wrote it: {text}");
    let (end, text) = a.command(&["state", "get", "10.9.9.9", "--value", "short"]);
    assert_eq!(end, End::DoesNotHold);
    assert!(
        text.contains("no entry with the key 10.9.9.9 and the value short"),
        "{text}"
    );
    // Each stage tells its own, in status and to Prometheus.
    let own = wait("30 flows", || {
        let own = a.ask(&["status"])["instances"][0]["own"].clone();
        (own["firewall.allowed_flows_total"] == 30).then_some(own)
    });
    assert_eq!(own["firewall.flows"], 30);
    assert_eq!(own["firewall.half_open_connections"], 0);
    assert_eq!(own["limiter.source_buckets"], 1);
    let (_, text) = a.command(&["status"]);
    assert!(text.contains("  limiter.source_buckets 1\n"), "{text}");
    let page = wait("metrics", || fetch(&address));
    for line in [
        "# TYPE asterism_function_allowed_flows_total counter",
        "asterism_function_allowed_flows_total{instance=\"0\",stage=\"firewall\"} 30",
        "# TYPE asterism_function_source_buckets gauge",
        "asterism_function_source_buckets{instance=\"0\",stage=\"limiter\"} 1",
        "asterism_function_without_room_packets_total{instance=\"0\",stage=\"limiter\"} 0",
    ] {
        assert!(page.lines().any(|one| one == line), "{line}\n{page}");
    }
}

/// Two limiters that share nothing but a store: tokens that one has spent the other does not have.
fn limiters_share_the_store(address: SocketAddr) {
    let tables = format!(
        "[store]\naddress = \"{address}\"\n{LONG}[function.limiter]\n\
         sources = {{ unit = \"packets\", rate = 1, burst = 40 }}\n\
         state.sources.placement = \"remote\"\n"
    );
    let cluster = Cluster::of(2, "", &tables);
    let [a, b] = hosts(&cluster);
    let (mut at_a, mut at_b) = (Ends::of(&cluster, "a"), Ends::of(&cluster, "b"));
    for number in 0..40 {
        at_a.inside.send(&outbound(4_000 + number));
        at_a.outside.next();
    }
    for number in 0..40 {
        at_b.inside.send(&outbound(5_000 + number));
    }
    let mut left = 0;
    wait("the packets to leave or to be dropped", || {
        left += at_b.outside.take().len() as u64;
        let status = b.ask(&["status"]);
        let dropped = status["instances"][0]["dropped"]["rate-limited"].as_u64();
        (left + dropped.unwrap_or_default() == 40).then_some(())
    });
    // What refilled meanwhile may be spent: a token each second.
    assert!(left <= 20, "{left} of 40, {}", b.log());
    for host in [&a, &b] {
        let status = wait("the bucket to be counted", || {
            let status = host.ask(&["status"]);
            let buckets = &status["instances"][0]["own"]["source_buckets"];
            (*buckets == 1).then_some(status)
        });
        assert_eq!(status["store"]["address"], address.to_string());
    }
}

#[test]
fn limiters_share_the_embedded_store() {
    on_the_embedded_store(limiters_share_the_store);
}

#[test]
fn limiters_share_a_redis() {
    on_a_redis("limiters that share a Redis", limiters_share_the_store);
}
