//! What is said on a connection before an instance has it: a thread of its own says it, and waits for the replies.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use asterism_resp::{CommandWriter, Scanner, Value};

use crate::statistics::AwayReason;

/// How long the other side may take to accept a connection, and for each reply.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Bytes of a reply at most: the longest is an error's sentence.
const REPLY_BYTES_MAX: usize = 4_096;

/// How a connection is made.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user; `None`: the store's default one.
    pub user: Option<String>,
    /// The password; `None`: none is shown.
    pub password: Option<String>,
}

impl core::fmt::Debug for Login {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Login({:?})", self.user)
    }
}

/// What each connection begins with.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    pub(crate) login: Login,
    /// The key that says how entries are laid out, and what it has to say.
    pub(crate) layout: (Vec<u8>, Vec<u8>),
    /// The store is to say by it what changes of what was read.
    pub(crate) tracks: bool,
}

/// Makes a connection that an instance can have.
pub(crate) fn open(address: SocketAddr, greeting: &Greeting) -> Result<TcpStream, AwayReason> {
    let stream = open_waiting(address, greeting)?;
    let is_set = stream.set_nonblocking(true).is_ok();
    is_set.then_some(stream).ok_or(AwayReason::Unreachable)
}

/// Makes a connection whose reads and writes wait, a second at most.
pub(crate) fn open_waiting(
    address: SocketAddr,
    greeting: &Greeting,
) -> Result<TcpStream, AwayReason> {
    let stream = TcpStream::connect_timeout(&address, WAIT_MAX);
    let stream = stream.map_err(|_| AwayReason::Unreachable)?;
    let is_set = stream.set_nodelay(true).is_ok()
        && stream.set_read_timeout(Some(WAIT_MAX)).is_ok()
        && stream.set_write_timeout(Some(WAIT_MAX)).is_ok();
    if !is_set {
        return Err(AwayReason::Unreachable);
    }
    greet(&stream, greeting)?;
    Ok(stream)
}

fn greet(mut stream: &TcpStream, greeting: &Greeting) -> Result<(), AwayReason> {
    let Greeting {
        login,
        layout,
        tracks,
    } = greeting;
    if let Some(password) = &login.password {
        let words: Vec<&[u8]> = match &login.user {
            Some(user) => vec![b"AUTH", user.as_bytes(), password.as_bytes()],
            None => vec![b"AUTH", password.as_bytes()],
        };
        ask(&mut stream, &words, |value| match value {
            Value::Status(b"OK") => Ok(()),
            Value::Error(_) => Err(AwayReason::Login),
            _ => Err(AwayReason::NoStore),
        })?;
    }
    if *tracks {
        track(&mut stream)?;
    }
    let (key, expected) = layout;
    let find = |value: &Value<'_>| match value {
        Value::String(found) if found == expected => Ok(true),
        Value::Null => Ok(false),
        Value::String(_) => Err(AwayReason::Layout),
        Value::Error(error) => Err(refusal(error)),
        _ => Err(AwayReason::NoStore),
    };
    if ask(&mut stream, &[b"GET", key], find)? {
        return Ok(());
    }
    let set: [&[u8]; 4] = [b"SET", key, expected, b"NX"];
    ask(&mut stream, &set, |value| match value {
        Value::Status(b"OK") | Value::Null => Ok(()),
        Value::Error(error) => Err(refusal(error)),
        _ => Err(AwayReason::NoStore),
    })?;
    // Another client may have been first.
    match ask(&mut stream, &[b"GET", key], find)? {
        true => Ok(()),
        false => Err(AwayReason::Layout),
    }
}

/// Has the store say what changes of what is read from now on. Version 3 of the protocol says it beside the replies.
fn track(stream: &mut &TcpStream) -> Result<(), AwayReason> {
    let refused = |error: &[u8]| match refusal(error) {
        AwayReason::Login => AwayReason::Login,
        _ => AwayReason::Tracking,
    };
    ask(stream, &[b"HELLO", b"3"], |value| match value {
        Value::Array(_) => Ok(()),
        Value::Error(error) => Err(refused(error)),
        _ => Err(AwayReason::NoStore),
    })?;
    let track: [&[u8]; 3] = [b"CLIENT", b"TRACKING", b"ON"];
    ask(stream, &track, |value| match value {
        Value::Status(b"OK") => Ok(()),
        Value::Error(error) => Err(refused(error)),
        _ => Err(AwayReason::NoStore),
    })
}

/// What an error says by its first word.
pub(crate) fn refusal(error: &[u8]) -> AwayReason {
    let word = error.split(|byte| *byte == b' ').next().unwrap_or_default();
    match word {
        b"NOAUTH" | b"WRONGPASS" | b"NOPERM" => AwayReason::Login,
        b"WRONGTYPE" => AwayReason::Layout,
        _ => AwayReason::Refused,
    }
}

/// Sends a command, and takes its reply.
fn ask<T>(
    stream: &mut &TcpStream,
    words: &[&[u8]],
    take: impl FnOnce(&Value<'_>) -> Result<T, AwayReason>,
) -> Result<T, AwayReason> {
    let mut command = Vec::new();
    CommandWriter::new(&mut command).command(words);
    stream.write_all(&command).map_err(|error| lost(&error))?;
    let mut scanner = Scanner::new();
    let mut received = Vec::new();
    let mut room = [0; 512];
    loop {
        let count = stream.read(&mut room).map_err(|error| lost(&error))?;
        if count == 0 {
            return Err(AwayReason::Closed);
        }
        received.extend(&room[..count]);
        match scanner.scan(&received) {
            Ok(Some(length)) => {
                return match Value::read(&received[..length]) {
                    Ok(Some((value, _))) => take(&value),
                    _ => Err(AwayReason::NoStore),
                };
            }
            Ok(None) if received.len() <= REPLY_BYTES_MAX => {}
            _ => return Err(AwayReason::NoStore),
        }
    }
}

pub(crate) fn lost(error: &std::io::Error) -> AwayReason {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => AwayReason::Silent,
        _ => AwayReason::Closed,
    }
}
