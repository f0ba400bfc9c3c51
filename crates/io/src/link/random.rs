//! Randomness from a seed that is handed in.

/// A sequence of numbers that its seed alone decides, the same on every machine (SplitMix64: Steele, Lea and Flood, 2014).
/// For simulated faults; nothing secret may be drawn from it.
#[derive(Clone, Debug)]
pub struct SeededRandom {
    state: u64,
}

impl SeededRandom {
    /// The sequence of `seed`. Neighbouring seeds give unrelated sequences.
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom { state: seed }
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// True with a probability from 0 (never) to 1 (always). Draws nothing for those two.
    #[inline]
    pub fn chance(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        // 53 bits are what a float holds exactly.
        probability >= 1.0 || ((self.next_u64() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// A number from 0 to `most`, both included. The bias is below `most` in 2^64.
    #[inline]
    pub fn up_to(&mut self, most: u64) -> u64 {
        ((u128::from(self.next_u64()) * (u128::from(most) + 1)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_sequence() {
        // The published reference values for seed 1234567.
        let mut random = SeededRandom::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
        let mut random = SeededRandom::new(7);
        assert!(!random.chance(0.0) && random.chance(1.0) && !random.chance(f64::NAN));
        let hits = (0..100_000).filter(|_| random.chance(0.1)).count();
        assert!((9_500..10_500).contains(&hits), "{hits}");
        let mut seen = [false; 4];
        (0..100).for_each(|_| seen[random.up_to(3) as usize] = true);
        assert_eq!(seen, [true; 4]);
        assert_eq!(random.up_to(0), 0);
    }
}
