//! A proxy before etcd that does to transactions what networks and gateways do to them.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What happens to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fault {
    None,
    /// Made; the answer comes after four seconds.
    Late,
    /// Made; the connection is cut in the middle of the answer.
    CutAnswer,
    /// Made; the answer is a 500.
    FailsAfter,
    /// Not made; the answer is a 500.
    FailsInstead,
    /// Not made; the connection is cut.
    CutRequest,
    /// The connection is cut; a second later it is made.
    MadeLater,
    /// Made; the answer is a page.
    Page,
    /// Made; the answer never ends.
    Endless,
    /// Made, and sent once more; the answer is the second one.
    Twice,
    /// Made; the answer names another cluster.
    OtherCluster,
}

pub(crate) const FAULTS: [Fault; 10] = [
    Fault::Late,
    Fault::CutAnswer,
    Fault::FailsAfter,
    Fault::FailsInstead,
    Fault::CutRequest,
    Fault::MadeLater,
    Fault::Page,
    Fault::Endless,
    Fault::Twice,
    Fault::OtherCluster,
];

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    fault: AtomicU8,
    /// Transactions that it still strikes.
    left: AtomicU32,
    /// Strikes every third transaction by the next fault of a round.
    is_hostile: AtomicBool,
    seen: AtomicU32,
    ends: AtomicBool,
}

/// See the module.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    pub(crate) fn start(upstream: SocketAddr) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            upstream,
            fault: AtomicU8::new(0),
            left: AtomicU32::new(0),
            is_hostile: AtomicBool::new(false),
            seen: AtomicU32::new(0),
            ends: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.ends.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&accepting);
                // It ends with its connection.
                thread::spawn(move || serve(client, &shared));
            }
        });
        Proxy {
            address,
            shared,
            thread: Some(thread),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Strikes the next transactions.
    pub(crate) fn strike(&self, fault: Fault, transactions: u32) {
        self.shared.fault.store(fault as u8, Ordering::Relaxed);
        self.shared.left.store(transactions, Ordering::Relaxed);
    }

    pub(crate) fn set_hostile(&self, is_hostile: bool) {
        self.shared.is_hostile.store(is_hostile, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Reads one request: its head and its body.
pub(crate) fn request(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 65_536];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                is_length.then(|| value.trim().parse::<usize>().ok())?
            });
            let length = length.unwrap_or(0);
            while bytes.len() < end + 4 + length {
                let count = client.read(&mut chunk).ok().filter(|count| *count > 0)?;
                bytes.extend_from_slice(&chunk[..count]);
            }
            return Some((head, bytes[end + 4..].to_vec()));
        }
        let count = client.read(&mut chunk).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&chunk[..count]);
    }
}

/// A request on a connection of its own.
fn forward(upstream: SocketAddr, head: &str, body: &[u8]) -> Option<TcpStream> {
    let mut server = TcpStream::connect(upstream).ok()?;
    write!(server, "{head}\r\nConnection: close\r\n\r\n").ok()?;
    server.write_all(body).ok()?;
    Some(server)
}

fn answer(mut server: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = server.read_to_end(&mut bytes);
    bytes
}

fn fault(shared: &Shared, head: &str) -> Fault {
    if !head.starts_with("POST /v3/kv/txn ") {
        return Fault::None;
    }
    let seen = shared.seen.fetch_add(1, Ordering::Relaxed);
    if shared.is_hostile.load(Ordering::Relaxed) && seen % 3 == 2 {
        // Those that take no time.
        let round = [
            Fault::CutAnswer,
            Fault::FailsAfter,
            Fault::FailsInstead,
            Fault::CutRequest,
            Fault::MadeLater,
            Fault::Page,
            Fault::Twice,
        ];
        return round[(seen / 3) as usize % round.len()];
    }
    let left = shared.left.load(Ordering::Relaxed);
    if left == 0 {
        return Fault::None;
    }
    shared.left.store(left - 1, Ordering::Relaxed);
    let number = shared.fault.load(Ordering::Relaxed);
    let mut faults = FAULTS.into_iter();
    faults
        .find(|fault| *fault as u8 == number)
        .unwrap_or(Fault::None)
}

fn serve(mut client: TcpStream, shared: &Shared) {
    let Some((head, body)) = request(&mut client) else {
        return;
    };
    let send = || forward(shared.upstream, &head, &body);
    let fault = fault(shared, &head);
    match fault {
        Fault::CutRequest => return,
        Fault::FailsInstead => {
            let _ = client.write_all(failure());
            return;
        }
        Fault::MadeLater => {
            let _ = client.shutdown(Shutdown::Both);
            asterism_lab::pause(Duration::from_secs(1));
            let _ = send().map(answer);
            return;
        }
        Fault::Twice => {
            let _ = send().map(answer);
        }
        _ => {}
    }
    let Some(mut server) = send() else { return };
    if fault == Fault::None || fault == Fault::Twice {
        // Streams too, as they come.
        let mut chunk = [0; 65_536];
        while let Ok(count) = server.read(&mut chunk) {
            if count == 0 || client.write_all(&chunk[..count]).is_err() {
                return;
            }
        }
        return;
    }
    let bytes = answer(server);
    let _ = match fault {
        Fault::Late => {
            asterism_lab::pause(Duration::from_secs(4));
            client.write_all(&bytes)
        }
        Fault::CutAnswer => client.write_all(&bytes[..bytes.len() - 20]),
        Fault::FailsAfter => client.write_all(failure()),
        Fault::Page => client.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\nConnection: close\r\n\r\n<html>no</html>",
        ),
        Fault::OtherCluster => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            // The last digit, so that the length stays.
            let number = text.find("\"cluster_id\":\"").unwrap() + 14;
            let at = number + text[number..].find('"').unwrap() - 1;
            let mut other = bytes.clone();
            other[at] = if other[at] == b'1' { b'2' } else { b'1' };
            client.write_all(&other)
        }
        _ => {
            let mut sent = client.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{");
            while sent.is_ok() {
                sent = client.write_all(&[b' '; 65_536]);
            }
            sent
        }
    };
}

fn failure() -> &'static [u8] {
    b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\nConnection: close\r\n\r\noops"
}
