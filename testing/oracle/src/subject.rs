//! Our NAT as it ships: one instance of the engine, with ports that hand over what was sent.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use asterism_engine::{Instance, InstanceParts};
use asterism_function::{PortNumber, Reason};
use asterism_functions::nat::{Nat, NatConfig, Side};
use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{Port, PortStatistics};
use asterism_placement::Time;
use asterism_state::ObjectSettings;

/// Buffers for packets under way: a packet at a time, and what is parked.
const FRAMES: usize = 1_024;
/// Turns between two packets at most: some ten days of sweeps.
const TURNS_MAX: u64 = 100_000_000;

/// A port that sends to a channel and never receives: packets are injected.
#[derive(Debug)]
struct Outlet {
    side: Side,
    sent: Sender<(Side, Vec<u8>)>,
}

impl Port for Outlet {
    fn name(&self) -> &str {
        match self.side {
            Side::Inside => "inside",
            Side::Outside => "outside",
        }
    }
    fn receive(&mut self, _pool: &mut FramePool, _burst: &mut Burst) -> usize {
        0
    }
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let count = burst.len();
        for frame in burst.as_slice() {
            // Nobody listens only when the subject is being dropped.
            let _ = self.sent.send((self.side, pool.bytes(frame).to_vec()));
        }
        while let Some(frame) = burst.pop() {
            pool.release(frame);
        }
        count
    }
    fn statistics(&self) -> PortStatistics {
        PortStatistics::default()
    }
}

/// Our NAT under test.
#[derive(Debug)]
pub(crate) struct Subject {
    instance: Instance<Nat>,
    sent: Receiver<(Side, Vec<u8>)>,
    now: Time,
}

impl Subject {
    pub(crate) fn new(config: NatConfig) -> Result<Self, String> {
        let nat = Nat::new(config).map_err(|faults| format!("{faults:?}"))?;
        let pool = FramePool::new(FRAMES).map_err(|error| format!("{error:?}"))?;
        let (sender, sent) = channel();
        let port = |side| -> Box<dyn Port> {
            Box::new(Outlet {
                side,
                sent: sender.clone(),
            })
        };
        let instance = InstanceParts::alone(SEED).start(
            Arc::new(nat),
            |_| ObjectSettings::LOCAL,
            pool,
            vec![port(Side::Inside), port(Side::Outside)],
        );
        Ok(Self {
            instance,
            sent,
            now: Time::ZERO,
        })
    }

    /// Lets time pass; what is sent meanwhile.
    pub(crate) fn run_until(&mut self, time_us: u64) -> Vec<(Side, Vec<u8>)> {
        let until = Time::from_micros(time_us);
        for _ in 0..TURNS_MAX {
            let due = self.instance.next_due().max(self.now);
            if due > until {
                break;
            }
            self.now = due + std::time::Duration::from_micros(1);
            self.instance.turn(self.now);
        }
        self.now = self.now.max(until);
        self.sent.try_iter().collect()
    }

    /// Handles a packet now; what is sent for it. False: it could not be taken.
    pub(crate) fn packet(&mut self, side: Side, bytes: &[u8]) -> (bool, Vec<(Side, Vec<u8>)>) {
        let port = PortNumber(match side {
            Side::Inside => 0,
            Side::Outside => 1,
        });
        let taken = self.instance.inject(self.now, port, bytes);
        self.instance.turn(self.now);
        (taken, self.sent.try_iter().collect())
    }

    /// Packets dropped so far, by reason.
    pub(crate) fn drops(&self) -> Vec<(Reason, u64)> {
        self.instance.tally().drops().collect()
    }
}

/// Of the instance's secret choices: any will do, and the same one makes a comparison repeatable.
const SEED: u64 = 0x0041_5354_4552;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::Setup;
    use crate::wire::{self, IP};
    use asterism_engine::PARKED_ABSENT_MAX;
    use asterism_function::build;

    fn subject() -> Subject {
        let text = "
            inside = 192.168.50.1/24 02:00:00:00:00:01 mtu 1500
            outside = 198.51.100.1/24 02:00:00:00:00:02 mtu 1500
            neighbour = 192.168.50.2 02:00:00:00:01:02
            neighbour = 198.51.100.10 02:00:00:00:02:0a
        ";
        Subject::new(Setup::read(text, "").unwrap().nat).unwrap()
    }

    /// A datagram of two fragments.
    fn fragments(identification: u16) -> [Vec<u8>; 2] {
        let header = build::Header4 {
            identification,
            dont_fragment: false,
            ethernet_destination: asterism_function::MacAddress([2, 0, 0, 0, 0, 1]),
            ..build::Header4::between([192, 168, 50, 2].into(), [198, 51, 100, 10].into())
        };
        let mut whole = vec![0; 400];
        let length = build::udp4(&header, 4_000, 53, &[0x5a; 100], &mut whole).unwrap();
        whole.truncate(length);
        [(0, 64, 0x2000), (64, 108, 0)].map(|(from, to, more)| {
            let mut part = whole[..IP + 20].to_vec();
            part.extend_from_slice(&whole[IP + 20 + from..IP + 20 + to]);
            let length = (part.len() - IP) as u16;
            wire::put(&mut part, IP + 2, length);
            wire::put(&mut part, IP + 6, more | (from / 8) as u16);
            wire::put(&mut part, IP + 10, 0);
            let sum = !wire::fold(wire::sum(&part[IP..IP + 20]));
            wire::put(&mut part, IP + 10, sum);
            part
        })
    }

    #[test]
    fn a_fragment_that_overtakes_waits_for_the_first() {
        let mut subject = subject();
        let [first, later] = fragments(1);
        let (taken, sent) = subject.packet(Side::Inside, &later);
        assert!(taken && sent.is_empty());
        let (_, sent) = subject.packet(Side::Inside, &first);
        let mut sent = sent;
        sent.extend(subject.run_until(1_000));
        assert_eq!(sent.len(), 2, "within a millisecond");
        // The first one never comes.
        let (_, sent) = subject.packet(Side::Inside, &fragments(2)[1]);
        assert!(sent.is_empty());
        assert!(subject.run_until(2_000_000).is_empty());
        assert_eq!(subject.drops(), [(Reason::FragmentUnmatched, 1)]);
    }

    /// RFC 4787 REQ-14a: fragments without a first one do not keep others from passing.
    #[test]
    fn a_flood_of_later_fragments_hurts_nobody_else() {
        let mut subject = subject();
        let flood = 3 * PARKED_ABSENT_MAX as u16;
        for identification in 0..flood {
            subject.packet(Side::Inside, &fragments(1_000 + identification)[1]);
            if identification % 50 == 0 {
                let [first, later] = fragments(identification / 50);
                assert_eq!(subject.packet(Side::Inside, &first).1.len(), 1);
                assert_eq!(subject.packet(Side::Inside, &later).1.len(), 1);
            }
        }
        subject.run_until(2_000_000);
        let most = PARKED_ABSENT_MAX as u64;
        assert_eq!(
            subject.drops(),
            [
                (Reason::FragmentUnmatched, most),
                (Reason::ParkedOverflow, 2 * most)
            ]
        );
        // Anyone who comes afterwards finds everything as it was.
        let [first, later] = fragments(1);
        assert_eq!(subject.packet(Side::Inside, &first).1.len(), 1);
        assert_eq!(subject.packet(Side::Inside, &later).1.len(), 1);
    }
}
