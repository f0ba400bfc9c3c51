//! A store that is full: it counts as away, flows that hosts know go on meanwhile, and it is back when it has room.

use asterism_lab::redis::Redis;
use asterism_output::End;

use crate::run::host::{outbound, wait};
use crate::run::stores::{Ends, both_ways, firewalls_of};

#[test]
fn known_flows_go_on_while_a_redis_is_full() {
    let Some(redis) = Redis::start() else {
        println!("SKIPPED a full Redis: redis-server is not installed");
        return;
    };
    let memory_max = |bytes: &str| {
        let set = redis.command(&["CONFIG", "SET", "maxmemory", bytes]);
        assert_eq!(set.unwrap().trim(), "OK");
    };
    let settings = "cache = {}\nwhen_down = \"serve-known\"\nknown_for = \"1h\"\n";
    let (cluster, [a, b]) = firewalls_of(&format!("address = \"{}\"\n{settings}", redis.address()));
    let (mut at_a, mut at_b) = (Ends::of(&cluster, "a"), Ends::of(&cluster, "b"));
    let (known, new) = (outbound(4_000), outbound(4_001));
    let mut passes = |number| both_ways((&mut at_a, &mut at_b), &known, number);
    passes(10);

    // Nothing is written: who looks for entries to be ended finds out.
    memory_max("1");
    for host in [&a, &b] {
        wait("it to count as full", || {
            let status = host.ask(&["status"]);
            let is_full = status["store"]["away"] == "full";
            (is_full && status["store"]["connected"] == false).then_some(())
        });
        wait("the host to say so", || {
            let log = host.log();
            let mut away = log.lines().filter(|line| line.contains("event=store-away"));
            away.any(|line| line.contains("why=full")).then_some(())
        });
        assert_eq!(host.ask(&["status"])["health"][0]["item"], "store-away");
    }
    let shown = ["away (full", "needs a look: the store", "maxmemory"];
    b.says(&["status"], End::Done, &shown);
    passes(10);
    at_a.inside.send(&new);
    wait("a new flow to be dropped", || {
        let status = a.ask(&["status"]);
        let dropped = status["instances"][0]["dropped"].as_object().unwrap();
        let dropped = dropped.values().filter_map(serde_json::Value::as_u64);
        (dropped.sum::<u64>() > 0).then_some(())
    });

    memory_max("0");
    for host in [&a, &b] {
        wait("it to have room", || {
            (host.ask(&["status"])["store"]["connected"] == true).then_some(())
        });
        wait("its line", || {
            host.log().contains("event=store-back").then_some(())
        });
    }
    both_ways((&mut at_a, &mut at_b), &new, 1);
}
