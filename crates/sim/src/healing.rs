//! What happens once faults have stopped: all become equal, and then know that they are, within a bound. Imports `world`.

use std::time::Duration;

use asterism_placement::replicated::Standing;

use crate::checks;
use crate::report::Failure;
use crate::world::World;

/// How often it is looked whether instances have all, once faults have stopped.
pub const LOOK: Duration = Duration::from_millis(2);

/// How long a heal phase took, from the last fault on.
pub(crate) struct Healing {
    /// Until every instance had all.
    pub equal: Duration,
    /// Until all was quiet, and known to be equal.
    pub healed: Duration,
    /// What that may take.
    pub bound: Duration,
}

impl World<'_> {
    /// Three windows and round trips.
    pub(crate) fn three_windows(&self) -> Duration {
        let (window, round_trip) = self.window_and_round_trip();
        (window + round_trip) * 3
    }

    fn window_and_round_trip(&self) -> (Duration, Duration) {
        let bounds = &self.scenario.bounds;
        let (delay, jitter) = self.scenario.longest_way();
        (
            bounds.flush + bounds.acknowledge_delay + bounds.lookahead,
            (delay + self.scenario.link.jitter + jitter) * 2,
        )
    }

    /// Faults stop; all must become quiet and equal in bounded time.
    pub(crate) fn heal(&mut self) -> Result<Healing, Failure> {
        self.calm_all_links();
        let start = self.cluster.now();
        let (whole_bound, bound) = self.heal_bounds();
        let mut equal = None;
        self.trace.line(|| {
            format!(
                "{start} faults stop; {whole_bound:?} to become equal, {bound:?} to become quiet"
            )
        });
        loop {
            let now = self.cluster.now();
            if equal.is_none() && checks::is_whole(&self.cluster, &self.oracle, &self.witness) {
                equal = Some(now - start);
            }
            let whole = equal.is_some();
            if whole && self.cluster.is_quiet() && checks::is_equal(&self.cluster) {
                let healed = now - start;
                self.drain_parked()?;
                self.rest()?;
                return Ok(Healing {
                    equal: equal.unwrap_or(healed),
                    healed,
                    bound,
                });
            }
            if now > start + bound || !whole && now > start + whole_bound {
                let (check, within) = if whole {
                    ("quiet within the bound", bound)
                } else {
                    ("equal within the bound", whole_bound)
                };
                return Err(checks::at_rest(&self.cluster, &self.oracle, &self.witness)
                    .err()
                    .unwrap_or_else(|| {
                        Failure::new(
                            check,
                            format!(
                                "not {within:?} after the last fault: {}",
                                checks::standing(&self.cluster)
                            ),
                        )
                    }));
            }
            self.run_for(LOOK)?;
        }
    }

    /// How long it may take from the last fault until all is equal, and until all know that it is.
    ///
    /// What was in flight first comes or is found lost (one longest retransmission timeout, which nothing
    /// resets before an acknowledgement comes), then what is missing is repaired window by window, each a
    /// round trip, an acknowledgement's delay and a keep-alive long; whoever was dropped from the log is
    /// walked through the tables, 32 chunks a round trip. Three times that for one more gap. To know it, the
    /// last acknowledgement must come, which only the next keep-alive repeats. A member that fell off a log
    /// is served once it is heard, by its keep-alive if it has nothing to say. What accumulators keep back comes a window later,
    /// or two.
    pub(crate) fn heal_bounds(&self) -> (Duration, Duration) {
        let bounds = &self.scenario.bounds;
        let (window, round_trip) = self.window_and_round_trip();
        let absent = self.cluster.members().iter().any(|member| {
            let progress = member.channel.replicator().progress();
            let mut standings = progress.members().iter().map(|other| other.standing);
            standings.any(|standing| standing != Standing::Current)
        });
        let patient = bounds.keep_alive > Duration::from_secs(1);
        let heard = if patient && !absent {
            Duration::ZERO
        } else {
            bounds.keep_alive
        };
        let unit = window + round_trip + heard;
        let head = self.oracle.heads.iter().copied().max().unwrap_or(0);
        let per_window = bounds
            .reorder_groups
            .min(bounds.unapplied_groups)
            .min(bounds.log_groups)
            .min(64) as u64;
        let behind: u64 = self
            .cluster
            .members()
            .iter()
            .map(|member| {
                let progress = member.channel.replicator().progress();
                let most = progress
                    .members()
                    .iter()
                    .filter(|other| other.member != member.name)
                    .map(|other| {
                        let head = self.oracle.heads[usize::from(other.member.0)];
                        head.saturating_sub(other.applied)
                    });
                most.max().unwrap_or(0)
            })
            .max()
            .unwrap_or(0)
            .min(head);
        // With hardly an echo to tell by, timers repair, four runs at a time.
        let patience = if patient {
            bounds.retransmit_max * (behind / 8) as u32
        } else {
            Duration::ZERO
        };
        let windows = (behind / per_window) as u32 + 1;
        let entries = self.oracle.tokens / 32 + 64;
        let chunks = (entries / 32) as u32 + 1;
        let handshake = if self.scenario.rough_start {
            Duration::from_millis(1_500)
        } else {
            Duration::ZERO
        };
        let whole = (bounds.retransmit_max + unit * 3) * 3
            + unit * (3 * windows + chunks)
            + handshake
            + patience
            + bounds.coalescing_max * 2;
        // Entries that idle out just then differ for the time of one message, until a sweep has found all.
        let sweep =
            Duration::from_millis(4) * self.scenario.sizes.entries * 2 + Duration::from_secs(1);
        (whole, whole + bounds.keep_alive * 3 + sweep)
    }
}
