//! Connections that a server has open at a time: bounded, and those that say nothing make room for those that come.
//!
//! A server thread accepts and gives each connection a thread. When there are as many as may be, the oldest one that has
//! not sent a whole request is closed for the new one. So who opens connections and says nothing keeps nobody else out.

use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long nothing is accepted after that failed: no descriptors are left, most likely, and that is not worth a whole core.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);

/// A connection that can be ended from another thread than the one that serves it.
pub trait HangUp {
    /// Ends it: the thread that reads or writes it gets an error or the end.
    fn hang_up(&self);
}

impl HangUp for TcpStream {
    fn hang_up(&self) {
        // It may have ended by itself.
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl HangUp for UnixStream {
    fn hang_up(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

const WAITS: u8 = 0;
const ANSWERS: u8 = 1;
const ENDED: u8 = 2;

/// What a connection's thread says of it.
#[derive(Debug)]
pub struct Open(Arc<AtomicU8>);

impl Open {
    /// A whole request is here: the connection keeps its place until it is answered.
    pub fn answers(&self) {
        self.0.store(ANSWERS, Ordering::Release);
    }

    /// The answer has gone; another request is waited for.
    pub fn waits(&self) {
        self.0.store(WAITS, Ordering::Release);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.store(ENDED, Ordering::Release);
    }
}

/// The connections of a server, oldest first. Their threads own them: a connection is closed when its thread ends.
#[derive(Debug)]
pub struct Connections<S> {
    open: Vec<(Weak<S>, Arc<AtomicU8>)>,
    most: usize,
}

impl<S: HangUp> Connections<S> {
    /// None yet, and so many at most.
    pub fn new(most: usize) -> Connections<S> {
        Connections {
            open: Vec::new(),
            most,
        }
    }

    /// Takes a connection in; `None` if all others are being answered: close it then.
    pub fn admit(&mut self, stream: &Arc<S>) -> Option<Open> {
        self.open
            .retain(|(_, state)| state.load(Ordering::Acquire) != ENDED);
        if self.open.len() >= self.most {
            let mut states = self.open.iter().map(|(_, state)| state);
            let oldest = states.position(|state| state.load(Ordering::Acquire) == WAITS)?;
            let (silent, _) = self.open.remove(oldest);
            if let Some(silent) = silent.upgrade() {
                silent.hang_up();
            }
        }
        let state = Arc::new(AtomicU8::new(WAITS));
        self.open.push((Arc::downgrade(stream), state.clone()));
        Some(Open(state))
    }
}

/// Gives each connection that comes a thread, of which as many as `most` run at a time; ends when no more come. One for which there is
/// no place is handed to `refuse` and closed.
pub fn serve_all<S: HangUp + Send + Sync + 'static>(
    incoming: impl Iterator<Item = std::io::Result<S>>,
    (name, most): (&str, usize),
    refuse: impl Fn(&S),
    serve: impl Fn(&S, &Open) + Send + Sync + 'static,
) {
    let serve = Arc::new(serve);
    let mut connections = Connections::new(most);
    for stream in incoming {
        let Ok(stream) = stream else {
            std::thread::park_timeout(FAILURE_PAUSE);
            continue;
        };
        let stream = Arc::new(stream);
        let Some(open) = connections.admit(&stream) else {
            refuse(&stream);
            continue;
        };
        let serve = serve.clone();
        let thread = std::thread::Builder::new().name(format!("{name}-answer"));
        // A thread that cannot be made drops what it was to have: the connection is closed, and its place free.
        let _ = thread.spawn(move || serve(&stream, &open));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn pair() -> (Arc<UnixStream>, UnixStream) {
        let (served, client) = UnixStream::pair().unwrap();
        (Arc::new(served), client)
    }

    #[test]
    fn the_oldest_silent_connection_makes_room() {
        let mut connections = Connections::new(2);
        let ((first, mut first_client), (second, _second_client)) = (pair(), pair());
        let first_open = connections.admit(&first).unwrap();
        let second_open = connections.admit(&second).unwrap();
        second_open.answers();
        let (third, _third_client) = pair();
        let third_open = connections.admit(&third).unwrap();
        let mut rest = Vec::new();
        assert_eq!(first_client.read_to_end(&mut rest).unwrap(), 0, "hung up");
        drop(first_open);

        // Nobody is closed who is being answered.
        third_open.answers();
        let (fourth, _fourth_client) = pair();
        assert!(connections.admit(&fourth).is_none());
        second_open.waits();
        assert!(connections.admit(&fourth).is_some());
        drop(third_open);
        let (fifth, _fifth_client) = pair();
        assert!(connections.admit(&fifth).is_some());
        assert!(connections.open.len() <= 2);
    }
}
