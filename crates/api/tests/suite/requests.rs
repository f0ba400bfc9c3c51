//! What each route answers, to each scope, and what is refused with which problem.

use std::time::Duration;

use asterism_api::data::{Event, Events, Order, Problem};
use asterism_api::testing::{Answer, Exchange};
use asterism_api::{OrderError, Scope};
use serde_json::{Value, json};

use crate::start::Started;

fn json_of(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

fn problem(answer: &Answer) -> (u16, String) {
    let problem: Problem = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(problem.status, answer.status);
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    assert!(!problem.title.is_empty() && !problem.detail.is_empty());
    (problem.status, problem.code().to_owned())
}

#[test]
fn a_tenant_gets_its_own_and_what_is_not_is_absent_or_404() {
    let (started, secrets) = Started::guarded(|_| ());
    let get = |target: &str| {
        let request = Exchange::new("GET", target).token(&secrets.blue);
        request.send(started.local()).unwrap()
    };
    let hosts = json_of(&get("/v1/hosts"));
    let names: Vec<&str> = hosts["hosts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|host| host["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["blue-1", "blue-2"]);
    assert_eq!(get("/v1/hosts/blue-1").status, 200);
    // Another tenant's host and none at all are answered alike, but for the name asked for.
    let other = get("/v1/hosts/green-1");
    let none = get("/v1/hosts/nowhere-1");
    assert_eq!(problem(&other), (404, "not-found".to_owned()));
    assert_eq!(other.body.replace("green-1", "nowhere-1"), none.body);
    for hidden in ["/v1/plan", "/metrics", "/v1/nothing"] {
        assert_eq!(
            problem(&get(hidden)),
            (404, "not-found".to_owned()),
            "{hidden}"
        );
    }
    let events: Events = serde_json::from_str(&get("/v1/events?after=0").body).unwrap();
    assert_eq!(
        (events.events.len(), events.next, events.missed),
        (1, 3, false)
    );
    assert_eq!(
        json_of(&get("/v1/usage"))["tenants"],
        json!([{"tenant": "blue", "packets": 5, "bytes": 0, "flows": 0, "instance_ms": 0}])
    );
    let flows = json_of(&get("/v1/flows"));
    assert_eq!(flows["flows"].as_array().unwrap().len(), 2);
    assert_eq!(
        json_of(&get("/v1/flows?host=green-1")),
        json!({"flows": [], "is_cut": false})
    );
}

#[test]
fn a_tenant_orders_about_its_own_hosts_alone() {
    let (started, secrets) = Started::guarded(|_| ());
    let post = |target: &str, body: &str| {
        let request = Exchange::new("POST", target)
            .token(&secrets.blue)
            .json(body);
        request.send(started.local()).unwrap()
    };
    assert_eq!(post("/v1/hosts/blue-1/drain", "{}").status, 202);
    assert_eq!(
        post("/v1/hosts/blue-1/restore", r#"{"reason": "done"}"#).status,
        202
    );
    let other = post("/v1/hosts/green-1/drain", "{}");
    let none = post("/v1/hosts/nowhere-1/drain", "{}");
    assert_eq!(problem(&other), (404, "not-found".to_owned()));
    assert_eq!(other.body.replace("green-1", "nowhere-1"), none.body);
    for (target, body) in [
        ("/v1/hosts/shared-1/drain", "{}"),
        ("/v1/hosts/blue-1/fence", r#"{"incarnation": 1}"#),
        ("/v1/hosts/blue-1/forget", "{}"),
        ("/v1/scale", r#"{"to": 9}"#),
        ("/v1/moves", r#"{"what": {"bucket": 1}, "to": "blue-1"}"#),
    ] {
        assert_eq!(post(target, body).status, 404, "{target}");
    }
    let orders = started.cluster.orders();
    let kinds: Vec<_> = orders
        .iter()
        .map(|(caller, order)| (caller.name.as_str(), order.host(), order.reason()))
        .collect();
    assert_eq!(
        kinds,
        [
            ("blue", Some("blue-1"), None),
            ("blue", Some("blue-1"), Some("done"))
        ]
    );
    assert_eq!(orders[0].0.scope, Scope::Tenant("blue".to_owned()));
    assert!(orders[0].0.address.is_loopback());
}

#[test]
fn readers_read_and_operators_order() {
    let (started, secrets) = Started::guarded(|_| ());
    let scale = || Exchange::new("POST", "/v1/scale").json(r#"{"to": 3}"#);
    let refused = scale()
        .token(&secrets.reader)
        .send(started.local())
        .unwrap();
    assert_eq!(problem(&refused), (403, "read-only".to_owned()));
    let none = scale().send(started.local()).unwrap();
    assert_eq!(problem(&none), (401, "token-missing".to_owned()));
    assert!(
        none.header("www-authenticate")
            .unwrap()
            .starts_with("Bearer")
    );
    assert_eq!(started.cluster.orders(), []);
    let done = scale()
        .token(&secrets.operator)
        .send(started.local())
        .unwrap();
    assert_eq!(done.status, 202);
    assert_eq!(json_of(&done)["changed"], true);
    let metrics = Exchange::new("GET", "/metrics")
        .token(&secrets.reader)
        .send(started.local())
        .unwrap();
    assert!(metrics.body.contains("asterism_hosts 5\n"), "{metrics:?}");
    assert_eq!(started.refused("token-missing", &metrics.body), 1);
    assert_eq!(started.refused("scope", &metrics.body), 1);
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(metrics.header(name), Some(value));
    }
    assert!(
        metrics
            .headers
            .iter()
            .all(|(name, _)| !name.starts_with("access-control")),
        "no CORS"
    );
}

#[test]
fn errors_of_orders_have_their_status_and_problem() {
    let started = Started::open(|_| ());
    let leader = "https://192.0.2.9:8443".to_owned();
    let why = || "incarnation 9 was not named yet".to_owned();
    for (error, status, code) in [
        (
            OrderError::UnknownHost {
                host: "x".to_owned(),
            },
            404,
            "not-found",
        ),
        (OrderError::Conflict { why: why() }, 409, "conflict"),
        (
            OrderError::NotLeader {
                leader: Some(leader.clone()),
            },
            421,
            "not-leader",
        ),
        (OrderError::NotLeader { leader: None }, 503, "no-leader"),
        (OrderError::Refused { why: why() }, 422, "refused"),
        (
            OrderError::Unavailable {
                why: why(),
                retry_after: Duration::from_millis(2_100),
            },
            503,
            "unavailable",
        ),
    ] {
        started.cluster.refuse(Some(error.clone()));
        let request = Exchange::new("POST", "/v1/hosts/blue-1/fence").json(r#"{"incarnation": 9}"#);
        let answer = request.send(started.local()).unwrap();
        assert_eq!(problem(&answer), (status, code.to_owned()));
        let body: Problem = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(body.detail, error.to_string());
        match error {
            OrderError::NotLeader { leader } => assert_eq!(body.leader, leader),
            OrderError::Unavailable { .. } => {
                assert_eq!(body.retry_after_ms, Some(2_100));
                assert_eq!(answer.header("retry-after"), Some("3"));
            }
            _ => {}
        }
        let plan = Exchange::new("GET", "/v1/plan")
            .send(started.local())
            .unwrap();
        assert_eq!(plan.status, status);
    }
    started.cluster.refuse(None);
    let answer = Exchange::new("POST", "/v1/moves")
        .json(r#"{"what": {"flow": "tcp a b"}, "to": "nowhere"}"#);
    assert_eq!(answer.send(started.local()).unwrap().status, 404);
    let moved = Exchange::new("POST", "/v1/moves")
        .json(r#"{"what": {"flow": "tcp a b"}, "to": "green-1"}"#);
    assert_eq!(moved.send(started.local()).unwrap().status, 202);
    assert!(matches!(&started.cluster.orders()[0].1, Order::Move(order) if order.to == "green-1"));
}

#[test]
fn what_cannot_be_read_is_a_problem_and_no_order() {
    let started = Started::open(|_| ());
    let long = "x".repeat(300);
    let long_reason = format!(r#"{{"reason": "{long}"}}"#);
    let long_flow = format!(r#"{{"what": {{"flow": "{long}"}}, "to": "blue-1"}}"#);
    for (target, body, status, code) in [
        ("/v1/scale", "", 400, "malformed"),
        ("/v1/scale", "{", 400, "malformed"),
        ("/v1/scale", "[]", 400, "malformed"),
        ("/v1/scale", "{}", 400, "malformed"),
        ("/v1/scale", r#"{"to": -1}"#, 400, "malformed"),
        ("/v1/scale", r#"{"to": 4294967296}"#, 400, "malformed"),
        ("/v1/scale", r#"{"to": 3, "force": true}"#, 400, "malformed"),
        ("/v1/scale", r#"{"to": 3} {"to": 4}"#, 400, "malformed"),
        (
            "/v1/moves",
            r#"{"what": {"bucket": 1, "flow": "x"}, "to": "blue-1"}"#,
            400,
            "malformed",
        ),
        (
            "/v1/moves",
            r#"{"what": {"all": 1}, "to": "blue-1"}"#,
            400,
            "malformed",
        ),
        ("/v1/moves", &long_flow, 422, "refused"),
        ("/v1/hosts/blue-1/drain", &long_reason, 422, "refused"),
        (
            "/v1/hosts/blue-1/drain",
            r#"{"reason": "a\u0000b"}"#,
            422,
            "refused",
        ),
        ("/v1/hosts/%FF/drain", "{}", 400, "malformed"),
        ("/v1/hosts/a%0Ab/drain", "{}", 400, "malformed"),
    ] {
        let answer = Exchange::new("POST", target)
            .json(body)
            .send(started.local())
            .unwrap();
        assert_eq!(
            problem(&answer),
            (status, code.to_owned()),
            "{target} {body}"
        );
    }
    let media = Exchange::new("POST", "/v1/scale")
        .body(r#"{"to": 3}"#)
        .send(started.local())
        .unwrap();
    assert_eq!(problem(&media), (415, "media".to_owned()));
    for target in [
        "/v1/events?after=x",
        "/v1/events?max=0",
        "/v1/events?max=501",
        "/v1/events?since=1",
        "/v1/events/stream?max=0",
        "/v1/flows?address=example.com",
        "/v1/flows?protocol=sctp",
        "/v1/flows?port=65536",
        "/v1/flows?prot=tcp",
    ] {
        let answer = Exchange::new("GET", target).send(started.local()).unwrap();
        assert_eq!(problem(&answer), (400, "malformed".to_owned()), "{target}");
    }
    let target = format!("/v1/flows?host={}", "x".repeat(4_000));
    let answer = Exchange::new("GET", &target).send(started.local()).unwrap();
    assert_eq!(problem(&answer), (414, "target-long".to_owned()));
    assert_eq!(started.cluster.orders(), []);
}

#[test]
fn events_are_paged_and_what_was_missed_is_said() {
    let started = Started::open(|_| ());
    let get = |target: &str| -> Events {
        let answer = Exchange::new("GET", target).send(started.local()).unwrap();
        serde_json::from_str(&answer.body).unwrap()
    };
    let numbers = |events: &Events| -> Vec<u64> {
        events
            .events
            .iter()
            .map(|event: &Event| event.sequence)
            .collect()
    };
    let newest = get("/v1/events?max=2");
    assert_eq!(
        (numbers(&newest), newest.next, newest.missed),
        (vec![2, 3], 3, false)
    );
    let first = get("/v1/events?after=0&max=1");
    assert_eq!((numbers(&first), first.next, first.newest), (vec![1], 1, 3));
    let none = get("/v1/events?after=3&log=7");
    assert_eq!((numbers(&none), none.next, none.missed), (vec![], 3, false));
    for _ in 0..1_200 {
        started.cluster.event(None, "more");
    }
    let gap = get("/v1/events?after=3&max=1");
    assert_eq!((numbers(&gap), gap.missed), (vec![204], true));
    let whole = get("/v1/events?after=203&max=500");
    assert_eq!(
        (whole.events.len(), whole.next, whole.missed),
        (500, 703, false)
    );
    started.cluster.another_log();
    started.cluster.event(None, "the new leader's");
    for target in ["/v1/events?after=1&log=7", "/v1/events?after=1203"] {
        let other = get(target);
        assert_eq!(
            (numbers(&other), other.missed, other.log),
            (vec![1], true, 8),
            "{target}"
        );
    }
}

/// A tenant whose events are far apart gets on, though many parts of the log have none.
#[test]
fn a_tenant_reads_past_others_events() {
    let (started, secrets) = Started::guarded(|_| ());
    for _ in 0..900 {
        started.cluster.event(Some("green"), "noise");
    }
    started.cluster.event(Some("blue"), "found");
    let target = "/v1/events?after=1&log=7";
    let answer = Exchange::new("GET", target)
        .token(&secrets.blue)
        .send(started.local())
        .unwrap();
    let events: Events = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(events.events.len(), 1);
    assert_eq!(
        (events.events[0].reason.as_str(), events.next),
        ("found", 904)
    );
}

#[test]
fn a_panic_of_the_orchestrator_is_one_answer() {
    let started = Started::open(|_| ());
    started.cluster.panic(true);
    let answer = Exchange::new("GET", "/v1/plan")
        .send(started.local())
        .unwrap();
    assert_eq!(problem(&answer), (500, "broken".to_owned()));
    started.cluster.panic(false);
    for _ in 0..20 {
        let answer = Exchange::new("GET", "/v1/plan")
            .send(started.local())
            .unwrap();
        assert_eq!(answer.status, 200);
    }
}

#[test]
fn names_of_a_proxy_are_accepted_and_others_are_not() {
    let started = Started::open(|config| config.names = vec!["cluster.example".to_owned()]);
    let port = started.local().port();
    let with = |host: &str| {
        let request = Exchange::new("GET", "/v1/cluster").header("Host", host);
        request.send_bare(started.local()).unwrap().status
    };
    for good in [
        "cluster.example",
        "Cluster.Example",
        "localhost",
        "127.0.0.1",
        "[::1]",
    ] {
        assert_eq!(with(good), 200, "{good}");
        assert_eq!(with(&format!("{good}:{port}")), 200, "{good}");
    }
    for bad in [
        "cluster.example.evil",
        "evil",
        "",
        "127.0.0.1:1",
        "localhost:x",
        "127.0.0.1.nip.io",
        "[::2]",
    ] {
        assert_eq!(with(bad), 421, "{bad}");
    }
    let two = Exchange::new("GET", "/v1/cluster")
        .header("Host", "localhost")
        .header("Host", "localhost");
    assert!(!two.send_bare(started.local()).unwrap().is_success());
    let absolute =
        Exchange::new("GET", "http://rebound.example/v1/cluster").header("Host", "localhost");
    assert!(!absolute.send_bare(started.local()).unwrap().is_success());
}
