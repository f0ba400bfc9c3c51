//! What happens once faults have stopped: all become equal, and then know that they are, within a bound.

use std::time::Duration;

use asterism_placement::replicated::Standing;
use asterism_state::GROUP_BYTES_MAX;

use crate::checks;
use crate::report::Failure;
use crate::world::World;

/// How often it is looked whether instances have all, once faults have stopped.
pub const LOOK: Duration = Duration::from_millis(2);

/// The same where what is looked at goes on: out of step with what hosts do every five milliseconds, such as reading for the auditor,
/// which is work that waits at that moment (seed 856363).
pub(crate) const LOOK_OUT_OF_STEP: Duration = Duration::from_micros(4_999);

/// How long a heal phase took, from the last fault on.
pub(crate) struct Healing {
    /// Until every instance had all.
    pub equal: Duration,
    /// Until all was quiet, and known to be equal.
    pub healed: Duration,
    /// What it might take.
    pub bounds: HealBounds,
}

/// How long healing may take, from the last fault on.
#[derive(Clone, Copy)]
pub(crate) struct HealBounds {
    /// Until all is equal, where no timer need run out and nobody fell off a log.
    pub windows: Duration,
    /// Until all is equal at most.
    pub equal: Duration,
    /// Until all is quiet at most, and known to be equal.
    pub healed: Duration,
}

impl World<'_> {
    fn window_and_round_trip(&self) -> Duration {
        let bounds = &self.scenario.bounds;
        let (delay, jitter) = self.scenario.longest_way();
        let kept_back = match self.bytes_of_a_round() {
            Some(_) => bounds.coalescing_max,
            None => Duration::ZERO,
        };
        let window = bounds.flush + bounds.acknowledge_delay + bounds.lookahead + kept_back;
        window + (delay + self.scenario.link.jitter + jitter) * 2
    }

    /// Faults stop; all must become quiet and equal in bounded time.
    pub(crate) fn heal(&mut self) -> Result<Healing, Failure> {
        self.calm_all_links();
        let start = self.cluster.now();
        let bounds = self.heal_bounds();
        let (whole_bound, bound) = (bounds.equal, bounds.healed);
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
                    bounds,
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

    /// How long healing may take when faults stop now.
    ///
    /// Three windows and round trips, from when the last of the datagrams has come that faults held up; one more for
    /// every receive window of groups that a member is behind, since more than one is not taken at once. Where the last
    /// message of a stream was lost, or an answer to a repair, a timer must run out first, which may have backed off;
    /// where a path counts as congested, what was lost goes again a round's bytes at a time, each after a round trip as it was
    /// estimated before (seed 901658: 0.62 s after a long partition, between sites 47 ms apart);
    /// who fell off a log is scanned through the tables, 32 chunks a round trip, once it is heard. To know that all is
    /// equal, the last acknowledgement must come, which only the next keep-alive repeats.
    pub(crate) fn heal_bounds(&self) -> HealBounds {
        let bounds = &self.scenario.bounds;
        let unit = self.window_and_round_trip();
        let now = self.cluster.now();
        let last = self.cluster.network().last_arrival();
        let flying = last.map_or(Duration::ZERO, |at| at.since(now));
        let receive_window = bounds.reorder_groups.min(bounds.unapplied_groups) as u64;
        let windows = flying + unit * (3 + (self.most_behind() / receive_window) as u32);

        let mut equal = windows * 2 + bounds.retransmit_max * 3;
        if let Some(bytes) = self.bytes_of_a_round() {
            let rounds = self.most_behind() * GROUP_BYTES_MAX as u64 / bytes + 1;
            equal += bounds.retransmit_max * 3 * rounds as u32;
        }
        if self.scenario.rough_start {
            equal += Duration::from_millis(1_500);
        }
        if self.anyone_fell_off_a_log() {
            let entries = self.oracle.tokens / 32 + 64;
            equal += unit * (entries / 32 + 1) as u32 + bounds.keep_alive;
        }
        // Entries that idle out just then differ for the time of one message, until a sweep has found all.
        let sweep =
            Duration::from_millis(4) * self.scenario.sizes.entries * 2 + Duration::from_secs(1);
        HealBounds {
            windows,
            equal,
            healed: equal + bounds.keep_alive * 3 + sweep,
        }
    }

    /// Bytes that go again in a round trip where a path counts as congested, the fewest of any member; `None` if none does.
    fn bytes_of_a_round(&self) -> Option<u64> {
        let members = self.cluster.members().iter();
        let windows = members.map(|member| member.channel.window());
        let open = windows.filter(|window| window.round != 0);
        open.map(|window| window.bytes).min()
    }

    fn anyone_fell_off_a_log(&self) -> bool {
        self.cluster.members().iter().any(|member| {
            let progress = member.channel.progress();
            let mut standings = progress.members().iter().map(|other| other.standing);
            standings.any(|standing| standing != Standing::Current)
        })
    }

    /// Groups of one stream that a member has not applied yet, the most of any.
    fn most_behind(&self) -> u64 {
        let behind = self.cluster.members().iter().flat_map(|member| {
            let others = member.channel.progress().members().iter();
            others
                .filter(|other| other.member != member.name)
                .map(|other| {
                    let head = self.oracle.heads[usize::from(other.member.0)];
                    head.saturating_sub(other.applied)
                })
        });
        behind.max().unwrap_or(0)
    }
}
