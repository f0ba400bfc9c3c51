//! What a replicator counts. Plain numbers since its start; nothing is ever dropped without one of them growing.

use super::refused::Refused;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Everything counted since the start.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
            refused: [u64; Refused::ALL.len()],
        }

        impl Counters {
            /// Each counter as a label and its value, refusals as `refused_` and the reason's label.
            pub fn each(&self, mut visit: impl FnMut(&'static str, Option<Refused>, u64)) {
                $(visit(stringify!($name), None, self.$name);)*
                for reason in Refused::ALL {
                    visit("refused", Some(reason), self.refused(reason));
                }
            }
        }
    };
}

counters! {
    /// Own groups submitted.
    groups_submitted,
    /// Own groups refused because the log was full.
    groups_log_full,
    /// Own groups sent for the first time.
    groups_sent,
    /// Own groups sent again, once per message that carries them.
    groups_retransmitted,
    /// Runs of groups that were sent again twice, because few were to go again.
    repair_copies,
    /// Own groups pruned from the log.
    groups_pruned,
    /// State messages written.
    messages_sent,
    /// Bytes of the state messages written, before sealing.
    bytes_sent,
    /// State messages that carried acknowledgements.
    acknowledgements_sent,
    /// State messages sent only to acknowledge or to keep alive.
    messages_without_records_sent,
    /// State messages accepted.
    messages_received,
    /// Bytes of the state messages accepted.
    bytes_received,
    /// Groups of others delivered.
    groups_delivered,
    /// Groups that arrived again and were dropped.
    groups_duplicate,
    /// Groups that arrived before an earlier one.
    groups_early,
    /// Groups dropped because they lay further than `reorder_groups_max` above the prefix; they come again.
    groups_beyond_reorder,
    /// Groups dropped because too many wait to be applied; they come again.
    groups_beyond_unapplied,
    /// Groups never delivered because a snapshot covered them.
    groups_covered_by_snapshot,
    /// Retransmissions decided because a later message was echoed (fast).
    retransmits_by_echo,
    /// Retransmissions decided because a timer ran out.
    retransmits_by_timeout,
    /// Acknowledgements whose gap list did not fit and was cut.
    gap_lists_cut,
    /// Frames of unknown kind that may be skipped, and were.
    frames_skipped,
    /// Frames of known kind that nothing came of: of an incarnation that nobody here knows, or a kind that is not acted on.
    frames_inert,
    /// Stamped acknowledgement vectors merged into a later one because too many were pending.
    vectors_merged,
    /// Times a member was dropped from the log.
    lagging_replicas,
    /// SnapshotScans begun for members dropped from the log.
    scans_begun,
    /// StateSnapshot chunks submitted.
    snapshot_chunks_submitted,
    /// StateSnapshot chunks sent again.
    snapshot_chunks_retransmitted,
    /// StateSnapshot chunks delivered.
    snapshot_chunks_delivered,
    /// StateSnapshot chunks that arrived again, late, or too early, and were dropped.
    snapshot_chunks_dropped,
    /// Snapshots of others joined into the own prefixes.
    snapshots_joined,
    /// Rosters installed: epochs that this member has been in, the first not counted.
    rosters_installed,
    /// Incarnations of other members that an epoch ended.
    incarnations_ended,
    /// Of those, the ones whose stream is the same at all members, and stable.
    incarnations_closed,
    /// Ended incarnations that were forgotten before they were closed, for want of room.
    incarnations_forgotten,
    /// Groups of ended incarnations that were missing here below others that were not, when the incarnation ended. Other members may
    /// have brought them since.
    groups_skipped,
    /// Groups dropped because this member joins and was not reported yet where the sender's stream begins for it; they come
    /// again.
    groups_before_base,
    /// Times that a relay, or a member behind one, gave no proof any more that it hears, so that what is for it goes straight there.
    relay_fallbacks,
    /// Gaps in streams of other sites that the relay of the own site was asked for.
    gaps_asked,
    /// Gaps that closed after the relay was asked and before the origin heard of them.
    gaps_closed_by_relay,
    /// Gaps that the origin heard of because the relay had not got what was asked for.
    gaps_lacking_at_relay,
    /// Gaps that the origin heard of because the relay was silent.
    gaps_unanswered,
    /// Runs of groups that a member of the own site asked this one for, which has not got them, and that it was not reported so for want
    /// of room: to it this member was silent.
    naks_suppressed,
    /// Times that accumulators began to keep changes back because the path was congested.
    coalescing_begun,
    /// Windows in which they did so that an acknowledgement closed.
    windows_acknowledged,
    /// Windows that lasted as long as they may.
    windows_expired,
}

impl Counters {
    /// Messages refused for this reason.
    #[must_use]
    pub fn refused(&self, reason: Refused) -> u64 {
        self.refused[reason as usize]
    }

    pub(crate) fn count_refused(&mut self, reason: Refused) {
        self.refused[reason as usize] += 1;
    }
}
