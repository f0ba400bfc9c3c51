//! One connection: what it has asked for beyond commands of keys, its transaction, and the keys that it watches.

use std::sync::Arc;

use asterism_resp::{ReplyWriter, Value};

use crate::append_file::COMMAND_BYTES_MAX;
use crate::command::{self, Command, Refused};
use crate::keyspace::Keyspace;
use crate::passwords;
use crate::tracking::TrackingError;

/// Arguments of one command at most.
pub(crate) const ARGUMENTS_MAX: usize = 1 << 16;
/// Commands of one transaction at most.
pub(crate) const QUEUED_MAX: usize = 1 << 14;
/// Bytes of the commands of one transaction, and of the keys that one connection watches, at most.
pub(crate) const KEPT_BYTES_MAX: usize = 32 << 20;
/// Bytes of replies behind which a connection is sent nothing more: it ends.
pub(crate) const REPLIES_BYTES_MAX: usize = 64 << 20;
/// Bytes of a command at most before the password.
const STRANGER_BYTES_MAX: usize = 1 << 14;
/// The only user.
const USER: &[u8] = b"default";
/// Keys that one connection watches at most.
pub(crate) const WATCHED_MAX: usize = 1 << 14;

/// What becomes of a connection after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It goes on.
    GoesOn,
    /// It ends when its replies are sent.
    Ends,
}

/// A command that waits for `EXEC`.
struct Queued {
    what: What,
    arguments: Vec<Vec<u8>>,
}

/// What a command is about.
#[derive(Clone, Copy)]
enum What {
    Keys(&'static Command),
    Connection(Own),
}

/// A connection.
#[derive(Default)]
pub struct Session {
    /// Any of them is to be shown before anything else; `None`: nothing is.
    passwords: Option<Arc<[String]>>,
    /// The one that was shown.
    shown: Option<String>,
    is_version_3: bool,
    /// The commands of a transaction that was begun.
    queued: Option<Vec<Queued>>,
    /// One of them was refused: the transaction will not be made.
    is_broken: bool,
    queued_bytes: usize,
    watched: Vec<(Vec<u8>, u64)>,
    watched_bytes: usize,
    /// Its number among those that keep what they read.
    reader: Option<u64>,
    /// It hears of all keys that begin as it said, and not of those that it read.
    is_broadcast: bool,
}

impl core::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Session({} watched)", self.watched.len())
    }
}

/// Commands of a connection itself, which may stand in no transaction but for the last ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    Hello,
    Auth,
    Quit,
    Ping,
    Echo,
    Select,
    Client,
    Command,
    Info,
    Wait,
    Role,
}

fn own(name: &[u8]) -> Option<Own> {
    Some(match name.to_ascii_lowercase().as_slice() {
        b"multi" => Own::Multi,
        b"exec" => Own::Exec,
        b"discard" => Own::Discard,
        b"watch" => Own::Watch,
        b"unwatch" => Own::Unwatch,
        b"hello" => Own::Hello,
        b"auth" => Own::Auth,
        b"quit" => Own::Quit,
        b"ping" => Own::Ping,
        b"echo" => Own::Echo,
        b"select" => Own::Select,
        b"client" => Own::Client,
        b"command" => Own::Command,
        b"info" => Own::Info,
        b"wait" => Own::Wait,
        b"role" => Own::Role,
        _ => return None,
    })
}

impl Own {
    /// It may be asked before the password.
    fn is_of_strangers(self) -> bool {
        matches!(self, Own::Auth | Own::Hello | Own::Quit)
    }
    /// It is done at once also within a transaction.
    fn is_of_transactions(self) -> bool {
        matches!(
            self,
            Own::Multi | Own::Exec | Own::Discard | Own::Watch | Own::Quit
        )
    }
}

impl Session {
    /// A connection that has asked for nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same where one of these passwords is to be shown first; `None`: no password is.
    #[must_use]
    pub fn with_passwords(passwords: Option<Arc<[String]>>) -> Self {
        Self {
            passwords,
            ..Self::default()
        }
    }

    /// Other passwords are in force. Tells whether the connection may go on: not if it has shown one that is not among them.
    pub fn set_passwords(&mut self, passwords: Arc<[String]>) -> bool {
        let may_go_on = match &self.shown {
            Some(shown) => passwords.contains(shown),
            None => true,
        };
        self.passwords = Some(passwords);
        may_go_on
    }

    /// Whether a password is to be shown that was not yet.
    pub(crate) fn is_stranger(&self) -> bool {
        self.passwords.is_some() && self.shown.is_none()
    }

    /// Bytes of a command that is not whole yet, at most.
    pub(crate) fn command_bytes_max(&self) -> usize {
        match self.is_stranger() {
            true => STRANGER_BYTES_MAX,
            false => COMMAND_BYTES_MAX,
        }
    }

    /// Takes a password. If it is another one, nothing changes.
    fn log_in(&mut self, user: &[u8], password: &[u8]) -> Result<(), Refused> {
        let passwords = self.passwords.as_ref().ok_or(Refused::NoPassword)?;
        let place = passwords::place(passwords, password).filter(|_| user == USER);
        let shown = place.and_then(|place| passwords.get(place));
        self.shown = Some(shown.ok_or(Refused::Password)?.clone());
        Ok(())
    }

    /// Does what a client sent: the reply goes to `out`, and what changed to the append file.
    pub fn call(
        &mut self,
        keyspace: &mut Keyspace,
        sent: Value<'_>,
        out: &mut Vec<u8>,
        append_file: Option<&mut Vec<u8>>,
    ) -> After {
        self.tell_of_read(keyspace, out);
        let mut reply = ReplyWriter::new(out, self.is_version_3);
        let arguments: Option<Vec<&[u8]>> = match sent {
            Value::Array(values) if values.len() <= ARGUMENTS_MAX => {
                values.map(|value| value.bytes()).collect()
            }
            _ => None,
        };
        let Some(arguments) = arguments else {
            reply.error("ERR Protocol error: a command is an array of strings");
            return After::Ends;
        };
        let Some(&name) = arguments.first() else {
            return After::GoesOn;
        };
        let own = own(name);
        if self.is_stranger() && !own.is_some_and(Own::is_of_strangers) {
            reply.error("NOAUTH Authentication required.");
            return After::GoesOn;
        }
        if let Some(own) = own.filter(|own| self.queued.is_none() || own.is_of_transactions()) {
            return self.call_own(keyspace, own, &arguments, (out, append_file));
        }
        if let Some(own) = own {
            self.queue(What::Connection(own), &arguments, &mut reply);
            return After::GoesOn;
        }
        let Some(command) = command::find(name) else {
            let name = String::from_utf8_lossy(name);
            reply.error(&format!("ERR unknown command '{name}'"));
            self.is_broken = true;
            return After::GoesOn;
        };
        if !command.takes(arguments.len()) {
            reply.error(&Refused::Arguments(command.name).text());
            self.is_broken = true;
        } else if command.adds && keyspace.is_full() {
            reply.error("OOM command not allowed when used memory > 'maxmemory'.");
            self.is_broken = true;
        } else if self.queued.is_some() {
            self.queue(What::Keys(command), &arguments, &mut reply);
        } else {
            command.run(keyspace, &arguments, &mut reply, append_file);
            self.note_read(keyspace, command, &arguments);
        }
        After::GoesOn
    }

    /// Writes what the connection is to hear: whenever replies are sent.
    pub fn tell(&mut self, keyspace: &mut Keyspace, out: &mut Vec<u8>) {
        self.tell_of_read(keyspace, out);
        if let Some(reader) = self.reader {
            keyspace.tracking.write_broadcast(reader, out);
        }
    }

    /// The same of keys that it has read: also before its next reply. What is broadcast goes behind the replies, as it does from Redis.
    fn tell_of_read(&mut self, keyspace: &mut Keyspace, out: &mut Vec<u8>) {
        if let Some(reader) = self.reader {
            keyspace.tracking.write(reader, out);
        }
    }

    /// The connection may keep what it just read.
    fn note_read(&self, keyspace: &mut Keyspace, command: &Command, arguments: &[&[u8]]) {
        if let Some(reader) = self.reader.filter(|_| !self.is_broadcast) {
            for key in command.keys_read(arguments) {
                keyspace.tracking.read(reader, key);
            }
        }
    }

    /// `CLIENT TRACKING`: in version 3, of all that is read, or of all keys that begin so.
    fn track(&mut self, keyspace: &mut Keyspace, words: &[&[u8]], reply: &mut ReplyWriter<'_>) {
        let (on, mut options) = match words {
            [on, options @ ..] => (*on, options.iter()),
            [] => return reply.error(&Refused::Syntax.text()),
        };
        let (mut is_broadcast, mut prefixes) = (false, Vec::new());
        while let Some(option) = options.next() {
            if option.eq_ignore_ascii_case(b"bcast") {
                is_broadcast = true;
            } else if option.eq_ignore_ascii_case(b"prefix")
                && let Some(prefix) = options.next()
            {
                prefixes.push(*prefix);
            } else {
                return reply.error(&Refused::Syntax.text());
            }
        }
        if on.eq_ignore_ascii_case(b"off") {
            self.track_no_more(keyspace);
            return reply.status("OK");
        }
        if !on.eq_ignore_ascii_case(b"on") {
            return reply.error(&Refused::Syntax.text());
        }
        match self.begin_tracking(keyspace, is_broadcast, &prefixes) {
            Ok(()) => reply.status("OK"),
            Err(error) => reply.error(&error.text()),
        }
    }

    fn begin_tracking(
        &mut self,
        keyspace: &mut Keyspace,
        is_broadcast: bool,
        prefixes: &[&[u8]],
    ) -> Result<(), TrackingError> {
        let is_switched = self.reader.is_some() && self.is_broadcast != is_broadcast;
        if !self.is_version_3 {
            return Err(TrackingError::Version);
        } else if !is_broadcast && !prefixes.is_empty() {
            return Err(TrackingError::PrefixAlone);
        } else if is_switched {
            return Err(TrackingError::Switched);
        }
        let known = self.reader;
        let reader = known.unwrap_or_else(|| keyspace.tracking.begin());
        if is_broadcast && let Err(error) = keyspace.tracking.broadcast(reader, prefixes) {
            if known.is_none() {
                keyspace.tracking.end(reader);
            }
            return Err(error);
        }
        (self.reader, self.is_broadcast) = (Some(reader), is_broadcast);
        Ok(())
    }

    fn track_no_more(&mut self, keyspace: &mut Keyspace) {
        if let Some(reader) = self.reader.take() {
            keyspace.tracking.end(reader);
        }
    }

    /// A command is to be made with the others of its transaction.
    fn queue(&mut self, what: What, arguments: &[&[u8]], reply: &mut ReplyWriter<'_>) {
        let Some(queued) = &mut self.queued else {
            return;
        };
        let bytes: usize = arguments.iter().map(|argument| argument.len()).sum();
        if queued.len() >= QUEUED_MAX || self.queued_bytes + bytes > KEPT_BYTES_MAX {
            reply.error("ERR too many commands in one transaction");
            self.is_broken = true;
            return;
        }
        self.queued_bytes += bytes;
        let arguments = arguments.iter().map(|argument| argument.to_vec()).collect();
        queued.push(Queued { what, arguments });
        reply.status("QUEUED");
    }

    fn call_own(
        &mut self,
        keyspace: &mut Keyspace,
        own: Own,
        arguments: &[&[u8]],
        (out, append_file): (&mut Vec<u8>, Option<&mut Vec<u8>>),
    ) -> After {
        let mut reply = ReplyWriter::new(out, self.is_version_3);
        let rest = arguments.get(1..).unwrap_or_default();
        let wrong = |reply: &mut ReplyWriter<'_>| {
            let name = String::from_utf8_lossy(arguments[0]).to_lowercase();
            reply.error(&format!(
                "ERR wrong number of arguments for '{name}' command"
            ));
        };
        let is_within = self.queued.is_some();
        match own {
            Own::Multi if is_within => reply.error("ERR MULTI calls can not be nested"),
            Own::Multi => {
                self.queued = Some(Vec::new());
                self.is_broken = false;
                reply.status("OK");
            }
            Own::Exec => self.execute(keyspace, (out, append_file)),
            Own::Discard if is_within => {
                self.end_transaction(keyspace);
                reply.status("OK");
            }
            Own::Discard => reply.error("ERR DISCARD without MULTI"),
            Own::Watch if is_within => {
                reply.error("ERR WATCH inside MULTI is not allowed");
            }
            Own::Watch if rest.is_empty() => wrong(&mut reply),
            Own::Watch if !self.may_watch(rest) => reply.error("ERR too many watched keys"),
            Own::Watch => {
                // A key that is watched already stays as it was seen first.
                for key in rest {
                    self.watched_bytes += key.len();
                    self.watched.push((key.to_vec(), keyspace.watch(key)));
                }
                reply.status("OK");
            }
            Own::Unwatch => {
                self.unwatch(keyspace);
                reply.status("OK");
            }
            Own::Hello => {
                self.hello(rest, out);
                // What a connection keeps it could not hear of any more.
                if !self.is_version_3 {
                    self.track_no_more(keyspace);
                }
            }
            Own::Auth => {
                let logged_in = match rest {
                    [password] => self.log_in(USER, password),
                    [user, password] => self.log_in(user, password),
                    _ => Err(Refused::Arguments("auth")),
                };
                match logged_in {
                    Ok(()) => reply.status("OK"),
                    Err(refused) => reply.error(&refused.text()),
                }
            }
            Own::Quit => {
                reply.status("OK");
                return After::Ends;
            }
            Own::Ping => match rest {
                [] => reply.status("PONG"),
                [text] => reply.string(text),
                _ => wrong(&mut reply),
            },
            Own::Echo => match rest {
                [text] => reply.string(text),
                _ => wrong(&mut reply),
            },
            Own::Select => match rest {
                [b"0"] => reply.status("OK"),
                [_] => reply.error(&Refused::Database.text()),
                _ => wrong(&mut reply),
            },
            // Names of clients, and what they are: nobody looks at them here.
            Own::Client => match rest {
                [what, ..] if what.eq_ignore_ascii_case(b"id") => reply.integer(1),
                [what, ..] if what.eq_ignore_ascii_case(b"tracking") => {
                    self.track(keyspace, rest.get(1..).unwrap_or_default(), &mut reply);
                }
                [_, ..] => reply.status("OK"),
                [] => wrong(&mut reply),
            },
            Own::Command => reply.array(0),
            Own::Info => {
                let text = format!(
                    "# Server\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\nserver_name:asterism\r\n\r\n# Memory\r\n\
                     used_memory:{}\r\nmaxmemory_policy:noeviction\r\n\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
                     # Stats\r\nexpired_keys:{}\r\n",
                    keyspace.bytes(),
                    keyspace.expired(),
                );
                reply.string(text.as_bytes());
            }
            // There are no replicas.
            Own::Wait => reply.integer(0),
            Own::Role => {
                reply.array(3);
                reply.string(b"master");
                reply.integer(0);
                reply.array(0);
            }
        }
        After::GoesOn
    }

    fn hello(&mut self, rest: &[&[u8]], out: &mut Vec<u8>) {
        let version = match rest.first() {
            None => Ok(self.is_version_3),
            Some(&b"2") => Ok(false),
            Some(&b"3") => Ok(true),
            Some(_) => Err(Refused::Protocol),
        };
        let version = version.and_then(|version| match rest.get(1..).unwrap_or_default() {
            [auth, user, password, ..] if auth.eq_ignore_ascii_case(b"auth") => {
                self.log_in(user, password).map(|()| version)
            }
            _ if self.is_stranger() => Err(Refused::Stranger),
            _ => Ok(version),
        });
        let version = match version {
            Ok(version) => version,
            Err(refused) => {
                return ReplyWriter::new(out, self.is_version_3).error(&refused.text());
            }
        };
        self.is_version_3 = version;
        let mut reply = ReplyWriter::new(out, version);
        reply.map(5);
        for (name, value) in [
            ("server", "redis"),
            ("version", "7.0.0"),
            ("mode", "standalone"),
            ("role", "master"),
        ] {
            reply.string(name.as_bytes());
            reply.string(value.as_bytes());
        }
        reply.string(b"proto");
        reply.integer(if version { 3 } else { 2 });
    }

    fn may_watch(&self, keys: &[&[u8]]) -> bool {
        let bytes: usize = keys.iter().map(|key| key.len()).sum();
        self.watched.len() + keys.len() <= WATCHED_MAX
            && self.watched_bytes + bytes <= KEPT_BYTES_MAX
    }

    /// Bytes that are kept for this connection alone.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.queued_bytes + self.watched_bytes
    }

    fn end_transaction(&mut self, keyspace: &mut Keyspace) {
        (self.queued, self.queued_bytes) = (None, 0);
        self.is_broken = false;
        self.unwatch(keyspace);
    }

    fn unwatch(&mut self, keyspace: &mut Keyspace) {
        for (key, _) in self.watched.drain(..) {
            keyspace.unwatch(&key);
        }
        self.watched_bytes = 0;
    }

    /// The commands of a transaction that was begun are let go: the connection ends.
    pub(crate) fn give_up_transaction(&mut self) {
        (self.queued, self.queued_bytes) = (None, 0);
    }

    /// The connection is over: it watches nothing more.
    pub fn end(mut self, keyspace: &mut Keyspace) {
        self.end_transaction(keyspace);
        self.track_no_more(keyspace);
    }

    /// Makes the transaction whole, unless one of its commands was refused or a watched key has changed.
    fn execute(
        &mut self,
        keyspace: &mut Keyspace,
        (out, append_file): (&mut Vec<u8>, Option<&mut Vec<u8>>),
    ) {
        let mut reply = ReplyWriter::new(out, self.is_version_3);
        let Some(queued) = self.queued.take() else {
            return reply.error("ERR EXEC without MULTI");
        };
        let is_changed = |(key, since): &(Vec<u8>, u64)| keyspace.has_changed(key, *since);
        let has_changed = self.watched.iter().any(is_changed);
        let is_broken = self.is_broken;
        self.end_transaction(keyspace);
        if is_broken {
            return reply.error("EXECABORT Transaction discarded because of previous errors.");
        }
        if has_changed {
            return reply.null_array();
        }
        reply.array(queued.len());
        // What one transaction changed stands in the append file together, so that it is read again whole or not at all.
        let (mut noted, mut unsent) = (Vec::new(), Vec::new());
        for Queued { what, arguments } in &queued {
            let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
            // The transaction is made whole, though the client is sent no more of its replies.
            unsent.clear();
            let out = match out.len() <= REPLIES_BYTES_MAX {
                true => &mut *out,
                false => &mut unsent,
            };
            match what {
                What::Keys(command) => {
                    let noted = append_file.is_some().then_some(&mut noted);
                    let mut reply = ReplyWriter::new(out, self.is_version_3);
                    command.run(keyspace, &arguments, &mut reply, noted);
                    self.note_read(keyspace, command, &arguments);
                }
                What::Connection(own) => {
                    self.call_own(keyspace, *own, &arguments, (out, None));
                }
            }
        }
        if let Some(append_file) = append_file
            && !noted.is_empty()
        {
            crate::append_file::write_together(append_file, &noted);
        }
    }
}
