//! What a member behind a relay lacks of a stream from another site: it asks the relay of its site first (rule 26), and its origin hears of
//! it only once the relay has not got it, says so, or is silent.
//!
//! Until then acknowledgements speak as they would have spoken before the gap was noticed: no run above the gap, and the echo of
//! before. The prefixes are never anything but true, and the origin's timer runs all the while: a relay can delay a repair by
//! the time that is waited for it, and do no more. A build that does not know these frames skips them: it is a silent relay.

use core::time::Duration;
use std::collections::VecDeque;

use super::super::Destination;
use super::super::replicator::Replicator;
use super::super::wire::{ASKED_BYTES_MAX, ASKED_MAX, Asked, AskedRuns};
use super::Routes;
use crate::envelope::{KIND_ASK, KIND_LACKS};
use crate::membership::{ByPeer, PeerIndex};
use crate::mutant::{self, Mutant};
use crate::{MemberId, Time};

/// The most gaps of a stream that are asked for at a time. What lies above them the origin hears of when they are settled.
const GAPS_MAX: usize = 8;
/// How often a gap is asked for before it is the origin's.
const TRIES: u8 = 2;
/// After so many gaps in a row that the relay kept silent about it is not asked for a while.
const SILENCES_MAX: u32 = 4;
/// How long that is.
const PAUSE: Duration = Duration::from_secs(1);
/// Runs that wait to be informed that this member has them not, at most. Beyond them it is silent, and counts (`naks_suppressed`).
const LACKING_MAX: usize = 64;
/// Runs of groups that are remembered of a message, for the relay to find it by. What else it brings the origin repairs.
pub(super) const BROUGHT_MAX: usize = 8;

/// Groups that are missing below others that came.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Gap {
    pub(in super::super) first: u64,
    pub(in super::super) last: u64,
    /// The origin's timestamp to be echoed, and when it came: the latest before the gap was noticed.
    pub(in super::super) echo: Option<(Time, Time)>,
    /// When it is asked for, again, or left to the origin.
    at: Time,
    patience: Duration,
    tries: u8,
}

/// What was asked for, and what others ask.
#[derive(Debug)]
pub(in super::super) struct Asking {
    enabled: bool,
    /// Of each stream, in the order of their sequences.
    gaps: ByPeer<Vec<Gap>>,
    /// Up to where gaps of it were noticed.
    noticed: ByPeer<u64>,
    silences: u32,
    paused_until: Time,
    /// What the message just taken asks for.
    asked: Vec<Asked>,
    /// What the message just taken brought.
    brought: Vec<(u64, u64)>,
    /// What was asked for and is not here, and who asked.
    lacking: VecDeque<(PeerIndex, Asked)>,
}

impl Asking {
    pub(in super::super) fn new(enabled: bool, peers: usize) -> Asking {
        Asking {
            enabled,
            gaps: (0..peers).map(|_| Vec::with_capacity(GAPS_MAX)).collect(),
            noticed: ByPeer::filled(0, peers),
            silences: 0,
            paused_until: Time::ZERO,
            asked: Vec::with_capacity(ASKED_MAX),
            brought: Vec::with_capacity(BROUGHT_MAX),
            lacking: VecDeque::with_capacity(LACKING_MAX),
        }
    }

    /// A roster is in force: another may be the relay, and streams may begin again.
    pub(in super::super) fn begin_epoch(&mut self) {
        self.gaps.iter_mut().for_each(Vec::clear);
        self.noticed.fill(0);
        self.lacking.clear();
        (self.silences, self.paused_until) = (0, Time::ZERO);
    }

    /// A message is about to be taken.
    pub(in super::super) fn begin_message(&mut self) {
        self.asked.clear();
        self.brought.clear();
    }

    pub(in super::super) fn brings(&mut self, first: u64, last: u64) {
        if self.brought.len() < BROUGHT_MAX {
            self.brought.push((first, last));
        }
    }

    /// The lowest gap of a stream that its origin is not informed of yet.
    pub(in super::super) fn held_back(&self, peer_index: PeerIndex) -> Option<&Gap> {
        self.gaps[peer_index].first()
    }

    /// When something is to be asked, said or given up.
    pub(in super::super) fn poll_timeout(&self) -> Option<Time> {
        if !self.lacking.is_empty() {
            return Some(Time::ZERO);
        }
        self.gaps.iter().flatten().map(|gap| gap.at).min()
    }

    fn answered(&mut self) {
        self.silences = 0;
    }
}

impl Replicator {
    /// What the message just taken asked this member for, as the relay of its site; each once.
    pub fn next_asked(&mut self) -> Option<Asked> {
        self.routes.as_mut()?.asking.asked.pop()
    }

    /// The runs of groups, first and last, that the message just taken brought; at most 8.
    #[must_use]
    pub fn brought(&self) -> &[(u64, u64)] {
        self.routes
            .as_ref()
            .map_or(&[], |routes| &routes.asking.brought)
    }

    /// Has a member reported that this one has not got what it asked for.
    pub fn lacks(&mut self, member: MemberId, asked: Asked) {
        let Some(peer_index) = self.membership.peer_of(member) else {
            return;
        };
        let Some(Routes { asking, .. }) = &mut self.routes else {
            return;
        };
        if asking.lacking.len() < LACKING_MAX {
            asking.lacking.push_back((peer_index, asked));
        } else {
            self.counters.naks_suppressed += 1;
        }
    }

    /// The relay of the own site, if this member is another and relies on it.
    fn near_relay(&self) -> Option<PeerIndex> {
        let routes = self.routes.as_ref()?;
        let relay = routes.relay(routes.own)?;
        let relay = self.membership.peer(relay)?;
        routes.serves(relay).then_some(relay)
    }

    /// Groups of a stream were found to be missing; before that its origin's latest timestamp was `echo`.
    pub(in super::super) fn notice_gap(
        &mut self,
        now: Time,
        peer_index: PeerIndex,
        (first, last): (u64, u64),
        echo: Option<(Time, Time)>,
    ) {
        let far = self.site_of(peer_index) != self.own_site();
        let Some(relay) = self.near_relay().filter(|_| far) else {
            return;
        };
        // Only who is much nearer than the origin is worth the wait.
        let near = &self.peers[relay].round_trip;
        let patience = (near.average + near.deviation * 4).max(self.config.retransmit_min);
        let at = now + near.reordering();
        let waits = near.reordering() + patience * u32::from(TRIES);
        let is_nearer = near.samples > 0 && waits <= self.peers[peer_index].round_trip.average;
        let Some(Routes { asking, .. }) = &mut self.routes else {
            return;
        };
        let first = first.max(asking.noticed[peer_index] + 1);
        if first > last || !asking.enabled || !is_nearer || now < asking.paused_until {
            return;
        }
        asking.noticed[peer_index] = last;
        let gaps = &mut asking.gaps[peer_index];
        if gaps.len() == GAPS_MAX {
            return;
        }
        gaps.push(Gap {
            first,
            last,
            echo,
            at,
            patience,
            tries: 0,
        });
        debug_assert!(gaps.len() <= GAPS_MAX);
        debug_assert!(gaps.is_sorted_by(|one, next| one.last < next.first));
    }

    /// Groups of a stream came: gaps that they close are settled.
    pub(in super::super) fn settle_gaps(&mut self, peer_index: PeerIndex) {
        let Some(Routes { asking, .. }) = &mut self.routes else {
            return;
        };
        if asking.gaps[peer_index].is_empty() {
            return;
        }
        let (inbound, counters) = (&self.peers[peer_index].inbound, &mut self.counters);
        let mut answered = false;
        asking.gaps[peer_index].retain(|gap| {
            let closed = inbound.has_all(gap.first, gap.last);
            answered |= closed && gap.tries > 0;
            counters.gaps_closed_by_relay += u64::from(closed && gap.tries > 0);
            !closed
        });
        if answered {
            asking.answered();
        }
    }

    /// What was asked for long enough is the origin's to repair.
    pub(in super::super) fn judge_gaps(&mut self, now: Time) {
        for peer_index in self.peers.places() {
            let gaps = |routes: &Routes| !routes.asking.gaps[peer_index].is_empty();
            if !self.routes.as_ref().is_some_and(gaps) {
                continue;
            }
            self.settle_gaps(peer_index);
            let Some(Routes { asking, .. }) = &mut self.routes else {
                return;
            };
            let before = asking.gaps[peer_index].len();
            asking.gaps[peer_index].retain(|gap| gap.tries < TRIES || gap.at > now);
            let given_up = before - asking.gaps[peer_index].len();
            if given_up == 0 {
                continue;
            }
            asking.silences += given_up as u32;
            if asking.silences >= SILENCES_MAX {
                asking.paused_until = now + PAUSE;
            }
            self.counters.gaps_unanswered += given_up as u64;
            self.want_acknowledge(now, true);
        }
    }

    /// The relay has not got these.
    pub(in super::super) fn take_lacks(
        &mut self,
        now: Time,
        peer_index: PeerIndex,
        runs: AskedRuns<'_>,
    ) {
        if self.near_relay() != Some(peer_index) || mutant::active(Mutant::RelaysWordIgnored) {
            return;
        }
        let mut lacking = 0;
        for run in runs {
            let Some(of) = self.membership.peer_of(run.origin) else {
                continue;
            };
            let Some(Routes { asking, .. }) = &mut self.routes else {
                return;
            };
            let before = asking.gaps[of].len();
            asking.gaps[of].retain(|gap| !run.meets(run.origin, gap.first, gap.last));
            lacking += (before - asking.gaps[of].len()) as u64;
            asking.answered();
        }
        self.counters.gaps_lacking_at_relay += lacking;
        if lacking > 0 {
            self.want_acknowledge(now, true);
        }
    }

    /// A member asks for what it lacks. Anyone who is not the relay of its site has nothing for it, and says so.
    pub(in super::super) fn take_ask(&mut self, peer_index: PeerIndex, runs: AskedRuns<'_>) {
        if self.routes.is_none() || self.site_of(peer_index) != self.own_site() {
            self.counters.frames_inert += 1;
            return;
        }
        let is_relay = self.is_relay();
        let member = self.peers[peer_index].member;
        for run in runs {
            if !is_relay {
                self.lacks(member, run);
            } else if let Some(Routes { asking, .. }) = &mut self.routes {
                asking.asked.push(run);
            }
        }
    }

    /// What this member lacks, to its relay; or what others asked for and is not here.
    pub(in super::super) fn transmit_ask(
        &mut self,
        now: Time,
        buffer: &mut Vec<u8>,
    ) -> Option<Destination> {
        let due = |gap: &Gap| gap.at <= now && gap.tries < TRIES;
        let asking = &self.routes.as_ref()?.asking;
        let asks = asking.gaps.iter().flatten().any(due);
        if !asks && asking.lacking.is_empty() {
            return None;
        }
        let relay = self.near_relay();
        self.begin(buffer);
        let routes = self.routes.as_mut()?;
        let body = self.writer.begin();
        let mut count = 0;
        if let Some(relay) = relay.filter(|_| asks) {
            for (peer_index, gaps) in routes.asking.gaps.each_mut() {
                let origin = self.peers[peer_index].member;
                for gap in gaps.iter_mut().filter(|gap| due(gap)) {
                    if count == ASKED_MAX {
                        break;
                    }
                    let (first, last) = (gap.first, gap.last);
                    Asked {
                        origin,
                        first,
                        last,
                    }
                    .write(body);
                    self.counters.gaps_asked += u64::from(gap.tries == 0);
                    (gap.tries, gap.at) = (gap.tries + 1, now + gap.patience);
                    count += 1;
                }
            }
            self.writer.end(KIND_ASK, buffer);
            self.counters.messages_without_records_sent += 1;
            return Some(Destination::One(self.peers[relay].member));
        }
        // Nobody to ask any more: what is due waits for its end, and is the origin's then.
        let gaps = routes.asking.gaps.iter_mut().flatten();
        gaps.filter(|gap| due(gap))
            .for_each(|gap| gap.tries = TRIES);
        let (peer_index, _) = *routes.asking.lacking.front()?;
        while let Some(&(of, run)) = routes.asking.lacking.front()
            && of == peer_index
            && count < ASKED_MAX
        {
            run.write(body);
            routes.asking.lacking.pop_front();
            count += 1;
        }
        debug_assert!(body.len() <= ASKED_BYTES_MAX);
        self.writer.end(KIND_LACKS, buffer);
        self.counters.messages_without_records_sent += 1;
        Some(Destination::One(self.peers[peer_index].member))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Place;
    use crate::replicated::{Config, Deliver, SiteId, SitesConfig};
    use crate::{ClusterId, Epoch, Incarnation};

    /// Applies at once.
    #[derive(Default)]
    struct Applied(Vec<(MemberId, u64)>);

    impl Deliver for Applied {
        fn group(&mut self, origin: MemberId, _: Incarnation, sequence: u64, _: &[u8]) {
            self.0.push((origin, sequence));
        }
    }

    const WRITER: usize = 0;
    const MEMBER: usize = 2;
    const ACROSS: Duration = Duration::from_millis(20);

    /// A writer in one site, a relay that has nothing and a member behind it in another. What is for all comes straight here.
    struct Hosts {
        now: Time,
        hosts: Vec<Replicator>,
        wire: Vec<(Time, usize, usize, Vec<u8>)>,
        /// Nobody hears what the member asks.
        silent: bool,
        /// Messages to the member are lost.
        loses: bool,
        sequence: u64,
    }

    impl Hosts {
        fn new() -> Hosts {
            let names: Vec<_> = (0..3).map(MemberId).collect();
            let host = |&name: &MemberId| {
                let incarnation = Incarnation(7);
                let mut config =
                    Config::new(ClusterId(1), Epoch(1), name, incarnation, names.clone());
                let of = names
                    .iter()
                    .map(|&name| (name, SiteId(u8::from(name.0 > 0))));
                config.sites = Some(SitesConfig::new(of.collect()));
                Replicator::new(config, Time::ZERO).unwrap()
            };
            let mut hosts = Hosts {
                now: Time::ZERO,
                hosts: names.iter().map(host).collect(),
                wire: Vec::new(),
                silent: false,
                loses: false,
                sequence: 0,
            };
            hosts.run(Duration::from_secs(1));
            hosts
        }

        fn run(&mut self, time: Duration) {
            let until = self.now + time;
            while self.now < until {
                self.now = self.now + Duration::from_micros(50);
                let now = self.now;
                let (due, later) = self.wire.drain(..).partition(|one| one.0 <= now);
                self.wire = later;
                let due: Vec<(Time, usize, usize, Vec<u8>)> = due;
                for (_, from, to, bytes) in due {
                    let host = &mut self.hosts[to];
                    let mut applied = Applied::default();
                    let from = MemberId(from as u16);
                    host.handle(now, from, Incarnation(7), &bytes, &mut applied)
                        .unwrap();
                    for (origin, sequence) in applied.0 {
                        host.applied(now, origin, sequence);
                    }
                    while let Some(asked) = host.next_asked() {
                        host.lacks(from, asked);
                    }
                }
                self.transmit();
            }
        }

        fn transmit(&mut self) {
            let now = self.now;
            let mut out = Vec::new();
            for from in 0..3 {
                self.hosts[from].handle_timeout(now);
                while let Some(destination) = self.hosts[from].poll_transmit(now, &mut out) {
                    for to in (0..3).filter(|&to| to != from) {
                        let one = Destination::One(MemberId(to as u16));
                        let asks = from == MEMBER && destination == one;
                        if matches!(destination, Destination::One(_)) && destination != one
                            || asks && self.silent
                            || from == WRITER && to == MEMBER && self.loses
                        {
                            continue;
                        }
                        let way = match from == WRITER || to == WRITER {
                            true => ACROSS,
                            false => Duration::from_micros(100),
                        };
                        self.wire.push((now + way, from, to, out.clone()));
                    }
                }
            }
        }

        fn write(&mut self) {
            self.sequence += 1;
            let now = self.now;
            self.hosts[WRITER]
                .submit(now, self.sequence, &[1; 30])
                .unwrap();
            self.run(Duration::from_millis(1));
        }

        /// One message is lost, others follow; how long until the member has all, from when the next one came.
        fn lose_one(&mut self) -> Duration {
            self.run(Duration::from_millis(5));
            self.loses = true;
            self.write();
            self.loses = false;
            self.write();
            let (lost, since) = (self.sequence - 1, self.now + ACROSS);
            for _ in 0..200 {
                self.write();
                let progress = self.hosts[MEMBER].progress();
                if progress.applied(MemberId(0)) > lost {
                    return self.now.since(since);
                }
            }
            panic!("it is never repaired");
        }

        fn counters(&self) -> &super::super::super::Counters {
            self.hosts[MEMBER].counters()
        }
    }

    #[test]
    fn a_relay_that_lacks_it_says_so_and_the_origin_repairs() {
        let mut hosts = Hosts::new();
        for count in 1..=10 {
            let took = hosts.lose_one();
            assert!(took < ACROSS * 3, "{took:?}");
            assert_eq!(hosts.counters().gaps_lacking_at_relay, count);
        }
        assert_eq!(hosts.counters().gaps_asked, 10);
        assert_eq!(hosts.counters().gaps_unanswered, 0);
    }

    #[test]
    fn a_silent_relay_is_waited_for_a_few_times_and_asked_again_later() {
        let mut hosts = Hosts::new();
        hosts.silent = true;
        let silences = u64::from(SILENCES_MAX);
        for count in 1..=10u64 {
            let took = hosts.lose_one();
            assert!(took < ACROSS * 3, "{took:?}");
            assert_eq!(hosts.counters().gaps_asked, count.min(silences), "{count}");
            assert_eq!(
                hosts.counters().gaps_unanswered,
                count.min(silences),
                "{count}"
            );
        }
        hosts.run(PAUSE);
        hosts.silent = false;
        hosts.lose_one();
        hosts.lose_one();
        assert_eq!(
            hosts.counters().gaps_lacking_at_relay,
            2,
            "it answers: it is asked as ever"
        );
    }

    #[test]
    fn what_there_is_no_room_to_tell_is_counted() {
        let mut hosts = Hosts::new();
        let relay = &mut hosts.hosts[1];
        for sequence in 1..=LACKING_MAX as u64 + 3 {
            let asked = Asked {
                origin: MemberId(0),
                first: sequence,
                last: sequence,
            };
            relay.lacks(MemberId(2), asked);
        }
        assert_eq!(relay.counters().naks_suppressed, 3);
    }

    #[test]
    fn the_origin_hears_of_a_gap_only_after_the_relay() {
        let mut hosts = Hosts::new();
        hosts.silent = true;
        hosts.loses = true;
        hosts.write();
        hosts.loses = false;
        hosts.write();
        let lost = hosts.sequence - 1;
        let asked = |hosts: &Hosts| hosts.counters().gaps_asked;
        while asked(&hosts) == 0 {
            hosts.write();
        }
        // What the member says meanwhile shows nothing above the gap, and all below it.
        let mut held = 0;
        while hosts.counters().gaps_unanswered == 0 {
            let routes = hosts.hosts[MEMBER].routes.as_ref().unwrap();
            if let Some(gap) = routes.asking.held_back(PeerIndex::at(0)) {
                assert_eq!((gap.first, gap.last), (lost, lost));
                held += 1;
            }
            assert_eq!(hosts.hosts[WRITER].counters().retransmits_by_echo, 0);
            hosts.run(Duration::from_micros(100));
        }
        assert!(held > 10);
        hosts.run(ACROSS * 4);
        assert!(hosts.hosts[WRITER].counters().groups_retransmitted > 0);
        let applied = hosts.hosts[MEMBER].progress().applied(MemberId(0));
        assert_eq!(applied, hosts.sequence);
        assert!(
            hosts.hosts[MEMBER]
                .routes
                .as_ref()
                .unwrap()
                .asking
                .poll_timeout()
                .is_none()
        );
    }
}
