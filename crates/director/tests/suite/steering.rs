//! Which host gets which packet.

use std::time::Duration;

use asterism_director::table::{BucketSpace, Table};
use asterism_director::{
    Command, CommandError, Director, DirectorConfig, DirectorConfigError, DirectorDrop, Done,
    FlowBy, Fragments, HostLink, Side,
};
use asterism_io::frame::FramePool;
use asterism_io::port::Port;
use asterism_memory::hash;
use asterism_packet::build::{self, Header4};
use asterism_packet::{Packet, Protocol, TcpFlags};
use asterism_placement::Time;
use asterism_remote_store::Shards;

use crate::harness::*;

#[test]
fn flows_spread_and_stay() {
    let mut world = World::with_three();
    let targets: Vec<_> = (0..3_000)
        .map(|number| world.target_of(&udp(number)))
        .collect();
    for host in 0..3 {
        let count = targets.iter().filter(|one| **one == Some(host)).count();
        assert!((800..1_200).contains(&count), "host {host} got {count}");
    }
    // The same again, also in bursts, and its answers too.
    for (number, target) in (0..).zip(&targets).take(300) {
        assert_eq!(world.target_of(&udp(number)), *target);
        let answer = frame(&flow(number, Protocol::UDP).reversed(), b"answer");
        assert_eq!(world.target_of(&answer), *target);
    }
    let statistics = world.statistics();
    assert_eq!(statistics.forwarded, 3_600);
    let packets: u64 = statistics.targets.iter().map(|one| one.packets).sum();
    assert_eq!(packets, 3_600);

    // A host is taken out: only its flows move.
    let without = Box::new(table(&[0, 2], &[]));
    world.command(Command::Table(without)).unwrap();
    for (number, target) in (0..).zip(&targets) {
        let now = world.target_of(&udp(number));
        match target {
            Some(1) => assert!(matches!(now, Some(0 | 2))),
            _ => assert_eq!(now, *target),
        }
    }
    assert_eq!(world.statistics().dropped_total(), 0);
}

#[test]
fn two_directors_spread_alike() {
    let (mut one, mut other) = (World::with_three(), World::with_three());
    for number in 0..1_000 {
        let frame = udp(number);
        assert_eq!(one.target_of(&frame), other.target_of(&frame));
    }
}

#[test]
fn without_a_table_or_a_host_packets_are_dropped_and_counted() {
    let mut world = World::new(config());
    world.pass(Duration::from_secs(4));
    world.sent();
    assert_eq!(world.target_of(&udp(1)), None);
    assert_eq!(world.statistics().dropped(DirectorDrop::NoTarget), 1);
    let taken = Box::new(table(&[0], &[]));
    world.command(Command::Table(taken)).unwrap();
    assert_eq!(world.target_of(&udp(1)), None);
    assert_eq!(world.statistics().dropped(DirectorDrop::NoTarget), 2);
    // A host whose Ethernet address is neither configured nor learnt.
    let mut unknown = host(0);
    unknown.links[0] = HostLink::default();
    let set = Command::SetHost {
        slot: slot(0),
        host: unknown,
    };
    world.command(set).unwrap();
    assert_eq!(world.target_of(&udp(1)), None);
    assert_eq!(
        world.statistics().dropped(DirectorDrop::TargetUnresolved),
        1
    );
    assert!(!world.statistics().targets[0].is_reachable);
    let set = Command::SetHost {
        slot: slot(0),
        host: host(0),
    };
    world.command(set).unwrap();
    assert_eq!(world.target_of(&udp(1)), Some(0));
    assert!(world.statistics().targets[0].is_reachable);
    assert!(matches!(
        world.command(Command::RemoveHost(slot(0))),
        Ok(Done::Changed)
    ));
    assert_eq!(world.target_of(&udp(1)), None);
    assert!(matches!(
        world.command(Command::RemoveHost(slot(0))),
        Ok(Done::Unchanged)
    ));
}

#[test]
fn a_bucket_and_a_flow_move_alone() {
    let mut world = World::with_three();
    let before: Vec<_> = (0..500)
        .map(|number| world.target_of(&udp(number)))
        .collect();
    let pinned = (0..500).find(|number| before[*number as usize] != Some(2));
    let pinned = pinned.unwrap();
    let pin = |idle| Command::Pin {
        flow: key(&flow(pinned, Protocol::UDP)),
        to: slot(2),
        idle: Duration::from_secs(idle),
    };
    world.command(pin(10)).unwrap();
    for (number, target) in (0..).zip(&before) {
        let expected = if number == pinned { Some(2) } else { *target };
        assert_eq!(world.target_of(&udp(number)), expected);
    }
    let answer = frame(&flow(pinned, Protocol::UDP).reversed(), b"");
    assert_eq!(world.target_of(&answer), Some(2), "both directions");
    // It holds while it is used, and ends when it idles.
    for _ in 0..3 {
        world.pass(Duration::from_secs(8));
        assert_eq!(world.target_of(&udp(pinned)), Some(2));
    }
    world.pass(Duration::from_secs(12));
    assert_eq!(world.target_of(&udp(pinned)), before[pinned as usize]);
    assert_eq!(world.statistics().exceptions_ended, 1);
    world.command(pin(10)).unwrap();
    let unpin = Command::Unpin(key(&flow(pinned, Protocol::UDP)));
    world.command(unpin).unwrap();
    assert_eq!(world.target_of(&udp(pinned)), before[pinned as usize]);

    let moved = table(&[0, 1, 2], &[]);
    let bucket = (0..BUCKETS).find(|bucket| moved.target(*bucket) != Some(slot(1)));
    let bucket = bucket.unwrap();
    let to = slot(1);
    let command = || Command::MoveBucket { bucket, to };
    assert!(matches!(world.command(command()), Ok(Done::Changed)));
    assert!(matches!(world.command(command()), Ok(Done::Unchanged)));
    let after: Vec<_> = (0..500)
        .map(|number| world.target_of(&udp(number)))
        .collect();
    let moved = before.iter().zip(&after).filter(|(old, new)| old != new);
    assert!(moved.clone().count() <= 5 && moved.clone().all(|(_, new)| *new == Some(1)));
}

/// Short frames and IPv6 take the long path, where each counts for itself; of a burst of others one counts for all.
#[test]
fn packets_of_buckets_are_counted_on_both_paths() {
    let mut world = World::with_three();
    let take = |world: &mut World| {
        let zeros = vec![0; BUCKETS as usize].into();
        match world.command(Command::TakeCounts(zeros)).unwrap() {
            Done::Counts(counts) => counts,
            done => panic!("no counts: {done:?}"),
        }
    };
    take(&mut world);
    let (short, long) = (udp(1), frame(&flow(2, Protocol::UDP), &[0; 64]));
    for _ in 0..100 {
        world.feed(&short);
    }
    world.turn();
    let counts = take(&mut world);
    let bucket = counts.iter().position(|count| *count > 0).unwrap();
    assert_eq!((counts[bucket], counts.iter().sum::<u32>()), (100, 100));
    // One in four is short.
    for number in 0..4_000 {
        world.feed(if number % 4 == 0 { &short } else { &long });
    }
    world.turn();
    let counts = take(&mut world);
    assert_eq!(counts[bucket], 1_000);
    let others: u32 = counts.iter().sum::<u32>() - 1_000;
    assert!((2_500..=3_500).contains(&others), "{others} of 3,000");
}

#[test]
fn an_exception_to_a_host_that_is_out_is_ignored() {
    let mut world = World::with_three();
    let numbers = 0..100;
    for number in numbers.clone() {
        let pin = Command::Pin {
            flow: key(&flow(number, Protocol::UDP)),
            to: slot(2),
            idle: Duration::from_secs(60),
        };
        world.command(pin).unwrap();
    }
    let send = |world: &mut World, takers: &[usize], drainers: &[usize]| {
        let table = Box::new(table(takers, drainers));
        world.command(Command::Table(table)).unwrap();
        let targets = (0..100).map(|number| world.target_of(&udp(number)));
        targets.filter(|target| *target == Some(2)).count()
    };
    assert_eq!(send(&mut world, &[0, 1], &[]), 0);
    assert_eq!(send(&mut world, &[0, 1], &[2]), 100, "pinned, it drains");
    assert_eq!(send(&mut world, &[0, 1, 2], &[]), 100);
    assert_eq!(world.statistics().dropped_total(), 0);
}

#[test]
fn commands_that_cannot_be_are_refused_and_change_nothing() {
    let mut world = World::with_three();
    let refused = |world: &mut World, command| world.command(command).unwrap_err();
    let flow = key(&flow(1, Protocol::UDP));
    let no_host = [
        Command::MoveBucket {
            bucket: 1,
            to: slot(7),
        },
        Command::Pin {
            flow,
            to: slot(7),
            idle: Duration::from_secs(1),
        },
    ];
    for command in no_host {
        assert_eq!(refused(&mut world, command), CommandError::NoHost);
    }
    let beyond = Command::MoveBucket {
        bucket: BUCKETS,
        to: slot(1),
    };
    assert_eq!(refused(&mut world, beyond), CommandError::NoBucket);
    let other = BucketSpace::new(BUCKETS, 10).unwrap();
    let other = Command::Table(Box::new(Table::empty(other)));
    assert_eq!(refused(&mut world, other), CommandError::OtherSpace);
    assert!(world.target_of(&udp(1)).is_some());
}

#[test]
fn exceptions_are_bounded() {
    let mut config = config();
    config.exceptions_max = 10;
    let mut world = World::new(config);
    world.set_up();
    let pin = |number| Command::Pin {
        flow: key(&flow(number, Protocol::UDP)),
        to: slot(1),
        idle: Duration::from_secs(1),
    };
    for number in 0..10 {
        world.command(pin(number)).unwrap();
    }
    assert_eq!(
        world.command(pin(10)).unwrap_err(),
        CommandError::ExceptionsFull
    );
    assert_eq!(world.statistics().exceptions_now, 10);
    world.pass(Duration::from_secs(2));
    assert!(world.command(pin(10)).is_ok(), "those that idled made room");
}

#[test]
fn a_draining_host_keeps_its_connections_and_gets_no_new_ones() {
    let mut world = World::with_three();
    let opened: Vec<_> = (0..600)
        .map(|number| world.target_of(&segment(number, TcpFlags::SYN)))
        .collect();
    let drains = Box::new(table(&[0, 1], &[2]));
    world.command(Command::Table(drains)).unwrap();
    for (number, target) in (0..).zip(&opened) {
        let now = world.target_of(&segment(number, TcpFlags::ACK));
        assert_eq!(now, *target, "an open connection stays");
    }
    // Connections that begin go elsewhere, and stay there.
    for number in 1_000..1_600 {
        let target = world.target_of(&segment(number, TcpFlags::SYN));
        assert!(matches!(target, Some(0 | 1)), "{target:?}");
        assert_eq!(world.target_of(&segment(number, TcpFlags::ACK)), target);
    }
    assert!(world.statistics().drain_exceptions > 100);
    // Datagrams show no beginning, so new flows are not known from old ones.
    assert!((0..200).all(|number| world.target_of(&udp(number)) != Some(2)));
    // The drain ends.
    let out = Box::new(table(&[0, 1], &[]));
    world.command(Command::Table(out)).unwrap();
    for number in 0..600 {
        let target = world.target_of(&segment(number, TcpFlags::ACK));
        assert!(matches!(target, Some(0 | 1)));
    }
}

#[test]
fn connections_stay_together_when_a_drain_finds_no_exception() {
    let mut config = config();
    config.exceptions_max = 1;
    let mut world = World::new(config);
    world.set_up();
    let drains = Box::new(table(&[0, 1], &[2]));
    world.command(Command::Table(drains)).unwrap();
    for number in 0..300 {
        let opened = world.target_of(&segment(number, TcpFlags::SYN));
        assert_eq!(world.target_of(&segment(number, TcpFlags::ACK)), opened);
    }
    assert!(world.statistics().drain_refused > 10);
}

/// A fragmented datagram of a flow: whole, first and later part.
fn fragments(number: u32, identification: u16) -> [Vec<u8>; 3] {
    let flow = flow(number, Protocol::UDP);
    let header = Header4 {
        dont_fragment: false,
        identification,
        ..Header4::between(flow.source, flow.destination)
    };
    let whole = addressed(|out| {
        let ports = (flow.source_port, flow.destination_port);
        build::udp4(&header, ports.0, ports.1, &[7; 800], out)
    });
    let part = |bits: u16| {
        let mut part = whole.clone();
        part[20..22].copy_from_slice(&bits.to_be_bytes());
        part[24..26].fill(0);
        let sum = asterism_packet::checksum::Sum::ZERO.bytes(&part[14..34]);
        part[24..26].copy_from_slice(&sum.finish());
        part
    };
    [whole.clone(), part(0x2000), part(0x0032)]
}

#[test]
fn fragments_go_together_or_with_the_first() {
    let mut world = World::with_three();
    for number in 0..50 {
        let [_, first, later] = fragments(number, number as u16);
        let target = world.target_of(&first);
        assert!(target.is_some());
        assert_eq!(world.target_of(&later), target);
    }
    let mut config = config();
    config.fragments = Fragments::WithFirst;
    let mut world = World::new(config);
    world.set_up();
    for number in 0..50 {
        let [whole, first, later] = fragments(number, number as u16);
        let target = world.target_of(&whole);
        assert_eq!(world.target_of(&later), None, "its first was not seen");
        assert_eq!(world.target_of(&first), target);
        assert_eq!(world.target_of(&later), target);
    }
    let dropped = world.statistics();
    let dropped = dropped.dropped(DirectorDrop::FragmentWithoutFirst);
    assert_eq!(dropped, 50);
    // It is forgotten.
    world.pass(Duration::from_secs(60));
    let [_, _, later] = fragments(1, 1);
    assert_eq!(world.target_of(&later), None);
}

#[test]
fn an_icmp_error_reaches_the_host_of_its_flow() {
    let mut world = World::with_three();
    for number in 0..100 {
        let sent = flow(number, Protocol::UDP);
        // The cluster's answer was refused on its way to the client.
        let answer = frame(&sent.reversed(), b"answer");
        let error = addressed(|out| build::icmp_unreachable(&answer, sent.source, 3, out));
        assert_eq!(world.target_of(&error), world.target_of(&udp(number)));
    }
}

/// Where the shards of a store are named as the hosts are, each packet comes to the host that its shard is beside.
#[test]
fn a_conversation_goes_to_the_host_that_its_shard_is_beside() {
    let mut config = config();
    config.arms[0].by = FlowBy::Conversation;
    let mut world = World::new(config);
    world.set_up();
    let names: Vec<String> = NAMES[..3].iter().map(|name| (*name).to_owned()).collect();
    let shards = Shards::new(&names, (BUCKETS, space().seed())).unwrap();
    let mut counts = [0; 3];
    for number in 0..600 {
        // As many clients as flows.
        let sent = flow(number * 50_001, Protocol::UDP);
        let ends = (sent.source.into(), sent.destination.into());
        let conversation = hash::conversation(ends.0, ends.1, shards.conversation_seed());
        let shard = shards.of(conversation);
        counts[shard] += 1;
        let whole = frame(&sent, &[7; 100]);
        let answer = frame(&sent.reversed(), b"answer");
        let error = addressed(|out| build::icmp_unreachable(&answer, sent.source, 3, out));
        let [first, later] = [(0x2000, 42), (5, 100)].map(|(word, length): (u16, usize)| {
            let mut part = whole[..length].to_vec();
            part[16..18].copy_from_slice(&(length as u16 - 14).to_be_bytes());
            part[20..22].copy_from_slice(&word.to_be_bytes());
            part[24..26].copy_from_slice(&[0, 0]);
            let checksum = asterism_packet::checksum::of(&part[14..34]);
            part[24..26].copy_from_slice(&checksum.to_be_bytes());
            part
        });
        for (what, frame) in [
            ("whole", whole),
            ("answer", answer),
            ("error", error),
            ("first", first),
            ("later", later),
        ] {
            assert_eq!(world.target_of(&frame), Some(shard), "{what} of {number}");
        }
    }
    assert!(
        counts.iter().all(|count| (140..260).contains(count)),
        "{counts:?}"
    );
}

#[test]
fn two_arms_meet_at_one_host_through_a_nat() {
    let mut config = config();
    config.arms[0].by = FlowBy::OutsideEndpoint;
    config.arms[0].side = Side::Outside;
    let mut inside = config.arms[0].clone();
    inside.side = Side::Inside;
    inside.sends_to = Some(1);
    inside.mac = asterism_director::MacAddress([2, 0xd1, 0, 0, 0, 2]);
    config.arms.push(inside.clone());
    let (outer, outside_wire) = wired();
    let (inner, inside_wire) = wired();
    let ports: Vec<Box<dyn Port>> = vec![Box::new(outer), Box::new(inner)];
    let pool = FramePool::new(FRAMES).unwrap();
    // Half of the frames of that pool may wait.
    config.suspended.packets_max = 512;
    let (mut director, mut control) = Director::new(config, ports, pool, Time::ZERO).unwrap();
    for number in 0..3 {
        let mut host = host(number);
        host.links[1] = host.links[0];
        let slot = slot(number);
        control.send(Command::SetHost { slot, host }).unwrap();
    }
    let table = Box::new(table(&[0, 1, 2], &[]));
    control.send(Command::Table(table)).unwrap();
    for round in 0..10 {
        director.turn(Time::from_micros(round));
    }
    outside_wire.sent.try_iter().count();
    inside_wire.sent.try_iter().count();
    for number in 0..100u32 {
        let there = asterism_packet::Flow4 {
            source: std::net::Ipv4Addr::new(10, 1, 0, 5),
            destination: std::net::Ipv4Addr::from_bits(0xc633_6400 + number),
            source_port: 5_000,
            destination_port: 443,
            protocol: 6,
        };
        let mut sent = frame(&there, b"");
        let mut packet = Packet::parse(&mut sent).unwrap();
        packet.set_ethernet(CLIENT, inside.mac);
        let mut translated = there.reversed();
        translated.destination = SHARED;
        translated.destination_port = 40_000 + number as u16;
        inside_wire.feed.send(sent).unwrap();
        let answer = frame(&translated, b"");
        outside_wire.feed.send(answer).unwrap();
        director.turn(Time::from_micros(100));
        let inside = inside_wire.sent.try_recv().unwrap();
        let outside = outside_wire.sent.try_recv().unwrap();
        assert_eq!(inside[..6], outside[..6], "one host");
        assert_ne!(inside[6..12], outside[6..12], "each arm its own address");
    }
}

type Change = fn(&mut DirectorConfig);

#[test]
fn configurations_that_cannot_be_are_refused() {
    let refused = |change: fn(&mut DirectorConfig)| {
        let mut config = config();
        change(&mut config);
        let (port, _wire) = wired();
        let pool = FramePool::new(FRAMES).unwrap();
        let ports: Vec<Box<dyn Port>> = vec![Box::new(port)];
        Director::new(config, ports, pool, Time::ZERO).err()
    };
    assert_eq!(refused(|_| ()).map(|error| error.to_string()), None);
    let cases: [(Change, DirectorConfigError); 6] = [
        (|config| config.arms.clear(), DirectorConfigError::Arms(0)),
        (
            |config| config.arms[0].mac = Default::default(),
            DirectorConfigError::Mac(0),
        ),
        (
            |config| config.arms[0].sends_to = Some(1),
            DirectorConfigError::SendsTo(0),
        ),
        (
            |config| config.exceptions_max = 0,
            DirectorConfigError::Exceptions(0),
        ),
        (
            |config| config.suspended.packets_max = 513,
            DirectorConfigError::SuspendedPackets {
                packets: 513,
                frames: FRAMES,
            },
        ),
        (
            |config| config.arms[0].shared = vec![std::net::Ipv4Addr::UNSPECIFIED.into()],
            DirectorConfigError::Address(0),
        ),
    ];
    for (change, error) in cases {
        assert_eq!(refused(change), Some(error));
    }
}
