//! Where connections to a store come from: the machine's sockets, or what a simulator has in their place.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use crate::login::{Greeting, Opened, open_first};
use crate::statistics::AwayReason;

/// Makes connections, none of which waits once it is made: what cannot be read or written now is [`WouldBlock`](std::io::ErrorKind::WouldBlock).
pub trait Network {
    /// A connection that was made.
    type Stream: Read + Write;
    /// One that is being made.
    type Attempt;
    /// Begins to make a connection to the first of these servers that is a primary, as [`Greeting::open`] does. `None`: not now.
    fn begin(
        &mut self,
        candidates: Vec<SocketAddr>,
        greeting: &Arc<Greeting>,
    ) -> Option<Self::Attempt>;
    /// What came of it, and where the connection leads; `None`: nothing yet. Not asked for again once something did.
    fn made(
        &mut self,
        attempt: &mut Self::Attempt,
    ) -> Option<Result<(Self::Stream, SocketAddr), AwayReason>>;
}

/// The machine's sockets: a thread of its own makes each connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sockets;

impl Network for Sockets {
    type Stream = TcpStream;
    type Attempt = Receiver<Result<Opened, AwayReason>>;

    fn begin(
        &mut self,
        candidates: Vec<SocketAddr>,
        greeting: &Arc<Greeting>,
    ) -> Option<Self::Attempt> {
        let (to, made) = channel();
        let greeting = greeting.clone();
        let begun = std::thread::Builder::new()
            .name("store-connect".into())
            .spawn(move || {
                // Nobody may wait for it any more.
                let _ = to.send(open_first(candidates, &greeting));
            });
        begun.is_ok().then_some(made)
    }

    fn made(&mut self, attempt: &mut Self::Attempt) -> Option<Result<Opened, AwayReason>> {
        match attempt.try_recv() {
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(AwayReason::Unreachable)),
            Ok(made) => Some(made),
        }
    }
}
