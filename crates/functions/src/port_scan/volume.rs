//! The volume policy: traffic by destination port, and ports blocked for it. Imports `mod.rs`'s state, `alert`, `config`.
//!
//! Totals are cumulative cells of each instance, which never go down and cannot be reset by one of them; so a window
//! is measured from the total at which it began (Constellation §6.6 counts since the start).

use asterism_function::{Act, Ask, At, Late, Single, Tally, Tick, Transport};

use super::learn::Change;
use super::{PortScan, PortScanState, VolumePolicy, Watch};

/// A port is watched once its total passes this part of the threshold, which its first window does not count: else
/// every port ever used would have an entry.
const UNWATCHED: u64 = 16;

/// What is known of the volume that the packet belongs to.
#[derive(Debug)]
pub(super) struct Traffic {
    tally: Tally<u16>,
    watch: Option<At<Single<u16>, Watch>>,
    port: u16,
    bits: u64,
}

/// What the packet adds to it.
pub(super) struct Addition {
    tally: Tally<u16>,
    bits: u64,
    port: u16,
    watch: Change<u16, Watch>,
}

impl Traffic {
    /// What is known of the destination port's volume; `None` without a policy, a port or room for the port.
    #[inline(always)]
    pub(super) fn of(
        function: &PortScan,
        ask: &Ask<'_, PortScanState>,
    ) -> Result<Option<Self>, Late> {
        let packet = ask.packet();
        if function.config.volume.is_none()
            || !matches!(packet.layout().transport(), Transport::Tcp | Transport::Udp)
        {
            return Ok(None);
        }
        let Some((_, port)) = packet.ports() else {
            return Ok(None);
        };
        let (tally, watch) = ask.all((ask.volume.find(&port), ask.watched.get(&port)))?;
        let bits = 8 * packet.bytes().len() as u64;
        Ok(tally.map(|tally| Self {
            tally,
            watch,
            port,
            bits,
        }))
    }

    /// Whether the port is blocked.
    #[inline(always)]
    pub(super) fn is_blocked(&self, now: Tick) -> bool {
        self.watch
            .is_some_and(|watch| now < watch.value.blocked_until)
    }

    /// What the packet adds, and whether with it the port is to be blocked.
    #[inline(always)]
    pub(super) fn addition(
        self,
        function: &PortScan,
        ask: &Ask<'_, PortScanState>,
    ) -> Result<Option<Addition>, Late> {
        let Some(policy) = function.config.volume else {
            return Ok(None);
        };
        let Self {
            tally,
            watch,
            port,
            bits,
        } = self;
        let total = tally.total.saturating_add(bits);
        let watch = match due(&policy, ask.now(), total, watch.as_ref()) {
            None => Change::None,
            Some(value) => match watch {
                Some(at) => Change::Update(at, value),
                None => Change::Insert(ask.watched.vacancy()?, value),
            },
        };
        Ok(Some(Addition {
            tally,
            bits,
            port,
            watch,
        }))
    }
}

impl Addition {
    /// Writes it.
    #[inline(always)]
    pub(super) fn write(self, act: &mut Act<'_, PortScanState>) {
        act.volume.add(&self.tally, self.bits);
        match self.watch {
            Change::None => {}
            Change::Update(at, watch) => act.watched.update(&at, watch),
            Change::Insert(Some(room), watch) => act.watched.insert(room, self.port, watch),
            Change::Insert(None, _) => act.unrecorded.add(1),
        }
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
    // The start may be above the total: whoever began the window knew of more.
    let over = total.saturating_sub(watch.start_bits) > policy.bits;
    if over {
        watch.blocked_until = now.saturating_add(policy.block_s);
    }
    (begins || over).then_some(watch)
}

#[cfg(test)]
mod tests {
    use super::*;

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
