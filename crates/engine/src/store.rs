//! Stores that objects live in, as an instance sees them.
//!
//! An instance asks for reads and has transactions committed; answers and decisions come later, in any order. What does not come within
//! [`LATE_US`] is asked for again, under the same name: a store takes each transaction once however often it is asked to commit it.

use asterism_placement::Time;
use asterism_state::{Query, Tick, Ticket, Transaction};

use asterism_io::ring::RingReader;

/// Microseconds after which an answer or a decision is taken for lost, and asked for again.
pub(crate) const LATE_US: u64 = 10_000;

/// The name of a transaction: no two of an instance have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(u64);

impl Attempt {
    /// The next one, of the packet whose requests have this number.
    pub(crate) fn after(self, requests: u16) -> Self {
        Self(((self.0 >> 16) + 1) << 16 | u64::from(requests))
    }
    /// The name as a number, to be carried with a transaction and back.
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }
    /// The name of a number.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    /// The number of the packet's requests.
    pub(crate) fn requests(self) -> u16 {
        self.0 as u16
    }
    /// None that was ever made.
    pub(crate) const NONE: Self = Self(0);
}

/// Answers that may not be so any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// All.
    All,
    /// That to one read.
    Read {
        /// Of which object, by its number.
        object: u8,
        /// The key's lane.
        lane: u8,
        /// The key's hash.
        hash: u64,
    },
}

/// What came from a store.
#[derive(Debug)]
pub enum StoreEvent<'a> {
    /// The answer to a read.
    Answer {
        /// Of which one.
        ticket: Ticket,
        /// As [`Fetch::extract`](asterism_state::Fetch::extract) wrote it.
        answer: &'a [u8],
    },
    /// A transaction was committed, or refused whole.
    Decision {
        /// Which one.
        attempt: Attempt,
        /// Its writes are made.
        is_committed: bool,
    },
    /// The sums that an object has there, which nobody asked for: for people.
    Sums {
        /// Of which object, by its number.
        object: u8,
        /// As [`Fetch::extract`](asterism_state::Fetch::extract) wrote it.
        answer: &'a [u8],
    },
}

/// Makes an instance's end of a store, on the instance's thread; or the ring of its answers, if the store is on the state channel's.
pub(crate) enum MakeStore {
    Here(Box<dyn FnOnce() -> Box<dyn Store> + Send>),
    OnChannel(RingReader),
}

impl core::fmt::Debug for MakeStore {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("MakeStore")
    }
}

/// A store that an instance asks, on the instance's thread: nothing here may wait.
pub trait Store {
    /// The second of the cluster's time, once a turn.
    fn set_tick(&mut self, _tick: Tick) {}
    /// Asks for a read. It may have been asked before, under the same ticket.
    fn ask(&mut self, ticket: Ticket, query: Query<'_>, now: Time);
    /// Appends the answer to a read, if it is known without asking: a call that has all its answers at once need not be parked. All answers
    /// between two looks at [`Store::next_event`] were so at one time.
    fn answer_at_once(&mut self, _query: Query<'_>, _now: Time, _out: &mut Vec<u8>) -> bool {
        false
    }
    /// With which seed it wants the conversations of packets in their reads and transactions ([`Query::conversation`]), of a store of several
    /// shards; `None`: it wants none.
    fn conversation_seed(&self) -> Option<u64> {
        None
    }
    /// Whether [`Store::keeps`] is ever true.
    fn may_keep(&self) -> bool {
        false
    }
    /// Whether answers that [`Store::answer_at_once`] gave, and that were not [dropped](Store::next_dropped) since, are so now: so the entries that
    /// they are of may answer further calls, without a word to the store.
    fn keeps(&mut self, _now: Time) -> bool {
        false
    }
    /// Which of those answers are not so any more, or may not be: all that is known after the events of a turn.
    fn next_dropped(&mut self) -> Option<Dropped> {
        None
    }
    /// Whether [`Store::was_kept`] is to be called after each call, for tests that know of each; else it is after a burst.
    fn counts_kept(&self) -> bool {
        false
    }
    /// So many calls were answered by what is kept, and took effect.
    fn was_kept(&mut self, _calls: u64) {}
    /// Has a transaction committed. It may have been before, under the same name: then it takes effect once.
    fn commit(&mut self, attempt: Attempt, transaction: &Transaction, now: Time);
    /// A call made this one read, or read what was so at one time, and wrote nothing in the store: it took effect as of the moment of its
    /// answer, and there is nothing to commit.
    fn read_alone(&mut self, _transaction: &Transaction) {}
    /// Nobody waits for the decision on a transaction any more.
    fn forget(&mut self, _attempt: Attempt) {}
    /// All of a turn was asked for: what can be sent is to be.
    fn send(&mut self, _now: Time) {}
    /// What came next, in any order; called until there is nothing.
    fn next_event(&mut self, now: Time) -> Option<StoreEvent<'_>>;
    /// When something comes, as far as that is known.
    fn next_due(&self) -> Option<Time> {
        None
    }
}
