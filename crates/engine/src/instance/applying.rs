//! What an instance takes from others: their groups, parts of their snapshots, and what the state channel knows of members.

use asterism_function::NetworkFunction;
use asterism_placement::MemberId;
use asterism_placement::replicated::audit::SEGMENT_LEAVES;
use asterism_state::audit::Leaf;
use asterism_state::{BlockAssignment, OriginName, State};

use super::reports::Report;
use super::stopped::StopReason;
use super::{Exchange, Instance};
use crate::branch::{Branch, taken};
use crate::channel::audits::{LEAVES_BYTES, write_leaves};
use crate::exchange::{Down, Up, read_incarnations};
use crate::mutant::{self, Mutant};

/// Groups of others applied in one turn at most; the rest is reported as lag.
pub const APPLY_GROUPS_PER_TURN: usize = 256;
/// Records of which the cache lines are asked for before the first of them is applied.
const PREFETCHED: usize = 16;
/// A part of a snapshot counts as so many groups where packets wait for it: it holds some two dozen entries.
const SNAPSHOT_PART_GROUPS: usize = 24;

impl<F: NetworkFunction> Instance<F> {
    /// Applies what came from others, in a budget. What does not decode stops the instance: nothing after it is read, so nothing
    /// of it is ever said to be applied.
    pub(super) fn apply(&mut self) {
        if self.stopped.is_some() {
            return;
        }
        let Some(mut exchange) = self.exchange.take() else {
            return;
        };
        let left = self.apply_records(&mut exchange);
        if left == 0 {
            end_budget(&mut exchange);
        }
        exchange.down.release();
        self.exchange = Some(exchange);
    }

    /// Applies records until none is left, or the budget is used, or one does not decode; what is left of the budget.
    #[inline]
    fn apply_records(&mut self, exchange: &mut Exchange) -> usize {
        let mut left = APPLY_GROUPS_PER_TURN;
        let mut prefetched = 0;
        let lane = self.context.identity().lane.0 as u8;
        while left > 0 {
            if prefetched == 0 {
                prefetched = self.prefetch_groups(exchange, lane);
            }
            prefetched = prefetched.saturating_sub(1);
            left = left.saturating_sub(1);
            let Some(record) = exchange.down.next() else {
                break;
            };
            match Down::read(record) {
                Some(Down::Group {
                    lane: from,
                    origin,
                    sequence,
                    bytes,
                }) if from != lane => {
                    let goes_on = self.apply_group(origin, sequence, bytes);
                    if !goes_on {
                        break;
                    }
                }
                Some(Down::SnapshotPart { from, bytes }) => {
                    // Who joins reads no packets yet, and the sooner it has all the better.
                    if self.serving {
                        left = left.saturating_sub(SNAPSHOT_PART_GROUPS - 1);
                    }
                    if !self.apply_snapshot_part(from, bytes) {
                        break;
                    }
                }
                Some(Down::Audit {
                    ticket,
                    object,
                    segment,
                }) => self.read_leaves(exchange, ticket, (object, segment)),
                Some(event) => {
                    if let Some(report) = self.take_event(event, lane) {
                        exchange.say(report);
                    }
                }
                None => {}
            }
        }
        left
    }

    /// Asks for the cache lines of the groups that come next; of how many records it did.
    #[inline]
    fn prefetch_groups(&self, exchange: &mut Exchange, lane: u8) -> usize {
        exchange.down.look_ahead(PREFETCHED, |record| {
            if let Some(Down::Group {
                lane: from, bytes, ..
            }) = Down::read(record)
                && from != lane
            {
                self.state.prefetch(&self.context, bytes);
            }
        })
    }

    /// Applies a group of another instance; false if it does not decode and this instance stops.
    #[inline]
    fn apply_group(&mut self, origin: OriginName, sequence: u64, bytes: &[u8]) -> bool {
        self.tally.groups_applied += 1;
        if self.drops_before_switch() {
            return true;
        }
        let applied = self.state.apply(&self.context, origin, sequence, bytes);
        applied.is_ok() || !self.cannot_apply(StopReason::of_group(&self.context, origin, sequence))
    }

    /// Applies a part of a member's snapshot; false if it does not decode and this instance stops.
    #[inline]
    fn apply_snapshot_part(&mut self, from: MemberId, bytes: &[u8]) -> bool {
        self.tally.groups_applied += 1;
        self.tally.snapshot_parts_applied += 1;
        let applied = self.state.apply_snapshot(&self.context, bytes);
        applied.is_ok() || !self.cannot_apply(StopReason::SnapshotBad { from })
    }

    /// Takes in a record about members, epochs or scans; the report that answers it, if one is due.
    fn take_event(&mut self, event: Down<'_>, lane: u8) -> Option<Report> {
        match event {
            Down::Progress {
                origin,
                received,
                stable,
                covered_us,
                confirmed,
            } => {
                self.take_progress(origin, received, (stable, covered_us));
                if self.holding.is_some() {
                    self.confirm(origin, confirmed);
                }
                return Some(Report::Applied {
                    origin,
                    sequence: received,
                });
            }
            Down::SnapshotEnd { from, scan } => {
                self.snapshot_records += 1;
                return Some(Report::SnapshotApplied { from, scan });
            }
            Down::Ended { origin } => {
                taken(Branch::EndTaken);
                self.parking.wake_absent(&self.context);
                return Some(Report::EndedApplied { origin });
            }
            Down::SnapshotScan { member, scan } if lane == 0 => self.begin_scan(member, scan),
            Down::ScanOn { member, scan } => self.go_on_with_scan(member, scan),
            Down::StopScan { member, scan } => self.stop_scan(member, scan),
            Down::BlockAssignment { epoch, bytes } => self.take_assignment(epoch, bytes),
            Down::Epoch { incarnations } => {
                self.context.set_living(read_incarnations(incarnations));
                self.parking.wake_absent(&self.context);
            }
            Down::Outdated { is_outdated } => {
                self.context.set_outdated(is_outdated);
                self.parking.wake_absent(&self.context);
            }
            Down::Closed { origin } => self.close(origin),
            Down::Share {
                number,
                movable,
                shared,
            } => return Some(self.share(number, movable, shared)),
            Down::Announce { number, objects } => self.begin_announcing(number, objects),
            Down::ClusterTime { at_zero_us } => self.take_over_time(at_zero_us),
            Down::Ready => {
                self.serving = true;
                self.context.set_joined();
                self.state.for_each_object(|object| object.joined());
            }
            // Only the first instance scans; an own group is applied already. The others are not events.
            Down::SnapshotScan { .. }
            | Down::Group { .. }
            | Down::SnapshotPart { .. }
            | Down::Audit { .. } => {}
        }
        None
    }

    /// How far a member is.
    fn take_progress(
        &mut self,
        origin: OriginName,
        received: u64,
        (stable, covered_us): (u64, u64),
    ) {
        self.learn(origin, stable, covered_us);
        // While it joins, what follows where a stream begins says nothing of what came before.
        if self.serving
            && let Some(slot) = self.context.origin(origin)
        {
            self.context.set_applied(slot, received);
        }
    }

    /// Enough members have an incarnation's stream up to here.
    #[cold]
    fn confirm(&mut self, origin: OriginName, sequence: u64) {
        if let Some(slot) = self.context.origin(origin) {
            self.context.confirm(slot, sequence);
        }
    }

    pub(super) fn learn(&mut self, origin: OriginName, stable: u64, covered_us: u64) {
        if let Some(slot) = self.context.origin(origin) {
            self.context.set_stable(slot, stable);
        }
        let identity = self.context.identity();
        if let Some(place) = identity
            .members
            .iter()
            .position(|&member| member == origin.member)
        {
            self.context.set_covered(place as u16, covered_us);
            self.parking.take_covered(place as u16, &self.context);
        }
    }

    /// What an epoch says of pools. Bytes of another form are impossible but for a fault of this program; then nothing changes hands.
    fn take_assignment(&mut self, epoch: u32, bytes: &[u8]) {
        if let Some(assignment) = BlockAssignment::from_bytes(bytes) {
            taken(Branch::BlockAssignmentTaken);
            self.context.set_dealing(epoch, assignment);
            self.parking.wake_absent(&self.context);
        }
    }

    /// All members have the same of an incarnation that ended.
    fn close(&mut self, origin: OriginName) {
        taken(Branch::ClosingTaken);
        // How far its place is covered is said of the incarnation there now, or by `set_closed` if there is none.
        if let Some(slot) = self.context.origin(origin) {
            self.context.set_stable(slot, u64::MAX);
            self.context.confirm(slot, u64::MAX);
        }
        self.context.set_closed(origin);
        self.parking.wake_absent(&self.context);
    }

    /// Reads digests for an auditor.
    #[cold]
    fn read_leaves(&self, exchange: &mut Exchange, ticket: u32, (object, segment): (u8, u8)) {
        let mut leaves = [Leaf::default(); SEGMENT_LEAVES];
        let first = usize::from(segment) * SEGMENT_LEAVES;
        let object = self.state.object(object);
        let kept = object.is_some_and(|object| object.leaves(first, &mut leaves));
        let mut bytes = [0; LEAVES_BYTES];
        write_leaves(&leaves, &mut bytes);
        let leaves: &[u8] = if kept { &bytes } else { &[] };
        // What has no number yet nobody else can have: such a reading compares with none.
        let written = if self.context.wrote() {
            u64::MAX
        } else {
            exchange.written
        };
        let read = Up::Audit {
            ticket,
            written,
            leaves,
        };
        // Without room the round comes to nothing.
        let _ = read.push(&mut exchange.up);
    }
}

/// The budget is used: the next turn goes on with the record that comes now.
fn end_budget(exchange: &mut Exchange) {
    if mutant::active(Mutant::BudgetSkipsGroup) {
        let _ = exchange.down.next();
    }
}
