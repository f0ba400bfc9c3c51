//! Streams of events.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use asterism_api::testing::Exchange;
use asterism_api::tokens;

use crate::start::{Started, WAIT};

/// A stream that is read line by line.
struct Reader(BufReader<TcpStream>);

impl Reader {
    fn open(started: &Started, target: &str, headers: &str) -> Reader {
        let mut stream = TcpStream::connect(started.local()).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut reader = Reader(BufReader::new(stream));
        assert!(reader.line().starts_with("HTTP/1.1 200"));
        reader.until("content-type: text/event-stream");
        reader.until("retry: 2000");
        reader
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Reads on to a line that begins so.
    fn until(&mut self, beginning: &str) -> String {
        for _ in 0..10_000 {
            let line = self.line();
            if line.starts_with(beginning) {
                return line;
            }
        }
        panic!("no line begins with {beginning}")
    }

    fn ends(mut self) -> bool {
        let mut line = String::new();
        for _ in 0..1_000 {
            line.clear();
            match self.0.read_line(&mut line) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
        false
    }
}

#[test]
fn events_come_as_they_happen_and_a_reader_goes_on_where_it_left_off() {
    let started = Started::open(|_| ());
    let mut reader = Reader::open(&started, "/v1/events/stream", "");
    started.cluster.event(Some("blue"), "first");
    assert_eq!(reader.until("id: "), "id: 7-4");
    assert!(reader.until("data: ").contains("\"reason\":\"first\""));
    drop(reader);
    started.cluster.event(None, "while away");
    let mut reader = Reader::open(&started, "/v1/events/stream", "Last-Event-ID: 7-4\r\n");
    assert_eq!(reader.until("id: "), "id: 7-5");
    assert!(reader.until("data: ").contains("while away"));
    // From the beginning, and as much as there is.
    let mut reader = Reader::open(&started, "/v1/events/stream?after=0", "");
    for sequence in 1..=5 {
        assert_eq!(reader.until("id: "), format!("id: 7-{sequence}"));
    }
    for _ in 0..900 {
        started.cluster.event(None, "many");
    }
    for sequence in 6..=905 {
        assert_eq!(reader.until("id: "), format!("id: 7-{sequence}"));
    }
    let bad = Exchange::new("GET", "/v1/events/stream").header("Last-Event-ID", "seven");
    assert_eq!(bad.send(started.local()).unwrap().status, 400);
}

#[test]
fn a_reader_is_notified_of_what_it_missed() {
    let started = Started::open(|_| ());
    for _ in 0..1_500 {
        started.cluster.event(None, "many");
    }
    let mut reader = Reader::open(&started, "/v1/events/stream", "Last-Event-ID: 7-100\r\n");
    assert_eq!(reader.until("event: "), "event: missed");
    assert_eq!(reader.until("id: "), "id: 7-504");
    reader.until("id: 7-1503");
    started.cluster.another_log();
    started.cluster.event(None, "the new leader's");
    assert_eq!(reader.until("event: "), "event: missed");
    assert_eq!(reader.until("id: "), "id: 8-1");
}

#[test]
fn a_tenants_stream_has_its_own_events() {
    let (started, secrets) = Started::guarded(|config| {
        config.limits.heartbeat = Duration::from_millis(100);
    });
    let token = format!("Authorization: Bearer {}\r\n", secrets.blue);
    let mut reader = Reader::open(&started, "/v1/events/stream?after=0", &token);
    assert_eq!(reader.until("id: "), "id: 7-1");
    started.cluster.event(Some("green"), "green's");
    // The heartbeat's identifier passes what is not shown.
    let mut lines = Vec::new();
    loop {
        let line = reader.line();
        if line == "id: 7-4" {
            break;
        }
        lines.push(line);
    }
    started.cluster.event(Some("blue"), "blue's");
    lines.push(reader.until("data: "));
    assert!(
        lines
            .iter()
            .all(|line| !line.contains("green") && !line.contains("operators")),
        "{lines:?}"
    );
    assert!(lines.last().unwrap().contains("blue's"));
}

#[test]
fn heartbeats_come_and_a_removed_token_ends_its_streams() {
    let (started, secrets) = Started::guarded(|config| {
        config.limits.heartbeat = Duration::from_millis(100);
    });
    let stream = |secret: &str| {
        let token = format!("Authorization: Bearer {secret}\r\n");
        Reader::open(&started, "/v1/events/stream", &token)
    };
    let (mut reader, mut operator) = (stream(&secrets.reader), stream(&secrets.operator));
    reader.until(": alive");
    reader.until(": alive");
    assert!(tokens::remove(&started.tokens(), "reader").unwrap());
    reader.until("event: end");
    assert!(reader.ends());
    operator.until(": alive");
    operator.until(": alive");
}

#[test]
fn streams_are_bounded_in_total_and_for_each_caller() {
    let (started, secrets) = Started::guarded(|config| {
        config.limits.streams = 3;
        config.limits.streams_of_caller = 2;
    });
    let open = |secret: &str| {
        let token = format!("Authorization: Bearer {secret}\r\n");
        Reader::open(&started, "/v1/events/stream", &token)
    };
    let status = |secret: &str| {
        let request = Exchange::new("GET", "/v1/events/stream").token(secret);
        request.send(started.local()).unwrap().status
    };
    let first = open(&secrets.operator);
    let _second = open(&secrets.operator);
    assert_eq!(status(&secrets.operator), 429);
    let _third = open(&secrets.reader);
    assert_eq!(status(&secrets.reader), 429);
    drop(first);
    // The place of a reader that has gone is given back at the next frame.
    let deadline = Instant::now() + WAIT;
    while status(&secrets.operator) == 429 {
        assert!(Instant::now() < deadline, "the place was not given back");
        started.cluster.event(None, "a frame");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A reader that never reads is cut off, and does not keep others from reading.
#[test]
fn a_reader_that_never_reads_is_cut_off() {
    let started = Started::open(|config| config.limits.write = Duration::from_millis(300));
    let mut deaf = TcpStream::connect(started.local()).unwrap();
    deaf.write_all(b"GET /v1/events/stream?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let streams = || {
        let metrics = Exchange::new("GET", "/metrics")
            .send(started.local())
            .unwrap();
        let line = metrics
            .body
            .lines()
            .find_map(|line| line.strip_prefix("asterism_api_streams "));
        line.unwrap().parse::<u32>().unwrap()
    };
    let deadline = Instant::now() + WAIT;
    while streams() == 0 {
        assert!(Instant::now() < deadline, "the stream is not opened");
    }
    let deadline = Instant::now() + WAIT;
    let long = "x".repeat(100_000);
    loop {
        // More than what fits the buffers of both sockets.
        for _ in 0..20 {
            started.cluster.event(None, &long);
        }
        std::thread::sleep(Duration::from_millis(50));
        if streams() == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "the stream is open still");
    }
    drop(deaf);
}

#[test]
fn a_stop_ends_streams_at_once() {
    let started = Started::open(|config| config.limits.stop = Duration::from_secs(60));
    let reader = Reader::open(&started, "/v1/events/stream", "");
    let begun = Instant::now();
    started.server.stop();
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    assert!(reader.ends());
}
