//! A function that leaves its letter in each packet, and what is needed to send packets through a chain of them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use asterism_engine::{Instance, InstanceParts};
use asterism_function::chain::{Chain, Stage, StageTally};
use asterism_function::{
    Ask, Builder, Counter, Endpoint, Flow4, Late, Map, NetworkFunction, PortNumber, Protocol,
    Reason, Verdict, build, state,
};
use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{Port, PortStatistics};
use asterism_placement::Time;
use asterism_state::ObjectSettings;

/// Offset of the payload in the packets here.
const PAYLOAD: usize = 42;
/// Where letters begin in the payload: after the number, the action, and the stage that takes it.
const LETTERS: usize = PAYLOAD + 4;

/// Leaves its letter in a packet, counts it, remembers its source, and does once what the packet says.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) letter: u8,
    /// Added to the source port outward, taken from the destination port inward, as a NAT would.
    pub(crate) shift: u16,
    /// Sources that fit.
    pub(crate) capacity: u32,
}

#[state]
pub(crate) struct LetterState {
    pub(crate) seen: Map<Endpoint, ()>,
    pub(crate) handled: Counter,
}

impl NetworkFunction for Letter {
    type State = LetterState;

    fn state(&self, builder: &Builder) -> LetterState {
        LetterState {
            seen: builder.table("seen", self.capacity, &[300]),
            handled: builder.counter("handled"),
        }
    }

    fn packet(&self, ask: Ask<'_, LetterState>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let port = ask.port();
        let outward = port == PortNumber(0);
        let key = if outward {
            flow.source()
        } else {
            flow.destination()
        };
        let known = ask.seen.get(&key)?;
        let room = match known {
            Some(_) => None,
            None => ask.seen.vacancy()?,
        };
        if known.is_none() && room.is_none() {
            return Ok(Verdict::Drop(Reason::TableFull));
        }
        let mut act = ask.act()?;
        if let Some(room) = room {
            act.seen.insert(room, key, ());
        }
        act.handled.add(1);
        let bytes = act.packet.bytes_mut();
        let (what, who) = (bytes[PAYLOAD + 2], bytes[PAYLOAD + 3]);
        if let Some(free) = bytes[LETTERS..].iter().position(|&letter| letter == 0) {
            bytes[LETTERS + free] = self.letter;
        }
        match (what, self.shift) {
            (_, 0) => {}
            _ if outward => {
                let source =
                    Endpoint::new(flow.source, flow.source_port + self.shift, Protocol::UDP);
                act.packet.set_source(source);
            }
            _ => {
                let to = flow.destination_port - self.shift;
                let destination = Endpoint::new(flow.destination, to, Protocol::UDP);
                act.packet.set_destination(destination);
            }
        }
        let opposite = PortNumber(port.0 ^ 1);
        if who != self.letter && who != b'*' {
            return Ok(Verdict::Forward(opposite));
        }
        match what {
            b'T' => Ok(Verdict::Forward(port)),
            b'D' => Ok(Verdict::Drop(Reason::Filtered)),
            b'C' => Ok(Verdict::Consumed),
            b'E' => {
                // An answer of its own, with nothing to be done on its way.
                act.emit(port, |packet, room| {
                    let mut answer = packet.bytes().to_vec();
                    answer[PAYLOAD + 2] = 0;
                    answer[LETTERS..].fill(0);
                    answer[LETTERS] = b'!';
                    room[..answer.len()].copy_from_slice(&answer);
                    Some(answer.len())
                });
                Ok(Verdict::Forward(opposite))
            }
            _ => Ok(Verdict::Forward(opposite)),
        }
    }
}

/// A stage that leaves this letter, and has the name of it.
pub(crate) fn stage(letter: u8) -> Stage {
    shifting(letter, 0)
}

pub(crate) fn shifting(letter: u8, shift: u16) -> Stage {
    sized(letter, shift, 4_096)
}

pub(crate) fn sized(letter: u8, shift: u16, capacity: u32) -> Stage {
    let name = ["a", "b", "c", "d"][usize::from(letter - b'a')];
    let function = Letter {
        letter,
        shift,
        capacity,
    };
    Stage::new(name, Arc::new(function))
}

/// Sends everything by one of its ports.
#[derive(Debug)]
struct Always(PortNumber);

impl NetworkFunction for Always {
    type State = LetterState;
    fn state(&self, builder: &Builder) -> LetterState {
        LetterState {
            seen: builder.table("seen", 64, &[300]),
            handled: builder.counter("handled"),
        }
    }
    fn packet(&self, _: Ask<'_, LetterState>) -> Result<Verdict, Late> {
        Ok(Verdict::Forward(self.0))
    }
}

/// A stage that sends everything by this port, whichever side it comes from.
pub(crate) fn always(name: &'static str, port: u16) -> Stage {
    Stage::new(name, Arc::new(Always(PortNumber(port))))
}

/// Sends a copy of each packet by the third port.
#[derive(Debug)]
struct Copier;

impl NetworkFunction for Copier {
    type State = LetterState;
    fn state(&self, builder: &Builder) -> LetterState {
        LetterState {
            seen: builder.table("seen", 64, &[300]),
            handled: builder.counter("handled"),
        }
    }
    fn packet(&self, ask: Ask<'_, LetterState>) -> Result<Verdict, Late> {
        let port = ask.port();
        let mut act = ask.act()?;
        if act.copy(PortNumber(2)) {
            act.handled.add(1);
        }
        Ok(Verdict::Forward(PortNumber(port.0 ^ 1)))
    }
}

/// A stage that sends copies by the third port.
pub(crate) fn copier(name: &'static str) -> Stage {
    Stage::new(name, Arc::new(Copier))
}

/// A packet of flow `flow`. What is to be done at which stage is said by two letters.
pub(crate) fn packet(flow: u16, number: u16, order: &[u8; 2], back: bool) -> Vec<u8> {
    let inside = Endpoint::new([10, 0, 0, 1].into(), 1_000 + flow, Protocol::UDP);
    let outside = Endpoint::new([192, 0, 2, 1].into(), 53, Protocol::UDP);
    let (from, to) = if back {
        (outside, inside)
    } else {
        (inside, outside)
    };
    let flow = Flow4 {
        source: from.address,
        destination: to.address,
        source_port: from.port,
        destination_port: to.port,
        protocol: 17,
    };
    let mut payload = [0; 36];
    payload[..2].copy_from_slice(&number.to_be_bytes());
    payload[2..4].copy_from_slice(order);
    let mut bytes = vec![0; 128];
    let length = build::flow4(&flow, &payload, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// A packet that left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) port: u16,
    pub(crate) source_port: u16,
    pub(crate) number: u16,
    pub(crate) letters: String,
}

/// A port that the test feeds and listens to.
struct Wire {
    number: u16,
    fed: Receiver<Vec<u8>>,
    left: Sender<Left>,
    /// It takes nothing that is sent.
    is_full: bool,
}

impl Port for Wire {
    fn name(&self) -> &str {
        "wire"
    }
    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let before = burst.len();
        while burst.room() > 0 {
            let Ok(bytes) = self.fed.try_recv() else {
                break;
            };
            let frame = pool.allocate_copy(&bytes).expect("a free buffer");
            burst.push(frame).expect("room in the burst");
        }
        burst.len() - before
    }
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        if self.is_full {
            pool.release_all(burst);
            return 0;
        }
        for frame in burst.iter() {
            let bytes = pool.bytes(frame);
            let report = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            let letters = bytes[LETTERS..].iter().take_while(|&&letter| letter != 0);
            let left = Left {
                port: self.number,
                source_port: report(34),
                number: report(PAYLOAD),
                letters: letters.map(|&letter| char::from(letter)).collect(),
            };
            self.left.send(left).expect("the test listens");
        }
        let count = burst.len();
        pool.release_all(burst);
        count
    }
    fn statistics(&self) -> PortStatistics {
        PortStatistics::default()
    }
}

/// One instance with a chain, and the two ends of its ports.
pub(crate) struct Bench {
    pub(crate) instance: Instance<Chain>,
    feed: Vec<Sender<Vec<u8>>>,
    left: Receiver<Left>,
    now_us: u64,
}

/// Reads late by so much, of the objects named.
pub(crate) fn late(
    objects: &'static [&'static str],
    late_us: u32,
) -> impl Fn(&str) -> ObjectSettings {
    move |name| ObjectSettings {
        late_us: if objects.contains(&name) { late_us } else { 0 },
        ..ObjectSettings::LOCAL
    }
}

impl Bench {
    pub(crate) fn new(
        stages: Vec<Stage>,
        settings: impl Fn(&str) -> ObjectSettings + 'static,
    ) -> Bench {
        Bench::with_ports(stages, settings, &[false, false])
    }

    /// With so many ports, of which some take nothing that is sent.
    pub(crate) fn with_ports(
        stages: Vec<Stage>,
        settings: impl Fn(&str) -> ObjectSettings + 'static,
        are_full: &[bool],
    ) -> Bench {
        Bench::started(stages, are_full, |parts, chain, pool, ports| {
            parts.start(chain, settings, pool, ports)
        })
    }

    /// With an instance that `start` starts.
    pub(crate) fn started(
        stages: Vec<Stage>,
        are_full: &[bool],
        start: impl FnOnce(InstanceParts, Arc<Chain>, FramePool, Vec<Box<dyn Port>>) -> Instance<Chain>,
    ) -> Bench {
        let (sender, left) = channel();
        let (feed, fed): (Vec<_>, Vec<_>) = are_full.iter().map(|_| channel()).unzip();
        let ports = fed.into_iter().zip(are_full).zip(0..);
        let ports = ports.map(|((fed, &is_full), number)| {
            let left = sender.clone();
            Box::new(Wire {
                number,
                fed,
                left,
                is_full,
            }) as Box<dyn Port>
        });
        let chain = Chain::new(stages).expect("a sound chain");
        let pool = FramePool::new(4_096).expect("memory for frames");
        let parts = InstanceParts::alone(7);
        let instance = start(parts, Arc::new(chain), pool, ports.collect());
        Bench {
            instance,
            feed,
            left,
            now_us: 0,
        }
    }

    pub(crate) fn feed(&self, port: usize, packet: Vec<u8>) {
        self.feed[port].send(packet).expect("the port reads");
    }

    pub(crate) fn turn(&mut self, us: u64) -> Vec<Left> {
        self.now_us += us;
        self.instance.turn(Time::from_micros(self.now_us));
        self.left.try_iter().collect()
    }

    /// A turn in which no port is read.
    pub(crate) fn drain(&mut self, us: u64) -> Vec<Left> {
        self.now_us += us;
        self.instance
            .turn_without_reading(Time::from_micros(self.now_us));
        self.left.try_iter().collect()
    }

    /// Turns until a while after all that is late has come.
    pub(crate) fn finish(&mut self) -> Vec<Left> {
        let mut all = Vec::new();
        for _ in 0..300 {
            all.extend(self.turn(100));
        }
        let in_use = self.instance.frames_in_use();
        assert_eq!(in_use, 0, "frames are lost");
        all
    }

    pub(crate) fn tally(&self, stage: usize) -> StageTally {
        let mut tallies = self.instance.stage_tallies();
        tallies.nth(stage).expect("such a stage").clone()
    }

    pub(crate) fn handled(&self, stage: usize) -> u64 {
        let state = self.instance.state().stage::<LetterState>(stage);
        state.expect("such a stage").handled.get().expect("local")
    }
}
