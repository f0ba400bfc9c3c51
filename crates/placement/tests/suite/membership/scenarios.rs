//! What seeds meet too rarely, step by step.

use asterism_placement::membership::Roster;
use asterism_placement::replicated::{
    Config, Deliver, Destination, Event, PAYLOAD_BYTES_MIN, Replicator, SnapshotEnd, SnapshotKind,
    Standing,
};
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId, Time};

struct Nowhere;

impl Deliver for Nowhere {
    fn group(&mut self, _: MemberId, _: Incarnation, _: u64, _: &[u8]) {}
}

const MEMBERS: [MemberId; 3] = [MemberId(1), MemberId(2), MemberId(3)];
const LIFE: Incarnation = Incarnation(1);

fn replicator(member: MemberId) -> Replicator {
    let mut config = Config::new(ClusterId(1), Epoch(1), member, LIFE, MEMBERS.to_vec());
    config.log_groups_max = 8;
    Replicator::new(config, Time::ZERO).expect("a good configuration")
}

/// What a member sends now, and the recipients.
fn sends(from: &mut Replicator, now: Time) -> Vec<(Destination, Vec<u8>)> {
    from.handle_timeout(now);
    let mut message = Vec::new();
    let mut sent = Vec::new();
    while let Some(destination) = from.poll_transmit(now, &mut message) {
        sent.push((destination, message.clone()));
    }
    sent
}

/// Everything that one member sends arrives at another.
fn all_arrives(from: &mut Replicator, to: &mut Replicator, now: Time) {
    let (name, to_name) = (from.config().member, to.config().member);
    for (destination, bytes) in sends(from, now) {
        if destination == Destination::All || destination == Destination::One(to_name) {
            to.handle(now, name, LIFE, &bytes, &mut Nowhere)
                .expect("an honest message");
        }
    }
}

/// One member fell off the log of another, got the first part of its snapshot, and that one died: what is in the part may be
/// known to nobody else, so anyone who got it scans for the third.
#[test]
fn a_part_of_a_snapshot_is_passed_on() {
    let [mut dying, mut served, mut third] = MEMBERS.map(replicator);
    let mut now = Time(1_000);
    all_arrives(&mut served, &mut dying, now);
    all_arrives(&mut third, &mut dying, now);
    for sequence in 1..=8 {
        now = Time(now.0 + 1_000);
        // Lost on the way to both.
        let _ = dying.submit(now, sequence, b"group");
        sends(&mut dying, now);
        all_arrives(&mut third, &mut dying, now);
        all_arrives(&mut served, &mut dying, now);
    }
    let scan = std::iter::from_fn(|| dying.poll_event()).find_map(|event| match event {
        Event::LaggingReplica { member, scan, .. } if member == MEMBERS[1] => Some(scan),
        _ => None,
    });
    let scan = scan.expect("the second member fell off the log");
    dying
        .submit_snapshot(now, MEMBERS[1], scan, b"entries")
        .expect("room for a part");
    all_arrives(&mut dying, &mut served, now);
    assert_eq!(served.counters().snapshot_chunks_delivered, 1);
    third.poll_event();

    let roster = Roster {
        epoch: Epoch(2),
        members: vec![(MEMBERS[1], Some(LIFE)), (MEMBERS[2], Some(LIFE))],
        assignment: Vec::new(),
    };
    for participant in [&mut served, &mut third] {
        participant
            .install(now, &roster, &mut Nowhere)
            .expect("a good roster");
        participant.ended_applied(now, MEMBERS[0], LIFE);
        let out = participant
            .progress()
            .member(MEMBERS[0])
            .map(|out| out.standing);
        assert_eq!(out, Some(Standing::Out));
    }
    let mut scanned = false;
    for _ in 0..20 {
        now = Time(now.0 + 25_000);
        all_arrives(&mut served, &mut third, now);
        all_arrives(&mut third, &mut served, now);
        while let Some(event) = served.poll_event() {
            scanned |=
                matches!(event, Event::LaggingReplica { member, .. } if member == MEMBERS[2]);
        }
    }
    assert!(scanned, "part of a snapshot stayed where it was");
}

/// A member that joins is alone once the one that was to let it in is gone, or from the start; then another joins it.
#[test]
fn anyone_who_is_alone_in_its_epoch_is_ready() {
    let roster = |epoch: u32, members: &[MemberId]| Roster {
        epoch: Epoch(epoch),
        members: members.iter().map(|&name| (name, Some(LIFE))).collect(),
        assignment: Vec::new(),
    };
    let joining = |member: MemberId| {
        let mut config = Config::new(ClusterId(1), Epoch(0), member, LIFE, MEMBERS.to_vec());
        config.joins = true;
        Replicator::new(config, Time::ZERO).expect("a good configuration")
    };
    let mut now = Time(1_000);
    let mut alone = joining(MEMBERS[1]);
    assert!(!alone.is_ready(), "no epoch names it yet");
    alone
        .install(now, &roster(2, &MEMBERS[..2]), &mut Nowhere)
        .expect("a good roster");
    alone.handle_timeout(now);
    assert!(!alone.is_ready(), "the other one may have something");
    now = Time(2_000);
    alone
        .install(now, &roster(3, &MEMBERS[1..2]), &mut Nowhere)
        .expect("a good roster");
    assert!(alone.is_ready());
    let events: Vec<Event> = std::iter::from_fn(|| alone.poll_event()).collect();
    assert!(events.contains(&Event::Ready), "{events:?}");
    // What the other had nobody has: its incarnation closes once this host's instances have applied what came.
    alone.ended_applied(now, MEMBERS[0], LIFE);
    assert!(alone.ended().all(|ended| ended.closed));
    alone.submit(now, 1, b"group").expect("room in the log");

    let mut other = joining(MEMBERS[2]);
    for member in [&mut alone, &mut other] {
        member
            .install(now, &roster(4, &MEMBERS[1..]), &mut Nowhere)
            .expect("a good roster");
    }
    let mut scanned = false;
    for _ in 0..20 {
        now = Time(now.0 + 25_000);
        all_arrives(&mut other, &mut alone, now);
        all_arrives(&mut alone, &mut other, now);
        while let Some(event) = alone.poll_event() {
            scanned |=
                matches!(event, Event::LaggingReplica { member, .. } if member == MEMBERS[2]);
        }
    }
    assert!(scanned, "who was alone lets the next one in");
}

/// So many members that not all that there is to say of them fits one of the shortest messages.
const MANY: u16 = 56;
/// So many of them die, and return in one epoch.
const RETURNING: u16 = 46;

/// A member of a large cluster with the shortest messages.
fn one_of_many(member: u16, incarnation: u64) -> Replicator {
    // Names of three bytes on the wire.
    let names = (0..MANY).map(|place| MemberId(20_000 + place)).collect();
    let epoch = Epoch(u32::from(incarnation == 1));
    let name = MemberId(20_000 + member);
    let mut config = Config::new(ClusterId(1), epoch, name, Incarnation(incarnation), names);
    config.payload_bytes_max = PAYLOAD_BYTES_MIN;
    config.joins = incarnation > 1;
    config.log_groups_max = 64;
    config.reorder_groups_max = 64;
    config.unapplied_groups_max = 64;
    Replicator::new(config, Time::ZERO).expect("a good configuration")
}

/// What a driver owes its replicator: everything that comes is applied at once, snapshots are one entry long.
fn drive(replicator: &mut Replicator, ends: &mut Ends, now: Time) {
    for (from, scan) in ends.0.drain(..) {
        replicator.snapshot_applied(now, from, scan, &mut Ends::default());
    }
    while let Some(event) = replicator.poll_event() {
        match event {
            Event::LaggingReplica { member, scan, .. } => {
                let _ = replicator.submit_snapshot(now, member, scan, b"entries");
                let _ = replicator.finish_snapshot(now, member, scan, SnapshotKind::Changes);
            }
            Event::Ended {
                member,
                incarnation,
            } => replicator.ended_applied(now, member, incarnation),
            _ => {}
        }
    }
    let received: Vec<(MemberId, u64)> = replicator
        .progress()
        .members()
        .iter()
        .map(|other| (other.member, other.received))
        .collect();
    for (member, sequence) in received {
        replicator.applied(now, member, sequence);
    }
}

#[derive(Default)]
struct Ends(Vec<(MemberId, u32)>);

impl Deliver for Ends {
    fn group(&mut self, _: MemberId, _: Incarnation, _: u64, _: &[u8]) {}
    fn snapshot_end(&mut self, end: SnapshotEnd<'_>) {
        self.0.push((end.from, end.scan));
    }
}

/// One round: everybody sends, everything arrives.
fn round(cluster: &mut [Replicator], now: Time) {
    round_but(cluster, None, now);
}

/// The same, but one of them never has its snapshot.
fn round_but(cluster: &mut [Replicator], slow: Option<usize>, now: Time) {
    let mut sent = Vec::new();
    for member in cluster.iter_mut() {
        let name = (member.config().member, member.config().incarnation);
        sent.extend(
            sends(member, now)
                .into_iter()
                .map(|message| (name, message)),
        );
    }
    for (place, member) in cluster.iter_mut().enumerate() {
        let own = member.config().member;
        let mut ends = Ends::default();
        for ((from, incarnation), (destination, bytes)) in &sent {
            if *from != own
                && (*destination == Destination::All || *destination == Destination::One(own))
            {
                let _ = member.handle(now, *from, *incarnation, bytes, &mut ends);
            }
        }
        if slow == Some(place) {
            ends = Ends::default();
        }
        drive(member, &mut ends, now);
    }
}

#[test]
fn many_return_at_once_though_messages_are_short() {
    let mut cluster: Vec<Replicator> = (0..MANY).map(|member| one_of_many(member, 1)).collect();
    let mut now = Time(1_000);
    let later = |now: &mut Time| *now = Time(now.0 + 25_000);
    for place in 0..MANY {
        // The dead are known to different lengths: the first participant heard one group more of each.
        cluster[usize::from(place)]
            .submit(now, 1, b"group")
            .expect("room");
    }
    for _ in 0..4 {
        round(&mut cluster, now);
        later(&mut now);
    }
    for place in 0..RETURNING {
        let dying = &mut cluster[usize::from(place)];
        dying.submit(now, 2, b"group").expect("room");
        let (from, messages) = (dying.config().member, sends(dying, now));
        let heir = &mut cluster[usize::from(RETURNING)];
        let mut ends = Ends::default();
        for (_, bytes) in &messages {
            heir.handle(now, from, LIFE, bytes, &mut ends)
                .expect("an honest message");
        }
        drive(heir, &mut ends, now);
        cluster[usize::from(place)] = one_of_many(place, 2);
    }
    let incarnation = |place: u16| Incarnation(if place < RETURNING { 2 } else { 1 });
    let roster = Roster {
        epoch: Epoch(2),
        members: (0..MANY)
            .map(|place| (MemberId(20_000 + place), Some(incarnation(place))))
            .collect(),
        assignment: Vec::new(),
    };
    for member in &mut cluster {
        member
            .install(now, &roster, &mut Nowhere)
            .expect("a good roster");
        drive(member, &mut Ends::default(), now);
    }
    let mut rounds = 0;
    while !cluster
        .iter()
        .all(|member| member.is_ready() && member.ended().all(|ended| ended.closed))
    {
        round(&mut cluster, now);
        later(&mut now);
        rounds += 1;
        let ready = cluster.iter().filter(|member| member.is_ready()).count();
        let open = cluster
            .iter()
            .map(|member| member.ended().filter(|ended| !ended.closed).count())
            .max();
        assert!(
            rounds < 60,
            "{ready} of {MANY} are ready; {open:?} incarnations are open at one"
        );
    }
    let scans: u64 = cluster
        .iter()
        .map(|member| member.counters().scans_begun)
        .sum();
    println!("{rounds} rounds, {scans} scans");
}

/// Who began to join before, and may have heard of a newcomer's earlier incarnation what nobody else has, is waited for: not without end.
#[test]
fn a_newcomer_waits_a_minute_for_who_cannot_join() {
    let mut cluster: Vec<Replicator> = (0..MANY).map(|member| one_of_many(member, 1)).collect();
    cluster.truncate(4);
    let mut now = Time(1_000);
    let mut rounds = |cluster: &mut [Replicator], count: u32, slow| {
        for _ in 0..count {
            round_but(cluster, slow, now);
            now = Time(now.0 + 25_000);
        }
        now
    };
    let install = |cluster: &mut [Replicator], epoch: u32, incarnations: [u64; 4], now: Time| {
        let names = (0..4).map(|place| MemberId(20_000 + place));
        let incarnations = incarnations
            .into_iter()
            .map(|incarnation| Some(Incarnation(incarnation)));
        let roster = Roster {
            epoch: Epoch(epoch),
            members: names.zip(incarnations).collect(),
            assignment: Vec::new(),
        };
        for member in cluster {
            let installed = member.install(now, &roster, &mut Nowhere);
            installed.expect("a good roster");
            drive(member, &mut Ends::default(), now);
        }
    };
    let now = rounds(&mut cluster, 4, None);
    install(&mut cluster, 2, [1; 4], now);
    let now = rounds(&mut cluster, 8, None);
    cluster[2] = one_of_many(2, 2);
    install(&mut cluster, 3, [1, 1, 2, 1], now);
    // It hears the first incarnation of the other, and has no snapshot.
    let now = rounds(&mut cluster, 40, Some(2));
    assert!(!cluster[2].is_ready());
    cluster[3] = one_of_many(3, 2);
    install(&mut cluster, 4, [1, 1, 2, 2], now);
    rounds(&mut cluster, 59 * 40, Some(2));
    assert!(!cluster[3].is_ready(), "it waits for who came before");
    rounds(&mut cluster, 3 * 40, Some(2));
    assert!(cluster[3].is_ready(), "it has waited for a minute");
    assert!(!cluster[2].is_ready());
}

/// The scan whose snapshot came whole.
#[derive(Default)]
struct Whole(Option<(MemberId, u32)>);

impl Deliver for Whole {
    fn group(&mut self, _: MemberId, _: Incarnation, _: u64, _: &[u8]) {}
    fn snapshot_end(&mut self, end: SnapshotEnd<'_>) {
        self.0 = Some((end.from, end.scan));
    }
}

/// Each step of a join waits for what the other says next: none waits for a keep-alive, and a window of the snapshot goes out
/// every time that half of one has arrived.
#[test]
fn a_join_waits_for_no_keep_alive() {
    const CHUNKS: usize = 320;
    let roster = Roster {
        epoch: Epoch(2),
        members: vec![(MEMBERS[0], Some(LIFE)), (MEMBERS[1], Some(LIFE))],
        assignment: Vec::new(),
    };
    let members = MEMBERS[..2].to_vec();
    let start = |member: MemberId, joins: bool| {
        let epoch = Epoch(u32::from(!joins));
        let mut config = Config::new(ClusterId(1), epoch, member, LIFE, members.clone());
        config.joins = joins;
        Replicator::new(config, Time::ZERO).expect("a good configuration")
    };
    let (mut known, mut newcomer) = (start(MEMBERS[0], false), start(MEMBERS[1], true));
    // The first alone, then with the newcomer.
    for replicator in [&mut known, &mut newcomer] {
        replicator
            .install(Time::ZERO, &roster, &mut Nowhere)
            .expect("a good roster");
    }
    let keep_alive = known.config().keep_alive;
    let (mut scan, mut left, mut whole) = (None, CHUNKS, Whole::default());
    let mut ready_at = None;
    for step in 0..2_000 {
        let now = Time(50 * step);
        for (destination, bytes) in sends(&mut known, now) {
            assert_ne!(destination, Destination::One(MEMBERS[0]));
            newcomer
                .handle(now, MEMBERS[0], LIFE, &bytes, &mut whole)
                .expect("an honest message");
        }
        if let Some((from, scan)) = whole.0.take() {
            newcomer.snapshot_applied(now, from, scan, &mut Nowhere);
        }
        all_arrives(&mut newcomer, &mut known, now);
        while let Some(event) = known.poll_event() {
            if let Event::LaggingReplica { scan: number, .. } = event {
                (scan, left) = (Some(number), CHUNKS);
            }
        }
        if let Some(number) = scan {
            while left > 0 && known.snapshot_room(MEMBERS[1]) > 0 {
                known
                    .submit_snapshot(now, MEMBERS[1], number, b"entries")
                    .expect("there is room");
                left -= 1;
            }
            if left == 0 {
                known
                    .finish_snapshot(now, MEMBERS[1], number, SnapshotKind::Full)
                    .expect("the scan goes on");
                scan = None;
            }
        }
        if newcomer.is_ready() {
            ready_at.get_or_insert(now);
        }
    }
    let ready_at = ready_at.expect("it joined");
    assert!(
        ready_at < Time::ZERO + keep_alive / 2,
        "it took {ready_at:?}"
    );
    // Afterwards nobody speaks more often than before.
    let (sent, now) = (known.counters().messages_sent, Time(100_000));
    for step in 0..100 {
        sends(&mut known, now + core::time::Duration::from_millis(step));
    }
    assert!(known.counters().messages_sent - sent <= 6);
}
