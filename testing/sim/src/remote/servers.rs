//! The store's servers: the embedded store's keyspace and sessions, one as primary and one as its replica.
//!
//! A replica gets what the primary changed as the commands of an append file, in order, some time later. What it has it acknowledges, and
//! `WAIT` waits for that. A server that is a replica refuses what is written, and says what it is by `ROLE`, as Redis does.

use std::collections::VecDeque;

use asterism_embedded_store::{Keyspace, Session};
use asterism_resp::{CommandWriter, Value};

/// Bytes that the store may hold: more than any run needs.
const BYTES_MAX: usize = 1 << 26;
/// Milliseconds since 1970 at time zero.
const BEGINS_MS: u64 = 1_000_000_000;
/// What may change keys.
const WRITES: [&[u8]; 8] = [
    b"SET",
    b"MSET",
    b"DEL",
    b"ZADD",
    b"ZREM",
    b"ZREMRANGEBYSCORE",
    b"HINCRBY",
    b"EXPIRE",
];
const READONLY: &[u8] = b"-READONLY You can't write against a read only replica.\r\n";
const DISCARDED: &[u8] = b"-EXECABORT Transaction discarded because of previous errors.\r\n";
pub(super) const UNBLOCKED: &[u8] =
    b"-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)\r\n";

/// The words of a command.
pub(super) type Words = Vec<Vec<u8>>;

/// A transaction that the primary has made.
#[derive(Debug)]
pub(super) struct Executed {
    pub(super) commands: Vec<Words>,
    /// The primary's changes so far, this one included.
    pub(super) offset: u64,
}

impl Executed {
    /// Whether it ends entries: what packets write has the number of its try.
    pub(super) fn is_claim(&self) -> bool {
        self.commands.iter().all(|words| words[0] != b"SET")
    }
}

/// `WAIT` waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub(super) until_us: u64,
    pub(super) offset: u64,
}

/// The store's end of a connection.
#[derive(Debug, Default)]
pub(super) struct Served {
    pub(super) session: Session,
    pub(super) received: Vec<u8>,
    /// The commands since `MULTI`.
    queued: Option<Vec<Words>>,
    /// One of them was refused: the server is a replica, or takes nothing now.
    is_refused: bool,
    /// The changes so far when it wrote last.
    wrote: u64,
    pub(super) waits: Option<Waits>,
}

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) keyspace: Keyspace,
    pub(super) is_replica: bool,
    pub(super) is_dead: bool,
    /// Another one follows it.
    pub(super) has_replica: bool,
    /// All changes ever, each with the number of bytes up to its end.
    log: Vec<(u64, Vec<u8>)>,
    pub(super) offset: u64,
    /// What comes from the primary, and when.
    coming: VecDeque<(u64, u64, Vec<u8>)>,
    /// What the replica has, as the primary knows, and when it learns more.
    acknowledged: u64,
    acknowledging: VecDeque<(u64, u64)>,
    applies: Session,
    /// Until when it refuses what is written, and how.
    refuses: Option<(u64, Refusal)>,
}

/// How a primary refuses what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is full: what frees room it takes.
    Full,
    /// It has too few replicas.
    NoReplicas,
}

impl Refusal {
    /// What it says to this command, if it refuses it.
    fn of(self, name: &[u8]) -> Option<&'static [u8]> {
        const FREE: [&[u8]; 3] = [b"DEL", b"ZREM", b"ZREMRANGEBYSCORE"];
        match self {
            Self::Full if FREE.contains(&name) => None,
            Self::Full => Some(b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"),
            Self::NoReplicas => Some(b"-NOREPLICAS Not enough good replicas to write.\r\n"),
        }
    }
}

/// What a connection's bytes came to.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) replies: Vec<u8>,
    pub(super) executed: Vec<Executed>,
}

impl Server {
    pub(super) fn new(is_replica: bool) -> Self {
        Self {
            keyspace: Keyspace::new(BYTES_MAX),
            is_replica,
            is_dead: false,
            has_replica: !is_replica,
            log: Vec::new(),
            offset: 0,
            coming: VecDeque::new(),
            acknowledged: 0,
            acknowledging: VecDeque::new(),
            applies: Session::new(),
            refuses: None,
        }
    }

    /// From now on until then it refuses what is written.
    pub(super) fn refuses_until(&mut self, until_us: u64, refusal: Refusal) {
        self.refuses = Some((until_us, refusal));
    }

    /// It has so many keys of others.
    pub(super) fn has_others_keys(&mut self, count: u32) {
        let mut set = Vec::new();
        for number in 0..count {
            let key = format!("other:{number}");
            CommandWriter::new(&mut set).command(&[b"SET", key.as_bytes(), b"value"]);
        }
        self.apply(0, set);
    }

    pub(super) fn advance(&mut self, now_us: u64) {
        self.keyspace.advance(BEGINS_MS + now_us / 1_000);
    }

    /// When something comes from the primary, or the replica's acknowledgement.
    pub(super) fn next_due_us(&self) -> Option<u64> {
        let coming = self.coming.front().map(|(at, ..)| *at);
        let acknowledging = self.acknowledging.front().map(|(at, _)| *at);
        coming.into_iter().chain(acknowledging).min()
    }

    /// The primary's next change that has come.
    pub(super) fn take_coming(&mut self, now_us: u64) -> Option<(u64, Vec<u8>)> {
        let is_here = self.coming.front().is_some_and(|(at, ..)| *at <= now_us);
        let (_, offset, bytes) = is_here.then(|| self.coming.pop_front()).flatten()?;
        Some((offset, bytes))
    }

    pub(super) fn sends_at(&mut self, at_us: u64, offset: u64, bytes: Vec<u8>) {
        let last = self.coming.back().map_or(0, |(at, ..)| *at);
        self.coming.push_back((at_us.max(last), offset, bytes));
    }

    pub(super) fn acknowledges_at(&mut self, at_us: u64, offset: u64) {
        let last = self.acknowledging.back().map_or(0, |(at, _)| *at);
        self.acknowledging.push_back((at_us.max(last), offset));
    }

    pub(super) fn hear_acknowledgements(&mut self, now_us: u64) {
        while let Some((at, offset)) = self.acknowledging.front().copied()
            && at <= now_us
        {
            self.acknowledging.pop_front();
            self.acknowledged = self.acknowledged.max(offset);
        }
    }

    /// It follows nobody, and nobody follows it.
    pub(super) fn is_cut_off(&mut self) {
        self.coming.clear();
        self.acknowledging.clear();
        (self.acknowledged, self.has_replica) = (0, false);
    }

    /// Makes the changes of a primary.
    pub(super) fn apply(&mut self, offset: u64, bytes: Vec<u8>) {
        let mut rest = &bytes[..];
        let mut replies = Vec::new();
        while let Ok(Some((command, length))) = Value::read(rest) {
            self.applies
                .call(&mut self.keyspace, command, &mut replies, None);
            rest = &rest[length..];
        }
        self.offset = offset;
        self.log.push((offset, bytes));
    }

    /// Has what another one has, and nothing else.
    pub(super) fn copy(&mut self, other: &[(u64, Vec<u8>)]) {
        let mut command = Vec::new();
        CommandWriter::new(&mut command).command(&[b"FLUSHALL"]);
        self.log.clear();
        self.apply(0, command);
        self.log.clear();
        for (offset, bytes) in other {
            self.apply(*offset, bytes.clone());
        }
    }

    pub(super) fn log(&self) -> Vec<(u64, Vec<u8>)> {
        self.log.clone()
    }

    /// Changes that were made since; they are announced once.
    pub(super) fn changes_since(&self, offset: u64) -> &[(u64, Vec<u8>)] {
        let from = self.log.partition_point(|(at, _)| *at <= offset);
        &self.log[from..]
    }

    /// What `WAIT` says of what was written up to there.
    pub(super) fn replicas_with(&self, offset: u64) -> u64 {
        u64::from(self.has_replica && self.acknowledged >= offset)
    }

    /// Does the commands that have come by a connection, until one has to wait.
    pub(super) fn serve(&mut self, served: &mut Served, now_us: u64) -> Done {
        let mut done = Done::default();
        let received = core::mem::take(&mut served.received);
        let mut rest = &received[..];
        while served.waits.is_none()
            && let Ok(Some((command, length))) = Value::read(rest)
        {
            self.call(served, command, now_us, &mut done);
            rest = &rest[length..];
        }
        served.received = rest.to_vec();
        done
    }

    fn call(&mut self, served: &mut Served, command: Value<'_>, now_us: u64, done: &mut Done) {
        let words: Words = match command {
            Value::Array(values) => values.filter_map(|word| word.bytes().map(<[u8]>::to_vec)),
            _ => return,
        }
        .collect();
        let name = words.first().map(|name| name.to_ascii_uppercase());
        let name = name.as_deref().unwrap_or_default();
        if self.is_replica && WRITES.contains(&name) {
            served.is_refused |= served.queued.is_some();
            return done.replies.extend(READONLY);
        }
        let refuses = self.refuses.filter(|(until_us, _)| now_us < *until_us);
        let refuses = refuses.filter(|_| WRITES.contains(&name));
        if let Some(error) = refuses.and_then(|(_, refusal)| refusal.of(name)) {
            served.is_refused |= served.queued.is_some();
            return done.replies.extend(error);
        }
        match name {
            b"ROLE" if self.is_replica => {
                return done
                    .replies
                    .extend(b"*5\r\n$5\r\nslave\r\n$1\r\n?\r\n:1\r\n$9\r\nconnected\r\n:0\r\n");
            }
            b"WAIT" => {
                let number = |place: usize| -> u64 {
                    let text = words
                        .get(place)
                        .and_then(|word| core::str::from_utf8(word).ok());
                    text.and_then(|text| text.parse().ok()).unwrap_or_default()
                };
                let (wanted, wait_ms) = (number(1), number(2));
                let has = self.replicas_with(served.wrote);
                if has >= wanted {
                    return done.replies.extend(format!(":{has}\r\n").as_bytes());
                }
                served.waits = Some(Waits {
                    until_us: now_us + wait_ms * 1_000,
                    offset: served.wrote,
                });
                return;
            }
            _ => {}
        }
        let mut changes = Vec::new();
        let before = done.replies.len();
        if name == b"EXEC" && core::mem::take(&mut served.is_refused) {
            let mut discard = Vec::new();
            CommandWriter::new(&mut discard).command(&[b"DISCARD"]);
            if let Ok(Some((discard, _))) = Value::read(&discard) {
                let keyspace = &mut self.keyspace;
                served
                    .session
                    .call(keyspace, discard, &mut Vec::new(), None);
            }
            done.replies.extend(DISCARDED);
        } else {
            let (keyspace, replies) = (&mut self.keyspace, &mut done.replies);
            served
                .session
                .call(keyspace, command, replies, Some(&mut changes));
        }
        if !changes.is_empty() {
            self.offset += changes.len() as u64;
            self.log.push((self.offset, changes));
            served.wrote = self.offset;
        }
        match name {
            b"MULTI" => served.queued = Some(Vec::new()),
            b"EXEC" => {
                let is_made = matches!(&done.replies[before..], [b'*', b'0'..=b'9', ..]);
                if let (Some(commands), true) = (served.queued.take(), is_made) {
                    let offset = self.offset;
                    done.executed.push(Executed { commands, offset });
                }
            }
            _ => {
                if let Some(queued) = &mut served.queued {
                    queued.push(words);
                }
            }
        }
    }

    /// What a reader outside asks for.
    pub(super) fn ask(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut command = Vec::new();
        CommandWriter::new(&mut command).command(words);
        let mut reply = Vec::new();
        if let Ok(Some((command, _))) = Value::read(&command) {
            Session::new().call(&mut self.keyspace, command, &mut reply, None);
        }
        reply
    }
}
