//! What a connection that commits (`commits.rs`) waits for, and what came of it.

use asterism_resp::{CommandWriter, Value};
use asterism_state::Transaction;

use crate::commits::CommitPipe;
use crate::mutant::{self, Mutant};
use crate::statistics::AwayReason;

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    /// So many replies to a look for entries whose time is over.
    Looking(usize),
    /// The replies to `WATCH`, to the read of the pipe's key and of those after so many, and then these counts.
    Loading {
        replies: usize,
        counts: Vec<u8>,
        is_first: bool,
    },
    /// The replies to so many commands, of which the last one is `EXEC`.
    Executing {
        left: usize,
        /// Why the store refused one of those before.
        refused: Option<AwayReason>,
    },
    /// The replies to so many commands, of which the last one is `WAIT`. This is what `EXEC` came to.
    Replicating {
        left: usize,
        outcome: Outcome,
    },
    /// The reply to `UNWATCH`: nothing was to be written.
    Leaving,
    /// The reply to `ROLE`.
    Checking,
    /// A connection.
    Connection,
    /// This time, in microseconds: the store takes nothing now.
    Time(u64),
}

impl Step {
    /// Whether a reply to it says that the store made a part of a try: a key has another type than it should, say. It undoes nothing then.
    pub(crate) fn is_torn_by(&self, reply: &Value<'_>) -> bool {
        match (self, reply) {
            (Self::Executing { left: 1, .. }, Value::Array(values)) => {
                { *values }.any(|value| matches!(value, Value::Error(_)))
            }
            _ => false,
        }
    }
}

/// Seconds that a pipe's key stays after its last commit.
const PIPE_STAYS_S: i64 = 24 * 3_600;

/// What a try does if it is made.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    /// Which of the transactions are committed by it.
    pub(crate) are_committed: Vec<bool>,
    /// Additions that it leaves out, for they came too late.
    pub(crate) expired: u64,
}

/// A try to commit transactions that is under way: what a simulator judges by.
#[derive(Clone, Debug)]
pub struct Try<'a, A> {
    /// The key that the store has the try's number under once it is made.
    pub key: &'a [u8],
    /// The try's number.
    pub number: String,
    /// The transactions, in order, each under its name.
    pub transactions: &'a [(A, Transaction)],
    /// Which of them are committed by it.
    pub are_committed: &'a [bool],
}

impl<'a, A> Try<'a, A> {
    /// The one of a connection, if one is under way.
    pub(crate) fn of(pipe: &'a CommitPipe<A>) -> Option<Self> {
        matches!(pipe.step, Step::Executing { .. }).then(|| Self {
            key: &pipe.own_key,
            number: try_number(pipe.number, pipe.tries),
            transactions: &pipe.transactions,
            are_committed: pipe
                .decided
                .last()
                .map_or(&[], |tried| &tried.are_committed),
        })
    }
}

/// A try as the store has its number.
fn try_number(number: u64, tried: u32) -> String {
    format!("{number}.{tried}")
}

/// Sets a pipe's own key to a try.
pub(crate) fn note_try(own_key: &[u8], number: u64, tried: u32, out: &mut Vec<u8>) {
    let number = try_number(number, tried);
    let mut writer = CommandWriter::new(out);
    writer.begin(5);
    writer.argument(b"SET");
    writer.argument(own_key);
    writer.argument(number.as_bytes());
    writer.argument(b"EX");
    writer.number(PIPE_STAYS_S);
}

/// What a try came to at the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The try of this number was made.
    Made(u32),
    Crossed,
    Refused(AwayReason),
}

/// A packet leaves when a replica has its writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replicas {
    /// Milliseconds that one `WAIT` may take.
    pub(crate) wait_ms: u32,
    /// Microseconds after which another server is looked for that may be the primary.
    pub(crate) patience_us: u64,
}

/// What came of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replied {
    /// All is as it should be.
    Well,
    /// The store refused a command, for now.
    Refused,
    /// Somebody else wrote what was read: it begins again.
    Crossed,
    /// That is no reply to what was sent.
    Nonsense,
}

/// Whether the replicas that acknowledge are enough.
pub(crate) fn is_acknowledged(replicas: i64) -> bool {
    replicas > 0 || mutant::active(Mutant::ReplicaNotAwaited)
}

/// Asks for the acknowledgement of a replica.
pub(crate) fn wait(replicas: Replicas, out: &mut Vec<u8>) {
    let mut writer = CommandWriter::new(out);
    writer.begin(3);
    writer.argument(b"WAIT");
    writer.number(1);
    writer.number(replicas.wait_ms.into());
}
