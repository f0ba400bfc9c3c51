//! What a relay keeps: a loss inside a site is repaired in a round trip of the site, and what nobody may have of it.

use asterism_placement::membership::MemberIndex;
use asterism_placement::replicated::{Counters, Relay};
use asterism_secure_channel::{Header, OVERHEAD_BYTES};

use super::*;

const FAR: Shape = Shape {
    sites: &[2, 4],
    sited: true,
};
/// The writer, the far site's relay, and the member behind it that misses something.
const WRITER: usize = 1;
const RELAY: u16 = 2;
const MEMBER: u16 = 4;

fn cluster(cache: usize, change: impl Fn(&mut SitesConfig)) -> Cluster<Senders> {
    let lan = LinkConditions::with_delay(LAN);
    let mut cluster = FAR.cluster_with(lan, LinkConditions::with_delay(WAN), |sites| {
        sites.cache_bytes_max = cache;
        change(sites);
    });
    run(&mut cluster, Duration::from_secs(1));
    cluster
}

fn counters(cluster: &Cluster<Senders>, member: usize) -> &Counters {
    cluster.members()[member].channel.counters()
}

/// Has `count` messages lost on their way from the relay to one member, and says how long after its neighbour that member had each:
/// while a message is written each millisecond, or of messages that nothing follows for a while.
fn repairs(cluster: &mut Cluster<Senders>, count: u32, busy: bool) -> Vec<Duration> {
    let mut times = Vec::new();
    let rest = Duration::from_millis(if busy { 10 } else { 60 });
    // Numbers that were not written before.
    let mut number = senders(cluster, WRITER) as u32;
    let mut write_at = cluster.now();
    let mut step = |cluster: &mut Cluster<Senders>, writes: bool| {
        if writes && cluster.now() >= write_at {
            write_at = cluster.now() + Duration::from_millis(1);
            assert!(cluster.inject(WRITER, 0, PortNumber(0), &packet(number)));
            number += 1;
        }
        run(cluster, Duration::from_micros(20));
    };
    for _ in 0..count {
        let started = cluster.now();
        while cluster.now() - started < rest {
            step(cluster, busy);
        }
        let wanted = senders(cluster, 3) + 1;
        cluster.network_mut().link_mut(RELAY, MEMBER).loss = 1.0;
        step(cluster, true);
        while senders(cluster, 3) < wanted {
            step(cluster, busy);
            assert!(cluster.now() - started < Duration::from_secs(1));
        }
        let since = cluster.now();
        cluster.network_mut().link_mut(RELAY, MEMBER).loss = 0.0;
        while senders(cluster, usize::from(MEMBER)) < wanted {
            step(cluster, busy);
            assert!(cluster.now() - since < Duration::from_secs(1));
        }
        times.push(cluster.now() - since);
    }
    times.sort_unstable();
    times
}

#[test]
fn a_loss_inside_a_site_is_repaired_inside_it() {
    let mut seen = Vec::new();
    for cache in [4 << 20, 0] {
        let mut cluster = cluster(cache, |_| ());
        for busy in [true, false] {
            let before = FAR.crossed(&cluster);
            let again = counters(&cluster, WRITER).groups_retransmitted;
            let started = cluster.now();
            let times = repairs(&mut cluster, 15, busy);
            let after = FAR.crossed(&cluster);
            let again = counters(&cluster, WRITER).groups_retransmitted - again;
            println!(
                "cache {cache}, busy {busy}: repaired within {:?} (median) and {:?} (longest); {again} groups again \
                 across, {} bytes in {:?}",
                times[7],
                times[14],
                after.1 - before.1,
                cluster.now() - started
            );
            seen.push((times[7], times[14], again));
        }
        let tally = tally(&cluster, usize::from(RELAY), |tally| *tally);
        let asked = counters(&cluster, usize::from(MEMBER)).gaps_asked;
        assert_eq!((tally.asked > 0, asked > 0), (cache > 0, cache > 0));
        if cache > 0 {
            let closed = counters(&cluster, usize::from(MEMBER)).gaps_closed_by_relay;
            assert_eq!((closed, tally.asked_lacking), (asked, 0));
            let (count, bytes) = cluster.members()[usize::from(RELAY)].channel.relay_keeps();
            assert!(count > 0 && bytes > count * OVERHEAD_BYTES && bytes <= cache);
            let other = cluster.members()[3].channel.relay_keeps();
            assert_eq!(other, (0, 0), "who is no relay keeps nothing");
        }
    }
    let [busy, idle, busy_without, idle_without] = seen[..] else {
        panic!("four runs");
    };
    // The next message tells of the loss, a millisecond later; across it takes a round trip of 40 ms more.
    assert!(busy.0 < Duration::from_millis(4), "{busy:?}");
    assert!(
        busy_without.0 > Duration::from_millis(40),
        "{busy_without:?}"
    );
    // Else the next word of the writer does, a keep-alive at the latest.
    assert!(
        idle.0 < Duration::from_millis(30) && idle.0 < idle_without.0,
        "{idle:?} {idle_without:?}"
    );
    assert_eq!(busy.2, 0, "nothing crosses again");
    assert!(busy_without.2 >= 15);
}

#[test]
fn with_losses_at_random_fewer_bytes_cross() {
    let mut crossed = Vec::new();
    for cache in [4 << 20, 0] {
        let mut cluster = cluster(cache, |_| ());
        for to in 3..6 {
            cluster.network_mut().link_mut(RELAY, to).loss = 0.05;
        }
        let before = FAR.crossed(&cluster);
        let again = counters(&cluster, WRITER).groups_retransmitted;
        write(&mut cluster, WRITER, 0, 1_000);
        assert!(cluster.run_until_quiet(Duration::from_secs(2)).is_some());
        let after = FAR.crossed(&cluster);
        let again = counters(&cluster, WRITER).groups_retransmitted - again;
        println!(
            "cache {cache}: {} bytes crossed, {again} groups again",
            after.1 - before.1
        );
        crossed.push((after.1 - before.1, again));
        for member in 0..6 {
            assert_eq!(senders(&cluster, member), 1_000, "member {member}");
        }
    }
    assert!(crossed[0].1 * 5 < crossed[1].1, "{crossed:?}");
    assert!(crossed[0].0 < crossed[1].0, "{crossed:?}");
}

/// A relay that lost it too says so.
#[test]
pub(super) fn what_the_relay_has_not_got_the_origin_repairs() {
    let mut cluster = cluster(4 << 20, |_| ());
    // Lost between the sites: nobody there has it.
    for number in 0..20 {
        cluster.network_mut().link_mut(WRITER as u16, RELAY).loss = 1.0;
        write(&mut cluster, WRITER, number * 10, 1);
        cluster.network_mut().link_mut(WRITER as u16, RELAY).loss = 0.0;
        let started = cluster.now();
        write(&mut cluster, WRITER, number * 10 + 1, 3);
        let wanted = (number as usize + 1) * 4;
        while (2..6).any(|member| senders(&cluster, member) < wanted) {
            run(&mut cluster, Duration::from_micros(100));
            assert!(cluster.now() - started < Duration::from_secs(1));
        }
        let took = cluster.now() - started;
        assert!(took < WAN * 4, "{took:?}: a round trip and a half, as ever");
    }
    let lacking: u64 = (3..6)
        .map(|member| counters(&cluster, member).gaps_lacking_at_relay)
        .sum();
    assert!(lacking >= 20, "{lacking}");
    let unanswered: u64 = (3..6)
        .map(|member| counters(&cluster, member).gaps_unanswered)
        .sum();
    assert_eq!(unanswered, 0);
    assert!(tally(&cluster, usize::from(RELAY), |tally| tally.asked_lacking) >= 20);
}

/// What is kept is bounded in bytes and in age, and an epoch ends it.
#[test]
pub(super) fn what_a_relay_keeps_is_bounded() {
    let age = Duration::from_millis(50);
    let mut cluster = cluster(2 << 10, |sites| sites.cache_age_max = age);
    let keeps =
        |cluster: &Cluster<Senders>| cluster.members()[usize::from(RELAY)].channel.relay_keeps();
    for number in 0..200 {
        write(&mut cluster, WRITER, number, 1);
        let (_, bytes) = keeps(&cluster);
        assert!(bytes <= 2 << 10);
    }
    let evicted = tally(&cluster, usize::from(RELAY), |tally| tally.cache_evicted);
    assert!(evicted > 50, "{evicted}");
    // What is old is not sent again: the origin does.
    run(&mut cluster, Duration::from_millis(500));
    let answered =
        |cluster: &Cluster<Senders>| tally(cluster, usize::from(RELAY), |tally| tally.answered);
    assert_eq!(answered(&cluster), 0);
    cluster.network_mut().link_mut(RELAY, MEMBER).loss = 1.0;
    write(&mut cluster, WRITER, 1_000, 1);
    // Long: neither keep-alives nor the origin's repair come through, and what the relay kept grows too old.
    cluster.network_mut().link_mut(WRITER as u16, MEMBER).loss = 1.0;
    run(&mut cluster, age * 5);
    cluster.network_mut().link_mut(RELAY, MEMBER).loss = 0.0;
    write(&mut cluster, WRITER, 1_001, 1);
    run(&mut cluster, WAN + Duration::from_millis(10));
    assert_eq!(answered(&cluster), 0);
    cluster.network_mut().link_mut(WRITER as u16, MEMBER).loss = 0.0;
    assert!(cluster.run_until_quiet(Duration::from_secs(2)).is_some());
    assert_eq!(senders(&cluster, usize::from(MEMBER)), 202);
    write(&mut cluster, WRITER, 1_002, 30);
    run(&mut cluster, WAN);
    assert!(keeps(&cluster).0 > 0);
    let roster = Roster {
        epoch: Epoch(2),
        members: (0..6)
            .map(|name| (MemberId(name), Some(Incarnation(u64::from(name) + 100))))
            .collect(),
        assignment: Vec::new(),
    };
    for member in 0..6 {
        cluster.install(member, &roster).unwrap();
    }
    assert_eq!(keeps(&cluster), (0, 0));
}

/// Only a member of the relay's own site has it send something, to that member alone, and a question counts once.
#[test]
fn a_question_is_answered_once_to_its_member_and_to_nobody_else() {
    let mut cluster = cluster(4 << 20, |_| ());
    let (first, _) = overheard(&mut cluster, 1);
    let (second, inside) = overheard(&mut cluster, 2);
    let mut now = cluster.now();
    for framed in [first, second] {
        let relay = &mut cluster.members_mut()[usize::from(RELAY)].channel;
        relay.handle(now, 0, &mut framed.clone()).unwrap();
    }
    // The member gets the second alone, and asks for the first.
    let mut handed_on = Vec::new();
    let frame = Frame {
        kind: FrameKind::HandedOn,
        member: MemberId(RELAY),
        cluster: ClusterId(9),
    };
    frame.begin(&mut handed_on);
    Frame::push(&mut handed_on, &inside);
    let member = &mut cluster.members_mut()[usize::from(MEMBER)].channel;
    member.handle(now, 0, &mut handed_on).unwrap();
    let mut question = None;
    let mut out = Vec::new();
    for _ in 0..100 {
        now = now + Duration::from_micros(20);
        member.turn(now);
        let asked = member.counters().gaps_asked;
        while let Some(destination) = member.poll_transmit(now, &mut out) {
            if member.counters().gaps_asked > asked && question.is_none() {
                assert_eq!(destination, Destination::Member(MemberId(RELAY)));
                question = Some(out.clone());
            }
        }
    }
    let question = question.expect("it asks");
    let sent = |cluster: &mut Cluster<Senders>, to: usize, bytes: &[u8]| {
        let channel = &mut cluster.members_mut()[to].channel;
        let mut out = Vec::new();
        while channel.poll_transmit(now, &mut out).is_some() {}
        let fine = channel.handle(now, 0, &mut bytes.to_vec()).is_ok();
        let mut answers = Vec::new();
        while let Some(destination) = channel.poll_transmit(now, &mut out) {
            if Frame::is_frame(&out) && out[1] == 2 {
                answers.push((destination, out.clone()));
            }
        }
        (fine, answers)
    };
    let mut damaged = question.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(
        sent(&mut cluster, usize::from(RELAY), &damaged),
        (false, vec![])
    );
    // The other site's relay has it from its own member and hands nothing of it to another site.
    let (fine, answers) = sent(&mut cluster, 0, &question);
    assert!(fine && answers.is_empty());
    let (fine, answers) = sent(&mut cluster, usize::from(RELAY), &question);
    assert!(fine);
    let [(to, answer)] = &answers[..] else {
        panic!("{} answers", answers.len());
    };
    assert_eq!(*to, Destination::Member(MemberId(MEMBER)));
    // A recorded question is refused.
    assert_eq!(
        sent(&mut cluster, usize::from(RELAY), &question),
        (false, vec![])
    );
    // The answer is what the origin sealed: it opens once.
    let (fine, _) = sent(&mut cluster, usize::from(MEMBER), answer);
    assert!(fine);
    assert!(senders_after(&mut cluster, usize::from(MEMBER), now) >= 1);
    assert!(
        !sent(&mut cluster, usize::from(MEMBER), answer).0,
        "a replay"
    );
}

/// Of a member's acknowledgements that wait at its relay the newest crosses, in whatever order they came there.
#[test]
pub(super) fn an_older_acknowledgement_replaces_no_newer_one() {
    let sealed = |session, counter| {
        let header = Header {
            version: 1,
            handshake: false,
            key_id: 1,
            member: MemberId(4),
            cluster: ClusterId(9),
            epoch: Epoch(1),
            session,
            incarnation: Incarnation(1),
            counter,
        };
        [&header.encode()[..], &[0; 20]].concat()
    };
    let sites = SitesConfig::new(Vec::new());
    let mut relay = Relay::new(MemberId(1), ClusterId(9), 200, &sites);
    let keep = |relay: &mut Relay, datagram: &[u8]| {
        relay.copy(datagram);
        relay.keep(Time::ZERO, MemberIndex::default());
    };
    let crossing = |relay: &mut Relay| {
        let mut out = Vec::new();
        assert!(relay.poll_bundle(Time::from_micros(2_000), &mut out));
        let (_, items) = Frame::read(&mut out).unwrap();
        let (item, rest) = Frame::next(items).unwrap();
        assert!(rest.is_empty());
        item.to_vec()
    };
    keep(&mut relay, &sealed(7, 12));
    keep(&mut relay, &sealed(7, 11));
    assert_eq!(crossing(&mut relay), sealed(7, 12));
    let tally = *relay.tally();
    assert_eq!(
        (tally.acknowledgements_kept, tally.acknowledgements_outdated),
        (1, 1)
    );
    // A session that begins again counts from the start; and what has crossed replaces nothing.
    keep(&mut relay, &sealed(7, 11));
    keep(&mut relay, &sealed(8, 1));
    assert_eq!(crossing(&mut relay), sealed(8, 1));
}
