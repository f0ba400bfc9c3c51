//! Sets of 64 bits: the bit of a host or a port, and the estimated size of a set.
//!
//! A bit is chosen by the cluster's secret, alike on all instances, so that sets of different instances join by `or` and an
//! outsider cannot pick elements that share a bit.

use asterism_function::{Ask, Host, State};

/// A port's bit in a set, alike on all instances.
#[inline(always)]
pub(crate) fn port_bit<S: State>(ask: &Ask<'_, S>, port: u16) -> u64 {
    1 << ask.choose(1 << 63 | u64::from(port), 64)
}

/// A host's bit in a set, alike on all instances.
#[inline(always)]
pub(crate) fn host_bit<S: State>(ask: &Ask<'_, S>, host: Host) -> u64 {
    let (high, low) = host.words();
    // Chosen in two steps with the secret in each, so that nobody can find hosts that share a bit.
    let high = if high == 0 {
        0
    } else {
        u64::from(ask.choose(high, u32::MAX)) << 31
    };
    1 << ask.choose(low ^ high, 64)
}

/// How many distinct elements a set of 64 bits stands for: −64 ln(share of clear bits), rounded (linear counting, Whang et al. 1990).
#[inline]
pub(crate) fn estimate(set: u64) -> u16 {
    const ELEMENTS: [u16; 65] = [
        0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 15, 16, 17, 18, 20, 21, 23, 24, 25, 27, 28, 30,
        32, 33, 35, 37, 39, 40, 42, 44, 46, 48, 51, 53, 55, 58, 60, 63, 65, 68, 71, 74, 78, 81, 85,
        89, 93, 97, 102, 107, 113, 119, 126, 133, 142, 151, 163, 177, 196, 222, 266, 300,
    ];
    ELEMENTS[set.count_ones() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_estimates_is_linear_counting() {
        assert_eq!(estimate(0), 0);
        for bits in 1..64u32 {
            let exact = -64.0 * (1.0 - f64::from(bits) / 64.0).ln();
            assert!(
                (f64::from(estimate((1 << bits) - 1)) - exact).abs() <= 0.51,
                "{bits} bits"
            );
        }
        assert!(estimate(u64::MAX) > estimate(u64::MAX >> 1));
    }
}
