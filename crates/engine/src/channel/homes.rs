//! A home on the state channel's thread, and the rings by which each instance gets its own answers.

use std::io;

use asterism_placement::Time;
use asterism_state::{Query, Ticket, Transaction};

use super::StateChannel;
use crate::home::{ChannelHome, HomeEvent};
use crate::instance::InstanceParts;
use crate::mutant::{self, Mutant};
use crate::store::Attempt;
use asterism_io::ring::{ByteRing, RingWriter};

/// A home, and the rings down to the instances, by their numbers.
#[derive(Debug)]
pub(super) struct HomeOnChannel {
    pub(super) home: Box<dyn ChannelHome>,
    answers: Vec<RingWriter>,
    /// The transaction that is handed over.
    transaction: Transaction,
}

impl HomeOnChannel {
    pub(super) fn ask(&mut self, now: Time, instance: usize, ticket: u64, query: Query<'_>) {
        let ticket = Ticket::from_bits(ticket);
        self.home.ask(now, instance as u16, ticket, query);
    }

    /// Bytes that are no transaction are impossible but for a fault of this program; then nothing is committed.
    pub(super) fn commit(&mut self, now: Time, instance: usize, attempt: u64, bytes: &[u8]) {
        if self.transaction.read(bytes) {
            let attempt = Attempt::from_bits(attempt);
            self.home
                .commit(now, instance as u16, attempt, &self.transaction);
        }
    }

    /// Hands an answer down to its instance; false if its ring has no room.
    fn answer(&mut self, event: &HomeEvent) -> bool {
        let ring = self.answers.get_mut(recipient(event));
        ring.is_some_and(|ring| event.push(ring).is_ok())
    }

    /// Shows the instances what was appended.
    pub(super) fn publish(&mut self) {
        self.answers.iter_mut().for_each(RingWriter::publish);
    }
}

/// The number of the instance that an answer goes to.
fn recipient(event: &HomeEvent) -> usize {
    match mutant::active(Mutant::AnswerToFirstInstance) {
        true => 0,
        false => usize::from(event.instance()),
    }
}

impl StateChannel {
    /// Has objects of the host's instances that live in a store live in this home, whose protocol runs here. Each instance gets a ring
    /// of `answer_ring_bytes` for its own answers; what finds no room there is counted as lost and asked for again. Sane: 256 KiB.
    /// `instances` are all of the host, none of them started. Without a home, none of this is allocated.
    ///
    /// # Errors
    /// There is no memory for the rings; nothing changed.
    pub fn set_home(
        &mut self,
        home: Box<dyn ChannelHome>,
        instances: &mut [InstanceParts],
        answer_ring_bytes: usize,
    ) -> io::Result<()> {
        let rings = instances.iter().map(|_| ByteRing::new(answer_ring_bytes));
        let (answers, readers): (Vec<_>, Vec<_>) =
            rings.collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
        for (instance, reader) in instances.iter_mut().zip(readers) {
            instance.live_on_channel(reader);
        }
        self.protocols.home = Some(Box::new(HomeOnChannel {
            home,
            answers,
            transaction: Transaction::default(),
        }));
        Ok(())
    }

    /// What the home tells one instance.
    pub(super) fn handle_home(&mut self, event: &HomeEvent) {
        let home = self.protocols.home.as_mut();
        let is_handed = home.is_some_and(|home| home.answer(event));
        self.tally.answers_lost += u64::from(!is_handed);
    }
}
