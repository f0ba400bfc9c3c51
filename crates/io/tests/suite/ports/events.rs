//! What happens to interfaces in real incarnation: they vanish, come back, change, fill up. Each is counted and reported, and none wedges
//! a port.

use crate::ports::permitted;
use crate::ports::suite::frames::{Long, check_finished, has_pseudo_sum, numbered, unfinished};
use crate::ports::suite::media::{
    Driven, Folder, Medium, PATIENCE, RawSocket, Stand, open_on, sleep_on,
};
use crate::ports::suite::{Kind, reports};
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{
    AfPacketConfig, AfPacketMode, AfPacketPort, AfXdpConfig, AfXdpPort, Fanout, LinkState,
    Offloads as PortOffloads, Port, PortDrop, TapConfig, TapPort,
};
use asterism_lab::Offloads;
use std::net::UdpSocket;
use std::time::Duration;

const ON_CABLE: [Kind; 4] = [
    Kind::AfPacketRing,
    Kind::AfPacketBulk,
    Kind::AfXdpNative,
    Kind::AfXdpGeneric,
];

/// A port of `kind` in a network of its own.
fn with_port(kind: Kind, work: impl FnOnce(&mut Driven<'_>) -> Result<(), String> + Send) {
    with_pool(kind, FramePool::with_stride(512, 68 * 1024).unwrap(), work);
}

fn with_pool(
    kind: Kind,
    pool: FramePool,
    work: impl FnOnce(&mut Driven<'_>) -> Result<(), String> + Send,
) {
    if !permitted(kind.label()) {
        return;
    }
    let stand = Stand::new(Offloads::Off, Offloads::Off).unwrap();
    let folder = Folder::new("events");
    let result = stand.near.enter(|| {
        let medium = Medium::new(kind, Some(&stand), &folder);
        let mut driven = Driven::with_pool(medium, pool)?;
        work(&mut driven)?;
        assert_eq!(
            driven.pool.in_use(),
            0,
            "{}: frames were lost",
            kind.label()
        );
        Ok::<(), String>(())
    });
    if let Err(why) = result.unwrap() {
        panic!("{}: {why}", kind.label());
    }
}

fn stand<'a>(driven: &Driven<'a>) -> &'a Stand {
    driven.medium.stand.unwrap()
}

/// One packet comes in, and goes out again.
fn passes(driven: &mut Driven<'_>, packet: Vec<u8>) -> Result<(), String> {
    driven.medium.inject(&packet)?;
    let received = driven.receive_frames(1, |bytes| bytes == packet)?;
    assert_eq!(driven.send_frames(received), 1);
    driven
        .collect("it is there", |packets| packets.contains(&packet))
        .map(drop)
}

#[test]
fn an_interface_that_vanishes_is_opened_again_by_its_name() {
    for kind in ON_CABLE {
        with_port(kind, |driven| {
            passes(driven, numbered(1, 100))?;
            stand(driven)
                .near
                .ip(&["link delete dev port0"])
                .map_err(reports)?;
            driven.until("the link is down", |driven| {
                driven.port.link() == LinkState::Down
            })?;
            let sent = driven.send(&[numbered(2, 100), numbered(3, 100)]);
            let counted = driven.port.statistics();
            assert_eq!((sent, counted.dropped(PortDrop::LinkDown)), (0, 2));
            driven.until("somebody was reported", |driven| {
                !driven.reported.is_empty()
            })?;
            assert!(
                driven.reported[0].contains("vanished"),
                "{:?}",
                driven.reported
            );

            // The same name, another interface; and again.
            for reopened in 1..3 {
                stand(driven).cable()?;
                driven.medium.reattach()?;
                driven.until("it was opened again", |driven| {
                    let statistics = driven.port.statistics();
                    driven.port.link() == LinkState::Up
                        && statistics.reopened == u64::from(reopened)
                })?;
                passes(driven, numbered(reopened, 100))?;
                stand(driven)
                    .near
                    .ip(&["link delete dev port0"])
                    .map_err(reports)?;
                // Without a pause: the new one may be there before anybody looked.
            }
            Ok(())
        });
    }
}

#[test]
fn a_tap_interface_that_somebody_deletes_is_made_again() {
    for kind in [Kind::Tap, Kind::TapOffloads] {
        with_port(kind, |driven| {
            passes(driven, numbered(1, 100))?;
            stand(driven)
                .near
                .ip(&["link delete dev tap0"])
                .map_err(reports)?;
            driven.until("it was made again", |driven| {
                let statistics = driven.port.statistics();
                driven.port.link() == LinkState::Up && statistics.reopened == 1
            })?;
            driven.medium.reattach()?;
            passes(driven, numbered(2, 100))
        });
    }
}

#[test]
fn what_exceeds_the_mtu_is_counted_and_passes_once_it_fits() {
    for kind in [Kind::AfPacketRing, Kind::AfPacketBulk, Kind::AfXdpGeneric] {
        with_port(kind, |driven| {
            let packets = [numbered(1, 1_600), numbered(2, 1_514)];
            assert_eq!(driven.send(&packets), 1, "{}", kind.label());
            let counted = driven.port.statistics();
            assert_eq!(counted.dropped(PortDrop::BeyondMtu), 1, "{counted:?}");
            assert_eq!(counted.dropped_total(), 1, "{counted:?}");
            stand(driven)
                .near
                .ip(&["link set dev port0 mtu 1700"])
                .map_err(reports)?;
            stand(driven)
                .far
                .ip(&["link set dev far0 mtu 1700"])
                .map_err(reports)?;
            // AF_XDP ports ask for the MTU now and then.
            std::iter::repeat_n((), 60).for_each(|()| driven.idle());
            driven.medium.collect();
            assert_eq!(driven.send(&packets), 2, "{:?}", driven.port.statistics());
            let collected = driven.collect("both are there", |packets| packets.len() >= 2)?;
            assert_eq!(collected, packets);
            Ok(())
        });
    }
}

#[test]
fn what_is_longer_than_the_port_is_counted_and_reported_with_a_cure() {
    let large = || FramePool::with_stride(64, 68 * 1024).unwrap();
    let small = || FramePool::new(64).unwrap();
    for (kind, pool, cure) in [
        (Kind::AfPacketRing, large(), "mode bulk"),
        (Kind::AfPacketRing, small(), "mode bulk"),
        (Kind::AfPacketBulk, small(), "68 KiB"),
        (Kind::Tap, small(), "longer stride"),
    ] {
        with_pool(kind, pool, |driven| {
            let stand = stand(driven);
            if kind == Kind::Tap {
                stand
                    .near
                    .ip(&["link set dev tap0 mtu 9000"])
                    .map_err(reports)?;
            } else {
                stand
                    .near
                    .ip(&["link set dev port0 mtu 9000"])
                    .map_err(reports)?;
                stand
                    .far
                    .ip(&["link set dev far0 mtu 9000"])
                    .map_err(reports)?;
            }
            driven.medium.inject(&numbered(1, 6_000))?;
            driven.medium.inject(&numbered(2, 600))?;
            assert_eq!(driven.receive(1)?, [numbered(2, 600)]);
            driven.until("somebody was reported", |driven| {
                !driven.reported.is_empty()
            })?;
            assert!(driven.reported[0].contains(cure), "{:?}", driven.reported);
            let counted = driven.port.statistics();
            assert_eq!(counted.dropped(PortDrop::TooLong), 1, "{counted:?}");
            Ok(())
        });
    }
}

#[test]
fn what_the_kernel_dropped_is_counted() {
    const PACKETS: u32 = 20_000;
    for kind in [
        Kind::AfPacketRing,
        Kind::AfXdpNative,
        Kind::AfXdpGeneric,
        Kind::Tap,
    ] {
        with_port(kind, |driven| {
            for number in 0..PACKETS {
                // TAP tells the sender.
                let _ = driven.medium.inject(&numbered(number, 100));
            }
            driven.until("the rest is received", |driven| {
                let mut burst = Burst::new();
                while driven.port.receive(&mut driven.pool, &mut burst) > 0 {
                    driven.pool.release_all(&mut burst);
                }
                let counted = driven.port.statistics();
                let dropped = counted.dropped(PortDrop::KernelQueue);
                // The kernel may have lost some before they came to the port.
                assert!(counted.received_packets + dropped <= u64::from(PACKETS));
                dropped > 0 && counted.received_packets >= 256
            })
        });
    }
}

/// A queueing discipline that lets nearly nothing out.
#[test]
fn back_pressure_is_counted() {
    with_port(Kind::AfPacketBulk, |driven| {
        let stand = stand(driven);
        let shape = "qdisc add dev port0 root tbf rate 64kbit burst 2000 limit 4000";
        stand
            .near
            .program("tc")
            .args(shape.split(' '))
            .run()
            .map_err(reports)?;
        let packets: Vec<_> = (0..200).map(|number| numbered(number, 500)).collect();
        let sent = driven.send(&packets) as u64;
        let counted = driven.port.statistics();
        let pressed = counted.dropped(PortDrop::BackPressure);
        assert!(pressed > 100 && pressed + sent == 200, "{counted:?}");
        stand
            .near
            .program("tc")
            .args("qdisc delete dev port0 root".split(' '))
            .run()
            .map_err(reports)?;
        passes(driven, numbered(1, 100))
    });
}

#[test]
fn packets_wait_while_the_pool_is_empty() {
    for kind in ON_CABLE {
        with_pool(kind, FramePool::new(8).unwrap(), |driven| {
            let held: Vec<_> = (0..8).map(|_| driven.pool.allocate().unwrap()).collect();
            for number in 0..20 {
                driven.medium.inject(&numbered(number, 100))?;
            }
            let mut burst = Burst::new();
            for _ in 0..3 {
                driven.idle();
                assert_eq!(driven.port.receive(&mut driven.pool, &mut burst), 0);
            }
            held.into_iter()
                .for_each(|frame| driven.pool.release(frame));
            assert_eq!(driven.receive(20)?.len(), 20);
            assert_eq!(driven.port.statistics().dropped_total(), 0);
            Ok(())
        });
    }
}

/// The kernel takes VLAN tags off before packet sockets see a packet. XDP sees them as they are.
#[test]
fn vlan_tags_come_through_both_ways() {
    for kind in ON_CABLE {
        with_port(kind, |driven| {
            let mut tagged = numbered(1, 200);
            tagged.splice(12..12, [0x81, 0x00, 0x60, 0x07]);
            let mut twice = numbered(2, 200);
            twice.splice(12..12, [0x88, 0xa8, 0x00, 0x09, 0x81, 0x00, 0x00, 0x07]);
            for packet in [tagged, twice] {
                driven.medium.inject(&packet)?;
                let received = driven.receive(1)?;
                assert_eq!(received[0], packet, "{}", kind.label());
                // The other side's kernel takes the outer tag off again: so it looks at lengths.
                assert_eq!(driven.send(std::slice::from_ref(&packet)), 1);
                let collected = driven.collect("it is there", |packets| !packets.is_empty())?;
                assert_eq!(collected[0].len(), packet.len() - 4);
            }
            let frame = unfinished(&mut driven.pool, Long::Tcp4, 900, true);
            driven.send_frames(vec![frame]);
            let collected = driven.collect("it is there", |packets| !packets.is_empty())?;
            check_finished(&collected, 900, false)
        });
    }
}

#[test]
fn a_sleeping_loop_is_woken_and_not_for_nothing() {
    for kind in [
        Kind::AfPacketRing,
        Kind::AfPacketBulk,
        Kind::AfXdpNative,
        Kind::Tap,
    ] {
        with_port(kind, |driven| {
            let clock = MonotonicClock::new();
            driven.idle();
            driven.medium.inject(&numbered(1, 100))?;
            let before = clock.now();
            sleep_on(driven.port.wait_descriptor(), 60_000);
            assert!(
                clock.now() < before + Duration::from_secs(30),
                "{}",
                kind.label()
            );
            driven.receive(1)?;

            // Down, and gone: an error is not reported for ever.
            driven.medium.set_link(false)?;
            driven.until("the link is down", |driven| {
                driven.port.link() == LinkState::Down
            })?;
            let (mut turns, end) = (0, clock.now() + Duration::from_millis(300));
            while clock.now() < end {
                driven.port.advance(clock.now());
                let mut burst = Burst::new();
                driven.port.receive(&mut driven.pool, &mut burst);
                driven.pool.release_all(&mut burst);
                let _ = driven.port.flush(&mut driven.pool);
                sleep_on(driven.port.wait_descriptor(), 20);
                turns += 1;
            }
            assert!(turns < 60, "{}: {turns} turns", kind.label());
            Ok(())
        });
    }
}

#[test]
fn ports_of_a_fanout_group_share_the_flows() {
    const FLOWS: usize = 100;
    if !permitted("fanout") {
        return;
    }
    let stand = Stand::new(Offloads::Off, Offloads::Off).unwrap();
    // A group each: a program that another test starts may keep closed sockets open, and in their group, until it runs.
    for (group, mode) in [(77, AfPacketMode::Ring), (78, AfPacketMode::Bulk)] {
        let raw = stand
            .far
            .enter(|| RawSocket::open("far0"))
            .unwrap()
            .unwrap();
        // How often each flow came to each port.
        let seen = stand
            .near
            .enter(|| {
                let mut ports = [0, 1].map(|number| {
                    AfPacketPort::open(&AfPacketConfig {
                        mode,
                        fanout: Some(Fanout { group }),
                        ..AfPacketConfig::new(format!("inside{number}"), "port0")
                    })
                    .unwrap()
                });
                let mut pool = FramePool::with_stride(256, 68 * 1024).unwrap();
                let mut burst = Burst::new();
                let clock = MonotonicClock::new();
                let end = clock.now() + PATIENCE;
                let mut seen = [[0u32; FLOWS]; 2];
                // Each flow once a round, few enough at once for the kernel's own backlog; what it loses all the same, on a busy
                // machine, comes in another round.
                let mut rounds = 0;
                while rounds < 10 || (0..FLOWS).any(|flow| seen[0][flow] + seen[1][flow] == 0) {
                    rounds += 1;
                    assert!(clock.now() < end, "flows came to no port: {seen:?}");
                    for number in 0..FLOWS as u32 {
                        raw.send(&numbered(number, 100)).unwrap();
                    }
                    let (mut came, quiet) = (0, clock.now() + Duration::from_millis(200));
                    while came < FLOWS && clock.now() < quiet {
                        for (port, seen) in ports.iter_mut().zip(&mut seen) {
                            port.receive(&mut pool, &mut burst);
                            came += burst.len();
                            for frame in burst.as_slice() {
                                let number = pool.bytes(frame)[42..].first_chunk().unwrap();
                                seen[u32::from_be_bytes(*number) as usize] += 1;
                            }
                            pool.release_all(&mut burst);
                        }
                    }
                }
                let counted = ports.map(|port| port.statistics().received_packets);
                let all = seen.map(|seen| u64::from(seen.iter().sum::<u32>()));
                assert_eq!(counted, all);
                seen
            })
            .unwrap();
        let flows = seen.map(|seen| seen.iter().filter(|&&times| times > 0).count());
        assert!(flows.iter().all(|&flows| flows > 10), "{flows:?}");
        // Flows, not packets: none came to both.
        assert_eq!(flows[0] + flows[1], FLOWS, "{seen:?}");
    }
}

/// What the kernel itself sends by the port's interface shows whether the interface has offloads.
#[test]
fn offloads_are_switched_off_while_the_port_is_open() {
    if !permitted("offloads") {
        return;
    }
    let stand = Stand::new(Offloads::On, Offloads::On).unwrap();
    stand
        .near
        .ip(&[
            "address add 10.78.0.1/24 dev port0",
            "neighbour add 10.78.0.2 lladdr 02:00:00:00:00:02 dev port0",
        ])
        .unwrap();
    let raw = stand
        .far
        .enter(|| RawSocket::open("far0"))
        .unwrap()
        .unwrap();
    stand
        .near
        .enter(|| {
            let socket = UdpSocket::bind("10.78.0.1:7000").unwrap();
            let leaves_checksums = || {
                socket.send_to(&[1; 500], "10.78.0.2:7001").unwrap();
                std::iter::from_fn(|| raw.receive().ok())
                    .find(|packet| packet.len() == 542)
                    .is_some_and(|packet| has_pseudo_sum(&packet))
            };
            assert!(leaves_checksums());
            let packet = AfPacketConfig {
                offloads: PortOffloads::Off,
                ..AfPacketConfig::new("inside", "port0")
            };
            let port = AfPacketPort::open(&packet).unwrap();
            assert!(!leaves_checksums());
            drop(port);
            assert!(leaves_checksums());
            // Two of one interface, as of two instances: whichever ends last, all is as it was.
            let ports = [&packet, &packet].map(|config| AfPacketPort::open(config).unwrap());
            assert!(!leaves_checksums());
            drop(ports);
            assert!(leaves_checksums());
            let xdp = AfXdpConfig {
                offloads: PortOffloads::Off,
                ..AfXdpConfig::new("inside", "port0")
            };
            let port = AfXdpPort::open(&xdp).unwrap();
            assert!(!leaves_checksums());
            drop(port);
            assert!(leaves_checksums());
        })
        .unwrap();
}

#[test]
fn what_cannot_be_opened_is_refused_in_words() {
    let packet = AfPacketConfig::new("inside", "asterism-none0");
    let xdp = AfXdpConfig::new("inside", "asterism-none0");
    let refusals = [
        AfPacketPort::open(&AfPacketConfig {
            ring_slots: 1,
            ..packet.clone()
        })
        .err(),
        AfPacketPort::open(&AfPacketConfig {
            slot_bytes: 3_000,
            ..packet.clone()
        })
        .err(),
        AfXdpPort::open(&AfXdpConfig {
            chunks: 1,
            ..xdp.clone()
        })
        .err(),
        AfXdpPort::open(&AfXdpConfig {
            chunk_bytes: 1_000,
            ..xdp.clone()
        })
        .err(),
        TapPort::open(&TapConfig {
            mtu: Some(10),
            ..TapConfig::new("inside", "tap0")
        })
        .err(),
    ];
    for refusal in refusals {
        let reports = refusal.unwrap().to_string();
        assert!(
            reports.starts_with("port inside: ") && reports.contains("must be")
                || reports.contains("takes"),
            "{reports}"
        );
    }
    if !permitted("refusals of the kernel") {
        return;
    }
    let stand = Stand::new(Offloads::Off, Offloads::Off).unwrap();
    stand
        .near
        .enter(|| {
            for kind in ON_CABLE {
                let refusal = open_on(kind, "asterism-none0").err().unwrap().to_string();
                assert!(refusal.contains("no such interface"), "{refusal}");
            }
            // The name of something else.
            let refusal = TapPort::open(&TapConfig::new("inside", "port0")).err();
            assert!(refusal.unwrap().to_string().contains("port0"));
            // A second XDP port on the same interface.
            let first = AfXdpPort::open(&AfXdpConfig::new("inside", "port0")).unwrap();
            let second = AfXdpPort::open(&AfXdpConfig::new("inside", "port0")).err();
            let refusal = second.unwrap().to_string();
            assert!(refusal.contains("another program holds"), "{refusal}");
            drop(first);
        })
        .unwrap();
}

#[test]
fn a_persistent_tap_interface_stays_and_several_queues_share_one() {
    if !permitted("TAP queues") {
        return;
    }
    let stand = Stand::new(Offloads::Off, Offloads::Off).unwrap();
    stand
        .near
        .enter(|| {
            let config = TapConfig {
                persistent: true,
                multi_queue: true,
                mtu: Some(1_400),
                ..TapConfig::new("inside", "tap1")
            };
            let first = TapPort::open(&config).unwrap();
            let second = TapPort::open(&config).unwrap();
            drop((first, second));
            let reported = stand.near.ip(&["link show dev tap1"]).unwrap();
            assert!(reported.contains("mtu 1400"), "{reported}");
            let again = TapPort::open(&config).unwrap();
            assert_eq!(again.statistics().dropped_total(), 0);
        })
        .unwrap();
}
