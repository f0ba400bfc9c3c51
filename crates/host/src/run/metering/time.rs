//! The time of instances, shared out to tenants.
//!
//! A host that serves one tenant alone runs for it. Otherwise the time of an interval is shared by the packets that it handled for
//! each, and evenly if there were none: somebody pays for a host that waits. What the tenants get adds up to the time that passed.

use std::sync::Arc;
use std::time::Duration;

use asterism_heartbeat::TenantUsage;
use asterism_io::port::TenantCounts;
use asterism_placement::Time;

use super::Metering;

/// How often usage is summed up.
const INTERVAL: Duration = Duration::from_millis(50);

/// Sums up the usage of a host's tenants, on its main thread.
#[derive(Debug, Default)]
pub(in crate::run) struct UsageMeter {
    last: Option<Time>,
    counts: Vec<TenantCounts>,
    instance_us: Vec<u64>,
    /// Microseconds that sharing left over; the next interval has them.
    left: u64,
    usage: Arc<[TenantUsage]>,
}

impl UsageMeter {
    /// The usage now, or of at most an interval ago. `runs`: the instances read packets.
    pub(in crate::run) fn read(
        &mut self,
        now: Time,
        metering: Option<&Metering>,
        runs: bool,
    ) -> Arc<[TenantUsage]> {
        if let Some(metering) = metering
            && self.last.is_none_or(|last| now.since(last) >= INTERVAL)
        {
            self.sum_up(now, metering, runs);
        }
        self.usage.clone()
    }

    /// The usage at the end of the host, once its loops have ended.
    pub(in crate::run) fn last(
        &mut self,
        now: Time,
        metering: Option<&Metering>,
    ) -> Arc<[TenantUsage]> {
        if let Some(metering) = metering {
            self.sum_up(now, metering, false);
        }
        self.usage.clone()
    }

    fn sum_up(&mut self, now: Time, metering: &Metering, runs: bool) {
        let counts = metering.counts();
        self.counts.resize(counts.len(), TenantCounts::default());
        self.instance_us.resize(counts.len(), 0);
        if runs && let Some(last) = self.last {
            let passed = now.since(last).as_micros() as u64 * metering.loops.len() as u64;
            let own = metering.tenants.iter().position(|(_, is_own)| *is_own);
            let packets = |place: usize| counts[place].packets - self.counts[place].packets;
            let parts: Vec<u64> = match own {
                Some(own) => (0..counts.len())
                    .map(|place| u64::from(place == own))
                    .collect(),
                None => (0..counts.len()).map(packets).collect(),
            };
            self.left = share(passed + self.left, &parts, &mut self.instance_us);
        }
        self.last = Some(now);
        self.usage = metering.usage(&counts, &self.instance_us);
        self.counts = counts;
    }
}

/// Adds to each sum its part of a time, evenly if all parts are zero; what is left over by rounding.
fn share(time: u64, parts: &[u64], sums: &mut [u64]) -> u64 {
    let whole: u128 = parts.iter().map(|part| u128::from(*part)).sum();
    let mut left = time;
    for (part, sum) in parts.iter().zip(&mut *sums) {
        let own = match whole {
            0 => time / parts.len().max(1) as u64,
            whole => (u128::from(time) * u128::from(*part) / whole) as u64,
        };
        *sum += own;
        left -= own;
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_shared_by_packets_and_none_of_it_is_lost() {
        let mut sums = vec![0; 3];
        assert_eq!(share(1_000, &[1, 3, 0], &mut sums), 0);
        assert_eq!(sums, [250, 750, 0]);
        // Evenly while nothing comes.
        assert_eq!(share(3_000, &[0, 0, 0], &mut sums), 0);
        assert_eq!(sums, [1_250, 1_750, 1_000]);
        // The rest is shared with the next interval.
        let (mut left, mut sums) = (0, vec![0; 3]);
        for packets in 0..1_000 {
            left = share(1_001 + left, &[packets, 7, packets / 3], &mut sums);
            assert!(left < 3);
        }
        assert_eq!(sums.iter().sum::<u64>() + left, 1_001_000);
        assert_eq!(share(u64::MAX, &[u64::MAX, u64::MAX], &mut [0, 0]), 1);
    }
}
