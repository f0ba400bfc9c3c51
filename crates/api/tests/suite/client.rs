//! The client against the server.

use std::net::TcpListener;
use std::time::Duration;

use asterism_api::OrderError;
use asterism_api::client::{Client, ClientConfig, ClientError, Position};
use asterism_api::data::{
    Drain, Fence, FlowQuery, Move, MoveWhat, Protocol, Restore, Scale, Severity, StateQuery,
};

use crate::start::{Started, WAIT};

fn client(started: &Started, token: Option<&str>) -> Client {
    let mut config = ClientConfig::new(&format!("http://{}", started.local()));
    config.token = token.map(str::to_owned);
    Client::new(&config).unwrap()
}

#[test]
fn every_call_reaches_its_route() {
    let (started, secrets) = Started::guarded(|_| ());
    let client = client(&started, Some(&secrets.operator));
    assert_eq!(client.cluster().unwrap().name, "edge");
    assert_eq!(client.hosts().unwrap().hosts.len(), 5);
    assert_eq!(client.host("green-2").unwrap().name, "green-2");
    let query = FlowQuery {
        address: Some("2001:db8::1".to_owned()),
        port: Some(443),
        protocol: Some(Protocol::Tcp),
        host: Some("blue-1".to_owned()),
    };
    assert_eq!(client.flows(&query).unwrap().flows.len(), 1);
    let status: serde_json::Value = client.host_status("blue-1").unwrap();
    assert_eq!(status["host"], "blue-1");
    assert_eq!(client.state().unwrap().objects.len(), 1);
    let query = StateQuery {
        key: Some("10.0.0.1:4000/udp & more".to_owned()),
        ..StateQuery::default()
    };
    let entries = client.entries("sess/ions", &query).unwrap();
    assert_eq!(entries.object, "sess/ions");
    assert_eq!(entries.entries[0].key, "10.0.0.1:4000/udp & more");
    assert_eq!(client.plan().unwrap().maximum, 8);
    assert_eq!(client.health().unwrap().worst, Some(Severity::Notice));
    assert_eq!(client.usage().unwrap().tenants.len(), 2);
    assert!(client.metrics().unwrap().contains("asterism_hosts 5"));
    let events = client.events(None, 2).unwrap();
    let position = Position {
        log: events.log,
        after: events.next,
    };
    started.cluster.event(None, "later");
    let later = client.events(Some(position), 100).unwrap();
    assert_eq!(
        (
            later.events.len(),
            later.events[0].reason.as_str(),
            later.missed
        ),
        (1, "later", false)
    );

    let reason = Some("a test".to_owned());
    client
        .drain(
            "blue-1",
            &Drain {
                reason: reason.clone(),
            },
        )
        .unwrap();
    client.restore("blue-1", &Restore::default()).unwrap();
    client
        .fence(
            "blue-1",
            &Fence {
                incarnation: 1,
                reason,
            },
        )
        .unwrap();
    client
        .scale(&Scale {
            to: 3,
            reason: None,
        })
        .unwrap();
    let order = Move {
        what: MoveWhat::Bucket(3),
        to: "blue-2".to_owned(),
        reason: None,
    };
    client.move_to(&order).unwrap();
    assert_eq!(started.cluster.orders().len(), 5);
}

#[test]
fn refusals_say_what_to_do() {
    let (started, secrets) = Started::guarded(|_| ());
    let refused = client(&started, None).cluster().unwrap_err();
    assert!(
        matches!(&refused, ClientError::Refused(problem) if problem.code() == "token-missing"),
        "{refused}"
    );
    assert!(refused.to_string().contains("Bearer"), "{refused}");
    let operator = client(&started, Some(&secrets.operator));
    let refused = operator.host("a/../b").unwrap_err();
    assert!(
        matches!(&refused, ClientError::Refused(problem) if problem.status == 404),
        "{refused}"
    );
    let leader = "https://192.0.2.9:8443".to_owned();
    started.cluster.refuse(Some(OrderError::NotLeader {
        leader: Some(leader.clone()),
    }));
    let refused = operator
        .scale(&Scale {
            to: 3,
            reason: None,
        })
        .unwrap_err();
    assert_eq!(refused.leader(), Some(leader.as_str()));
    assert!(
        refused
            .to_string()
            .contains("order at https://192.0.2.9:8443"),
        "{refused}"
    );
}

#[test]
fn whether_an_order_may_be_carried_out_is_known() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", free.local_addr().unwrap());
    let client = |wait: Duration| {
        let mut config = ClientConfig::new(&address);
        config.wait = wait;
        Client::new(&config).unwrap()
    };
    let order = |client: &Client| {
        let order = Scale {
            to: 3,
            reason: None,
        };
        client.scale(&order).unwrap_err()
    };
    // A machine that stands still may use up the time before the order is sent.
    let silent = client(Duration::from_millis(300));
    let mut tries = (0..20).map(|_| order(&silent));
    let lost = tries.find(|error| !matches!(error, ClientError::Unreachable { .. }));
    assert!(matches!(lost, Some(ClientError::Lost { .. })), "{lost:?}");
    drop(free);
    let refused = order(&client(WAIT));
    assert!(
        matches!(refused, ClientError::Unreachable { .. }),
        "{refused}"
    );
}

#[test]
fn a_server_of_another_kind_is_recognised() {
    use std::io::{Read, Write};
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\nConnection: close\r\n\r\nproxy",
        "HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let other = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4_096];
            let count = stream.read(&mut request).unwrap();
            assert!(count > 0);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let error = Client::new(&ClientConfig::new(&address))
            .unwrap()
            .cluster()
            .unwrap_err();
        assert!(matches!(error, ClientError::Unreadable { .. }), "{error}");
        other.join().unwrap();
    }
}
