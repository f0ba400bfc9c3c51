//! Nothing on a packet's path allocates: counted, with everything at work.

use std::time::Duration;

use asterism_director::{Command, Director, Fragments, Suspend};
use asterism_function::testkit::{CountingAllocator, allocations};
use asterism_io::frame::FramePool;
use asterism_io::port::{MemoryPort, Port};
use asterism_packet::{Protocol, TcpFlags};
use asterism_placement::Time;

use crate::harness::*;
use crate::hostile::{corpus, to_director};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

#[test]
fn no_packet_allocates_whatever_becomes_of_it() {
    let taken = allocations();
    drop(std::hint::black_box(vec![1]));
    assert!(allocations() > taken, "the counter counts");

    let mut frames: Vec<Vec<u8>> = (0..500).map(udp).collect();
    frames.extend((0..500).map(|number| segment(number, TcpFlags::SYN)));
    frames.extend(corpus());
    frames.extend(corpus().iter().map(|frame| to_director(frame)));
    let packets = frames.iter().map(Vec::as_slice);
    let port = MemoryPort::cycling("network", packets, u64::MAX);
    let ports: Vec<Box<dyn Port>> = vec![Box::new(port)];
    let mut config = config();
    config.fragments = Fragments::WithFirst;
    config.suspended.age_max = Duration::from_millis(50);
    let pool = FramePool::new(FRAMES).unwrap();
    let (mut director, mut control) = Director::new(config, ports, pool, Time::ZERO).unwrap();
    let mut commands: Vec<Command> = (0..3)
        .map(|number| Command::SetHost {
            slot: slot(number),
            host: host(number),
        })
        .collect();
    commands.push(Command::Table(Box::new(table(&[0, 1], &[2]))));
    // Half of them send nothing.
    commands.extend((450..550).map(|number| Command::Pin {
        flow: key(&flow(number, Protocol::UDP)),
        to: slot(1),
        idle: Duration::from_millis(10),
    }));
    let mut now = Time::ZERO;
    for command in commands {
        control.send(command).unwrap();
        director.turn(now);
        control.poll().unwrap().unwrap().result.unwrap();
    }
    let mut turns = |control: &mut asterism_director::Control, count: u32| {
        let mut most = 0;
        for turn in 0..count {
            now = now.saturating_add(Duration::from_micros(100));
            if turn % 100 == 0 {
                let what = Suspend::Bucket(turn / 100 % BUCKETS);
                control.send(Command::Suspend(what)).unwrap();
            }
            let before = allocations();
            director.turn(now);
            most += allocations() - before;
            while control.poll().unwrap().is_some() {}
        }
        (most, director.statistics())
    };
    turns(&mut control, 2_000);
    let (taken, statistics) = turns(&mut control, 20_000);
    assert_eq!(taken, 0, "in {} packets", statistics.received);
    assert!(statistics.suspended > 0 && statistics.suspensions_ended > 0);
    assert!(statistics.drain_exceptions > 0 && statistics.exceptions_ended > 0);
    assert!(statistics.answered == 0 && statistics.announced > 0);
}
