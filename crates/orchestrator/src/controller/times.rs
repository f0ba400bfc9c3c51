//! The times by which a controller decides.

use std::time::Duration;

/// The times by which a [`Controller`](super::Controller) decides. All orchestrators of a cluster have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How often a host sends a heartbeat. Sane: 25 to 100 ms.
    pub heartbeat: Duration,
    /// A host that was silent for so long is suspected, and packets leave it. Sane: three heartbeats or more. A host whose heartbeats
    /// arrive less regularly is given longer ([`Times::suspect_after_max`]).
    pub suspect_after: Duration,
    /// However irregular its heartbeats, a host that was silent for so long is suspected.
    pub suspect_after_max: Duration,
    /// A host that was suspected gets packets again when its heartbeats have come without a gap for so long.
    pub return_after: Duration,
    /// A suspected host that all hosts which are heard report as silent, for so long, is left out by an epoch.
    pub evict_after: Duration,
    /// The first epoch, and one that begins again with saved state, waits so long for more hosts.
    pub found_after: Duration,
    /// Time between two epochs at least. Changes meanwhile are made together.
    pub epoch_pause: Duration,
    /// A host that was admitted waits so long until it is admitted again, twice as long after each time, so that a host that dies
    /// again and again does not keep the cluster busy.
    pub admit_pause: Duration,
    /// The longest such wait. A host that has served for so long begins again with the shortest.
    pub admit_pause_max: Duration,
    /// A command that failed, or was not answered, is repeated after so long.
    pub retry_after: Duration,
    /// The steering is applied again after so long though nothing has changed, which repairs changes by other programs.
    pub repair_after: Duration,
}

impl Default for Times {
    fn default() -> Times {
        let ms = Duration::from_millis;
        Times {
            heartbeat: ms(50),
            suspect_after: ms(150),
            suspect_after_max: ms(1_000),
            return_after: ms(500),
            evict_after: ms(5_000),
            found_after: ms(1_000),
            epoch_pause: ms(100),
            admit_pause: ms(1_000),
            admit_pause_max: ms(60_000),
            retry_after: ms(200),
            repair_after: ms(5_000),
        }
    }
}

/// Why times cannot be meant; there is no controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimesError {
    /// One lost datagram would be a suspicion.
    #[error(
        "suspect_after is {suspect_after:?}: it must be at least twice heartbeat, which is {heartbeat:?}"
    )]
    SuspectsAtOnce {
        /// The silence.
        suspect_after: Duration,
        /// The time between heartbeats.
        heartbeat: Duration,
    },
    /// A bound is below what it bounds.
    #[error("{least} must not be longer than {most}")]
    Bound {
        /// The shorter time.
        least: &'static str,
        /// The longer time.
        most: &'static str,
    },
    /// A time of nothing would make the controller repeat itself without end.
    #[error("{0} must be 1 ms or more")]
    Zero(&'static str),
}

impl Times {
    /// Whether the times can be meant.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn check(&self) -> Result<(), TimesError> {
        let all = [
            ("heartbeat", self.heartbeat),
            ("epoch_pause", self.epoch_pause),
            ("admit_pause", self.admit_pause),
            ("retry_after", self.retry_after),
            ("repair_after", self.repair_after),
        ];
        if let Some((name, _)) = all.iter().find(|(_, time)| time.as_millis() == 0) {
            return Err(TimesError::Zero(name));
        }
        if self.suspect_after < 2 * self.heartbeat {
            return Err(TimesError::SuspectsAtOnce {
                suspect_after: self.suspect_after,
                heartbeat: self.heartbeat,
            });
        }
        let bounds = [
            (
                "suspect_after",
                self.suspect_after,
                "suspect_after_max",
                self.suspect_after_max,
            ),
            (
                "suspect_after_max",
                self.suspect_after_max,
                "evict_after",
                self.evict_after,
            ),
            (
                "admit_pause",
                self.admit_pause,
                "admit_pause_max",
                self.admit_pause_max,
            ),
        ];
        match bounds.iter().find(|(_, least, _, most)| least > most) {
            Some(&(least, _, most, _)) => Err(TimesError::Bound { least, most }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_cannot_be_meant_are_refused() {
        let sane = Times::default();
        assert_eq!(sane.check(), Ok(()));
        let nothing = Times {
            retry_after: Duration::ZERO,
            ..sane
        };
        assert_eq!(nothing.check(), Err(TimesError::Zero("retry_after")));
        let hasty = Times {
            suspect_after: sane.heartbeat,
            ..sane
        };
        assert!(
            hasty
                .check()
                .unwrap_err()
                .to_string()
                .contains("twice heartbeat")
        );
        let crossed = Times {
            evict_after: sane.suspect_after,
            ..sane
        };
        let said = crossed.check().unwrap_err().to_string();
        assert_eq!(
            said,
            "suspect_after_max must not be longer than evict_after"
        );
    }
}
