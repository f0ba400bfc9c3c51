//! Another member: what it said, what it has of the own stream, and when to send it what again.

use crate::mutant::{self, Mutant};
use crate::{MemberId, Time};

use super::config::{Config, Delivery};
use super::counters::Counters;
use super::inbound::Inbound;
use super::oldest_unacknowledged::OldestUnacknowledged;
use super::pending_acknowledgements::PendingAcknowledgements;
use super::progress::{RoundTrip, Standing};
use super::sent::{Run, Sent};
use super::snapshot::{InboundSnapshot, OutboundSnapshot};
use super::wire::{AcceptedKeys, AcknowledgeEntry, Placements, RUNS_MAX};
use crate::membership::{MemberIndex, PeerIndex};

/// The most runs that one acknowledgement or one timeout sets to go again: the rest follows with the next.
const AGAIN_BY_ECHO_MAX: usize = 64;
const AGAIN_BY_TIMEOUT_MAX: usize = 4;
/// Of at most so many runs that it was not heard to have, nothing later may come to tell of a loss: the timer counts from
/// when the oldest was sent, not from when it was last heard (RFC 7765 section 4).
const TAIL_RUNS_MAX: u64 = 3;

/// Another member.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) member: MemberId,
    /// When it was last heard.
    pub(super) heard: Option<Time>,
    /// Its latest timestamp, and when that arrived.
    pub(super) timestamp: Option<(Time, Time)>,
    /// The latest of the own timestamps that it echoed.
    pub(super) echoed: Time,
    /// When what it says of other members was read last.
    pub(super) echoes_read: Option<Time>,
    /// The head that it named first once it had heard what was sent after the last part of a snapshot came here.
    pub(super) head_since_snapshot: Option<u64>,
    /// When groups were sent for the first time of which no echo came yet.
    oldest_unacknowledged: OldestUnacknowledged,
    pub(super) round_trip: RoundTrip,
    /// Whether it says how far its own instances applied its own stream, once it acknowledged anything. If not, what
    /// it has committed it has applied.
    pub(super) reports_own: Option<bool>,
    pub(super) inbound: Inbound,
    pub(super) pending_acknowledgements: PendingAcknowledgements,
    pub(super) standing: Standing,
    /// It has applied the own stream up to here.
    pub(super) acknowledged: u64,
    /// It has received the own stream up to here.
    received: u64,
    /// The runs of the own stream that it has above `received`.
    runs: Vec<(u64, u64)>,
    /// The log keeps what is above this for it, however little it acknowledged: where its snapshot's scan began.
    floor: u64,
    /// False once the log overflowed during its scan: a smaller scan will follow this one.
    log_kept: bool,
    /// When what it has not received goes again, unless it says something.
    pub(super) retransmit_at: Option<Time>,
    /// When a gap that may still close by itself counts as lost.
    pub(super) reorder_at: Option<Time>,
    backoff: u32,
    pub(super) scan: u32,
    pub(super) outbound: Option<OutboundSnapshot>,
    pub(super) inbound_snapshot: InboundSnapshot,
    /// Since when its snapshot waits for those that began to join before it.
    pub(super) held_up: Option<Time>,
    /// The cluster keys that it accepts, and its clock when it said so.
    pub(super) keys: Option<(AcceptedKeys, Time)>,
    /// Where it has its objects, and its clock when it said so.
    pub(super) placements: Option<(Placements, Time)>,
    /// Where the own stream begins for it: what was before, a snapshot brings.
    pub(super) begins_after: u64,
    /// Where its stream begins for this member, which joins; `None` until it said so.
    pub(super) base: Option<u64>,
    /// How far snapshots of others reach into its stream.
    pub(super) covered: u64,
    reorder_max: u64,
    unapplied_max: u64,
    gap_runs_max: usize,
}

impl Peer {
    pub(super) fn new(member: MemberId, config: &Config) -> Peer {
        let (window, unapplied) = (config.reorder_groups_max, config.unapplied_groups_max);
        let delivery: Delivery = config.delivery;
        Peer {
            member,
            keys: None,
            placements: None,
            held_up: None,
            heard: None,
            timestamp: None,
            echoed: Time::ZERO,
            echoes_read: None,
            head_since_snapshot: None,
            oldest_unacknowledged: OldestUnacknowledged::default(),
            round_trip: RoundTrip::default(),
            reports_own: None,
            inbound: Inbound::new(member, delivery, window, unapplied),
            pending_acknowledgements: PendingAcknowledgements::new(config.members.len()),
            standing: Standing::Current,
            acknowledged: 0,
            received: 0,
            runs: Vec::with_capacity(RUNS_MAX),
            floor: 0,
            log_kept: true,
            retransmit_at: None,
            reorder_at: None,
            backoff: 0,
            scan: 0,
            outbound: None,
            inbound_snapshot: InboundSnapshot::default(),
            begins_after: 0,
            base: None,
            covered: 0,
            reorder_max: window as u64,
            unapplied_max: unapplied as u64,
            gap_runs_max: config.gap_runs_max,
        }
    }

    /// What holds after every acknowledgement.
    fn assert_sound(&self) {
        debug_assert!(
            self.acknowledged <= self.received,
            "what is applied was received"
        );
        let above = |run: &(u64, u64)| run.0 > self.received;
        debug_assert!(self.runs.first().is_none_or(above));
        debug_assert!(self.runs.iter().all(|run| run.0 <= run.1));
        debug_assert!(self.runs.is_sorted_by(|one, next| one.1 < next.0));
    }

    /// It joins while the own log has reached `head`: it is sent what follows.
    pub(super) fn begin_after(&mut self, head: u64) {
        self.begins_after = head;
        self.floor = head;
        if head > 0 {
            self.standing = Standing::Imaging;
        }
    }

    /// A member's stream begins again: nothing said of the one before counts for it.
    pub(super) fn forget_origin(&mut self, index: MemberIndex, member: MemberId) {
        if !mutant::active(Mutant::MarksOutliveIncarnations) {
            self.pending_acknowledgements.forget(index);
        }
        let outbound = self
            .outbound
            .iter_mut()
            .flat_map(|snapshot| &mut snapshot.vector);
        for (origin, sequence) in outbound.chain(&mut self.inbound_snapshot.vector) {
            if *origin == member {
                *sequence = 0;
            }
        }
    }

    /// Another epoch, in which it goes on: whose holdings are in what is scanned for it, or by it, was said of the epoch before. What
    /// they hold now may be more.
    pub(super) fn begin_epoch(&mut self) {
        if mutant::active(Mutant::OldHoldingsCount) {
            return;
        }
        self.inbound_snapshot.held.clear();
        if let Some(outbound) = &mut self.outbound {
            outbound.held.clear();
            outbound.named = 0;
        }
    }

    /// Whether a snapshot, if one came, may have brought more of its stream than came as groups. What it brought was committed before
    /// it came, so below the head that the member names once it has heard what was sent here afterwards. Clocks, which may step, have
    /// no part in that.
    pub(super) fn may_be_exceeded(&self) -> bool {
        let received = self.inbound.received();
        self.head_since_snapshot.is_none_or(|head| head > received)
    }

    /// Groups go to it for the first time.
    pub(super) fn sends(&mut self, now: Time) {
        self.oldest_unacknowledged.sent(now);
    }

    /// It echoed a timestamp; the last groups that were sent for the first time went at `sent_at`.
    pub(super) fn echoes(&mut self, timestamp: Time, sent_at: Time) {
        self.echoed = timestamp;
        self.oldest_unacknowledged.echoed(timestamp, sent_at);
    }

    /// Whether the way to it is congested: the mark is set, or an echo is overdue that would set it. On a path that fills up
    /// echoes come the later the more is sent.
    pub(super) fn is_congested(&self, now: Time, config: &Config) -> bool {
        let round_trip = &self.round_trip;
        let expected = round_trip.shortest()
            + round_trip.excess_max(config.congested_above)
            + config.acknowledge_delay * 2;
        let overdue = |since: Time| now.since(since) > expected;
        round_trip.congested
            || round_trip.samples > 0 && self.oldest_unacknowledged.oldest().is_some_and(overdue)
    }

    /// How long an acknowledgement of a small message takes, with some patience.
    pub(super) fn acknowledges_within(&self, config: &Config) -> core::time::Duration {
        let round_trip = &self.round_trip;
        round_trip.average + round_trip.deviation * 4 + config.acknowledge_delay
    }

    /// It has received the own stream up to here, or a snapshot brings it.
    pub(super) fn received_through(&self) -> u64 {
        self.received.max(self.floor)
    }

    /// Whether it lacks what was sent so long ago that it does not keep pace.
    pub(super) fn is_apart(&self, now: Time, sent: &Sent, patience: core::time::Duration) -> bool {
        let oldest = sent.find(self.received_through() + 1);
        oldest < sent.end() && sent.first_sent_at(oldest) + patience < now
    }

    /// The log keeps everything above this for it. `None`: nothing.
    pub(super) fn pin(&self) -> Option<u64> {
        match self.standing {
            Standing::Absent | Standing::Out => None,
            Standing::Imaging if !self.log_kept => None,
            Standing::Current | Standing::Imaging => Some(self.acknowledged.max(self.floor)),
        }
    }

    /// It was dropped from the log, which has reached `head`.
    pub(super) fn drop_from_log(&mut self, standing: Standing, head: u64) {
        self.standing = standing;
        self.floor = head;
        self.log_kept = !mutant::active(Mutant::LogNotKeptDuringScan);
        self.retransmit_at = None;
        self.reorder_at = None;
        self.backoff = 0;
    }

    /// It is served from the log again. A snapshot for it goes on, if there is one.
    pub(super) fn return_to_log(&mut self) {
        self.standing = Standing::Current;
        self.floor = 0;
    }

    /// Whether it was heard lately.
    pub(super) fn is_heard(&self, now: Time, config: &Config) -> bool {
        self.heard
            .is_some_and(|at| now.since(at) <= config.silent_after)
    }

    /// The log overflowed while it was served by a scan: nothing is kept for it until the next scan.
    pub(super) fn lose_log(&mut self) {
        self.log_kept = false;
    }

    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// What it said of the own stream. Whether it has more than before.
    pub(super) fn acknowledges(&mut self, entry: &AcknowledgeEntry<'_>) -> bool {
        let progress = entry.applied > self.acknowledged || entry.received > self.received;
        self.acknowledged = self.acknowledged.max(entry.applied);
        // An older list of gaps must not undo a newer one. Lists above the same prefix may come in any order; what they
        // lose is only a retransmission too many.
        let mut news = progress;
        if entry.received >= self.received {
            let before = self.runs.last().map_or(self.received, |run| run.1);
            self.received = entry.received;
            if entry.highest >= before || progress {
                self.runs.clear();
                self.runs.extend(entry.runs());
                news |= entry.highest > before;
            }
        }
        if news {
            self.backoff = 0;
        }
        self.assert_sound();
        news
    }

    /// Whether it has not received all of these groups, and the log serves it with them.
    pub(super) fn lacks(&self, first: u64, last: u64) -> bool {
        let above = self.received.max(self.floor);
        if last <= above || matches!(self.standing, Standing::Absent | Standing::Out) {
            return false;
        }
        let first = first.max(above + 1);
        let at = self.runs.partition_point(|run| run.1 < first);
        !self
            .runs
            .get(at)
            .is_some_and(|run| run.0 <= first && last <= run.1)
    }

    /// The last sequence that it would keep if it came now.
    fn keeps_through(&self) -> u64 {
        let keeps = (self.received.max(self.floor) + self.reorder_max)
            .min(self.acknowledged.max(self.floor) + self.unapplied_max);
        // A list of gaps that is full may be cut: what lies above it is not known to be missing.
        match self.runs.last() {
            Some(last) if self.runs.len() >= self.gap_runs_max => keeps.min(last.1),
            _ => keeps,
        }
    }

    /// Whether it said that it lacks some of this run, sent at `sent_at`, while it has what was sent after it.
    pub(super) fn has_gap(&self, run: &Run, sent_at: Time) -> bool {
        let above = self.runs.last().map_or(0, |last| last.1);
        run.last < above && sent_at <= self.echoed && self.lacks(run.first, run.last)
    }

    /// Sets to go again what must be lost: what was sent so long before a message that it echoed, or lies in a gap and
    /// had its time to be overtaken (RFC 8985 section 6.2).
    pub(super) fn want_lost(
        &mut self,
        (now, is_held_back): (Time, bool),
        own: PeerIndex,
        sent: &mut Sent,
        counters: &mut Counters,
    ) {
        self.reorder_at = None;
        let through = self.keeps_through();
        let (round_trip, reordering) = self.round_trip.lost_after(is_held_back);
        let mut left = AGAIN_BY_ECHO_MAX;
        let mut number = sent.find(self.received.max(self.floor) + 1);
        while number < sent.end() && left > 0 {
            let run = *sent.run(number);
            let sent_at = sent.sent_at(number, own);
            if run.first > through || (run.tries == 0 && sent_at > self.echoed) {
                break;
            }
            if !run.wanted.has(own) && !is_given_up(&run) && self.lacks(run.first, run.last) {
                let overdue = sent_at + round_trip + reordering;
                let gap = self.has_gap(&run, sent_at);
                if sent_at + reordering < self.echoed || (gap && overdue <= now) {
                    sent.want(number, own);
                    counters.retransmits_by_echo += 1;
                    left -= 1;
                } else if gap {
                    self.reorder_at = Some(self.reorder_at.map_or(overdue, |at| at.min(overdue)));
                }
            }
            number += 1;
        }
    }

    /// Whether something sent was not received.
    pub(super) fn awaits(&self, sent_through: u64) -> bool {
        !matches!(self.standing, Standing::Absent | Standing::Out)
            && sent_through > self.received.max(self.floor)
    }

    /// Starts the retransmission timer again, or stops it when nothing is awaited.
    pub(super) fn rearm(
        &mut self,
        now: Time,
        own: PeerIndex,
        sent: &Sent,
        sent_through: u64,
        config: &Config,
    ) {
        self.retransmit_at = self.awaits(sent_through).then(|| {
            let from = self.tail_sent_at(own, sent).unwrap_or(now);
            from + self.timeout(config)
        });
    }

    /// When the oldest went there of the few runs that it was not heard to have; `None` if they are not few.
    fn tail_sent_at(&self, own: PeerIndex, sent: &Sent) -> Option<Time> {
        let first = sent.find(self.received.max(self.floor) + 1);
        if sent.end() - first > TAIL_RUNS_MAX || mutant::active(Mutant::TimerRestarts) {
            return None;
        }
        let lacks = |number: &u64| {
            let run = sent.run(*number);
            self.lacks(run.first, run.last)
        };
        let oldest = (first..sent.end()).find(lacks)?;
        Some(sent.sent_at(oldest, own))
    }

    pub(super) fn timeout(&self, config: &Config) -> core::time::Duration {
        let (least, most) = (config.retransmit_min, config.retransmit_max);
        self.round_trip
            .timeout(config.acknowledge_delay, self.backoff, least, most)
    }

    /// The retransmission timer ran out: the oldest that it lacks goes again.
    pub(super) fn timed_out(
        &mut self,
        now: Time,
        own: PeerIndex,
        sent: &mut Sent,
        sent_through: u64,
        config: &Config,
        counters: &mut Counters,
    ) {
        let through = self.keeps_through();
        let timeout = self.timeout(config);
        let mut left = AGAIN_BY_TIMEOUT_MAX;
        let mut waits = false;
        let mut number = sent.find(self.received.max(self.floor) + 1);
        while number < sent.end() && left > 0 && tail_goes_again() {
            let run = *sent.run(number);
            let has_room = run.first <= through;
            if !has_room && (waits || !probes_shut_window()) {
                break;
            }
            let waited = sent.sent_at(number, own) + timeout <= now;
            if !waited && run.tries == 0 {
                break;
            }
            let lacks = self.lacks(run.first, run.last);
            waits |= lacks;
            if waited && !run.wanted.has(own) && lacks && !is_given_up(&run) {
                sent.want(number, own);
                counters.retransmits_by_timeout += 1;
                left -= 1;
            }
            number += 1;
        }
        let again = left < AGAIN_BY_TIMEOUT_MAX;
        self.backoff += u32::from(again);
        let timeout = self.timeout(config);
        // The timeout may have grown since the timer was set: what is left of it is waited for, no more.
        let rest = self.tail_sent_at(own, sent).map(|from| from + timeout);
        let rest = rest.filter(|at| !again && *at > now);
        self.retransmit_at = self
            .awaits(sent_through)
            .then(|| rest.unwrap_or(now + timeout));
    }
}

/// A lost run goes again until it is acknowledged, however often it went.
fn is_given_up(run: &Run) -> bool {
    run.tries >= 3 && mutant::active(Mutant::RetryGivesUp)
}

/// What nothing later can show to be lost goes again after the timeout.
fn tail_goes_again() -> bool {
    !mutant::active(Mutant::TailForgotten)
}

/// The oldest run goes though there was no room for it when that was said last: what said that there is room may be lost, and nothing
/// repeats it (RFC 9293 section 3.8.6.1).
fn probes_shut_window() -> bool {
    !mutant::active(Mutant::ShutWindowNotProbed)
}
