//! Suspended buckets and flows: order, bounds, age.

use std::time::Duration;

use asterism_director::{Command, CommandError, DirectorDrop, Done, SUSPENSIONS_MAX, Suspend};
use asterism_packet::Protocol;

use crate::harness::*;

/// A packet of a flow with a number in its payload.
fn numbered(flow_number: u32, number: u32) -> Vec<u8> {
    frame(&flow(flow_number, Protocol::UDP), &number.to_be_bytes())
}

fn number_in(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[42..46].try_into().unwrap())
}

/// The bucket of a flow: the one whose move moves it.
fn bucket_of(world: &mut World, flow_number: u32) -> u32 {
    let table = table(&[0, 1, 2], &[]);
    let before = world.target_of(&udp(flow_number)).unwrap();
    for bucket in (0..BUCKETS).filter(|one| table.target(*one) == Some(slot(before))) {
        let move_to = |to| Command::MoveBucket {
            bucket,
            to: slot(to),
        };
        world.command(move_to((before + 1) % 3)).unwrap();
        let is_it = world.target_of(&udp(flow_number)) != Some(before);
        world.command(move_to(before)).unwrap();
        if is_it {
            return bucket;
        }
    }
    panic!("no bucket moved the flow");
}

fn to_host(frames: &[Vec<u8>], host: usize) -> Vec<u32> {
    assert!(frames.iter().all(|frame| frame[..6] == mac_of(host).0));
    frames.iter().map(|frame| number_in(frame)).collect()
}

#[test]
fn a_suspended_bucket_waits_and_goes_on_in_order() {
    let mut world = World::with_three();
    let bucket = bucket_of(&mut world, 5);
    let what = Suspend::Bucket(bucket);
    assert!(matches!(
        world.command(Command::Suspend(what)),
        Ok(Done::Changed)
    ));
    let before = world.statistics().dropped_total();
    for number in 0..200 {
        assert_eq!(world.target_of(&numbered(5, number)), None);
    }
    let elsewhere = (0..100).filter(|other| world.target_of(&udp(1_000 + other)).is_some());
    assert!(elsewhere.count() > 95, "others go on");
    let held = world.statistics();
    assert!(held.waiting_packets_now >= 200 && held.suspensions_now == 1);
    // A new table changes nothing of it.
    let again = Box::new(table(&[0, 1, 2], &[]));
    world.command(Command::Table(again)).unwrap();
    assert_eq!(world.target_of(&numbered(5, 200)), None);

    // Resumed towards another host; newer packets arrive in the same turn.
    let to = slot((world_target(&world, bucket) + 1) % 3);
    let resume = Command::Resume { what, to: Some(to) };
    let sent = world.control.send(resume).unwrap();
    for number in 201..260 {
        world.feed(&numbered(5, number));
    }
    world.turn();
    assert_eq!(world.control.poll().unwrap().unwrap().number, sent);
    world.pass(Duration::from_millis(1));
    let numbers = to_host(&world.sent_of_flow(5), to.number());
    assert_eq!(numbers, (0..260).collect::<Vec<_>>());
    assert_eq!(world.target_of(&numbered(5, 260)), Some(to.number()));
    let statistics = world.statistics();
    assert_eq!(statistics.waiting_packets_now, 0);
    assert_eq!(statistics.dropped_total(), before);
    assert_eq!(
        world
            .command(Command::Resume { what, to: None })
            .unwrap_err(),
        CommandError::NotSuspended
    );
}

fn world_target(_world: &World, bucket: u32) -> usize {
    let target = table(&[0, 1, 2], &[]).target(bucket).unwrap();
    target.number()
}

impl World {
    /// What was sent of a flow, in order.
    fn sent_of_flow(&mut self, number: u32) -> Vec<Vec<u8>> {
        let example = udp(number);
        let mut sent = self.sent();
        sent.retain(|frame| frame.len() >= 46 && frame[26..38] == example[26..38]);
        sent
    }
}

#[test]
fn a_suspended_flow_waits_alone() {
    let mut world = World::with_three();
    let flow = key(&flow(5, Protocol::UDP));
    let what = Suspend::Flow(flow);
    world.command(Command::Suspend(what)).unwrap();
    for number in 0..50 {
        assert_eq!(world.target_of(&numbered(5, number)), None);
        assert!(world.target_of(&numbered(6, number)).is_some());
    }
    let pin = Command::Pin {
        flow,
        to: slot(0),
        idle: Duration::from_secs(1),
    };
    assert_eq!(world.command(pin).unwrap_err(), CommandError::IsSuspended);
    assert_eq!(
        world
            .command(Command::Resume { what, to: None })
            .unwrap_err(),
        CommandError::TargetNeeded
    );
    let to = Some(slot(1));
    world.command(Command::Resume { what, to }).unwrap();
    world.turn();
    assert_eq!(to_host(&world.sent(), 1), (0..50).collect::<Vec<_>>());
    assert_eq!(world.target_of(&numbered(5, 50)), Some(1));
    assert_eq!(world.statistics().exceptions_now, 1);
}

#[test]
fn what_waits_is_bounded_in_packets_bytes_and_age() {
    let mut world = World::with_three();
    let bucket = bucket_of(&mut world, 5);
    let what = Suspend::Bucket(bucket);
    world.command(Command::Suspend(what)).unwrap();
    for number in 0..310 {
        world.target_of(&numbered(5, number));
    }
    let full = world.statistics();
    assert_eq!(full.waiting_packets_now, 300);
    assert_eq!(full.dropped(DirectorDrop::SuspendedPackets), 10);
    world.pass(Duration::from_secs(6));
    let ended = world.statistics();
    assert_eq!(ended.waiting_packets_now, 0);
    assert_eq!(ended.dropped(DirectorDrop::SuspendedTooLong), 300);
    assert_eq!(ended.suspensions_ended, 1);
    let expected = Some(world_target(&world, bucket));
    assert_eq!(world.target_of(&udp(5)), expected);

    let mut config = config();
    config.suspended.bytes_max = 460;
    let mut world = World::new(config);
    world.set_up();
    let flow = key(&flow(5, Protocol::UDP));
    world
        .command(Command::Suspend(Suspend::Flow(flow)))
        .unwrap();
    for number in 0..11 {
        world.target_of(&numbered(5, number));
    }
    let full = world.statistics();
    assert_eq!(full.waiting_packets_now, 10);
    assert_eq!(full.dropped(DirectorDrop::SuspendedBytes), 1);
}

#[test]
fn thousands_of_suspensions_at_once_are_refused() {
    let mut world = World::with_three();
    let mut refused = 0;
    for number in 0..1_000 {
        let flow = key(&flow(number, Protocol::UDP));
        let done = world.command(Command::Suspend(Suspend::Flow(flow)));
        refused += usize::from(matches!(done, Err(CommandError::SuspensionsFull)));
    }
    assert_eq!(refused, 1_000 - SUSPENSIONS_MAX);
    let beyond = Command::Suspend(Suspend::Bucket(BUCKETS));
    assert_eq!(world.command(beyond).unwrap_err(), CommandError::NoBucket);
}
