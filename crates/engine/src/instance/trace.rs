//! Packets looked at one by one: what each asked and wrote, what became of it, and what it cost. A turn of its own, so that
//! the ordinary one does not know of it.

use asterism_function::{NetworkFunction, PortNumber, Reason, stage_names};
use asterism_placement::Time;
use asterism_state::{StageEnd, State, Step, Written};

use super::Instance;
use asterism_io::frame::{BURST, Burst};

/// Bytes of a traced packet's beginning that are kept.
pub const TRACED_BYTES_MAX: usize = 2_048;

/// One packet as it was handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedPacket {
    /// The port that it came by.
    pub port: PortNumber,
    /// Its length in bytes.
    pub length: usize,
    /// Its beginning as it came.
    pub before: Vec<u8>,
    /// Its beginning as it left; empty if it did not leave at once.
    pub after: Vec<u8>,
    /// What was asked and written, in order.
    pub steps: Vec<TracedStep>,
    /// What became of it.
    pub end: TracedEnd,
    /// Packets that the function emitted for it.
    pub emitted: u64,
    /// Bytes of operations that the others will receive.
    pub logged_bytes: u64,
    /// What the call cost, tracing included.
    pub cost_ns: u64,
}

/// A step by the names of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedStep {
    /// A read.
    Ask {
        /// Of which object.
        object: &'static str,
        /// By which of its keys.
        lane: u8,
        /// Whether there was an entry.
        found: bool,
    },
    /// Something of a pool was asked for.
    Grant {
        /// Which pool.
        object: &'static str,
        /// What was granted, by its number; `None` if nothing was left.
        number: Option<u32>,
    },
    /// The asking ended.
    Act,
    /// A write.
    Write {
        /// To which object.
        object: &'static str,
        /// What it did.
        what: Written,
    },
    /// A stage of a chain was called; what follows is its own.
    Stage {
        /// Its name.
        stage: &'static str,
        /// By which of its own ports the packet came to it.
        port: PortNumber,
    },
    /// Its call ended.
    StageEnd {
        /// Its name.
        stage: &'static str,
        /// How.
        end: TracedStageEnd,
        /// What the call cost in nanoseconds, tracing included.
        cost_ns: u64,
    },
}

/// How the call of a stage ended. A reason is `None` if this program does not know its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedStageEnd {
    /// The packet goes on by this of the stage's ports.
    Forwarded(PortNumber),
    /// The packet was dropped.
    Dropped(Option<Reason>),
    /// The packet was for the stage itself.
    Consumed,
    /// An answer was late: the packet waits here, and this stage alone is called again.
    Late,
    /// The stage failed, and the packet went on as it was.
    Bypassed(Option<Reason>),
    /// The stage gets a copy.
    Mirrored,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedEnd {
    /// It left by a port.
    Forwarded(PortNumber),
    /// It was dropped.
    Dropped(Reason),
    /// It was for the function itself.
    Consumed,
    /// An answer was late: it waits, and is called again.
    Parked,
}

impl<F: NetworkFunction> Instance<F> {
    /// As [`Instance::turn`], for a while in which packets are looked at: up to `packets` of those read are appended to
    /// `traced`. `clock_ns` is read twice for each. Allocates.
    pub fn turn_traced(
        &mut self,
        now: Time,
        packets: usize,
        clock_ns: fn() -> u64,
        traced: &mut Vec<TracedPacket>,
    ) -> usize {
        self.begin(now);
        if self.exchange.is_some() {
            self.apply();
        }
        if self.stopped.is_some() {
            return 0;
        }
        if !self.parking.is_empty() {
            self.retry();
        }
        let read = self.read_traced(packets, clock_ns, traced);
        self.publish();
        self.send();
        self.upkeep(read);
        self.publish();
        read
    }

    fn read_traced(
        &mut self,
        packets: usize,
        clock_ns: fn() -> u64,
        traced: &mut Vec<TracedPacket>,
    ) -> usize {
        self.read_each_port(|instance, port, burst| {
            let mut one = Burst::default();
            for place in 0..burst.len().min(BURST) {
                let frame = burst.as_mut_slice()[place].alias();
                if one.push(frame).is_err() {
                    break;
                }
                if traced.len() < packets {
                    traced.push(instance.handle_traced(port, &mut one, clock_ns));
                } else {
                    instance.handle_burst(port, &mut one);
                }
            }
            burst.forget();
        })
    }

    /// Handles a burst of one packet, and tells what the counts and the outgoing bursts say of it.
    fn handle_traced(&mut self, port: u16, one: &mut Burst, clock_ns: fn() -> u64) -> TracedPacket {
        let head = |bytes: &[u8]| bytes[..bytes.len().min(TRACED_BYTES_MAX)].to_vec();
        let bytes = one.as_slice().first().map(|frame| self.pool.bytes(frame));
        let (length, before) = bytes.map_or((0, Vec::new()), |bytes| (bytes.len(), head(bytes)));
        let (tally, logged) = (self.tally.clone(), self.context.bytes_waiting());
        let emitted = self.emissions.len();
        let outgoing: Vec<usize> = self.outgoing.iter().map(Burst::len).collect();
        let parked = self.parking.len();
        self.context.trace_on(clock_ns);
        let start = clock_ns();
        self.handle_burst(port, one);
        let cost_ns = clock_ns().saturating_sub(start);
        self.context.trace_off();
        let mut after = Vec::new();
        let mut forwarded = None;
        for (number, (burst, before)) in self.outgoing.iter().zip(outgoing).enumerate() {
            // A burst that was full left on the way, and this packet is the first of the next.
            if burst.len() > before || burst.len() == 1 && before == BURST {
                forwarded = Some(PortNumber(number as u16));
                after = burst
                    .as_slice()
                    .last()
                    .map_or_else(Vec::new, |frame| head(self.pool.bytes(frame)));
            }
        }
        let dropped = self
            .tally
            .drops()
            .find(|&(reason, count)| count > tally.dropped(reason))
            .map(|(reason, _)| reason);
        let end = match (forwarded, dropped) {
            (Some(port), _) => TracedEnd::Forwarded(port),
            _ if self.parking.len() > parked => TracedEnd::Parked,
            (_, Some(reason)) => TracedEnd::Dropped(reason),
            _ => TracedEnd::Consumed,
        };
        let objects = self.state.objects();
        let stages = stage_names(self.function());
        let steps = self.context.take_steps().into_iter();
        let steps = steps.map(|step| named(step, objects, stages));
        TracedPacket {
            port: PortNumber(port),
            length,
            before,
            after,
            steps: steps.collect(),
            end,
            emitted: (self.emissions.len() - emitted) as u64,
            logged_bytes: (self.context.bytes_waiting() - logged) as u64,
            cost_ns,
        }
    }
}

fn named(step: Step, objects: &[&'static str], stages: &[&'static str]) -> TracedStep {
    let name = |object: u8| objects.get(usize::from(object)).copied().unwrap_or("?");
    let stage = |number: u8| stages.get(usize::from(number)).copied().unwrap_or("?");
    let reason = |number: u16| Reason::ALL.get(usize::from(number)).copied();
    match step {
        Step::Ask {
            object,
            lane,
            found,
        } => TracedStep::Ask {
            object: name(object),
            lane,
            found,
        },
        Step::Grant { object, number } => TracedStep::Grant {
            object: name(object),
            number,
        },
        Step::Act => TracedStep::Act,
        Step::Write { object, what } => TracedStep::Write {
            object: name(object),
            what,
        },
        Step::Stage { number, port } => TracedStep::Stage {
            stage: stage(number),
            port: PortNumber(port),
        },
        Step::StageEnd {
            number,
            end,
            cost_ns,
        } => TracedStep::StageEnd {
            stage: stage(number),
            end: match end {
                StageEnd::Forward(port) => TracedStageEnd::Forwarded(PortNumber(port)),
                StageEnd::Drop(number) => TracedStageEnd::Dropped(reason(number)),
                StageEnd::Consumed => TracedStageEnd::Consumed,
                StageEnd::Late => TracedStageEnd::Late,
                StageEnd::Bypassed(number) => TracedStageEnd::Bypassed(reason(number)),
                StageEnd::Mirrored => TracedStageEnd::Mirrored,
            },
            cost_ns,
        },
    }
}
