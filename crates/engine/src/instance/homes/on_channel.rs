//! A home on the state channel's thread: requests go up by the instance's ring, answers come down by a ring of the instance's own.

use asterism_placement::Time;
use asterism_state::{Query, Ticket, Transaction};

use super::Upward;
use crate::exchange::{RECORD_BYTES, Up};
use crate::home::HomeEvent;
use crate::store::{Attempt, StoreEvent};
use asterism_io::ring::RingReader;

/// An instance's end of a home on the state channel's thread.
pub(in crate::instance) struct OnChannel {
    answers: RingReader,
    /// The transaction being handed over.
    written: Vec<u8>,
    without_room: u64,
}

impl OnChannel {
    pub(in crate::instance) fn new(answers: RingReader) -> Self {
        Self {
            answers,
            written: Vec::new(),
            without_room: 0,
        }
    }

    pub(super) fn ask(&mut self, ticket: Ticket, query: Query<'_>, up: &mut Upward<'_>) {
        let Query {
            object,
            lane,
            hash,
            key,
            conversation: _,
        } = query;
        let ask = Up::Ask {
            ticket: ticket.to_bits(),
            object,
            lane,
            hash,
            key,
        };
        self.hand_up(&ask, key.len(), up);
    }

    pub(super) fn commit(
        &mut self,
        attempt: Attempt,
        transaction: &Transaction,
        up: &mut Upward<'_>,
    ) {
        let mut written = core::mem::take(&mut self.written);
        written.clear();
        transaction.write(&mut written);
        let commit = Up::Commit {
            attempt: attempt.to_bits(),
            transaction: &written,
        };
        self.hand_up(&commit, written.len(), up);
        self.written = written;
    }

    /// A request that finds no room is made again once its answer is late, so none is kept here. What packets write goes first.
    fn hand_up(&mut self, request: &Up<'_>, bytes: usize, up: &mut Upward<'_>) {
        let needed = up.kept_bytes + RECORD_BYTES + bytes;
        let is_handed = match &mut up.ring {
            Some(ring) => ring.free_bytes() >= needed && request.push(&mut **ring).is_ok(),
            None => false,
        };
        self.without_room += u64::from(!is_handed);
    }

    pub(super) fn next_event(&mut self) -> Option<StoreEvent<'_>> {
        HomeEvent::read(self.answers.next()?)
    }

    pub(super) fn release(&mut self) {
        self.answers.release();
    }

    /// At once while answers wait.
    pub(super) fn next_due(&self) -> Option<Time> {
        (!self.answers.is_empty()).then_some(Time::ZERO)
    }

    pub(super) fn without_room(&self) -> u64 {
        self.without_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_io::ring::ByteRing;

    #[test]
    fn requests_leave_room_for_what_packets_write_and_are_counted_beyond() {
        let (mut ring, mut reader) = ByteRing::new(1 << 10).expect("memory for a ring");
        let (_, answers) = ByteRing::new(1 << 10).expect("memory for a ring");
        let mut home = OnChannel::new(answers);
        let query = Query {
            object: 1,
            lane: 0,
            hash: 5,
            key: &[7; 40],
            conversation: 0,
        };
        let mut up = Upward {
            ring: Some(&mut ring),
            kept_bytes: 512,
        };
        for number in 0..20 {
            home.ask(Ticket::from_bits(number), query, &mut up);
        }
        assert!(
            (5..15).contains(&home.without_room()),
            "{}",
            home.without_room()
        );
        ring.publish();
        assert!(ring.free_bytes() >= 512);
        let handed = core::iter::from_fn(|| reader.next().map(|_| ())).count() as u64;
        assert_eq!(handed + home.without_room(), 20);
        let none = &mut Upward {
            ring: None,
            kept_bytes: 0,
        };
        home.ask(Ticket::from_bits(21), query, none);
        assert_eq!(
            handed + home.without_room(),
            21,
            "without a channel there is no room"
        );
    }
}
