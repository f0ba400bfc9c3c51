//! SYN floods: handshakes of a service that begin and do not complete, from few sources or many, over all instances. Read
//! `handshakes.rs` first.
//!
//! Detection has two stages, so that packets of connections cost nothing in ordinary times. First, a sketch counts the SYNs
//! of each service, in a size that does not depend on the number of services. A service above a part of the threshold is
//! *looked at*: a sample of its handshakes, by a keyed hash of both ends, is remembered with its outcome. Only while some
//! service is looked at are packets of connections read for the handshakes that they complete, and most go no further than
//! the hash.
//!
//! A flood causes no drops: its sources are forged, and an attacker on few services has as many sources as he likes. Not
//! distinguished from a flood: a service that fell silent under many clients. Not found: an attacker who sends forged ACKs
//! after his SYNs.

use asterism_function::objects::{TableAct, WindowedCountMinAct};
use asterism_function::{
    Act, Ask, Builder, Entry, Host, Late, Map, Single, State, TcpFlags, Tick, Window,
    WindowedCountMin,
};

use crate::bits::{estimate, host_bit};
use crate::handshakes::{CELLS, Flood, Handshakes, Limit, Sample, Service};
use crate::history::{Class, Methods};
use crate::observation::{Observation, What};

/// Seconds for which a flood is noted: one that goes on is reported again after so long.
const NOTED_S: Tick = 60;
/// Error and doubt of the count of a service's SYNs: of a million in the window, a thousand too many at most. An error only makes that a
/// service is looked at for nothing.
const SYNS_KNOWN: (f64, f64) = (0.001, 0.05);
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
/// Shortest window, in seconds, and fewest handshakes that can be distinguished from chance.
const WINDOW_S_LEAST: Tick = GRACE_S + 1;
const HANDSHAKES_LEAST: u32 = 16;

/// What makes a SYN flood. Nothing is dropped for it: sources of a flood are forged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FloodPolicy {
    /// Handshakes of one service begun within a window and not completed, over all instances. Fewer than 16 are taken as 16.
    pub handshakes: u32,
    /// Seconds of the window; fewer than 3 are taken as 3.
    pub window_s: Tick,
}

impl Default for FloodPolicy {
    /// A hundred a second.
    fn default() -> Self {
        Self {
            handshakes: 500,
            window_s: 5,
        }
    }
}

/// State of a function that looks for floods: has the objects of [`tables`]. Write it with [`sees_floods!`](crate::sees_floods).
pub trait SeesFloods: State {
    /// The objects, to read.
    fn flood_tables(&self) -> Tables<'_>;
    /// The objects, to write.
    fn flood_writes<'b, 'a>(act: &'b mut Self::Act<'a>) -> Writes<'b, 'a>;
}

/// The objects of a state that sees floods, to read.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'s> {
    /// About how many SYNs each service got lately.
    pub syns: &'s WindowedCountMin<Service>,
    /// What became of handshakes with services that get many SYNs: up to three samples each.
    pub handshakes: &'s Map<Sample, Handshakes>,
    /// Floods found lately: one for each service.
    pub floods: &'s Map<Service, Flood>,
}

/// The same, to write.
#[derive(Debug)]
pub struct Writes<'b, 'a> {
    /// About how many SYNs each service got lately.
    pub syns: &'b mut WindowedCountMinAct<'a, Service>,
    /// What became of handshakes with services that get many SYNs: up to three samples each.
    pub handshakes: &'b mut TableAct<'a, Single<Sample>, Handshakes>,
    /// Floods found lately: one for each service.
    pub floods: &'b mut TableAct<'a, Single<Service>, Flood>,
}

/// Builds the objects `syns`, `handshakes` and `floods`, in this order: next to nothing if floods are not looked for. The counts are of
/// entries at most, over the whole cluster: a sample takes some 250 bytes.
#[must_use]
pub fn tables(
    builder: &Builder,
    floods: Option<&Floods>,
    samples_max: u32,
    floods_max: u32,
) -> (
    WindowedCountMin<Service>,
    Map<Sample, Handshakes>,
    Map<Service, Flood>,
) {
    let (known, window_s) = match floods {
        Some(floods) => (SYNS_KNOWN, floods.window_s),
        None => ((0.5, 0.5), 1),
    };
    let window = Window {
        buckets: 2,
        bucket_seconds: window_s,
    };
    let most = |most| floods.map_or(1, |_| most);
    let idle = window_s.saturating_mul(2);
    (
        builder.windowed_count_min("syns", known, window),
        builder.table("handshakes", most(samples_max), &[idle]),
        builder.table("floods", most(floods_max), &[NOTED_S]),
    )
}

/// Says that a state has the fields `syns`, `handshakes` and `floods`: `sees_floods!(PortScanState);`.
#[macro_export]
macro_rules! sees_floods {
    ($state:ty) => {
        impl $crate::flood::SeesFloods for $state {
            #[inline(always)]
            fn flood_tables(&self) -> $crate::flood::Tables<'_> {
                $crate::flood::Tables {
                    syns: &self.syns,
                    handshakes: &self.handshakes,
                    floods: &self.floods,
                }
            }
            #[inline(always)]
            fn flood_writes<'b, 'a>(act: &'b mut Self::Act<'a>) -> $crate::flood::Writes<'b, 'a> {
                $crate::flood::Writes {
                    syns: &mut act.syns,
                    handshakes: &mut act.handshakes,
                    floods: &mut act.floods,
                }
            }
        }
    };
}

/// How floods are found: a policy, worked out.
#[derive(Clone, Copy, Debug)]
pub struct Floods {
    window_s: Tick,
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
    /// By this policy.
    #[must_use]
    pub fn new(policy: FloodPolicy) -> Self {
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
    #[must_use]
    pub fn schema(&self) -> u64 {
        u64::from(self.window_s) << 8 | u64::from(self.skipped_bits)
    }

    /// The level and the cell of a handshake in a sample, alike for both directions and on all instances; `None` if it is in none.
    #[inline]
    fn place<S: State>(
        &self,
        ask: &Ask<'_, S>,
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
        Some((level, ask.choose(hash ^ 1 << 63, CELLS)))
    }

    /// What an observation says of handshakes. SYNs of clients that are exempt count for nothing, as do those to groups.
    pub fn step<S: SeesFloods>(
        &self,
        ask: &Ask<'_, S>,
        observation: &Observation,
        is_exempt: impl Fn(&Host) -> bool,
    ) -> Result<Option<Step>, Late> {
        match observation.what {
            What::Probe(Methods::SYN) if is_exempt(&observation.scanner) => Ok(None),
            What::Probe(Methods::SYN) => self.begun(ask, observation),
            What::Refused { .. } if observation.class == Class::Tcp => {
                let (client, service) = (
                    (observation.scanner, observation.from),
                    (observation.target, observation.port),
                );
                self.done(ask, [client, service])
            }
            What::Engaged => self.acknowledged(ask),
            _ => Ok(None),
        }
    }

    /// A SYN.
    fn begun<S: SeesFloods>(
        &self,
        ask: &Ask<'_, S>,
        observation: &Observation,
    ) -> Result<Option<Step>, Late> {
        if observation.target.is_group() {
            return Ok(None);
        }
        let service = Service {
            host: observation.target,
            port: observation.port,
        };
        let mut step = Step {
            counted: Some(service),
            sample: None,
            flood: None,
        };
        let tables = ask.flood_tables();
        if tables.syns.get(&service)? < self.looked_at {
            return Ok(Some(step));
        }
        let ends = (
            (observation.scanner, observation.from),
            (observation.target, observation.port),
        );
        let Some((level, cell)) = self.place(ask, ends.0, ends.1) else {
            return Ok(Some(step));
        };
        let sample = Sample { service, level };
        let known = tables.handshakes.get(&sample)?;
        let epoch = ask.now() / self.window_s;
        let mut value = known
            .map_or_else(Handshakes::default, |known| known.value)
            .begun(epoch, cell, host_bit(ask, observation.scanner));
        let (full, half) = self.limits[usize::from(level)];
        if ask.now() % self.window_s >= GRACE_S
            && let Some((open, sources)) = value.judge(epoch, full, half)
        {
            value = value.flooded(epoch);
            let flood = Flood {
                first: ask.now(),
                open: (open * self.weights[usize::from(level)]) as u32,
                sources: estimate(sources),
                source: observation.scanner,
            };
            step.flood = match tables.floods.entry(service)? {
                Entry::Occupied(_) => None,
                room => Some((room, flood)),
            };
        }
        step.sample = match known {
            Some(at) if at.value == value => None,
            _ => Some((tables.handshakes.entry_at(known, sample)?, value)),
        };
        Ok(Some(step))
    }

    /// What a packet that says nothing of probes completes, if a service is looked at: any packet of a connection does.
    pub fn acknowledged<S: SeesFloods>(&self, ask: &Ask<'_, S>) -> Result<Option<Step>, Late> {
        if ask.flood_tables().handshakes.is_empty()? {
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
        self.done(ask, [(source, ports.0), (destination, ports.1)])
    }

    /// The handshake of two ends, one of which may be a service that is looked at, is over.
    fn done<S: SeesFloods>(
        &self,
        ask: &Ask<'_, S>,
        [one, other]: [(Host, u16); 2],
    ) -> Result<Option<Step>, Late> {
        let handshakes = ask.flood_tables().handshakes;
        if handshakes.is_empty()? {
            return Ok(None);
        }
        let Some((level, cell)) = self.place(ask, one, other) else {
            return Ok(None);
        };
        let sample = |(host, port)| Sample {
            service: Service { host, port },
            level,
        };
        let known = (handshakes.get(&sample(one)), handshakes.get(&sample(other)));
        let epoch = ask.now() / self.window_s;
        Ok(match ask.all(known)? {
            (Some(at), _) | (None, Some(at)) => at.value.done(epoch, cell).map(|value| Step {
                counted: None,
                sample: Some((Entry::Occupied(at), value)),
                flood: None,
            }),
            (None, None) => None,
        })
    }
}

/// Of an end of a connection, so that nobody outside can find ends that are taken for each other.
#[inline]
fn end_hash<S: State>(ask: &Ask<'_, S>, (host, port): (Host, u16)) -> u64 {
    let (high, low) = host.words();
    let high = match high {
        0 => 0,
        _ => u64::from(ask.choose(high, u32::MAX)) << 31,
    };
    let host = u64::from(ask.choose(low ^ high, u32::MAX));
    u64::from(ask.choose(host << 16 | u64::from(port), u32::MAX))
}

/// What a packet adds to what is known of handshakes: one was begun, or is over.
#[derive(Debug)]
#[must_use = "what is not written is not known"]
pub struct Step {
    counted: Option<Service>,
    sample: Option<(Entry<Sample, Handshakes>, Handshakes)>,
    flood: Option<(Entry<Service, Flood>, Flood)>,
}

impl Step {
    /// The flood that the handshake was found to be part of, if none of its service is noted.
    #[must_use]
    pub fn flood(&self) -> Option<&Flood> {
        self.flood.as_ref().map(|(_, flood)| flood)
    }

    /// Writes it. How many samples and floods there was no room for.
    #[inline(never)]
    pub fn write<S: SeesFloods>(self, act: &mut Act<'_, S>) -> u64 {
        let Writes {
            syns,
            handshakes,
            floods,
        } = S::flood_writes(act);
        if let Some(service) = self.counted {
            syns.add(&service, 1);
        }
        crate::write(handshakes, self.sample) + crate::write(floods, self.flood)
    }
}
