//! One host's end of the replication: the five verbs.

use crate::{MemberId, Time};

use super::config::{Config, ConfigError};
use super::counters::Counters;
use super::progress::{MemberProgress, Progress, RoundTrip, Standing};
use super::refused::Refused;
use super::{Deliver, Destination, Event, ImageError, ImageKind, LogRoom, SubmitError};

/// One host's end of the replication. Sans I/O; every call is bounded by its arguments and the configuration.
#[derive(Debug)]
pub struct Replicator {
    config: Config,
    progress: Progress,
    counters: Counters,
}

impl Replicator {
    /// A replicator that has sent and heard nothing.
    ///
    /// # Errors
    /// The configuration is out of its bounds; nothing was started.
    pub fn new(config: Config, now: Time) -> Result<Replicator, ConfigError> {
        config.validate()?;
        let _ = now;
        let mut members = config.members.clone();
        members.sort_unstable();
        let members = members
            .into_iter()
            .map(|member| MemberProgress {
                member,
                incarnation: None,
                applied: 0,
                received: 0,
                head: 0,
                acknowledged: 0,
                stable: 0,
                covered_until: Time::ZERO,
                behind_since: None,
                heard: None,
                round_trip: RoundTrip::default(),
                standing: Standing::Current,
            })
            .collect();
        Ok(Replicator {
            config,
            progress: Progress { members },
            counters: Counters::default(),
        })
    }

    /// The configuration it was started with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The last own sequence submitted; 0 before the first.
    #[must_use]
    pub fn head(&self) -> u64 {
        0
    }

    /// An own group, committed under `sequence` (consecutive, from 1). Its bytes are copied into the log.
    ///
    /// # Errors
    /// See [`SubmitError`]; nothing changed.
    pub fn submit(&mut self, now: Time, sequence: u64, group: &[u8]) -> Result<(), SubmitError> {
        let _ = (now, sequence, group);
        Ok(())
    }

    /// Room left in the log. A burst starts only when this covers its largest groups (rule 3).
    #[must_use]
    pub fn log_room(&self) -> LogRoom {
        LogRoom {
            groups: self.config.log_groups_max,
            bytes: self.config.log_bytes_max,
        }
    }

    /// A state message from `from`, authentic and opened.
    ///
    /// # Errors
    /// Why it was refused; nothing changed but the counter of the reason.
    pub fn handle(
        &mut self,
        now: Time,
        from: MemberId,
        from_incarnation: crate::Incarnation,
        message: &[u8],
        deliver: &mut impl Deliver,
    ) -> Result<(), Refused> {
        let _ = (now, from, from_incarnation, message, deliver);
        Ok(())
    }

    /// Writes the next state message into `buffer` (cleared first) and says to whom it goes; `None` when there is nothing
    /// to send now.
    pub fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Option<Destination> {
        let _ = (now, buffer);
        None
    }

    /// When `handle_timeout` and `poll_transmit` are due next, whatever arrives.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// Lets every timer that is due by `now` run out.
    pub fn handle_timeout(&mut self, now: Time) {
        let _ = now;
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }

    /// Every local instance has applied `origin`'s groups up to `sequence`, without a gap. Only this is acknowledged.
    /// Beyond what was delivered it has no effect.
    pub fn applied(&mut self, now: Time, origin: MemberId, sequence: u64) {
        let _ = (now, origin, sequence);
    }

    /// Asks all members to answer soon, so that `covered_until` passes `now` one round trip from here. At most one
    /// question per `acknowledge_delay` is sent.
    pub fn probe(&mut self, now: Time) {
        let _ = now;
    }

    /// How far every member is.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The longest image chunk in bytes.
    #[must_use]
    pub fn image_chunk_bytes_max(&self) -> usize {
        0
    }

    /// How many chunks [`submit_image`](Replicator::submit_image) takes now for that member.
    #[must_use]
    pub fn image_room(&self, member: MemberId) -> usize {
        let _ = member;
        0
    }

    /// A chunk of the image for a laggard, self-contained: chunks arrive once each, in no order.
    ///
    /// # Errors
    /// See [`ImageError`]; nothing changed.
    pub fn submit_image(
        &mut self,
        now: Time,
        member: MemberId,
        walk: u32,
        chunk: &[u8],
    ) -> Result<(), ImageError> {
        let _ = (now, member, walk, chunk);
        Ok(())
    }

    /// The walk for that member is complete.
    ///
    /// # Errors
    /// See [`ImageError`]; nothing changed.
    pub fn finish_image(
        &mut self,
        now: Time,
        member: MemberId,
        walk: u32,
        kind: ImageKind,
    ) -> Result<(), ImageError> {
        let _ = (now, member, walk, kind);
        Ok(())
    }

    /// Every chunk of the image was applied here: its vector is joined into what this member has applied, and what had
    /// waited above it is delivered.
    pub fn image_applied(
        &mut self,
        now: Time,
        from: MemberId,
        walk: u32,
        deliver: &mut impl Deliver,
    ) {
        let _ = (now, from, walk, deliver);
    }
}
