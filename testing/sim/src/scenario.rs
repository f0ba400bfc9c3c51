//! What one seed decides: members, bounds, links, faults and load. Nothing else decides anything.

use std::time::Duration;

use asterism_io::link::{LinkConditions, SeededRandom};
use asterism_placement::replicated::Delivery;

use crate::congestion::COMMANDS;
use crate::exercise::{BULK, Sizes};
use crate::load::TORRENT;
use crate::sites::Sites;

/// A stream of draws from a seed, with the few shapes that scenarios need.
#[derive(Clone, Debug)]
pub struct Draws(SeededRandom);

impl Draws {
    /// The draws of a seed; `stream` tells several apart.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mixed = SeededRandom::new(stream).next_u64() ^ seed;
        Self(SeededRandom::new(mixed))
    }
    /// 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }
    /// From `least` to `most`, both included.
    pub fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.0.up_to(most - least)
    }
    /// True so many times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.0.up_to(99) < percent
    }
    /// One of these.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.0.up_to(choices.len() as u64 - 1) as usize]
    }
    /// A duration between two numbers of microseconds.
    pub fn micros(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(self.within(least, most))
    }
}

/// Something that goes wrong for a while.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The way from one member to another is cut, in that direction only.
    Cut {
        /// Who is not heard.
        from: u16,
        /// The author.
        to: u16,
    },
    /// A member stands still; what arrives waits in its socket's buffer.
    Pause {
        /// Which.
        member: u16,
    },
    /// All members stand still: a suspended machine. Clocks go on.
    Suspend,
    /// One instance stands still while its host's state channel goes on: a slow receiver.
    Stall {
        /// Whose.
        member: u16,
        /// Which of its instances.
        lane: u16,
    },
    /// Datagrams above a size are lost without a word.
    SmallMtu {
        /// The sender.
        from: u16,
        /// The recipient.
        to: u16,
        /// The longest that passes.
        bytes: usize,
    },
    /// A narrow link with a short queue.
    Narrow {
        /// The sender.
        from: u16,
        /// The recipient.
        to: u16,
        /// Bits per second.
        rate: u64,
    },
    /// A link takes much longer.
    Spike {
        /// The sender.
        from: u16,
        /// The recipient.
        to: u16,
        /// How much longer.
        delay: Duration,
    },
    /// Losses on every link.
    Storm {
        /// Probability of loss.
        loss: f64,
    },
    /// A member's clock steps forward and stays there.
    Step {
        /// Whose.
        member: u16,
        /// By how much.
        by: Duration,
    },
}

/// A fault and when it is there, counted from the start of the safety phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// When it begins.
    pub from: Duration,
    /// When it ends.
    pub until: Duration,
    /// What it is.
    pub fault: Fault,
}

/// Everything that one seed decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// Instances of each member.
    pub lanes: Vec<u16>,
    /// In which order each member is given others' groups.
    pub delivery: Vec<Delivery>,
    /// How far each member's clock is ahead.
    pub skew: Vec<Duration>,
    /// Whether members agree on the cluster's time. Without, clocks differ by `skew` for good, as those of builds that advertise none.
    pub shares_time: bool,
    /// Sizes of the function's objects.
    pub sizes: Sizes,
    /// Conditions of all links during the safety phase; the heal phase keeps delay and jitter alone.
    pub link: LinkConditions,
    /// Faults, by their beginning.
    pub faults: Vec<Planned>,
    /// Commands given to each member at least.
    pub commands: u32,
    /// Commands given to one member at one moment at most.
    pub burst: u64,
    /// Time between two moments.
    pub spacing: Duration,
    /// Keys of tables.
    pub keys: u64,
    /// Commands in a hundred that are about sessions.
    pub sessions_percent: u64,
    /// The protocol's bounds and times.
    pub bounds: Bounds,
    /// Microseconds that reads of one table are late.
    pub late_us: u32,
    /// Microseconds that its absent entries are waited for.
    pub absent_us: u32,
    /// Whether the run goes on until everything idle is forgotten.
    pub afterlife: bool,
    /// Whether faults are there while members are still being admitted.
    pub rough_start: bool,
    /// Whether a clock steps: windows of time are then not judged.
    pub clocks_step: bool,
    /// Whether tables have less room than there are keys, and members are cut off while they fill them.
    pub crowded: bool,
    /// Instances are given bursts and prefetch, however small their tables are.
    pub foresees: bool,
    /// Very many packets of one flow come that waits for another member.
    pub torrent: bool,
    /// Bits per second of the links over which one member counts, at the end: a congested path.
    pub squeeze: Option<u64>,
    /// Whether one instance stands still for most of the time, until memory must take what its ring cannot.
    pub slow_core: bool,
    /// Whether one member is of a later build, which sends frames that the others do not know.
    pub later_build: bool,
    /// Whether another host with a member's identity shows up.
    pub stranger: Option<Stranger>,
    /// Where members are, if there is more than one site.
    pub sites: Option<Sites>,
}

/// Another host with a member's name, key and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// It has another incarnation: a late returner, or a cloned snapshot.
    OtherIncarnation,
    /// It has another version of the member list.
    OtherEpoch,
}

/// Bounds and times of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// See the placement's configuration, as for all of these.
    pub log_groups: usize,
    /// Bytes of the log.
    pub log_bytes: usize,
    /// The reorder window.
    pub reorder_groups: usize,
    /// Groups not yet applied.
    pub unapplied_groups: usize,
    /// Keep-alive.
    pub keep_alive: Duration,
    /// Shortest retransmission timeout.
    pub retransmit_min: Duration,
    /// Longest retransmission timeout.
    pub retransmit_max: Duration,
    /// Acknowledgement delay.
    pub acknowledge_delay: Duration,
    /// Look-ahead.
    pub lookahead: Duration,
    /// Silence after which a member that pins the log is dropped from it.
    pub silent_after: Duration,
    /// Flush interval of accumulators.
    pub flush: Duration,
    /// Datagram bytes.
    pub datagram_bytes: usize,
    /// Runs that acknowledgements name.
    pub gap_runs: usize,
    /// The longest window of coalescing.
    pub coalescing_max: Duration,
    /// When a path is congested.
    pub congested_above: Duration,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn from_seed(seed: u64) -> Self {
        let draws = &mut Draws::new(seed, 1);
        let members = draws.one_of(&[2u64, 2, 3, 3, 3, 4, 5]) as usize;
        let sites = Sites::from_seed(seed);
        let members = sites.as_ref().map_or(members, |sites| sites.of.len());
        let two_lanes = draws.percent(35);
        let lanes: Vec<u16> = (0..members)
            .map(|_| if two_lanes && draws.percent(60) { 2 } else { 1 })
            .collect();
        let mixed = draws.percent(20);
        let ordered = draws.percent(60);
        let delivery = (0..members)
            .map(|_| match if mixed { draws.percent(50) } else { ordered } {
                true => Delivery::Ordered,
                false => Delivery::Unordered,
            })
            .collect();
        let skewed = draws.percent(50);
        let skew = (0..members)
            .map(|_| {
                if skewed {
                    draws.micros(0, 900_000)
                } else {
                    Duration::ZERO
                }
            })
            .collect();
        let commands = draws.within(500, 530) as u32;
        let burst = draws.within(2, 8);
        let tokens = members as u32 * (commands * 3 / 2 + 15 * BULK);
        let sizes = Sizes {
            tokens,
            entries: draws.one_of(&[64, 128, 512]),
            keys: 96,
            ports: draws.one_of(&[64, 128, 192, 320]) as u32 * draws.one_of(&[1, 2, 4]),
            idle: [draws.within(2, 4) as u32, draws.within(1, 3) as u32],
        };
        let delay_us = draws.one_of(&[50, 300, 1_000, 4_000]);
        let link = LinkConditions {
            delay: Duration::from_micros(delay_us),
            jitter: draws.micros(0, delay_us),
            loss: draws.one_of(&[0.01, 0.03, 0.08, 0.2]),
            duplication: draws.one_of(&[0.01, 0.05, 0.1]),
            reordering: draws.one_of(&[0.02, 0.05, 0.15]),
            reordering_delay: draws.micros(delay_us, delay_us * 5),
            ..LinkConditions::default()
        };
        let bounds = Bounds {
            log_groups: draws.one_of(&[32, 128, 512, 2_048, 8_192, 8_192]),
            log_bytes: draws.one_of(&[8_192, 65_536, 262_144, 262_144]),
            reorder_groups: draws.one_of(&[64, 128, 1_024]),
            unapplied_groups: draws.one_of(&[8, 64, 4_096]),
            keep_alive: draws.micros(5_000, 30_000),
            retransmit_min: draws.micros(1_000, 4_000),
            retransmit_max: draws.micros(30_000, 120_000),
            acknowledge_delay: draws.micros(300, 2_000),
            lookahead: draws.one_of(&[Duration::ZERO, Duration::from_micros(700)]),
            silent_after: draws.micros(30_000, 200_000),
            flush: draws.micros(2_000, 12_000),
            datagram_bytes: draws.one_of(&[1_472, 1_400]),
            gap_runs: 64,
            coalescing_max: Duration::ZERO,
            congested_above: Duration::from_millis(2),
        };
        let spacing = draws.micros(500, 3_000);
        let length = spacing * (commands / ((burst as u32).div_ceil(2)));
        let mut scenario = Self {
            seed,
            lanes,
            delivery,
            skew,
            // Its own draws: all else of a seed is as it was.
            shares_time: Draws::new(seed, 31).percent(50),
            sizes,
            link,
            faults: Vec::new(),
            commands,
            burst,
            spacing,
            keys: draws.within(6, 40),
            sessions_percent: draws.one_of(&[10, 30, 60]),
            bounds,
            late_us: draws.one_of(&[0, 300, 3_000]),
            absent_us: draws.one_of(&[0, 5_000, 20_000]),
            afterlife: draws.percent(30),
            rough_start: draws.percent(15),
            clocks_step: draws.percent(12),
            later_build: draws.percent(20),
            crowded: false,
            foresees: false,
            torrent: false,
            squeeze: None,
            slow_core: draws.percent(8),
            stranger: match draws.within(0, 59) {
                0 => Some(Stranger::OtherIncarnation),
                1 => Some(Stranger::OtherEpoch),
                _ => None,
            },
            sites,
        };
        // Of a stream of their own, so that the draws above stay what they were.
        let more = &mut Draws::new(seed, 3);
        scenario.foresees = more.percent(50);
        scenario.torrent = scenario.absent_us > 0 && more.percent(20);
        if scenario.torrent {
            // Each of its packets may find its session after all.
            scenario.sizes.tokens += (members * TORRENT) as u32;
        }
        scenario.bounds.gap_runs = more.one_of(&[8, 24, 64]);
        if scenario.later_build {
            // Its messages are longer than this build's bound.
            scenario.bounds.datagram_bytes = 1_400;
        }
        if draws.percent(12) {
            // More keys than room, at once: members fill their shares before they hear of each other.
            scenario.keys = 400;
            scenario.sizes.entries = draws.within(16, 40) as u32;
            scenario.sizes.ports = 640;
            scenario.sessions_percent = 60;
            scenario.crowded = true;
        }
        if draws.percent(8) {
            // A log that a few bursts fill before anything of them is sent.
            scenario.bounds.log_groups = draws.within(6, 12) as usize;
            scenario.burst = 12;
        }
        if draws.percent(10) {
            // Nobody falls off such a log, and only timers repair what is lost.
            scenario.bounds.keep_alive = draws.micros(2_000_000, 3_000_000);
            scenario.bounds.log_groups = 65_536;
            scenario.bounds.log_bytes = 1 << 20;
            scenario.rough_start = false;
        }
        scenario.plan(draws, length);
        scenario.spread_out(length);
        scenario.coalesce(&mut Draws::new(seed, 4));
        scenario
    }

    /// Windows of coalescing, and a path that needs them. Of a stream of their own, as above.
    fn coalesce(&mut self, draws: &mut Draws) {
        let millis = draws.one_of(&[0, 5, 30, 100]);
        self.bounds.coalescing_max = Duration::from_millis(millis);
        self.bounds.congested_above = draws.micros(300, 5_000);
        let rate = draws.one_of(&[100_000, 300_000, 1_000_000]);
        let is_patient = self.bounds.keep_alive > Duration::from_secs(1);
        if millis > 0 && !is_patient && draws.percent(40) {
            self.squeeze = Some(rate);
            self.sizes.tokens += COMMANDS;
        }
    }

    /// How many members there are.
    pub fn members(&self) -> usize {
        self.lanes.len()
    }

    /// The most that two clocks ever differ.
    pub fn skew_most(&self) -> Duration {
        self.skew.iter().copied().max().unwrap_or_default() + self.steps()
    }

    /// By how much clocks step forward, in all.
    pub fn steps(&self) -> Duration {
        let steps = self.faults.iter().map(|planned| match planned.fault {
            Fault::Step { by, .. } => by,
            _ => Duration::ZERO,
        });
        steps.sum()
    }

    /// The longest planned end of a fault.
    pub fn faults_end(&self) -> Duration {
        self.faults
            .iter()
            .map(|planned| planned.until)
            .max()
            .unwrap_or_default()
    }

    fn plan(&mut self, draws: &mut Draws, length: Duration) {
        let members = self.members() as u64;
        let length_us = length.as_micros() as u64;
        let count = draws.within(4, 9);
        for number in 0..count {
            let from = draws.within(0, length_us * 9 / 10);
            let until = from + draws.within(length_us / 40, length_us / 4);
            let member = draws.within(0, members - 1) as u16;
            let other = (u64::from(member) + draws.within(1, members - 1)) % members;
            let (from_member, to) = (member, other as u16);
            // Two kinds that hit whatever the load is, then any.
            let kind = draws.within(0, 8);
            let fault = match [0, 6].get(number as usize).copied().unwrap_or(kind) {
                0 | 1 => Fault::Cut {
                    from: from_member,
                    to,
                },
                2 => Fault::Pause { member },
                3 => Fault::Stall {
                    member,
                    lane: draws.within(0, u64::from(self.lanes[usize::from(member)]) - 1) as u16,
                },
                4 => Fault::SmallMtu {
                    from: from_member,
                    to,
                    bytes: draws.one_of(&[300, 600, 1_000]),
                },
                5 => Fault::Narrow {
                    from: from_member,
                    to,
                    rate: draws.one_of(&[300_000, 1_000_000, 4_000_000]),
                },
                6 | 7 => Fault::Spike {
                    from: from_member,
                    to,
                    delay: draws.micros(5_000, 60_000),
                },
                _ => Fault::Storm {
                    loss: draws.one_of(&[0.3, 0.5, 0.8]),
                },
            };
            self.faults.push(Planned {
                from: Duration::from_micros(from),
                until: Duration::from_micros(until),
                fault,
            });
        }
        if self.crowded {
            for from in 0..members as u16 {
                for to in (0..members as u16).filter(|&to| to != from) {
                    self.faults.push(Planned {
                        from: Duration::ZERO,
                        until: length / 2,
                        fault: Fault::Cut { from, to },
                    });
                }
            }
        }
        if self.slow_core {
            self.commands *= 3;
            self.sizes.tokens *= 3;
            self.bounds.unapplied_groups = 8_192;
            self.bounds.log_groups = 8_192;
            self.bounds.log_bytes = 1 << 20;
            let member = draws.within(0, members - 1) as u16;
            self.faults.push(Planned {
                from: length / 8,
                until: length * 5 / 2,
                fault: Fault::Stall { member, lane: 0 },
            });
        }
        for _ in 0..draws.within(0, 2) {
            let from = draws.within(0, length_us);
            let until = from + draws.within(1_000_000, 4_000_000);
            self.faults.push(Planned {
                from: Duration::from_micros(from),
                until: Duration::from_micros(until),
                fault: Fault::Suspend,
            });
        }
        if self.clocks_step {
            for _ in 0..draws.within(1, 3) {
                let from = Duration::from_micros(draws.within(0, length_us));
                self.faults.push(Planned {
                    from,
                    until: from,
                    fault: Fault::Step {
                        member: draws.within(0, members - 1) as u16,
                        by: draws.micros(50_000, 1_500_000),
                    },
                });
            }
        }
        self.faults.sort_by_key(|planned| planned.from);
    }
}
