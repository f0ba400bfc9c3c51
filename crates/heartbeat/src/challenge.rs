//! An orchestrator's challenges: a heartbeat that echoes one was made after it.

use std::time::Duration;

use asterism_placement::Time;
use ring::hmac;

use crate::mutant::{self, Mutant};

/// A challenge is given out for so long, and believed for as long again.
pub(crate) const CHALLENGE_TIME: Duration = Duration::from_secs(2);

/// The challenges of one start of an orchestrator: HMAC-SHA256 of the number of the interval, by a secret that was drawn at the start.
#[derive(Debug)]
pub(crate) struct Challenges(hmac::Key);

impl Challenges {
    pub(crate) fn new(secret: [u8; 32]) -> Challenges {
        Challenges(hmac::Key::new(hmac::HMAC_SHA256, &secret))
    }

    /// The one to give out now.
    pub(crate) fn current(&self, now: Time) -> [u8; 16] {
        self.of(self.interval(now))
    }

    /// Whether it was given out lately.
    pub(crate) fn is_fresh(&self, now: Time, challenge: &[u8; 16]) -> bool {
        if mutant::active(Mutant::StaleBelieved) {
            return true;
        }
        let current = self.interval(now);
        *challenge == self.of(current)
            || current
                .checked_sub(1)
                .is_some_and(|before| *challenge == self.of(before))
    }

    fn interval(&self, now: Time) -> u64 {
        if mutant::active(Mutant::ChallengeForEver) {
            return 0;
        }
        let since_start = now.since(Time::ZERO).as_millis();
        (since_start / CHALLENGE_TIME.as_millis()) as u64
    }

    fn of(&self, interval: u64) -> [u8; 16] {
        let tag = hmac::sign(&self.0, &interval.to_le_bytes());
        let mut challenge = [0; 16];
        challenge.copy_from_slice(&tag.as_ref()[..16]);
        challenge
    }
}
