//! Bounds: connections, bodies, headers, rates, calls, and what is no HTTP at all.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use asterism_api::testing::{Answer, Exchange};

use crate::start::{Started, WAIT};

fn get(started: &Started, target: &str) -> Answer {
    Exchange::new("GET", target).send(started.local()).unwrap()
}

fn connect(started: &Started) -> TcpStream {
    let stream = TcpStream::connect(started.local()).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    stream
}

/// What comes until the server closes; empty if it closed without an answer.
fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the server keeps the connection: {error}"),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Asks over a connection of its own until the answer begins so: a machine that did not come to send all of it in time has to ask again.
fn until_answered(started: &Started, request: &str, beginning: &str) {
    let deadline = Instant::now() + 3 * WAIT;
    loop {
        let mut stream = connect(started);
        // A write may come after the close.
        let _ = stream.write_all(request.as_bytes());
        let answer = rest(&mut stream);
        if answer.starts_with(beginning) {
            return;
        }
        assert!(Instant::now() < deadline, "{answer}");
    }
}

#[test]
fn ten_thousand_connections_beyond_the_bound_are_closed() {
    let started = Started::open(|config| {
        config.limits.connections = 32;
        // However long ten thousand connections take, those that are held are not closed meanwhile.
        config.limits.headers = Duration::from_secs(3_600);
        config.limits.requests_per_second_of_address = 100_000;
        config.limits.requests_per_second_of_caller = 100_000;
    });
    // One is kept alive, so that it can ask what the others cannot.
    let mut asking = connect(&started);
    let mut ask = |target: &str| -> String {
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        asking.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        let mut chunk = [0; 16_384];
        loop {
            let count = asking.read(&mut chunk).unwrap();
            assert!(count > 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&chunk[..count]));
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "));
                if body.len() >= length.unwrap().parse::<usize>().unwrap() {
                    return text;
                }
            }
        }
    };
    assert!(ask("/v1/cluster").starts_with("HTTP/1.1 200"));
    let held: Vec<TcpStream> = (0..31).map(|_| connect(&started)).collect();
    let deadline = Instant::now() + WAIT;
    while !ask("/metrics").contains("asterism_api_connections 32\n") {
        assert!(Instant::now() < deadline, "the places are not taken");
    }
    for number in 0..10_000 {
        let mut beyond = connect(&started);
        // A write may come after the close; what counts is that nothing is answered.
        let _ = beyond.write_all(b"GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(rest(&mut beyond), "", "connection {number}");
    }
    let metrics = ask("/metrics");
    assert_eq!(started.refused("connections", &metrics), 10_000);
    assert!(metrics.contains("asterism_api_connections 32\n"));
    drop(held);
    let deadline = Instant::now() + WAIT;
    while !ask("/metrics").contains("asterism_api_connections 1\n") {
        assert!(Instant::now() < deadline, "the places are not given back");
    }
    assert_eq!(get(&started, "/v1/cluster").status, 200);
}

#[test]
fn slow_clients_are_cut_off() {
    let started = Started::open(|config| {
        config.limits.headers = Duration::from_millis(300);
        config.limits.body = Duration::from_millis(300);
    });
    let begun = Instant::now();
    // Nothing at all, half a line, and a header at a time.
    let mut silent = connect(&started);
    let mut half = connect(&started);
    half.write_all(b"GET /v1/clu").unwrap();
    let mut dripping = connect(&started);
    dripping.write_all(b"GET /v1/cluster HTTP/1.1\r\n").unwrap();
    let drip = std::thread::spawn(move || {
        let until = Instant::now() + WAIT;
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            if dripping.write_all(b"X-Slow: 1\r\n").is_err() {
                return true;
            }
        }
        false
    });
    assert!(!rest(&mut silent).contains("200 OK"));
    assert!(!rest(&mut half).contains("200 OK"));
    assert!(
        drip.join().unwrap(),
        "a header at a time must not go on for ever"
    );
    // A kept connection that asks no more.
    let idle = "GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\n\r\n";
    until_answered(&started, idle, "HTTP/1.1 200");
    // A body that does not come.
    let body = "POST /v1/scale HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{";
    until_answered(&started, body, "HTTP/1.1 408");
    assert!(begun.elapsed() < 3 * WAIT, "{:?}", begun.elapsed());
    assert_eq!(started.cluster.orders(), []);
}

#[test]
fn bodies_and_headers_are_bounded() {
    let started = Started::open(|_| ());
    let order = |bytes: usize| format!(r#"{{"to": 3{}}}"#, " ".repeat(bytes - 9));
    let scale = |bytes: usize| Exchange::new("POST", "/v1/scale").json(&order(bytes));
    assert_eq!(scale(16 * 1024).send(started.local()).unwrap().status, 202);
    assert_eq!(
        scale(16 * 1024 + 1).send(started.local()).unwrap().status,
        413
    );
    // In chunks, without a length.
    let mut chunked = connect(&started);
    chunked
        .write_all(b"POST /v1/scale HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    for _ in 0..8 {
        // The server may have answered and closed already.
        let _ = chunked.write_all(chunk.as_bytes());
    }
    let mut answer = [0; 12];
    chunked.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    let many = (0..100).fold(Exchange::new("GET", "/v1/cluster"), |request, number| {
        request.header(&format!("X-{number}"), "1")
    });
    assert_eq!(many.send(started.local()).unwrap().status, 431);
    let long = Exchange::new("GET", "/v1/cluster").header("X-Long", &"x".repeat(20_000));
    assert_eq!(long.send(started.local()).unwrap().status, 431);
    assert_eq!(started.cluster.orders().len(), 1);
}

#[test]
fn what_is_no_http_is_no_harm() {
    let started = Started::open(|config| config.limits.headers = Duration::from_millis(300));
    let cases: [&[u8]; 12] = [
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v1/cluster\r\n\r\n",
        b"GET /v1/cluster HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /v1/cluster HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"GET /v1/cluster HTTP/1.1\r\nHost: local\0host\r\n\r\n",
        b"GET /v1/\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/scale HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n{\"to\": 3}",
        b"POST /v1/scale HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\nContent-Length: 5\r\n\r\n{\"to\": 3}",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &[0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3],
    ];
    for (number, case) in cases.iter().enumerate() {
        let mut stream = connect(&started);
        stream.write_all(case).unwrap();
        let answer = rest(&mut stream);
        let is_refused = answer.is_empty() || !answer.starts_with("HTTP/1.1 2");
        assert!(is_refused, "case {number}: {answer}");
    }
    // A second request hidden in the body of the first is a request of its own, and passes the same checks.
    let mut smuggling = connect(&started);
    smuggling
        .write_all(b"GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nPOST /v1/scale HTTP/1.1\r\nHost: evil\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{\"to\": 3}")
        .unwrap();
    assert!(!rest(&mut smuggling).contains("HTTP/1.1 202"));
    assert_eq!(started.cluster.orders(), []);
    let good = "GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    until_answered(&started, good, "HTTP/1.1 200");
}

#[test]
fn rates_are_limited_by_address_and_by_token() {
    let (started, secrets) = Started::guarded(|config| {
        config.limits.requests_per_second_of_address = 20;
        config.limits.requests_per_second_of_caller = 1;
    });
    let ask = |token: &str| {
        let request = Exchange::new("GET", "/v1/cluster").token(token);
        request.send(started.local()).unwrap()
    };
    let answers: Vec<Answer> = (0..60).map(|_| ask(&secrets.operator)).collect();
    assert!(answers[..10].iter().all(|answer| answer.status == 200));
    let refused = answers.iter().find(|answer| answer.status == 429);
    assert_eq!(refused.unwrap().header("retry-after"), Some("1"));
    assert_eq!(
        ask(&secrets.reader).status,
        200,
        "another token has its own rate"
    );
    // Each guess costs the address ten requests, of the 200 that it has at once. Then it waits, whatever its token.
    let guesses = (0..60).map(|_| ask("asterism-token-1:guess").status);
    let guesses: Vec<u16> = guesses.take_while(|status| *status == 401).collect();
    assert!(
        (5..60).contains(&guesses.len()),
        "{} guesses",
        guesses.len()
    );
}

#[test]
fn calls_that_do_not_return_are_bounded() {
    let started = Started::open(|config| {
        config.limits.reads_at_once = 2;
        config.limits.orders_at_once = 1;
        config.limits.call = Duration::from_millis(200);
        config.limits.call_wait = Duration::from_millis(100);
    });
    started.cluster.hold();
    let local = started.local();
    let asking: Vec<_> = (0..6)
        .map(|_| {
            std::thread::spawn(move || {
                Exchange::new("GET", "/v1/cluster")
                    .send(local)
                    .unwrap()
                    .status
            })
        })
        .collect();
    let mut statuses: Vec<u16> = asking.into_iter().map(|one| one.join().unwrap()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [503, 503, 503, 503, 504, 504]);
    // Readers have used up their places, not those of orders.
    let scale = || {
        Exchange::new("POST", "/v1/scale")
            .json(r#"{"to": 3}"#)
            .send(local)
            .unwrap()
    };
    let late = scale();
    assert_eq!(late.status, 504);
    assert!(late.body.contains("may still be carried out"));
    assert_eq!(scale().status, 503);
    started.cluster.let_go();
    let deadline = Instant::now() + WAIT;
    while get(&started, "/v1/cluster").status != 200 {
        assert!(Instant::now() < deadline, "the places are not given back");
    }
    while started.cluster.orders().is_empty() {
        assert!(Instant::now() < deadline, "the late order is carried out");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(started.cluster.orders().len(), 1);
}

/// Waits until a call has come to the cluster, which does not answer it.
fn until_held(started: &Started) {
    let deadline = Instant::now() + WAIT;
    while started.cluster.held() == 0 {
        assert!(Instant::now() < deadline, "no call comes");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_stop_answers_what_was_asked_and_frees_the_address() {
    let started = Started::open(|config| config.limits.stop = Duration::from_secs(60));
    started.cluster.hold();
    let local = started.local();
    let asked =
        std::thread::spawn(move || Exchange::new("GET", "/v1/cluster").send(local).unwrap());
    let idle = connect(&started);
    until_held(&started);
    let cluster = Arc::clone(&started.cluster);
    let answers = std::thread::spawn(move || {
        // It takes no more connections: the stop has begun.
        while TcpStream::connect(local).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        cluster.let_go();
    });
    let begun = Instant::now();
    started.server.stop();
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    answers.join().unwrap();
    assert_eq!(asked.join().unwrap().status, 200);
    drop(idle);
    TcpListener::bind(local).unwrap();
    assert_eq!(
        Arc::strong_count(&started.cluster),
        1,
        "nothing of the server holds on to the cluster"
    );
}

#[test]
fn a_stop_does_not_wait_for_a_call_that_hangs() {
    let started = Started::open(|config| config.limits.stop = Duration::from_millis(300));
    started.cluster.hold();
    let local = started.local();
    let asked = std::thread::spawn(move || Exchange::new("GET", "/v1/cluster").send(local));
    until_held(&started);
    let (stopped, is_stopped) = std::sync::mpsc::channel::<()>();
    let cluster = Arc::clone(&started.cluster);
    // A stop that does wait for it is to end too.
    let ends = std::thread::spawn(move || {
        let _ = is_stopped.recv_timeout(WAIT);
        cluster.let_go();
    });
    started.server.stop();
    assert_eq!(started.cluster.held(), 1, "it hangs still");
    drop(stopped);
    ends.join().unwrap();
    // Cut off without an answer.
    assert!(asked.join().unwrap().is_ok_and(|answer| answer.status == 0));
}
