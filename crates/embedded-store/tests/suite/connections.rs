//! The store as clients see it, over TCP: pieces, pipelines, many at once, and clients that misbehave.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asterism_embedded_store::{Passwords, RunningServer, Server, ServerConfig};
use asterism_lab::wait_until;

use crate::replies::command;

/// A store that serves until it is dropped.
pub(crate) struct Running(pub(crate) RunningServer);

impl Running {
    pub(crate) fn start(change: impl FnOnce(&mut ServerConfig)) -> Running {
        Running::start_at(Arc::new(AtomicU64::new(1_000_000)), change)
    }

    /// The same at a time, in milliseconds, that the test changes.
    fn start_at(clock: Arc<AtomicU64>, change: impl FnOnce(&mut ServerConfig)) -> Running {
        let mut config = ServerConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        change(&mut config);
        let now_ms = move || clock.load(Ordering::Relaxed);
        let server = Server::bind(config, now_ms).expect("a port is free");
        Running(RunningServer::start(server).expect("it has a thread"))
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.0.address()).expect("it listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }

    /// A client that has shown this password.
    fn logged_in(&self, password: &str) -> TcpStream {
        let mut stream = self.connect();
        stream
            .write_all(&command(&format!("auth {password}")))
            .unwrap();
        expect(&mut stream, b"+OK\r\n");
        stream
    }

    fn refused(&self) -> u64 {
        self.0.statistics().refused.load(Ordering::Relaxed)
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

fn goes_on(stream: &mut TcpStream) {
    stream.write_all(&command("ping")).unwrap();
    expect(stream, b"+PONG\r\n");
}

/// Who has no password holds neither all connections nor one for ever.
#[test]
fn strangers_make_place_for_those_that_log_in() {
    let clock = Arc::new(AtomicU64::new(1_000_000));
    let store = Running::start_at(clock.clone(), |config| {
        config.clients_max = 66;
        config.passwords = Some(Passwords::new(["sesame".to_owned()]));
    });
    let mut friend = store.logged_in("sesame");
    let mut strangers: Vec<TcpStream> = (0..64).map(|_| store.connect()).collect();
    // The first comes while there are as many strangers as may be: the oldest goes. The other takes the last place.
    let mut friends = [store.logged_in("sesame"), store.logged_in("sesame")];
    assert!(is_closed(&mut strangers.remove(0)));
    assert_eq!(store.refused(), 1);
    // From now on it is the whole that is full, and strangers make place as well.
    let more: Vec<TcpStream> = (0..63).map(|_| store.logged_in("sesame")).collect();
    assert!(strangers.iter_mut().all(is_closed));
    // Nobody is left that would.
    assert!(is_closed(&mut store.connect()));
    drop(more);
    friends.iter_mut().for_each(goes_on);
    let mut late = store.connect();
    late.write_all(&command("get a")).unwrap();
    expect(&mut late, b"-NOAUTH Authentication required.\r\n");
    clock.fetch_add(5_000, Ordering::Relaxed);
    late.write_all(&command("get a")).unwrap();
    expect(&mut late, b"-NOAUTH Authentication required.\r\n");
    clock.fetch_add(1, Ordering::Relaxed);
    assert!(is_closed(&mut late));
    goes_on(&mut friend);
    store.stop();
}

#[test]
fn a_password_that_is_taken_back_ends_the_connections_that_showed_it() {
    let passwords = Passwords::new(["one".to_owned()]);
    let store = Running::start(|config| config.passwords = Some(passwords.clone()));
    let mut before = store.logged_in("one");
    passwords.set(["one".to_owned(), "two".to_owned()]);
    let mut after = None;
    wait_until(
        "the other password is taken up",
        Duration::from_secs(20),
        || {
            let mut stream = store.connect();
            stream.write_all(&command("auth two")).unwrap();
            let mut reply = [0; 5];
            stream.read_exact(&mut reply).unwrap();
            after = Some(stream);
            reply == *b"+OK\r\n"
        },
    )
    .unwrap();
    goes_on(&mut before);
    // A transaction that was begun is not made.
    before.write_all(&command("multi")).unwrap();
    before.write_all(&command("set a 1")).unwrap();
    expect(&mut before, b"+OK\r\n+QUEUED\r\n");
    passwords.set(["two".to_owned()]);
    assert!(is_closed(&mut before));
    let mut after = after.expect("it logged in");
    goes_on(&mut after);
    after.write_all(&command("get a")).unwrap();
    expect(&mut after, b"$-1\r\n");
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
