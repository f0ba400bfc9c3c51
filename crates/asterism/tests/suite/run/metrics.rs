//! What Prometheus reads of a running host: a parser that takes nothing but the text format 0.0.4, and what must be in it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;

use asterism_function::Reason;
use asterism_io::port::PortDrop;

use crate::run::host::{Cluster, outbound, own_loopback_socket, wait};

/// Samples by name and labels.
type Samples = BTreeMap<(String, BTreeMap<String, String>), f64>;

fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// The labels of `{a="x",b="y"}`, and what follows.
fn labels(text: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    let Some(mut rest) = text.strip_prefix('{') else {
        return (labels, text);
    };
    loop {
        let (name, after) = rest
            .split_once("=\"")
            .expect("a label has a value in quotes");
        assert!(is_name(name), "{name}");
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next().expect("a value ends") {
                (_, '\\') => match letters.next().expect("something is escaped").1 {
                    'n' => value.push('\n'),
                    letter @ ('\\' | '"') => value.push(letter),
                    other => panic!("\\{other} is no escape"),
                },
                (place, '"') => break place,
                (_, letter) => value.push(letter),
            }
        };
        assert!(
            labels.insert(name.to_owned(), value).is_none(),
            "{name} twice"
        );
        rest = &after[end + 1..];
        match rest.split_at(1) {
            (",", more) => rest = more,
            ("}", more) => return (labels, more),
            (other, _) => panic!("`{other}` between labels"),
        }
    }
}

fn parse(text: &str) -> Samples {
    assert!(text.ends_with('\n'), "the last line ends");
    let (mut samples, mut families) = (Samples::new(), BTreeSet::new());
    let (mut help, mut family): (Option<&str>, Option<(&str, &str)>) = (None, None);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, meaning) = rest.split_once(' ').unwrap();
            assert!(meaning.ends_with('.'), "{line}");
            help = Some(name);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(help, Some(name), "help comes first");
            assert!(families.insert(name), "{name} is one family");
            assert!(is_name(name) && name.starts_with("asterism_"), "{name}");
            assert!(matches!(kind, "counter" | "gauge"), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            family = Some((name, kind));
        } else {
            let (known, kind) = family.expect("a sample is of a family");
            let end = line.find(['{', ' ']).unwrap();
            assert_eq!(&line[..end], known, "{line}");
            let (labels, rest) = labels(&line[end..]);
            let value: f64 = rest.strip_prefix(' ').unwrap().parse().unwrap();
            assert!(kind != "counter" || value >= 0.0, "{line}");
            let key = (known.to_owned(), labels);
            assert!(samples.insert(key, value).is_none(), "{line} twice");
        }
    }
    samples
}

/// The page of metrics; `None` from a host that cannot serve it now.
pub(crate) fn fetch(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"),
        "{head}"
    );
    assert!(
        head.contains(&format!("Content-Length: {}", body.len())),
        "{head}"
    );
    Some(body.to_owned())
}

/// A cluster whose first host serves metrics, and where; `settings` go into `[host]`.
fn served(hosts: usize, settings: &str) -> (Cluster, String) {
    let address = own_loopback_socket().to_string();
    let cluster = Cluster::new(hosts, "");
    cluster.edit(
        "join_wait = \"2s\"",
        &format!("join_wait = \"100ms\"\nmetrics = \"{address}\"\n{settings}"),
    );
    (cluster, address)
}

#[test]
fn where_packet_loops_spin_the_state_channel_sleeps() {
    let (cluster, address) = served(1, "idle = \"spin\"");
    let _host = cluster.start(0);
    let times = || {
        let samples = parse(&fetch(&address)?);
        let of = |name: &str| samples.get(&(name.to_owned(), BTreeMap::new())).copied();
        Some((
            of("asterism_uptime_seconds")?,
            of("asterism_channel_processor_seconds_total")?,
        ))
    };
    let begin = wait("a host that runs", times);
    let (passed, spent) = wait("a second", || {
        let (up, spent) = times()?;
        let passed = up - begin.0;
        (passed >= 1.0).then_some((passed, spent - begin.1))
    });
    assert!(spent < passed / 20.0, "{spent} of {passed} s on a core");
}

#[test]
fn metrics_are_well_formed_and_count_what_happens() {
    let (cluster, address) = served(2, "");
    let host = cluster.start(0);
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    for port in 4_000..4_010 {
        inside.send(&outbound(port));
        outside.next();
    }
    let value = |samples: &Samples, name: &str, with: &[(&str, &str)]| {
        let labels = with
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        *samples
            .get(&(name.to_owned(), labels))
            .unwrap_or_else(|| panic!("{name} {with:?} is missing"))
    };
    let samples = wait("ten packets", || {
        let samples = parse(&fetch(&address)?);
        // A page leaves out an instance that gave no answer in time.
        let label = [("instance".to_owned(), "0".to_owned())].into();
        let sent = *samples.get(&("asterism_packets_forwarded_total".to_owned(), label))?;
        // The state channel shows what it has by a thread of its own.
        let logged = value(&samples, "asterism_log_bytes", &[]);
        (sent == 10.0 && logged > 0.0).then_some(samples)
    });
    let instance = ("instance", "0");
    assert_eq!(
        value(&samples, "asterism_groups_written_total", &[instance]),
        10.0
    );
    assert_eq!(
        value(
            &samples,
            "asterism_object_entries",
            &[instance, ("object", "sessions")]
        ),
        10.0
    );
    let port = [instance, ("port", "inside")];
    assert_eq!(
        value(&samples, "asterism_port_received_packets_total", &port),
        10.0
    );
    assert_eq!(value(&samples, "asterism_port_up", &port), 1.0);
    assert_eq!(
        value(&samples, "asterism_phase", &[("phase", "running")]),
        1.0
    );
    assert_eq!(
        value(&samples, "asterism_peer_joined", &[("peer", "b")]),
        0.0
    );
    assert!(value(&samples, "asterism_peer_heard_seconds", &[("peer", "b")]).is_nan());
    assert!(
        value(
            &samples,
            "asterism_peer_date_ahead_seconds",
            &[("peer", "b")]
        )
        .is_nan()
    );
    assert!(
        value(
            &samples,
            "asterism_peer_time_ahead_seconds",
            &[("peer", "b")]
        )
        .is_nan()
    );
    assert!(value(&samples, "asterism_date_ahead_seconds", &[]).is_finite());
    assert!(
        value(&samples, "asterism_log_bytes", &[]) > 0.0,
        "nobody acknowledged"
    );
    // The NAT has no reasons of its own.
    for reason in Reason::ALL
        .iter()
        .filter(|reason| reason.own_number().is_none())
    {
        value(
            &samples,
            "asterism_packets_dropped_total",
            &[instance, ("reason", reason.label())],
        );
    }
    for drop in PortDrop::ALL {
        let labels = [instance, ("port", "outside"), ("reason", drop.label())];
        value(&samples, "asterism_port_dropped_packets_total", &labels);
    }
    for name in [
        "asterism_uptime_seconds",
        "asterism_transport_datagrams_sent_total",
        "asterism_replication_groups_submitted_total",
        "asterism_log_capacity_bytes",
    ] {
        assert!(value(&samples, name, &[]) > 0.0, "{name}");
    }
    let families: BTreeSet<_> = samples.keys().map(|(name, _)| name).collect();
    assert!(families.len() > 100, "{}", families.len());
    // What nobody can read twice at a time is read by many one after the other.
    for _ in 0..20 {
        let _ = TcpStream::connect(&address).unwrap();
    }
    wait("an answer", || fetch(&address));
    drop(host);
}

#[test]
fn entries_that_lose_are_counted_in_status_and_metrics() {
    let address = own_loopback_socket().to_string();
    let cluster = Cluster::new(2, "");
    cluster.edit(
        "control = \"a.sock\"",
        &format!("control = \"a.sock\", metrics = \"{address}\""),
    );
    let (mut a, mut b) = (cluster.begin(0, &[]), cluster.begin(1, &[]));
    a.wait_for("READY=1");
    b.wait_for("READY=1");
    let (mut at_a, mut at_b) = (cluster.end("a", "inside"), cluster.end("b", "inside"));
    let sessions = || {
        let status = a.ask(&["status"]);
        let objects = status["instances"][0]["objects"].as_array().unwrap();
        let sessions = objects.iter().find(|one| one["name"] == "sessions");
        sessions.unwrap()["counts"].clone()
    };
    assert!(sessions()["shadowed"].is_null(), "nobody lost yet");
    // The same flow by two hosts within the lag: each gives it a port of its own, and one of the two is not found any more.
    let mut flows = 4_000..;
    let shadowed = wait("an entry that lost", || {
        for flow in flows.by_ref().take(20) {
            at_a.send(&outbound(flow));
            at_b.send(&outbound(flow));
        }
        sessions()["shadowed"].as_u64()
    });
    assert!(shadowed > 0);
    let text = a.command(&["status"]).1;
    assert!(text.contains(" shadowed\n"), "{text}");
    let labels = [("instance", "0"), ("object", "sessions")];
    let labels: BTreeMap<_, _> = labels.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    let samples = parse(&wait("metrics", || fetch(&address)));
    let of = |name: &str| samples.get(&(format!("asterism_object_{name}_total"), labels.clone()));
    assert!(of("shadowed").is_some_and(|value| *value >= shadowed as f64));
    assert_eq!(of("refused_full"), Some(&0.0));
    assert_eq!(of("written_off"), None, "a table has no tokens");
}
