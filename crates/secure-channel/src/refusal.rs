//! Why a datagram was refused: the one list, for metrics, dashboards and documentation.

use core::fmt;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $label:literal),+ $(,)?) => {
        /// Why a datagram was refused. Unless a variant says otherwise a refusal changes nothing but its own count; the
        /// bytes of a datagram that got as far as decryption are then garbage.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Refusal { $($(#[$doc])* $name),+ }

        impl Refusal {
            /// All reasons, in the order of [`RefusalCounts`].
            pub const ALL: &'static [Refusal] = &[$(Refusal::$name),+];

            /// The name that metrics and documentation use.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Refusal::$name => $label),+ }
            }
        }
    };
}

refusals! {
    /// The datagram is shorter than a header, a tag and (for a handshake) its salt and message. Effect: none.
    TooShort = "too_short",
    /// Sealed for another cluster, or by a host with another function, other objects or other settings of them: a
    /// wrong address or configuration. Effect: none.
    WrongCluster = "wrong_cluster",
    /// A wire version above this host's: upgrade this host. Effect: none.
    FutureVersion = "future_version",
    /// A wire version below the oldest that this host understands: upgrade its sender. Effect: none.
    PastVersion = "past_version",
    /// No key of that number was accepted in this incarnation: this host's key file lacks it. Effect: none.
    UnknownKeyId = "unknown_key_id",
    /// The key of that number was accepted earlier in this incarnation and then dropped: the sender's key file is
    /// older, or a recorded datagram is replayed. Effect: none.
    DroppedKeyId = "dropped_key_id",
    /// The sender is not in the member list. Effect: none.
    UnknownMember = "unknown_member",
    /// This host's own datagram came back. Effect: none.
    OwnDatagram = "own_datagram",
    /// The sender's session is not admitted. Effect: at most a challenge to the sender (budgeted per member).
    NotAdmitted = "not_admitted",
    /// The tag does not verify: another cluster key, or damaged or forged bytes. Effect: none on any session; a
    /// handshake uses its member's budget.
    Forged = "forged",
    /// The counter was opened before: a duplicate or a replay. Effect: none.
    Replayed = "replayed",
    /// The counter is below the replay window, or older than the session's admission. Effect: none.
    TooOld = "too_old",
    /// The length or kind of an authentic handshake is unknown to this host. Effect: none on any session.
    MalformedHandshake = "malformed_handshake",
    /// Handshakes of sessions that are not admitted exceeded their source's budget. Effect: only a Retry to the
    /// source; the handshakes are sent again.
    HandshakeBudget = "handshake_budget",
    /// The authentic handshake is for another member, or for an earlier incarnation of this member. Effect: none.
    NotForUs = "not_for_us",
    /// The echoed nonce was not issued by this host just now: late, or recorded and replayed. Effect: none.
    StaleEcho = "stale_echo",
    /// The Retry matches no waiting handshake of this host: late, repeated or forged. Effect: none.
    StaleRetry = "stale_retry",
    /// The current epoch names another incarnation of that member. Effect: none.
    WrongIncarnation = "wrong_incarnation",
    /// A second host proved that it is alive under the identity of this host, or of an admitted session with recent
    /// datagrams. Effect: the second host is remembered as a contender; the admitted session stays.
    DuplicateIdentity = "duplicate_identity",
    /// A member proved its identity, but its list of members, sites, multicast or epochs differs from this host's.
    /// Effect: the member is not admitted; its settings are kept, to be shown.
    OtherTerms = "other_terms",
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl core::error::Error for Refusal {}

/// How many datagrams were refused, by reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalCounts([u64; Refusal::ALL.len()]);

impl Default for RefusalCounts {
    fn default() -> RefusalCounts {
        RefusalCounts([0; Refusal::ALL.len()])
    }
}

impl RefusalCounts {
    /// How many were refused for this reason.
    #[must_use]
    pub fn get(&self, reason: Refusal) -> u64 {
        self.0[reason as usize]
    }

    /// All reasons with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Refusal, u64)> + '_ {
        Refusal::ALL
            .iter()
            .map(|reason| (*reason, self.get(*reason)))
    }

    /// All reasons together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(super) fn add(&mut self, reason: Refusal) {
        self.0[reason as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_label_and_count() {
        let mut counts = RefusalCounts::default();
        for (times, reason) in Refusal::ALL.iter().enumerate() {
            for _ in 0..times {
                counts.add(*reason);
            }
        }
        let mut labels: Vec<_> = counts.iter().map(|(reason, _)| reason.label()).collect();
        assert!(
            counts
                .iter()
                .enumerate()
                .all(|(times, (_, count))| count == times as u64)
        );
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Refusal::ALL.len());
    }
}
