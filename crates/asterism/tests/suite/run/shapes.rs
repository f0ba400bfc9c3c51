//! Hosts that would misread each other refuse each other, and one that receives bytes that it cannot read stops and names their sender.

use std::sync::Arc;

use asterism_config::Config;
use asterism_config::functions::Functions;
use asterism_engine::transport::{RunConfig, UdpConfig, spawn};
use asterism_engine::{HostConfig, host};
use asterism_function::{Ask, Builder, Counter, Late, NetworkFunction, Verdict, state};
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::FramePool;
use asterism_placement::{Incarnation, MemberId};
use asterism_state::ObjectSettings;

use crate::run::host::{Cluster, Host, wait};

fn shape(host: &Host) -> String {
    host.ask(&["status"])["shape"].as_str().unwrap().to_owned()
}

/// Two hosts with configurations of their own, of which the second one's is changed: both refuse the other and say so.
fn differ(top: &str, tables: &str, from: &str, to: &str) {
    let mut cluster = Cluster::of(2, top, tables);
    cluster.part();
    let path = cluster.path("b.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from}");
    std::fs::write(path, text.replace(from, to)).unwrap();
    let hosts = [cluster.begin(0, &[]), cluster.begin(1, &[])];
    for (host, other) in hosts.iter().zip(["b", "a"]) {
        wait("the host to say that the other differs", || {
            let log = host.log();
            (log.contains("event=member-differs") && log.contains(&format!("member={other}")))
                .then_some(())
        });
        let status = wait("the refusal to be counted", || {
            let status = host.ask(&["status"]);
            let refused = status["channel"]["refused"]["wrong_cluster"].as_u64();
            (refused > Some(0)).then_some(status)
        });
        assert_eq!(status["peers"][0]["admitted"], false, "{status}");
    }
    assert_ne!(shape(&hosts[0]), shape(&hosts[1]));
    let (_, text) = hosts[0].command(&["status"]);
    let said = format!("shape {}", shape(&hosts[0]));
    assert!(text.contains(&said), "{text}");
}

#[test]
fn hosts_whose_tables_are_of_other_sizes_refuse_each_other_and_both_say_so() {
    differ(
        "",
        &format!("{}\n[function.nat.state]\n", crate::run::host::NAT),
        "[function.nat.state]\n",
        "[function.nat.state]\nsessions = { capacity = 4000 }\n",
    );
}

#[test]
fn hosts_that_share_other_objects_refuse_each_other_whatever_the_function() {
    differ(
        "",
        "[function.limiter]\nsources = { unit = \"packets\", rate = 1, burst = 10 }\n\
         [function.limiter.state]\nsources = { placement = \"replicated\" }\n",
        "\"replicated\"",
        "\"local\"",
    );
}

#[test]
fn functions_are_reported_apart_by_their_names() {
    let kind = |text: &str| {
        let (config, report) = Config::read("asterism.toml", text);
        let config = config.unwrap_or_else(|| panic!("{report:?}"));
        config.function.kind_number()
    };
    let of_stages = |last: &str| {
        kind(&format!(
            "chain = [\"a\", \"b\"]\n[stage.a]\nfunction = \"pass-through\"\n[stage.b]\nfunction = \"{last}\"\n"
        ))
    };
    let kinds = [
        kind("[function.pass-through]\n"),
        kind("[function.port-scan]\n"),
        of_stages("pass-through"),
        of_stages("port-scan"),
    ];
    for (place, number) in kinds.iter().enumerate() {
        assert_eq!(
            kinds.iter().filter(|other| *other == number).count(),
            1,
            "{place}"
        );
    }
}

/// Whatever a host of another build may be.
struct Other;

#[state]
struct OtherState {
    said: Counter,
}

impl NetworkFunction for Other {
    type State = OtherState;
    fn state(&self, builder: &Builder) -> OtherState {
        OtherState {
            said: builder.counter("said"),
        }
    }
    fn packet(&self, _: Ask<'_, OtherState>) -> Result<Verdict, Late> {
        Ok(Verdict::Consumed)
    }
}

#[test]
fn a_host_that_receives_what_it_cannot_read_stops_and_never_acknowledges_it() {
    let cluster = Cluster::new(2, "");
    // It begins alone.
    cluster.edit("join_wait = \"2s\"", "join_wait = \"400ms\"");
    let text = std::fs::read_to_string(cluster.path("asterism.toml")).unwrap();
    let functions = Functions::default();
    let (config, report) = Config::read_for("asterism.toml", &text, Some("b"), functions);
    let config = config.unwrap_or_else(|| panic!("{report:?}"));
    let mut a = cluster.start(0);
    // The test is `b`: with the key, of the right version, and with the shape that the host asks for.
    let shape = u64::from_str_radix(&shape(&a), 16).unwrap();
    let (own, clock) = (MemberId(2), MonotonicClock::new());
    let keys = asterism_config::key_file::read(&cluster.path("cluster.key")).unwrap();
    let of_cluster = &config.cluster;
    let host_config = HostConfig {
        tick_at_zero: clock.wall_at_zero(),
        ..of_cluster.host(own, Incarnation(77), keys, [7; 48], shape)
    };
    let (channel, parts) = host(host_config, clock.now()).unwrap();
    let addresses: Vec<_> = of_cluster.addresses.iter().flatten().copied().collect();
    let udp = UdpConfig::new(addresses[1], [(MemberId(1), addresses[0])]);
    let channel = spawn(channel, &udp, RunConfig::default(), clock).unwrap();
    let mut instance = parts.into_iter().next().unwrap().start(
        Arc::new(Other),
        |_| ObjectSettings::LOCAL,
        FramePool::new(16).unwrap(),
        Vec::new(),
    );
    let acknowledged = || {
        let snapshot = channel.snapshot();
        let members = snapshot.members.iter();
        let mut progress = members.map(|member| &member.progress);
        progress
            .find(|progress| progress.member == MemberId(1))
            .map(|progress| (progress.heard.is_some(), progress.acknowledged))
    };
    wait("the host to be heard", || {
        instance.turn(clock.now());
        acknowledged()?.0.then_some(())
    });
    let sequence = instance.commit_foreign(&[0xF8, 1, 2]).unwrap();
    let status = wait("the host to end", || {
        instance.turn(clock.now());
        channel.waker().ring();
        a.child.try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(1), "{}", a.log());
    let log = a.log();
    for word in [
        "event=not-applied",
        "member=b",
        "incarnation=000000000000004d",
        &format!("group={sequence}"),
        "the host stops rather than differ from the others",
    ] {
        assert!(log.contains(word), "{word}: {log}");
    }
    // What it had of the group is in no file either.
    assert!(!cluster.path("a.state").exists());
    assert!(acknowledged().unwrap().1 < sequence);
    drop(channel.stop());
}
