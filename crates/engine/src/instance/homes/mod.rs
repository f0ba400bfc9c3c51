//! Where an instance's objects live that live elsewhere: a store that the instance asks itself, or a home on the state channel's
//! thread. Both are asked in the same words; see `crate::store`.

mod on_channel;

use asterism_placement::Time;
use asterism_state::{Query, Tick, Ticket, Transaction};

use crate::store::{Attempt, Dropped, Store, StoreEvent};
use asterism_io::ring::RingWriter;

pub(super) use on_channel::OnChannel;

/// The ring to the state channel, and the bytes of it that are kept for what packets write.
pub(super) struct Upward<'a> {
    pub(super) ring: Option<&'a mut RingWriter>,
    pub(super) kept_bytes: usize,
}

/// An instance's end of the home of its objects.
pub(super) enum HomeEnd {
    Store(Box<dyn Store>),
    OnChannel(OnChannel),
}

impl HomeEnd {
    /// As [`Store::ask`].
    pub(super) fn ask(&mut self, ticket: Ticket, query: Query<'_>, now: Time, up: &mut Upward<'_>) {
        match self {
            Self::Store(store) => store.ask(ticket, query, now),
            Self::OnChannel(home) => home.ask(ticket, query, up),
        }
    }

    /// As [`Store::answer_at_once`].
    pub(super) fn answer_at_once(
        &mut self,
        query: Query<'_>,
        now: Time,
        out: &mut Vec<u8>,
    ) -> bool {
        match self {
            Self::Store(store) => store.answer_at_once(query, now, out),
            Self::OnChannel(_) => false,
        }
    }

    /// As [`Store::conversation_seed`].
    pub(super) fn conversation_seed(&self) -> Option<u64> {
        match self {
            Self::Store(store) => store.conversation_seed(),
            Self::OnChannel(_) => None,
        }
    }

    /// As [`Store::may_keep`].
    pub(super) fn may_keep(&self) -> bool {
        match self {
            Self::Store(store) => store.may_keep(),
            Self::OnChannel(_) => false,
        }
    }

    /// As [`Store::keeps`].
    pub(super) fn keeps(&mut self, now: Time) -> bool {
        match self {
            Self::Store(store) => store.keeps(now),
            Self::OnChannel(_) => false,
        }
    }

    /// As [`Store::next_dropped`].
    pub(super) fn next_dropped(&mut self) -> Option<Dropped> {
        match self {
            Self::Store(store) => store.next_dropped(),
            Self::OnChannel(_) => None,
        }
    }

    /// As [`Store::counts_kept`].
    pub(super) fn counts_kept(&self) -> bool {
        match self {
            Self::Store(store) => store.counts_kept(),
            Self::OnChannel(_) => false,
        }
    }

    /// As [`Store::was_kept`].
    pub(super) fn was_kept(&mut self, calls: u64) {
        if let Self::Store(store) = self {
            store.was_kept(calls);
        }
    }

    /// As [`Store::commit`].
    pub(super) fn commit(
        &mut self,
        attempt: Attempt,
        transaction: &Transaction,
        now: Time,
        up: &mut Upward<'_>,
    ) {
        match self {
            Self::Store(store) => store.commit(attempt, transaction, now),
            Self::OnChannel(home) => home.commit(attempt, transaction, up),
        }
    }

    /// As [`Store::read_alone`].
    pub(super) fn read_alone(&mut self, transaction: &Transaction) {
        if let Self::Store(store) = self {
            store.read_alone(transaction);
        }
    }

    /// As [`Store::set_tick`].
    pub(super) fn set_tick(&mut self, tick: Tick) {
        if let Self::Store(store) = self {
            store.set_tick(tick);
        }
    }

    /// As [`Store::forget`].
    pub(super) fn forget(&mut self, attempt: Attempt) {
        if let Self::Store(store) = self {
            store.forget(attempt);
        }
    }

    /// As [`Store::send`]. What goes to the state channel is on its ring already.
    pub(super) fn send(&mut self, now: Time) {
        if let Self::Store(store) = self {
            store.send(now);
        }
    }

    /// As [`Store::next_event`].
    pub(super) fn next_event(&mut self, now: Time) -> Option<StoreEvent<'_>> {
        match self {
            Self::Store(store) => store.next_event(now),
            Self::OnChannel(home) => home.next_event(),
        }
    }

    /// The events of this turn are taken.
    pub(super) fn end_events(&mut self) {
        if let Self::OnChannel(home) = self {
            home.release();
        }
    }

    /// As [`Store::next_due`].
    pub(super) fn next_due(&self) -> Option<Time> {
        match self {
            Self::Store(store) => store.next_due(),
            Self::OnChannel(home) => home.next_due(),
        }
    }

    /// Requests that found no room in the ring to the state channel. They are made again.
    pub(super) fn requests_without_room(&self) -> u64 {
        match self {
            Self::Store(_) => 0,
            Self::OnChannel(home) => home.without_room(),
        }
    }
}
