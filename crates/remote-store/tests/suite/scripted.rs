//! Servers over TCP that say what a test wants of them: replicas, members of a cluster, primaries without replicas. They hold one keyspace.
#![expect(
    clippy::disallowed_types,
    reason = "a server's connections share its keys, as those of a real one do"
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use asterism_embedded_store::{Keyspace, Session};
use asterism_resp::Value;

/// What several servers hold together.
pub(crate) type Keys = Arc<Mutex<Keyspace>>;

pub(crate) fn keys() -> Keys {
    Arc::new(Mutex::new(Keyspace::new(1 << 30)))
}

/// What a server answers, by the command's name in capitals; `None`: what the keyspace does. Where it answers nothing, it closes.
type Says = Box<dyn FnMut(&str) -> Option<String> + Send>;

/// The error that a replica answers to writes.
const READONLY: &str = "-READONLY You can't write against a read only replica.\r\n";

/// See the module. It ends when it is dropped.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

/// What a connection has since `MULTI`.
#[derive(Clone, Copy)]
enum Queues {
    Nothing,
    Commands,
    /// One of them was refused, so `EXEC` is.
    Refused,
}

struct Shared {
    keys: Keys,
    says: Mutex<Says>,
    open: AtomicUsize,
    /// How many may be open at a time.
    open_max: AtomicUsize,
    ends: AtomicUsize,
}

impl Scripted {
    pub(crate) fn start(keys: &Keys) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let address = listener.local_addr().expect("its port");
        let shared = Arc::new(Shared {
            keys: keys.clone(),
            says: Mutex::new(Box::new(|_| None)),
            open: AtomicUsize::new(0),
            open_max: AtomicUsize::new(usize::MAX),
            ends: AtomicUsize::new(0),
        });
        let of_thread = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if of_thread.ends.load(Ordering::Relaxed) > 0 {
                    return;
                }
                let shared = of_thread.clone();
                let open = shared.open.fetch_add(1, Ordering::Relaxed);
                if open < shared.open_max.load(Ordering::Relaxed) {
                    std::thread::spawn(move || shared.serve(stream));
                } else {
                    refuse(stream);
                    shared.open.fetch_sub(1, Ordering::Relaxed);
                }
            }
        });
        Self { address, shared }
    }

    /// From now on it answers so.
    pub(crate) fn says(&self, says: impl FnMut(&str) -> Option<String> + Send + 'static) {
        *locked(&self.shared.says) = Box::new(says);
    }

    /// From now on it is a replica.
    pub(crate) fn is_replica(&self) {
        self.says(|command| match command {
            "ROLE" => Some("*2\r\n$5\r\nslave\r\n$1\r\n?\r\n".to_owned()),
            "SET" | "MSET" | "DEL" | "ZADD" | "ZREM" => Some(READONLY.to_owned()),
            _ => None,
        });
    }

    /// From now on its cluster has the keys at this place.
    pub(crate) fn has_moved(&self, to: &str) {
        let moved = format!("-MOVED 3999 {to}\r\n");
        self.says(move |command| match command {
            "ROLE" | "AUTH" | "MULTI" | "EXEC" | "UNWATCH" => None,
            _ => Some(moved.clone()),
        });
    }

    /// From now on it takes no connection beyond so many.
    pub(crate) fn takes(&self, connections: usize) {
        let open_max = &self.shared.open_max;
        open_max.store(connections, Ordering::Relaxed);
    }

    /// Connections that it has now.
    pub(crate) fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.shared.ends.store(1, Ordering::Relaxed);
        // So that it no longer waits for one.
        let _ = TcpStream::connect(self.address);
    }
}

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What Redis does beyond its `maxclients`.
fn refuse(mut stream: TcpStream) {
    let _ = stream.write_all(b"-ERR max number of clients reached\r\n");
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
        let (mut session, mut queues) = (Session::new(), Queues::Nothing);
        let (mut received, mut room) = (Vec::new(), [0; 1 << 14]);
        while self.ends.load(Ordering::Relaxed) == 0 {
            match stream.read(&mut room) {
                Ok(0) => break,
                Ok(count) => received.extend(&room[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
            let (mut taken, mut out, mut goes_on) = (0, Vec::new(), true);
            while let Ok(Some((command, length))) = Value::read(&received[taken..]) {
                taken += length;
                goes_on = goes_on && self.call((&mut session, &mut queues), command, &mut out);
            }
            received.drain(..taken);
            if stream.write_all(&out).is_err() || !goes_on {
                break;
            }
        }
        session.end(&mut locked(&self.keys));
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the connection goes on.
    fn call(
        &self,
        (session, queues): (&mut Session, &mut Queues),
        command: Value<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        let Value::Array(mut words) = command else {
            return false;
        };
        let name = words.next().and_then(|name| name.bytes());
        let mut name = String::from_utf8_lossy(name.unwrap_or_default()).to_uppercase();
        // That waits for nothing: a client asks whether it may.
        if words.next().and_then(|word| word.bytes()) == Some(b"0") {
            name.push_str(" 0");
        }
        let said = locked(&self.says)(&name);
        match (name.as_str(), *queues) {
            ("MULTI", _) => *queues = Queues::Commands,
            ("EXEC", Queues::Refused) => {
                *queues = Queues::Nothing;
                let (discard, _) = Value::read(b"*1\r\n$7\r\nDISCARD\r\n")
                    .expect("a command")
                    .expect("all of it");
                session.call(&mut locked(&self.keys), discard, &mut Vec::new(), None);
                out.extend(b"-EXECABORT Transaction discarded because of previous errors.\r\n");
                return true;
            }
            ("EXEC" | "DISCARD", _) => *queues = Queues::Nothing,
            (_, Queues::Commands) if said.as_ref().is_some_and(|said| said.starts_with('-')) => {
                *queues = Queues::Refused;
            }
            _ => {}
        }
        if let Some(said) = said {
            out.extend(said.as_bytes());
            return !said.is_empty();
        }
        session.call(&mut locked(&self.keys), command, out, None);
        true
    }
}
