//! The commands: their names, how many arguments they have, and what they do.

mod hashes;
mod keys;
mod pattern;
mod sorted_sets;
mod strings;

use asterism_resp::{CommandWriter, ReplyWriter};

use crate::keyspace::{Keyspace, Stored};
use crate::session::REPLIES_BYTES_MAX;

/// A command that changes nothing but keys.
pub(crate) struct Command {
    /// In small letters.
    pub(crate) name: &'static str,
    /// Arguments, its name counted: so many, or so many at least.
    arity: Arity,
    /// Whether it may add to what the store holds: then it is refused while the store is full.
    pub(crate) adds: bool,
    run: Run,
}

type Run = fn(&mut Call<'_, '_>) -> Result<(), Refused>;

#[derive(Clone, Copy)]
enum Arity {
    Exactly(usize),
    AtLeast(usize),
}

use Arity::{AtLeast, Exactly};

/// Why a command was refused: nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Words that it does not have, or in another order.
    Syntax,
    /// The key holds a value of another kind.
    WrongType,
    /// An argument is no number, or one beyond its range.
    Integer,
    /// What is to be a number in a field of a hash is none.
    HashInteger,
    /// Two words that contradict each other.
    Contradiction,
    /// A sum is beyond the range of numbers.
    Overflow,
    /// An argument is no number.
    Float,
    /// An end of a range is no number.
    Range,
    /// A time is none.
    Expiry(&'static str),
    /// There is but one database.
    Database,
    /// Too few arguments, or too many.
    Arguments(&'static str),
    /// The password is another one, or the user.
    Password,
    /// A password is shown, and none is needed.
    NoPassword,
    /// A password is needed.
    Stranger,
    /// A version of the protocol that there is not.
    Protocol,
    /// The cursor of a scan is none.
    Cursor,
    /// The reply would be longer than a connection is ever sent.
    Reply,
}

impl Refused {
    /// As Redis says it.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Syntax => "ERR syntax error".into(),
            Self::WrongType => {
                "WRONGTYPE Operation against a key holding the wrong kind of value".into()
            }
            Self::Integer => "ERR value is not an integer or out of range".into(),
            Self::HashInteger => "ERR hash value is not an integer".into(),
            Self::Contradiction => {
                "ERR XX and NX options at the same time are not compatible".into()
            }
            Self::Overflow => "ERR increment or decrement would overflow".into(),
            Self::Float => "ERR value is not a valid float".into(),
            Self::Range => "ERR min or max is not a float".into(),
            Self::Expiry(name) => format!("ERR invalid expire time in '{name}' command"),
            Self::Database => "ERR DB index is out of range".into(),
            Self::Arguments(name) => {
                format!("ERR wrong number of arguments for '{name}' command")
            }
            Self::Password => "WRONGPASS invalid username-password pair or user is disabled.".into(),
            Self::NoPassword => "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?".into(),
            Self::Stranger => "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time".into(),
            Self::Protocol => "NOPROTO unsupported protocol version".into(),
            Self::Cursor => "ERR invalid cursor".into(),
            Self::Reply => "ERR the reply is too long: ask for fewer keys".into(),
        }
    }
}

macro_rules! commands {
    ($($name:literal $arity:expr, $adds:literal => $run:path;)*) => {
        /// The names of all commands that change or read keys, in small letters; a connection has some more of its own.
        pub const COMMANDS: &[&str] = &[$($name),*];
        const TABLE: &[Command] = &[$(Command {
            name: $name,
            arity: $arity,
            adds: $adds,
            run: $run,
        }),*];
    };
}

commands! {
    "get" Exactly(2), false => strings::get;
    "set" AtLeast(3), true => strings::set;
    "mget" AtLeast(2), false => strings::mget;
    "mset" AtLeast(3), true => strings::mset;
    "incrby" Exactly(3), true => strings::incrby;
    "incr" Exactly(2), true => strings::incr;
    "del" AtLeast(2), false => keys::del;
    "exists" AtLeast(2), false => keys::exists;
    "expire" Exactly(3), false => keys::expire_after;
    "pexpire" Exactly(3), false => keys::pexpire;
    "pexpireat" Exactly(3), false => keys::pexpireat;
    "persist" Exactly(2), false => keys::persist;
    "pttl" Exactly(2), false => keys::pttl;
    "scan" AtLeast(2), false => keys::scan;
    "dbsize" Exactly(1), false => keys::dbsize;
    "flushall" AtLeast(1), false => keys::flushall;
    "hget" Exactly(3), false => hashes::hget;
    "hmget" AtLeast(3), false => hashes::hmget;
    "hscan" AtLeast(3), false => hashes::hscan;
    "hset" AtLeast(4), true => hashes::hset;
    "hincrby" Exactly(4), true => hashes::hincrby;
    "hdel" AtLeast(3), false => hashes::hdel;
    "hgetall" Exactly(2), false => hashes::hgetall;
    "hlen" Exactly(2), false => hashes::hlen;
    "zadd" AtLeast(4), true => sorted_sets::zadd;
    "zrem" AtLeast(3), false => sorted_sets::zrem;
    "zscore" Exactly(3), false => sorted_sets::zscore;
    "zcard" Exactly(2), false => sorted_sets::zcard;
    "zcount" Exactly(4), false => sorted_sets::zcount;
    "zrangebyscore" AtLeast(4), false => sorted_sets::zrangebyscore;
    "zremrangebyscore" Exactly(4), true => sorted_sets::zremrangebyscore;
}

/// The command of that name, in any letters.
pub(crate) fn find(name: &[u8]) -> Option<&'static Command> {
    TABLE
        .iter()
        .find(|command| command.name.as_bytes().eq_ignore_ascii_case(name))
}

impl Command {
    /// Whether so many arguments are right, the name counted.
    pub(crate) fn takes(&self, arguments: usize) -> bool {
        match self.arity {
            Exactly(count) => arguments == count,
            AtLeast(count) => arguments >= count,
        }
    }

    /// The keys that it reads and does not change, of these arguments.
    pub(crate) fn keys_read<'a>(&self, arguments: &'a [&'a [u8]]) -> &'a [&'a [u8]] {
        let keys = match self.name {
            "mget" | "exists" => arguments.get(1..),
            "get" | "pttl" | "hget" | "hmget" | "hscan" | "hgetall" | "hlen" | "zscore"
            | "zcard" | "zcount" | "zrangebyscore" => arguments.get(1..2),
            _ => None,
        };
        keys.unwrap_or_default()
    }

    /// Runs it: the reply, and the change if the keys are appended to a file.
    pub(crate) fn run(
        &'static self,
        keyspace: &mut Keyspace,
        arguments: &[&[u8]],
        reply: &mut ReplyWriter<'_>,
        mut append_file: Option<&mut Vec<u8>>,
    ) {
        if let Some(append_file) = &mut append_file {
            keyspace.take_ended(append_file);
        }
        let mut call = Call {
            command: self,
            keyspace,
            arguments,
            reply,
            append_file: append_file.as_deref_mut(),
        };
        if let Err(refused) = (self.run)(&mut call) {
            reply.error(&refused.text());
        }
        if let Some(append_file) = append_file {
            keyspace.take_ended(append_file);
        }
    }
}

/// A command with its arguments, and where it works.
pub(crate) struct Call<'c, 'r> {
    command: &'static Command,
    keyspace: &'c mut Keyspace,
    /// The name first.
    arguments: &'c [&'c [u8]],
    reply: &'c mut ReplyWriter<'r>,
    append_file: Option<&'c mut Vec<u8>>,
}

impl<'c> Call<'c, '_> {
    fn argument(&self, number: usize) -> &'c [u8] {
        self.arguments.get(number).copied().unwrap_or_default()
    }
    fn from(&self, number: usize) -> &'c [&'c [u8]] {
        self.arguments.get(number..).unwrap_or_default()
    }
    /// Notes what the call changed, as a command that changes the same whenever it is run.
    fn note(&mut self, arguments: &[&[u8]]) {
        if let Some(append_file) = &mut self.append_file {
            CommandWriter::new(append_file).command(arguments);
        }
    }
    /// Notes the call as it came.
    fn note_as_it_is(&mut self) {
        self.note(self.arguments);
    }
    fn wrong_arguments(&self) -> Refused {
        Refused::Arguments(self.command.name)
    }
}

/// Whether a word is this one, in any letters.
fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

fn integer(argument: &[u8]) -> Result<i64, Refused> {
    let text = core::str::from_utf8(argument).map_err(|_| Refused::Integer)?;
    // One way to write each number, so that what is read is written the same.
    let number: i64 = text.parse().map_err(|_| Refused::Integer)?;
    match number.to_string() == text {
        true => Ok(number),
        false => Err(Refused::Integer),
    }
}

fn float(argument: &[u8]) -> Option<f64> {
    let text = core::str::from_utf8(argument).ok()?;
    let number: f64 = text.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// A number as Redis writes scores: whole ones without a point.
pub(crate) fn shown(number: f64) -> String {
    match number {
        f64::INFINITY => "inf".into(),
        f64::NEG_INFINITY => "-inf".into(),
        _ => number.to_string(),
    }
}

/// The value of a key that holds what `of` finds in it; `None` if there is no key.
fn held<'k, T>(
    keyspace: &'k Keyspace,
    key: &[u8],
    of: impl FnOnce(&'k Stored) -> Option<T>,
) -> Result<Option<T>, Refused> {
    match keyspace.get(key) {
        None => Ok(None),
        Some(stored) => of(stored).map(Some).ok_or(Refused::WrongType),
    }
}

/// Replies with many values, of which one may have been named as often as one likes.
fn values<'k>(
    reply: &mut ReplyWriter<'_>,
    each: impl ExactSizeIterator<Item = Option<&'k [u8]>> + Clone,
) -> Result<(), Refused> {
    let bytes = each.clone().flatten().map(<[u8]>::len).sum::<usize>();
    if bytes > REPLIES_BYTES_MAX {
        return Err(Refused::Reply);
    }
    reply.array(each.len());
    each.for_each(|value| match value {
        Some(bytes) => reply.string(bytes),
        None => reply.null(),
    });
    Ok(())
}
