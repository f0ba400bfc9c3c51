//! Since when a store refuses what is to be written, and why. It answers reads meanwhile, so its connections stay.

use asterism_resp::Value;

use crate::mutant::{self, Mutant};
use crate::primary::error_of;
use crate::statistics::AwayReason;

/// Microseconds after the last refusal until it does no more, where nothing was written since.
const FORGOTTEN_AFTER_US: u64 = 3_000_000;

#[derive(Clone, Copy, Debug)]
struct Refused {
    why: AwayReason,
    since_us: u64,
    last_us: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Refusals {
    /// Microseconds for which all is refused until the store counts as away: shorter are the moments after it was started or promoted.
    patience_us: u64,
    refused: Option<Refused>,
}

impl Refusals {
    /// With so much patience in microseconds.
    pub(crate) fn new(patience_us: u64) -> Self {
        Self {
            patience_us,
            refused: None,
        }
    }

    /// The store took what was to be written, or refused it.
    pub(crate) fn note(&mut self, taken: Result<(), AwayReason>, now_us: u64) {
        let Err(why) = taken else {
            self.refused = None;
            return;
        };
        let before = self.refused.filter(|before| !before.is_over(now_us));
        self.refused = Some(Refused {
            why,
            since_us: before.map_or(now_us, |before| before.since_us),
            last_us: now_us,
        });
    }

    /// Why it refuses all that is to be written, if it does so for long enough.
    pub(crate) fn why(&self, now_us: u64) -> Option<AwayReason> {
        let refused = self.refused.filter(|refused| !refused.is_over(now_us))?;
        let is_long = now_us.saturating_sub(refused.since_us) > self.patience_us;
        let is_seen = is_long && !mutant::active(Mutant::RefusalUnseen);
        is_seen.then_some(refused.why)
    }
}

impl Refused {
    fn is_over(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.last_us) > FORGOTTEN_AFTER_US
    }
}

/// Why a store refuses a command, if that is what its reply says.
pub(crate) fn refusal_reason(reply: &Value<'_>) -> Option<AwayReason> {
    let mut words = error_of(reply)?.split(|byte| *byte == b' ');
    Some(match words.next().unwrap_or_default() {
        b"OOM" => AwayReason::Full,
        b"NOREPLICAS" => AwayReason::NoReplica,
        b"NOAUTH" | b"WRONGPASS" | b"NOPERM" => AwayReason::Login,
        b"WRONGTYPE" => AwayReason::Layout,
        _ => AwayReason::Refused,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_when_it_goes_on_and_is_forgotten_when_none_follows() {
        let mut refusals = Refusals::new(500_000);
        let full = Err(AwayReason::Full);
        refusals.note(full, 1_000_000);
        assert_eq!(refusals.why(1_400_000), None, "it may be for a moment");
        refusals.note(full, 1_600_000);
        assert_eq!(refusals.why(1_600_000), Some(AwayReason::Full));
        // The reason is the last one.
        refusals.note(Err(AwayReason::NoReplica), 1_700_000);
        assert_eq!(refusals.why(4_700_000), Some(AwayReason::NoReplica));
        assert_eq!(refusals.why(4_700_001), None, "nobody has asked since");
        refusals.note(full, 9_000_000);
        assert_eq!(refusals.why(9_100_000), None, "that is another time");
        refusals.note(full, 9_600_000);
        assert_eq!(refusals.why(9_600_000), Some(AwayReason::Full));
        refusals.note(Ok(()), 9_700_000);
        assert_eq!(refusals.why(9_700_000), None);
    }

    #[test]
    fn errors_say_why() {
        let reason = |text: &str| refusal_reason(&Value::Error(text.as_bytes()));
        for (text, why) in [
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                AwayReason::Full,
            ),
            (
                "EXECABORT Transaction discarded because of: OOM command",
                AwayReason::Full,
            ),
            (
                "NOREPLICAS Not enough good replicas to write.",
                AwayReason::NoReplica,
            ),
            (
                "MISCONF Redis is configured to save RDB snapshots",
                AwayReason::Refused,
            ),
            (
                "EXECABORT Transaction discarded because of previous errors.",
                AwayReason::Refused,
            ),
            ("NOPERM this user has no permissions", AwayReason::Login),
            ("WRONGTYPE Operation against a key", AwayReason::Layout),
            ("", AwayReason::Refused),
        ] {
            assert_eq!(reason(text), Some(why), "{text}");
        }
        assert_eq!(refusal_reason(&Value::Null), None);
        assert_eq!(refusal_reason(&Value::Status(b"OOM")), None);
    }
}
