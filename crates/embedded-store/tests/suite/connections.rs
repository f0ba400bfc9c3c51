//! The store as clients see it, over TCP: pieces, pipelines, many at once, and clients that misbehave.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use asterism_embedded_store::{RunningServer, Server, ServerConfig};

use crate::replies::command;

/// A store that serves until it is dropped.
pub(crate) struct Running(pub(crate) RunningServer);

impl Running {
    pub(crate) fn start(change: impl FnOnce(&mut ServerConfig)) -> Running {
        let mut config = ServerConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        change(&mut config);
        let server = Server::bind(config, || 1_000_000).expect("a port is free");
        Running(RunningServer::start(server).expect("it has a thread"))
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.0.address()).expect("it listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }

    pub(crate) fn stop(self) {
        self.0.stop().expect("it ends well");
    }
}

pub(crate) fn expect(stream: &mut TcpStream, reply: &[u8]) {
    let mut read = vec![0; reply.len()];
    stream.read_exact(&mut read).expect("it answers");
    assert_eq!(
        String::from_utf8_lossy(&read),
        String::from_utf8_lossy(reply)
    );
}

/// Whether the other side has closed the connection, perhaps behind a reply.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn commands_in_pieces_and_many_at_once_are_answered_in_order() {
    let store = Running::start(|_| {});
    let mut stream = store.connect();
    for byte in command("set a 1") {
        stream.write_all(&[byte]).unwrap();
        stream.flush().unwrap();
    }
    expect(&mut stream, b"+OK\r\n");
    let many: Vec<u8> = (0..10_000).flat_map(|_| command("incr n")).collect();
    let mut writes = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || writes.write_all(&many).unwrap());
    let replies: String = (1..=10_000)
        .map(|number| format!(":{number}\r\n"))
        .collect();
    expect(&mut stream, replies.as_bytes());
    writer.join().unwrap();
    store.stop();
}

#[test]
fn clients_at_once_are_each_answered_their_own() {
    let store = Running::start(|_| {});
    let clients: Vec<_> = (0..20)
        .map(|number| {
            let mut stream = store.connect();
            std::thread::spawn(move || {
                for round in 0..100 {
                    stream
                        .write_all(&command(&format!("set k{number} v{number}-{round}")))
                        .unwrap();
                    stream
                        .write_all(&command(&format!("get k{number}")))
                        .unwrap();
                    let value = format!("v{number}-{round}");
                    expect(
                        &mut stream,
                        format!("+OK\r\n${}\r\n{value}\r\n", value.len()).as_bytes(),
                    );
                }
            })
        })
        .collect();
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
    store.stop();
}

#[test]
fn a_client_that_misbehaves_is_closed_and_the_others_go_on() {
    let store = Running::start(|config| config.clients_max = 4);
    let mut good = store.connect();
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"*-5\r\n",
        b"*1\r\n:5\r\n",
        b"*1\r\n$99999999999\r\n",
        b"*99999999\r\n",
        b":1\r\n",
        &[0xff; 10_000],
    ] {
        let mut bad = store.connect();
        bad.write_all(bytes).unwrap();
        assert!(is_closed(&mut bad), "{bytes:?}");
        good.write_all(&command("ping")).unwrap();
        expect(&mut good, b"+PONG\r\n");
    }
    // Too many at once: the fifth is closed.
    let mut some: Vec<TcpStream> = (0..3).map(|_| store.connect()).collect();
    for stream in &mut some {
        stream.write_all(&command("ping")).unwrap();
        expect(stream, b"+PONG\r\n");
    }
    assert!(is_closed(&mut store.connect()));
    // One that ends in the middle of a command.
    some[0].write_all(b"*2\r\n$3\r\nge").unwrap();
    drop(some);
    good.write_all(&command("quit")).unwrap();
    expect(&mut good, b"+OK\r\n");
    assert!(is_closed(&mut good));
    store.stop();
}

/// What a client sends is a few hundred bytes, and the replies would be 32 GiB.
#[test]
fn small_commands_with_large_replies_take_a_bounded_part_of_memory() {
    let store = Running::start(|_| {});
    let mut stream = store.connect();
    let value = "v".repeat(8 << 20);
    stream
        .write_all(&command(&format!("set large {value}")))
        .unwrap();
    expect(&mut stream, b"+OK\r\n");
    stream
        .write_all(&command(&format!("hset hash large {value}")))
        .unwrap();
    expect(&mut stream, b":1\r\n");
    let before = resident_bytes();
    let names = "large ".repeat(4_000);
    for many in ["mget", "hmget hash"] {
        let asked = command(&format!("{many} {names}"));
        stream.write_all(&asked).unwrap();
        expect(
            &mut stream,
            b"-ERR the reply is too long: ask for fewer keys\r\n",
        );
    }
    for within in [false, true] {
        let mut bad = store.connect();
        let gets: Vec<u8> = (0..2_000).flat_map(|_| command("get large")).collect();
        let all = match within {
            true => [command("multi"), gets, command("incr n"), command("exec")].concat(),
            false => gets,
        };
        let mut writes = bad.try_clone().unwrap();
        let writer = std::thread::spawn(move || _ = writes.write_all(&all));
        assert!(is_closed(&mut bad));
        writer.join().unwrap();
    }
    // A transaction is made whole all the same.
    stream.write_all(&command("get n")).unwrap();
    expect(&mut stream, b"$1\r\n1\r\n");
    let most = peak_bytes().saturating_sub(before);
    assert!(most < 1 << 30, "{most} bytes");
    store.stop();
}

fn status_bytes(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with(name));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<usize>().ok())
        .expect("a number")
        << 10
}
fn resident_bytes() -> usize {
    status_bytes("VmRSS")
}
fn peak_bytes() -> usize {
    status_bytes("VmHWM")
}

#[test]
fn a_client_that_reads_no_replies_is_closed_in_the_end() {
    let store = Running::start(|_| {});
    let mut deaf = store.connect();
    let value = "v".repeat(1 << 20);
    deaf.write_all(&command(&format!("set large {value}")))
        .unwrap();
    expect(&mut deaf, b"+OK\r\n");
    let asks: Vec<u8> = (0..200).flat_map(|_| command("get large")).collect();
    // The store closes it rather than keep 200 MiB for it, or stop.
    let _ = deaf.write_all(&asks);
    let mut good = store.connect();
    good.write_all(&command("ping")).unwrap();
    expect(&mut good, b"+PONG\r\n");
    let mut read = Vec::new();
    let _ = deaf.read_to_end(&mut read);
    assert!(
        read.len() < 150 << 20,
        "{} bytes were kept for it",
        read.len()
    );
    store.stop();
}
