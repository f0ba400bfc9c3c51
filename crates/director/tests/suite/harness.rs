//! A director on ports in memory, with its commands, and frames for it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use asterism_director::table::{BucketSpace, Share, Slot, Table};
use asterism_director::{
    Answer, ArmConfig, Command, CommandError, Control, Director, DirectorConfig,
    DirectorStatistics, Done, FlowKey, Host, HostLink, MacAddress,
};
use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{Port, PortStatistics};
use asterism_packet::build::{self, Segment};
use asterism_packet::{Flow4, Packet, Protocol, TcpFlags};
use asterism_placement::Time;

pub(crate) const DIRECTOR: MacAddress = MacAddress([2, 0xd1, 0, 0, 0, 1]);
pub(crate) const CLIENT: MacAddress = MacAddress([2, 0xc1, 0, 0, 0, 1]);
pub(crate) const SHARED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const NAMES: [&str; 4] = ["a", "b", "c", "d"];
pub(crate) const BUCKETS: u32 = 1_024;
/// Frames of a director's pool.
pub(crate) const FRAMES: usize = 1_024;

/// A port whose frames come from a test and go to it.
pub(crate) struct TestPort {
    arriving: Receiver<Vec<u8>>,
    sent: Sender<Vec<u8>>,
    statistics: PortStatistics,
}

/// The other end.
pub(crate) struct Wire {
    pub(crate) feed: Sender<Vec<u8>>,
    pub(crate) sent: Receiver<Vec<u8>>,
}

pub(crate) fn wired() -> (TestPort, Wire) {
    let (feed, arriving) = channel();
    let (send, sent) = channel();
    let port = TestPort {
        arriving,
        sent: send,
        statistics: PortStatistics::default(),
    };
    (port, Wire { feed, sent })
}

impl Port for TestPort {
    fn name(&self) -> &str {
        "test"
    }

    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let before = burst.len();
        while burst.room() > 0
            && pool.available() > 0
            && let Ok(bytes) = self.arriving.try_recv()
        {
            if let Some(frame) = pool.allocate_copy(&bytes) {
                burst.push(frame).unwrap();
            }
        }
        burst.len() - before
    }

    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let count = burst.len();
        for frame in burst.iter() {
            // A test that has ended reads nothing.
            let _ = self.sent.send(pool.bytes(frame).to_vec());
        }
        pool.release_all(burst);
        count
    }

    fn statistics(&self) -> PortStatistics {
        self.statistics
    }
}

pub(crate) fn space() -> BucketSpace {
    BucketSpace::new(BUCKETS, 9).unwrap()
}

pub(crate) fn slot(number: usize) -> Slot {
    Slot::new(number).unwrap()
}

pub(crate) fn share(number: usize) -> Share<'static> {
    Share {
        slot: slot(number),
        name: NAMES[number],
        weight: 1,
    }
}

/// The table in which these take, and those drain.
pub(crate) fn table(takers: &[usize], drainers: &[usize]) -> Table {
    let shares = |numbers: &[usize]| numbers.iter().map(|one| share(*one)).collect::<Vec<_>>();
    let moved = std::collections::BTreeMap::new();
    Table::new(space(), &shares(takers), &shares(drainers), &moved)
}

pub(crate) fn mac_of(number: usize) -> MacAddress {
    MacAddress([2, 0, 0, 0, 1, number as u8])
}

pub(crate) fn host(number: usize) -> Host {
    Host::on_first_arm(HostLink {
        mac: Some(mac_of(number)),
        address: None,
    })
}

pub(crate) fn config() -> DirectorConfig {
    let shared = vec![IpAddr::from(SHARED)];
    let mut config = DirectorConfig::new(vec![ArmConfig::one_armed(DIRECTOR, shared)], space());
    config.suspended.packets_max = 300;
    config
}

/// A director with one arm.
pub(crate) struct World {
    pub(crate) director: Director,
    pub(crate) control: Control,
    pub(crate) wire: Wire,
    pub(crate) now: Time,
}

impl World {
    pub(crate) fn new(config: DirectorConfig) -> World {
        let (port, wire) = wired();
        let pool = FramePool::new(FRAMES).unwrap();
        let ports: Vec<Box<dyn Port>> = vec![Box::new(port)];
        let (director, control) = Director::new(config, ports, pool, Time::ZERO).unwrap();
        World {
            director,
            control,
            wire,
            now: Time::ZERO,
        }
    }

    /// With three hosts that share all buckets, and its announcements made.
    pub(crate) fn with_three() -> World {
        let mut world = World::new(config());
        world.set_up();
        world
    }

    pub(crate) fn set_up(&mut self) {
        for number in 0..3 {
            let (slot, host) = (slot(number), host(number));
            self.command(Command::SetHost { slot, host }).unwrap();
        }
        let table = Box::new(table(&[0, 1, 2], &[]));
        self.command(Command::Table(table)).unwrap();
        self.pass(Duration::from_secs(4));
        self.sent();
    }

    /// Turns until nothing more is received.
    pub(crate) fn turn(&mut self) {
        loop {
            self.now = self.now.saturating_add(Duration::from_micros(1));
            if self.director.turn(self.now) == 0 {
                return;
            }
        }
    }

    /// Lets time pass, turning whenever something is due.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now.saturating_add(time);
        while self.director.next_due() <= end {
            self.now = self.now.max(self.director.next_due());
            self.director.turn(self.now);
        }
        self.now = end;
        self.director.turn(end);
    }

    pub(crate) fn command(&mut self, command: Command) -> Result<Done, CommandError> {
        let sent = self.control.send(command).unwrap();
        self.director.turn(self.now);
        let Answer { number, result } = self.control.poll().unwrap().unwrap();
        assert_eq!(number, sent);
        result
    }

    pub(crate) fn feed(&mut self, frame: &[u8]) {
        self.wire.feed.send(frame.to_vec()).unwrap();
    }

    /// Feeds frames, turns, and returns what was sent.
    pub(crate) fn through(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        for frame in frames {
            self.feed(frame);
        }
        self.turn();
        self.sent()
    }

    pub(crate) fn sent(&mut self) -> Vec<Vec<u8>> {
        self.wire.sent.try_iter().collect()
    }

    /// The host that a frame goes to; none if it is dropped or waits.
    pub(crate) fn target_of(&mut self, frame: &[u8]) -> Option<usize> {
        let sent = self.through(&[frame.to_vec()]);
        assert!(sent.len() <= 1);
        let sent = sent.first()?;
        assert_eq!(&sent[6..12], DIRECTOR.0, "the director is the sender");
        assert_eq!(sent[12..], frame[12..], "nothing else changes");
        (0..NAMES.len()).find(|number| sent[..6] == mac_of(*number).0)
    }

    pub(crate) fn statistics(&self) -> DirectorStatistics {
        let statistics = self.director.statistics();
        assert_eq!(
            statistics.received,
            statistics.forwarded
                + statistics.consumed
                + statistics.dropped_total()
                + statistics.waiting_packets_now,
            "every frame has one end: {statistics:?}"
        );
        assert_eq!(
            self.director.frames_in_use() as u64,
            statistics.waiting_packets_now,
            "and so has every buffer"
        );
        statistics
    }
}

/// A flow of so many, over UDP or TCP.
pub(crate) fn flow(number: u32, protocol: Protocol) -> Flow4 {
    Flow4 {
        source: Ipv4Addr::from_bits(0x0a00_0000 + number / 50_000),
        destination: SHARED,
        source_port: 10_000 + (number % 50_000) as u16,
        destination_port: 80,
        protocol: protocol.0,
    }
}

pub(crate) fn key(flow: &Flow4) -> FlowKey {
    FlowKey::between(
        (flow.source.into(), flow.source_port),
        (flow.destination.into(), flow.destination_port),
        flow.protocol,
    )
}

/// A frame of a flow to the director, with these bytes.
pub(crate) fn frame(flow: &Flow4, payload: &[u8]) -> Vec<u8> {
    addressed(|out| build::flow4(flow, payload, out))
}

pub(crate) fn udp(number: u32) -> Vec<u8> {
    frame(&flow(number, Protocol::UDP), b"payload")
}

/// A segment of a TCP connection.
pub(crate) fn segment(number: u32, flags: TcpFlags) -> Vec<u8> {
    let flow = flow(number, Protocol::TCP);
    let header = build::Header4::between(flow.source, flow.destination);
    addressed(|out| {
        let segment = Segment::with_flags(flags);
        build::tcp4(
            &header,
            flow.source_port,
            flow.destination_port,
            &segment,
            b"",
            out,
        )
    })
}

pub(crate) fn addressed(build: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
    let mut out = vec![0; 1_500];
    let length = build(&mut out).unwrap();
    out.truncate(length);
    let mut packet = Packet::parse(&mut out).unwrap();
    packet.set_ethernet(CLIENT, DIRECTOR);
    assert_eq!(packet.bytes().len(), length);
    out
}
