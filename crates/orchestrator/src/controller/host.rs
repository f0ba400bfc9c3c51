//! What a controller has observed of one host: its processes, their heartbeats, and evidence that one has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_placement::Time;

use super::input::{Heartbeat, Process, Stage};
use super::mutant::{self, Mutant};
use super::times::Times;

/// Folders of a place that are remembered; the one with the smallest number is forgotten first. A place has one, or one for each
/// machine that it was moved to.
const FOLDERS_MAX: usize = 8;

/// One process, as heard.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) last: Heartbeat,
    pub(super) heard: Time,
    /// Since when it was heard without a gap that would be a suspicion.
    steady_since: Time,
    intervals: Intervals,
}

/// How regularly heartbeats come: mean and mean deviation of the time between two, as RFC 6298 takes of round trips.
#[derive(Clone, Copy, Debug, Default)]
struct Intervals {
    mean_us: u64,
    deviation_us: u64,
}

/// Mean deviations beyond the mean that are no silence.
const DEVIATIONS: u64 = 6;

impl Intervals {
    fn add(&mut self, interval: Duration) {
        let interval_us = interval.as_micros().min(u128::from(u32::MAX)) as u64;
        if self.mean_us == 0 {
            (self.mean_us, self.deviation_us) = (interval_us, interval_us / 2);
            return;
        }
        let off = self.mean_us.abs_diff(interval_us);
        self.deviation_us = (3 * self.deviation_us + off) / 4;
        self.mean_us = (7 * self.mean_us + interval_us) / 8;
    }

    fn expected_within(self) -> Duration {
        Duration::from_micros(self.mean_us + DEVIATIONS * self.deviation_us)
    }
}

impl Seen {
    fn new(last: Heartbeat, heard: Time) -> Seen {
        let intervals = Intervals::default();
        Seen {
            last,
            heard,
            steady_since: heard,
            intervals,
        }
    }

    fn hear(&mut self, last: Heartbeat, now: Time, times: &Times) {
        let since = now.since(self.heard);
        // A gap that was a suspicion is no sign of irregular heartbeats.
        if since < times.suspect_after_max {
            self.intervals.add(since);
        }
        if since >= times.suspect_after {
            self.steady_since = now;
        }
        self.last = last;
        self.heard = now;
    }

    /// Whether it says that the leader of this term has not answered it for so long, and was heard itself all the while: one that
    /// comes back from where nobody reached it says so of a leader that is well.
    pub(super) fn misses_leader(&self, now: Time, term: u64, patience: Duration) -> bool {
        let is_steady = now.since(self.steady_since) >= patience;
        let is_of = |of: u64| of == term || mutant::active(Mutant::AnyLeaderMissed);
        let missed = self.last.leader.filter(|leader| is_of(leader.term));
        is_steady && missed.is_some_and(|leader| leader.silence >= patience)
    }

    /// After so long a silence the process is suspected.
    fn patience(&self, times: &Times) -> Duration {
        let expected = self.intervals.expected_within();
        expected.clamp(times.suspect_after, times.suspect_after_max)
    }
}

/// One place of the cluster, as observed.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    /// The process for which its incarnation was named, by the record.
    named: Option<Process>,
    /// That process, once it was heard.
    pub(super) member: Option<Seen>,
    /// Another process of its name: one that waits to be named, or one that was left out and does not know it.
    pub(super) other: Option<Seen>,
    /// For each folder the last start that is known to have ended.
    ended: BTreeMap<u64, u64>,
    /// The last incarnation that the operator declared to have ended.
    pub(super) fenced: Option<u64>,
    pub(super) is_link_down: bool,
    /// Since when this process is a member, or this controller watches it.
    pub(super) watched_since: Time,
    pub(super) health: Health,
    pub(super) admissions: Admissions,
    /// The process, the epoch, and when it was handed last.
    pub(super) handed: Option<(Process, u32, Time)>,
}

/// What a controller makes of a host's heartbeats.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Health {
    /// Packets are sent to it.
    pub(super) takes: bool,
    /// Packets left it, and it was not healthy for [`Times::return_after`] since.
    pub(super) is_on_probation: bool,
    pub(super) healthy_since: Option<Time>,
    pub(super) suspected_since: Option<Time>,
    /// Since when it is suspected and all hosts that are heard report it as silent.
    pub(super) confirmed_since: Option<Time>,
    pub(super) serves_since: Option<Time>,
}

/// When a host may be admitted again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Admissions {
    pause: Duration,
    not_before: Time,
}

impl Health {
    /// Whether packets may return to the host: at once, or after a while in which it was well.
    pub(super) fn may_return(&self, now: Time, times: &Times) -> bool {
        let is_steady = |since: Time| now.since(since) >= times.return_after;
        let is_steady = self.healthy_since.is_some_and(is_steady);
        !self.is_on_probation || (is_steady && !mutant::active(Mutant::NeverReturns))
    }
}

impl Admissions {
    pub(super) fn note(&mut self, now: Time, times: &Times) {
        let pause = (self.pause * 2).clamp(times.admit_pause, times.admit_pause_max);
        (self.pause, self.not_before) = (pause, now + pause);
    }

    /// Whether the host may be admitted now.
    pub(super) fn are_due(&self, now: Time) -> bool {
        now >= self.not_before || mutant::active(Mutant::AdmittedAtOnce)
    }

    pub(super) fn forget(&mut self) {
        self.pause = Duration::ZERO;
    }
}

impl Host {
    /// Takes a heartbeat; `named` is the process for which the host's incarnation was named. Returns whether it is news that two
    /// processes of this name run.
    pub(super) fn hear(
        &mut self,
        heartbeat: Heartbeat,
        named: Option<Process>,
        now: Time,
        times: &Times,
    ) -> bool {
        let process = heartbeat.process;
        if self.has_ended(process) && !matches!(heartbeat.stage, Stage::Ended(_)) {
            // A datagram that was under way for longer than the process lived.
            return false;
        }
        if process.start > 1 {
            self.note_ended(Process {
                start: process.start - 1,
                ..process
            });
        }
        if matches!(heartbeat.stage, Stage::Ended(_)) {
            self.note_ended(process);
        }
        if named == Some(process) {
            match &mut self.member {
                Some(seen) if seen.last.process == process => seen.hear(heartbeat, now, times),
                _ => self.member = Some(Seen::new(heartbeat, now)),
            }
            return false;
        }
        match &mut self.other {
            Some(seen) if seen.last.process == process => seen.hear(heartbeat, now, times),
            // The first one is kept while it is heard: two that wait in turn would both be named again and again.
            Some(seen)
                if seen.last.process.folder != process.folder
                    && now.since(seen.heard) < seen.patience(times) =>
            {
                return true;
            }
            _ => self.other = Some(Seen::new(heartbeat, now)),
        }
        false
    }

    /// Notes that this process and all before it in its folder have ended.
    pub(super) fn note_ended(&mut self, process: Process) {
        let last = self.ended.entry(process.folder).or_default();
        *last = (*last).max(process.start);
        if self.ended.len() > FOLDERS_MAX {
            self.ended.pop_first();
        }
        for seen in [&mut self.member, &mut self.other] {
            let is_over = |seen: &Seen| {
                let one = seen.last.process;
                one.folder == process.folder && one.start <= process.start
            };
            if seen.as_ref().is_some_and(is_over) {
                *seen = None;
            }
        }
    }

    /// Whether it is known that this process has ended.
    pub(super) fn has_ended(&self, process: Process) -> bool {
        let last = self.ended.get(&process.folder);
        last.is_some_and(|&last| {
            process.start <= last || mutant::active(Mutant::EvidenceOfAnyIncarnation)
        })
    }

    /// The record names another process: what was observed of it becomes what is observed of the member.
    pub(super) fn set_named(&mut self, named: Option<Process>, now: Time) {
        if self.named == named {
            return;
        }
        self.named = named;
        let former = self.member.take();
        self.member = self.other.take_if(|seen| Some(seen.last.process) == named);
        if self.other.is_none() {
            self.other = former;
        }
        self.watched_since = now;
        self.health = Health::default();
    }

    /// How long nothing was heard of the member, if it is for too long.
    pub(super) fn silence(&self, now: Time, times: &Times) -> Option<Duration> {
        let (heard, patience) = match &self.member {
            Some(seen) => (seen.heard.max(self.watched_since), seen.patience(times)),
            None => (self.watched_since, times.suspect_after_max),
        };
        let silence = now.since(heard);
        (silence >= patience).then_some(silence)
    }

    /// The last heartbeat of this process, if it waits to be named.
    pub(super) fn awaiting(&self, process: Process) -> Option<&Heartbeat> {
        let mut seen = [&self.other, &self.member].into_iter().flatten();
        let waits =
            |seen: &&Seen| seen.last.process == process && seen.last.stage == Stage::Awaiting;
        seen.find(waits).map(|seen| &seen.last)
    }

    /// A process that waits to be named, and was heard lately. That of a host which takes no part may be the one for which its last
    /// incarnation was named, and which never began it.
    pub(super) fn waiting(&self, now: Time, times: &Times, is_member: bool) -> Option<Process> {
        let unbegun = self.member.as_ref().filter(|_| !is_member);
        let seen = self.other.as_ref().or(unbegun)?;
        let waits =
            seen.last.stage == Stage::Awaiting && now.since(seen.heard) < seen.patience(times);
        waits.then_some(seen.last.process)
    }
}
