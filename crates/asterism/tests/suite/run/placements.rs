//! Objects that are changed between local and replicated by reloads of one host after another, while packets flow.

use asterism_output::End;
use serde_json::Value;

use crate::run::host::{Cluster, Host, PortEnd, outbound, wait};

const TABLES: &str = "[function.firewall]\nrules = \"some.rules\"\n[function.firewall.state]\nblocked = { placement = \"local\" }\nhits = { placement = \"local\" }\n";
const RULES: &str = "allow udp on inside\ndefault drop\n";
/// Flows that go on meanwhile.
const FLOWS: u16 = 20;

/// Packets of all flows pass while `change` runs, and none is lost. What that gives.
fn during<T: Send>(
    (inside, outside): (&mut PortEnd, &mut PortEnd),
    change: impl FnOnce() -> T + Send,
) -> T {
    std::thread::scope(|scope| {
        let running = scope.spawn(change);
        let mut is_last = false;
        loop {
            for number in 0..FLOWS {
                inside.send(&outbound(4_000 + number));
            }
            let mut passed = 0;
            wait("a packet of each flow", || {
                passed += outside.take().len();
                (passed >= usize::from(FLOWS)).then_some(())
            });
            assert_eq!(passed, usize::from(FLOWS));
            if is_last {
                return running.join().unwrap();
            }
            is_last = running.is_finished();
        }
    })
}

fn placements(host: &Host) -> Vec<Value> {
    let status = host.ask(&["status"]);
    let placements = status.get("placements").and_then(Value::as_array);
    placements.cloned().unwrap_or_default()
}

fn digests(host: &Host) -> Vec<String> {
    let status = host.ask(&["status", "--digests"]);
    let objects = status["instances"][0]["objects"].as_array().unwrap().iter();
    let moved = objects.filter(|object| object["name"] == "blocked" || object["name"] == "hits");
    moved.map(|object| object["digest"].to_string()).collect()
}

fn block(host: &Host, address: &str) {
    host.says(&["block", address, "--for", "1h"], End::Done, &[]);
}

#[test]
fn objects_are_shared_and_local_again_while_packets_flow() {
    let (cluster, [a, b]) = Cluster::of_rules("", TABLES, RULES);
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    let (inside, outside) = (&mut inside, &mut outside);
    during((inside, outside), || {
        block(&a, "203.0.113.1");
        block(&b, "203.0.113.2");
        wait("each to have its own", || {
            ((a.live("blocked"), b.live("blocked")) == (1, 1)).then_some(())
        });
        assert!(placements(&a).is_empty());
    });

    // One host after the other: from the first one on all share what each had.
    cluster.edit("placement = \"local\"", "placement = \"replicated\"");
    during((inside, outside), || {
        let said = "[function.firewall.state.blocked] placement = \"replicated\"";
        a.says(&["reload"], End::Done, &[said]);
        wait("what each had at both", || {
            ((a.live("blocked"), b.live("blocked")) == (2, 2)).then_some(())
        });
        let differing = |host: &Host| -> Vec<Value> {
            let placements = placements(host);
            placements
                .iter()
                .map(|one| one["differing"].clone())
                .collect()
        };
        let [at_a, at_b] = [["b"], ["a"]].map(|name| vec![Value::from(name.to_vec()); 2]);
        wait("both to show who has it otherwise", || {
            (differing(&a) == at_a && differing(&b) == at_b).then_some(())
        });
        assert!(
            a.command(&["status"])
                .1
                .contains("another placement have b")
        );
        b.says(&["reload"], End::Done, &[said]);
        wait("an end of the change", || {
            (placements(&a).is_empty() && placements(&b).is_empty()).then_some(())
        });
    });
    wait("equal states", || {
        (digests(&a) == digests(&b)).then_some(())
    });
    for host in [&a, &b] {
        wait("the log to say so", || {
            let log = host.log();
            let said = [
                "event=placement-differs",
                "event=placement-agreed",
                "object=blocked",
            ];
            said.iter().all(|part| log.contains(part)).then_some(())
        });
        assert!(
            !host.log().contains("event=member-differs"),
            "{}",
            host.log()
        );
        assert!(
            !host.log().contains("event=replica-differs"),
            "{}",
            host.log()
        );
    }

    // And back: until the last one is reloaded all share it.
    cluster.edit("placement = \"replicated\"", "placement = \"local\"");
    during((inside, outside), || {
        b.says(&["reload"], End::Done, &["placement = \"local\""]);
        block(&b, "203.0.113.3");
        wait("what b still shares at a", || {
            (a.live("blocked") == 3).then_some(())
        });
        a.says(&["reload"], End::Done, &["placement = \"local\""]);
        wait("an end of the change", || {
            (placements(&a).is_empty() && placements(&b).is_empty()).then_some(())
        });
        block(&a, "203.0.113.4");
        wait("what was there to stay", || {
            ((a.live("blocked"), b.live("blocked")) == (4, 3)).then_some(())
        });
    });

    // What stays where it is has a reason.
    cluster.edit(
        "blocked = { placement = \"local\" }",
        "blocked = { placement = \"late\", delay = \"5ms\" }",
    );
    let (end, text) = a.command(&["reload"]);
    assert!(
        end == End::File && text.contains("the placement `late` is for tests"),
        "{text}"
    );
    assert_eq!(a.live("blocked"), 4);
}
