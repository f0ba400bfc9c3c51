//! Homes whose protocol runs on the state channel's thread: what instances ask goes up by their rings, and what is answered comes down
//! to the one instance that asked.
//!
//! To an instance such a home is a store as any other (`store.rs`): lost answers are asked for again under the same ticket, and a
//! transaction that is to be committed again has the decision that it had. So every ring on the path may be full: what finds no room
//! is counted and dropped.

use asterism_placement::{Protocol, Time};
use asterism_state::{Query, Ticket, Transaction};

use crate::store::{Attempt, StoreEvent};
use asterism_io::ring::{Refused, RingWriter};

/// A protocol that answers the host's instances for objects that live elsewhere. Numbers of instances are those within the host;
/// two instances may use the same tickets and names of transactions.
pub trait ChannelHome: Protocol<Event = HomeEvent> + core::fmt::Debug + Send {
    /// An instance asks for a read. It may have asked before, under the same ticket.
    fn ask(&mut self, now: Time, instance: u16, ticket: Ticket, query: Query<'_>);

    /// An instance has a transaction committed. It may have been before, under the same name: then it takes effect once.
    fn commit(&mut self, now: Time, instance: u16, attempt: Attempt, transaction: &Transaction);
}

/// What a home tells one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HomeEvent {
    /// The answer to a read.
    Answer {
        /// Who asked.
        instance: u16,
        /// Of which read.
        ticket: Ticket,
        /// As [`Fetch::extract`](asterism_state::Fetch::extract) wrote it.
        answer: Vec<u8>,
    },
    /// A transaction was committed, or refused whole.
    Decision {
        /// Whose.
        instance: u16,
        /// Which one.
        attempt: Attempt,
        /// Its writes are made.
        is_committed: bool,
    },
}

const ANSWER: u8 = 0;
const DECISION: u8 = 1;
/// Kind and number of a record.
const HEAD_BYTES: usize = 1 + 8;

impl HomeEvent {
    /// The instance that it is for.
    pub(crate) fn instance(&self) -> u16 {
        match self {
            Self::Answer { instance, .. } | Self::Decision { instance, .. } => *instance,
        }
    }

    /// Appends the record to the ring of its instance, which sees it after the ring's `publish`.
    pub(crate) fn push(&self, ring: &mut RingWriter) -> Result<(), Refused> {
        let decided;
        let (kind, number, body) = match self {
            Self::Answer { ticket, answer, .. } => (ANSWER, ticket.to_bits(), answer.as_slice()),
            Self::Decision {
                attempt,
                is_committed,
                ..
            } => {
                decided = [u8::from(*is_committed)];
                (DECISION, attempt.to_bits(), &decided[..])
            }
        };
        let room = ring.reserve(HEAD_BYTES + body.len())?;
        room[0] = kind;
        room[1..HEAD_BYTES].copy_from_slice(&number.to_le_bytes());
        room[HEAD_BYTES..].copy_from_slice(body);
        ring.commit(HEAD_BYTES + body.len());
        Ok(())
    }

    /// Reads a record back, as the instance takes it. `None` is impossible but for a fault of this program.
    pub(crate) fn read(record: &[u8]) -> Option<StoreEvent<'_>> {
        let (&kind, rest) = record.split_first()?;
        let (number, body) = rest.split_first_chunk()?;
        let number = u64::from_le_bytes(*number);
        match kind {
            ANSWER => Some(StoreEvent::Answer {
                ticket: Ticket::from_bits(number),
                answer: body,
            }),
            DECISION => Some(StoreEvent::Decision {
                attempt: Attempt::from_bits(number),
                is_committed: *body.first()? != 0,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_io::ring::ByteRing;

    #[test]
    fn what_is_for_an_instance_comes_to_it_as_from_a_store() {
        let (mut writer, mut reader) = ByteRing::new(1 << 10).expect("memory for a ring");
        let (ticket, attempt) = (Ticket::from_bits(1 << 40 | 7), Attempt::from_bits(9 << 16));
        let events = [
            HomeEvent::Answer {
                instance: 3,
                ticket,
                answer: b"entry".to_vec(),
            },
            HomeEvent::Decision {
                instance: 3,
                attempt,
                is_committed: true,
            },
        ];
        for event in &events {
            assert_eq!(event.instance(), 3);
            event.push(&mut writer).expect("room");
        }
        writer.publish();
        let first = HomeEvent::read(reader.next().expect("a record"));
        let is_answer = |event| match event {
            Some(StoreEvent::Answer { ticket: of, answer }) => (of, answer) == (ticket, b"entry"),
            _ => false,
        };
        assert!(is_answer(first));
        let second = HomeEvent::read(reader.next().expect("a record"));
        assert!(matches!(
            second,
            Some(StoreEvent::Decision { attempt: of, is_committed: true }) if of == attempt
        ));
        assert!(HomeEvent::read(&[]).is_none() && HomeEvent::read(&[7; 9]).is_none());
    }
}
