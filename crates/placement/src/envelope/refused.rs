//! Why a state message is refused, in one list: metric label, dashboard legend and documentation.

use core::fmt;

/// Why a state message was refused. A refused message changed nothing but its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Refused {
    /// The sender is not in the member list.
    UnknownMember,
    /// The sender has this member's own name: two hosts have the same identity, or a message was reflected.
    OwnIdentity,
    /// The sender is a member, in an incarnation other than this epoch's.
    WrongIncarnation,
    /// The message is of another cluster.
    WrongCluster,
    /// The message is of another version of the member list.
    WrongEpoch,
    /// The message has a wire version that this build does not speak.
    FutureVersion,
    /// The message has a frame that this build does not know and that must not be skipped.
    FutureFrame,
    /// The bytes are no state message: cut short, a length beyond the end, a number out of range, an empty run.
    Malformed,
    /// The message carries records beyond the log head that it states.
    RecordsBeyondHead,
    /// The message acknowledges groups of this member that were never sent.
    AcknowledgesUnsent,
    /// The message echoes a future time of this member.
    EchoFromFuture,
    /// The sender's cluster time is further from this member's than
    /// [`CLUSTER_TIME_APART_MAX`](crate::replicated::CLUSTER_TIME_APART_MAX), and entries were written under both.
    TimeApart,
}

impl Refused {
    /// All reasons, in the order of their counters.
    pub const ALL: [Refused; 12] = [
        Refused::UnknownMember,
        Refused::OwnIdentity,
        Refused::WrongIncarnation,
        Refused::WrongCluster,
        Refused::WrongEpoch,
        Refused::FutureVersion,
        Refused::FutureFrame,
        Refused::Malformed,
        Refused::RecordsBeyondHead,
        Refused::AcknowledgesUnsent,
        Refused::EchoFromFuture,
        Refused::TimeApart,
    ];

    /// The metric label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Refused::UnknownMember => "unknown_member",
            Refused::OwnIdentity => "own_identity",
            Refused::WrongIncarnation => "wrong_incarnation",
            Refused::WrongCluster => "wrong_cluster",
            Refused::WrongEpoch => "wrong_epoch",
            Refused::FutureVersion => "future_version",
            Refused::FutureFrame => "future_frame",
            Refused::Malformed => "malformed",
            Refused::RecordsBeyondHead => "records_beyond_head",
            Refused::AcknowledgesUnsent => "acknowledges_unsent",
            Refused::EchoFromFuture => "echo_from_future",
            Refused::TimeApart => "time_apart",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl core::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_listed_once_and_in_the_order_of_their_counters() {
        for (index, reason) in Refused::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }
}
