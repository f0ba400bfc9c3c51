//! Which target has which bucket: weighted rendezvous, in whole numbers. Directors assign buckets of packets so, and stores those of keys.
//!
//! Each bucket draws a number for each target from the target's name and the seed, and the target with the least
//! `-log2(draw) / weight` has it. So a target that leaves gives up only its own buckets, one that comes takes only those that it
//! wins, and the result depends on nothing but names, weights and seed: it is the same on every machine, which floating
//! point would not promise.

use asterism_memory::hash;

/// Binary digits of a logarithm after the point.
const FRACTION_BITS: u32 = 24;

/// With which seed flows are hashed to be put into buckets; the buckets themselves are drawn with `seed`.
#[must_use]
pub fn flow_seed(seed: u64) -> u64 {
    hash::word(0x666c_6f77, seed)
}

/// A target that is to get a share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target<'a> {
    /// Its name, from which its buckets follow.
    pub name: &'a str,
    /// Its weight beside the others': 1 and more.
    pub weight: u16,
}

/// One target while buckets are assigned.
struct Candidate {
    identity: u64,
    weight: u64,
    place: usize,
}

/// The target of each of so many buckets, by its place in the list; none without targets. Costs a logarithm for each bucket and target: some
/// 70 ns.
#[must_use]
pub fn assign(buckets: u32, seed: u64, targets: &[Target<'_>]) -> Vec<Option<usize>> {
    let candidate = |(place, target): (usize, &Target<'_>)| Candidate {
        identity: hash::bytes(target.name.as_bytes(), seed),
        weight: u64::from(target.weight.max(1)),
        place,
    };
    let mut candidates: Vec<Candidate> = targets.iter().enumerate().map(candidate).collect();
    // The order of targets means nothing, not even where two draw alike.
    candidates.sort_by_key(|one| one.identity);
    let winner = |bucket: u32| {
        let mut best: Option<(u64, &Candidate)> = None;
        for candidate in &candidates {
            let draw = hash::words(u64::from(bucket), candidate.identity, seed);
            let cost = negated_log2(draw);
            let wins =
                best.is_none_or(|(least, holder)| cost * holder.weight < least * candidate.weight);
            if wins {
                best = Some((cost, candidate));
            }
        }
        best.map(|(_, candidate)| candidate.place)
    };
    (0..buckets).map(winner).collect()
}

/// `-log2((draw + 1) / 2^64)` with [`FRACTION_BITS`] after the point, rounded up: never zero.
fn negated_log2(draw: u64) -> u64 {
    let value = draw.saturating_add(1);
    let shift = value.leading_zeros();
    let mut mantissa = value << shift;
    let mut fraction = 0;
    for _ in 0..FRACTION_BITS {
        // Squaring doubles the logarithm; its next digit is whether the square has reached two.
        let square = ((u128::from(mantissa) * u128::from(mantissa)) >> 64) as u64;
        let digit = square >> 63;
        fraction = fraction << 1 | digit;
        mantissa = square << (1 - digit);
    }
    let log2 = u64::from(63 - shift) << FRACTION_BITS | fraction;
    (64 << FRACTION_BITS) - log2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_one() {
        for draw in [
            0,
            1,
            2,
            3,
            999,
            1 << 40,
            u64::MAX / 3,
            u64::MAX - 1,
            u64::MAX,
        ] {
            let exact = 64.0 - (draw as f64 + 1.0).log2();
            let found = negated_log2(draw) as f64 / f64::from(1 << FRACTION_BITS);
            assert!((found - exact).abs() < 1e-6, "{draw}: {found} for {exact}");
            assert!(found > 0.0);
        }
    }
}
