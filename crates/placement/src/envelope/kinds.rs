//! Frame kinds, and which protocol reads each: the one table of both. A protocol that is added adds its rows.

/// Which protocol reads a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// The replicator: streams, acknowledgements, snapshots, clocks.
    Replication,
    /// Joining, leaving and closing.
    Membership,
    /// Members of one site and its relay.
    Sites,
    /// The auditor.
    Audit,
    /// Nobody: padding.
    Nobody,
    /// A later build. This one skips the frame.
    LaterBuild,
}

/// A kind with this bit may be skipped by a build that does not know it.
const SKIPPABLE: u8 = 0x80;

/// Names the kinds, and makes the table of their readers.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $kind:literal, $reads:ident;)*) => {
        $($(#[$doc])* pub(crate) const $name: u8 = $kind;)*

        /// Every kind of this build, and its reader.
        const KINDS: &[(u8, Reads)] = &[$(($name, Reads::$reads),)*];
    };
}

kinds! {
    /// Groups of the sender's stream.
    KIND_RECORDS = 1, Replication;
    /// What the sender has of streams.
    KIND_ACKNOWLEDGE = 2, Replication;
    /// Nothing else is left to be sent.
    KIND_KEEP_ALIVE = 3, Replication;
    /// A chunk of a snapshot.
    KIND_SNAPSHOT = 4, Replication;
    /// The end of a snapshot.
    KIND_SNAPSHOT_END = 5, Replication;
    /// What the sender has of a snapshot.
    KIND_SNAPSHOT_ACKNOWLEDGE = 6, Replication;
    /// The sender has joined no snapshot yet.
    KIND_JOIN = 8, Membership;
    /// Where the sender's stream begins for a newcomer.
    KIND_JOIN_CONFIRM = 9, Membership;
    /// What the sender, or a snapshot, has of ended incarnations.
    KIND_JOIN_VECTOR = 10, Membership;
    /// The sender commits nothing more.
    KIND_LEAVE = 11, Membership;
    /// Not acted on.
    KIND_LEAVE_CONFIRM = 12, Membership;
    /// What the sender has of an ended incarnation, and an answer is wanted.
    KIND_CLOSE = 13, Membership;
    /// Bytes without a meaning, that give a message a length.
    KIND_PADDING = 0x80, Nobody;
    /// A reading of an auditor.
    KIND_AUDIT = 0x81, Audit;
    /// The cluster keys that the sender accepts.
    KIND_KEYS = 0x82, Replication;
    /// How far the sender's stream was sent, and its sum.
    KIND_STREAM = 0x83, Audit;
    /// Groups that a member lacks, to the relay of its site.
    KIND_ASK = 0x84, Sites;
    /// Groups that a relay was asked for and has not.
    KIND_LACKS = 0x85, Sites;
    /// What the sender's clocks show.
    KIND_CLOCK = 0x86, Replication;
    /// Where the sender has its objects.
    KIND_PLACEMENTS = 0x87, Replication;
}

/// The reader of every kind; `None`: a message with it is refused whole.
const READERS: [Option<Reads>; 256] = {
    let mut readers = [None; 256];
    let mut kind = SKIPPABLE as usize;
    while kind < readers.len() {
        readers[kind] = Some(Reads::LaterBuild);
        kind += 1;
    }
    let (mut row, mut last) = (0, 0);
    while row < KINDS.len() {
        let (kind, reads) = KINDS[row];
        assert!(kind > last, "kinds stand once each, in order");
        readers[kind as usize] = Some(reads);
        (row, last) = (row + 1, kind);
    }
    readers
};

impl Reads {
    /// The reader of a kind; `None` if this build does not know it and must not skip it.
    #[inline]
    pub(crate) fn of(kind: u8) -> Option<Reads> {
        READERS[usize::from(kind)]
    }
}

/// Whether a build that does not know the kind may skip it.
pub(super) fn is_skippable(kind: u8) -> bool {
    kind & SKIPPABLE != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_one_reader_and_unknown_ones_are_skipped_or_refused_by_their_bit() {
        for (kind, reads) in (0..=u8::MAX).map(|kind| (kind, Reads::of(kind))) {
            let known = KINDS.iter().find(|(listed, _)| *listed == kind);
            match known {
                Some((_, listed)) => assert_eq!(reads, Some(*listed)),
                None if is_skippable(kind) => assert_eq!(reads, Some(Reads::LaterBuild)),
                None => assert_eq!(reads, None, "kind {kind}"),
            }
        }
    }
}
