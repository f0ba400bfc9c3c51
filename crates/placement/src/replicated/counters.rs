//! Counters of a replicator since its start; every drop is counted.

use crate::envelope::Refused;

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
    /// Own groups sent again, once for each message that carries them.
    groups_retransmitted,
    /// Runs of groups sent again twice, because few had to be sent again.
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
    /// Remote groups delivered.
    groups_delivered,
    /// Groups that arrived again and were dropped.
    groups_duplicate,
    /// Groups that arrived before an earlier one.
    groups_early,
    /// Groups dropped because they were more than `reorder_groups_max` above the prefix; they are sent again.
    groups_beyond_reorder,
    /// Groups dropped because too many wait to be applied; they are sent again.
    groups_beyond_unapplied,
    /// Groups never delivered because a snapshot covered them.
    groups_covered_by_snapshot,
    /// Retransmissions because a later message was echoed (fast).
    retransmits_by_echo,
    /// Retransmissions because a timer ran out.
    retransmits_by_timeout,
    /// Acknowledgements whose gap list did not fit and was cut.
    gap_lists_cut,
    /// Skipped frames of unknown kind.
    frames_skipped,
    /// Frames of known kind without effect: of an unknown incarnation, or of an unused kind.
    frames_inert,
    /// Stamped acknowledgement vectors merged into a later vector because too many were pending.
    vectors_merged,
    /// Times a member was dropped from the log.
    lagging_replicas,
    /// Snapshot scans begun for members dropped from the log.
    scans_begun,
    /// Snapshot chunks submitted.
    snapshot_chunks_submitted,
    /// Snapshot chunks sent again.
    snapshot_chunks_retransmitted,
    /// Snapshot chunks delivered.
    snapshot_chunks_delivered,
    /// Snapshot chunks dropped because they were duplicate, late or early.
    snapshot_chunks_dropped,
    /// Remote snapshots joined into the own prefixes.
    snapshots_joined,
    /// Rosters installed: epochs that this member took part in, without the first.
    rosters_installed,
    /// Incarnations of other members that an epoch ended.
    incarnations_ended,
    /// Ended incarnations whose stream is the same at all members, and stable.
    incarnations_closed,
    /// Ended incarnations that were forgotten before they were closed, for want of room.
    incarnations_forgotten,
    /// Groups of ended incarnations that were missing here below existing groups when the incarnation ended. Other
    /// members may have delivered them since.
    groups_skipped,
    /// Groups dropped because this joining member did not yet know the beginning of the sender's stream for it; they
    /// are sent again.
    groups_before_base,
    /// Times that a relay, or a member behind it, stopped proving reception, so that its datagrams were sent
    /// directly.
    relay_fallbacks,
    /// Gaps in streams of other sites that were requested from the own site's relay.
    gaps_asked,
    /// Gaps that the relay closed before the origin was informed of them.
    gaps_closed_by_relay,
    /// Gaps reported to the origin because the relay lacked the groups.
    gaps_lacking_at_relay,
    /// Gaps reported to the origin because the relay was silent.
    gaps_unanswered,
    /// Requests of own-site members for runs of groups that this member lacks, left unanswered for want of room: to
    /// the requester this member was silent.
    naks_suppressed,
    /// Times that accumulators began to hold back changes because the path was congested.
    coalescing_begun,
    /// Coalescing windows that an acknowledgement closed.
    windows_acknowledged,
    /// Coalescing windows that lasted the longest allowed time.
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
