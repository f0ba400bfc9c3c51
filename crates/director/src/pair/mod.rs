//! Which of two directors is active: heartbeats between them, without I/O.
//!
//! Both forward alike; the active one alone answers for the shared addresses. A director that begins is standby. It becomes active when
//! it has received no heartbeat of the other for [`PairConfig::takeover_after`], or sees that the other is standby too and ranks
//! below it. Two that are both active, after a link between them was broken, see that from the first fresh heartbeats, and the
//! one that ranks below becomes standby. That takes at most two intervals and two round trips after the link is back, and an
//! interval more for each heartbeat lost in a row ([`PairConfig::conflict_max`]). One that was paused for longer than
//! `takeover_after` does not know whether it was replaced: it becomes standby.
//!
//! Every heartbeat has a tag by the pair's key (HMAC-SHA256). It counts only if it is *fresh*: it echoes a heartbeat that the receiver
//! sent within `takeover_after`. So a recorded heartbeat, of this incarnation or another, changes nothing.
//!
//! `message.rs` has the bytes. Verbs as in every protocol core: [`Pair::handle`], [`Pair::poll_transmit`],
//! [`Pair::poll_timeout`], [`Pair::handle_timeout`], [`Pair::poll_event`].

mod message;

use core::fmt;
use core::time::Duration;

use asterism_placement::Time;

use message::{Echo, Heartbeat, Opener};
pub use message::{HEARTBEAT_BYTES, HeartbeatError};

/// The shortest interval of heartbeats.
pub const INTERVAL_MIN: Duration = Duration::from_millis(5);
/// The longest interval of heartbeats.
pub const INTERVAL_MAX: Duration = Duration::from_secs(10);
/// Heartbeats of ours whose echo may still be fresh.
const SENT_KEPT: usize = 64;
/// The most intervals in [`PairConfig::takeover_after`]: more heartbeats than are kept would be sent in it.
const INTERVALS_MAX: u32 = 16;

/// Which director this is, and how the two watch each other.
#[derive(Clone)]
pub struct PairConfig {
    /// The same number in both, which no other pair on the segment has.
    pub pair: u64,
    /// The key of the pair's tags, the same in both.
    pub key: [u8; 32],
    /// A number that no other start of a director of this pair has had: random bits.
    pub incarnation: u64,
    /// Of two that could be active, the one with the greater priority is; of two with the same, the one with the greater incarnation.
    pub priority: u8,
    /// Time between two heartbeats. Sane: 100 ms. Bounds: [`INTERVAL_MIN`] to [`INTERVAL_MAX`].
    pub interval: Duration,
    /// Silence after which a standby takes over. Sane: 350 ms. Bounds: 2 to 16 intervals; longer than a round trip and an interval.
    pub takeover_after: Duration,
}

impl PairConfig {
    /// With an interval of 100 ms and a takeover after 350 ms.
    #[must_use]
    pub fn new(pair: u64, key: [u8; 32], incarnation: u64, priority: u8) -> PairConfig {
        PairConfig {
            pair,
            key,
            incarnation,
            priority,
            interval: Duration::from_millis(100),
            takeover_after: Duration::from_millis(350),
        }
    }

    /// How long two directors may both be active after the link between them is back, with this round trip and so many heartbeats
    /// lost in a row.
    #[must_use]
    pub fn conflict_max(&self, round_trip: Duration, lost_in_a_row: u32) -> Duration {
        self.interval * (2 + lost_in_a_row) + 2 * round_trip
    }

    pub(crate) fn check(&self) -> Result<(), PairConfigError> {
        if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&self.interval) {
            return Err(PairConfigError::Interval(self.interval));
        }
        let bounds = 2 * self.interval..=INTERVALS_MAX * self.interval;
        if !bounds.contains(&self.takeover_after) {
            return Err(PairConfigError::TakeoverAfter(self.takeover_after));
        }
        if self.incarnation == 0 {
            return Err(PairConfigError::Incarnation);
        }
        Ok(())
    }
}

impl fmt::Debug for PairConfig {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PairConfig")
            .field("pair", &self.pair)
            .field("incarnation", &self.incarnation)
            .field("priority", &self.priority)
            .field("interval", &self.interval)
            .field("takeover_after", &self.takeover_after)
            .finish_non_exhaustive()
    }
}

/// Why the settings of a pair cannot be. Nothing was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairConfigError {
    /// The interval is out of bounds.
    #[error(
        "an interval of {0:?} between heartbeats: it is from {INTERVAL_MIN:?} to {INTERVAL_MAX:?}"
    )]
    Interval(Duration),
    /// The time until a takeover is out of bounds.
    #[error("a takeover after {0:?}: it is from 2 to {INTERVALS_MAX} intervals")]
    TakeoverAfter(Duration),
    /// No incarnation.
    #[error("the incarnation of a director is random bits, not 0")]
    Incarnation,
}

/// What a director of a pair is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// It has the shared addresses.
    Active,
    /// It forwards, and does not answer for the shared addresses.
    Standby,
}

/// What has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PairEvent {
    /// This director is active from now on, or another that was active too has become standby: it announces the shared addresses.
    Announce,
    /// This director is standby from now on.
    BecameStandby,
}

/// What is known of the other director.
#[derive(Clone, Copy, Debug)]
struct Other {
    incarnation: u64,
    /// Its newest heartbeat.
    sequence: u64,
    role: Role,
    priority: u8,
    /// When its last fresh heartbeat arrived; `None`: none did.
    fresh: Option<Time>,
}

/// One director's view of the pair.
#[derive(Debug)]
pub struct Pair {
    config: PairConfig,
    opener: Opener,
    role: Role,
    /// The heartbeat that was sent last.
    sequence: u64,
    /// When recent ones were sent, by the remainder of their number.
    sent: [Time; SENT_KEPT],
    other: Option<Other>,
    /// Since when silence of the other counts.
    waits_since: Time,
    /// The last call with a time.
    called: Time,
    next_heartbeat: Time,
    event: Option<PairEvent>,
}

impl Pair {
    /// A standby that has received nothing yet.
    ///
    /// # Errors
    /// The settings cannot be.
    pub fn new(config: PairConfig, now: Time) -> Result<Pair, PairConfigError> {
        config.check()?;
        Ok(Pair {
            opener: Opener::new(config.pair, &config.key),
            config,
            role: Role::Standby,
            sequence: 0,
            sent: [Time::ZERO; SENT_KEPT],
            other: None,
            waits_since: now,
            called: now,
            next_heartbeat: now,
            event: None,
        })
    }

    /// Active or standby.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Takes the bytes of a heartbeat.
    ///
    /// # Errors
    /// They are none of the other director's, or an old one's. Nothing has changed.
    pub fn handle(&mut self, now: Time, bytes: &[u8]) -> Result<(), HeartbeatError> {
        let heartbeat = self.opener.open(bytes)?;
        if heartbeat.incarnation == self.config.incarnation {
            return Err(HeartbeatError::Own);
        }
        self.handle_timeout(now);
        let is_fresh = self.is_fresh(now, heartbeat.echo);
        match &mut self.other {
            Some(other) if other.incarnation == heartbeat.incarnation => {
                if heartbeat.sequence <= other.sequence {
                    return Err(HeartbeatError::Old);
                }
                other.sequence = heartbeat.sequence;
            }
            // The other that is known is alive: a heartbeat of another incarnation must prove that it is now.
            Some(other)
                if !is_fresh
                    && other
                        .fresh
                        .is_some_and(|at| now.since(at) <= self.config.takeover_after) =>
            {
                return Err(HeartbeatError::Old);
            }
            _ => {
                self.other = Some(Other {
                    incarnation: heartbeat.incarnation,
                    sequence: heartbeat.sequence,
                    role: heartbeat.role,
                    priority: heartbeat.priority,
                    fresh: None,
                });
            }
        }
        if is_fresh {
            self.hear(now, &heartbeat);
        } else {
            // It does not know our heartbeats yet: an answer at once makes its next one fresh.
            self.hurry(now);
        }
        Ok(())
    }

    /// A fresh heartbeat: what it says of the other is so now.
    fn hear(&mut self, now: Time, heartbeat: &Heartbeat) {
        let Some(other) = &mut self.other else {
            return;
        };
        let was_silent = other
            .fresh
            .is_none_or(|at| now.since(at) > self.config.takeover_after);
        let may_have_been_active = was_silent || other.role == Role::Active;
        (other.role, other.priority, other.fresh) = (heartbeat.role, heartbeat.priority, Some(now));
        let ranks_above = (self.config.priority, self.config.incarnation)
            > (heartbeat.priority, heartbeat.incarnation);
        match (self.role, heartbeat.role) {
            (Role::Active, Role::Active) if ranks_above => self.hurry(now),
            (Role::Active, Role::Active) => self.become_standby(now),
            // It may have announced the addresses: the network's tables are put right.
            (Role::Active, Role::Standby) if may_have_been_active => {
                self.event = Some(PairEvent::Announce);
            }
            (Role::Standby, Role::Standby) if ranks_above => self.become_active(now),
            (Role::Active, Role::Standby) | (Role::Standby, _) => {}
        }
    }

    /// Sends the next heartbeat sooner, but not more than four in an interval.
    fn hurry(&mut self, now: Time) {
        let last = self.sent[self.sequence as usize % SENT_KEPT];
        let soonest = match self.sequence {
            0 => now,
            _ => last.saturating_add(self.config.interval / 4).max(now),
        };
        self.next_heartbeat = self.next_heartbeat.min(soonest);
    }

    fn become_active(&mut self, now: Time) {
        self.role = Role::Active;
        self.event = Some(PairEvent::Announce);
        self.hurry(now);
    }

    fn become_standby(&mut self, now: Time) {
        self.role = Role::Standby;
        self.event = Some(PairEvent::BecameStandby);
        self.waits_since = now;
        self.hurry(now);
    }

    /// Whether an echo is of a heartbeat that was sent a short time ago.
    fn is_fresh(&self, now: Time, echo: Echo) -> bool {
        let is_kept = echo.sequence > 0
            && echo.sequence <= self.sequence
            && self.sequence - echo.sequence < SENT_KEPT as u64;
        let sent = self.sent[echo.sequence as usize % SENT_KEPT];
        echo.incarnation == self.config.incarnation
            && is_kept
            && now.since(sent) <= self.config.takeover_after
    }

    /// The next heartbeat, if one is due: its length in `out`, of at least [`HEARTBEAT_BYTES`].
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        if now < self.next_heartbeat {
            return None;
        }
        let sequence = self.sequence + 1;
        let echo = self.other.map_or(Echo::NONE, |other| Echo {
            incarnation: other.incarnation,
            sequence: other.sequence,
        });
        let heartbeat = Heartbeat {
            incarnation: self.config.incarnation,
            sequence,
            echo,
            role: self.role,
            priority: self.config.priority,
        };
        let length = self.opener.seal(&heartbeat, out)?;
        self.sequence = sequence;
        self.sent[sequence as usize % SENT_KEPT] = now;
        self.next_heartbeat = now.saturating_add(self.config.interval);
        Some(length)
    }

    /// When [`Pair::handle_timeout`] or [`Pair::poll_transmit`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Time {
        match self.role {
            Role::Active => self.next_heartbeat,
            Role::Standby => self.next_heartbeat.min(self.takeover_at()),
        }
    }

    fn takeover_at(&self) -> Time {
        let heard = self.other.and_then(|other| other.fresh);
        let since = heard.map_or(self.waits_since, |at| at.max(self.waits_since));
        since.saturating_add(self.config.takeover_after)
    }

    /// Does what is due by now.
    pub fn handle_timeout(&mut self, now: Time) {
        let was_away = now.since(self.called) > self.config.takeover_after;
        self.called = now;
        if was_away {
            // The other had time to take over, and its heartbeats may wait to be read.
            match self.role {
                Role::Active => self.become_standby(now),
                Role::Standby => self.waits_since = now,
            }
        } else if self.role == Role::Standby && now >= self.takeover_at() {
            self.become_active(now);
        }
    }

    /// What has changed since the last call. Only the latest is kept.
    pub fn poll_event(&mut self) -> Option<PairEvent> {
        self.event.take()
    }
}

#[cfg(test)]
mod tests;
