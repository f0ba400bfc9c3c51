//! Serves connections on one thread.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use asterism_resp::{Scanner, Value};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use crate::append_file::{AppendFile, AppendFileError, Sync};
use crate::keyspace::Keyspace;
use crate::passwords::Passwords;
use crate::session::{After, REPLIES_BYTES_MAX, Session};

/// Bytes that are kept for all connections together: commands that are not whole, transactions, replies. Beyond them the connection that
/// takes most of them ends.
const KEPT_BYTES_MAX: usize = 256 << 20;
/// What one connection takes that may as well go on.
const LITTLE_BYTES: usize = 1 << 20;
/// Bytes read from a connection at a time.
const READ_BYTES: usize = 1 << 16;
/// The longest wait for something to come: how late a stop is seen at most.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// Connections at a time that have not shown a password, at most: one more takes the place of the oldest.
const STRANGERS_MAX: usize = 64;
/// How long one may take to show it, in milliseconds.
const LOGIN_MS_MAX: u64 = 5_000;
/// How long a client may be silent before the system asks whether it is there still.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(30);
/// How long until it asks again: a client that answers none of three is gone.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(10);
/// How long, in milliseconds, what was sent to a client may stay unacknowledged.
const UNACKNOWLEDGED_MS_MAX: u32 = 60_000;

/// How a store is served.
#[derive(Clone)]
pub struct ServerConfig {
    /// Where connections are taken.
    pub listen: SocketAddr,
    /// Connections at a time, at most: one more is closed at once. Of those that have not logged in there are no more than 64, each for
    /// five seconds at most.
    pub clients_max: usize,
    /// Bytes that keys and values may take.
    pub bytes_max: usize,
    /// What clients show before anything else, with `AUTH` or `HELLO`; `None`: nothing.
    pub passwords: Option<Passwords>,
    /// Where changes are kept, and when they are on the disk there; `None`: what the store holds ends with it.
    pub append_file: Option<(PathBuf, Sync)>,
}

impl core::fmt::Debug for ServerConfig {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "ServerConfig({})", self.listen)
    }
}

impl ServerConfig {
    /// On that address, with 128 connections and 1 GiB, kept nowhere.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            clients_max: 128,
            bytes_max: 1 << 30,
            passwords: None,
            append_file: None,
        }
    }
}

/// Why a store is not served, or not any more.
#[derive(Debug)]
pub enum ServerError {
    /// The address cannot be taken.
    Listen {
        /// Which one.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The append file is not read, or not written.
    AppendFile(AppendFileError),
    /// The system does not say what came.
    Poll(io::Error),
}

impl core::fmt::Display for ServerError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Listen { address, error } => write!(formatter, "{address}: {error}"),
            Self::AppendFile(error) => error.fmt(formatter),
            Self::Poll(error) => write!(formatter, "connections cannot be waited for: {error}"),
        }
    }
}

impl core::error::Error for ServerError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Listen { error, .. } | Self::Poll(error) => Some(error),
            Self::AppendFile(error) => Some(error),
        }
    }
}

impl From<AppendFileError> for ServerError {
    fn from(error: AppendFileError) -> Self {
        Self::AppendFile(error)
    }
}

/// A connection with what came and what is to go.
struct Client {
    stream: TcpStream,
    session: Session,
    scanner: Scanner,
    received: Vec<u8>,
    replies: Vec<u8>,
    /// Replies that were sent.
    sent: usize,
    after: After,
    /// Milliseconds since 1970 when it came.
    came_ms: u64,
}

/// What other threads see of a store, as of its last turn.
#[derive(Debug, Default)]
pub struct ServerStatistics {
    /// Bytes of its keys and values.
    pub bytes: AtomicU64,
    /// Connections that were closed since there were too many, or since they showed no password in time.
    pub refused: AtomicU64,
    /// Times that the append file was to be rewritten and could not be: it goes on growing.
    pub not_rewritten: AtomicU64,
}

/// A store that takes connections.
pub struct Server {
    listener: TcpListener,
    clients: Vec<Client>,
    clients_max: usize,
    passwords: Option<Passwords>,
    /// Those that clients were served by in the last turn.
    in_force: Option<Arc<[String]>>,
    keyspace: Keyspace,
    append_file: Option<AppendFile>,
    changes: Vec<u8>,
    /// For other threads.
    statistics: Arc<ServerStatistics>,
    /// Bytes that were cut off the append file's end when it was opened.
    cut: u64,
    now_ms: Box<dyn Fn() -> u64 + Send>,
}

impl core::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Server({} clients)", self.clients.len())
    }
}

impl Server {
    /// Takes the address, and reads the append file. `now_ms` tells the time: milliseconds since 1970.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn bind(
        config: ServerConfig,
        now_ms: impl Fn() -> u64 + Send + 'static,
    ) -> Result<Self, ServerError> {
        let failed = |error| ServerError::Listen {
            address: config.listen,
            error,
        };
        let listener = TcpListener::bind(config.listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let mut keyspace = Keyspace::new(config.bytes_max);
        let (mut append_file, mut cut) = (None, 0);
        if let Some((path, sync)) = &config.append_file {
            let (opened, bytes) = AppendFile::open(path, *sync, &mut keyspace)?;
            (append_file, cut) = (Some(opened), bytes);
        }
        Ok(Self {
            listener,
            clients: Vec::new(),
            clients_max: config.clients_max,
            in_force: config.passwords.as_ref().map(Passwords::in_force),
            passwords: config.passwords,
            keyspace,
            append_file,
            changes: Vec::new(),
            statistics: Arc::default(),
            cut,
            now_ms: Box::new(now_ms),
        })
    }

    /// Where connections are taken: the port that was given for port 0.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What other threads see of it.
    #[must_use]
    pub fn statistics(&self) -> Arc<ServerStatistics> {
        self.show_bytes();
        self.statistics.clone()
    }

    fn show_bytes(&self) {
        let bytes = self.keyspace.bytes() as u64;
        self.statistics.bytes.store(bytes, Ordering::Relaxed);
    }

    /// What it holds.
    #[must_use]
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }
    /// Bytes that were not whole at the end of the append file, and were cut off.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Serves until it is to stop, which it sees within 50 ms.
    ///
    /// # Errors
    /// It cannot go on. What was acknowledged is in the append file.
    pub fn run(&mut self, stops: &AtomicBool) -> Result<(), ServerError> {
        while !stops.load(Ordering::Relaxed) {
            self.turn()?;
        }
        let now_ms = (self.now_ms)();
        match &mut self.append_file {
            Some(append_file) => Ok(append_file.finish(now_ms)?),
            None => Ok(()),
        }
    }

    /// Waits for something to come, and answers it.
    fn turn(&mut self) -> Result<(), ServerError> {
        let ready = self.wait()?;
        let now_ms = (self.now_ms)();
        self.keyspace.advance(now_ms);
        self.take_up_passwords();
        self.end_late_strangers(now_ms);
        if self.append_file.is_some() {
            self.keyspace.take_ended(&mut self.changes);
        }
        for (number, is_ready) in ready.into_iter().enumerate() {
            let Some(client) = self.clients.get_mut(number) else {
                break;
            };
            // From one that ends nothing more is taken.
            if client.after == After::Ends {
                continue;
            }
            if is_ready {
                client.receive();
            }
            let append_file = self.append_file.is_some().then_some(&mut self.changes);
            client.answer(&mut self.keyspace, append_file);
            if client.kept_bytes() > LITTLE_BYTES {
                self.end_the_largest();
            }
        }
        // Before anything is acknowledged.
        if let Some(append_file) = &mut self.append_file {
            append_file.append(&self.changes, (self.now_ms)())?;
            self.changes.clear();
            if append_file.has_grown() && append_file.rewrite(&self.keyspace)?.is_some() {
                self.statistics
                    .not_rewritten
                    .fetch_add(1, Ordering::Relaxed);
            }
        }
        for client in &mut self.clients {
            if client.after == After::GoesOn {
                client.session.tell(&mut self.keyspace, &mut client.replies);
            }
            client.send();
        }
        let over = self.clients.extract_if(.., |client| client.is_over());
        for client in over {
            client.session.end(&mut self.keyspace);
        }
        self.take_clients(now_ms);
        self.show_bytes();
        Ok(())
    }

    /// Ends connections until what is kept for them all is within the bound.
    fn end_the_largest(&mut self) {
        let mut bytes: usize = self.clients.iter().map(Client::kept_bytes).sum();
        while bytes > KEPT_BYTES_MAX {
            let largest = self
                .clients
                .iter_mut()
                .max_by_key(|client| client.kept_bytes());
            let Some(client) = largest else {
                return;
            };
            bytes -= client.kept_bytes();
            client.give_up();
        }
    }

    /// Ends the connections of clients that logged in by a password that is not in force any more.
    fn take_up_passwords(&mut self) {
        let Some((passwords, before)) = self.passwords.as_ref().zip(self.in_force.as_ref()) else {
            return;
        };
        let passwords = passwords.in_force();
        if Arc::ptr_eq(&passwords, before) {
            return;
        }
        for client in &mut self.clients {
            if !client.session.set_passwords(passwords.clone()) {
                client.give_up();
            }
        }
        self.in_force = Some(passwords);
    }

    /// Ends connections that have shown no password in time.
    fn end_late_strangers(&mut self, now_ms: u64) {
        for client in &mut self.clients {
            let is_late = now_ms.saturating_sub(client.came_ms) > LOGIN_MS_MAX;
            if is_late && client.session.is_stranger() && client.after == After::GoesOn {
                client.give_up();
                self.statistics.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether one more connection may come: the oldest that has shown no password makes place for it.
    fn makes_place(&mut self) -> bool {
        let is_stranger = |client: &Client| client.session.is_stranger();
        let strangers = self.clients.iter().filter(|client| is_stranger(client));
        if strangers.count() < STRANGERS_MAX && self.clients.len() < self.clients_max {
            return true;
        }
        let Some(oldest) = self.clients.iter().position(is_stranger) else {
            return false;
        };
        let client = self.clients.remove(oldest);
        client.session.end(&mut self.keyspace);
        self.statistics.refused.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Waits, and tells which clients are ready.
    fn wait(&self) -> Result<Vec<bool>, ServerError> {
        let mut descriptors: Vec<PollFd<'_>> = Vec::with_capacity(self.clients.len() + 1);
        for client in &self.clients {
            // From one that ends nothing more is taken.
            let reads = match client.after {
                After::GoesOn => PollFlags::IN,
                After::Ends => PollFlags::empty(),
            };
            let flags = match client.sent < client.replies.len() {
                true => reads | PollFlags::OUT,
                false => reads,
            };
            descriptors.push(PollFd::from_borrowed_fd(client.descriptor(), flags));
        }
        descriptors.push(PollFd::new(&self.listener, PollFlags::IN));
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: WAIT_MAX.subsec_nanos().into(),
        };
        match poll(&mut descriptors, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(ServerError::Poll(errno.into())),
        }
        let clients = descriptors.iter().take(self.clients.len());
        let is_ready = |descriptor: &PollFd<'_>| {
            let quiet = PollFlags::OUT;
            !descriptor.revents().difference(quiet).is_empty()
        };
        Ok(clients.map(is_ready).collect())
    }

    fn take_clients(&mut self, now_ms: u64) {
        // What fails here is the client's affair: it comes again.
        while let Ok((stream, _)) = self.listener.accept() {
            if !is_set_up(&stream) || !self.makes_place() {
                self.statistics.refused.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.clients.push(Client {
                stream,
                session: Session::with_passwords(self.in_force.clone()),
                scanner: Scanner::new(),
                received: Vec::new(),
                replies: Vec::new(),
                sent: 0,
                after: After::GoesOn,
                came_ms: now_ms,
            });
        }
    }
}

impl Client {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// It has its last reply, or does not read them.
    fn is_over(&self) -> bool {
        let waiting = self.replies.len() - self.sent;
        self.after == After::Ends && waiting == 0 || waiting > REPLIES_BYTES_MAX
    }

    /// Bytes that are kept for it.
    fn kept_bytes(&self) -> usize {
        self.received.capacity() + self.replies.capacity() + self.session.kept_bytes()
    }

    /// It is sent nothing more, and what is kept for it is let go.
    fn give_up(&mut self) {
        self.after = After::Ends;
        (self.received, self.replies, self.sent) = (Vec::new(), Vec::new(), 0);
        self.session.give_up_transaction();
    }

    fn receive(&mut self) {
        let before = self.received.len();
        self.received.resize(before + READ_BYTES, 0);
        let read = self.stream.read(&mut self.received[before..]);
        let count = match read {
            Ok(0) => {
                self.after = After::Ends;
                0
            }
            Ok(count) => count,
            Err(error) if is_for_later(&error) => 0,
            Err(_) => return self.give_up(),
        };
        self.received.truncate(before + count);
    }

    /// Answers all commands that are whole.
    fn answer(&mut self, keyspace: &mut Keyspace, mut append_file: Option<&mut Vec<u8>>) {
        let mut from = 0;
        loop {
            let rest = self.received.get(from..).unwrap_or_default();
            match self.scanner.scan(rest) {
                Ok(Some(length)) => {
                    let command = rest.get(..length).unwrap_or_default();
                    if let Ok(Some((value, _))) = Value::read(command) {
                        let append_file = append_file.as_deref_mut();
                        let after =
                            self.session
                                .call(keyspace, value, &mut self.replies, append_file);
                        let waiting = self.replies.len() - self.sent;
                        if after == After::Ends || waiting > REPLIES_BYTES_MAX {
                            self.after = After::Ends;
                            from = self.received.len();
                            break;
                        }
                    }
                    from += length;
                }
                Ok(None) if rest.len() <= self.session.command_bytes_max() => break,
                Ok(None) => {
                    self.protocol_error("a command is too long");
                    from = self.received.len();
                    break;
                }
                Err(error) => {
                    self.protocol_error(&error.to_string());
                    from = self.received.len();
                    break;
                }
            }
        }
        self.received.drain(..from);
        if self.received.is_empty() {
            self.received.shrink_to(READ_BYTES);
        }
    }

    fn protocol_error(&mut self, what: &str) {
        let mut reply = asterism_resp::ReplyWriter::new(&mut self.replies, false);
        reply.error(&format!("ERR Protocol error: {what}"));
        self.after = After::Ends;
    }

    fn send(&mut self) {
        while let Some(rest @ [_, ..]) = self.replies.get(self.sent..) {
            match self.stream.write(rest) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_for_later(&error) => break,
                Err(_) => {
                    self.after = After::Ends;
                    self.sent = self.replies.len();
                }
            }
        }
        if self.sent == self.replies.len() {
            self.replies.clear();
            self.replies.shrink_to(READ_BYTES);
            self.sent = 0;
        }
    }
}

/// Nothing waits for it, and one whose machine died is noticed: its connection ends.
fn is_set_up(stream: &TcpStream) -> bool {
    let has_keep_alive = || {
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, KEEP_ALIVE_AFTER)?;
        sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE_EVERY)?;
        sockopt::set_tcp_keepcnt(stream, 3)?;
        sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MS_MAX)
    };
    let never_waits = stream
        .set_nonblocking(true)
        .and_then(|()| stream.set_nodelay(true));
    never_waits.is_ok() && has_keep_alive().is_ok()
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Milliseconds since 1970, as the system has them.
#[expect(
    clippy::disallowed_methods,
    reason = "the store's keys end by the date, as those of any Redis"
)]
#[must_use]
pub fn wall_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.unwrap_or(Duration::ZERO).as_millis()).unwrap_or(u64::MAX)
}
