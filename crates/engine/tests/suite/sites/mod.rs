//! Clusters of several sites: what crosses between them, and what becomes of a site whose relay dies or lies. `cache` has what relays
//! keep.

mod cache;

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::Destination;
use asterism_engine::{Cluster, HostConfig, host};
use asterism_function::{
    Ask, Builder, Endpoint, Flow4, Late, NetworkFunction, PortNumber, Reason, Set, Verdict, build,
    state,
};
use asterism_io::frame::FramePool;
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::membership::Roster;
use asterism_placement::replicated::{Frame, FrameKind, SiteId, SitesConfig};
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::ObjectSettings;

/// Remembers who sent.
struct Senders;

#[state]
struct Sent {
    senders: Set<Endpoint>,
}

impl NetworkFunction for Senders {
    type State = Sent;
    fn state(&self, builder: &Builder) -> Sent {
        Sent {
            senders: builder.table("senders", 8_192, &[]),
        }
    }
    fn packet(&self, ask: Ask<'_, Sent>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let Some(room) = ask.senders.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let mut act = ask.act()?;
        act.senders.insert(room, flow.source(), ());
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

fn packet(number: u32) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let flow = Flow4 {
        source: [10, (number >> 16) as u8, (number >> 8) as u8, number as u8].into(),
        destination: [192, 0, 2, 1].into(),
        source_port: 1,
        destination_port: 53,
        protocol: 17,
    };
    let length = build::flow4(&flow, b"payload", &mut bytes).unwrap();
    bytes.truncate(length.max(60));
    bytes
}

const LAN: Duration = Duration::from_micros(100);
const WAN: Duration = Duration::from_millis(20);

/// Members of each site, in the order of their names; `sited` or all near each other.
struct Shape {
    sites: &'static [u16],
    sited: bool,
}

impl Shape {
    fn site(&self, place: u16) -> u8 {
        let mut end = 0;
        let ends = self.sites.iter().map(|count| {
            end += count;
            end
        });
        ends.filter(|&end| end <= place).count() as u8
    }

    fn members(&self) -> u16 {
        self.sites.iter().sum()
    }

    fn across(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        let pairs =
            (0..self.members()).flat_map(|from| (0..self.members()).map(move |to| (from, to)));
        pairs.filter(|&(from, to)| self.site(from) != self.site(to))
    }

    /// Over links that lose nothing, a second after all were started.
    fn begun(&self) -> Cluster<Senders> {
        let [lan, wan] = [LAN, WAN].map(LinkConditions::with_delay);
        let mut cluster = self.cluster(lan, wan);
        run(&mut cluster, Duration::from_secs(1));
        cluster
    }

    fn cluster(&self, lan: LinkConditions, wan: LinkConditions) -> Cluster<Senders> {
        self.cluster_with(lan, wan, |_| ())
    }

    fn cluster_with(
        &self,
        lan: LinkConditions,
        wan: LinkConditions,
        change: impl Fn(&mut SitesConfig),
    ) -> Cluster<Senders> {
        let names: Vec<_> = (0..self.members()).map(MemberId).collect();
        let members = names.iter().map(|&name| {
            let mut secrets = [0; 48];
            secrets[0] = name.0 as u8 + 1;
            let mut config = HostConfig::new(
                ClusterId(9),
                name,
                Incarnation(u64::from(name.0) + 100),
                names.clone(),
                ClusterKey::from_random(1, [7; 32]),
                secrets,
            );
            if self.sited {
                let of = names.iter().map(|&name| (name, SiteId(self.site(name.0))));
                let mut sites = SitesConfig::new(of.collect());
                change(&mut sites);
                config.replica.sites = Some(sites);
            }
            let (channel, parts) = host(config, Time::ZERO).unwrap();
            let instances = parts.into_iter().map(|parts| {
                let ports: Vec<Box<dyn Port>> = vec![
                    Box::new(MemoryPort::new("in")),
                    Box::new(MemoryPort::sink("out")),
                ];
                let pool = FramePool::new(256).unwrap();
                parts.start(
                    Arc::new(Senders),
                    |_| ObjectSettings::REPLICATED,
                    pool,
                    ports,
                )
            });
            (name, channel, instances.collect())
        });
        let mut network = Network::new(11);
        network.set_defaults(lan);
        for (from, to) in self.across() {
            *network.link_mut(from, to) = wan.clone();
        }
        let mut cluster = Cluster::new(members.collect(), network);
        cluster.set_turn(Duration::from_micros(20));
        cluster
    }

    /// Datagrams and bytes that crossed so far.
    fn crossed(&self, cluster: &Cluster<Senders>) -> (u64, u64) {
        let links = self
            .across()
            .map(|(from, to)| cluster.network().statistics(from, to));
        links.fold((0, 0), |(count, bytes), link| {
            (count + link.sent, bytes + link.sent_bytes)
        })
    }
}

fn run(cluster: &mut Cluster<Senders>, time: Duration) {
    cluster.run_until(cluster.now() + time);
}

/// So many packets at `member`, one each millisecond, numbered from `first`.
fn write(cluster: &mut Cluster<Senders>, member: usize, first: u32, count: u32) {
    for number in first..first + count {
        assert!(cluster.inject(member, 0, PortNumber(0), &packet(number)));
        run(cluster, Duration::from_millis(1));
    }
}

fn senders(cluster: &Cluster<Senders>, member: usize) -> usize {
    cluster.members()[member].instances[0]
        .state()
        .senders
        .len_now()
}

fn tally<T>(
    cluster: &Cluster<Senders>,
    member: usize,
    read: impl Fn(&asterism_placement::replicated::RelayTally) -> T,
) -> T {
    read(&cluster.members()[member].channel.relay_tally())
}

fn direct_copies(cluster: &Cluster<Senders>) -> u64 {
    let members = 0..cluster.members().len();
    members
        .map(|member| tally(cluster, member, |tally| tally.direct_copies))
        .sum()
}

#[test]
fn of_what_is_for_all_one_copy_crosses_for_each_remote_site() {
    let mut crossed = Vec::new();
    for sited in [true, false] {
        let shape = Shape {
            sites: &[4, 4, 4],
            sited,
        };
        let mut cluster = shape.begun();
        let before = shape.crossed(&cluster);
        let direct = direct_copies(&cluster);
        let copies = tally(&cluster, 1, |tally| tally.relay_copies);
        let sent = cluster.members()[1].channel.counters().groups_sent;
        // The second member writes, which is nobody's relay.
        write(&mut cluster, 1, 0, 500);
        assert!(cluster.run_until_quiet(Duration::from_secs(2)).is_some());
        for member in 0..12 {
            assert_eq!(senders(&cluster, member), 500, "member {member}");
        }
        let after = shape.crossed(&cluster);
        crossed.push((after.0 - before.0, after.1 - before.1));
        if !sited {
            assert_eq!((direct, direct_copies(&cluster)), (0, 0));
            continue;
        }
        // At first nobody has proved to hear; then nothing goes straight that is for all.
        assert!(direct > 0 && direct_copies(&cluster) == direct);
        let sent = cluster.members()[1].channel.counters().groups_sent - sent;
        let copies = tally(&cluster, 1, |tally| tally.relay_copies) - copies;
        // A copy for each of two sites, of each message; acknowledgements that come with it among them, others are bundled.
        assert!(
            copies >= 2 * 450 && copies <= 2 * (sent + 20),
            "{copies} copies of {sent} groups"
        );
        for relay in [0, 4, 8] {
            let handed = tally(&cluster, relay, |tally| tally.handed_on);
            assert!(handed > 0, "{relay}");
            let kept = tally(&cluster, relay, |tally| tally.acknowledgements_kept);
            assert!(kept > 0, "{relay}");
        }
        for other in [1, 2, 3, 5, 6, 7, 9, 10, 11] {
            assert_eq!(
                tally(&cluster, other, |tally| tally.handed_on),
                0,
                "{other}"
            );
            assert_eq!(
                tally(&cluster, other, |tally| tally.not_relay),
                0,
                "{other}"
            );
        }
    }
    let [with, without] = crossed[..] else {
        panic!("two runs")
    };
    println!("crossed with sites: {with:?} datagrams and bytes; without: {without:?}");
    // Four members in each site: a quarter at the most, and what was bundled less.
    assert!(with.0 * 4 <= without.0, "{with:?} of {without:?} datagrams");
    assert!(with.1 * 4 <= without.1, "{with:?} of {without:?} bytes");
}

#[test]
fn a_dead_relay_is_passed_by_and_the_next_epoch_replaces_it() {
    let shape = Shape {
        sites: &[3, 3],
        sited: true,
    };
    let mut cluster = shape.begun();
    cluster.set_paused(3, true);
    let direct = direct_copies(&cluster);
    // The bound: 300 ms, and two round trips with their deviation. What is written later arrives in one way across.
    run(&mut cluster, Duration::from_millis(600));
    assert!(direct_copies(&cluster) > direct);
    let state = |cluster: &Cluster<Senders>, of: usize| {
        let channel = &cluster.members()[of].channel;
        channel.sites().nth(1).unwrap()
    };
    for origin in 0..3 {
        let state = state(&cluster, origin);
        assert!(!state.relayed && state.direct == 3, "{state:?}");
        let counters = cluster.members()[origin].channel.counters();
        assert!(counters.relay_fallbacks > 0);
    }
    let again = cluster.members()[1].channel.counters().groups_retransmitted;
    write(&mut cluster, 1, 0, 50);
    run(&mut cluster, WAN + Duration::from_millis(2));
    assert_eq!([4, 5].map(|member| senders(&cluster, member)), [50, 50]);
    // The dead site's members are heard as well: their relay carries nothing for them any more.
    write(&mut cluster, 5, 100, 50);
    run(&mut cluster, WAN + Duration::from_millis(2));
    assert_eq!([0, 1, 2].map(|member| senders(&cluster, member)), [100; 3]);
    let later = cluster.members()[1].channel.counters().groups_retransmitted;
    assert!(
        later - again < 20,
        "they did not wait for repairs: {}",
        later - again
    );

    let members = [0u16, 1, 2, 4, 5];
    let roster = Roster {
        epoch: Epoch(2),
        members: members
            .map(|name| (MemberId(name), Some(Incarnation(u64::from(name) + 100))))
            .to_vec(),
        assignment: Vec::new(),
    };
    for member in members {
        cluster.install(usize::from(member), &roster).unwrap();
    }
    run(&mut cluster, Duration::from_secs(1));
    let direct = direct_copies(&cluster);
    let handed = tally(&cluster, 4, |tally| tally.handed_on);
    write(&mut cluster, 1, 200, 50);
    run(&mut cluster, WAN + Duration::from_millis(2));
    assert_eq!([4, 5].map(|member| senders(&cluster, member)), [150, 150]);
    assert_eq!(direct_copies(&cluster), direct);
    assert!(tally(&cluster, 4, |tally| tally.handed_on) >= handed + 50);
    let state = state(&cluster, 0);
    assert_eq!(
        (state.relay, state.relayed, state.members),
        (Some(MemberId(4)), true, 2)
    );
}

#[test]
fn a_relay_hands_on_what_opened_once_and_nothing_else() {
    let shape = Shape {
        sites: &[2, 3],
        sited: true,
    };
    let mut cluster = shape.begun();
    let now = cluster.now();
    let (framed, inside) = overheard(&mut cluster, 1);
    let (_, inside_later) = overheard(&mut cluster, 2);
    assert!(Frame::is_frame(&framed) && !Frame::is_frame(&inside));
    assert_eq!(
        &framed[asterism_placement::replicated::FRAME_BYTES..],
        &inside[..]
    );

    let wrap = |kind, inner: &[u8]| {
        let mut out = Vec::new();
        let frame = Frame {
            kind,
            member: MemberId(0),
            cluster: ClusterId(9),
        };
        frame.begin(&mut out);
        Frame::push(&mut out, inner);
        out
    };
    let mut hand = |member: usize, bytes: &[u8]| {
        let channel = &mut cluster.members_mut()[member].channel;
        let mut out = Vec::new();
        while channel.poll_transmit(now, &mut out).is_some() {}
        let before = channel.relay_tally();
        let result = channel.handle(now, 0, &mut bytes.to_vec());
        let mut sent = Vec::new();
        while let Some(destination) = channel.poll_transmit(now, &mut out) {
            if Frame::is_frame(&out) {
                sent.push((destination, out.clone()));
            }
        }
        let after = channel.relay_tally();
        (
            result.is_ok(),
            sent,
            after.handed_on - before.handed_on,
            after.not_handed_on + after.frames_refused + after.not_relay
                - (before.not_handed_on + before.frames_refused + before.not_relay),
        )
    };
    let mut damaged = framed.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let refused = hand(2, &damaged);
    assert_eq!(
        (refused.0, refused.1.len(), refused.3),
        (false, 0, 1),
        "a damaged one"
    );
    let mut foreign = framed.clone();
    foreign[4] ^= 1;
    assert_eq!(hand(2, &foreign).3, 1, "of another cluster");
    assert_eq!(hand(2, &framed[..framed.len() - 1]).3, 1, "cut");

    let (fine, sent, handed, _) = hand(2, &framed);
    assert_eq!((fine, sent.len(), handed), (true, 1, 1));
    let (destination, handed_on) = &sent[0];
    assert_eq!(*destination, Destination::Near);
    assert_eq!(*handed_on, {
        let mut expected = wrap(FrameKind::HandedOn, &inside);
        expected[2] = 2;
        expected
    });
    let again = hand(2, &framed);
    assert_eq!((again.1.len(), again.2, again.3), (0, 0, 1), "a replay");
    let fresh = hand(2, &wrap(FrameKind::HandedOn, &inside_later));
    let nothing = (fresh.0, fresh.1.len(), fresh.2);
    assert_eq!(nothing, (true, 0, 0), "what was handed on goes no further");

    let (fine, sent, handed, _) = hand(3, handed_on);
    assert!(fine && sent.is_empty() && handed == 0, "it goes no further");
    assert_eq!(senders_after(&mut cluster, 3, now), 1);

    // Anyone who is not the relay keeps to itself what it is asked to hand on, and says so.
    let mut hand = |member: usize, bytes: &[u8]| {
        let channel = &mut cluster.members_mut()[member].channel;
        let _ = channel.handle(now, 0, &mut bytes.to_vec());
        channel.relay_tally()
    };
    let other = hand(4, &framed);
    assert_eq!((other.handed_on, other.not_relay), (0, 1));
    // Back in its own site it opens nowhere else than it did: the relay there hands on nothing of its own site.
    let before = hand(0, &[0]).handed_on;
    assert_eq!(hand(0, &wrap(FrameKind::HandOn, &inside)).handed_on, before);
    // What was handed on makes no relay hand it on: not even one that has not seen it.
    let frames: Vec<_> = (0..3).map(|_| wrap(FrameKind::HandedOn, &inside)).collect();
    for frame in frames {
        assert_eq!(hand(0, &frame).handed_on, before);
    }
}

/// What an eavesdropper has of a packet's message: the frame for the other site's relay, and what went inside the site.
fn overheard(cluster: &mut Cluster<Senders>, number: u32) -> (Vec<u8>, Vec<u8>) {
    assert!(cluster.inject(0, 0, PortNumber(0), &packet(number)));
    let now = cluster.now();
    let (mut framed, mut inside) = (None, None);
    let origin = &mut cluster.members_mut()[0];
    origin.instances[0].turn(now);
    origin.channel.turn(now);
    let mut out = Vec::new();
    while let Some(destination) = origin.channel.poll_transmit(now, &mut out) {
        match destination {
            Destination::Member(MemberId(2)) => framed = Some(out.clone()),
            Destination::Near => inside = Some(out.clone()),
            other => panic!("{other:?}"),
        }
    }
    (framed.unwrap(), inside.unwrap())
}

fn senders_after(cluster: &mut Cluster<Senders>, member: usize, now: Time) -> usize {
    let one = &mut cluster.members_mut()[member];
    one.channel.turn(now);
    one.instances[0].turn(now);
    one.instances[0].state().senders.len_now()
}

#[test]
fn what_is_lost_inside_a_site_or_between_sites_is_repaired() {
    for (lan, wan) in [(0.0, 0.1), (0.1, 0.0), (0.05, 0.05)] {
        let shape = Shape {
            sites: &[2, 3, 2],
            sited: true,
        };
        let conditions = |delay, loss| LinkConditions {
            loss,
            duplication: loss / 2.0,
            reordering: loss,
            reordering_delay: delay * 2,
            ..LinkConditions::with_delay(delay)
        };
        let mut cluster = shape.cluster(conditions(LAN, lan), conditions(WAN, wan));
        run(&mut cluster, Duration::from_secs(1));
        for round in 0..40 {
            for member in 0..7 {
                write(&mut cluster, member, (round * 7 + member as u32) * 3, 3);
            }
        }
        assert!(
            cluster.run_until_quiet(Duration::from_secs(5)).is_some(),
            "loss {lan} and {wan}"
        );
        for member in 0..7 {
            assert_eq!(senders(&cluster, member), 840, "member {member}");
        }
    }
}

#[test]
fn a_site_that_was_cut_off_catches_up_and_goes_by_its_relay_again() {
    let shape = Shape {
        sites: &[3, 3],
        sited: true,
    };
    let mut cluster = shape.begun();
    let (here, there) = ([0, 1, 2], [3, 4, 5]);
    let network = cluster.network_mut();
    network.set_partitioned(&here, &there, true);
    network.set_partitioned(&there, &here, true);
    write(&mut cluster, 0, 0, 300);
    write(&mut cluster, 4, 1_000, 300);
    // Three bounds and more: a silent member gets keep-alives only.
    run(&mut cluster, Duration::from_secs(3));
    let crossed = shape.crossed(&cluster);
    write(&mut cluster, 0, 400, 100);
    let (datagrams, bytes) = shape.crossed(&cluster);
    let each = (bytes - crossed.1) / (datagrams - crossed.0);
    assert!(each < 400, "{each} bytes each, for nobody that is heard");
    let network = cluster.network_mut();
    network.set_partitioned(&here, &there, false);
    network.set_partitioned(&there, &here, false);
    assert!(cluster.run_until_quiet(Duration::from_secs(5)).is_some());
    for member in 0..6 {
        assert_eq!(senders(&cluster, member), 700, "member {member}");
    }
    run(&mut cluster, Duration::from_secs(3));
    for member in cluster.members() {
        assert!(
            member
                .channel
                .sites()
                .all(|site| site.relayed && site.direct == 0)
        );
    }
}

/// A relay that passes another site's by, because the path there came and went, carries there all the same what others of its
/// site left to it: they hear that site, and send it nothing themselves.
#[test]
fn what_is_left_to_a_relay_reaches_which_it_passes_by_itself() {
    let shape = Shape {
        sites: &[1, 2],
        sited: true,
    };
    let mut cluster = shape.begun();
    let cut = |cluster: &mut Cluster<Senders>, is_cut| {
        cluster.network_mut().link_mut(1, 0).partitioned = is_cut;
    };
    let relayed = |cluster: &Cluster<Senders>, of: usize| {
        let mut sites = cluster.members()[of].channel.sites();
        sites.next().unwrap().relayed
    };
    // Twice, and the second time for longer than it is gone. What the third member writes is heard meanwhile.
    for (first, apart, after) in [(0, 450, 800), (2_000, 500, 0)] {
        cut(&mut cluster, true);
        write(&mut cluster, 2, first, apart);
        cut(&mut cluster, false);
        write(&mut cluster, 2, first + apart, after);
        assert_eq!(relayed(&cluster, 1), after > 0);
        assert!(relayed(&cluster, 2));
    }
    write(&mut cluster, 0, 5_000, 1);
    run(&mut cluster, WAN * 5);
    assert!(!relayed(&cluster, 1) && relayed(&cluster, 2));
    let progress = cluster.members()[0].channel.progress();
    let [own, third] = [0, 2].map(|name| progress.member(MemberId(name)).unwrap());
    assert_eq!(third.acknowledged, own.head);
}

/// The planted bugs of sites that no seed needs to find are found by the tests above. Only in a build with `--cfg
/// asterism_mutants`.
#[cfg(asterism_mutants)]
#[test]
fn planted_bugs_of_relays_are_found() {
    use asterism_placement::mutant::{Mutant, select};
    let cases: [(Mutant, fn()); 7] = [
        (
            Mutant::RelayVouches,
            what_is_lost_inside_a_site_or_between_sites_is_repaired,
        ),
        (
            Mutant::RelayOfTheDead,
            a_dead_relay_is_passed_by_and_the_next_epoch_replaces_it,
        ),
        (
            Mutant::RelayRepeats,
            a_relay_hands_on_what_opened_once_and_nothing_else,
        ),
        (
            Mutant::RelaysWordIgnored,
            cache::what_the_relay_has_not_got_the_origin_repairs,
        ),
        (Mutant::KeptForever, cache::what_a_relay_keeps_is_bounded),
        (
            Mutant::OlderAcknowledgementCrosses,
            cache::an_older_acknowledgement_replaces_no_newer_one,
        ),
        (
            Mutant::BundlesToServing,
            what_is_left_to_a_relay_reaches_which_it_passes_by_itself,
        ),
    ];
    for (mutant, test) in cases {
        select(Some(mutant));
        let result = std::panic::catch_unwind(test);
        select(None);
        assert!(result.is_err(), "{mutant:?} survived");
        test();
    }
}
