//! Copies of packets go to a port of their own, on a running host: whether somebody listens there, is slow, or is not there at all.

use asterism_output::End;
use serde_json::Value;

use crate::run::host::{Cluster, Host, NAT, OUTSIDE, outbound, wait};

const PORT: &str =
    "[port.span]\nkind = \"shared_memory\"\nrole = \"listen\"\npath = \"a.span\"\nring = 64\n";

/// What the host says of its port `span`.
fn span(host: &Host) -> Value {
    let status = host.ask(&["status"]);
    let ports = status["instances"][0]["ports"].as_array().unwrap();
    let port = ports.iter().find(|port| port["name"] == "span").unwrap();
    port.clone()
}

fn dropped(host: &Host, reason: &str) -> u64 {
    span(host)["dropped"][reason].as_u64().unwrap_or(0)
}

#[test]
fn copies_leave_by_a_port_of_their_own_and_packets_never_wait_for_it() {
    let tables = format!("{PORT}{NAT}");
    let cluster = Cluster::of(1, "chain = [\"span\", \"nat\"]", &tables);
    let mut a = cluster.start(0);
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    // Nobody listens.
    for port in 4_000..4_100 {
        inside.send(&outbound(port));
        assert_eq!(outside.next().source, OUTSIDE);
    }
    wait("the drops of a link that is down", || {
        (dropped(&a, "port-link-down") == 100).then_some(())
    });

    // Somebody does: copies are as packets are at that place, in front of the NAT.
    let mut listener = cluster.end("a", "span");
    wait("the link", || span(&a)["is_up"].as_bool().filter(|up| *up));
    for port in 4_000..4_030 {
        inside.send(&outbound(port));
        outside.next();
        assert_eq!(listener.next(), outbound(port));
    }

    // It may watch and cannot speak.
    for _ in 0..10 {
        listener.send(&outbound(5_000));
    }
    wait("what it says to be dropped", || {
        (dropped(&a, "port-sends-only") == 10).then_some(())
    });
    assert!(outside.take().is_empty() && inside.take().is_empty());
    assert_eq!(span(&a)["received_packets"], 0);

    // It reads no more: its ring is full, and packets pass as before.
    for port in 4_000..4_300 {
        inside.send(&outbound(port));
        assert_eq!(outside.next().source, OUTSIDE);
    }
    let sent = wait("the drops of a full ring", || {
        let sent = span(&a)["sent_packets"].as_u64().unwrap();
        let full = dropped(&a, "port-queue-full") + dropped(&a, "port-back-pressure");
        (sent + full == 330).then_some(sent)
    });
    assert!(sent < 120, "{sent} found room in a ring of 64");
    let status = a.ask(&["status"]);
    let instance = &status["instances"][0];
    assert_eq!(instance["stages"][0]["mirrored"], 430);
    assert_eq!(instance["stages"][0]["mirror_lost"], 0);
    assert_eq!(instance["counts"]["copies"], 430);
    assert!(a.command(&["status"]).1.contains("430 copies, 0 lost"));

    // Which packets are copied may change.
    cluster.edit(
        "[function.nat]\n",
        "[function.span]\npackets = \"inward\"\n[function.nat]\n",
    );
    let (end, text) = a.command(&["reload"]);
    assert!(
        end == End::Done && text.contains("[function.span] packets"),
        "{text}"
    );
    while !listener.take().is_empty() {}
    inside.send(&outbound(4_000));
    let left = outside.next();
    outside.send(&crate::run::host::answer(&left));
    assert_eq!(inside.next(), listener.next());
    a.stop();
}

/// Without a chain: a wire that is watched.
#[test]
fn copies_of_a_function_alone() {
    let cluster = Cluster::of(1, "", &format!("{PORT}[function.span]\n"));
    let mut a = cluster.start(0);
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    let mut listener = cluster.end("a", "span");
    wait("the link", || span(&a)["is_up"].as_bool().filter(|up| *up));
    for port in 4_000..4_010 {
        inside.send(&outbound(port));
        assert_eq!(
            (outside.next(), listener.next()),
            (outbound(port), outbound(port))
        );
    }
    wait("the count of copies", || {
        let status = a.ask(&["status"]);
        (status["instances"][0]["counts"]["copies"] == 10).then_some(())
    });
    assert!(a.command(&["status"]).1.contains("10 copies sent, 0 lost"));
    a.stop();
}
