//! Behaviours that a schedule of random faults would not show: what is sent when, to which member, and what it costs.

use std::time::Duration;

use asterism_placement::envelope::Refused;
use asterism_placement::membership::Roster;
use asterism_placement::replicated::{
    Config, Deliver, Destination, Event, GROUP_BYTES_MAX, PAYLOAD_BYTES_MIN, Replicator,
    SnapshotKind, Standing, SubmitError,
};
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId, Time};

pub(crate) const A: MemberId = MemberId(1);
pub(crate) const B: MemberId = MemberId(2);
pub(crate) const C: MemberId = MemberId(3);

fn config(member: MemberId) -> Config {
    Config::new(
        ClusterId(1),
        Epoch(1),
        member,
        Incarnation(u64::from(member.0)),
        vec![A, B, C],
    )
}

#[derive(Default)]
pub(crate) struct Count(pub(crate) u64);

impl Deliver for Count {
    fn group(&mut self, _: MemberId, _: Incarnation, _: u64, _: &[u8]) {
        self.0 += 1;
    }
}

/// A few members on one clock, and a network with a fixed delay whose losses the test chooses.
pub(crate) struct Few {
    pub(crate) now: Time,
    pub(crate) nodes: Vec<Replicator>,
    pub(crate) delivered: Vec<Count>,
    flying: Vec<(Time, MemberId, MemberId, Vec<u8>)>,
    /// Every message: its time, sender, recipient and length.
    sent: Vec<(Time, MemberId, Destination, usize)>,
    pub(crate) delay: Duration,
    /// Whose instances apply nothing of what comes.
    pub(crate) stands_still: Option<MemberId>,
}

impl Few {
    pub(crate) fn new(members: u16, change: impl Fn(&mut Config)) -> Few {
        let node = |member| {
            let mut config = config(member);
            config.members = (1..=members).map(MemberId).collect();
            change(&mut config);
            Replicator::new(config, Time::ZERO).unwrap()
        };
        Few {
            now: Time::ZERO,
            nodes: (1..=members).map(MemberId).map(node).collect(),
            delivered: (0..members).map(|_| Count::default()).collect(),
            flying: Vec::new(),
            sent: Vec::new(),
            delay: Duration::from_millis(1),
            stands_still: None,
        }
    }

    pub(crate) fn node(&mut self, member: MemberId) -> &mut Replicator {
        &mut self.nodes[usize::from(member.0) - 1]
    }

    pub(crate) fn submit(&mut self, member: MemberId, groups: u64, length: usize) {
        let now = self.now;
        let node = self.node(member);
        for _ in 0..groups {
            let sequence = node.head() + 1;
            node.submit(now, sequence, &vec![sequence as u8; length])
                .unwrap();
        }
    }

    /// Runs until then; `lose` chooses what is lost, by sender, receiver and bytes.
    fn run(&mut self, until: Time, mut lose: impl FnMut(MemberId, MemberId, &[u8]) -> bool) {
        let mut buffer = Vec::new();
        let members = self.nodes.len() as u16;
        while self.now < until {
            for place in 0..self.nodes.len() {
                let node = &mut self.nodes[place];
                node.handle_timeout(self.now);
                let mut turn = 0;
                while let Some(destination) = node.poll_transmit(self.now, &mut buffer) {
                    turn += 1;
                    assert!(turn < 10_000, "poll_transmit does not end");
                    let from = node.config().member;
                    self.sent.push((self.now, from, destination, buffer.len()));
                    for to in (1..=members).map(MemberId) {
                        let meant =
                            destination == Destination::All || destination == Destination::One(to);
                        if to != from && meant && !lose(from, to, &buffer) {
                            self.flying
                                .push((self.now + self.delay, from, to, buffer.clone()));
                        }
                    }
                }
            }
            let timers = self
                .nodes
                .iter()
                .filter_map(Replicator::poll_timeout)
                .min()
                .unwrap();
            let arrivals = self
                .flying
                .iter()
                .map(|flying| flying.0)
                .min()
                .unwrap_or(Time::MAX);
            self.now = timers
                .min(arrivals)
                .max(self.now + Duration::from_micros(1))
                .min(until);
            let (arrived, flying) = std::mem::take(&mut self.flying)
                .into_iter()
                .partition(|fly| fly.0 <= self.now);
            self.flying = flying;
            let arrived: Vec<(Time, MemberId, MemberId, Vec<u8>)> = arrived;
            for (_, from, to, bytes) in arrived {
                let place = usize::from(to.0) - 1;
                let node = &mut self.nodes[place];
                let incarnation = Incarnation(u64::from(from.0));
                node.handle(
                    self.now,
                    from,
                    incarnation,
                    &bytes,
                    &mut self.delivered[place],
                )
                .unwrap();
                if self.stands_still != Some(to) {
                    let received = node.progress().member(from).unwrap().received;
                    node.applied(self.now, from, received);
                }
            }
        }
    }

    pub(crate) fn run_for(
        &mut self,
        time: Duration,
        lose: impl FnMut(MemberId, MemberId, &[u8]) -> bool,
    ) {
        self.run(self.now + time, lose);
    }
}

/// A frame of records lies behind the header: kind 1 after no echo.
fn has_records(bytes: &[u8]) -> bool {
    bytes.len() > 100
}

#[test]
fn a_lost_tail_is_repaired_by_the_timer_and_not_by_the_keep_alive() {
    tail_is_repaired().unwrap();
}

/// Also the test of the planted bug `TailForgotten`.
pub(crate) fn tail_is_repaired() -> Result<(), String> {
    let mut few = Few::new(3, |config| config.keep_alive = Duration::from_secs(60));
    few.run_for(Duration::from_millis(20), |_, _, _| false);
    // The first keep-alives measured the round trips; now the last message is lost, and nothing follows it.
    few.submit(A, 5, 40);
    let now = few.now;
    few.node(A).probe(now);
    few.run_for(Duration::from_millis(10), |from, to, bytes| {
        from == A && to == B && has_records(bytes)
    });
    few.run_for(Duration::from_secs(1), |_, _, _| false);
    let (b, c) = (few.delivered[1].0, few.delivered[2].0);
    if (b, c) == (5, 5) {
        Ok(())
    } else {
        Err(format!("B has {b}, C has {c}"))
    }
}

/// What came was not applied until there was no room for more; then it was, and the word of it is lost. Also the test of the planted
/// bug `ShutWindowNotProbed`.
pub(crate) fn a_shut_window_is_probed() -> Result<(), String> {
    let mut few = Few::new(2, |config| {
        config.keep_alive = Duration::from_secs(60);
        config.unapplied_groups_max = 8;
    });
    few.run_for(Duration::from_millis(20), |_, _, _| false);
    few.stands_still = Some(B);
    few.submit(A, 8, 40);
    few.run_for(Duration::from_millis(20), |_, _, _| false);
    few.submit(A, 4, 40);
    few.sent.clear();
    few.run_for(Duration::from_secs(1), |_, _, _| false);
    assert_eq!(few.delivered[1].0, 8, "there is no room for more");
    let probes = few.sent.iter().filter(|sent| sent.1 == A).count();
    few.stands_still = None;
    let now = few.now;
    few.node(B).applied(now, A, 8);
    few.run_for(Duration::from_millis(5), |from, _, _| from == B);
    few.run_for(Duration::from_secs(1), |_, _, _| false);
    match few.delivered[1].0 {
        12 if probes < 30 => Ok(()),
        has => Err(format!("B has {has}, after {probes} messages in a second")),
    }
}

#[test]
fn a_lost_word_that_there_is_room_again_is_not_waited_for_until_the_keep_alive() {
    a_shut_window_is_probed().unwrap();
}

/// The hosts stood still for a while, so that all that was under way is answered late; a message that is lost then is repaired as soon
/// as what follows it is answered. Also the test of the planted bug `HiccupDelaysRepair`.
pub(crate) fn a_hiccup_delays_no_repair() -> Result<(), String> {
    let mut few = Few::new(2, |config| {
        config.keep_alive = Duration::from_secs(60);
        // While changes are held back for a congested path it is waited for longer.
        config.coalescing_max = Duration::ZERO;
    });
    let write = |few: &mut Few, pause_ms: u64, lost: bool| {
        few.submit(A, 1, 200);
        few.run_for(Duration::from_millis(pause_ms), |from, _, bytes| {
            lost && from == A && has_records(bytes)
        });
    };
    for _ in 0..50 {
        write(&mut few, 1, false);
    }
    for left in (2..60).rev() {
        few.delay = Duration::from_millis(left);
        write(&mut few, 1, false);
    }
    few.delay = Duration::from_millis(1);
    few.run_for(Duration::from_millis(4), |_, _, _| false);
    assert_eq!(few.delivered[1].0, 108, "it goes on");
    write(&mut few, 9, true);
    write(&mut few, 5, false);
    match few.delivered[1].0 {
        110 => Ok(()),
        has => Err(format!(
            "B has {has} of 110 groups, 14 ms after one was lost"
        )),
    }
}

#[test]
fn what_is_lost_after_a_host_stood_still_goes_again_as_soon_as_ever() {
    a_hiccup_delays_no_repair().unwrap();
}

/// A host stood still for two seconds; what is lost soon afterwards, with nothing after it, goes again as soon as the path asks for.
/// Also the test of the planted bug `StandstillCounts`.
pub(crate) fn a_standstill_is_no_path() -> Result<(), String> {
    let mut few = Few::new(2, |config| {
        config.keep_alive = Duration::from_millis(100);
        config.retransmit_max = Duration::from_millis(500);
    });
    few.delay = Duration::from_millis(10);
    let write = |few: &mut Few, lost: bool| {
        few.submit(A, 1, 200);
        few.run_for(Duration::from_millis(1), |from, _, bytes| {
            lost && from == A && has_records(bytes)
        });
    };
    for _ in 0..50 {
        write(&mut few, false);
    }
    // All that is under way, both ways, arrives when it is over.
    few.delay = Duration::from_secs(2);
    for _ in 0..50 {
        write(&mut few, false);
    }
    few.run_for(Duration::from_millis(1_900), |_, _, _| false);
    few.delay = Duration::from_millis(10);
    few.run_for(Duration::from_millis(500), |_, _, _| false);
    assert_eq!(few.delivered[1].0, 100, "it goes on");
    let path = few.node(A).progress().member(B).unwrap().round_trip;
    write(&mut few, true);
    few.run_for(Duration::from_millis(150), |_, _, _| false);
    match few.delivered[1].0 {
        101 if !path.congested => Ok(()),
        has => Err(format!(
            "B has {has} of 101 groups, 150 ms after one was lost: {path:?}"
        )),
    }
}

#[test]
fn what_was_under_way_while_a_host_stood_still_tells_nothing_of_the_path() {
    a_standstill_is_no_path().unwrap();
}

/// A message that was full is lost, and its groups go again under a longer header: of an epoch whose number is longer, or with a
/// head that is. Also the test of the planted bug `RepairsWholeRuns`.
pub(crate) fn a_full_message_goes_again_under_a_longer_header() -> Result<(), String> {
    let mut few = Few::new(2, |config| {
        config.epoch = Epoch(127);
        config.payload_bytes_max = PAYLOAD_BYTES_MIN;
        config.log_groups_max = 8;
    });
    few.run_for(Duration::from_millis(25), |_, _, _| false);
    // 13 bytes of header and room for 5 before the records, then both groups with their lengths: it is full.
    few.submit(A, 1, GROUP_BYTES_MAX);
    few.submit(A, 1, 53);
    few.sent.clear();
    few.run_for(Duration::from_micros(10), |_, _, _| true);
    let full = few
        .sent
        .iter()
        .any(|sent| sent.1 == A && sent.3 == PAYLOAD_BYTES_MIN - 1);
    assert!(full, "{:?}", few.sent);
    let roster = Roster {
        epoch: Epoch(128),
        members: vec![(A, None), (B, None)],
        assignment: Vec::new(),
    };
    let now = few.now;
    for (node, count) in few.nodes.iter_mut().zip(&mut few.delivered) {
        node.install(now, &roster, count).expect("a good roster");
    }
    // Groups are committed that found no room in the log yet.
    few.node(A).committed(300);
    few.sent.clear();
    few.run_for(Duration::from_secs(1), |_, _, _| false);
    let (has, sent) = (few.delivered[1].0, few.sent.len());
    assert!(sent < 300, "{sent} messages in a second");
    match (has, few.nodes[0].log_room().groups) {
        (2, 8) => Ok(()),
        room => Err(format!("B has {has} of 2 groups; room {room:?}")),
    }
}

#[test]
fn a_full_message_that_was_lost_goes_again_though_headers_grow() {
    a_full_message_goes_again_under_a_longer_header().unwrap();
}

#[test]
fn what_one_member_lacks_goes_to_it_alone_and_what_two_lack_to_all() {
    let mut few = Few::new(3, |_| {});
    few.run_for(Duration::from_millis(50), |_, _, _| false);
    few.submit(A, 5, 40);
    few.run_for(Duration::from_micros(10), |from, to, _| {
        from == A && to == B
    });
    few.submit(A, 5, 40);
    few.sent.clear();
    few.run_for(Duration::from_millis(30), |_, _, _| false);
    assert_eq!((few.delivered[1].0, few.delivered[2].0), (10, 10));
    assert!(
        few.sent
            .iter()
            .any(|sent| sent.1 == A && sent.2 == Destination::One(B))
    );
    assert!(!few.sent.iter().any(|sent| sent.2 == Destination::One(C)));

    few.submit(A, 5, 40);
    few.run_for(Duration::from_micros(10), |from, _, _| from == A);
    few.submit(A, 5, 40);
    few.sent.clear();
    few.run_for(Duration::from_millis(40), |_, _, _| false);
    assert_eq!((few.delivered[1].0, few.delivered[2].0), (20, 20));
    let all = few
        .sent
        .iter()
        .filter(|sent| sent.1 == A && sent.2 == Destination::All && sent.3 > 200);
    assert!(
        all.count() >= 2,
        "the second message and the repair of the first: {:?}",
        few.sent
    );
}

#[test]
fn acknowledgements_are_few() {
    let mut few = Few::new(3, |_| {});
    few.run_for(Duration::from_millis(20), |_, _, _| false);
    few.sent.clear();
    for _ in 0..1_000 {
        few.submit(A, 40, 30);
        few.run_for(Duration::from_micros(100), |_, _, _| false);
    }
    let from_b: Vec<_> = few.sent.iter().filter(|sent| sent.1 == B).collect();
    assert!(
        from_b.len() <= 201,
        "{} acknowledgements in 100 ms, one per 500 us allowed",
        from_b.len()
    );
    let bytes: usize = from_b.iter().map(|sent| sent.3).sum();
    assert!(
        bytes / from_b.len() < 64,
        "{} bytes each",
        bytes / from_b.len()
    );
    few.run_for(Duration::from_millis(5), |_, _, _| false);
    assert_eq!(few.delivered[1].0, 40_000);
    assert_eq!(few.nodes[0].counters().groups_retransmitted, 0);
}

#[test]
fn an_idle_cluster_only_keeps_alive() {
    let mut few = Few::new(3, |_| {});
    few.run_for(Duration::from_millis(100), |_, _, _| false);
    few.sent.clear();
    few.run_for(Duration::from_secs(10), |_, _, _| false);
    let most = 3 * 10_000 / 20 + 3;
    assert!(
        few.sent.len() <= most,
        "{} messages, {most} allowed",
        few.sent.len()
    );
    for node in &few.nodes {
        for member in [A, B, C] {
            let covered = node.progress().covered_until(member);
            assert!(
                covered + Duration::from_millis(25) >= few.now,
                "{covered} at {}",
                few.now
            );
        }
    }
}

#[test]
fn sixty_four_members_fit_the_shortest_message() {
    let mut few = Few::new(64, |config| {
        config.payload_bytes_max = PAYLOAD_BYTES_MIN;
        config.log_groups_max = 256;
        config.log_bytes_max = 64 << 10;
        config.reorder_groups_max = 64;
    });
    for member in 1..=64 {
        few.submit(MemberId(member), 3, 1_000);
    }
    few.run_for(Duration::from_millis(400), |_, _, _| false);
    for node in &few.nodes {
        for member in (1..=64).map(MemberId) {
            assert_eq!(node.progress().applied(member), 3);
            assert_eq!(
                node.progress().stable(member),
                3,
                "{member} at {}",
                node.config().member
            );
        }
        assert_eq!(node.log_room().groups, 256);
    }
}

#[test]
fn a_probe_covers_now_in_one_round_trip() {
    let mut few = Few::new(3, |config| config.keep_alive = Duration::from_secs(1));
    few.run_for(Duration::from_millis(200), |_, _, _| false);
    let asked = few.now;
    few.node(A).probe(asked);
    few.run_for(Duration::from_millis(3), |_, _, _| false);
    for member in [B, C] {
        let covered = few.nodes[0].progress().covered_until(member);
        assert!(covered >= asked, "{covered} is before {asked}");
    }
}

#[test]
fn pruning_frees_the_log_once_all_have_applied() {
    let mut few = Few::new(3, |config| config.log_groups_max = 100);
    few.run_for(Duration::from_millis(20), |_, _, _| false);
    let room = few.nodes[0].log_room();
    few.submit(A, 60, 100);
    assert_eq!(few.nodes[0].log_room().groups, room.groups - 60);
    assert_eq!(few.nodes[0].log_room().bytes, room.bytes - 60 * 101);
    few.run_for(Duration::from_millis(20), |_, _, _| false);
    assert_eq!(few.nodes[0].log_room(), room);
    assert_eq!(few.nodes[1].progress().stable(A), 60);
}

#[test]
fn a_silent_member_does_not_stop_the_others() {
    let mut few = Few::new(3, |config| {
        config.log_groups_max = 64;
        config.silent_after = Duration::from_millis(50);
    });
    few.run_for(Duration::from_millis(20), |_, _, _| false);
    let silent = |from: MemberId, to: MemberId, _: &[u8]| from == C || to == C;
    for _ in 0..500 {
        few.submit(A, 5, 40);
        few.run_for(Duration::from_millis(1), silent);
    }
    few.run_for(Duration::from_millis(20), silent);
    assert_eq!(few.delivered[1].0, 2_500);
    let c = few.nodes[0].progress().member(C).unwrap();
    assert_eq!(c.standing, Standing::Absent);
    while few.node(A).poll_event().is_some() {}
    few.run_for(Duration::from_millis(20), |_, _, _| false);
    let lagging = std::iter::from_fn(|| few.node(A).poll_event())
        .find_map(|event| match event {
            Event::LaggingReplica {
                member: C,
                scan,
                beyond,
            } => Some((scan, beyond)),
            _ => None,
        })
        .expect("the scan begins when it is heard");
    let last = lagging.1.iter().find(|entry| entry.0 == A).unwrap().1;
    assert!(last < 2_500, "C acknowledged {last}");

    let since = few.node(A).progress().member(C).unwrap().lags_since;
    assert!(
        since.is_some_and(|since| Time(20_000) < since && since < Time(520_000)),
        "it lags since it fell off the log, not since it is served: {since:?}"
    );
    let (scan, now) = (lagging.0, few.now);
    let a = few.node(A);
    a.submit_snapshot(now, C, scan, b"entries").unwrap();
    a.finish_snapshot(now, C, scan, SnapshotKind::Full).unwrap();
    few.run_for(Duration::from_millis(20), |_, _, _| false);
    let now = few.now;
    few.nodes[2].snapshot_applied(now, A, scan, &mut few.delivered[2]);
    few.run_for(Duration::from_millis(20), |_, _, _| false);
    let c = few.nodes[0].progress().member(C).unwrap();
    assert_eq!((c.standing, c.lags_since), (Standing::Current, None));
}

#[test]
fn a_log_that_is_not_polled_pushes_back_and_drops_nobody() {
    let mut config = config(A);
    config.log_groups_max = 8;
    let mut node = Replicator::new(config, Time::ZERO).unwrap();
    for sequence in 1..=8 {
        node.submit(Time::ZERO, sequence, b"group").unwrap();
    }
    assert_eq!(
        node.submit(Time::ZERO, 9, b"group"),
        Err(SubmitError::LogFull)
    );
    assert_eq!(
        node.submit(Time::ZERO, 8, b"group"),
        Err(SubmitError::NotConsecutive { expected: 9 })
    );
    assert_eq!(
        node.submit(Time::ZERO, 9, &[0; GROUP_BYTES_MAX + 1]),
        Err(SubmitError::BadLength)
    );
    assert_eq!(node.counters().lagging_replicas, 0);
}

#[test]
fn a_cluster_of_one_keeps_and_sends_nothing() {
    let mut config = config(A);
    config.members = vec![A];
    config.log_groups_max = 4;
    let mut node = Replicator::new(config, Time::ZERO).unwrap();
    for sequence in 1..=100 {
        node.submit(Time::ZERO, sequence, b"group").unwrap();
    }
    assert_eq!(node.poll_transmit(Time::ZERO, &mut Vec::new()), None);
    assert_eq!(
        (node.poll_timeout(), node.progress().stable(A)),
        (None, 100)
    );
}

#[test]
fn golden_message() {
    let mut node = Replicator::new(config(B), Time::ZERO).unwrap();
    node.submit(Time(7), 1, b"group").unwrap();
    node.submit(Time(7), 2, b"g").unwrap();
    let mut message = Vec::new();
    assert_eq!(
        node.poll_transmit(Time(0x0403), &mut message),
        Some(Destination::All)
    );
    let golden = [
        &[1, 1, 1, 3, 4, 0, 0, 0, 0, 0, 0, 2, 0][..], // version, cluster, epoch, timestamp, head, echoes
        &[2, 9, 2, 1, 0, 0, 0, 3, 0, 0, 0],           // acknowledge: of m1 and of m3 nothing
        &[1, 9, 1, 5, b'g', b'r', b'o', b'u', b'p', 1, b'g'], // records from 1 on
    ]
    .concat();
    assert_eq!(message, golden);
    let mut count = Count::default();
    let mut receiver = Replicator::new(config(A), Time::ZERO).unwrap();
    receiver
        .handle(Time(9), B, Incarnation(2), &golden, &mut count)
        .unwrap();
    assert_eq!(count.0, 2);
}

#[test]
fn bad_messages_are_refused_by_reason_and_change_nothing() {
    let mut sender = Replicator::new(config(B), Time::ZERO).unwrap();
    sender.submit(Time::ZERO, 1, b"group").unwrap();
    let mut good = Vec::new();
    sender.poll_transmit(Time::ZERO, &mut good).unwrap();
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let incarnation = Incarnation(2);
    // Version 0, cluster 1, epoch 2, timestamp 3..11, head 11, echoes 12, frames 13.. (acknowledge, then records).
    let own_acknowledged = [&good[..13], &[2, 5, 1, 1, 9, 0, 0]].concat();
    let beyond_head = [&good[..13], &[1, 3, 7, 1, 0]].concat();
    let echo = [&good[..12], &[1, 1], &9_u64.to_le_bytes()[..], &[0]].concat();
    let cases = [
        (
            MemberId(9),
            incarnation,
            good.clone(),
            Refused::UnknownMember,
        ),
        (A, incarnation, good.clone(), Refused::OwnIdentity),
        (B, Incarnation(3), good.clone(), Refused::WrongIncarnation),
        (B, incarnation, with(0, 2), Refused::FutureVersion),
        (B, incarnation, with(1, 2), Refused::WrongCluster),
        (B, incarnation, with(2, 2), Refused::WrongEpoch),
        (B, incarnation, with(13, 0x70), Refused::FutureFrame),
        (
            B,
            incarnation,
            good[..good.len() - 1].to_vec(),
            Refused::Malformed,
        ),
        (B, incarnation, beyond_head, Refused::RecordsBeyondHead),
        (
            B,
            incarnation,
            own_acknowledged,
            Refused::AcknowledgesUnsent,
        ),
        (B, incarnation, echo, Refused::EchoFromFuture),
    ];
    let mut node = Replicator::new(config(A), Time::ZERO).unwrap();
    let mut count = Count::default();
    node.handle(Time::ZERO, B, incarnation, &good, &mut count)
        .unwrap();
    let before = format!("{:?}", node.progress());
    for (from, incarnation, bytes, reason) in cases {
        assert_eq!(
            node.handle(Time(5), from, incarnation, &bytes, &mut count),
            Err(reason)
        );
        assert_eq!(node.counters().refused(reason), 1, "{reason}");
        assert_eq!(format!("{:?}", node.progress()), before, "{reason}");
    }
    assert_eq!(count.0, 1);
}

/// Frame bytes on Ethernet beside the state message: Ethernet 14 and check sequence 4, IPv4 20, UDP 8, the sealed
/// datagram's header 32 and tag 16.
const BESIDE: usize = 14 + 4 + 20 + 8 + 48;

#[test]
fn a_binding_costs_at_most_26_bytes_on_ethernet() {
    let mut few = Few::new(3, |config| config.payload_bytes_max = 1_500 - 20 - 8 - 48);
    few.run_for(Duration::from_millis(20), |_, _, _| false);
    few.sent.clear();
    for _ in 0..200 {
        few.submit(A, 300, 18);
        few.run_for(Duration::from_millis(1), |_, _, _| false);
    }
    let bytes = |member| {
        let of = few.sent.iter().filter(|sent| sent.1 == member);
        of.map(|sent| sent.3 + BESIDE).sum::<usize>() as f64 / 60_000.0
    };
    println!(
        "Ethernet bytes per binding of 18 bytes: {:.2}, acknowledgements {:.2} per receiver",
        bytes(A),
        bytes(B)
    );
    assert!(bytes(A) <= 26.0 && bytes(B) <= 8.0);
}
