//! What every protocol core is to its driver: five verbs, sans I/O.
//!
//! A driver hands each protocol of a host the messages that arrived, lets timers run out, sends what is to be sent, and sleeps until
//! the next time that any of them names. It names none of them in that loop. The replicator comes first: it checks a message for
//! all, since the header names its stream, and writes the header of every message. Protocols beside it are lent it for a turn (as the
//! auditor is, by [`Auditor::beside`](crate::replicated::audit::Auditor::beside)).

use crate::Time;
use crate::envelope::{Message, Refused};
use crate::replicated::{Deliver, Destination};

/// A protocol core. Deterministic; it opens no socket, reads no clock and draws no randomness of its own.
pub trait Protocol {
    /// What it reports to its driver.
    type Event;

    /// Takes what is its own of a state message. What it brings is delivered before this returns.
    ///
    /// # Errors
    /// Why the message was refused, for all protocols; nothing changed but the counter of the reason.
    fn handle(
        &mut self,
        now: Time,
        message: &mut Message<'_>,
        deliver: &mut dyn Deliver,
    ) -> Result<(), Refused>;

    /// Writes the next state message into `buffer` (cleared first) and returns its recipient; `None` when there is nothing to send
    /// now.
    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Option<Destination>;

    /// When `handle_timeout` and `poll_transmit` are due next, whatever arrives. A time in the past means at once; `None`: never.
    fn poll_timeout(&self) -> Option<Time>;

    /// Lets every timer that is due by `now` run out.
    fn handle_timeout(&mut self, now: Time);

    /// The next event.
    fn poll_event(&mut self) -> Option<Self::Event>;
}
