//! Traffic by destination port, over all instances, and ports blocked for more than a policy allows.
//!
//! Totals are cumulative cells of each instance, which never go down and which no single instance can reset; so a window is
//! measured from the total at its beginning (Constellation §6.6 counts since the start).

use core::cmp::Ordering;

use asterism_function::objects::{CountersAct, TableAct};
use asterism_function::{
    Act, Ask, At, Builder, Counters, Entry, Late, Map, Single, State, Tally, Tick, Transport,
    Value, Wire,
};

/// The volume policy: a destination port that gets more than `bits` is blocked for everybody
/// (Constellation §6.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumePolicy {
    /// Bits of whole frames, over all instances.
    pub bits: u64,
    /// Seconds of the window that they are counted in; 0: since the start, and the block is for ever, as in the paper.
    pub window_s: Tick,
    /// Seconds that the port is blocked for, where there is a window.
    pub block_s: Tick,
}

impl Default for VolumePolicy {
    /// The paper's: 1,024 Mbit since the start.
    fn default() -> Self {
        Self {
            bits: 1_024_000_000,
            window_s: 0,
            block_s: 0,
        }
    }
}

/// A destination port under the volume policy.
///
/// Joins: the later window, of one window the smaller start (more counts as volume: a member that began it later
/// missed what came before), and the latest end of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Wire)]
pub struct Watch {
    /// The number of the window that is measured.
    #[wire(varint)]
    pub window: u32,
    /// The port's total in bits when that window began.
    #[wire(varint)]
    pub start_bits: u64,
    /// The port is blocked up to this time; 0: it never was.
    #[wire(varint)]
    pub blocked_until: Tick,
}

impl Value for Watch {
    const JOINS: bool = true;
    #[inline]
    fn join(&mut self, other: &Self) {
        match self.window.cmp(&other.window) {
            Ordering::Less => (self.window, self.start_bits) = (other.window, other.start_bits),
            Ordering::Equal => self.start_bits = self.start_bits.min(other.start_bits),
            Ordering::Greater => {}
        }
        self.blocked_until = self.blocked_until.max(other.blocked_until);
    }
}

/// State of a function that measures volumes: has the objects of [`tables`]. Write it with
/// [`measures_volume!`](crate::measures_volume).
pub trait MeasuresVolume: State {
    /// The objects, to read.
    fn volume_tables(&self) -> Tables<'_>;
    /// The objects, to write.
    fn volume_writes<'b, 'a>(act: &'b mut Self::Act<'a>) -> Writes<'b, 'a>;
}

/// The objects of a state that measures volumes, to read.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'s> {
    /// Bits by destination port.
    pub volume: &'s Counters<u16>,
    /// Destination ports whose volume is measured in a window, or that are blocked.
    pub watched: &'s Map<u16, Watch>,
}

/// The same, to write.
#[derive(Debug)]
pub struct Writes<'b, 'a> {
    /// Bits by destination port.
    pub volume: &'b mut CountersAct<'a, u16>,
    /// Destination ports whose volume is measured in a window, or that are blocked.
    pub watched: &'b mut TableAct<'a, Single<u16>, Watch>,
}

/// Builds the objects `volume` and `watched`, in this order: for every port there is, or next to nothing without a policy.
#[must_use]
pub fn tables(
    builder: &Builder,
    policy: Option<&VolumePolicy>,
) -> (Counters<u16>, Map<u16, Watch>) {
    // Even if one of four instances should see most of the ports first.
    let (ports, watched) = policy.map_or((1, 1), |_| (1 << 18, 1 << 16));
    let idle = match policy {
        Some(policy) if policy.window_s > 0 => {
            policy.window_s.saturating_mul(2).max(policy.block_s)
        }
        _ => 0,
    };
    (
        builder.counters("volume", ports),
        builder.table("watched", watched, &[idle]),
    )
}

/// Says that a state has the fields `volume` and `watched`: `measures_volume!(PortScanState);`.
#[macro_export]
macro_rules! measures_volume {
    ($state:ty) => {
        impl $crate::volume::MeasuresVolume for $state {
            #[inline(always)]
            fn volume_tables(&self) -> $crate::volume::Tables<'_> {
                $crate::volume::Tables {
                    volume: &self.volume,
                    watched: &self.watched,
                }
            }
            #[inline(always)]
            fn volume_writes<'b, 'a>(act: &'b mut Self::Act<'a>) -> $crate::volume::Writes<'b, 'a> {
                $crate::volume::Writes {
                    volume: &mut act.volume,
                    watched: &mut act.watched,
                }
            }
        }
    };
}

/// A port is watched once its total passes this part of the threshold, which its first window does not count: else
/// every port ever used would have an entry.
const UNWATCHED: u64 = 16;

/// What is known of the volume that the packet belongs to.
#[derive(Debug)]
pub struct Traffic {
    policy: VolumePolicy,
    tally: Tally<u16>,
    watch: Option<At<Single<u16>, Watch>>,
    port: u16,
    bits: u64,
}

impl Traffic {
    /// What is known of the destination port's volume; `None` without a policy, a TCP or UDP port, or room for the port.
    #[inline(always)]
    pub fn of<S: MeasuresVolume>(
        policy: Option<&VolumePolicy>,
        ask: &Ask<'_, S>,
    ) -> Result<Option<Self>, Late> {
        let packet = ask.packet();
        let Some(&policy) = policy else {
            return Ok(None);
        };
        if !matches!(packet.layout().transport(), Transport::Tcp | Transport::Udp) {
            return Ok(None);
        }
        let Some((_, port)) = packet.ports() else {
            return Ok(None);
        };
        let Tables { volume, watched } = ask.volume_tables();
        let (tally, watch) = ask.all((volume.find(&port), watched.get(&port)))?;
        let bits = 8 * packet.bytes().len() as u64;
        Ok(tally.map(|tally| Self {
            policy,
            tally,
            watch,
            port,
            bits,
        }))
    }

    /// Whether the port is blocked.
    #[inline(always)]
    #[must_use]
    pub fn is_blocked(&self, now: Tick) -> bool {
        self.watch
            .is_some_and(|watch| now < watch.value.blocked_until)
    }

    /// What the packet adds, and whether with it the port is to be blocked.
    #[inline(always)]
    pub fn addition<S: MeasuresVolume>(self, ask: &Ask<'_, S>) -> Result<Addition, Late> {
        let Self {
            policy,
            tally,
            watch,
            port,
            bits,
        } = self;
        let total = tally.total.saturating_add(bits);
        let watch = match due(&policy, ask.now(), total, watch.as_ref()) {
            None => None,
            Some(value) => Some((ask.volume_tables().watched.entry_at(watch, port)?, value)),
        };
        Ok(Addition { tally, bits, watch })
    }
}

/// What the packet adds to it.
#[derive(Debug)]
#[must_use = "what is not written does not count"]
pub struct Addition {
    tally: Tally<u16>,
    bits: u64,
    watch: Option<(Entry<u16, Watch>, Watch)>,
}

impl Addition {
    /// Writes it. How many watches there was no room for.
    #[inline(always)]
    pub fn write<S: MeasuresVolume>(self, act: &mut Act<'_, S>) -> u64 {
        let Writes { volume, watched } = S::volume_writes(act);
        volume.add(&self.tally, self.bits);
        crate::write(watched, self.watch)
    }
}

/// The port's watch if it has to change, now that its volume is `total`.
#[inline(always)]
fn due(
    policy: &VolumePolicy,
    now: Tick,
    total: u64,
    known: Option<&At<Single<u16>, Watch>>,
) -> Option<Watch> {
    let known = known.map(|known| known.value);
    if policy.window_s == 0 {
        return (total > policy.bits).then_some(Watch {
            blocked_until: Tick::MAX,
            ..known.unwrap_or_default()
        });
    }
    if known.is_none() && total <= policy.bits / UNWATCHED {
        return None;
    }
    let window = now / policy.window_s;
    let mut watch = known.unwrap_or_default();
    let begins = known.is_none_or(|known| known.window < window);
    if begins {
        (watch.window, watch.start_bits) = (window, total);
    }
    // The start may be above the total: anyone who began the window knew of more.
    let over = total.saturating_sub(watch.start_bits) > policy.bits;
    if over {
        watch.blocked_until = now.saturating_add(policy.block_s);
    }
    (begins || over).then_some(watch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::objects::hash;
    use asterism_function::{Reader, Writer, laws};

    #[test]
    fn watches_join_as_the_law_says() {
        let number = |draw: u64, place: u64, below: u64| hash::words(draw, place, 5) % below;
        let watch = |draw: u64| Watch {
            window: number(draw, 4, 3) as u32,
            start_bits: number(draw, 5, 4),
            blocked_until: number(draw, 6, 4) as u32,
        };
        for draw in 0..2_000 {
            laws::value(watch(draw), watch(draw + 10_000), watch(draw + 20_000));
        }
    }

    #[test]
    fn watches_come_back_from_the_wire() {
        let watch = Watch {
            window: 900,
            start_bits: 1 << 50,
            blocked_until: 70_000,
        };
        let mut bytes = Vec::new();
        watch.encode(&mut Writer::new(&mut bytes, &[]));
        let read = |bytes: &[u8]| Watch::decode(&mut Reader::new(bytes, &[]));
        assert_eq!(read(&bytes), Ok(watch));
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn since_the_start_a_port_is_blocked_once_and_for_ever() {
        let policy = VolumePolicy {
            bits: 1_000,
            ..VolumePolicy::default()
        };
        assert_eq!(due(&policy, 5, 1_000, None), None);
        assert_eq!(
            due(&policy, 5, 1_001, None).map(|watch| watch.blocked_until),
            Some(Tick::MAX)
        );
    }

    #[test]
    fn a_small_port_is_not_watched_and_a_large_one_is_from_then_on() {
        let policy = VolumePolicy {
            bits: 1_600,
            window_s: 10,
            block_s: 30,
        };
        assert_eq!(due(&policy, 25, 100, None), None);
        assert_eq!(
            due(&policy, 25, 101, None),
            Some(Watch {
                window: 2,
                start_bits: 101,
                blocked_until: 0
            })
        );
    }
}
