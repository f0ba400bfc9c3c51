//! Connections to a store on which commands are watched, or go one by one.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use asterism_remote_store::{AwayReason, Greeting, Network, Sockets};

/// How an instance asks for what it reads.
#[derive(Clone)]
pub(super) enum Asking {
    /// As the product does: all that waits by one command.
    Batched,
    /// Each key by a command of its own; commands that wait are written together.
    Apart,
    /// The same, and each command by a write of its own, which is a packet of its own.
    Single,
    /// As the product does; of each command that reads keys it is said how many those are, and which one is the first.
    Watched(Sender<(usize, Vec<u8>)>),
}

/// The machine's sockets, by which one asks so.
pub(super) struct Wire(pub(super) Asking);

/// A connection.
pub(super) struct Stream {
    socket: TcpStream,
    asking: Asking,
    /// Bytes up to the beginning of the next command that is to be looked at.
    left: usize,
}

impl Network for Wire {
    type Stream = Stream;
    type Attempt = <Sockets as Network>::Attempt;

    fn begin(
        &mut self,
        candidates: Vec<SocketAddr>,
        greeting: &Arc<Greeting>,
    ) -> Option<Self::Attempt> {
        Sockets.begin(candidates, greeting)
    }

    fn made(
        &mut self,
        attempt: &mut Self::Attempt,
    ) -> Option<Result<(Stream, SocketAddr), AwayReason>> {
        let made = Sockets.made(attempt)?;
        Some(made.map(|(socket, address)| {
            let (asking, left) = (self.0.clone(), 0);
            let stream = Stream {
                socket,
                asking,
                left,
            };
            (stream, address)
        }))
    }
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.socket.read(room)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            self.left = match &self.asking {
                Asking::Batched | Asking::Apart => bytes.len(),
                Asking::Single => command(bytes).map_or(bytes.len(), |command| command.length),
                Asking::Watched(to) => {
                    let mut rest = bytes;
                    while let Some(command) = command(rest) {
                        if let Some(key) = command.first_key.filter(|_| command.name == b"MGET") {
                            // Nobody listens in the end.
                            let _ = to.send((command.arguments - 1, key.to_vec()));
                        }
                        rest = &rest[command.length..];
                    }
                    bytes.len()
                }
            };
        }
        let written = self.socket.write(&bytes[..self.left.min(bytes.len())])?;
        self.left -= written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// A command, as it is written.
#[derive(Debug, PartialEq, Eq)]
struct Command<'a> {
    length: usize,
    arguments: usize,
    name: &'a [u8],
    first_key: Option<&'a [u8]>,
}

/// The command that these bytes begin with, if it is whole.
fn command(bytes: &[u8]) -> Option<Command<'_>> {
    let (arguments, mut at) = number(bytes, b'*')?;
    let (mut name, mut first_key) = (&bytes[..0], None);
    for place in 0..arguments {
        let (length, header) = number(bytes.get(at..)?, b'$')?;
        at += header;
        let argument = bytes.get(at..at + length)?;
        match place {
            0 => name = argument,
            1 => first_key = Some(argument),
            _ => {}
        }
        at += length + 2;
    }
    (at <= bytes.len()).then_some(Command {
        length: at,
        arguments,
        name,
        first_key,
    })
}

/// A line that is a number behind this character: the number, and how long the line is.
fn number(bytes: &[u8], kind: u8) -> Option<(usize, usize)> {
    if *bytes.first()? != kind {
        return None;
    }
    let mut value = 0;
    for (place, byte) in bytes.iter().enumerate().skip(1) {
        match byte {
            b'0'..=b'9' => value = value * 10 + usize::from(byte - b'0'),
            b'\r' => return Some((value, place + 2)),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_parsed_one_by_one() {
        let both = b"*3\r\n$4\r\nMGET\r\n$3\r\na\r\n\r\n$1\r\nb\r\n*1\r\n$4\r\nPING\r\n";
        let first = command(both).expect("a command");
        assert_eq!((first.arguments, first.name), (3, &b"MGET"[..]));
        assert_eq!(first.first_key, Some(&b"a\r\n"[..]));
        let second = command(&both[first.length..]).expect("another one");
        assert_eq!((second.arguments, second.name), (1, &b"PING"[..]));
        assert_eq!(first.length + second.length, both.len());
    }

    #[test]
    fn what_is_no_whole_command_is_none() {
        for part in [
            &b""[..],
            b"*1\r\n",
            b"*1\r\n$4\r\nPI",
            b"*1\r\n$4\r\nPING",
            b"PING\r\n",
            b"$4\r\nPING\r\n",
        ] {
            assert_eq!(command(part), None);
        }
    }
}
