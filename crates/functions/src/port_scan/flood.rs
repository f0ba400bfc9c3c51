//! SYN floods: handshakes of a service that are begun and not completed, from few sources or many, over all instances. Imports
//! `mod.rs`'s state and function, `clue`, `config`, `handshakes`.
//!
//! In two stages, so that packets of connections pay nothing in ordinary times. First the SYNs of each service are counted, in a sketch whose
//! size no number of services changes. A service that gets a part of the threshold is *looked at*: of its handshakes a sample, by a
//! keyed hash of both ends, is remembered with what became of them (`handshakes.rs`). Only while some service is looked at are packets
//! of connections read for what they complete, and most of those go no further than the hash.
//!
//! Nothing is dropped for it: sources of a flood are forged, and who floods few services has as many as he likes. Not told from a
//! flood: a service that fell silent under many clients. Not found: who sends forged ACKs after his SYNs.

use asterism_function::{Act, Ask, Late, TcpFlags, Tick};

use super::clue::{Clue, What};
use super::handshakes::{Flood, Handshakes, Limit, Sample, Service};
use super::learn::Change;
use super::trail::estimate;
use super::{Class, FloodPolicy, Host, Methods, PortScan, PortScanState, handshakes, host_bit};

/// Seconds for which a flood is noted: one that goes on is told again after so long.
pub(super) const NOTED_S: Tick = 60;
/// Error and doubt of the count of a service's SYNs: of a million in the window, a thousand too many at most. An error only makes that a
/// service is looked at for nothing.
pub(super) const SYNS_KNOWN: (f64, f64) = (0.001, 0.05);
/// Levels of samples. A service with so many connections that one level's cells are all taken is judged by the next.
const LEVELS: u8 = 3;
/// Bits of a hash that make the next level.
const LEVEL_BITS: u32 = 4;
/// A service is looked at from this part of the threshold on.
const LOOKED_AT: u32 = 4;
/// Open handshakes that the first level holds at the threshold, at most: enough to tell it from half of it, and few enough that old
/// connections leave room.
const SAMPLED: u32 = 128;
/// The same at least, of sparser levels: whose threshold is twice the policy's, or 32 times.
const SAMPLED_LEAST: f32 = 16.0;
/// Seconds of a window before the last one's handshakes are judged: one begun at its end has a second at least.
const GRACE_S: Tick = 2;
/// Shortest window, in seconds, and fewest handshakes that can be told from chance.
const WINDOW_S_LEAST: Tick = GRACE_S + 1;
const HANDSHAKES_LEAST: u32 = 16;

/// The policy, worked out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Floods {
    pub(super) window_s: Tick,
    /// SYNs from which on a service is looked at.
    looked_at: u64,
    /// One in 2 to the power of this many handshakes is in a sample.
    skipped_bits: u32,
    /// Of each level, at the threshold and at half of it.
    limits: [(Limit, Limit); LEVELS as usize],
    /// For how many handshakes one of a level stands.
    weights: [f32; LEVELS as usize],
}

impl Floods {
    pub(super) fn new(policy: FloodPolicy) -> Self {
        let handshakes = policy.handshakes.max(HANDSHAKES_LEAST);
        let skipped_bits = (handshakes / SAMPLED)
            .checked_ilog2()
            .map_or(0, |bits| bits + u32::from(handshakes > SAMPLED << bits));
        let step = (1 << LEVEL_BITS) as f32;
        let weights = core::array::from_fn(|level| {
            // The last level has all that the others leave.
            let kept = match level + 1 == usize::from(LEVELS) {
                true => 1.0,
                false => 1.0 - 1.0 / step,
            };
            (1u64 << skipped_bits) as f32 * step.powi(level as i32) / kept
        });
        Self {
            window_s: policy.window_s.max(WINDOW_S_LEAST),
            looked_at: (handshakes / LOOKED_AT).into(),
            skipped_bits,
            limits: weights.map(|weight| {
                let open = (handshakes as f32 / weight).max(SAMPLED_LEAST);
                (Limit::new(open), Limit::new(open / 2.0))
            }),
            weights,
        }
    }

    /// What members must have alike: windows, and which handshakes are in samples.
    pub(super) fn schema(&self) -> u64 {
        u64::from(self.window_s) << 8 | u64::from(self.skipped_bits)
    }

    /// The level and the cell of a handshake in a sample, alike for both directions and on all instances; `None` if it is in none.
    #[inline]
    fn place(
        &self,
        ask: &Ask<'_, PortScanState>,
        one: (Host, u16),
        other: (Host, u16),
    ) -> Option<(u8, u32)> {
        let hash = end_hash(ask, one).wrapping_add(end_hash(ask, other));
        let drawn = ask.choose(hash, u32::MAX);
        if drawn & ((1 << self.skipped_bits) - 1) != 0 {
            return None;
        }
        let sparse = (drawn >> self.skipped_bits | 1 << 31).trailing_zeros() / LEVEL_BITS;
        let level = (sparse as u8).min(LEVELS - 1);
        Some((level, ask.choose(hash ^ 1 << 63, handshakes::CELLS)))
    }
}

/// Of an end of a connection, so that nobody outside can find ends that are taken for each other.
#[inline]
fn end_hash(ask: &Ask<'_, PortScanState>, (host, port): (Host, u16)) -> u64 {
    let (high, low) = host.words();
    let high = match high {
        0 => 0,
        _ => u64::from(ask.choose(high, u32::MAX)) << 31,
    };
    let host = u64::from(ask.choose(low ^ high, u32::MAX));
    u64::from(ask.choose(host << 16 | u64::from(port), u32::MAX))
}

/// What a packet adds to what is known of handshakes.
pub(super) struct Lesson {
    counted: Option<Service>,
    sample: Option<(Sample, Change<Sample, Handshakes>)>,
    flood: Option<(Service, Change<Service, Flood>)>,
}

impl Lesson {
    #[inline(never)]
    pub(super) fn write(self, act: &mut Act<'_, PortScanState>) {
        if let Some(service) = self.counted {
            act.syns.add(&service, 1);
        }
        match self.sample {
            None | Some((_, Change::None)) => {}
            Some((_, Change::Update(at, value))) => act.handshakes.update(&at, value),
            Some((sample, Change::Insert(Some(room), value))) => {
                act.handshakes.insert(room, sample, value);
            }
            Some((_, Change::Insert(None, _))) => act.unrecorded.add(1),
        }
        match self.flood {
            None | Some((_, Change::None)) => {}
            Some((_, Change::Update(at, value))) => act.floods.update(&at, value),
            Some((service, Change::Insert(Some(room), value))) => {
                act.floods.insert(room, service, value);
            }
            Some((_, Change::Insert(None, _))) => act.unrecorded.add(1),
        }
    }
}

impl PortScan {
    /// What a clue teaches about handshakes.
    pub(super) fn handshake(
        &self,
        ask: &Ask<'_, PortScanState>,
        clue: &Clue,
    ) -> Result<Option<Lesson>, Late> {
        let Some(floods) = &self.floods else {
            return Ok(None);
        };
        match clue.what {
            What::Probe(Methods::SYN) => self.begun(floods, ask, clue),
            What::Refused { .. } if clue.class == Class::Tcp => {
                let (client, service) = ((clue.prober, clue.from), (clue.target, clue.port));
                self.done(floods, ask, [client, service])
            }
            What::Engaged => self.acknowledged(ask),
            _ => Ok(None),
        }
    }

    /// A SYN.
    fn begun(
        &self,
        floods: &Floods,
        ask: &Ask<'_, PortScanState>,
        clue: &Clue,
    ) -> Result<Option<Lesson>, Late> {
        if self.is_exempt(&clue.prober) || clue.target.is_group() {
            return Ok(None);
        }
        let service = Service {
            host: clue.target,
            port: clue.port,
        };
        let mut lesson = Lesson {
            counted: Some(service),
            sample: None,
            flood: None,
        };
        if ask.syns.get(&service)? < floods.looked_at {
            return Ok(Some(lesson));
        }
        let ends = ((clue.prober, clue.from), (clue.target, clue.port));
        let Some((level, cell)) = floods.place(ask, ends.0, ends.1) else {
            return Ok(Some(lesson));
        };
        let sample = Sample { service, level };
        let known = ask.handshakes.get(&sample)?;
        let epoch = ask.now() / floods.window_s;
        let mut value = known
            .map_or_else(Handshakes::default, |known| known.value)
            .begun(epoch, cell, host_bit(ask, clue.prober));
        let (full, half) = floods.limits[usize::from(level)];
        if ask.now() % floods.window_s >= GRACE_S
            && let Some((open, sources)) = value.judge(epoch, full, half)
        {
            value = value.flooded(epoch);
            lesson.flood = match ask.floods.get(&service)? {
                Some(_) => None,
                None => {
                    let flood = Flood {
                        first: ask.now(),
                        open: (open * floods.weights[usize::from(level)]) as u32,
                        sources: estimate(sources),
                        source: clue.prober,
                    };
                    Some((service, Change::Insert(ask.floods.vacancy()?, flood)))
                }
            };
        }
        let change = match known {
            Some(at) if at.value == value => Change::None,
            Some(at) => Change::Update(at, value),
            None => Change::Insert(ask.handshakes.vacancy()?, value),
        };
        lesson.sample = Some((sample, change));
        Ok(Some(lesson))
    }

    /// A packet of a connection, or none: what it completes, if a service is looked at.
    pub(super) fn acknowledged(
        &self,
        ask: &Ask<'_, PortScanState>,
    ) -> Result<Option<Lesson>, Late> {
        let Some(floods) = &self.floods else {
            return Ok(None);
        };
        if ask.handshakes.is_empty() {
            return Ok(None);
        }
        let packet = ask.packet();
        let is_of_connection = packet.tcp_flags().is_some_and(|flags| {
            flags.contains(TcpFlags::ACK) && !flags.intersects(TcpFlags::SYN | TcpFlags::RST)
        });
        if !is_of_connection {
            return Ok(None);
        }
        let (Some((source, destination)), Some(ports)) = (Host::ends(packet), packet.ports())
        else {
            return Ok(None);
        };
        self.done(floods, ask, [(source, ports.0), (destination, ports.1)])
    }

    /// The handshake of two ends, one of which may be a service that is looked at, is over.
    fn done(
        &self,
        floods: &Floods,
        ask: &Ask<'_, PortScanState>,
        [one, other]: [(Host, u16); 2],
    ) -> Result<Option<Lesson>, Late> {
        if ask.handshakes.is_empty() {
            return Ok(None);
        }
        let Some((level, cell)) = floods.place(ask, one, other) else {
            return Ok(None);
        };
        let sample = |(host, port)| Sample {
            service: Service { host, port },
            level,
        };
        let known = (
            ask.handshakes.get(&sample(one)),
            ask.handshakes.get(&sample(other)),
        );
        let epoch = ask.now() / floods.window_s;
        Ok(match ask.all(known)? {
            (Some(at), _) | (None, Some(at)) => at.value.done(epoch, cell).map(|value| Lesson {
                counted: None,
                sample: Some((at.row.0, Change::Update(at, value))),
                flood: None,
            }),
            (None, None) => None,
        })
    }
}
