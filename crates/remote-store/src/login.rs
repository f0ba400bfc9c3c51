//! What is said on a connection before an instance has it: a thread of its own says it, and waits for the replies.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use asterism_resp::{CommandWriter, Scanner, Value};

use crate::layout::Layout;
use crate::password::Password;
use crate::primary::{Notice, is_primary};
use crate::refusals::refusal_reason;
use crate::statistics::AwayReason;

/// How long a server may take at least until a connection to it is made and greeted.
pub(crate) const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// Bytes of a reply at most: the longest is an error's sentence.
const REPLY_BYTES_MAX: usize = 4_096;
/// Bytes read at a time.
const READ_BYTES: usize = 1 << 16;
/// Times that members of a cluster may send on to another one while a connection is made.
const REDIRECTIONS_MAX: u32 = 4;

/// As what a connection logs in.
#[derive(Clone)]
pub struct Login {
    /// The user; `None`: the store's default one.
    pub user: Option<String>,
    /// The password; `None`: none is shown.
    pub password: Option<Password>,
}

impl core::fmt::Debug for Login {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Login({:?})", self.user)
    }
}

/// What each connection begins with.
#[derive(Clone, Debug)]
pub struct Greeting {
    pub(crate) login: Login,
    /// The key that says how entries are laid out, and what it has to say.
    pub(crate) layout: (Vec<u8>, Layout),
    pub(crate) tracks: Tracks,
    /// How long a server may take until all of that is said.
    pub(crate) patience: Duration,
    /// The user has to be allowed to wait for replicas.
    pub(crate) waits_for_replica: bool,
    /// A replica serves as well as a primary: a planted bug, and else never so.
    pub(crate) takes_replicas: bool,
}

/// Of what the store is to say by a connection that it changes.
#[derive(Clone, Debug)]
pub(crate) enum Tracks {
    Nothing,
    /// What was read by it.
    WhatIsRead,
    /// All keys that begin so.
    KeysFrom(Vec<u8>),
}

impl Tracks {
    /// What is said for it after `HELLO 3`.
    pub(crate) fn words(&self) -> Vec<&[u8]> {
        let mut words: Vec<&[u8]> = vec![b"CLIENT", b"TRACKING", b"ON"];
        if let Self::KeysFrom(prefix) = self {
            words.extend([&b"BCAST"[..], b"PREFIX", prefix]);
        }
        words
    }
}

/// Why a server is not taken.
pub(crate) enum Passed {
    Away(AwayReason),
    /// The keys are at this address.
    Moved(SocketAddr),
}

impl Passed {
    /// Why, where no redirection is followed.
    pub(crate) fn without_redirection(self) -> AwayReason {
        match self {
            Self::Away(why) => why,
            Self::Moved(_) => AwayReason::Moved,
        }
    }
}

impl From<AwayReason> for Passed {
    fn from(why: AwayReason) -> Self {
        Self::Away(why)
    }
}

/// A connection that an instance can have, and where it leads.
pub(crate) type Opened = (TcpStream, SocketAddr);

/// Makes a connection to the first of these servers that is a primary.
pub(crate) fn open_first(
    candidates: Vec<SocketAddr>,
    greeting: &Greeting,
) -> Result<Opened, AwayReason> {
    let (stream, address) = open_waiting(candidates, greeting)?;
    let is_set = stream.set_nonblocking(true).is_ok();
    let opened = is_set.then_some((stream, address));
    opened.ok_or(AwayReason::Unreachable)
}

/// The same, whose reads and writes wait, a second at most.
pub(crate) fn open_waiting(
    candidates: Vec<SocketAddr>,
    greeting: &Greeting,
) -> Result<Opened, AwayReason> {
    let connect = |address| Greeted::connect(address, greeting.patience);
    let (greeted, address) = greeting.open(candidates, connect)?;
    let is_set = greeted.limit(PATIENCE_MIN).is_ok();
    let opened = is_set.then_some((greeted.stream, address));
    opened.ok_or(AwayReason::Unreachable)
}

/// A connection while it is greeted: all together takes so long at most, however few bytes the other side sends at a time.
struct Greeted {
    stream: TcpStream,
    until: Instant,
}

/// The machine's clock.
#[expect(
    clippy::disallowed_methods,
    reason = "a socket's greeting has a time of its own, on a thread that no instance knows"
)]
fn clock() -> Instant {
    Instant::now()
}

impl Greeted {
    fn connect(address: SocketAddr, patience: Duration) -> Result<Self, AwayReason> {
        let until = clock() + patience;
        let stream = TcpStream::connect_timeout(&address, patience);
        let stream = stream.map_err(|_| AwayReason::Unreachable)?;
        let is_set = stream.set_nodelay(true).is_ok();
        let greeted = is_set.then_some(Self { stream, until });
        greeted.ok_or(AwayReason::Unreachable)
    }

    /// How long a read or a write may wait from now on.
    fn limit(&self, time: Duration) -> std::io::Result<()> {
        self.stream.set_read_timeout(Some(time))?;
        self.stream.set_write_timeout(Some(time))
    }

    /// What is left of its time is all that the next read or write may wait.
    fn limit_to_rest(&self) -> std::io::Result<()> {
        match self.until.saturating_duration_since(clock()) {
            Duration::ZERO => Err(ErrorKind::TimedOut.into()),
            rest => self.limit(rest),
        }
    }
}

impl Read for Greeted {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        self.limit_to_rest()?;
        self.stream.read(room)
    }
}

impl Write for Greeted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.limit_to_rest()?;
        self.stream.write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

impl Greeting {
    /// Makes a connection, by `connect`, to the first of these servers that is a primary. What is read of it meanwhile waits for what is to
    /// come.
    ///
    /// # Errors
    /// The most telling reason why none of them is taken.
    pub fn open<S: Read + Write>(
        &self,
        candidates: Vec<SocketAddr>,
        mut connect: impl FnMut(SocketAddr) -> Result<S, AwayReason>,
    ) -> Result<(S, SocketAddr), AwayReason> {
        let mut left = VecDeque::from(candidates);
        let mut redirections = 0;
        let mut why = AwayReason::NotTried;
        while let Some(address) = left.pop_front() {
            let connected = connect(address).map_err(Passed::Away);
            let greeted = connected.and_then(|stream| self.say(stream, address));
            let passed = match greeted {
                Ok(stream) => return Ok((stream, address)),
                Err(Passed::Moved(to)) if redirections < REDIRECTIONS_MAX => {
                    redirections += 1;
                    left.retain(|known| *known != to);
                    left.push_front(to);
                    continue;
                }
                Err(Passed::Moved(_)) => AwayReason::Moved,
                Err(Passed::Away(passed)) => passed,
            };
            why = why.or_telling(passed);
        }
        Err(why)
    }

    fn say<S: Read + Write>(&self, mut stream: S, address: SocketAddr) -> Result<S, Passed> {
        greet(&mut stream, address, self)?;
        if !matches!(self.tracks, Tracks::Nothing) {
            // Behind all else that is read: what changes of that nobody is to hear.
            track(&mut stream, &self.tracks.words())?;
        }
        Ok(stream)
    }
}

fn greet(
    stream: &mut (impl Read + Write),
    address: SocketAddr,
    greeting: &Greeting,
) -> Result<(), Passed> {
    let Greeting { login, layout, .. } = greeting;
    if let Some(password) = login.password.as_ref().map(Password::in_force) {
        let words: Vec<&[u8]> = match &login.user {
            Some(user) => vec![b"AUTH", user.as_bytes(), password.as_bytes()],
            None => vec![b"AUTH", password.as_bytes()],
        };
        ask(stream, &words, |value| match value {
            Value::Status(b"OK") => Ok(()),
            Value::Error(_) => Err(AwayReason::Login.into()),
            _ => Err(AwayReason::NoStore.into()),
        })?;
    }
    ask(stream, &[b"ROLE"], |role| match is_primary(role) {
        Some(true) => Ok(()),
        Some(false) if greeting.takes_replicas => Ok(()),
        Some(false) => Err(AwayReason::Replica.into()),
        None => Err(refusal(role, address)),
    })?;
    if greeting.waits_for_replica {
        ask(stream, &[b"WAIT", b"0", b"1"], |count| match count {
            Value::Integer(_) => Ok(()),
            other => Err(refusal(other, address)),
        })?;
    }
    let (key, expected) = layout;
    let find = |value: &Value<'_>| match value {
        Value::String(found) => Ok(expected.check(found).map(|()| true)?),
        Value::Null => Ok(false),
        other => Err(refusal(other, address)),
    };
    if ask(stream, &[b"GET", key], find)? {
        return Ok(());
    }
    let set: [&[u8]; 4] = [b"SET", key, expected.bytes(), b"NX"];
    ask(stream, &set, |value| match value {
        Value::Status(b"OK") | Value::Null => Ok(()),
        other => Err(refusal(other, address)),
    })?;
    // Another client may have been first.
    match ask(stream, &[b"GET", key], find)? {
        true => Ok(()),
        false => Err(AwayReason::Layout.into()),
    }
}

/// Has the store say what changes of what is read from now on. Version 3 of the protocol says it beside the replies.
fn track(stream: &mut (impl Read + Write), words: &[&[u8]]) -> Result<(), Passed> {
    let refused = |error: &[u8]| match error.starts_with(b"NOAUTH") {
        true => AwayReason::Login,
        false => AwayReason::Tracking,
    };
    ask(stream, &[b"HELLO", b"3"], |value| match value {
        Value::Array(_) => Ok(()),
        Value::Error(error) => Err(refused(error).into()),
        _ => Err(AwayReason::NoStore.into()),
    })?;
    // Byte by byte: what is announced right behind the reply is the client's to read.
    let (bytes_max, each) = (REPLY_BYTES_MAX, 1);
    exchange_by(
        stream,
        words,
        (bytes_max, each, &|| false),
        |value| match value {
            Value::Status(b"OK") => Ok(()),
            Value::Error(error) => Err(refused(error).into()),
            _ => Err(AwayReason::NoStore.into()),
        },
    )
}

/// What a reply says that is not the one expected; an error does by its first word.
pub(crate) fn refusal(reply: &Value<'_>, address: SocketAddr) -> Passed {
    let why = match Notice::of(reply, address) {
        Some(Notice::Moved(to)) => return Passed::Moved(to),
        Some(Notice::MovedNowhere) => AwayReason::NoStore,
        Some(Notice::Replica) => AwayReason::Replica,
        None => refusal_reason(reply).unwrap_or(AwayReason::NoStore),
    };
    why.into()
}

/// Sends a command, and takes its reply.
fn ask<T>(
    stream: &mut (impl Read + Write),
    words: &[&[u8]],
    take: impl FnOnce(&Value<'_>) -> Result<T, Passed>,
) -> Result<T, Passed> {
    exchange(stream, words, (REPLY_BYTES_MAX, &|| false), take)
}

/// The same where a reply has so many bytes at most, and comes before it took too long.
pub(crate) fn exchange<T>(
    stream: &mut (impl Read + Write),
    words: &[&[u8]],
    (bytes_max, is_over): (usize, &dyn Fn() -> bool),
    take: impl FnOnce(&Value<'_>) -> Result<T, Passed>,
) -> Result<T, Passed> {
    let each = bytes_max.min(READ_BYTES);
    exchange_by(stream, words, (bytes_max, each, is_over), take)
}

/// The same where so many bytes are read at a time.
fn exchange_by<T>(
    stream: &mut (impl Read + Write),
    words: &[&[u8]],
    (bytes_max, each, is_over): (usize, usize, &dyn Fn() -> bool),
    take: impl FnOnce(&Value<'_>) -> Result<T, Passed>,
) -> Result<T, Passed> {
    let mut command = Vec::new();
    CommandWriter::new(&mut command).command(words);
    stream.write_all(&command).map_err(|error| lost(&error))?;
    let mut scanner = Scanner::new();
    let mut received = Vec::new();
    let mut room = vec![0; each];
    loop {
        let count = stream.read(&mut room).map_err(|error| lost(&error))?;
        if count == 0 {
            return Err(AwayReason::Closed.into());
        }
        received.extend(&room[..count]);
        match scanner.scan(&received) {
            Ok(Some(length)) => {
                return match Value::read(&received[..length]) {
                    Ok(Some((value, _))) => take(&value),
                    _ => Err(AwayReason::NoStore.into()),
                };
            }
            Ok(None) if is_over() => return Err(AwayReason::Silent.into()),
            Ok(None) if received.len() <= bytes_max => {}
            _ => return Err(AwayReason::NoStore.into()),
        }
    }
}

fn lost(error: &std::io::Error) -> AwayReason {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => AwayReason::Silent,
        _ => AwayReason::Closed,
    }
}
